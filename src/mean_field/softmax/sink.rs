//! Rows with a sink: A_b = e^{s_b}/(Σ_d e^{s_d} + ω), with n Gaussian scores of variance w each, which have another part
//! of variance c in common, and a number ω = e^ς.
//!
//! ```text
//! W = 1/(n + ω)      R = nW      D₁ = n W² (w (1 − 2W + nW²) + c (1 − R)²)
//! 1/(Σ + ω)^k = ∫ t^(k−1)/(k − 1)! e^(−tΣ) e^(−tω) dt      G(t) = E_m e^(−tωe^(−m))
//! E A_b = ∫ M_1 M_0^(n−1) G d ln t             E A_b A_d = ∫ M_1² M_0^(n−2) G d ln t
//! E A_b² = ∫ M_2 M_0^(n−1) G d ln t            E A_b² A_s² = 1/6 ∫ M_2 M_0^(n−1) G″ t² d ln t
//! σ(1) = n (E A_b² − (E A_b)²)/D₁              τ(1) = T/(n W² (1 − 2W + nW²))
//! f² = n (w (α₁² + (n − 1) β₁²) + c δ₁²)/D₁
//! α₁ = E (A_b − A_b²)      β₁ = E A_b A_d      δ₁ = E A_b A_s = α₁ − (n − 1) β₁
//! σ₂ = ½ w² n (α₂² + 3 (n − 1) β₂² + (n − 1)(n − 2) γ₂²)/D₁
//! α₂ = E (A_b − 3 A_b² + 2 A_b³)      β₂ = E (A_b A_d − 2 A_b² A_d)      γ₂ = 2 E A_b A_d A_e
//! ```
//!
//! where A is the row of attention weights; s are the scores, less their common part m   N(0, c); ς is the logit of the
//! sink; W is the weight of a key for equal scores; Σ is the sum of all e^s; t is a variable of integration; M_k is
//! E y^k e^{−y} with y = t e^s; b, d, e are different keys; A_s is the weight of the sink; σ, τ, f, σ₂, T are those of
//! [`super`], of which D₁ replaces w (1 − 1/n)/n; α₁, β₁, δ₁ are the mean derivatives of a weight by its own score, by
//! another score and by m; α₂, β₂, γ₂ are the mean second derivatives by scores.
//!
//! A sink is one more key whose score does not vary. A common part moves the share of the sink alone, and the mean E A_b
//! differs from W. For ω = 0 all numbers are those of [`super`].
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
    /// D₁/(W (w R (1 − W) + c R (1 − R))): 1 without a sink.
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
    fn new(row: &SinkRow) -> Self {
        /// Step of the trapezoidal rule in ln t; its error is e^(−π²/step).
        const STEP: f64 = 0.4;
        /// ln of the part of E A_b that is left out.
        const NOTHING: f64 = -18.0;
        let SinkRow { keys: n, variance, common, omega } = *row;
        let [scores, sinks] = [variance, common].map(|variance| exponentials(variance.sqrt()));
        let reach = REACH * (variance.max(common)).sqrt();
        let (lower, upper) = (NOTHING - reach - (n + omega).ln(), 4.0 + reach);
        let steps = ((upper - lower) / STEP).ceil() as usize;
        let mut sums = [0.0; 8];
        for index in 0..=steps {
            let t = (lower + STEP * index as f64).exp();
            let [m0, m1, m2, m3, m4] = moments(t, &scores);
            if m0 <= 0.0 {
                break;
            }
            let [g0, _, g2, ..] = moments(t * omega, &sinks);
            let all = STEP * m0.powf(n) * g0;
            let of_sink = if g0 > 0.0 { g2 / g0 } else { 0.0 };
            let [m1, m2, m3, m4] = [m1, m2, m3, m4].map(|moment| moment / m0);
            let terms = [
                m1,
                m2,
                m3 / 2.0,
                m1 * m1,
                m2 * m1 / 2.0,
                m1 * m1 * m1 / 2.0,
                n * (m4 + (n - 1.0) * m2 * m2) / 6.0,
                of_sink * m2 / 6.0,
            ];
            for (sum, term) in sums.iter_mut().zip(terms) {
                *sum += all * term;
            }
        }
        let [one, two, three, of_two, of_both, of_three, square, of_sink] = sums;
        Self { powers: [one, two, three], products: [of_two, of_both, of_three], square, of_sink }
    }
}

/// Returns e^z and the weight of every node of the integration over z ~ N(0, std²).
fn exponentials(std: f64) -> Vec<(f64, f64)> {
    if std <= 0.0 {
        return vec![(1.0, 1.0)];
    }
    normal_nodes((0.7 / std).min(0.8)).into_iter().map(|(x, weight)| ((std * x).exp(), weight)).collect()
}

/// The numbers that determine a row with a sink.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SinkRow {
    /// n, the number of keys.
    pub(crate) keys: f64,
    /// w, the variance of each score less the common part.
    pub(crate) variance: f64,
    /// c, the variance of the common part of scores.
    pub(crate) common: f64,
    /// ω = e^ς, the weight of the sink relative to a score of zero.
    pub(crate) omega: f64,
}

impl SoftmaxRow {
    /// Returns a row with a sink.
    pub(crate) fn with_sink(row: &SinkRow) -> Self {
        /// The variance of scores above which one key, or the sink, has nearly all the weight of most rows.
        const LARGEST: f64 = 400.0;
        let share = LARGEST / row.variance.max(row.common);
        if share >= 1.0 {
            return Self::integrated(row);
        }
        let limited = |variance: f64| if variance.is_finite() { variance * share } else { LARGEST };
        let limit = SinkRow { variance: limited(row.variance), common: limited(row.common), ..*row };
        Self::integrated(&limit).sharpened(share)
    }

    /// Returns the row whose variances are divided by `share`, for large variances, where its numbers are powers of the
    /// standard deviation to leading order.
    fn sharpened(self, share: f64) -> Self {
        let root = share.sqrt();
        let (squares, passed) = (self.squares * share, self.passed * root);
        Self {
            variance: self.variance / share,
            squares,
            passed,
            single_key: [squares, passed],
            shift: squares.min(1.0),
            first: self.first * root,
            third: self.third * root,
            sink: SinkFactors { square: self.sink.square * root, ..self.sink },
            ..self
        }
    }

    /// Returns a row with a sink by integration.
    fn integrated(row: &SinkRow) -> Self {
        /// The variance of scores below which all factors are 1.
        const LEAST: f64 = 1e-4;
        let SinkRow { keys: n, variance: w, common, omega } = *row;
        let flat = (n + omega).recip();
        let of_sink = omega * flat;
        let one_key = 1.0 - 2.0 * flat + n * flat * flat;
        // D₁/(n W²).
        let spread = w * one_key + common * of_sink * of_sink;
        if spread <= 0.0 {
            return Self { one_key, ..Self::flat(n + omega) };
        }
        let differences = n * flat * (w * (1.0 - flat) + common * of_sink);
        let sink = SinkFactors { spread: spread / differences, ..SinkFactors::NONE };
        let equal = Self { one_key, sink, variance: spread / one_key, ..Self::flat(n + omega) };
        if w.max(common) < LEAST {
            return equal;
        }
        let WeightMoments { powers: [one, two, three], products: [both, uneven, triple], square, of_sink } =
            WeightMoments::new(row);
        let (unit, others) = (n * flat * flat, n - 1.0);
        let squares = n * (two - one * one) / (unit * spread);
        let passed = (n * (two - 2.0 * three) + square) / (unit * one_key);
        let slope = one - two;
        let slopes = w * (slope * slope + others * both * both) + common * (slope - others * both).powi(2);
        let curvatures = (one - 3.0 * two + 2.0 * three).powi(2)
            + 3.0 * others * (both - 2.0 * uneven).powi(2)
            + others * (n - 2.0) * (2.0 * triple).powi(2);
        // `second` multiplies by 1 − 2/keys.
        let of_keys = 1.0 - 2.0 / equal.keys;
        let third = if of_keys > 0.0 { (0.5 * w * w * n * curvatures / (unit * spread * of_keys)).sqrt() } else { 0.0 };
        Self {
            squares,
            passed,
            single_key: [squares, passed],
            shift: squares.min(1.0),
            first: (n * slopes / (unit * spread)).sqrt(),
            third,
            powers: Self::new(equal.keys, w).powers,
            sink: SinkFactors { mean: one / flat, square: of_sink / (two * (omega * flat).powi(2)), ..sink },
            ..equal
        }
    }
}

#[cfg(test)]
mod tests {
    use approx::assert_relative_eq;

    use super::super::integrals::normal_nodes;
    use super::*;

    /// A row without a sink is that of the table.
    #[test]
    fn without_a_sink_factors_are_those_of_the_table() {
        for (keys, variance) in [(4.0, 0.3), (16.0, 1.0), (128.0, 2.0)] {
            let of = SoftmaxRow::with_sink(&SinkRow { keys, variance, common: 0.7, omega: 0.0 });
            let table = SoftmaxRow::new(keys, variance);
            for (got, expected) in [
                (of.squares, table.squares),
                (of.passed, table.passed),
                (of.first, table.first),
                (of.third, table.third),
                (of.sharper(), table.sharper()),
                (of.sink.mean, 1.0),
            ] {
                assert_relative_eq!(got, expected, max_relative = 2e-3);
            }
        }
    }

    /// Powers of the standard deviation, compared with the integrals at four times the variance. The next term, of the
    /// order of 1/standard deviation, is left out, because networks with such scores are not trained.
    #[test]
    fn large_variances_follow_powers() {
        const FAR: f64 = 0.12;
        for (variance, common) in [(400.0, 0.0), (400.0, 200.0), (100.0, 400.0)] {
            let row = SinkRow { keys: 16.0, variance, common, omega: 1.5 };
            let large = SinkRow { variance: 4.0 * variance, common: 4.0 * common, ..row };
            let [got, expected] = [SoftmaxRow::with_sink(&large), SoftmaxRow::integrated(&large)];
            for (name, got, expected) in [
                ("squares", got.squares, expected.squares),
                ("passed", got.passed, expected.passed),
                ("first", got.first, expected.first),
                ("third", got.third, expected.third),
                ("mean", got.sink.mean, expected.sink.mean),
                ("square", got.sink.square, expected.sink.square),
                ("spread", got.sink.spread, expected.sink.spread),
            ] {
                assert!((got / expected - 1.0).abs() < FAR, "{name}: {got}, by integration {expected}");
            }
        }
        let infinite = SinkRow { keys: 16.0, variance: f64::INFINITY, common: 0.0, omega: 1.0 };
        assert!(SoftmaxRow::with_sink(&infinite).squares.abs() < 1e-100);
    }

    /// One key and a sink are a logistic function σ of the score less ς: E A and E A², and E (A (1 − A))² for the
    /// gradient of the score and, by the same number, of the sink.
    #[test]
    fn one_key_is_a_logistic() {
        for (variance, common, omega) in [(0.2, 0.0, 1.0), (1.3, 0.0, 1.0), (0.5, 0.8, 2.0), (1.0, 2.0, 0.25)] {
            let row = SoftmaxRow::with_sink(&SinkRow { keys: 1.0, variance, common, omega });
            let std = (variance + common).sqrt();
            let mut exact = [0.0; 3];
            for (x, weight) in normal_nodes(0.01) {
                let logistic = 1.0 / (1.0 + omega * (-std * x).exp());
                exact[0] += weight * logistic;
                exact[1] += weight * logistic * logistic;
                exact[2] += weight * (logistic * (1.0 - logistic)).powi(2);
            }
            let flat = 1.0 / (1.0 + omega);
            assert_relative_eq!(row.sink.mean * flat, exact[0], max_relative = 1e-6);
            let both = row.sharper() * flat * flat;
            assert_relative_eq!(both, exact[1], max_relative = 1e-6);
            assert_relative_eq!(row.passed * (flat * (1.0 - flat)).powi(2), exact[2], max_relative = 1e-6);
            assert_relative_eq!(row.sink.square * both * (omega * flat).powi(2), exact[2], max_relative = 1e-6);
        }
    }

    /// Scores that hardly vary have the first order: E A_b = W (1 + ½ (1 − R)(w (1 − 2W) + c (1 − 2R))).
    #[test]
    fn scores_that_hardly_vary_are_of_first_order() {
        for (keys, omega) in [(2.0, 1.0), (8.0, 0.5), (100.0, 3.0)] {
            let [variance, common] = [2e-3, 1e-3];
            let row = SoftmaxRow::with_sink(&SinkRow { keys, variance, common, omega });
            let flat = 1.0 / (keys + omega);
            let of_sink = 1.0 - keys * flat;
            let shift = 0.5 * of_sink * (variance * (1.0 - 2.0 * flat) + common * (2.0 * of_sink - 1.0));
            assert_relative_eq!(row.sink.mean - 1.0, shift, epsilon = 3e-6);
            for factor in [row.squares, row.passed, row.first, row.sink.square] {
                assert_relative_eq!(factor, 1.0, max_relative = 1e-2);
            }
        }
    }

    /// The first row and the row of 128 keys of GPT-OSS's attention, with a score variance of 1.3: sampled mean squares
    /// of the share of the keys (`graded.py` of the derivation: four digits).
    #[test]
    fn shares_of_keys_are_as_sampled() {
        let row = |keys| SoftmaxRow::with_sink(&SinkRow { keys, variance: 1.3, common: 0.0, omega: 1.0 });
        assert_relative_eq!(row(1.0).sharper() * 0.25, 0.3021, max_relative = 1e-3);
        let share = row(128.0).sink.mean * 128.0 / 129.0;
        assert_relative_eq!(share * share, 0.9917, max_relative = 1e-3);
    }
}
