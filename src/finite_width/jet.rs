//! Numbers with their first and second derivatives by N variables: automatic differentiation going forward.
//!
//! Source: Griewank & Walther 2008, Evaluating Derivatives, chapter 13.

use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};

use crate::mean_field::scalar::Scalar;

/// A function of N variables at one point, to second order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Jet<const N: usize> {
    pub(crate) value: f64,
    pub(crate) gradient: [f64; N],
    /// ∂²/∂i∂j at j ≤ i.
    pub(crate) hessian: [[f64; N]; N],
}

impl<const N: usize> Jet<N> {
    /// The variable `index` at `value`.
    pub(crate) fn variable(index: usize, value: f64) -> Self {
        let mut jet = Self::from(value);
        jet.gradient[index] = 1.0;
        jet
    }

    /// Adds a multiple of another number.
    pub(crate) fn add_multiple(&mut self, other: &Self, factor: f64) {
        self.value += factor * other.value;
        for i in 0..N {
            self.gradient[i] += factor * other.gradient[i];
            for j in 0..=i {
                self.hessian[i][j] += factor * other.hessian[i][j];
            }
        }
    }

    /// One number from the derivatives of two.
    fn zip(self, other: Self, value: f64, of: impl Fn(f64, f64) -> f64, more: impl Fn(usize, usize) -> f64) -> Self {
        let mut jet = Self { value, ..self };
        for i in 0..N {
            jet.gradient[i] = of(self.gradient[i], other.gradient[i]);
            for j in 0..=i {
                jet.hessian[i][j] = of(self.hessian[i][j], other.hessian[i][j]) + more(i, j);
            }
        }
        jet
    }
}

impl<const N: usize> From<f64> for Jet<N> {
    fn from(value: f64) -> Self {
        Self { value, gradient: [0.0; N], hessian: [[0.0; N]; N] }
    }
}

impl<const N: usize> Add for Jet<N> {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.zip(other, self.value + other.value, |a, b| a + b, |_, _| 0.0)
    }
}

impl<const N: usize> Sub for Jet<N> {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.zip(other, self.value - other.value, |a, b| a - b, |_, _| 0.0)
    }
}

impl<const N: usize> Mul for Jet<N> {
    type Output = Self;
    #[expect(clippy::suspicious_arithmetic_impl, reason = "the rule of products is a sum")]
    fn mul(self, other: Self) -> Self {
        let (a, b) = (&self.gradient, &other.gradient);
        let leibniz = |of_a, of_b| of_a * other.value + of_b * self.value;
        self.zip(other, self.value * other.value, leibniz, |i, j| a[i] * b[j] + a[j] * b[i])
    }
}

impl<const N: usize> Div for Jet<N> {
    type Output = Self;
    #[expect(clippy::suspicious_arithmetic_impl, reason = "a quotient is a product with the inverse")]
    fn div(self, other: Self) -> Self {
        self * other.recip()
    }
}

impl<const N: usize> Neg for Jet<N> {
    type Output = Self;
    fn neg(self) -> Self {
        self * -1.0
    }
}

impl<const N: usize> Add<f64> for Jet<N> {
    type Output = Self;
    fn add(self, other: f64) -> Self {
        Self { value: self.value + other, ..self }
    }
}

impl<const N: usize> Sub<f64> for Jet<N> {
    type Output = Self;
    fn sub(self, other: f64) -> Self {
        self + -other
    }
}

impl<const N: usize> Mul<f64> for Jet<N> {
    type Output = Self;
    fn mul(self, other: f64) -> Self {
        self.chain(|x| [x * other, other, 0.0])
    }
}

impl<const N: usize> Div<f64> for Jet<N> {
    type Output = Self;
    fn div(self, other: f64) -> Self {
        self.chain(|x| [x / other, other.recip(), 0.0])
    }
}

impl<const N: usize> AddAssign for Jet<N> {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl<const N: usize> Sum for Jet<N> {
    fn sum<I: Iterator<Item = Self>>(jets: I) -> Self {
        jets.fold(Self::from(0.0), Add::add)
    }
}

impl<const N: usize> Scalar for Jet<N> {
    fn value(self) -> f64 {
        self.value
    }

    fn chain(self, derivatives: impl FnOnce(f64) -> [f64; 3]) -> Self {
        let [value, slope, curvature] = derivatives(self.value);
        let gradient = &self.gradient;
        self.zip(self, value, |of, _| of * slope, |i, j| gradient[i] * gradient[j] * curvature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function that takes every operation.
    fn function<S: Scalar>([x, y, z]: [S; 3]) -> S {
        let root = (x * x + y * 3.0 + 1.0).sqrt();
        let quotient = (z - x.exp() * 0.2) / (root + y / 4.0);
        (quotient * 0.3).asin() + (quotient * -0.4).acos().ln() - (y * z).recip()
    }

    #[test]
    fn derivatives_agree_with_finite_differences() {
        const STEP: f64 = 1e-4;
        let at = [0.7, 1.2, -0.5];
        let jet = function(std::array::from_fn(|i| Jet::<3>::variable(i, at[i])));
        let moved = |steps: &[(usize, f64)]| {
            let mut at = at;
            for &(i, sign) in steps {
                at[i] += sign * STEP;
            }
            function(at)
        };
        for i in 0..3 {
            let slope = (moved(&[(i, 1.0)]) - moved(&[(i, -1.0)])) / (2.0 * STEP);
            assert!((jet.gradient[i] - slope).abs() < 1e-6, "{i}: {slope} {}", jet.gradient[i]);
            for j in 0..=i {
                let ends = [(1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)];
                let corner = |(a, b): (f64, f64)| a * b * moved(&[(i, a), (j, b)]);
                let curvature = ends.map(corner).iter().sum::<f64>() / (4.0 * STEP * STEP);
                assert!((jet.hessian[i][j] - curvature).abs() < 1e-5, "{i} {j}: {curvature}");
            }
        }
        assert!((jet.value - function(at)).abs() < 1e-12);
    }
}
