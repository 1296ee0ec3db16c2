//! Roots of increasing functions.

/// Returns the root of an increasing `f` in [`low`, `high`]; if there is none, the end where `f` is closest to zero.
/// The method is regula falsi with the Illinois modification; the result is exact but for the last few digits.
pub(crate) fn root<E>(low: f64, high: f64, mut f: impl FnMut(f64) -> Result<f64, E>) -> Result<f64, E> {
    /// The largest number of steps. After as many steps even bisection would have converged.
    const MOST_STEPS: usize = 100;
    let (mut a, mut b) = (low, high);
    let (mut f_a, mut f_b) = (f(a)?, f(b)?);
    if f_a >= 0.0 {
        return Ok(a);
    }
    if f_b <= 0.0 {
        return Ok(b);
    }
    let mut moved_b = None;
    for _ in 0..MOST_STEPS {
        if b - a <= 4.0 * f64::EPSILON * a.abs().max(b.abs()) {
            break;
        }
        let inside = (a * f_b - b * f_a) / (f_b - f_a);
        let x = if inside > a && inside < b { inside } else { 0.5 * (a + b) };
        let f_x = f(x)?;
        if f_x > 0.0 {
            (b, f_b) = (x, f_x);
            if moved_b.replace(true) == Some(true) {
                f_a *= 0.5;
            }
        } else if f_x < 0.0 {
            (a, f_a) = (x, f_x);
            if moved_b.replace(false) == Some(false) {
                f_b *= 0.5;
            }
        } else {
            return Ok(x);
        }
    }
    Ok(0.5 * (a + b))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn of(low: f64, high: f64, f: impl Fn(f64) -> f64) -> f64 {
        let Ok(x) = root::<Infallible>(low, high, |x| Ok(f(x)));
        x
    }

    #[test]
    fn roots_of_easy_and_hard_functions() {
        approx::assert_relative_eq!(of(0.0, 2.0, |x| x * x - 2.0), 2f64.sqrt(), max_relative = 1e-14);
        approx::assert_relative_eq!(of(-10.0, 40.0, |x| x.exp() - 3.0), 3f64.ln(), max_relative = 1e-13);
        approx::assert_relative_eq!(of(-1.0, 1e6, |x| x.powi(9) - 1e-9), 0.1, max_relative = 1e-8);
    }

    #[test]
    fn a_root_outside_is_the_nearest_end() {
        approx::assert_relative_eq!(of(1.0, 2.0, |x| x), 1.0);
        approx::assert_relative_eq!(of(1.0, 2.0, |x| x - 3.0), 2.0);
    }
}
