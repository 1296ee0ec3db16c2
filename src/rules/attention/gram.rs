//! Multi-head softmax attention with one token per position: masks, ALiBi, other tokens as keys.
//!
//! # Formula
//!
//! W is flat attention (averages over the keys a query sees, or with ALiBi's weights), K, V, Q the matrices of
//! E k_b·k_b', E v_b·v_b', E q_a·q_c per feature. With s̃ a score less the W-average of its row, to second order
//! A_ab = W_ab (1 + s̃_ab + (s̃_ab² − Σ_e W_ae s̃_ae²)/2), and scores have the covariance v Q_ac K_bb', so that to
//! first order in v
//!
//! ```text
//! E z_a·z_c = P_V + v (Q_ac D_ac R_ac + Q_aa X_ac φ_a + Q_cc X_ca φ_c) + pull        P_Y = W Y Wᵀ
//! D = Σ_bb' W_ab W_cb' (C_a K C_c)_bb' V_bb'
//!   = W (K∘V) Wᵀ − W ((KWᵀ)∘(VWᵀ)) − ((WK)∘(WV)) Wᵀ + P_K∘P_V
//! X = μ V Wᵀ        μ_ab = W_ab ((C_a K C_a)_bb − tr_a)/2
//! ```
//!
//! with C_a what takes the W-average of query a off. D is how rows fluctuate; X how their mean moves: keys in a
//! large group of like ones are chosen less often each, for their common score enters the denominator with
//! them. Without it a text in which a tenth of the pairs repeat comes out 40 % high at v = 1. Products with W are
//! running sums, O(L²); the one product of full matrices in X is done for some rows and interpolated.
//!
//! *Saturation.* Beyond the first order a row behaves like n_e keys of score variance w_e, from tr = Σ_b W_ab K_bb −
//! P_K,aa: n_e = 1 + tr²/D_aa (K for V), w_e = v Q_aa tr n_e/(n_e − 1). With S, T as in [`crate::rules::softmax`]
//!
//! ```text
//! s = (S2 − 1/n_e)/(w_e (1 − 1/n_e)/n_e)    f = (1 − S2)/(1 − 1/n_e)    t = T/((1 − 1/n_e)/n_e)
//! φ = (1 − 3 S2 + 2 S3)/((1 − 1/n_e)(1 − 2/n_e))
//! R_aa = s_a      R_ac = f_a f_c + ρ σ + ρ² (√((s_a − f_a²)(s_c − f_c²)) − σ), ρ the correlation of the two queries
//! ```
//!
//! σ = ½ w_e (1 − 3 S2 + 2 S3)² at most (W_2 of the softmax); R' with t for s and 2σ for σ for derivatives; f is exact
//! in first order of ρ for exchangeable tokens. φ is the linear response of a mean row to products of
//! keys, by Price's theorem (E ∂²A_b/∂s_b² = (1 − 3 S2 + 2 S3)/n), exact at every w where few keys are alike (s where every key has
//! as many copies). Of a query that sees more keys, s and t are those of the keys that both see.
//!
//! Where keys are not exchangeable, s, t and what single keys have of them are those of the [`structure`] of the keys; to E z_a·z_c
//! averages that scores move add δ V δᵀ, to gradients of values δᵀ Γ δ, and what one row leaves has a pattern of its own ([`own`]).
//!
//! *Pull*: as in [`super::exchangeable`], from the two rows' own tr.
//!
//! *Directions*: what products of the outputs' differences stray by is as in [`super::concentration`], of an average row; what
//! outputs differ by for flat weights is linear in the values, and strays from what scores make as two keys do.
//!
//! # Backward
//!
//! With C(X, M) = Σ_ac M_ac W_ab W_cb' (C_a X C_c)_bb' = X∘(WᵀMW) − (…) − (…)ᵀ + Wᵀ(M∘P_X)W:
//!
//! ```text
//! value  Wᵀ Γ W + C(K, v Q∘Γ∘R) + Wᵀ Γ μ' + (…)ᵀ, μ' = v Q_aa φ_a μ
//! query  Γ∘(D∘R' + γ (1 − S2)(1 − S2) tr tr)      key  C(V, Q∘Γ∘R')
//! ```
//!
//! A query alone receives of its own directions and of T what it does of exchangeable tokens (`exchangeable/backward.rs`): 1 − (1 −
//! U/T)/d_head times T, and γ tr tr (1 − 2 S2 + S22 + U), of which rotations leave κ of the products of different keys, 1 − 2 S2 +
//! S22 − T. Key weights collect E χT and E ρT11 in place of T and ρ T11; query weights γ n_h of the latter's excess.
//!
//! *Rotation*: queries and keys that are rotated meet by the difference of how far both are ([`rotation`]). γ is of products of
//! inputs x_b·x_b', which rotated keys meet with κ(b − b'): what has γ, there and in the pull, is multiplied by the average of κ
//! over pairs of keys b ≠ b' of the two rows. Of 128 uncorrelated tokens of width 256 the gradient at the last query is 22 % too
//! large without it. What all tokens share does not count there, though rotated keys differ in it. Rotations of a part of the
//! features beside others that are put together with it (latent attention) are not looked for.
//!
//! What value weights collect beyond V∘(value), Σ Γ∘pull, is their `coupling`.
//!
//! *Lengths and sharpness*: `attention/lengths.rs`, from every row's own S and T. Sampled
//! queries stray from their correlation ρ by (1 − ρ²)²/n_h, which E Q_ac R_ac has with its second derivative.
//!
//! Attention dropout adds to diagonals what the masks let through, by the matrix of W_ab².
//!
//! *Alignment*: gradients of probabilities, and values, have less along outputs than elsewhere behind norms; how much of a value lies
//! there is cos² of its angle with the outputs it is part of, on average over keys and queries. Gradients of memories are left as they
//! are: what they gather, pairs of them have too.
//!
//! # Assumptions
//!
//! Structure of the keys enters beyond the first order by n_e, and where it matters as derived in [`structure`].
//! Learned relative positions are taken as part of the noise of the scores (their variance is small).
//!
//! # Source
//!
//! Project notes, refinements §6, for the first order with K = V, n_e and the ratio f f; C and the rest are ours.

mod backward;
mod directions;
mod draws;
mod head;
mod lengths;
mod own;
mod queries;
mod rotation;
mod row;
mod structure;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use sigprop_stack::{Attention, Component, Node, Op, PositionBias, Rotary};

use self::directions::differences;
use self::head::{Head, Of};
use self::queries::{Queries, roots};
use self::row::{Pull, Traces};
use super::averages::Averages;
use super::concentration::{self, Unequal};
use super::fluctuation::Elasticity;
use super::matrix::Matrix;
use super::{LEAST_DRAWN, SHARPEST_SAMPLED, Scores, Sharpness, entry_variance, head_lengths};
use crate::domain::{Concentration, Signal};
use crate::moments::{Token, ratio};
use crate::rules::concat;
use crate::rules::softmax::Overlaps;

/// What the forward pass of one attention leaves for its backward pass.
pub(crate) struct Attended {
    /// Of the input of keys and values.
    unequal: Unequal,
    /// What the squares of its differences stray by beyond.
    longer: f64,
    query: Queries,
    key: Raw,
    value: Raw,
    /// Score variance of a query and a key of second moment 1 in the units of `query` and `key`.
    variance: f64,
    /// E (d score after the cap/d score)².
    score_slope: f64,
    d_head: f64,
    /// How much of what keys differ in is what their inputs do; the rest is what rotations make of what they share.
    apart: f64,
    /// How much of what correlations of queries stray by is of their inputs.
    alike: f64,
    /// One for all heads, or one per slope of ALiBi.
    heads: Vec<Head>,
    output: Signal,
    /// cos² of the angles between outputs and the values they average, of every query and of every value but those of a memory.
    alignments: [Vec<f64>; 2],
    /// d ln E k²/d ln E x² of every key.
    sensitivities: Vec<f64>,
    pull: Pull,
    elasticity: Elasticity,
    caveat: Option<(&'static str, String)>,
}

/// The matrix of E x_a·x_b, in units of e^`ln_unit`.
struct Raw {
    ln_unit: f64,
    matrix: Matrix,
}

impl Attended {
    pub(crate) fn new(
        attention: &Attention,
        overlaps: &mut Overlaps,
        input: &Signal,
        [query, key, value]: [Arc<Signal>; 3],
    ) -> Self {
        let (q, k, v) = (Queries::of(&query), Raw::of(&key), Raw::of(&value));
        let scores = Scores::new(attention, q.ln_unit + k.ln_unit + concat::score_variance([&query, &key]).ln());
        let variance = scores.ln_variance.min(400.0).exp();
        // What keys and values have in common is their input.
        let keys = if attention.memory.is_some() { of_memory(&key) } else { input.concentration };
        let [of_queries, of_keys] = head_lengths(attention, query.token(), key.token());
        let freedom = (of_queries + keys.total).max(LEAST_DRAWN).recip();
        let drawn = of_queries.max(1.0 / attention.d_head as f64) + keys.total;
        let unequal = Unequal::of(input).with_keys(of_keys, attention.d_head);
        let plain = attention.memory.is_none() && !matches!(attention.bias, Some(PositionBias::Alibi { .. }));
        let rotary = rotary(&attention.key).filter(|_| plain);

        let head = |slope: f64| {
            let averages = Averages::new(attention.mask, q.count(), k.matrix.rows, slope);
            Head::new(
                averages,
                overlaps,
                ([freedom, drawn], unequal, keys),
                variance,
                &q,
                (&k.matrix, rotary),
                &v.matrix,
            )
        };
        let heads: Vec<Head> = match &attention.bias {
            Some(PositionBias::Alibi { slopes }) => slopes.iter().copied().map(head).collect(),
            Some(PositionBias::Relative { .. }) | None => [0.0].map(head).into(),
        };
        let caveat = caveat(attention, &heads).or_else(|| straying(input)).or_else(|| scores.caveat());
        let caveat = caveat
            .or_else(|| concentration::few_directions(input))
            .or_else(|| concentration::few_heads(input, k.matrix.rows as f64, sharpest(&heads)));
        let q = if let Some(rotation) = &heads[0].rotation { q.turned_by(rotation) } else { q };

        let differ = |of: fn(&Traces) -> f64| heads[0].rows.iter().map(|row| of(&row.traces)).sum::<f64>();
        let apart = ratio(differ(|traces| traces.input), differ(|traces| traces.key * traces.value)).min(1.0);
        let pull = Pull { strength: variance.min(SHARPEST_SAMPLED / (keys.total * q.count() as f64)), unequal };
        let odds = attention.dropout_rate / (1.0 - attention.dropout_rate);
        let pulls: Vec<Matrix> = heads.iter().map(|head| head.pulls(&q, pull)).collect();
        let outputs = heads.iter().zip(&pulls).map(|(head, pulls)| head.output(variance, &q, &v.matrix, pulls, odds));
        let output = mean(outputs);
        let over_heads =
            |of: &dyn Fn(&Head) -> Vec<f64>| mean(heads.iter().map(|head| Matrix::column(of(head)))).entries;
        let aligned = over_heads(&|head| {
            // E v_b·z_b, and W_bb v_b·z_b.
            let own = |b: usize| if b < head.value.0.columns { head.value.0.row(b)[b] } else { 0.0 };
            (0..output.rows).map(own).collect()
        });
        let averaged = over_heads(&|head| head.value.1.diagonal());
        let uneven = over_heads(&|head| head.uneven(&output.diagonal(), attention.n_heads as f64));
        let in_view = over_heads(&|head| head.rows.iter().map(|row| row.in_view).collect());

        let width = (attention.n_heads * attention.d_value) as f64;
        let diagonal = output.diagonal();
        let values = v.matrix.diagonal();
        let memory = attention.memory.is_some();
        let tokens = diagonal
            .iter()
            .enumerate()
            .map(|(a, own)| {
                let source = &value.tokens[a.min(values.len() - 1)];
                let common = averaged[a] / values[a.min(values.len() - 1)].max(f64::MIN_POSITIVE);
                let from_itself = ratio(aligned[a], own * in_view[a]);
                Token {
                    scale_variance: common.min(1.0).powi(2) * source.scale_variance + uneven[a],
                    uneven: uneven[a],
                    entry_variance: entry_variance(attention, ratio(averaged[a], *own)),
                    // Of its own scale a token sees what its own value contributes.
                    sensitivity: if memory { 0.0 } else { source.sensitivity * from_itself.clamp(0.0, 1.0) },
                    ..Token::gaussian(width, v.ln_unit + own.ln())
                }
            })
            .collect();
        let (shared, parts, stray, elasticity) =
            differences(&heads, overlaps, (variance, freedom), (&q, &pulls), [&v.matrix, &output], &uneven);
        let of_output = concentration::of_output(keys, [&query, &value], attention, &shared, parts, stray);
        let cosines = crate::domain::symmetric(diagonal.len(), |i, j| {
            ratio(output.row(i)[j], (diagonal[i] * diagonal[j]).sqrt())
        });
        let of_heads: Vec<[Vec<f64>; 2]> = heads.iter().map(|head| head.alignments(&values, &diagonal)).collect();
        let [of_queries, of_values] =
            [0, 1].map(|which| mean(of_heads.iter().map(|of| Matrix::column(of[which].clone()))).entries);
        let alignments = [of_queries, if memory { vec![0.0; values.len()] } else { of_values }];
        Self {
            unequal,
            longer: keys.unequal,
            query: q,
            key: k,
            value: v,
            variance,
            score_slope: scores.slope,
            d_head: attention.d_head as f64,
            apart,
            alike: keys.total / drawn,
            heads,
            output: Signal { concentration: of_output, ..Signal::new(tokens, cosines) },
            alignments,
            pull,
            elasticity,
            sensitivities: key.tokens.iter().map(|token| token.sensitivity).collect(),
            caveat,
        }
    }

    /// The heads' outputs.
    pub(crate) fn output(&self) -> &Signal {
        &self.output
    }

    /// How the outputs' differences follow those of keys and queries.
    pub(crate) fn elasticity(&self) -> Elasticity {
        self.elasticity
    }

    /// Why the rule is not exact here, if it is not.
    pub(crate) fn caveat(&self) -> Option<(&'static str, String)> {
        self.caveat.clone()
    }

    pub(crate) fn sharpness(&self) -> Sharpness {
        let (queries, keys) = (&self.query, self.key.matrix.diagonal());
        let over_rows = |of: &dyn Fn(&Head, usize) -> f64| {
            let sums = self.heads.iter().map(|head| (0..queries.count()).map(|a| of(head, a)).sum::<f64>());
            sums.sum::<f64>() / (self.heads.len() * queries.count()) as f64
        };
        let in_view: Vec<f64> = self.heads[0].averages.of(&keys);
        Sharpness {
            // Slopes change which keys count, not how large scores are.
            ln_score: (self.variance * over_rows(&|_, a| queries.square(a) * in_view[a])).ln(),
            attended: over_rows(&|head, a| head.rows[a].in_view / head.rows[a].squares()),
            in_view: over_rows(&|head, a| head.rows[a].in_view),
        }
    }

    /// The attention probabilities, one row per query with an entry per key, those out of sight being zero.
    pub(crate) fn probabilities(&self) -> Signal {
        let n_keys = self.key.matrix.rows;
        let n_queries = self.query.count();
        let identity = Matrix::identity(n_keys);
        let overlaps = mean(self.heads.iter().map(|head| {
            let averaged = head.averages.averaged(&identity);
            let spread = head.spread(&self.key.matrix, &identity, &averaged);
            let shift = head.shift(&self.key.matrix, &averaged);
            let moved = head.moved(&identity);
            let moved = |a: usize, c: usize| moved.as_ref().map_or(0.0, |moved| moved.row(a)[c]);
            let first = |a, c| {
                let fluctuating = spread.row(a)[c] * head.met(&head.rows, &self.query, a, c, Of::Value);
                head.first_order(self.variance, &self.query, (fluctuating, &shift), a, c)
            };
            Matrix::build(n_queries, n_queries, |a, c| match head.rows[a].single.filter(|_| a == c) {
                Some(single) => single.squares / head.rows[a].in_view,
                None if a == c => head.within(a, &identity, averaged.1.row(a)[a] + first(a, a)),
                None => averaged.1.row(a)[c] + first(a, c) + moved(a, c),
            })
        }));
        let own = overlaps.diagonal();
        let length = n_keys as f64;
        let token =
            |own: &f64| Token { mean: 1.0 / (length * own).sqrt(), ..Token::gaussian(length, (own / length).ln()) };
        let cosines = crate::domain::symmetric(own.len(), |i, j| ratio(overlaps.row(i)[j], (own[i] * own[j]).sqrt()));
        Signal::new(own.iter().map(token).collect(), cosines)
    }
}

impl Raw {
    fn of(signal: &Signal) -> Self {
        Self::new(signal.tokens.iter().map(|token| token.ln_second), &signal.cosines)
    }

    fn new(ln_seconds: impl ExactSizeIterator<Item = f64> + Clone, cosines: &[f64]) -> Self {
        let count = ln_seconds.len();
        let (ln_unit, roots) = roots(ln_seconds);
        let matrix = Matrix::build(count, count, |i, j| cosines[i * count + j] * roots[i] * roots[j]);
        Self { ln_unit, matrix }
    }
}

/// The concentration of what `key`s were mapped from.
fn of_memory(key: &Signal) -> Concentration {
    let own = key.token().width.recip();
    let Concentration { total, rows, unequal, common, .. } = key.concentration;
    let [total, common] = [total, common].map(|of_keys| (of_keys - own).max(0.0));
    Concentration { total, rows, unequal, common, ..Concentration::NONE }.bounded()
}

/// How keys are rotated, if they are.
fn rotary(key: &[Node]) -> Option<&Rotary> {
    key.iter().find_map(|node| match &node.op {
        Op::Apply(Component::Rotary(rotary)) => Some(rotary),
        _ => None,
    })
}

/// The average of matrices of one shape.
fn mean(mut matrices: impl ExactSizeIterator<Item = Matrix>) -> Matrix {
    let count = matrices.len() as f64;
    let mut sum = matrices.next().expect("there is a head");
    if count > 1.0 {
        for matrix in matrices {
            sum.entries.iter_mut().zip(&matrix.entries).for_each(|(sum, entry)| *sum += entry);
        }
        sum.entries.iter_mut().for_each(|sum| *sum /= count);
    }
    sum
}

/// Where what tokens differ in strays far in networks.
fn straying(input: &Signal) -> Option<(&'static str, String)> {
    /// Variance of its ln.
    const LARGEST: f64 = 0.03;
    let variance = input.fluctuation.total()[(1, 1)];
    (variance > LARGEST).then(|| {
        (
            "what tokens differ in strays from network to network, behind masks by itself for every token: gradients of queries and keys \
             are told too small (sampled, eight blocks of width 128, four heads: 16 % behind causal masks, 9 % without; standard \
             deviation of ln up to 0.17)",
            format!("{:.2}", variance.sqrt()),
        )
    })
}

/// The largest score variance within a row.
fn sharpest(heads: &[Head]) -> f64 {
    heads.iter().flat_map(|head| &head.rows).map(|row| row.contrast).fold(0.0, f64::max)
}

fn caveat(attention: &Attention, heads: &[Head]) -> Option<(&'static str, String)> {
    let sharpest = sharpest(heads);
    if sharpest > SHARPEST_SAMPLED {
        return Some((
            "attention is sharper than the rules were sampled at (score variance within a row up to 16)",
            format!("{sharpest:.3e}"),
        ));
    }
    if let Some(PositionBias::Relative { table, .. }) = &attention.bias {
        /// Beside a score variance of 1 a tenth of it would be seen.
        const LARGEST_BIAS: f64 = 0.05;
        let variance = table.init.variance();
        return (variance > LARGEST_BIAS)
            .then(|| ("learned relative positions are left out of the scores", format!("variance {variance:.3}")));
    }
    None
}
