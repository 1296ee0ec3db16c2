//! The sizes and signs of a gradient over the tokens of one sequence.
//!
//! ```text
//! aligned = E_s (K g)_s²/(g·K g)     size = E √(2/π) √(g·K g)
//! ```
//!
//! where s is the position of a token; E is the average over g; E_s is the average over all tokens s and over g; K is
//! the kernel E x_a x_b of a signal; g is the vector of the gradients at one entry of the output, over tokens, of
//! covariance Γ.
//!
//! Where tokens are correlated, one direction h of Γ K has much of g·K g, and its share differs between entries of the
//! output. The remainder is a sum over many directions:
//!
//! ```text
//! aligned = E (square₁ z² + square − square₁)/(total₁ z² + total − total₁)
//!         = share square₁/total₁ + (1 − share) (square − square₁)/(total − total₁)
//! size    = √(2/π) E √(total₁ z² + total − total₁)
//! share   = E z²/(z² + u) = 1 − √(πu/2) e^{u/2} erfc √(u/2)        u = (total − total₁)/total₁
//! ```
//!
//! where total is the mean tr ΓK of g·K g; square is the mean tr ΓK²/L of |K g|²/L over the L tokens; total₁ is the
//! part of total in the direction h, which is the largest eigenvalue of Γ K; square₁ is the part total₁ |K h|²/(h·K h
//! L) of square in the direction h; h is the eigenvector of Γ K with the largest eigenvalue; Γ is the kernel E g_a g_b
//! of the gradients at the output; z is a standard normal variable; share is the mean share of the direction h in g·K
//! g; u is the ratio of the remainder to the part in the direction h.
//!
//! How often ids repeat differs between sequences, and total and square are larger where ids repeat more. Averages are
//! therefore over two representative sequences (`Repetition::draws`). Source: ours.

use std::f64::consts::{FRAC_2_PI, PI};

use nalgebra::{DMatrix, DVector};

use super::aligned::{Aligned, Matrices};
use crate::mean_field::positions::Shares;
use crate::quadrature::gaussian_nodes;

/// Steps of the power method. If the second eigenvalue is not much smaller, the choice of h matters little.
const POWERS: usize = 32;

/// The numbers `aligned` and `size` of the formulas above, as logarithms.
pub(super) struct Signs {
    pub(super) ln_aligned: f64,
    /// ln of E |G|/√(E G²): `size` divided by √(E g·K g).
    pub(super) ln_size: f64,
}

/// Expectations of g·K g (`collected`, total in the header) and of |K g|²/L (`aligned`, square in the header), in one
/// direction or in all of them.
#[derive(Clone, Copy)]
struct Part {
    collected: f64,
    aligned: f64,
}

impl Part {
    /// Returns this part, with both numbers at most as large as those of `all`.
    fn within(self, all: Self) -> Self {
        Self { collected: self.collected.min(all.collected), aligned: self.aligned.min(all.aligned) }
    }
}

impl Signs {
    /// Computes the numbers for a gradient that is not zero; `aligned` is E_s Σ_tu Γ_tu K_ts K_us.
    pub(super) fn of(x: &Matrices<'_>, gradient: &Matrices<'_>, aligned: &Aligned) -> Self {
        let (k, g) = (x.kernel, gradient.kernel);
        let (mean, draws) = k.positions.shares();
        let collected = |ids: Shares| {
            let positions = &k.positions;
            let pair = |point: usize| k.pairs[point] * g.pairs[point];
            let of = |class: usize| positions.sum_points(|point| pair(positions.class(class).start + point));
            let pairs = (0..positions.classes.len()).zip(ids.classes()).map(|(class, share)| share * of(class));
            positions.sum(|node| k.own[node] * g.own[node]) + pairs.sum::<f64>()
        };
        let (mut ratios, mut roots) = (0.0, 0.0);
        for (weight, ids) in draws {
            let all = Part { collected: collected(ids), aligned: aligned.at(ids) };
            if all.collected <= 0.0 {
                continue;
            }
            let first = largest(x, gradient, ids).within(all);
            ratios += weight * ratio(all, first);
            roots += weight * all.collected.sqrt() * mean_root(first.collected / all.collected);
        }
        let ln_size = 0.5 * (FRAC_2_PI / collected(mean)).ln() + roots.ln();
        Self { ln_aligned: k.ln_unit + ratios.ln(), ln_size }
    }
}

/// Returns E (square₁ z² + square − square₁)/(total₁ z² + total − total₁).
fn ratio(all: Part, first: Part) -> f64 {
    let rest = Part { collected: all.collected - first.collected, aligned: all.aligned - first.aligned };
    if first.collected <= 0.0 {
        return rest.aligned / rest.collected;
    }
    let share = first_share(rest.collected / first.collected);
    let of_rest = if rest.collected > 0.0 { (1.0 - share) * rest.aligned / rest.collected } else { 0.0 };
    share * first.aligned / first.collected + of_rest
}

/// Returns the share E z²/(z² + u).
fn first_share(u: f64) -> f64 {
    /// For u above this number, the asymptotic series is accurate to 1e-4.
    const LARGE: f64 = 60.0;
    if u > LARGE {
        let v = u.recip();
        return v * (1.0 - v * (3.0 - v * (15.0 - 105.0 * v)));
    }
    let half = 0.5 * u;
    1.0 - (PI * half).sqrt() * half.exp() * libm::erfc(half.sqrt())
}

/// Returns E √(s z² + 1 − s).
fn mean_root(s: f64) -> f64 {
    gaussian_nodes(0.0, 1.0).iter().map(|(z, weight)| weight * (s * z * z + 1.0 - s).sqrt()).sum()
}

/// Returns the part in the direction h of the eigenvector of Γ K with the largest eigenvalue; zero without a gradient.
fn largest(x: &Matrices<'_>, gradient: &Matrices<'_>, ids: Shares) -> Part {
    let [k, g] = [x, gradient].map(|matrices| matrices.operator(ids));
    let positions = &x.kernel.positions;
    let product = |a: &DVector<f64>, b: &DVector<f64>| positions.sum(|node| a[node] * b[node]);
    let none = Part { collected: 0.0, aligned: 0.0 };
    let Some(h) = direction(&k, &g) else { return none };
    let kh = &k * &h;
    let size = product(&h, &kh);
    if size <= 0.0 {
        return none;
    }
    // Gradients of keys add up to zero, so that this product may be nothing but rounding.
    let collected = product(&(&g * &kh), &kh) / size;
    if collected <= 0.0 {
        return none;
    }
    Part { collected, aligned: collected * x.squares(&h, ids) / (size * positions.length) }
}

/// Returns the eigenvector of Γ K with the largest eigenvalue; `None` without a gradient.
fn direction(x: &DMatrix<f64>, gradient: &DMatrix<f64>) -> Option<DVector<f64>> {
    // The start is neither orthogonal nor parallel to the common direction of all tokens, along which gradients of keys
    // vanish.
    let last = (x.nrows() - 1).max(1) as f64;
    let mut h = DVector::from_fn(x.nrows(), |node, _| 1.0 + 0.5 * (PI * node as f64 / last).cos());
    for _ in 0..POWERS {
        let next = gradient * (x * &h);
        let norm = next.norm();
        if norm <= 0.0 {
            return None;
        }
        h = next / norm;
    }
    Some(h)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use approx::assert_relative_eq;
    use sigprop_stack::PowerLaw;

    use super::*;
    use crate::mean_field::kernel::Kernel;
    use crate::mean_field::positions::{Chart, Grading, Positions, Repetition};

    const TOKENS: usize = 48;

    fn of(x: &Kernel, gradient: &Kernel) -> Signs {
        let [x, gradient] = [x, gradient].map(Matrices::new);
        Signs::of(&x, &gradient, &Aligned::new(&x, &gradient))
    }

    /// Returns the numbers for one group, and for as many positions. All pairs of tokens have these correlations.
    fn signs([x, g]: [f64; 2]) -> [Signs; 2] {
        let chart = Chart::new(TOKENS, Grading::all(TOKENS), &[]);
        [Positions::groups(&[TOKENS as f64], None), Positions::on(chart, None)].map(|positions| {
            let positions = Arc::new(positions);
            let [x, gradient] = [x, g].map(|pair| Kernel::new(&positions, |_| 1.0, |_| pair));
            of(&x, &gradient)
        })
    }

    /// The expected values are from Simpson's rule with 40 000 panels, in Python.
    #[test]
    fn averages_over_one_direction() {
        for (u, expected) in [
            (0.01, 0.884_073_760),
            (1.0, 0.344_320_458),
            (30.0, 0.030_454_733),
            (59.0, 0.016_152_821),
            (61.0, 0.015_646_661),
            (200.0, 0.004_926_812),
        ] {
            assert_relative_eq!(first_share(u), expected, max_relative = 1e-4);
        }
        for (s, expected) in [(0.25, 0.988_239_330), (0.5, 0.957_797_919), (0.9, 0.856_995_179)] {
            assert_relative_eq!(mean_root(s), expected, max_relative = 1e-8);
        }
    }

    /// For uncorrelated tokens and for copies, (K g)_s²/(g·K g) is 1/L and 1, for every g; g·K g is the sum of 48
    /// squares, and the square of a Gaussian sum.
    #[test]
    fn limits() {
        for Signs { ln_aligned, ln_size } in signs([0.0, 0.0]) {
            assert_relative_eq!(ln_aligned, -(TOKENS as f64).ln(), max_relative = 1e-9);
            assert_relative_eq!(ln_size, 0.5 * FRAC_2_PI.ln(), epsilon = 0.01);
        }
        for Signs { ln_aligned, ln_size } in signs([1.0, 0.0]) {
            // The remainder is nothing but rounding, but its root counts.
            assert_relative_eq!(ln_aligned, 0.0, epsilon = 1e-6);
            assert_relative_eq!(ln_size, FRAC_2_PI.ln(), epsilon = 1e-6);
        }
    }

    /// The correlation is 0.7 and gradients are independent. The expected values are averages over z and over χ² of 47
    /// degrees of freedom, by quadrature in Python. Neglecting the fluctuations of the remainder is accurate to 1/47.
    #[test]
    fn alike_tokens() {
        for Signs { ln_aligned, ln_size } in signs([0.7, 0.0]) {
            assert_relative_eq!(ln_aligned.exp(), 0.346_912_632, max_relative = 1.0 / 47.0);
            assert_relative_eq!((ln_size - 0.5 * FRAC_2_PI.ln()).exp(), 0.915_996_383, max_relative = 1.0 / 47.0);
        }
    }

    /// 1000 ids follow Zipf's law: tokens with equal ids are copies, others are uncorrelated, and gradients have the
    /// correlations 0.99 and 0.97. The expected value is from numpy, from 2000 samples of 48 ids with 32 gradients
    /// each, accurate to 1e-2. Representing all ids by one number leaves an error of 4 to 5 %. One representative
    /// sequence in place of two would be 14 % too large.
    #[test]
    fn repeated_ids() {
        let repetition = Repetition::new(PowerLaw { vocab_size: 1000, exponent: 1.0 });
        let positions = Arc::new(Positions::groups(&[TOKENS as f64], Some(Arc::new(repetition))));
        let [x, gradient] =
            [[0.0, 1.0], [0.97, 0.99]].map(|of: [f64; 2]| Kernel::new(&positions, |_| 1.0, |point| of[point]));
        let got = of(&x, &gradient).ln_aligned.exp();
        assert_relative_eq!(got, 0.0849, max_relative = 0.06);
    }
}
