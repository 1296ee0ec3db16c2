//! Rotated queries and keys: they meet by the difference of how far both are turned.
//!
//! # Formula
//!
//! With Q, K the products before the rotation, scores of queries a, c and keys b, d have the covariance v Q_ac K_bd κ((a − c) −
//! (b − d)), κ(Δ) = Σ_f p_f cos θ_f Δ, where products of what is rotated have κ(a − c) κ(b − d). A frequency that turns queries
//! away from each other turns keys apart, too: it has more of what scores differ by, less of what keys and values have in
//! common. With K_f = K_bd e^(−iθ_f (b − d)) in place of K, κ D becomes
//!
//! ```text
//! D° = Σ_f p_f Re e^(iθ_f (a − c)) D(K_f, V)
//! ```
//!
//! in what scores add to outputs and, before the rotation, in the gradients of queries. What rows of scores themselves have in
//! common, Q_ac κ', enters beyond the first order only, and is that of one query, the one that sees fewer keys, turned by the
//! distance; behind windows that of m keys of cosine k̄:
//!
//! ```text
//! κ'_ac = Σ_f p_f w_f cos θ_f (a − c)/Σ_f p_f w_f      w_f = D(K_f, V)_cc, or 1 − 1/m − k̄ (F_f − 1/m), F_f = |Σ_b e^(iθ_f b)|²/m²
//! ```
//!
//! Products of inputs that γ is of (the pull, and what it leaves in gradients of queries) meet by κ'', of pairs of different keys
//! by themselves: p_f (F_f − 1/m)/(1 − 1/m) for weights.
//!
//! # Backward
//!
//! Before the rotation gradients of keys have C(V, M) with M_ac κ(Δ), Δ = (a − c) − (b − d), M = Γ∘Q∘R', of two different queries:
//!
//! ```text
//! E g_b·g_d = κ(b − d) (rotated) + Σ_f p_f Re (e^(−iθ_f (b − d)) − κ(b − d)) C(V, M e^(iθ_f (a − c)))_bd
//! ```
//!
//! Beside products of cosines (96 to 128 tokens, 200 networks): gradients of key biases in the second block of Qwen 2 were 37 %
//! too large, now 3 ± 2 % too small, of GPT-NeoX 10 %, now 0 ± 1 %; correlations of attention's rows in Qwen 3, behind blocks that
//! made tokens alike, 0.03 too large, now right to 0.005. Frequencies are summed eight at a time, of some views of the keys (all
//! up to 32) between which D(K_f, V) and C are interpolated, to 0.008 of D, but for what C has of each key's V W: equal keys are
//! anywhere (gradients of key biases, 64 tokens with gradients that are alike: 62 % too small where that was interpolated, 2 ± 2 %
//! too large now). Those that turn all tokens almost alike are one.
//!
//! # Assumptions
//!
//! What scores add to gradients of values has κ' for every pair of keys. Views begin
//! at the first key; behind windows κ' takes keys as equally alike, gradients, and D, have the product of cosines, as all have beside ALiBi's weights and where
//! keys are of another stream. Source: ours.

mod beyond;
mod lanes;
mod spread;

use sigprop_stack::Rotary;

use super::row::Row;
use crate::moments::ratio;
use crate::rules::attention::averages::Averages;
use crate::rules::attention::matrix::Matrix;
use crate::rules::rotary;

pub(super) struct Rotation {
    /// θ_f and p_f, and κ as they make it, by distance.
    frequencies: Vec<(f64, f64)>,
    summed: Vec<f64>,
    /// Where views end, if all begin at the first key.
    ends: Option<Vec<usize>>,
    /// κ, by distance.
    overlaps: Vec<f64>,
    /// κ averaged over pairs of different keys of two queries.
    turned: Matrix,
    /// κ' and κ''.
    met: Matrix,
    pulled: Matrix,
    /// D of the difference, per product of queries before the rotation.
    spread: Matrix,
}

impl Rotation {
    /// Of queries that see these `rows`; of keys and values with the products `k` and `v`, with P_K in `averaged` and the D `spread`.
    pub(super) fn new(
        rotary: &Rotary,
        (averages, rows): (&Averages, &[Row]),
        (k, averaged): (&Matrix, &Matrix),
        v: &Matrix,
        spread: &Matrix,
    ) -> Self {
        let n = k.rows;
        let overlaps = rotary::overlaps(rotary, n);
        let turned = turned(averages, &overlaps);
        // What is not rotated has the frequency 0.
        let share = 2.0 / rotary.d_head as f64;
        let rest = 1.0 - share * rotary.frequencies.len() as f64;
        let rotated = rotary.frequencies.iter().map(|&frequency| (frequency, share));
        let frequencies = merged(rotated.chain((rest > 0.0).then_some((0.0, rest))), n);
        let count = frequencies.len();
        let by_distance = Matrix::build(count, n, |f, distance| (frequencies[f].0 * distance as f64).cos());

        let together = |a: usize, f: usize| turned_together(frequencies[f].0, rows[a].in_view);
        let different = Matrix::build(n, count, |a, f| {
            let own = rows[a].in_view.recip();
            frequencies[f].1 * ratio(together(a, f) - own, 1.0 - own)
        });
        let different = different.product(&by_distance);
        let fewer = |a: usize, c: usize| if rows[a].in_view < rows[c].in_view { a } else { c };
        let pulled = Matrix::symmetric(n, |a, c| different.row(fewer(a, c))[a - c]);

        let ends = averages.seen_from_the_first();
        let [spread, met] = if let Some(ends) = &ends {
            let before = Matrix::build(n, n, |b, d| before(k.row(b)[d], overlaps[b.abs_diff(d)]));
            spread::spread(ends, (&before, v), &frequencies)
        } else {
            let squares = averages.of(&k.diagonal());
            let left = Matrix::build(n, count, |a, f| {
                let own = rows[a].in_view.recip();
                let products = averaged.row(a)[a] - own * squares[a];
                let alike = ratio(products, squares[a] * (1.0 - own) * turned.row(a)[a]).clamp(0.0, 1.0);
                frequencies[f].1 * (1.0 - own - alike * (together(a, f) - own)).max(0.0)
            });
            let left = left.product(&by_distance);
            let met = Matrix::symmetric(n, |a, c| {
                let left = left.row(fewer(a, c));
                if left[0] > 0.0 { left[a - c] / left[0] } else { 1.0 }
            });
            [Matrix::symmetric(n, |a, c| overlaps[a - c] * spread.row(a)[c]), met]
        };
        let summed =
            (0..n).map(|distance| (0..count).map(|f| frequencies[f].1 * by_distance.row(f)[distance]).sum()).collect();
        Self { frequencies, summed, ends, overlaps, turned, met, pulled, spread }
    }

    /// κ averaged over pairs of different keys of two queries.
    pub(super) fn turned(&self, a: usize, c: usize) -> f64 {
        self.turned.row(a)[c]
    }

    /// D of the difference.
    pub(super) fn spread(&self, a: usize, c: usize) -> f64 {
        self.spread.row(a)[c]
    }

    /// κ'.
    pub(super) fn met(&self, a: usize, c: usize) -> f64 {
        self.met.row(a)[c]
    }

    /// κ''.
    pub(super) fn pulled(&self, a: usize, c: usize) -> f64 {
        self.pulled.row(a)[c]
    }

    /// What a `product` of two rotated tokens was before.
    pub(super) fn before(&self, product: f64, a: usize, c: usize) -> f64 {
        before(product, self.overlap(a, c))
    }

    /// κ.
    pub(super) fn overlap(&self, a: usize, c: usize) -> f64 {
        self.overlaps[a.abs_diff(c)]
    }

    /// What gradients of keys have in common before the rotation beyond their product with κ, from M of two different queries
    /// and the products V of values with V W and P_V.
    pub(super) fn beyond(&self, m: &Matrix, v: &Matrix, averaged: (&Matrix, &Matrix)) -> Matrix {
        match &self.ends {
            Some(ends) => beyond::beyond(ends, m, (v, averaged), (&self.frequencies, &self.summed)),
            None => Matrix::zeros(v.rows, v.rows),
        }
    }
}

/// A `product` that a rotation has multiplied by its `overlap`; nothing of what it has made zero.
fn before(product: f64, overlap: f64) -> f64 {
    if overlap.abs() > f64::MIN_POSITIVE { product / overlap } else { 0.0 }
}

/// Frequencies that turn `n` tokens almost alike, together.
fn merged(frequencies: impl Iterator<Item = (f64, f64)>, n: usize) -> Vec<(f64, f64)> {
    /// By how much the turns of the first and the last may differ at the largest distance: cosines are right to 0.01 there.
    const ALIKE: f64 = 0.5;
    let mut groups: Vec<(f64, Vec<(f64, f64)>)> = Vec::new();
    for (frequency, share) in frequencies {
        match groups.last_mut() {
            Some((first, group)) if (*first - frequency).abs() * n as f64 <= ALIKE => group.push((frequency, share)),
            _ => groups.push((frequency, vec![(frequency, share)])),
        }
    }
    // Of the same average square, by which small angles count.
    let mean = |(_, group): (f64, Vec<(f64, f64)>)| {
        let share: f64 = group.iter().map(|(_, share)| share).sum();
        ((group.iter().map(|(frequency, share)| frequency * frequency * share).sum::<f64>() / share).sqrt(), share)
    };
    groups.into_iter().map(mean).collect()
}

/// F_f of `count` neighbours.
fn turned_together(frequency: f64, count: f64) -> f64 {
    let half = 0.5 * frequency;
    let one = half.sin();
    if one == 0.0 { 1.0 } else { ((count * half).sin() / (count * one)).powi(2) }
}

/// κ averaged over pairs of different keys of two queries.
fn turned(averages: &Averages, turns: &[f64]) -> Matrix {
    let n_keys = turns.len();
    let over_pairs =
        |of: &(dyn Fn(usize, usize) -> f64 + Sync)| averages.right(&averages.left(&Matrix::build(n_keys, n_keys, of)));
    let different = over_pairs(&|b, other| if b == other { 0.0 } else { 1.0 });
    let turned = over_pairs(&|b, other| if b == other { 0.0 } else { turns[b.abs_diff(other)] });
    turned.zip(&different, |turned, different| if different > 0.0 { turned / different } else { 1.0 })
}

#[cfg(test)]
mod tests {
    use sigprop_stack::Mask;

    use super::*;

    /// Products of tokens to which averages of all before were added so many times.
    fn averaged(n: usize, times: usize) -> Matrix {
        let averages = Averages::new(Mask::CAUSAL, n, n, 0.0);
        let mut products = Matrix::identity(n);
        for _ in 0..times {
            let more = averages.right(&averages.left(&products));
            products.add([&more], |[more]| more);
        }
        products
    }

    /// θ_f and p_f of heads of 32 features, half of which are rotated.
    fn frequencies() -> Vec<(f64, f64)> {
        (0..8).map(|f| (10_000f64.powf(-f64::from(f) / 8.0), 1.0 / 16.0)).chain([(0.0, 0.5)]).collect()
    }

    fn overlap(angle: f64) -> f64 {
        frequencies().iter().map(|(frequency, share)| share * (frequency * angle).cos()).sum()
    }

    /// W_ab of a query that sees the keys before `end`.
    fn weight(end: usize, b: usize) -> f64 {
        if b < end { 1.0 / end as f64 } else { 0.0 }
    }

    /// (C_a X C_c)_bd of all keys b, d.
    fn centred(n: usize, [a, c]: [usize; 2], x: impl Fn(usize, usize) -> f64 + Sync) -> Matrix {
        let over = |of: &dyn Fn(usize) -> f64, end: usize| (0..end).map(of).sum::<f64>() / end as f64;
        let both = over(&|b| over(&|d| x(b, d), c), a);
        let [left, right]: [Vec<f64>; 2] =
            [(0..n).map(|d| over(&|b| x(b, d), a)).collect(), (0..n).map(|b| over(&|d| x(b, d), c)).collect()];
        Matrix::build(n, n, |b, d| x(b, d) - left[d] - right[b] + both)
    }

    /// D° of two queries that see so many keys, by definition.
    fn spread_of(k: &Matrix, v: &Matrix, [a, c]: [usize; 2], ends: &[usize]) -> f64 {
        let n = k.rows;
        let turned = |b: usize, d: usize| k.row(b)[d] * overlap(a as f64 - c as f64 - (b as f64 - d as f64));
        let views = [ends[a], ends[c]];
        centred(n, views, turned).met(|b, d| weight(views[0], b) * weight(views[1], d) * v.row(b)[d])
    }

    #[test]
    fn keys_meet_queries_by_the_difference() {
        let n = 12;
        let (k, v) = (averaged(n, 3), averaged(n, 1));
        for ends in [(1..=n).collect::<Vec<_>>(), vec![n; n]] {
            let [spread, _] = spread::spread(&ends, (&k, &v), &frequencies());
            for a in 0..n {
                for c in 0..n {
                    approx::assert_relative_eq!(spread.row(a)[c], spread_of(&k, &v, [a, c], &ends), epsilon = 1e-12);
                }
            }
        }
    }

    /// Views beyond the 32nd are interpolated.
    #[test]
    fn long_sequences_are_interpolated() {
        let n = 180;
        let (k, v) = (averaged(n, 3), averaged(n, 1));
        let ends: Vec<usize> = (1..=n).collect();
        let [spread, _] = spread::spread(&ends, (&k, &v), &frequencies());
        for (a, c) in [(70, 66), (179, 75), (150, 149), (120, 20), (171, 101)] {
            let own = (spread.row(a)[a] * spread.row(c)[c]).sqrt();
            let expected = spread_of(&k, &v, [a, c], &ends);
            approx::assert_relative_eq!(spread.row(a)[c], expected, epsilon = 8e-3 * own);
        }
    }

    /// What gradients of keys have beyond their product with κ, by rule and by definition.
    fn beyond_of((mask, ends): (Mask, &[usize]), v: &Matrix, m: &Matrix) -> [Matrix; 2] {
        let n = v.rows;
        let averages = Averages::new(mask, n, n, 0.0);
        let once = averages.left(v);
        let twice = averages.right(&once);
        let overlaps: Vec<f64> = (0..n).map(|distance| overlap(distance as f64)).collect();
        let beyond = beyond::beyond(ends, m, (v, (&once, &twice)), (&frequencies(), &overlaps));
        let mut expected = Matrix::zeros(n, n);
        for a in 0..n {
            for c in (0..n).filter(|&c| c != a) {
                let views = [ends[a], ends[c]];
                let values = centred(n, views, |b, d| v.row(b)[d]);
                for b in 0..n {
                    for d in 0..n {
                        let [queries, keys] = [a as f64 - c as f64, b as f64 - d as f64];
                        let more = overlap(queries - keys) - overlap(queries) * overlap(keys);
                        let weights = weight(views[0], b) * weight(views[1], d);
                        expected.row_mut(b)[d] += m.row(a)[c] * weights * values.row(b)[d] * more;
                    }
                }
            }
        }
        [beyond, expected]
    }

    #[test]
    fn gradients_of_keys_meet_by_the_difference() {
        let n = 10;
        let (v, m) = (averaged(n, 2), averaged(n, 3));
        for (mask, ends) in [(Mask::CAUSAL, (1..=n).collect::<Vec<_>>()), (Mask::FULL, vec![n; n])] {
            let [got, expected] = beyond_of((mask, &ends), &v, &m);
            for (got, expected) in got.entries.iter().zip(&expected.entries) {
                approx::assert_relative_eq!(*got, *expected, epsilon = 1e-12);
            }
        }
    }

    /// Of keys some of which are equal, wherever they are: what a key has of the average of all is its own, also beyond the 32 keys
    /// between which the rest is interpolated.
    #[test]
    fn gradients_of_equal_keys_meet_by_the_difference() {
        /// Of the largest; 0.13 where averages of keys were interpolated, 3e-4 now.
        const WITHIN: f64 = 1e-3;
        let n = 48;
        let (v, m) = (Matrix::build(n, n, |b, d| f64::from(u8::from(b * b % 7 == d * d % 7))), averaged(n, 3));
        for (mask, ends) in [(Mask::CAUSAL, (1..=n).collect::<Vec<_>>()), (Mask::FULL, vec![n; n])] {
            let [got, expected] = beyond_of((mask, &ends), &v, &m);
            let largest = expected.entries.iter().fold(0.0, |largest: f64, entry| largest.max(entry.abs()));
            for (got, expected) in got.entries.iter().zip(&expected.entries) {
                approx::assert_relative_eq!(*got, *expected, epsilon = WITHIN * largest);
            }
        }
    }
}
