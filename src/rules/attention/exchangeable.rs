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
//! *Repeated ids* are groups of unequal size. `rules/softmax/repeats.rs` has E AᵀVA, that of mean rows, T, T11(0) and what
//! single keys and pairs of one id get of them, at any w, and `rules/softmax/segments.rs` the same in two segments; over what
//! they are of n_e keys they are factors on S − 1/n_e and T (`exchangeable/keys.rs`). How all goes with ρ, with finite heads
//! and with the kurtosis stays that of n_e keys, and the numbers of ids are those expected. Sampled at score variance 1 and 2,
//! widths 256 and 512, vocabularies of 64 and 30522, and segments (docs/accuracy.md): median error 0.1 to 0.2 %, to first order
//! 0.2 to 2.4 %.
//!
//! *Pull*, of the query's key direction: `attention/pull.rs`.
//!
//! *Rows are not equally sharp.* The square of one output strays with the S2 of its rows, by itself, for the products
//! with other outputs do not: Var ln |z_a|² = ((1 − c_v) E v²/E z²)² (S22 − S2²)/n_heads (`uneven`), which norms divide
//! by.
//!
//! Backward: `exchangeable/backward.rs`.
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
//! query and key paths. Pair classes, repeated ids and the pull of normalised tokens are ours.

mod backward;
mod keys;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use sigprop_stack::Attention;

use self::keys::Keys;
use super::concentration::{self, Parts, Unequal};
use super::fluctuation::Elasticity;
use super::pull::Ends;
use super::{LEAST_DRAWN, SHARPEST_SAMPLED, Sharpness, along_values, entry_variance, head_lengths, lengths};
use crate::domain::{Exchangeable, Gradient, Signal};
use crate::moments::{Few, Token, TokenGradient, ratio};
use crate::rules::softmax::{Cross, Overlaps, Row};

/// Share of segments in what keys differ in, and score variance, up to which they know nothing of single weights.
const LARGEST_SEGMENTED: f64 = 0.1;
const SHARPEST_SEGMENTED: f64 = 1.5;
/// Cosine of the keys up to which their differences have as many directions as there are features:
/// the (1 − S2)/width of the query and key paths. Attention and linear maps leave fewer.
const LARGEST_COSINE: f64 = 0.5;
/// The pull is an expansion in 1/width: it is not believed to take a larger part off the output (nor does it where the
/// rules were sampled).
const LARGEST_LOSS: f64 = 0.5;

/// Fewest directions that two rows of scores are taken to have: with one they have no cosine but ±1, with fewer a cosine
/// whose mean square is above 1 (few heads, tokens almost copies).
const LEAST_FREEDOM: f64 = 1.5;

/// What the forward pass of one attention leaves for its backward pass.
pub(crate) struct Attended {
    /// γ of the input.
    concentration: f64,
    /// What is left of it where keys lean towards queries.
    leant: f64,
    /// E |δ|⁴/(E |δ|²)² of its token differences δ, less what it is beyond 1 for Gaussian ones.
    unequal: f64,
    /// What T of values and of keys loses beside scores far from their average.
    outlying: [f64; 2],
    /// E χT, χ the query's square.
    weighted: f64,
    /// What |δ|² strays by beyond.
    longer: f64,
    /// d ln S2/d ln w and d ln T/d ln w.
    growth: [f64; 2],
    /// Variance of the correlation of two uncorrelated queries.
    drawn: f64,
    query: Arc<Signal>,
    key: Arc<Signal>,
    value: Arc<Signal>,
    /// Number and mean weight of the keys as the softmax sees them.
    keys: Keys,
    row: Row,
    /// Per pair class of the queries.
    crosses: Few<Cross>,
    /// The pull within a row and, per pair class, between two, in units of E v².
    pulled: f64,
    pulls: Few<f64>,
    output: Signal,
    /// Why differences are in too few directions, if they are.
    narrow: Option<(&'static str, String)>,
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
        let mut keys = Keys::new(attention, domain, &query, &key, &value);
        let drawn = 1.0 / d_head + input.concentration.total;
        let [of_queries, of_keys] = head_lengths(attention, query.token(), key.token());
        let lengths = (of_queries.min(1.0 / d_head) + input.concentration.total).max(LEAST_DRAWN);
        let unequal = Unequal::of(input).with_keys(of_keys, attention.d_head);
        let longer = input.concentration.unequal;
        let kurtosis = unequal.kurtosis(keys.key_cosine) + 3.0 * longer;
        let row = overlaps.row(keys.effective, keys.contrast, 1.0 / lengths, kurtosis);
        let freedom = (drawn + input.concentration.total).recip().max(LEAST_FREEDOM);
        // The rest is what the key weights make of them.
        let queries = freedom * drawn;
        let steady = ratio(lengths, drawn).sqrt();
        let crosses: Few<Cross> = query
            .cosines
            .iter()
            .map(|&cosine| overlaps.cross(keys.effective, keys.contrast, cosine, [freedom, queries, steady], kurtosis))
            .collect();

        let exact = overlaps.sharp_row(keys.effective, keys.contrast);
        keys.repeated(domain, [&key, &value], &exact);
        let leant = input.concentration.total * row.leant;
        let strength = keys.pull(leant);
        let ends = Ends::new(&row, keys.effective, keys.key_cosine, input.concentration);
        let growth = overlaps.growth(keys.effective, keys.contrast);
        let pull = |cosine: f64, alike: f64| strength * ends.pull(&ends, cosine, [alike, 1.0], unequal);
        // What a row has in common with itself and no other one.
        let beyond = row.s2 - 1.0 / keys.effective;
        let average = keys.average;
        let masked = attention.dropout_rate / (1.0 - attention.dropout_rate);
        let unpulled = average + keys.amplitude * beyond + masked * keys.single(row.s2);
        let pulled = pull(1.0, 1.0).max(-LARGEST_LOSS * unpulled);
        let own = unpulled + pulled;
        let pulls =
            pairs_of_queries(&query, &crosses, |cosine, cross| pull(cosine, ratio(cross.excess, beyond).min(1.0)));
        let between = crosses.iter().zip(&pulls).map(|(cross, pull)| average + keys.amplitude * cross.excess + pull);
        let cosines: Arc<[f64]> = between.map(|between| if own > 0.0 { between / own } else { 0.0 }).collect();
        let linear = keys.score_variance
            * (1.0 - keys.key_cosine)
            * domain.mean(&pairs_of_queries(&query, &crosses, |cosine, cross| (1.0 - cosine) * cross.t11));
        let followed = keys.passing.own * linear + (pulled - domain.mean(&pulls)).max(0.0);
        let apart = 1.0 - domain.mean(&cosines);
        let linear = ratio(followed, own * apart).min(1.0);
        let of_values = ratio(keys.value_cosine, own * domain.mean(&cosines)).clamp(0.0, 1.0);
        let parts = Parts { flat: 0.0, linear, inherited: linear, alike: of_values };
        let alike = domain.mean(&query.cosines);
        let shared = overlaps.shared(keys.effective, keys.contrast, alike, 1.0 / drawn);
        let shared = keys.shared(shared);
        let width = (attention.n_heads * attention.d_value) as f64;
        let uneven = lengths::uneven(&row, ratio(keys.amplitude, own), attention.n_heads as f64);
        let of_differences = ratio(uneven * (1.0 - alike * alike), apart * apart);
        let concentration =
            concentration::of_output(input.concentration, [&query, &value], attention, &shared, parts, of_differences);
        let token = Token {
            scale_variance: keys.value_cosine.powi(2) * value.token().scale_variance + uneven,
            uneven,
            entry_variance: entry_variance(attention, ratio(average, own)),
            // Of its own scale a token sees what its own value contributes.
            sensitivity: value.token().sensitivity * average / (length * own),
            ..Token::gaussian(width, value.token().ln_second + own.ln())
        };
        let narrow = concentration::few_directions(input);
        let narrow = narrow.or_else(|| concentration::few_heads(input, keys.effective, keys.contrast));
        Self {
            concentration: input.concentration.total,
            leant,
            unequal: unequal.squares(keys.key_cosine),
            outlying: unequal.outlying(keys.key_cosine, &row),
            weighted: unequal.weighted(&row, lengths),
            longer,
            growth,
            drawn,
            query,
            key,
            value,
            keys,
            row,
            crosses,
            pulled,
            pulls,
            output: Signal { concentration, ..Signal::new([token].into(), cosines) },
            narrow,
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
            attended: self.keys.single(self.row.s2).recip(),
            in_view: length,
        }
    }

    /// How the rows' differences follow those of keys and queries, at the mean over pairs.
    pub(crate) fn elasticity(&self, domain: &Exchangeable) -> Elasticity {
        let mean = |of: &dyn Fn(f64, &Cross) -> f64| domain.mean(&pairs_of_queries(&self.query, &self.crosses, of));
        let (row, w) = (&self.row, self.keys.contrast);
        let excess = mean(&|_, cross| cross.excess);
        let apart = row.s2 - self.keys.effective.recip() - excess;
        let common = [mean(&|cosine, cross| cosine * cross.t11), mean(&|cosine, cross| (1.0 - cosine) * cross.t11)];
        Elasticity::new(row, w, apart, common)
    }

    /// The attention probabilities, one row of `seq_len` entries per query.
    pub(crate) fn probabilities(&self, domain: &Exchangeable) -> Signal {
        let length = domain.seq_len;
        let own = self.keys.single(self.row.s2);
        let token = Token { mean: 1.0 / (length * own).sqrt(), ..Token::gaussian(length, (own / length).ln()) };
        let cosines = self.crosses.iter().map(|cross| self.keys.overlap(cross.excess) / own).collect();
        Signal::new([token].into(), cosines)
    }

    /// The gradient at the probabilities, from that at the output.
    pub(crate) fn probabilities_backward(&self, attention: &Attention, gradient: &Gradient) -> Gradient {
        let keep = 1.0 - attention.dropout_rate;
        let gain = attention.d_value as f64 / keep * along_values(attention, gradient.token(), self.value_alignment());
        let token = TokenGradient::isotropic(gradient.token().ln_second + self.value.token().ln_second + gain.ln());
        Gradient::new([token].into(), gradient.cosines.iter().map(|cosine| cosine * keep).collect())
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
        if keys.segmented > LARGEST_SEGMENTED && keys.contrast > SHARPEST_SEGMENTED {
            return Some((
                "weights within segments are taken as small: they make their own segment larger (sampled at score variance 3: \
                 squares of single weights 8 % too large)",
                format!("score variance {:.2}", keys.contrast),
            ));
        }
        if keys.key_cosine > LARGEST_COSINE {
            return Some((
                "gradients of queries and keys hang on few directions where tokens are alike (sampled at cosines 0.6 to \
                 0.999: nine in ten within 6 %, behind sharp scores within 14 %); what the stream receives of \
                 them is negligible there",
                format!("cosine {:.2}", keys.key_cosine),
            ));
        }
        keys.cap.clone().or_else(|| self.narrow.clone())
    }
}

/// Per class of pairs, from the cosine of the two queries and the overlaps of their rows.
fn pairs_of_queries(query: &Signal, crosses: &[Cross], of: impl Fn(f64, &Cross) -> f64) -> Few<f64> {
    query.cosines.iter().zip(crosses).map(|(&cosine, cross)| of(cosine, cross)).collect()
}
