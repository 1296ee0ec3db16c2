//! Overlaps of one row of a softmax, by the trapezoidal rule, which converges exponentially for these integrands.
//!
//! With M_k(t) = E y^k e^{−y}, y = t e^z, z ~ N(0, w), and 1/Σ^k = ∫ t^{k−1}/(k − 1)! e^{−tΣ} dt,
//!
//! ```text
//! S2 = n ∫ M_2 M_0^{n−1} d ln t      S3 = n/2 ∫ M_3 M_0^{n−1} d ln t
//! S22 = E (ΣA²)² = n/6 ∫ (M_4 M_0^{n−1} + (n − 1) M_2² M_0^{n−2}) d ln t
//! ```

use std::f64::consts::PI;

/// Half-width of the Gaussian variables, in standard deviations.
const REACH: f64 = 8.5;
const STEP: f64 = 0.4;

/// S2, S3 and S22 of `n` scores of variance `w`; relative error below 1e-6 for w from 0.001 to 100.
pub(super) fn overlaps(n: f64, w: f64) -> [f64; 3] {
    let std = w.sqrt();
    let normal = normal((0.7 / std).min(0.8));
    let scores: Vec<(f64, f64)> = normal.into_iter().map(|(x, weight)| ((std * x).exp(), weight)).collect();
    let (lower, upper) = (-n.ln() - REACH * std - 9.0, 4.0 + REACH * std);
    let mut sums = [0.0; 3];
    for index in 0..=((upper - lower) / STEP).ceil() as usize {
        let [m0, _, m2, m3, m4] = moments((lower + STEP * index as f64).exp(), &scores);
        if m0 > 0.0 {
            let alone = n * m0.powf(n - 1.0);
            let others = n * (n - 1.0) * m0.powf(n - 2.0);
            let terms = [m2 * alone, m3 * alone / 2.0, (m4 * alone + m2 * m2 * others) / 6.0];
            sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += STEP * term);
        }
    }
    sums
}

/// M_0 to M_4 at t.
fn moments(t: f64, scores: &[(f64, f64)]) -> [f64; 5] {
    let mut moments = [0.0; 5];
    for &(exponential, weight) in scores {
        let y = t * exponential;
        // Beyond, e^{−y} has underflowed and y^k with it.
        if y < 700.0 {
            let mut term = weight * (-y).exp();
            for moment in &mut moments {
                *moment += term;
                term *= y;
            }
        }
    }
    moments
}

/// Nodes x and weights of E f(x), x ~ N(0, 1).
fn normal(step: f64) -> Vec<(f64, f64)> {
    let half = (REACH / step).ceil() as i32;
    (-half..=half).map(|i| step * f64::from(i)).map(|x| (x, step * (-0.5 * x * x).exp() / (2.0 * PI).sqrt())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of n scores that hardly differ: S2 = 1/n + w (1 − 1/n)/n, T = (1 − 1/n)/n.
    #[test]
    fn flat_rows_are_those_of_the_first_order() {
        for n in [2.0, 16.0, 1000.0] {
            let w = 1e-4;
            let [s2, s3, s22] = overlaps(n, w);
            let first = (1.0 - 1.0 / n) / n;
            approx::assert_relative_eq!((s2 - 1.0 / n) / (w * first), 1.0, max_relative = 1e-3);
            approx::assert_relative_eq!((s2 - 2.0 * s3 + s22) / first, 1.0, max_relative = 1e-3);
        }
    }

    /// One score has all the weight.
    #[test]
    fn a_row_of_one_is_one() {
        for sum in overlaps(1.0, 2.0) {
            approx::assert_relative_eq!(sum, 1.0, max_relative = 1e-6);
        }
    }
}
