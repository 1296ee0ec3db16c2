//! Softmax attention z_a = Σ_b A_ab v_b, A = softmax of scores s_ab = scale q_a·k_b, over the keys that a mask lets a see.
//!
//! Scores are jointly Gaussian, Cov(s_ab, s_cd) = v Q_ac K_bd with v = scale² d_head and the kernels Q, K, V of queries, keys and
//! values. Flat weights W and first order in the scores, with factors s, σ, τ of sharp rows ([`super::softmax`]):
//!
//! ```text
//! E z_a z_c    = P_ac + v Q_ac D_ac σ_ac + v (Q_aa s_a X_ac + Q_cc s_c X_ca)      P = W V Wᵀ, D and X: [`averages`]
//! E g_v g_v'   = Wᵀ Γ W + v C(K, Γ Q σ)          E g_k g_k' = scale² d_value C(V, Γ Q τ)
//! E g_q g_q'   = scale² d_value Γ D τ            C(M, N)_bb' = Σ_ac N_ac W_ab W_cb' (M less its averages by row a and c)_bb'
//! ```
//!
//! A row a is like n_e = 1 + tr²/D_aa keys of score variance w = v Q_aa tr n_e/(n_e − 1), tr = Σ_b W_ab K_bb − P_aa.
//! Dropout of rate p: own moments gain p/(1 − p) of Σ A_ab² V_bb. Keys and values serve n_heads/n_kv_heads queries each.
//!
//! Assumption: heads are wide. Source: ours; flat attention and the first order: Kedia et al. 2024.

mod averages;
mod scores;

use std::sync::Arc;

use sigprop_stack::Attention;

use self::averages::Averages;
use self::scores::Scores;
use super::moments::{Few, Gradient, Kernel, Signal};
use super::scalar::Scalar;
use super::softmax::Row;

/// What the forward pass of an attention leaves for its backward pass.
pub(crate) struct Attended<S> {
    parts: [Arc<Signal<S>>; 3],
    scores: Scores,
    averages: Averages<S>,
    /// Of every query.
    rows: Few<Row<S>>,
    /// σ and τ of every pair of queries.
    factors: [Few<S>; 2],
    output: Arc<Signal<S>>,
}

impl<S: Scalar> Attended<S> {
    /// From queries, keys and values.
    pub(crate) fn new(attention: &Attention, parts: [Arc<Signal<S>>; 3]) -> Self {
        let [query, key, value] = &parts;
        let scores = Scores::new(attention, query, key);
        let averages = Averages::new(&key.kernel, &value.kernel);
        let rows: Few<Row<S>> =
            (0..query.kernel.own.len()).map(|node| averages.row(query.kernel.own[node] * scores.variance)).collect();
        let positions = &query.kernel.positions;
        let factors = query.kernel.pairs.iter().enumerate().map(|(point, &product)| {
            let [a, c] = positions.at_ends(point, &rows);
            let [own_a, own_c] = positions.ends(point, &query.kernel.own);
            a.with(c, (product / (own_a * own_c).sqrt()).clamped(-1.0, 1.0))
        });
        let (values, gradients): (Few<S>, Few<S>) = factors.map(|[value, gradient]| (value, gradient)).unzip();
        let factors = [values, gradients];
        let kernel = output(attention, query, scores.variance, &averages, (&rows, &factors[0]));
        let width = (attention.n_heads * attention.d_value) as f64;
        let output = Signal::centred(width, Kernel { ln_unit: value.kernel.ln_unit, ..kernel });
        Self { output: Arc::new(output), parts, scores, averages, rows, factors }
    }

    /// The outputs of the heads.
    pub(crate) fn output(&self) -> Arc<Signal<S>> {
        Arc::clone(&self.output)
    }

    /// The attention weights, one row of entries per query.
    pub(crate) fn weights(&self) -> Signal<S> {
        let query = &self.parts[0].kernel;
        let length = self.averages.length();
        let flat = length.recip();
        let own = self.rows.iter().map(|row| self.averages.single(row) * flat).collect();
        let trace = self.averages.key.trace * (self.scores.variance * flat * flat);
        let products = query.pairs.iter().zip(&self.factors[0]);
        let pairs = products.map(|(&product, &factor)| product * factor * trace + flat * flat).collect();
        let means = self.rows.iter().map(|_| S::from(flat)).collect();
        Signal { width: length, kernel: query.with(0.0, own, pairs), means: Some(means) }
    }

    /// The gradient at the attention weights, from that at the output.
    pub(crate) fn weights_backward(&self, attention: &Attention, gradient: &Gradient<S>) -> Gradient<S> {
        let value = &self.parts[2].kernel;
        let gamma = &gradient.kernel;
        let square = self.averages.square * attention.d_value as f64;
        let own = gamma.own.iter().map(|&own| own * square / (1.0 - attention.dropout_rate)).collect();
        let pairs = gamma.pairs.iter().map(|&pair| pair * square).collect();
        Gradient::independent(gamma.with(gamma.ln_unit + value.ln_unit, own, pairs))
    }

    /// The gradients at queries, keys and values, from that at the output.
    pub(crate) fn split(&self, attention: &Attention, gradient: &Gradient<S>) -> Vec<Gradient<S>> {
        let Self { averages, scores, rows, parts: [query, ..], .. } = self;
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

        let flat = averages.gathered(gamma, rows, masked);
        let linear = averages.key.contracted(&of_values);
        let at_values = Kernel::sum([(group, &flat), (group * scores.factor, &linear)].into_iter());

        let steps = attention.scale * attention.scale * attention.d_value as f64 * scores.slope;
        let at_keys = averages.value.contracted(&of_keys);
        let at_keys = averages.add_masked(at_keys, &both, rows, masked).scaled(group * steps);
        let at_queries = averages.passed(gamma, rows, &self.factors[1], masked);
        [at_queries.scaled(steps), at_keys, at_values].map(Gradient::independent).into()
    }
}

/// E z_a z_c.
fn output<S: Scalar>(
    attention: &Attention,
    query: &Signal<S>,
    variance: f64,
    averages: &Averages<S>,
    (rows, factors): (&[Row<S>], &[S]),
) -> Kernel<S> {
    let masked = attention.dropout_rate / (1.0 - attention.dropout_rate);
    let own = query.kernel.own.iter().zip(rows).map(|(&own, row)| {
        let sharp = own * row.squares * (averages.spread + averages.shift * 2.0) * variance;
        averages.flat + sharp + averages.squares(row) * masked
    });
    let positions = &query.kernel.positions;
    let pairs = query.kernel.pairs.iter().zip(factors).enumerate().map(|(point, (&product, &factor))| {
        let [a, c] = positions.ends(point, &query.kernel.own);
        let [of_a, of_c] = positions.at_ends(point, rows);
        let mean_row = a * of_a.shifted() + c * of_c.shifted();
        averages.flat + (product * averages.spread * factor + mean_row * averages.shift) * variance
    });
    query.kernel.with(0.0, own.collect(), pairs.collect())
}
