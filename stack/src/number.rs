//! Real numbers whose magnitude may lie far beyond f64.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A real number, held as its sign and the logarithm of its magnitude: 10⁴ exploding layers do not overflow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Number {
    sign: f64,
    ln_abs: f64,
}

impl Number {
    /// Zero.
    pub const ZERO: Self = Self { sign: 0.0, ln_abs: f64::NEG_INFINITY };

    /// e^`ln`; zero for −∞.
    pub fn from_ln(ln: f64) -> Self {
        Self::scaled(1.0, ln)
    }

    /// `factor` · e^`ln`.
    pub fn scaled(factor: f64, ln: f64) -> Self {
        let ln_abs = factor.abs().ln() + ln;
        if ln_abs == f64::NEG_INFINITY { Self::ZERO } else { Self { sign: factor.signum(), ln_abs } }
    }

    /// The number as f64. Beyond the range of f64 it is ±∞, or 0 for small magnitudes.
    pub fn value(&self) -> f64 {
        if self.is_zero() { 0.0 } else { self.sign * self.ln_abs.exp() }
    }

    /// ln of the magnitude; −∞ for zero.
    pub fn ln_abs(&self) -> f64 {
        self.ln_abs
    }

    /// Returns true if the number is zero.
    pub fn is_zero(&self) -> bool {
        self.ln_abs == f64::NEG_INFINITY
    }

    /// Returns true if the number is below zero.
    pub fn is_negative(&self) -> bool {
        self.sign < 0.0
    }

    /// Returns true if the number is neither infinite nor NaN, however large it is.
    pub fn is_finite(&self) -> bool {
        self.is_zero() || self.ln_abs.is_finite()
    }

    /// The square root; NaN for a number below zero.
    #[must_use]
    pub fn sqrt(&self) -> Self {
        if self.is_negative() { f64::NAN.into() } else { Self::from_ln(0.5 * self.ln_abs) }
    }

    /// `self` / `other` as f64.
    pub fn ratio(&self, other: &Self) -> f64 {
        if self.is_zero() && !other.is_zero() {
            return 0.0;
        }
        self.sign * other.sign * (self.ln_abs - other.ln_abs).exp()
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        if value.is_nan() { Self { sign: f64::NAN, ln_abs: f64::NAN } } else { Self::scaled(value, 0.0) }
    }
}

/// Decimal text, such as `0.25`, `1e-12` or `1.3e16300`.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value();
        let magnitude = value.abs();
        if self.is_zero() || (1e-5..1e16).contains(&magnitude) {
            return write!(f, "{value}");
        }
        if !self.ln_abs.is_finite() || (magnitude.is_normal() && magnitude.is_finite()) {
            return write!(f, "{value:e}");
        }
        let log10 = self.ln_abs / std::f64::consts::LN_10;
        let exponent = log10.floor();
        // A logarithm of size 10^5 leaves 11 digits of mantissa.
        let mantissa = format!("{:.10}", 10f64.powf(log10 - exponent));
        let mantissa = mantissa.trim_end_matches('0').trim_end_matches('.');
        let minus = if self.sign < 0.0 { "-" } else { "" };
        write!(f, "{minus}{mantissa}e{exponent}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_decimal_text_within_and_beyond_f64() {
        assert_eq!(Number::from(0.25).to_string(), "0.25");
        assert_eq!(Number::ZERO.to_string(), "0");
        assert_eq!(Number::from(-0.0).to_string(), "0");
        assert_eq!(Number::from_ln(-1e4 * std::f64::consts::LN_10).to_string(), "1e-10000");
        assert_eq!(Number::scaled(-2.0, 2e4 * std::f64::consts::LN_10).to_string(), "-2e20000");
    }

    #[test]
    fn ratio_survives_overflow() {
        let (large, larger) = (Number::from_ln(5000.0), Number::from_ln(5001.0));
        assert!((larger.ratio(&large) - std::f64::consts::E).abs() < 1e-12);
        assert!(Number::ZERO.ratio(&large).abs() < f64::MIN_POSITIVE);
    }
}
