//! A few slopes that represent the slopes of all heads (ALiBi).
//!
//! Averages over heads of smooth functions of ln slope are computed by the n-point Gauss rule of the discrete measure
//! of the heads. The rule follows from the Jacobi matrix of Lanczos' recursion (Golub & Welsch 1969).

use nalgebra::{DMatrix, DVector, SymmetricEigen};

/// The largest number of slopes that represent all heads.
const MOST: usize = 6;

/// Returns a few slopes that represent the `slopes` of all heads, each as a pair (share of the heads, slope).
pub(crate) fn few(slopes: &[f64]) -> Vec<(f64, f64)> {
    let logarithms = slopes.iter().map(|slope| slope.ln()).collect();
    representatives(logarithms, MOST).into_iter().map(|(share, logarithm)| (share, logarithm.exp())).collect()
}

/// Returns at most `most` numbers that represent all `numbers`, each as a pair (share, number). Averages of polynomials
/// are exact up to the degree 2 · `most` − 1.
pub(crate) fn representatives(numbers: Vec<f64>, most: usize) -> Vec<(f64, f64)> {
    let count = numbers.len();
    let numbers = DVector::from_vec(numbers);
    let mut basis = vec![DVector::from_element(count, (count as f64).sqrt().recip())];
    let (mut diagonal, mut beside) = (Vec::new(), Vec::new());
    for step in 0..most.min(count) {
        let moved = numbers.component_mul(&basis[step]);
        diagonal.push(basis[step].dot(&moved));
        // The vector is made orthogonal to all before it, twice because of rounding.
        let rest = basis.iter().fold(moved, |rest, known| &rest - known * known.dot(&rest));
        let rest = basis.iter().fold(rest, |rest, known| &rest - known * known.dot(&rest));
        let norm = rest.norm();
        if norm < 1e-9 * (1.0 + numbers.amax()) {
            break;
        }
        beside.push(norm);
        basis.push(rest / norm);
    }
    let size = diagonal.len();
    let jacobi = DMatrix::from_fn(size, size, |i, j| match i.abs_diff(j) {
        0 => diagonal[i],
        1 => beside[i.min(j)],
        _ => 0.0,
    });
    let SymmetricEigen { eigenvalues, eigenvectors } = SymmetricEigen::new(jacobi);
    (0..size).map(|k| (eigenvectors[(0, k)].powi(2), eigenvalues[k])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A few slopes are returned as they are. For many, moments of ln slope up to the eleventh are exact.
    #[test]
    fn few_slopes_have_the_moments_of_all() {
        for count in [1, 4, 16, 112] {
            let slopes: Vec<f64> = (1..=count).map(|head| 2f64.powf(-8.0 * head as f64 / count as f64)).collect();
            let few = few(&slopes);
            assert!(few.len() <= MOST.min(count));
            for power in 0..=11 {
                let exact = slopes.iter().map(|slope| slope.ln().powi(power)).sum::<f64>() / count as f64;
                let got: f64 = few.iter().map(|(share, slope)| share * slope.ln().powi(power)).sum();
                approx::assert_relative_eq!(got, exact, max_relative = 1e-8);
            }
        }
    }
}
