//! Pairs of keys that one query draws, of groups that share their score: what [`super::groups`] has exactly, in the way in
//! which it can be had for keys of any structure.
//!
//! # Formula
//!
//! The chance that a query draws keys b and b' is E A_b A_b' = W_b W_b' E e^{s_b + s_b'}/Z², Z = Σ_c W_c e^{s_c}. Drawing
//! them moves the score of c by w (K_cb + K_cb') (Girsanov), and with Z at its average there
//!
//! ```text
//! T_bb' ∝ u_b u_b' e^{w K_bb'}/Z_bb'²      u_b = W_b e^{w K_bb/2}      Z_bb' = Σ_c u_c e^{w (K_cb + K_cb')}
//! ```
//!
//! K being centred by W. What Z strays by about its average is left out (relatively e^w/n of n equal groups), so T serves
//! for what a structure makes of groups: what one says of the other. Functions of it: D with T in place of W Wᵀ,
//!
//! ```text
//! Σ T K∘V − 2 Σ_b m_b K̄_b V̄_b + K̄ V̄      m_b = Σ_b' T_bb'      K̄_b = Σ_b' T_bb' K_bb'/m_b      K̄ = Σ T K
//! ```
//!
//! and Σ_b T_bb (V_bb − 2 V̄_b + V̄) for single keys.
//!
//! # Source
//!
//! Ours; sampled in `rules/attention/gram/structure.rs`.

use crate::moments::ratio;

/// Averages over pairs of keys that are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pairs {
    /// Σ T V less its value for w = 0.
    pub(crate) added: f64,
    /// D, over its value for w = 0.
    pub(crate) spread: f64,
    /// Σ_b T_bb over single keys, likewise.
    pub(crate) squares: f64,
    /// Σ_b T_bb (V_bb − 2 V̄_b + V̄) over single keys, likewise.
    pub(crate) passed: f64,
}

/// Of groups given as (how many, the share of the keys each has), K and V being 1 within a group and 0 between groups.
pub(crate) fn pairs(groups: &[(f64, f64)], w: f64) -> Pairs {
    let power = |k: i32| groups.iter().map(|(count, p)| count * p.powi(k)).sum::<f64>();
    let (p2, p3) = (power(2), power(3));
    // e^{w K} of two keys of one group, and of two groups.
    let between = |p: f64, other: f64| (w * (p2 - p - other)).exp();
    let within = |p: f64| w.exp() * between(p, p);
    let single = |p: f64| p * within(p).sqrt();
    // Σ u e^{w (K_cb + K_cb')}, as if all were of groups that are not drawn, over e^{−w (p + p')}.
    let all: f64 = groups.iter().map(|&(count, p)| count * single(p) * (2.0 * w * (p2 - p)).exp()).sum();
    let partition = |p: f64, other: f64, drawn: f64| all * (-w * (p + other)).exp() + drawn;
    let drawn_twice = |p: f64| {
        let drawn = single(p) * (within(p).powi(2) - between(p, p).powi(2));
        (single(p) / partition(p, p, drawn)).powi(2) * within(p)
    };
    let drawn_both = |p: f64, other: f64| {
        let more = |drawn: f64| single(drawn) * (within(drawn) - between(drawn, drawn)) * between(p, other);
        let partition = partition(p, other, more(p) + more(other));
        single(p) * single(other) / partition.powi(2) * between(p, other)
    };
    let twice: Vec<f64> = groups.iter().map(|&(_, p)| drawn_twice(p)).collect();
    let drawn: Vec<f64> = groups
        .iter()
        .zip(&twice)
        .map(|(&(_, p), twice)| {
            let both = groups.iter().map(|&(count, other)| count * drawn_both(p, other)).sum::<f64>();
            twice + both - drawn_both(p, p)
        })
        .collect();
    let over = |of: &dyn Fn(f64, f64, f64) -> f64| {
        let groups = groups.iter().zip(twice.iter().zip(&drawn));
        groups.map(|((count, p), (twice, drawn))| count * of(*p, *twice, *drawn)).sum::<f64>()
    };
    let total = over(&|_, _, drawn| drawn);
    let alike = over(&|_, twice, _| twice) / total;
    let middle = over(&|_, twice, drawn| ratio(twice * twice, drawn)) / total;
    Pairs {
        added: alike - p2,
        spread: (alike - 2.0 * middle + alike * alike) / (p2 - 2.0 * p3 + p2 * p2),
        squares: over(&|p, twice, _| twice / p) / total,
        passed: over(&|p, twice, drawn| twice / p * (1.0 - 2.0 * ratio(twice, drawn) + alike)) / (total * (1.0 - p2)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::softmax::groups::saturation;

    #[test]
    fn nothing_moves_without_scores() {
        let got = pairs(&[(1.0, 0.4), (4.0, 0.05), (40.0, 0.01)], 0.0);
        for (got, expected) in [(got.added, 0.0), (got.spread, 1.0), (got.squares, 1.0), (got.passed, 1.0)] {
            approx::assert_relative_eq!(got, expected, epsilon = 1e-12);
        }
    }

    /// Of many keys the first order in w is that of the groups, and further ones are near it.
    #[test]
    fn groups_are_nearly_drawn_as_they_are() {
        let groups = [(2.0, 0.05), (20.0, 0.01), (140.0, 0.005)];
        for (w, tolerance) in [(1e-3, 1e-4), (0.3, 0.02), (1.0, 0.08)] {
            let (exact, got) = (saturation(&groups, w), pairs(&groups, w));
            approx::assert_relative_eq!(got.added, exact.added(&groups), max_relative = tolerance);
            approx::assert_relative_eq!(got.spread, exact.slope, max_relative = tolerance);
            approx::assert_relative_eq!(got.squares, exact.single.squares, max_relative = tolerance);
            approx::assert_relative_eq!(got.passed, exact.single.slope, max_relative = tolerance);
        }
    }
}
