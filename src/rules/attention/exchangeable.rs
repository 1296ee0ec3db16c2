//! Multi-head softmax attention of exchangeable tokens, from the states of queries, keys, values.
//!
//! # Formula
//!
//! With c_k, c_v the mean cosines of keys and values, v = scale² d_head E q² E k² the variance of a
//! score and w = v (1 − c_k) what of it does not cancel in the softmax, overlaps S as in
//! [`crate::rules::softmax`]:
//!
//! ```text
//! E z²/E v²      = c_v + (1 − c_v) S2 + pull_q        S2 → S2/(1 − p) where A² meets E v² (dropout)
//! E z_a z_c/E v² = c_v + (1 − c_v) S11(cosine of the queries) + pull_p
//! ```
//!
//! *Pair classes.* Keys that repeat act as fewer, heavier ones. With K the matrix of cosines, C the
//! matrix that centres it and t = tr C K_k C/L = (1 − 1/L)(1 − c_k), the first order in w is that of
//! n_e = 1 + t²/spread(k, k) keys of score variance w = v t n_e/(n_e − 1) that carry the amplitude
//! n_e spread(k, v)/t in place of (1 − c_v), where spread(k, v) = ⟨C K_k C, C K_v C⟩/L².
//!
//! *Pull.* A query's key direction u (E |u|² = v/(width E x²)) tilts the average of the keys' inputs
//! towards u: two steps of Stein's lemma on Σ_bb' A_b A_b' y_b·y_b' give, B = v (1 − c_k)(1 − c_v)/width,
//!
//! ```text
//! Gaussian tokens:    pull_q = B (1 − S2 − 6 S3 + 6 S22)           pull_p = B c (1 − S2)²
//! normalised tokens:  pull_q = B (1 − 5 S2 + 4 S3 + 6 S22 − 6 S4 − r (2 − r) N)
//!                     pull_p = B (c (1 − S2)² − r (2 − r) N)      N = 1 − 3 S2 + 2 S3, r = c_k
//! ```
//!
//! Tokens of fixed norm lack the diagonal terms b = b'; and a key that overlaps less with what all
//! tokens share has more score variance left, so the softmax prefers it: the overlap o of a
//! normalised token with the common direction has variance (1 − r)²(1 − r/2)/width, the tilt moves
//! it by −v√r Var o, and the average loses twice √r times that. At small v, pull_q = v (1 − r)⁴/width
//! and pull_p = −v r (1 − r)³/width in units of E v².
//!
//! # Backward
//!
//! Γ, r_g: second moment and mean cosine of the gradient at the output, T, T11 as in softmax,
//! τ = (1/(1 − p) − c_v)/(1 − c_v), K = scale² d_head Γ:
//!
//! ```text
//! value  E g² = Γ (S2/(1 − p) + (L − 1) r_g S11)       E g_b g_b' = Γ ((1 − S2)/(L − 1) + r_g (1 − S11))
//! query  E g² = K E k² E v² (1 − c_k)(1 − c_v) (τ (T − (T − U)/d_head) + (1 − 2 S2 + S22 + U)/width)
//!        E g_a g_c = K E k² E v² (1 − c_k)(1 − c_v) r_g (T11 + (1 − S2)²/width)
//! key    E g² = K E q² E v² (1 − c_v) (τ E χT + (L − 1) r_g E ρT11)      E g_b g_b' = −E g²/(L − 1)
//! ```
//!
//! The query gradient is W_K y, y = Σ_b A_ab (g_b − ΣAg) x_b with g_b = h·x_b. Of the directions of x_b, that of
//! h adds E (ΣA g² − (ΣAg)²)² = 1 − 2 S2 + S22 + 2T where others have T, and that of the scores has U = E ΣA² (s −
//! ΣAs)²/w in place of T, for a score close to its average passes nothing; W_K maps it on the query itself, one of
//! d_head directions.
//!
//! The key weights collect Σ_b δs_ab x_b, which carries the 1/width of the query gradient too;
//! the product of the average x_b·x_b' and g_b·g_b' does not (`coupling`).
//!
//! Key and value gradients are summed over the query heads of their group. The radial share goes to
//! the values as 1 + (ρ − 1) cos²(v, z).
//!
//! # Assumptions
//!
//! Bidirectional, tokens exchangeable; of the 1/width terms the pull, those of the query's own directions and (1 −
//! S2)/width are taken.
//! Single heads were sampled to w = 16 (project notes); beyond, a caveat.
//!
//! # Source
//!
//! Project notes (theory §2, refinements §3–§5); first order in w: Kedia et al. 2024, which has no
//! query and key paths. Pair classes and the pull of normalised tokens are ours.

use std::iter::repeat_n;
use std::sync::Arc;

use sigprop_stack::Attention;

use super::concentration;
use super::fluctuation::Elasticity;
use super::{SHARPEST_SAMPLED, Scores, Sharpness};
use crate::domain::{Exchangeable, Gradient, Signal};
use crate::moments::{Few, Token, TokenGradient, ln_correction, ratio, share};
use crate::rules::softmax::{Cross, Overlaps, Row};

/// Share of repeats in the contrast between keys, and score variance, up to which groups of keys of
/// unequal size are told well enough by their number.
const LARGEST_GROUPED: f64 = 0.3;
const SHARPEST_GROUPED: f64 = 0.3;
/// Cosine of the keys up to which their differences have as many directions as there are features:
/// the (1 − S2)/width of the query and key paths. Attention and linear maps leave fewer.
const LARGEST_COSINE: f64 = 0.5;
/// The pull is an expansion in 1/width: it is not believed to take a larger part off the output (nor does it where the
/// rules were sampled).
const LARGEST_LOSS: f64 = 0.5;
/// ln of the score variance beyond which only T ~ w^(−½) goes on.
const LARGEST_LN_SCORE: f64 = 400.0;

/// What the forward pass of one attention leaves for its backward pass.
pub(crate) struct Attended {
    /// γ of the input.
    concentration: f64,
    query: Arc<Signal>,
    key: Arc<Signal>,
    value: Arc<Signal>,
    /// Number and mean weight of the keys as the softmax sees them.
    keys: Keys,
    row: Row,
    /// Per pair class of the queries.
    crosses: Few<Cross>,
    output: Signal,
}

/// Keys as the softmax sees them.
struct Keys {
    /// n_e.
    effective: f64,
    /// What multiplies S − 1/n_e in the output, in units of E v².
    amplitude: f64,
    key_cosine: f64,
    value_cosine: f64,
    /// Share of the spread of the keys that comes from repeated ids and segments.
    grouped: f64,
    /// v, as far as f64 holds it with room to spare.
    score_variance: f64,
    /// E (d score after the cap/d score)².
    score_slope: f64,
    /// Why the cap is not taken exactly.
    cap: Option<(&'static str, String)>,
    /// ln of the rest of v.
    ln_beyond: f64,
    /// w.
    contrast: f64,
}

impl Attended {
    pub(crate) fn new(
        attention: &Attention,
        domain: &Exchangeable,
        overlaps: &mut Overlaps,
        input: &Signal,
        [query, key, value]: [Arc<Signal>; 3],
    ) -> Self {
        let length = domain.seq_len;
        let d_head = attention.d_head as f64;
        let keys = Keys::new(attention, domain, &query, &key, &value);
        let row = overlaps.row(keys.effective, keys.contrast, 1.0 / (1.0 / d_head + 1.0 / input.token().width));
        let freedom = 1.0 / (1.0 / d_head + 2.0 / input.token().width);
        // The rest is what the key weights make of them.
        let queries = freedom * (1.0 / d_head + 1.0 / input.token().width);
        let crosses: Few<Cross> = query
            .cosines
            .iter()
            .map(|&cosine| overlaps.cross(keys.effective, keys.contrast, cosine, freedom, queries))
            .collect();

        let pull = Pull::new(&keys, input);
        let average = keys.average(length);
        let masked = attention.dropout_rate / (1.0 - attention.dropout_rate);
        let unpulled =
            average + keys.amplitude * (row.s2 - 1.0 / keys.effective) + masked * keys.single(row.s2, length);
        let pulled = pull.within(&keys, &row);
        let own = unpulled + pulled.max(-LARGEST_LOSS * unpulled);
        let cosines = query
            .cosines
            .iter()
            .zip(&crosses)
            .map(|(&cosine, cross)| {
                let between = average + keys.amplitude * cross.excess + pull.between(cosine, &keys, &row);
                if own > 0.0 { between / own } else { 0.0 }
            })
            .collect::<Arc<[f64]>>();
        let query_cosine = domain.mean(&query.cosines);
        let first = keys.contrast * (1.0 - row.s2).powi(2) / (keys.effective - 1.0).max(f64::MIN_POSITIVE);
        let followed =
            keys.amplitude * first * (1.0 - query_cosine) + (pulled - pull.between(query_cosine, &keys, &row)).max(0.0);
        let part = ratio(followed, own * (1.0 - domain.mean(&cosines))).min(1.0);
        let shared = overlaps.sharp_row(keys.effective, keys.contrast * query_cosine.max(0.0));
        let concentration = concentration::of_output(input, &query, &value, attention, &shared, part);
        let width = (attention.n_heads * attention.d_value) as f64;
        let overlaps_variance = (row.s22 - row.s2 * row.s2).max(0.0) / attention.n_heads as f64;
        let uneven = (keys.amplitude / own).powi(2) * overlaps_variance;
        let token = Token {
            scale_variance: keys.value_cosine.powi(2) * value.token().scale_variance + uneven,
            uneven,
            // Of its own scale a token sees what its own value contributes.
            sensitivity: value.token().sensitivity * average / (length * own),
            ..Token::gaussian(width, value.token().ln_second + own.ln())
        };
        Self {
            concentration: input.concentration.total,
            query,
            key,
            value,
            keys,
            row,
            crosses,
            output: Signal { concentration, ..Signal::new([token].into(), cosines) },
        }
    }

    /// The heads' outputs.
    pub(crate) fn output(&self) -> &Signal {
        &self.output
    }

    pub(crate) fn sharpness(&self, domain: &Exchangeable) -> Sharpness {
        let length = domain.seq_len;
        Sharpness {
            ln_score: self.keys.score_variance.ln() + self.keys.ln_beyond,
            attended: self.keys.single(self.row.s2, length).recip(),
            in_view: length,
        }
    }

    /// How the rows' differences follow those of keys and queries, at the mean over pairs.
    pub(crate) fn elasticity(&self, domain: &Exchangeable) -> Elasticity {
        let mean = |of: &dyn Fn((&Cross, &f64)) -> f64| -> f64 {
            let values: Few<f64> = self.crosses.iter().zip(self.query.cosines.iter()).map(of).collect();
            domain.mean(&values)
        };
        let (row, w) = (&self.row, self.keys.contrast);
        let excess = mean(&|(cross, _)| cross.excess);
        let apart = row.s2 - self.keys.effective.recip() - excess;
        let own = row.s2 - 4.0 * row.s3 + 3.0 * row.s22;
        let flat = Elasticity::FLAT;
        if w <= 0.0 || apart <= 0.0 {
            return flat;
        }
        let sharpness = w * (own - mean(&|(cross, cosine)| cosine * cross.t11)) / apart;
        let distance = w * mean(&|(cross, cosine)| (1.0 - cosine) * cross.t11) / apart;
        Elasticity { sharpness: sharpness.clamp(0.0, 1.0), distance: distance.clamp(0.0, 1.0) }
    }

    /// The attention probabilities, one row of `seq_len` entries per query.
    pub(crate) fn probabilities(&self, domain: &Exchangeable) -> Signal {
        let length = domain.seq_len;
        let own = self.keys.single(self.row.s2, length);
        let token = Token { mean: 1.0 / (length * own).sqrt(), ..Token::gaussian(length, (own / length).ln()) };
        let cosines = self.crosses.iter().map(|cross| self.overlap(cross, length) / own).collect();
        Signal::new([token].into(), cosines)
    }

    /// The gradient at the probabilities, from that at the output.
    pub(crate) fn probabilities_backward(&self, attention: &Attention, gradient: &Gradient) -> Gradient {
        let keep = 1.0 - attention.dropout_rate;
        let gain = attention.d_value as f64 / keep;
        let token = TokenGradient::isotropic(gradient.token().ln_second + self.value.token().ln_second + gain.ln());
        Gradient::new([token].into(), gradient.cosines.iter().map(|cosine| cosine * keep).collect())
    }

    /// The gradients at queries, keys and values.
    pub(crate) fn split(&self, attention: &Attention, domain: &Exchangeable, gradient: &Gradient) -> [Gradient; 3] {
        let length = domain.seq_len;
        let keep = 1.0 - attention.dropout_rate;
        let keys = &self.keys;
        let group = (attention.n_heads / attention.n_kv_heads) as f64;
        let ln_score = gradient.token().ln_second
            + (attention.scale.powi(2) * keys.score_slope * attention.d_value as f64).ln()
            + self.value.token().ln_second
            - 0.5 * keys.ln_beyond;
        let others = length - 1.0;
        let pairs = |value: &dyn Fn(&Cross) -> f64| -> f64 {
            let terms = domain.classes.iter().zip(gradient.cosines.iter()).zip(&self.crosses);
            terms.map(|((class, cosine), cross)| class.share * cosine * value(cross)).sum()
        };
        // (1/(1 − p) − c_v)/(1 − c_v), with the amplitude of the value differences in front.
        let masked = keep.recip() - 1.0;
        let kept = |amplitude: f64| amplitude + masked * keys.effective / length;

        // Values.
        let heads = attention.n_heads as f64;
        let row = &self.row;
        // Of the output's square, in units of E v².
        let of_keys = keys.amplitude * share(self.value.token().ln_second, self.output.token().ln_second) / heads;
        // Gradients are smaller where rows are sharp and the output large.
        let smaller = |moment: f64, with_s2: f64| {
            ln_correction(-gradient.token().steepness * of_keys * ratio(with_s2 - moment * row.s2, moment)).exp()
        };
        let own_row = keys.single(row.s2, length) * smaller(row.s2, row.s22);
        // Gradients that add up to nothing leave rounding.
        let value_own = (own_row / keep + others * pairs(&|cross| self.overlap(cross, length))).max(0.0);
        let shared = pairs(&|cross| 1.0 - self.overlap(cross, length));
        let value_cosines =
            self.key_classes(domain, own_row, if others > 0.0 { (1.0 - own_row) / others } else { 0.0 });
        let alignment = self.value_alignment(length);
        let [crossed, key_radial] = self.longer(domain, gradient, own_row / keep, value_own, length);
        // Of the gradients of all queries one is the token's own.
        let gathered = gradient.token().local / length;
        let value_token = TokenGradient {
            radial: 1.0 + (gradient.token().radial - 1.0) * alignment,
            constant: gradient.token().constant,
            steepness: 0.0,
            excess: crossed,
            local: gathered,
            ln_second: gradient.token().ln_second + (group * value_own).ln(),
        };
        let value_cosines = value_cosines.iter().map(|own| ratio(own + shared, value_own)).collect();
        let value = Gradient::new([value_token].into(), value_cosines);

        // Queries.
        let differences = (1.0 - keys.key_cosine) * (1.0 - keys.value_cosine) * self.concentration;
        let own_directions = differences * self.row.own_directions();
        let sharp = smaller(row.t(), row.t_s2);
        // Of the output's own direction, in which the keys attended most lie.
        let along = (gradient.token().radial - 1.0) * of_keys * row.squares();
        let through = row.t() - (row.t() - row.tilt) / attention.d_head as f64;
        let query_own = (1.0 - keys.key_cosine) * (kept(keys.amplitude) * sharp * through + keys.amplitude * along)
            + own_directions;
        let query_cosines = self.crosses.iter().zip(gradient.cosines.iter()).map(|(cross, cosine)| {
            let between =
                (1.0 - keys.key_cosine) * keys.amplitude * cross.t11 + differences * (1.0 - self.row.s2).powi(2);
            ratio(cosine * between, query_own)
        });
        let ln_query = ln_score + self.key.token().ln_second + query_own.max(0.0).ln();
        let query_token = TokenGradient {
            radial: if query_own > 0.0 { ratio(self.row.tilt, self.row.t()) } else { 1.0 },
            local: gradient.token().local,
            ..TokenGradient::isotropic(ln_query)
        };
        let query = Gradient::new([query_token].into(), query_cosines.collect());

        // Keys.
        let alone = keys.effective / length;
        let value_difference = 1.0 - keys.value_cosine;
        let key_own = alone
            * ((value_difference + masked) * sharp * row.t_weighted
                + value_difference * along
                + others * value_difference * pairs(&|cross| cross.t11_weighted));
        let key_cosines = self.key_classes(domain, 1.0, if others > 0.0 { -1.0 / others } else { 0.0 });
        // Σ_b δs_ab x_b, which the key weights collect, is what the query gradient is made of.
        let collected = (1.0 - keys.key_cosine)
            * (kept(keys.amplitude) * sharp * row.t_weighted + keys.amplitude * along)
            + own_directions
            + others * self.collected_pairs(domain, gradient, differences);
        let coupling =
            ratio(collected, key_own) - domain.coherence(domain.mean_product(&self.key.cosines, &key_cosines));
        let ln_key = ln_score + self.query.token().ln_second + (group * key_own.max(0.0)).ln();
        let radial = if key_own > 0.0 {
            let ln_values = key_radial.ln() + value_token.ln_second + self.value.token().ln_second;
            share(ln_values, ln_key + self.key.token().ln_second).min(self.key.token().width)
        } else {
            1.0
        };
        let key_token = TokenGradient { radial, excess: radial, local: gathered, ..TokenGradient::isotropic(ln_key) };
        let key = Gradient { coupling, ..Gradient::new([key_token].into(), key_cosines) };
        [query, key, value]
    }

    /// E (Σ_b δs_ab x_b)·(Σ_b δs_cb x_b) q_a·q_c over pairs of queries, in units of the diagonal.
    fn collected_pairs(&self, domain: &Exchangeable, gradient: &Gradient, differences: f64) -> f64 {
        let queries = self.query.cosines.iter().zip(&self.crosses);
        let between: Few<f64> = queries
            .map(|(cosine, cross)| {
                (1.0 - self.keys.key_cosine) * self.keys.amplitude * cross.t11_weighted
                    + cosine * differences * (1.0 - self.row.s2).powi(2)
            })
            .collect();
        domain.mean_product(&gradient.cosines, &between)
    }

    /// What a longer token changes by being attended more, beside its larger value: E (v·g_v)(k·g_k) and E (k·g_k)², in units of
    /// E (v·g_v)².
    fn longer(&self, domain: &Exchangeable, gradient: &Gradient, own: f64, all: f64, length: f64) -> [f64; 2] {
        // Beyond what was sampled it is not let grow.
        let w = self.keys.contrast.min(SHARPEST_SAMPLED);
        let tilt = w * (1.0 - self.row.s2);
        let alone = ratio(2.0 * w * (self.row.s2 - self.row.s3), self.row.s2);
        let pairs = |of: &dyn Fn(f64) -> f64| -> f64 {
            let terms =
                domain.classes.iter().zip(gradient.cosines.iter()).zip(&self.crosses).zip(self.query.cosines.iter());
            terms.map(|(((class, g), cross), &q)| class.share * g * self.overlap(cross, length) * of(q)).sum()
        };
        let others = length - 1.0;
        let first = own * alone + others * pairs(&|q| tilt * (1.0 + q));
        let second = own * (alone * alone + tilt) + others * pairs(&|q| (tilt * (1.0 + q)).powi(2) + q * tilt);
        let apart = 1.0 - self.keys.value_cosine;
        let known = self.key.token().sensitivity;
        [apart * known * ratio(first, all), apart * ratio(second, all)]
    }

    /// E Σ_b A_ab A_cb over single keys.
    fn overlap(&self, cross: &Cross, length: f64) -> f64 {
        (1.0 + cross.excess * self.keys.effective) / length
    }

    /// cos² of the angle between a value and the output of another token.
    fn value_alignment(&self, length: f64) -> f64 {
        let average = self.keys.average(length);
        average * average * share(self.value.token().ln_second, self.output.token().ln_second)
    }

    /// A quantity of pairs of keys that is `same` for equal keys and `mean` on average, per class.
    fn key_classes(&self, domain: &Exchangeable, same: f64, mean: f64) -> Arc<[f64]> {
        let distance = 1.0 - self.keys.key_cosine;
        let closeness: Few<f64> = if distance > 0.0 {
            self.key.cosines.iter().map(|cosine| (cosine - self.keys.key_cosine) / distance).collect()
        } else {
            repeat_n(0.0, self.key.cosines.len()).collect()
        };
        // Zero but for rounding, which grows where tokens are alike.
        let average = domain.mean(&closeness);
        closeness.into_iter().map(|closeness| mean + (same - mean) * (closeness - average)).collect()
    }

    /// Why the rule is not exact here, if it is not.
    pub(crate) fn caveat(&self) -> Option<(&'static str, String)> {
        let keys = &self.keys;
        if keys.contrast > SHARPEST_SAMPLED {
            return Some((
                "attention is sharper than the rules were sampled at (score variance within a row up to 16)",
                format!("{:.3e}", keys.contrast),
            ));
        }
        if keys.grouped > LARGEST_GROUPED && keys.contrast > SHARPEST_GROUPED {
            return Some((
                "repeated tokens are groups of unequal weight, given to attention to first order in the score variance \
                 (sampled with Zipf ids at score variance 1: first branch up to 15 % off, stream up to 3 %)",
                format!(
                    "score variance {:.2}, {:.0} % of the contrast from repeats",
                    keys.contrast,
                    100.0 * keys.grouped
                ),
            ));
        }
        if keys.key_cosine > LARGEST_COSINE {
            return Some((
                "gradients of queries and keys are rough where tokens are alike (sampled at cosines 0.6 to 0.999: up to a \
                 third too small, with dropout up to two fifths too large); what the stream receives of them is \
                 negligible there",
                format!("cosine {:.2}", keys.key_cosine),
            ));
        }
        keys.cap.clone()
    }
}

impl Keys {
    fn new(attention: &Attention, domain: &Exchangeable, query: &Signal, key: &Signal, value: &Signal) -> Self {
        let length = domain.seq_len;
        let (key_cosine, value_cosine) = (domain.mean(&key.cosines), domain.mean(&value.cosines));
        let distance = 1.0 - key_cosine;
        let scores = Scores::new(attention, query.token().ln_second + key.token().ln_second);
        let score_slope = scores.slope;
        let cap = scores.caveat();
        let ln_score_variance = scores.ln_variance;
        let score_variance = ln_score_variance.min(LARGEST_LN_SCORE).exp();
        let ln_beyond = (ln_score_variance - LARGEST_LN_SCORE).max(0.0);
        if distance <= 1e-12 || length < 2.0 {
            let amplitude = 1.0 - value_cosine;
            return Self {
                effective: length,
                amplitude,
                grouped: 0.0,
                key_cosine,
                value_cosine,
                score_variance,
                score_slope,
                cap: None,
                ln_beyond,
                contrast: 0.0,
            };
        }
        let trace = (1.0 - 1.0 / length) * distance;
        let spread = domain.spread(&key.cosines, &key.cosines);
        let effective = 1.0 + (trace * trace / spread).min(length - 1.0);
        let contrast = score_variance * trace * effective / (effective - 1.0);
        Self {
            effective,
            // Of tokens that are copies only rounding is left.
            amplitude: (effective * domain.spread(&key.cosines, &value.cosines) / trace).max(0.0),
            grouped: 1.0 - (effective - 1.0) / (length - 1.0),
            key_cosine,
            value_cosine,
            score_variance,
            score_slope,
            cap,
            ln_beyond,
            contrast,
        }
    }

    /// E |Σ_b v_b/L|² of flat attention, in units of E v².
    fn average(&self, length: f64) -> f64 {
        self.value_cosine * (1.0 - 1.0 / length) + 1.0 / length
    }

    /// E Σ A² over single keys, from that over effective ones.
    fn single(&self, s2: f64, length: f64) -> f64 {
        s2 * self.effective / length
    }
}

/// The pull of a query's key direction on the average.
struct Pull {
    strength: f64,
    /// 1 for Gaussian tokens, 0 for tokens of fixed norm.
    freedom: f64,
}

impl Pull {
    fn new(keys: &Keys, input: &Signal) -> Self {
        // Beyond what was sampled it is not let grow.
        let variance = keys.score_variance.min(SHARPEST_SAMPLED / (1.0 - keys.key_cosine).max(1e-3));
        let strength = variance * (1.0 - keys.key_cosine) * (1.0 - keys.value_cosine) * input.concentration.total;
        let token = input.token();
        let freedom = (0.5 * token.norm_variance() * token.width).clamp(0.0, 1.0);
        Self { strength, freedom }
    }

    fn within(&self, keys: &Keys, row: &Row) -> f64 {
        let gaussian = 1.0 - row.s2 - 6.0 * row.s3 + 6.0 * row.s22;
        let normalised =
            1.0 - 5.0 * row.s2 + 4.0 * row.s3 + 6.0 * row.s22 - 6.0 * row.s4 - Self::common_loss(keys, row);
        self.strength * (self.freedom * gaussian + (1.0 - self.freedom) * normalised)
    }

    fn between(&self, cosine: f64, keys: &Keys, row: &Row) -> f64 {
        let gaussian = cosine * (1.0 - row.s2).powi(2);
        let normalised = gaussian - Self::common_loss(keys, row);
        self.strength * (self.freedom * gaussian + (1.0 - self.freedom) * normalised)
    }

    /// What the average loses of the common part.
    fn common_loss(keys: &Keys, row: &Row) -> f64 {
        let r = keys.key_cosine;
        r * (2.0 - r) * (1.0 - 3.0 * row.s2 + 2.0 * row.s3)
    }
}
