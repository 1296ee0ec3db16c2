//! Moments of the exponential of a score, by the trapezoidal rule, which converges exponentially for these integrands.

use std::f64::consts::PI;

/// Half-width of the Gaussian variables, in standard deviations.
pub(super) const REACH: f64 = 8.5;

/// Returns M_k(t) = E y^k e^{−y} for k = 0 to 4, where y = t e^s and `scores` has e^s and the weight of every node.
pub(super) fn moments(t: f64, scores: &[(f64, f64)]) -> [f64; 5] {
    let mut moments = [0.0; 5];
    for &(exponential, weight) in scores {
        let y = t * exponential;
        // For larger y, e^{−y} underflows, and y^k e^{−y} is negligible.
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

/// Returns the nodes x and the weights of the trapezoidal rule with this step for E f(x), x ~ N(0, 1).
pub(crate) fn normal_nodes(step: f64) -> Vec<(f64, f64)> {
    let half = (REACH / step).ceil() as i32;
    (-half..=half).map(|i| step * f64::from(i)).map(|x| (x, step * (-0.5 * x * x).exp() / (2.0 * PI).sqrt())).collect()
}
