//! Rows with a sink: A_b = e^{s_b}/(Σ_d e^{s_d} + ω), with n Gaussian scores of variance w each and a number ω = e^ς.
//!
//! ```text
//! W = 1/(n + ω)      D₁ = n W² (1 − 2W + nW²)      E A_b = W (1 + ½ w χ (1 − nW)(1 − 2W)) to first order in w
//! 1/(Σ + ω)^k = ∫ t^(k−1)/(k − 1)! e^(−tΣ) e^(−tω) dt
//! E A_b = ∫ M_1 M_0^(n−1) e^(−tω) d ln t             E A_b A_d = ∫ M_1² M_0^(n−2) e^(−tω) d ln t
//! E A_b² = ∫ M_2 M_0^(n−1) e^(−tω) d ln t            E A_b² A_s² = ω²/6 ∫ t² M_2 M_0^(n−1) e^(−tω) d ln t
//! σ(1) = n (E A_b² − (E A_b)²)/(w D₁)                τ(1) = T/D₁
//! f² = n (α₁² + (n − 1) β₁²)/D₁                      α₁ = E (A_b − A_b²)      β₁ = E A_b A_d
//! σ₂ = ½ w n (α₂² + 3 (n − 1) β₂² + (n − 1)(n − 2) γ₂²)/D₁
//! α₂ = E (A_b − 3 A_b² + 2 A_b³)      β₂ = E (A_b A_d − 2 A_b² A_d)      γ₂ = 2 E A_b A_d A_e
//! ```
//!
//! where A is the row of attention weights; s are the scores; ς is the logit of the sink; W is the weight of a key at
//! w = 0; Σ is the sum of all e^s; t is a variable of integration; M_k is E y^k e^{−y} with y = t e^s; b, d, e are
//! different keys; A_s is the weight of the sink; σ, τ, χ, f, σ₂, T are those of [`super`], with D₁ in place of
//! (1 − 1/n)/n; α₁, β₁ are the mean derivatives of a weight by its own and by another score; α₂, β₂, γ₂ are the mean
//! second derivatives.
//!
//! All of these have a sink as one more key whose score does not vary. For ω = 0 they are those of [`super`]. The
//! mean E A_b exceeds W, because scores make the sum of keys larger: the factor χ is chosen such that
//! W² (1 + w χ (1 − nW)(1 − 2W)) is (E A_b)² exactly.
//!
//! Example: one score of variance 1.3 and a sink of logit 0 have E A = 1/2 and E A² = 0.302, where W² is 0.25.
//!
//! Source: ours.

use super::SoftmaxRow;
use super::integrals::{REACH, moments, normal_nodes};

/// The effect of a sink on a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SinkFactors {
    /// E A_b/W: the mean weight of a key, divided by its value for equal scores.
    pub(crate) mean: f64,
    /// E A_b² A_s²/(E A_b² · ω²W²): the mean square of the sink's weight where a key has a large weight, divided by its
    /// value for equal scores.
    pub(crate) square: f64,
    /// (1 − 2W + nW²)/(nW (1 − W)): the variance of the weighted differences of keys, divided by its value if
    /// differences of keys were the same in all rows. It is 1 without a sink.
    pub(crate) spread: f64,
}

impl SinkFactors {
    /// The factors of a row without a sink.
    pub(crate) const NONE: Self = Self { mean: 1.0, square: 1.0, spread: 1.0 };
}

/// Moments of the weights of a row.
struct WeightMoments {
    /// E A_b, E A_b² and E A_b³.
    powers: [f64; 3],
    /// E A_b A_d, E A_b² A_d and E A_b A_d A_e.
    products: [f64; 3],
    /// E (Σ_b A_b²)².
    square: f64,
    /// E A_b² A_s²/ω².
    of_sink: f64,
}

impl WeightMoments {
    fn new(n: f64, w: f64, omega: f64) -> Self {
        /// Step of the trapezoidal rule in ln t; its error is e^(−π²/step).
        const STEP: f64 = 0.4;
        /// ln of the part of E A_b that is left out.
        const NOTHING: f64 = -18.0;
        let std = w.sqrt();
        let normal = normal_nodes((0.7 / std).min(0.8));
        let scores: Vec<(f64, f64)> = normal.into_iter().map(|(x, weight)| ((std * x).exp(), weight)).collect();
        let (lower, upper) = (NOTHING - REACH * std - (n + omega).ln(), 4.0 + REACH * std);
        let steps = ((upper - lower) / STEP).ceil() as usize;
        let mut sums = [0.0; 8];
        for index in 0..=steps {
            let t = (lower + STEP * index as f64).exp();
            let [m0, m1, m2, m3, m4] = moments(t, &scores);
            if m0 <= 0.0 {
                break;
            }
            let all = STEP * (n * m0.ln() - t * omega).exp();
            let [m1, m2, m3, m4] = [m1, m2, m3, m4].map(|moment| moment / m0);
            let terms = [
                m1,
                m2,
                m3 / 2.0,
                m1 * m1,
                m2 * m1 / 2.0,
                m1 * m1 * m1 / 2.0,
                n * (m4 + (n - 1.0) * m2 * m2) / 6.0,
                t * t * m2 / 6.0,
            ];
            for (sum, term) in sums.iter_mut().zip(terms) {
                *sum += all * term;
            }
        }
        let [one, two, three, of_two, of_both, of_three, square, of_sink] = sums;
        Self { powers: [one, two, three], products: [of_two, of_both, of_three], square, of_sink }
    }
}

impl SoftmaxRow {
    /// Returns a row of `n` scores of variance `w` each, with a sink of weight `omega` = e^ς.
    pub(crate) fn with_sink(n: f64, w: f64, omega: f64) -> Self {
        /// The score variance below which all factors are 1.
        const LEAST: f64 = 1e-4;
        /// The relative shift of the mean weight below which its factor has no effect.
        const NO_SHIFT: f64 = 1e-9;
        let flat = (n + omega).recip();
        let one_key = 1.0 - 2.0 * flat + n * flat * flat;
        let sink = SinkFactors { spread: one_key / (n * flat * (1.0 - flat)), ..SinkFactors::NONE };
        let equal = Self { one_key, sink, variance: w, ..Self::flat(n + omega) };
        if w < LEAST {
            return equal;
        }
        let WeightMoments { powers: [one, two, three], products: [both, uneven, triple], square, of_sink } =
            WeightMoments::new(n, w, omega);
        let first_order = n * flat * flat * one_key;
        let squares = n * (two - one * one) / (w * first_order);
        let passed = (n * (two - 2.0 * three) + square) / first_order;
        let others = n - 1.0;
        let first = n * ((one - two).powi(2) + others * both * both) / first_order;
        let curvature = (one - 3.0 * two + 2.0 * three).powi(2)
            + 3.0 * others * (both - 2.0 * uneven).powi(2)
            + others * (n - 2.0) * (2.0 * triple).powi(2);
        // `second` multiplies by 1 − 2/keys.
        let of_keys = 1.0 - 2.0 / equal.keys;
        let third = if of_keys > 0.0 { (0.5 * w * n * curvature / (first_order * of_keys)).max(0.0).sqrt() } else { 0.0 };
        let mean = one / flat;
        let moved = w * (1.0 - n * flat) * (1.0 - 2.0 * flat);
        Self {
            squares,
            passed,
            single_key: [squares, passed],
            shift: if moved.abs() > NO_SHIFT { (mean * mean - 1.0) / moved } else { 1.0 },
            first: first.sqrt(),
            third,
            powers: Self::new(equal.keys, w).powers,
            sink: SinkFactors { mean, square: of_sink / (two * flat * flat), ..sink },
            ..equal
        }
    }
}
