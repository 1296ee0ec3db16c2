//! Keys as the softmax sees them: n_e equal ones, and factors for what ids that repeat and segments make of them.

use nalgebra::Vector3;
use sigprop_stack::Attention;

use crate::domain::{Exchangeable, PairClass, Signal};
use crate::moments::{Few, ratio};
use crate::rules::attention::{SHARPEST_SAMPLED, Scores};
use crate::rules::concat;
use crate::rules::softmax::segments::Kinds;
use crate::rules::softmax::{Cross, Row, Shared};

/// ln of the score variance beyond which only T ~ w^(−½) goes on.
const LARGEST_LN_SCORE: f64 = 400.0;

/// Keys as the softmax sees them.
pub(super) struct Keys {
    /// n_e.
    pub(super) effective: f64,
    /// E |Σ_b A_b v_b|² of mean rows, in units of E v².
    pub(super) average: f64,
    /// What multiplies S − 1/n_e in the output, in units of E v².
    pub(super) amplitude: f64,
    /// What multiplies T in the gradients of queries, in units of E v² and of E k² (1 − c_k).
    pub(super) passing: Factors,
    /// The same of values apart, under masks.
    pub(super) masking: f64,
    /// What multiplies T in the gradients of single keys, in units of E v² (1 − c_v).
    pub(super) reaching: Factors,
    /// Σ over single keys of (E A_b)², and what multiplies S − 1/n_e in Σ A_b².
    pub(super) single: [f64; 2],
    /// tr M^k/(tr M)^k of the centred cosines M over that of n_e equal keys, for k = 3 and 4.
    pub(super) traces: [f64; 2],
    /// Pairs of different keys, if more is known of them than their cosine.
    pub(super) pairs: Option<Pairs>,
    pub(super) key_cosine: f64,
    pub(super) value_cosine: f64,
    /// Share of the spread of the keys that comes from repeated ids and segments.
    pub(super) grouped: f64,
    /// Share of segments in what keys differ in.
    pub(super) segmented: f64,
    /// v, as far as f64 holds it with room to spare.
    pub(super) score_variance: f64,
    /// E (d score after the cap/d score)².
    pub(super) score_slope: f64,
    /// Why the cap is not taken exactly.
    pub(super) cap: Option<(&'static str, String)>,
    /// ln of the rest of v.
    pub(super) ln_beyond: f64,
    /// w.
    pub(super) contrast: f64,
}

/// What multiplies T of one row, and T11(0) of two that have nothing in common.
#[derive(Clone, Copy)]
pub(super) struct Factors {
    pub(super) own: f64,
    apart: f64,
}

impl Factors {
    fn both(factor: f64) -> Self {
        Self { own: factor, apart: factor }
    }

    fn times(self, own: f64, apart: f64) -> Self {
        Self { own: self.own * own, apart: self.apart * apart }
    }
}

/// Pairs of different keys, by their class.
pub(super) struct Pairs {
    /// L E A_ab A_cb' of two rows that have nothing in common, and of one.
    mean: Few<f64>,
    own: Few<f64>,
    /// Cosines of the gradients of the keys.
    pub(super) gradients: Few<f64>,
}

impl Pairs {
    /// For values with these `parts`.
    fn new(domain: &Exchangeable, kinds: &Kinds, parts: Vector3<f64>) -> Self {
        let share = [domain.share_of(|class| class.same_id), domain.share_of(|class| class.same_segment)];
        let others = domain.seq_len - 1.0;
        let [same_id, same_segment, alone] = (kinds.passed * parts).into();
        // Gradients of all keys add up to nothing; what those of one id and of one segment share adds up.
        let average = -alone / others;
        let closer = |sum: f64, share: f64| {
            // Nothing is closer where all are.
            let differ = 0.0 < share && share < 1.0;
            if differ { ((sum - alone) / (others * share) - average) / (1.0 - share) } else { 0.0 }
        };
        let [of_id, of_segment] = [closer(same_id, share[0]), closer(same_segment, share[1])];
        let apart = average - of_id * share[0] - of_segment * share[1];
        let gradient = |class: &PairClass| {
            let of = |same: bool, closer: f64| if same { closer } else { 0.0 };
            (apart + of(class.same_id, of_id) + of(class.same_segment, of_segment)) / alone
        };
        let weights = |rows: Vector3<f64>, together: f64| -> Few<f64> {
            let [ids, segments, single] = rows.into();
            let both = (ids - single) * together;
            let weight = |class: &PairClass| {
                let sum = match (class.same_id, class.same_segment) {
                    (true, true) => both,
                    (true, false) => ids - single - both,
                    (false, true) => segments - single - both,
                    (false, false) => 1.0 - ids - segments + single + both,
                };
                ratio(sum, others * class.share)
            };
            domain.classes.iter().map(weight).collect()
        };
        let [own, mean] = kinds.together;
        Self {
            mean: weights(kinds.mean, mean),
            own: weights(kinds.own, own),
            gradients: domain.classes.iter().map(gradient).collect(),
        }
    }

    /// Of the class at this place and rows with the part `alike` of a row's own overlap.
    pub(super) fn together(&self, place: usize, alike: f64) -> f64 {
        self.mean[place] + alike * (self.own[place] - self.mean[place])
    }
}

impl Keys {
    pub(super) fn new(
        attention: &Attention,
        domain: &Exchangeable,
        query: &Signal,
        key: &Signal,
        value: &Signal,
    ) -> Self {
        let length = domain.seq_len;
        let (key_cosine, value_cosine) = (domain.mean(&key.cosines), domain.mean(&value.cosines));
        let distance = 1.0 - key_cosine;
        let average = value_cosine * (1.0 - 1.0 / length) + 1.0 / length;
        let scores = Scores::new(
            attention,
            query.token().ln_second + key.token().ln_second + concat::score_variance([query, key]).ln(),
        );
        let ln_score_variance = scores.ln_variance;
        let score_variance = ln_score_variance.min(LARGEST_LN_SCORE).exp();
        let ln_beyond = (ln_score_variance - LARGEST_LN_SCORE).max(0.0);
        let differ = distance > 1e-12 && length >= 2.0;
        let (effective, amplitude, apart) = if differ {
            let trace = (1.0 - 1.0 / length) * distance;
            let spread = domain.spread(&key.cosines, &key.cosines);
            let effective = 1.0 + (trace * trace / spread).min(length - 1.0);
            // Of tokens that are copies only rounding is left.
            let amplitude = (effective * domain.spread(&key.cosines, &value.cosines) / trace).max(0.0);
            (effective, amplitude, trace * effective / (effective - 1.0))
        } else {
            (length, 1.0 - value_cosine, 0.0)
        };
        // Fewer keys are further apart.
        let further = if differ { apart / distance } else { 1.0 };
        Self {
            effective,
            average,
            amplitude,
            passing: Factors::both(amplitude * further),
            masking: effective / length,
            reaching: Factors::both(effective / length),
            single: [1.0 / length, effective / length],
            traces: [1.0; 2],
            pairs: None,
            segmented: 0.0,
            grouped: if differ { 1.0 - (effective - 1.0) / (length - 1.0) } else { 0.0 },
            key_cosine,
            value_cosine,
            score_variance,
            score_slope: scores.slope,
            cap: if differ { scores.caveat() } else { None },
            ln_beyond,
            contrast: score_variance * apart,
        }
    }

    /// The same where ids repeat, in segments or not, beyond the first order in w: `sharp` is the row of n_e keys.
    pub(super) fn repeated(&mut self, domain: &Exchangeable, [key, value]: [&Signal; 2], sharp: &Row) {
        /// Share in the spread of the keys below which ids and segments, and what is beside segments, are as good as none.
        const SMALLEST: f64 = 0.01;
        /// Score variance below which what is beyond the first order goes with it.
        const SMALLEST_SCORE: f64 = 0.02;
        let [key_id, key_segment, key_common] = domain.likeness(&key.cosines);
        let [value_id, value_segment, value_common] = domain.likeness(&value.cosines);
        let (key_apart, value_apart) = (1.0 - key_common, 1.0 - value_common);
        let is_sampled = 0.0 < self.contrast && self.contrast < SHARPEST_SAMPLED;
        if domain.repeats.is_empty() || self.grouped < SMALLEST || !is_sampled {
            return;
        }
        let n = self.effective;
        let of_ids = key_apart - key_segment;
        let [third, fourth] =
            domain.repeats.traces((key_id / of_ids).clamp(0.0, 1.0), (key_segment / of_ids).max(0.0), domain.segments);
        self.traces = [third * (n - 1.0).powi(2), fourth * (n - 1.0).powi(3)];
        let parts = |[id, segment]: [f64; 2], apart: f64| {
            let segment = ratio(segment, apart).clamp(0.0, 1.0);
            let id = ratio(id, apart).clamp(0.0, 1.0 - segment);
            Vector3::new(id, segment, 1.0 - id - segment)
        };
        let keys = parts([key_id, key_segment], key_apart);
        self.segmented = keys[1];
        let values = parts([value_id, value_segment], value_apart);
        if keys[0] + keys[1] < SMALLEST {
            return;
        }
        let w = self.score_variance * key_apart;
        let met = w.max(SMALLEST_SCORE);
        let part = w / met;
        let segments = if keys[1].max(values[1]) > SMALLEST { domain.segments } else { &[] };
        let length = domain.seq_len;
        let beside = (1.0 - keys[1]).max(SMALLEST);
        let kinds = if segments.is_empty() {
            Kinds::of_ids(&domain.repeats.overlaps(met, keys[0]))
        } else {
            let ids = domain.repeats.overlaps(met * beside, keys[0] / beside);
            Kinds::of_segments(&ids, segments, 2.0 * met * keys[1], length)
        };
        let (flat, spread) = Kinds::flat(&domain.repeats, segments);
        let first = keys.dot(&(spread * values));
        let passed = kinds.passed * values;
        let (passes, share) = (sharp.t(), 1.0 - n.recip());
        // S2 − 1/n of first order, which rounding takes away where scores hardly differ, and over it S2 − 1/n.
        let linear = self.contrast * share / n;
        let saturated = if self.contrast < SMALLEST_SCORE.powi(2) { 1.0 } else { (sharp.s2 - n.recip()) / linear };
        // What is beyond the first order, over what it is of n_e keys.
        let over = |exact: f64, plain: f64| 1.0 + part * (exact / plain - 1.0);
        let apart = kinds.apart * values;
        self.passing = self.passing.times(
            over(keys.dot(&passed) / first, passes * n / share),
            over(keys.dot(&apart) / first, ((1.0 - sharp.s2) / share).powi(2)),
        );
        self.amplitude *= over((kinds.own - kinds.mean).dot(&values) / (met * first), saturated);
        self.average += value_apart * part * (kinds.mean - flat).dot(&values);
        self.masking = key_apart * keys.dot(&kinds.passed.column(2)) / ((1.0 - self.key_cosine) * passes);
        let passes_apart = (1.0 - sharp.s2).powi(2) / (n - 1.0);
        self.reaching =
            Factors::both(value_apart / (1.0 - self.value_cosine)).times(passed[2] / passes, apart[2] / passes_apart);
        self.single = [kinds.mean[2], part * (kinds.own[2] - kinds.mean[2]) / (linear * saturated)];
        self.pairs = Some(Pairs::new(domain, &kinds, values));
    }

    /// E Σ A² over single keys, from that over effective ones.
    pub(super) fn single(&self, s2: f64) -> f64 {
        self.overlap(s2 - self.effective.recip())
    }

    /// E Σ_b A_ab A_cb over single keys, from what it is over effective ones beyond flat attention.
    pub(super) fn overlap(&self, excess: f64) -> f64 {
        self.single[0] + self.single[1] * excess
    }

    /// Of n_e equal keys, with the keys' cosines in place of their number.
    pub(super) fn shared(&self, mut shared: Shared) -> Shared {
        let [third, fourth] = self.traces;
        shared.followed[1] *= third;
        shared.followed[2] *= fourth;
        shared.between *= third;
        shared
    }

    /// T11 of two rows of the kind of `row`, which n_e keys have as `between`, times what multiplies it.
    pub(super) fn passed(&self, factors: Factors, row: &Row, between: f64) -> f64 {
        let apart = (1.0 - row.s2).powi(2) / (self.effective - 1.0);
        let unlike = ratio(row.t() - between, row.t() - apart).clamp(0.0, 1.0);
        factors.own * between - (factors.own - factors.apart) * apart * unlike
    }

    /// The same of E ρ T11.
    pub(super) fn weighted(&self, factors: Factors, row: &Row, cross: &Cross) -> f64 {
        self.passed(factors, row, cross.t11) * ratio(cross.t11_weighted, cross.t11)
    }

    /// B: what pulls of queries are in units of, of E v².
    pub(super) fn pull(&self, concentration: f64) -> f64 {
        // Beyond what was sampled it is not let grow.
        let variance = self.score_variance.min(SHARPEST_SAMPLED / (1.0 - self.key_cosine).max(1e-3));
        variance * (1.0 - self.key_cosine) * (1.0 - self.value_cosine) * concentration
    }
}
