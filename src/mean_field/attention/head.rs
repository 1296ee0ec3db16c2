//! Heads with the same view: the keys in view, the factors of their rows, their output and their gradients.

use std::sync::Arc;

use sigprop_stack::Attention;

use super::groups::GroupCorrection;
use super::row::QueryRow;
use super::scores::Scores;
use super::seen::{Mean, Seen, Turned};
use super::view::{Back, View};
use crate::mean_field::disentangled::{Images, RelativeScores};
use crate::mean_field::few::Few;
use crate::mean_field::kernel::{Kernel, correlation};
use crate::mean_field::signal::Signal;

/// Heads whose queries see the same keys.
pub(super) struct Head {
    /// The share of these heads among all heads of the attention.
    pub(super) share: f64,
    pub(super) seen: Seen,
    back: Back,
    /// The scores with relative positions, if there are some.
    pub(super) relative: Option<RelativeScores>,
    /// E z_a z_c of the outputs of these heads.
    pub(super) output: Kernel,
    /// The softmax row of every query.
    pub(super) rows: Vec<QueryRow>,
    /// The factors of sharp rows for every pair of queries: σ on D, then τ on gradients through scores.
    factors: [Few<f64>; 2],
}

impl Head {
    /// Returns the heads.
    pub(super) fn new(
        attention: &Attention,
        (share, view): (f64, &View),
        (scores, images): (&Scores, Option<&Images>),
        parts: &[Arc<Signal>; 3],
    ) -> Self {
        let [query, key, value] = parts.each_ref().map(|part| &part.kernel);
        let (mean, mut seen, back) = view.see(query, key, value);
        let relative = relative((attention, images), [query, key, value], &mut seen, &back);
        let trace = |node: usize| match &relative {
            Some(RelativeScores { scores, .. }) if query.own[node] > 0.0 => scores.own[node] / query.own[node],
            Some(_) | None => seen.trace[node],
        };
        let own = query.own.iter().enumerate();
        let rows: Vec<QueryRow> = own.map(|(node, &own)| seen.row(node, own * scores.variance, trace(node))).collect();
        let factors = query.pairs.iter().enumerate().map(|(point, &product)| {
            let [a, c] = query.positions.at_ends(point, &rows);
            let (own, product) = match &relative {
                Some(RelativeScores { scores, .. }) => (&scores.own, scores.pairs[point]),
                None => (&query.own, product),
            };
            let correlation = correlation(query.positions.ends(point, own), product);
            seen.keys.with(point, [a, c], correlation * view.rotation(point))
        });
        let (values, gradients) = factors.map(|[value, gradient]| (value, gradient)).unzip();
        let head = Self { share, seen, back, relative, output: mean.flat.clone(), rows, factors: [values, gradients] };
        let output = output(attention, query, scores.variance, (&head, &mean));
        Self { output, ..head }
    }

    /// Returns the heads between two uses of the same maps, as [`Attended::between`](super::Attended::between) has
    /// them. `inputs` are queries, keys and values of each use, and
    /// `parts` their products between the uses.
    pub(super) fn between(
        attention: &Attention,
        uses: [&Self; 2],
        inputs: [&[Arc<Signal>; 3]; 2],
        (scores, parts): (&Scores, &[Kernel; 3]),
    ) -> Self {
        let [query, key, value] = parts;
        let (mean, seen, back) = View::Everywhere.see(query, key, value);
        let units = inputs.map(|[query, key, _]| query.kernel.ln_unit + key.kernel.ln_unit);
        let unit = (query.ln_unit + key.ln_unit - 0.5 * (units[0] + units[1])).exp();
        // These are the standard deviations of scores.
        let std = |index: usize, node: usize| {
            (inputs[index][0].kernel.own[node] * uses[index].seen.trace[node]).max(0.0).sqrt()
        };
        let correlation = |product: f64, trace: f64, [a, c]: [usize; 2]| {
            let scale = std(0, a) * std(1, c);
            if scale > 0.0 { (product * trace * unit / scale).clamp(-1.0, 1.0) } else { 0.0 }
        };
        let row = |(node, &own): (usize, &f64)| {
            let [first, second] = uses.map(|of_use| &of_use.rows[node].own);
            QueryRow { own: first.between(second, correlation(own, seen.trace[node], [node; 2])), smooth: None }
        };
        let rows: Vec<QueryRow> = query.own.iter().enumerate().map(row).collect();
        let factors = query.pairs.iter().enumerate().map(|(point, &product)| {
            let (a, nodes) = query.positions.nodes_of(point);
            let c = nodes[0].0 as usize;
            uses[0].rows[a].own.with(&uses[1].rows[c].own, correlation(product, seen.trace[a], [a, c]))
        });
        let (values, gradients) = factors.map(|[value, gradient]| (value, gradient)).unzip();
        let flat = mean.flat.clone();
        let head =
            Self { share: uses[0].share, seen, back, relative: None, output: flat, rows, factors: [values, gradients] };
        let output = output(attention, query, scores.variance, (&head, &mean));
        Self { output, ..head }
    }

    /// Returns the factor κ of rotations on the product of two keys, averaged over pairs of keys in view of a query and
    /// over queries.
    pub(super) fn rotation_in_view(&self) -> f64 {
        match &self.back {
            Back::Everywhere(_) => 1.0,
            Back::Masked(back) => back.rotation_in_view(),
        }
    }

    /// Returns Σ_b E A_ab A_cb: first of every query with itself (a = c), then of pairs of queries at all points.
    pub(super) fn overlaps(&self, query: &Kernel, variance: f64) -> (Few<f64>, Few<f64>) {
        let own = self.rows.iter().enumerate().map(|(node, row)| self.seen.single(node, row)).collect();
        let pairs = query.pairs.iter().zip(&self.factors[0]).enumerate().map(|(point, (&product, &factor))| {
            let product = match &self.relative {
                Some(relative) => relative.scores.pairs[point],
                None => product * query.positions.ends(point, &self.seen.trace)[0],
            };
            let flat = self.seen.shared[point % self.seen.shared.len()];
            let [a, c] = query.positions.at_ends(point, &self.rows).map(|row| row.own.sink);
            product * factor * (variance * flat * a.spread) + flat * (a.mean * c.mean)
        });
        (own, pairs.collect())
    }

    /// Multiplies a kernel of queries by E A_ab/W_ab of the sink's row of both queries. Without a sink these are 1.
    fn with_mean_rows(&self, kernel: &Kernel) -> Kernel {
        let means: Few<f64> = self.rows.iter().map(|row| row.own.sink.mean).collect();
        let own = kernel.own.iter().zip(&means).map(|(own, mean)| own * mean * mean).collect();
        kernel.with(kernel.ln_unit, own, kernel.map_pairs(&means, |_, [a, c], pair| pair * a * c))
    }

    /// Returns ln Σ_ac E A_as A_cs z_a z_c Γ_ac for the weights A_as of the sink, where `gamma` is Γ. A large output z_a
    /// of one query goes together with a small weight of its sink.
    pub(super) fn ln_of_sink(&self, gamma: &Kernel) -> f64 {
        let outputs = gamma.times(&self.output);
        let weights: Few<f64> = (0..self.rows.len()).map(|node| 1.0 - self.seen.sum(node, &self.rows[node])).collect();
        let own =
            |node: usize| (1.0 - self.seen.totals[node]).powi(2) * self.rows[node].own.sink.square * outputs.own[node];
        let pairs = outputs.map_pairs(&weights, |_, [a, c], product| product * a * c);
        let sum = outputs.positions.sum(own) + outputs.positions.sum_pairs(|point| pairs[point]);
        sum.max(0.0).ln() + outputs.ln_unit
    }

    /// Returns Wᵀ Γ W and C(K, Γ∘Q∘σ), the gradients at values through flat weights and through scores, and
    /// C(V, Γ∘Q∘τ), the gradient at keys. The first and the third include the contributions of dropout masks.
    /// `Attended::split` multiplies all three by the share of the heads and by n_heads/n_kv_heads, the second also by
    /// v, and the third by scale² d_value E cap'².
    pub(super) fn back(&self, attention: &Attention, query: &Kernel, gamma: &Kernel) -> ([Kernel; 2], Turned) {
        let Self { back, rows, .. } = self;
        // This is the elementwise product Γ∘Q.
        let both = gamma.times(query);
        let [of_values, of_keys] = self.sharp(&both);
        let masked = masked(attention);
        let gathered: Few<f64> = rows.iter().zip(&gamma.own).map(|(row, &own)| own * masked * row.sharper()).collect();
        let passed: Few<f64> = of_keys.own.iter().map(|&own| own * masked).collect();
        let groups = self.group_corrections(query, gamma, [&both, &of_values, &of_keys]);
        let gamma = &self.with_mean_rows(gamma);
        let [by_values, by_keys] = [0, 1].map(|index| groups.as_ref().map(|groups| &groups[index]));
        let query_total = self.seen.spread.before.as_ref().map(|before| of_keys.contracted(before));
        let ([flat, linear], keys) = match back {
            Back::Everywhere(back) => (
                [back.gathered(gamma, &gathered), back.at_values(&of_values, by_values)],
                back.at_keys(&of_keys, &passed, by_keys),
            ),
            Back::Masked(back) => (
                [back.gathered(gamma, &gathered), back.at_values(&of_values, by_values)],
                back.at_keys(&of_keys, &passed, by_keys, query_total),
            ),
        };
        let Some(relative) = &self.relative else { return ([flat, linear], keys) };
        let [squares, passed] = self.sharp(gamma);
        let linear = linear.plus(&relative.at_values([&of_values, &squares]));
        ([flat, linear], keys.plus(&relative.at_keys(&passed)))
    }

    /// Returns a kernel of queries times the factors σ, then times τ, of sharp rows.
    fn sharp(&self, kernel: &Kernel) -> [Kernel; 2] {
        let sharp = |factors: &Few<f64>, own: &dyn Fn(&QueryRow) -> f64| {
            let own = kernel.own.iter().zip(&self.rows).map(|(&kernel, row)| kernel * own(row)).collect();
            let pairs = kernel.pairs.iter().zip(factors).map(|(&kernel, &factor)| kernel * factor).collect();
            kernel.with(kernel.ln_unit, own, pairs)
        };
        [sharp(&self.factors[0], &|row| row.squares()), sharp(&self.factors[1], &|row| row.passed())]
    }

    /// Returns ln of the second moments of the gradients at the keys and the queries of relative positions, summed over
    /// all rows of their table, per scale² d_value and head. `gamma` is Γ.
    pub(super) fn ln_at_positions(&self, query: &Kernel, gamma: &Kernel) -> [f64; 2] {
        let [[_, both], [_, gamma]] = [self.sharp(&gamma.times(query)), self.sharp(gamma)];
        self.relative.as_ref().map_or([f64::NEG_INFINITY; 2], |relative| relative.ln_at_positions([&both, &gamma]))
    }

    /// Returns the corrections for repeated ids of the gradients at values and at keys. The last argument has the
    /// kernels Γ∘Q, Γ∘Q∘σ and Γ∘Q∘τ. `None` if ids are not random.
    fn group_corrections(
        &self,
        query: &Kernel,
        gamma: &Kernel,
        [both, of_values, of_keys]: [&Kernel; 3],
    ) -> Option<[GroupCorrection<'_>; 2]> {
        let groups = self.seen.groups.as_ref()?;
        let drawn = groups.drawn.as_ref()?;
        let excess = |index: usize, trace: &Few<f64>| -> Kernel {
            let rows = self.rows.iter().zip(trace);
            let excess: Few<f64> = rows.map(|(row, &trace)| row.single_key()[index] * trace).collect();
            let own = both.own.iter().zip(&excess).map(|(&own, &excess)| own * excess).collect();
            // The excess of a pair is proportional to the correlation of the scores.
            let pairs = both.map_pairs(&excess, |point, [a, c], product| {
                let ends = query.positions.ends(point, &query.own);
                product * (a + c) * correlation(ends, query.pairs[point]) * 0.5
            });
            both.with(both.ln_unit, own, pairs)
        };
        let shifts: Few<f64> = query.own.iter().zip(&self.rows).map(|(&own, row)| own * row.shift()).collect();
        let [ahead, behind] = &drawn.shift;
        let own = shifts.iter().zip(&ahead.own).map(|(&of_row, &shift)| of_row * shift * 2.0).collect();
        let pairs = gamma.map_pairs(&shifts, |point, [a, c], _| a * ahead.pairs[point] + c * behind.pairs[point]);
        let unit = gamma.ln_unit + query.ln_unit - both.ln_unit;
        let shift_total = gamma.contracted(&gamma.with(0.0, own, pairs)) * unit.exp();
        Some([
            groups.correction(of_values, drawn, excess(0, &self.seen.trace), shift_total),
            groups.correction(of_keys, drawn, excess(1, &groups.trace), 0.0),
        ])
    }

    /// Returns Γ∘D∘τ, the gradient at queries, plus the contribution of dropout masks.
    pub(super) fn at_queries(&self, attention: &Attention, gamma: &Kernel) -> Turned {
        let Self { seen, rows, factors, .. } = self;
        let masked = masked(attention);
        let through = |spread: &Kernel| {
            let own = |(node, row): (usize, &QueryRow)| {
                let of_masks = seen.square[node] * seen.trace[node] * (masked * seen.single[node]);
                gamma.own[node] * row.passed() * (spread.own[node] + of_masks)
            };
            let own = rows.iter().enumerate().map(own).collect();
            let pairs = gamma.pairs.iter().zip(&spread.pairs).zip(&factors[1]);
            let pairs = pairs.map(|((&pair, &spread), &factor)| pair * spread * factor).collect();
            gamma.with(gamma.ln_unit + spread.ln_unit, own, pairs)
        };
        Turned { behind: through(&seen.spread.behind), before: seen.spread.before.as_ref().map(through) }
    }
}

/// Returns the scores with relative positions, if there are some, and adds their part of the keys to `seen`.
fn relative(
    (attention, images): (&Attention, Option<&Images>),
    parts: [&Kernel; 3],
    seen: &mut Seen,
    back: &Back,
) -> Option<RelativeScores> {
    let Back::Everywhere(back) = back else { return None };
    let square = seen.square.iter().sum::<f64>() / seen.square.len() as f64;
    let relative = RelativeScores::new(images?, parts, (back.traces(), square * masked(attention)));
    let [own, pair] = relative.spread();
    seen.spread.behind.own.iter_mut().for_each(|spread| *spread += own);
    seen.spread.behind.pairs.iter_mut().for_each(|spread| *spread += pair);
    seen.trace.iter_mut().for_each(|trace| *trace += relative.key_trace());
    Some(relative)
}

/// Returns the kernel E z_a z_c of the output of heads with the same view.
fn output(attention: &Attention, query: &Kernel, variance: f64, (head, mean): (&Head, &Mean)) -> Kernel {
    let Head { seen, rows, factors, .. } = head;
    let masked = masked(attention);
    let Mean { flat, shift: [shift, transposed] } = mean;
    let spread = seen.spread.before();
    let flat = head.with_mean_rows(flat);
    // The part of scores of positions with keys, per v.
    let [of_positions, of_position_pairs] = head.relative.as_ref().map_or([0.0; 2], RelativeScores::outputs);
    let own = query.own.iter().zip(rows).enumerate().map(|(node, (&own, row))| {
        let sharp = own * (row.squares() * spread.own[node] + row.shift() * shift.own[node] * 2.0) * variance;
        let sharp = sharp + of_positions * row.squares() * variance;
        flat.own[node] + sharp + seen.square[node] * seen.single(node, row) * masked
    });
    let pairs = query.pairs.iter().zip(&factors[0]).enumerate().map(|(point, (&product, &factor))| {
        let [a, c] = query.positions.ends(point, &query.own);
        let [of_a, of_c] = query.positions.at_ends(point, rows);
        let mean_rows = a * of_a.shift() * shift.pairs[point] + c * of_c.shift() * transposed.pairs[point];
        let sharp = (product * spread.pairs[point] + of_position_pairs) * factor;
        flat.pairs[point] + (sharp + mean_rows) * variance
    });
    query.with(flat.ln_unit, own.collect(), pairs.collect())
}

/// Returns p/(1 − p), where p is the dropout rate of attention weights.
fn masked(attention: &Attention) -> f64 {
    attention.dropout_rate / (1.0 - attention.dropout_rate)
}
