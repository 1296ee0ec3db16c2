//! Softmax attention z_a = Σ_b A_ab v_b, A = softmax of scores s_ab = scale q_a·k_b, over the keys that a mask lets a see.
//!
//! Scores are jointly Gaussian, Cov(s_ab, s_cd) = v Q_ac K_bd with v = scale² d_head and the kernels Q, K, V of queries, keys and
//! values. Flat weights W and first order in the scores, with factors s, σ, τ of sharp rows ([`super::softmax`]):
//!
//! ```text
//! E z_a z_c    = P_ac + v Q_ac D_ac σ_ac + v (Q_aa s_a X_ac + Q_cc s_c X_ca)      P = W V Wᵀ, D and X: [`everywhere`], [`masked`]
//! E g_v g_v'   = Wᵀ Γ W + v C(K, Γ Q σ)          E g_k g_k' = scale² d_value C(V, Γ Q τ)
//! E g_q g_q'   = scale² d_value Γ D τ            C(M, N)_bb' = Σ_ac N_ac W_ab W_cb' (M less its averages by row a and c)_bb'
//! ```
//!
//! A row a is like n_e = 1 + tr²/D_aa keys of score variance w = v Q_aa tr n_e/(n_e − 1), tr = Σ_b W_ab K_bb − P_aa.
//! Dropout of rate p: own moments gain p/(1 − p) of Σ A_ab² V_bb. Keys and values serve n_heads/n_kv_heads queries each.
//!
//! Assumption: heads are wide. Source: ours; flat attention and the first order: Kedia et al. 2024.

mod everywhere;
mod masked;
mod repeats;
mod scores;
mod view;

use std::sync::Arc;

use sigprop_stack::Attention;

pub(crate) use self::masked::Operators;
use self::scores::Scores;
pub(crate) use self::scores::rotation;
pub(crate) use self::view::View;
use self::view::{Back, Seen};
use super::moments::{Few, Gradient, Kernel, Next, Signal, correlation};
use super::scalar::Scalar;
use super::softmax::Row;

/// What the forward pass of an attention leaves for its backward pass.
pub(crate) struct Attended<S> {
    parts: [Arc<Signal<S>>; 3],
    scores: Scores,
    seen: Seen<S>,
    /// Of every query.
    rows: Few<Row<S>>,
    /// σ and τ of every pair of queries.
    factors: [Few<S>; 2],
    output: Arc<Signal<S>>,
}

impl<S: Scalar> Attended<S> {
    /// From queries, keys and values.
    pub(crate) fn new(attention: &Attention, view: &View, parts: [Arc<Signal<S>>; 3]) -> Self {
        let [query, key, value] = &parts;
        let scores = Scores::new(attention, query, key);
        let seen = view.see(&query.kernel, &key.kernel, &value.kernel);
        let own = query.kernel.own.iter().enumerate();
        let rows: Few<Row<S>> = own.map(|(node, &own)| seen.row(node, own * scores.variance)).collect();
        let positions = &query.kernel.positions;
        let factors = query.kernel.pairs.iter().enumerate().map(|(point, &product)| {
            let [a, c] = positions.at_ends(point, &rows);
            let correlation = correlation(positions.ends(point, &query.kernel.own), product);
            a.with(c, correlation * view.rotation(point))
        });
        let (values, gradients): (Few<S>, Few<S>) = factors.map(|[value, gradient]| (value, gradient)).unzip();
        let kernel = output(attention, &query.kernel, scores.variance, &seen, (&rows, &values));
        let width = (attention.n_heads * attention.d_value) as f64;
        let output = Arc::new(Signal::centred(width, kernel));
        Self { output, parts, scores, seen, rows, factors: [values, gradients] }
    }

    /// The outputs of the heads.
    pub(crate) fn output(&self) -> Arc<Signal<S>> {
        Arc::clone(&self.output)
    }

    /// ln E s² of a score, 1/E ΣA², and the same of scores that do not differ, averaged over queries.
    pub(crate) fn sharpness(&self) -> [f64; 3] {
        let [query, key, _] = &self.parts;
        let positions = &query.kernel.positions;
        let mean = |of: &dyn Fn(usize) -> f64| positions.sum(of) / positions.length;
        let keys = &key.kernel.positions;
        let key_square = keys.sum(|node| key.kernel.own[node].value()) / keys.length;
        let score = self.scores.variance * mean(&|node| query.kernel.own[node].value()) * key_square;
        let single = mean(&|node| self.seen.single(node, &self.rows[node]).value());
        [score.ln(), single.recip(), mean(&|node| self.seen.single[node]).recip()]
    }

    /// The attention weights, one row of entries per query.
    pub(crate) fn weights(&self) -> Signal<S> {
        let query = &self.parts[0].kernel;
        let length = self.parts[1].kernel.positions.length;
        let own = self.rows.iter().enumerate().map(|(node, row)| self.seen.single(node, row) / length).collect();
        // Of pairs of queries the smaller view is in common.
        let products = query.pairs.iter().zip(&self.factors[0]).enumerate().map(|(point, (&product, &factor))| {
            let [trace, _] = query.positions.ends(point, &self.seen.trace);
            let single = query.positions.at_ends(point, &self.seen.single);
            let flat = single[0].min(*single[1]);
            (product * factor * trace * (self.scores.variance * flat) + flat) / length
        });
        let pairs = products.collect();
        let means = self.rows.iter().map(|_| S::from(length.recip())).collect();
        Signal { means: Some(means), ..Signal::centred(length, query.with(0.0, own, pairs)) }
    }

    /// The gradient at the attention weights, from that at the output.
    pub(crate) fn weights_backward(&self, attention: &Attention, gradient: &Gradient<S>) -> Gradient<S> {
        let value = &self.parts[2].kernel;
        let gamma = &gradient.kernel;
        let width = attention.d_value as f64;
        let own = gamma.own.iter().zip(&self.seen.square);
        let own = own.map(|(&own, &square)| own * square * (width / (1.0 - attention.dropout_rate))).collect();
        let pairs = gamma.map_pairs(&self.seen.square, |_, [a, _], pair| pair * a * width);
        Gradient::independent(gamma.with(gamma.ln_unit + value.ln_unit, own, pairs))
    }

    /// The gradients at queries, keys and values, from that at the output.
    pub(crate) fn split(&self, attention: &Attention, gradient: &Gradient<S>) -> Vec<Gradient<S>> {
        let Self { seen, scores, rows, parts: [query, key, _], .. } = self;
        let gamma = &gradient.kernel;
        let group = (attention.n_heads / attention.n_kv_heads) as f64;
        // Γ Q by itself, times σ and times τ.
        let both = gamma.times(&query.kernel);
        let sharp = |factors: &Few<S>, own: &dyn Fn(&Row<S>) -> S| {
            let own = both.own.iter().zip(rows).map(|(&both, row)| both * own(row)).collect();
            let pairs = both.pairs.iter().zip(factors).map(|(&both, &factor)| both * factor).collect();
            both.with(both.ln_unit, own, pairs)
        };
        let of_values = sharp(&self.factors[0], &|row| row.squares);
        let of_keys = sharp(&self.factors[1], &|row| row.passed);
        let masked = attention.dropout_rate / (1.0 - attention.dropout_rate);
        let gathered: Few<S> =
            rows.iter().enumerate().map(|(node, row)| gamma.own[node] * masked * row.sharper()).collect();
        let differ = |(row, &own): (&Row<S>, &S)| own * (-row.keys.recip() + 1.0) * masked;
        let passed: Few<S> = rows.iter().zip(&of_keys.own).map(differ).collect();
        let [flat, linear, at_keys] = match &seen.back {
            Back::Everywhere(back) => {
                [back.gathered(gamma, &gathered), back.at_values(&of_values), back.at_keys(&of_keys, &passed)]
            }
            Back::Masked(back) => {
                [back.gathered(gamma, &gathered), back.at_values(&of_values), back.at_keys(&of_keys, &passed)]
            }
        };
        let at_values = Kernel::sum([(group, &flat), (group * scores.factor, &linear)].into_iter());
        let steps = attention.scale * attention.scale * attention.d_value as f64 * scores.slope;
        let at_queries = self.at_queries(gamma, masked).scaled(steps);
        let at_keys = at_keys.scaled(group * steps);
        let shares = |of: &Signal<S>| Some(of.parts.as_ref()?.iter().map(|part| part.squares).collect());
        vec![
            Gradient { parts: shares(key), ..Gradient::independent(at_queries) },
            Gradient { parts: shares(query), next: Next::Scores, ..Gradient::independent(at_keys) },
            Gradient::independent(at_values),
        ]
    }

    /// Γ D τ, with what masks add.
    fn at_queries(&self, gamma: &Kernel<S>, masked: f64) -> Kernel<S> {
        let Self { seen, rows, factors, .. } = self;
        let own = |(node, row): (usize, &Row<S>)| {
            let of_masks = seen.square[node] * seen.trace[node] * (masked * seen.single[node]);
            gamma.own[node] * row.passed * (seen.spread.own[node] + of_masks)
        };
        let own = rows.iter().enumerate().map(own).collect();
        let pairs = gamma.pairs.iter().zip(&seen.spread.pairs).zip(&factors[1]);
        let pairs = pairs.map(|((&pair, &spread), &factor)| pair * spread * factor).collect();
        gamma.with(gamma.ln_unit + seen.spread.ln_unit, own, pairs)
    }
}

/// E z_a z_c.
fn output<S: Scalar>(
    attention: &Attention,
    query: &Kernel<S>,
    variance: f64,
    seen: &Seen<S>,
    (rows, factors): (&[Row<S>], &[S]),
) -> Kernel<S> {
    let masked = attention.dropout_rate / (1.0 - attention.dropout_rate);
    let [shift, turned] = &seen.shift;
    let own = query.own.iter().zip(rows).enumerate().map(|(node, (&own, row))| {
        let sharp = own * row.squares * (seen.spread.own[node] + shift.own[node] * 2.0) * variance;
        seen.flat.own[node] + sharp + seen.square[node] * seen.single(node, row) * masked
    });
    let pairs = query.pairs.iter().zip(factors).enumerate().map(|(point, (&product, &factor))| {
        let [a, c] = query.positions.ends(point, &query.own);
        let [of_a, of_c] = query.positions.at_ends(point, rows);
        let mean_rows = a * of_a.shifted() * shift.pairs[point] + c * of_c.shifted() * turned.pairs[point];
        seen.flat.pairs[point] + (product * seen.spread.pairs[point] * factor + mean_rows) * variance
    });
    query.with(seen.flat.ln_unit, own.collect(), pairs.collect())
}
