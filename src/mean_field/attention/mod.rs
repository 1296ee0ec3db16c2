//! Softmax attention z_a = Σ_b A_ab v_b, where A is the softmax of the scores s_ab = scale q_a·k_b over the keys that a
//! mask allows query a to see.
//!
//! Scores are jointly Gaussian, Cov(s_ab, s_cd) = v Q_ac K_bd. The moments are of first order in the scores, around the
//! flat weights W_ab, which are E A_ab if all products q_a·k_b are zero. In the plain case all queries see all of L
//! equivalent tokens, so that W_ab = 1/L. With two different keys b and d the output then is
//!
//! ```text
//! E z_a z_c = P + v Q_ac D σ = V_bd + v' S          S = E Σ_b A_ab A_cb = 1/L + v Q_ac k' (1 − 1/L)/L σ
//! P = V_bd + v'/L      D = v' k' (1 − 1/L)/L      X = 0
//! ```
//!
//! where E is the average over random weights and over features; a, c are positions of queries; b, d are positions of
//! keys; P is the kernel of the averages of values with flat weights; v is scale² d_head, which is the variance of a
//! score over Q_aa K_bb; Q, V are the kernels of queries and of values; D is the first order in the scores, per v Q_ac;
//! σ is the factor of sharp rows on D, 1 for small scores ([`super::softmax`]); v' is V_bb − V_bd; S is the overlap of
//! the rows of two queries; L is the number of tokens of a sequence; k' is K_bb − K_bd, for the kernel K of keys; X is
//! the effect of the shift of the mean weights, per v Q_aa.
//!
//! In general the formulas are
//!
//! ```text
//! M^ac_bd    = M_bd − (W M)_ad − (M Wᵀ)_bc + (W M Wᵀ)_ac
//! P_ac       = (W V Wᵀ)_ac                          D_ac = Σ_bd W_ab W_cd K^ac_bd V_bd
//! X_ac       = Σ_bd W_ab μ_ab W_cd V_bd             μ_ab = ½ (K^aa_bb − tr_a)      tr_a = Σ_b W_ab K_bb − (W K Wᵀ)_aa
//! C(M, N)_bd = Σ_ac N_ac W_ab W_cd M^ac_bd
//!
//! E z_a z_c  = P_ac + v Q_ac D_ac σ_ac + v (Q_aa χ_a X_ac + Q_cc χ_c X_ca)
//! G^v = Wᵀ Γ W + v C(K, Γ∘Q∘σ)      G^k = scale² d_value C(V, Γ∘Q∘τ)      G^q = scale² d_value Γ∘D∘τ
//! ```
//!
//! where M is the kernel of keys or of values; N is any kernel of queries; M^ac is M less its averages by the rows a
//! and c of W; W is the matrix of flat weights; K is the kernel of keys; μ_ab is the relative shift of a mean weight in
//! E A_ab = W_ab (1 + v Q_aa μ_ab); tr_a is the variance of the keys in view of query a about their average; C(M, N) is
//! the kernel at keys that follows from M and from N; χ is the factor of sharp rows on the shift of the mean weights, 1
//! for small scores; τ is the factor of sharp rows on gradients through scores, 1 for small scores; Γ is the kernel
//! E g_a g_b of the gradients at z; G^q, G^k, G^v are the kernels of the gradients at queries, keys and values; ∘ is
//! the elementwise product; scale is the factor on q_a·k_b; d_value is the number of features of a head of values.
//!
//! A sink of logit ς is one more key, with a key vector and a value of zero, and with the weight ω = e^ς in place of e^0:
//! W_ab = 1/(n_a + ω) for n_a keys in view, and rows add up to n_a/(n_a + ω). The part that all keys have in common
//! then moves the share of the sink, and nothing of it may be subtracted. The gradient at the sink is
//!
//! ```text
//! E (dL/dς)² = d_value Σ_ac Γ_ac E A_as A_cs z_a z_c      A_as = ω/(n_a + ω)
//! ```
//!
//! where A_as is the weight of the sink in row a, at scores of variance zero; n_a is the number of keys in view of query
//! a; ω is the mean of e^ς over heads, or of a few groups of heads if ς is widely distributed ([`sinks`]).
//!
//! The sums are in [`everywhere`] if all queries see all keys and there is no sink, otherwise in [`masked`]. The row of
//! a query is like two rows of independent keys ([`row`]), which follow from D_aa, tr_a and the same trace tr'_a of the
//! values. Dropout of rate p on the weights adds p/(1 − p) of E Σ_b A_ab² V_bb to own moments. Keys and values serve
//! n_heads/n_kv_heads queries each, whose gradients add up.
//!
//! Example: queries, keys and values of four tokens have variance 1 and correlation 0.2, and scores are small,
//! scale² d_head = scale² d_value = 10⁻⁴: outputs have variance 0.2 + 0.8/4 = 0.4 and correlation 1. Independent
//! gradients of variance 1 at the outputs become gradients of variance 1/4 and correlation 1 at the values, and of
//! variance 10⁻⁴ · 0.8 · 0.8 · (1 − 1/4)/4 = 1.2 · 10⁻⁵ at the queries.
//!
//! Assumption: heads are wide. Source: ours; flat attention and the first order: Kedia et al. 2024.

mod everywhere;
mod groups;
mod head;
mod masked;
mod operators;
mod pattern;
mod repeats;
mod rotated;
mod row;
mod same_ids;
mod scores;
mod seen;
mod side;
pub(crate) mod sinks;
pub(crate) mod slopes;
mod smooth;
mod view;

use std::sync::Arc;

use sigprop_stack::{Attention, Disentangled, PositionBias, Tensor};

use self::head::Head;
pub(crate) use self::operators::{Operators, Sums};
pub(crate) use self::pattern::FlatWeights;
pub(crate) use self::rotated::{Rotated, RotatedSums};
pub(crate) use self::scores::{Scores, rotation};
use self::seen::Turned;
pub(crate) use self::view::View;
use super::disentangled::Images;
use super::few::Few;
use super::gradient::{Gradient, Next};
use super::kernel::Kernel;
use super::signal::Signal;
use crate::logarithms::ln_sum;

/// The state that the forward pass of an attention keeps for its backward pass.
pub(crate) struct Attended {
    parts: [Arc<Signal>; 3],
    scores: Scores,
    heads: Vec<Head>,
    output: Arc<Signal>,
    /// The images of relative positions that contents have scores with, if there are some.
    images: Option<Images>,
}

/// Returns the relative positions that contents have scores with, if there are some.
fn disentangled(attention: &Attention) -> Option<&Disentangled> {
    match &attention.bias {
        Some(PositionBias::Disentangled(positions)) => Some(positions),
        Some(PositionBias::Alibi { .. } | PositionBias::Relative { .. }) | None => None,
    }
}

/// Returns the sum of these gradients, each times its factor.
fn summed(parts: &[(f64, Turned)]) -> Gradient {
    let sum = |of: &dyn Fn(&Turned) -> Kernel| {
        let kernels: Vec<(f64, Kernel)> = parts.iter().map(|(factor, part)| (*factor, of(part))).collect();
        Kernel::sum(kernels.iter().map(|(factor, kernel)| (*factor, kernel)))
    };
    let is_rotated = parts.iter().any(|(_, part)| part.before.is_some());
    let before = is_rotated.then(|| sum(&|part| part.before().clone()));
    Gradient { before, ..Gradient::independent(sum(&|part| part.behind.clone())) }
}

impl Attended {
    /// Runs the forward pass on queries, keys and values; `views` lists the views of heads, each with its share of the
    /// heads.
    pub(crate) fn new(attention: &Attention, views: &[(f64, View)], parts: [Arc<Signal>; 3]) -> Self {
        let [query, key, _] = &parts;
        let scores = Scores::new(attention, query, key);
        let images = disentangled(attention).map(Images::new);
        let of_view =
            |(share, view): &(f64, View)| Head::new(attention, (*share, view), (&scores, images.as_ref()), &parts);
        let heads: Vec<Head> = views.iter().map(of_view).collect();
        let kernel = Kernel::sum(heads.iter().map(|head| (head.share, &head.output)));
        let width = (attention.n_heads * attention.d_value) as f64;
        let output = Arc::new(Signal::centred(width, kernel));
        Self { parts, scores, heads, output, images }
    }

    /// Returns the attention whose output has the kernel E z_a z'_c of the outputs of two uses of the same maps. The
    /// `parts` are E q_a q'_c, E k_b k'_d and E v_b v'_d, and [`Self::split`] then maps E g_a g'_c. All queries see all
    /// keys. The row of a query in one use and the row of a query in the other have the correlation
    ///
    /// ```text
    /// ρ_ac = κ Q^12_ac/√(Q^1_aa Q^2_cc)      κ = tr(K^12)/√(tr(K^1) tr(K^2))
    /// ```
    ///
    /// where Q^1, Q^2, K^1, K^2 are the kernels of queries and keys of each use; Q^12, K^12 are those between the uses;
    /// tr is the variance of the keys in view about their average. Dropout masks are independent.
    pub(crate) fn between(attention: &Attention, uses: [&Self; 2], parts: [Kernel; 3]) -> Self {
        let [query, key, _] = &parts;
        let mean = |of: &dyn Fn(&Scores) -> f64| uses.map(|of_use| of(&of_use.scores).sqrt()).iter().product::<f64>();
        let factor = mean(&|scores| scores.factor);
        let variance = factor * (query.ln_unit + key.ln_unit).exp();
        let scores = Scores { factor, variance, slope: mean(&|scores| scores.slope) };
        let of_heads = |(first, second): (&Head, &Head)| {
            Head::between(attention, [first, second], uses.map(|of_use| &of_use.parts), (&scores, &parts))
        };
        let heads = uses[0].heads.iter().zip(&uses[1].heads);
        let heads: Vec<Head> = heads.map(of_heads).collect();
        let kernel = Kernel::sum(heads.iter().map(|head| (head.share, &head.output)));
        let output = Arc::new(Signal::centred(uses[0].output.width, kernel));
        let parts = parts.map(|kernel| Arc::new(Signal::centred(uses[0].output.width, kernel)));
        Self { parts, scores, heads, output, images: None }
    }

    /// The outputs of the heads.
    pub(crate) fn output(&self) -> Arc<Signal> {
        Arc::clone(&self.output)
    }

    /// Returns ln E s² of a score s; 1/E ΣA², the number of keys that a query attends to; and 1/ΣA² for equal scores.
    /// A are the shares of the keys in the weight that a sink leaves, where there is one.
    /// All three average over queries, and the last two also over heads.
    pub(crate) fn sharpness(&self) -> [f64; 3] {
        let [query, key, _] = &self.parts;
        let positions = &query.kernel.positions;
        let mean = |of: &dyn Fn(usize) -> f64| positions.sum(of) / positions.length;
        let keys = &key.kernel.positions;
        let key_square = keys.sum(|node| key.kernel.own[node]) / keys.length;
        let square = mean(&|node| query.kernel.own[node]);
        let of_positions = |head: &Head| head.relative.as_ref().map_or(0.0, |relative| relative.square(square));
        let of_positions: f64 = self.heads.iter().map(|head| head.share * of_positions(head)).sum();
        let score = self.scores.variance * (square * key_square + of_positions);
        let of_heads = |of: &dyn Fn(&Head, usize) -> f64| -> f64 {
            self.heads.iter().map(|head| head.share * mean(&|node| of(head, node))).sum()
        };
        let single = of_heads(&|head, node| {
            head.seen.single(node, &head.rows[node]) / head.seen.sum(node, &head.rows[node]).powi(2)
        });
        let flat = of_heads(&|head, node| head.seen.in_view(node).recip());
        [score.ln(), single.recip(), flat.recip()]
    }

    /// Returns the variance of the scores of smooth parts of keys times their share D_s/D (`row.rs`), averaged over
    /// queries and heads.
    pub(crate) fn smooth_variance(&self) -> f64 {
        let positions = &self.parts[0].kernel.positions;
        let of = |head: &Head| positions.sum(|node| head.rows[node].smooth_variance()) / positions.length;
        self.heads.iter().map(|head| head.share * of(head)).sum()
    }

    /// Returns E z²/E v² for outputs z and values v, at most 1: the share of E v² that is along the output.
    pub(crate) fn along_output(&self) -> f64 {
        let [of_value, of_output] = [&self.parts[2].kernel, &self.output.kernel]
            .map(|kernel| kernel.positions.sum(|node| kernel.own[node]).ln() + kernel.ln_unit);
        let [values, outputs] = [&self.parts[2], &self.output].map(|signal| signal.kernel.positions.length.ln());
        (of_output - of_value + values - outputs).exp().min(1.0)
    }

    /// The factor κ of rotations on the product of two keys in view of a query, averaged over heads and queries.
    pub(crate) fn rotation_in_view(&self) -> f64 {
        self.heads.iter().map(|head| head.share * head.rotation_in_view()).sum()
    }

    /// The shares of contents in the gradients at queries and at keys; 1 without scores with positions.
    pub(crate) fn content_shares(&self) -> [f64; 2] {
        let query = &self.parts[0].kernel;
        let square = query.positions.sum(|node| query.own[node]) / query.positions.length;
        // Heads with scores with positions have one view.
        self.heads[0].relative.as_ref().map_or([1.0; 2], |relative| relative.content_shares(square))
    }

    /// The attention weights as a signal, with one row of entries per query.
    pub(crate) fn weights(&self) -> Signal {
        let query = &self.parts[0].kernel;
        let length = self.parts[1].kernel.positions.length;
        let of_heads = self.heads.iter().map(|head| {
            let (own, pairs) = head.overlaps(query, self.scores.variance);
            (head.share / length, query.with(0.0, own, pairs))
        });
        let kernels: Vec<(f64, Kernel)> = of_heads.collect();
        let kernel = Kernel::sum(kernels.iter().map(|(share, kernel)| (*share, kernel)));
        let unit = (-0.5 * kernel.ln_unit).exp();
        let sum = |node: usize| -> f64 {
            self.heads.iter().map(|head| head.share * head.seen.sum(node, &head.rows[node])).sum()
        };
        let means = (0..query.own.len()).map(|node| sum(node) * (unit / length)).collect();
        Signal { means: Some(means), ..Signal::centred(length, kernel) }
    }

    /// Returns ln E (dL/dς)² of the logit ς of a sink, from the gradient at the output.
    pub(crate) fn ln_sink_gradient(&self, attention: &Attention, gradient: &Gradient) -> f64 {
        let of_head = |head: &Head| head.share.ln() + head.ln_of_sink(&gradient.kernel);
        ln_sum(self.heads.iter().map(of_head)) + (attention.d_value as f64).ln()
    }

    /// Returns ln E dW² of every tensor of relative positions, from the gradient at the output.
    pub(crate) fn position_weights(&self, attention: &Attention, gradient: &Gradient) -> Vec<(Tensor, f64)> {
        let Some(images) = &self.images else { return Vec::new() };
        let [query, ..] = &self.parts;
        let of_heads =
            |head: &Head| head.ln_at_positions(&query.kernel, &gradient.kernel).map(|ln| ln + head.share.ln());
        let of_heads: Vec<[f64; 2]> = self.heads.iter().map(of_heads).collect();
        let group = (attention.n_heads / attention.n_kv_heads) as f64;
        let steps = attention.scale * attention.scale * attention.d_value as f64;
        let ln_totals = [(0, group), (1, 1.0)]
            .map(|(side, heads)| ln_sum(of_heads.iter().map(|of_head| of_head[side])) + (steps * heads).ln());
        images.weights(ln_totals)
    }

    /// Returns the gradient at the attention weights, from the gradient at the output.
    pub(crate) fn weights_backward(&self, attention: &Attention, gradient: &Gradient) -> Gradient {
        let value = &self.parts[2].kernel;
        let gamma = &gradient.kernel;
        let width = attention.d_value as f64;
        let of_heads = |node: usize| self.heads.iter().map(|head| head.seen.square[node] * head.share).sum();
        let square: Few<f64> = (0..gamma.own.len()).map(of_heads).collect();
        let own = gamma.own.iter().zip(&square);
        let own = own.map(|(&own, &square)| own * square * (width / (1.0 - attention.dropout_rate))).collect();
        let pairs = gamma.map_pairs(&square, |_, [a, _], pair| pair * a * width);
        Gradient::independent(gamma.with(gamma.ln_unit + value.ln_unit, own, pairs))
    }

    /// Returns the gradients at queries, keys and values, from the gradient at the output.
    pub(crate) fn split(&self, attention: &Attention, gradient: &Gradient) -> Vec<Gradient> {
        let [query, key, _] = &self.parts;
        let gamma = &gradient.kernel;
        let group = (attention.n_heads / attention.n_kv_heads) as f64;
        let steps = attention.scale * attention.scale * attention.d_value as f64 * self.scores.slope;
        let (mut at_queries, mut at_keys, mut at_values) = (Vec::new(), Vec::new(), Vec::new());
        for head in &self.heads {
            let ([flat, linear], keys) = head.back(attention, &query.kernel, gamma);
            at_values.push((head.share * group, flat));
            at_values.push((head.share * group * self.scores.factor, linear));
            at_keys.push((head.share * group * steps, keys));
            at_queries.push((head.share * steps, head.at_queries(attention, gamma)));
        }
        let [at_queries, at_keys] = [at_queries, at_keys].map(|parts| summed(&parts));
        let at_values = Gradient::independent(Kernel::sum(at_values.iter().map(|(factor, part)| (*factor, part))));
        // A sink makes the common part of all keys visible, and so do scores of positions with keys.
        let has_position_queries = disentangled(attention).is_some_and(|positions| positions.query.is_some());
        let next = if attention.sink.is_some() || has_position_queries { Next::Anything } else { Next::Scores };
        let shares = |of: &Signal| Some(of.parts.as_ref()?.iter().map(|part| part.squares).collect());
        vec![
            Gradient { parts: shares(key), ..at_queries },
            Gradient { parts: shares(query), next, ..at_keys },
            at_values,
        ]
    }
}

#[cfg(test)]
mod tests {
    use approx::assert_relative_eq;

    use super::super::positions::Positions;
    use super::*;

    #[test]
    fn example_of_the_header() {
        let plain = Attention::plain(1, 1, 64, [Vec::new(), Vec::new(), Vec::new()]);
        // scale² d_head is 10⁻⁴.
        let attention = Attention { scale: 0.01 / 8.0, ..plain };
        let positions = Arc::new(Positions::groups(&[4.0], None));
        let parts = [0, 1, 2].map(|_| Arc::new(Signal::centred(64.0, Kernel::new(&positions, |_| 1.0, |_| 0.2))));
        let attended = Attended::new(&attention, &[(1.0, View::Everywhere)], parts);
        let moments = |kernel: &Kernel| [kernel.own[0] * kernel.ln_unit.exp(), kernel.pairs[0] / kernel.own[0]];
        let of_output = moments(&attended.output().kernel);
        let ones = Gradient::independent(Kernel::new(&positions, |_| 1.0, |_| 0.0));
        let gradients = attended.split(&attention, &ones);
        let [at_queries, _, at_values] = &gradients[..] else { panic!("queries, keys and values have gradients") };
        let of_values = moments(&at_values.kernel);
        for (got, expected) in of_output.into_iter().chain(of_values).zip([0.4, 1.0, 0.25, 1.0]) {
            assert_relative_eq!(got, expected, max_relative = 1e-3);
        }
        assert_relative_eq!(moments(&at_queries.kernel)[0], 1.2e-5, max_relative = 1e-3);
    }
}
