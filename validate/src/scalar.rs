//! The number type of sampled arrays: f32 for real runs, f64 for finite-difference tests.
//!
//! The f32 functions below are branch-free so that loops over them use vector instructions: one
//! call of a mathematical library per entry would cost more than the matrix products around it.

#![allow(clippy::inline_always)]

use std::{
    cell::RefCell,
    ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub},
};

use crate::matmul::Kernel;

/// A real number with the functions that components need.
pub(crate) trait Scalar:
    Copy
    + Default
    + PartialOrd
    + Send
    + Sync
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + MulAssign
    + 'static
{
    /// The kernel of matrix products.
    fn kernel() -> Kernel<Self>;
    /// The nearest number of this type.
    fn from_f64(value: f64) -> Self;
    /// The nearest number of this type.
    fn from_f32(value: f32) -> Self;
    /// The number in f64.
    fn to_f64(self) -> f64;
    /// The magnitude.
    fn abs(self) -> Self;
    /// e^x.
    fn exp(self) -> Self;
    /// e^x − 1, accurate near 0.
    fn exp_m1(self) -> Self;
    /// ln(1 + x), accurate near 0.
    fn ln_1p(self) -> Self;
    /// tanh x.
    fn tanh(self) -> Self;
    /// erf x.
    fn erf(self) -> Self;
    /// Calls `with` on the used arrays that this thread keeps.
    fn spares<R>(with: impl FnOnce(&mut Vec<Vec<Self>>) -> R) -> R;
}

impl Scalar for f64 {
    fn kernel() -> Kernel<Self> {
        gemm_f64::gemm::f64::get_gemm_fn()
    }

    fn from_f64(value: f64) -> Self {
        value
    }

    fn from_f32(value: f32) -> Self {
        f64::from(value)
    }

    fn to_f64(self) -> f64 {
        self
    }

    fn abs(self) -> Self {
        f64::abs(self)
    }

    fn exp(self) -> Self {
        libm::exp(self)
    }

    fn exp_m1(self) -> Self {
        libm::expm1(self)
    }

    fn ln_1p(self) -> Self {
        libm::log1p(self)
    }

    fn tanh(self) -> Self {
        libm::tanh(self)
    }

    fn erf(self) -> Self {
        libm::erf(self)
    }

    fn spares<R>(with: impl FnOnce(&mut Vec<Vec<Self>>) -> R) -> R {
        thread_local! { static SPARES: RefCell<Vec<Vec<f64>>> = const { RefCell::new(Vec::new()) }; }
        SPARES.with_borrow_mut(with)
    }
}

impl Scalar for f32 {
    fn kernel() -> Kernel<Self> {
        gemm_f32::gemm::f32::get_gemm_fn()
    }

    #[inline(always)]
    fn from_f64(value: f64) -> Self {
        value as f32
    }

    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        value
    }

    #[inline(always)]
    fn to_f64(self) -> f64 {
        f64::from(self)
    }

    #[inline(always)]
    fn abs(self) -> Self {
        f32::abs(self)
    }

    #[inline(always)]
    fn exp(self) -> Self {
        exp(self)
    }

    fn exp_m1(self) -> Self {
        libm::expm1f(self)
    }

    fn ln_1p(self) -> Self {
        libm::log1pf(self)
    }

    #[inline(always)]
    fn tanh(self) -> Self {
        tanh(self)
    }

    #[inline(always)]
    fn erf(self) -> Self {
        erf(self)
    }

    fn spares<R>(with: impl FnOnce(&mut Vec<Vec<Self>>) -> R) -> R {
        thread_local! { static SPARES: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) }; }
        SPARES.with_borrow_mut(with)
    }
}

/// 2^n e^r with n the integer nearest to x / ln 2; e^r by its Taylor polynomial on |r| ≤ ln 2 / 2.
/// Zero below −87.3, where e^x leaves the normal range; +∞ above 88.4.
#[inline(always)]
fn exp(x: f32) -> f32 {
    // Adding this leaves the nearest integer in the low bits: rounding without an instruction for it.
    const SHIFT: f32 = 12_582_912.0;
    // ln 2 in two parts, the first exact in few bits, so that r keeps its last digits.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let shifted = x.clamp(-87.3, 88.4) * std::f32::consts::LOG2_E + SHIFT;
    let n = shifted - SHIFT;
    let r = x.clamp(-87.3, 88.4) - n * LN_2_HIGH - n * LN_2_LOW;
    let taylor = [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];
    let power = f32::from_bits(shifted.to_bits().wrapping_sub(SHIFT.to_bits()).wrapping_add(127) << 23);
    let value = horner(r, &taylor) * power;
    let value = if x < -87.3 { 0.0 } else { value };
    if x > 88.4 { f32::INFINITY } else { value }
}

/// Rational approximation of the Eigen library (`ptanh_float`), within a few units of the last place.
#[inline(always)]
fn tanh(x: f32) -> f32 {
    let x = x.clamp(-7.905_311, 7.905_311);
    let square = x * x;
    let numerator = [
        -2.760_768_5e-16,
        2.000_188e-13,
        -8.604_672e-11,
        5.122_297_1e-8,
        1.485_722_4e-5,
        6.372_619_3e-4,
        4.893_524_6e-3,
    ];
    let denominator = [1.198_258_4e-6, 1.185_347_1e-4, 2.268_434_6e-3, 4.893_525e-3];
    x * horner(square, &numerator) / horner(square, &denominator)
}

/// Rational approximation of the Eigen library (`perf_float`), within a few units of the last place.
#[inline(always)]
fn erf(x: f32) -> f32 {
    let x = x.clamp(-4.0, 4.0);
    let square = x * x;
    let numerator = [
        -2.726_142_3e-10,
        2.770_681_4e-8,
        -2.101_024e-6,
        -5.692_506_4e-5,
        -7.349_906_3e-4,
        -2.954_6e-3,
        -1.609_603_3e-2,
    ];
    let denominator = [-1.456_607_2e-5, -2.133_740_6e-4, -1.682_827e-3, -7.373_329e-3, -1.426_473_9e-2];
    x * horner(square, &numerator) / horner(square, &denominator)
}

/// Returns Σ `term`(x, y) over pairs of entries at the same place. Sixteen partial sums run side by side, so that the
/// order of additions does not depend on the instruction set.
#[inline(always)]
pub(crate) fn sum<T: Scalar>(x: &[T], y: &[T], term: impl Fn(f64, f64) -> f64) -> f64 {
    let mut sums = [0.0; 16];
    let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<16>(), y.as_chunks::<16>());
    for block in 0..x.len().min(y.len()) {
        let (x, y) = (&x[block], &y[block]);
        for i in 0..sums.len() {
            sums[i] += term(x[i].to_f64(), y[i].to_f64());
        }
    }
    for (i, (x, y)) in x_rest.iter().zip(y_rest).enumerate() {
        sums[i] += term(x.to_f64(), y.to_f64());
    }
    sums.iter().sum()
}

/// Returns the value at `x` of the polynomial with these coefficients, highest power first.
#[inline(always)]
pub(crate) fn horner(x: f32, coefficients: &[f32]) -> f32 {
    let (&highest, others) = coefficients.split_first().expect("a polynomial has coefficients");
    others.iter().fold(highest, |value, &coefficient| value * x + coefficient)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Largest relative error allowed, in units of the spacing of f32 at 1.
    const UNITS: f64 = 8.0;

    fn assert_close(approximation: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64, upper: f32) {
        let steps = 200_000;
        for i in 0..=steps {
            let x = upper * (2.0 * i as f32 / steps as f32 - 1.0);
            for x in [x, x * 1e-4] {
                let (got, expected) = (f64::from(approximation(x)), exact(f64::from(x)));
                let error = (got - expected).abs();
                assert!(error <= UNITS * f64::from(f32::EPSILON) * expected.abs(), "{x}: got {got}, not {expected}");
            }
        }
    }

    #[test]
    fn f32_functions_agree_with_f64() {
        assert_close(exp, libm::exp, 87.0);
        assert_close(tanh, libm::tanh, 12.0);
        assert_close(erf, libm::erf, 6.0);
    }

    #[test]
    fn limits_and_not_a_number_pass_through() {
        assert_eq!(exp(f32::NEG_INFINITY).to_bits(), 0);
        assert!(exp(f32::INFINITY).is_infinite());
        assert!(exp(f32::NAN).is_nan() && tanh(f32::NAN).is_nan() && erf(f32::NAN).is_nan());
        assert!((tanh(f32::INFINITY) - 1.0).abs() < 1e-6 && (erf(f32::NEG_INFINITY) + 1.0).abs() < 1e-6);
    }
}
