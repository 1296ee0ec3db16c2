//! Eight-bit floats, as the tensors of quantised checkpoints store them.
//!
//! # Formula
//!
//! ```text
//! E4M3    s eeee mmm    (−1)^s (1 + m/8) 2^(e−7), (−1)^s (m/8) 2^−6 where e = 0; all ones: not a number; no infinity
//! E5M2    s eeeee mm    the upper byte of an IEEE half
//! ```
//!
//! where s, e and m are the sign, exponent and mantissa. Exponent and mantissa of E4M3 fit into those of a half, whose
//! exponent has a bias of 15: the half is 2^8 times smaller than the number.
//!
//! # Source
//!
//! Micikevicius et al. 2022, FP8 Formats for Deep Learning, table 1.

use half::f16;

/// Returns the number that a byte of E4M3 encodes; 0x38 is 1.
pub(super) fn e4m3(byte: u8) -> f32 {
    /// 2^(15 − 7), the difference of the biases of the exponents.
    const BIAS: f32 = 256.0;
    let code = u16::from(byte & 0x7f);
    let size = if code == 0x7f { f32::NAN } else { f16::from_bits(code << 7).to_f32() * BIAS };
    if byte & 0x80 == 0 { size } else { -size }
}

/// Returns the number that a byte of E5M2 encodes; 0x3c is 1.
pub(super) fn e5m2(byte: u8) -> f32 {
    f16::from_bits(u16::from(byte) << 8).to_f32()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes a number by the definition, in exact arithmetic of f64.
    fn defined(byte: u8, mantissa: u32, bias: i32) -> f64 {
        let sign = if byte & 0x80 == 0 { 1.0 } else { -1.0 };
        let code = u32::from(byte & 0x7f);
        let (exponent, fraction) =
            (code >> mantissa, f64::from(code & ((1 << mantissa) - 1)) / f64::from(1 << mantissa));
        let (lead, power) = if exponent == 0 { (0.0, 1 - bias) } else { (1.0, exponent as i32 - bias) };
        sign * (lead + fraction) * 2f64.powi(power)
    }

    #[test]
    fn all_codes_are_as_defined() {
        for byte in 0..=u8::MAX {
            let (narrow, wide) = (f64::from(e4m3(byte)), f64::from(e5m2(byte)));
            match byte & 0x7f {
                0x7f => assert!(narrow.is_nan() && wide.is_nan(), "{byte:#x}"),
                0x7d.. => assert!(wide.is_nan(), "{byte:#x}"),
                0x7c => assert!(wide.is_infinite() && (wide > 0.0) == (byte == 0x7c), "{byte:#x}"),
                0..0x7c => assert_eq!(wide.to_bits(), defined(byte, 2, 15).to_bits(), "{byte:#x}"),
            }
            if byte & 0x7f < 0x7f {
                assert_eq!(narrow.to_bits(), defined(byte, 3, 7).to_bits(), "{byte:#x}");
            }
        }
    }
}
