//! Numbers for people.

use sigprop_stack::Number;

/// Writes a number with four significant digits: `0.9987`, `42.67`, `1.3e-5`, `7.903e48`, `1.3e16300`.
pub fn short(number: impl Into<Number>) -> String {
    let number = number.into();
    let magnitude = number.value().abs();
    if number.is_zero() {
        "0".to_owned()
    } else if (1e-4..1e6).contains(&magnitude) {
        let integer_digits = magnitude.log10().floor() as i32 + 1;
        trimmed(&format!("{:.*}", (4 - integer_digits).clamp(0, 7) as usize, number.value()))
    } else {
        let within_f64 = magnitude.is_normal();
        let text = if within_f64 { format!("{:.3e}", number.value()) } else { number.to_string() };
        let Some((mantissa, exponent)) = text.split_once('e') else { return text };
        let digits = mantissa.len().min(if mantissa.starts_with('-') { 6 } else { 5 });
        format!("{}e{exponent}", trimmed(&mantissa[..digits]))
    }
}

/// Writes a share in percent, such as `4.1 %` or `23 %`.
pub fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent < 0.1 {
        return format!("{} %", short(percent));
    }
    let decimals = usize::from(percent < 10.0);
    format!("{} %", trimmed(&format!("{percent:.decimals$}")))
}

/// Writes a number with its sign and `decimals` decimals: `+3.2`. If this is wider than a column of a table, it has
/// four significant digits instead: `+1.2e37`.
pub(crate) fn signed(number: f64, decimals: usize) -> String {
    let sign = if number > 0.0 { "+" } else { "" };
    format!("{sign}{}", column(number, decimals))
}

/// Writes a number as [`signed`] does, but without a plus.
pub(crate) fn column(number: f64, decimals: usize) -> String {
    const LONG: f64 = 1e6;
    if number.abs() < LONG { format!("{number:.decimals$}") } else { short(number) }
}

/// Removes trailing zeros after a decimal point.
fn trimmed(decimal: &str) -> String {
    if decimal.contains('.') { decimal.trim_end_matches('0').trim_end_matches('.') } else { decimal }.to_owned()
}

/// Writes a count with separated thousands: `1 234 567`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_short() {
        assert_eq!(
            [signed(3.21, 1), signed(-0.04, 1), signed(1.2e41, 1), column(3.0, 2)],
            ["+3.2", "-0.0", "+1.2e41", "3.00"]
        );
    }

    #[test]
    fn shares_are_in_percent() {
        assert_eq!([0.0412, 0.23, 1.5, 0.04, 2e-5].map(percent), ["4.1 %", "23 %", "150 %", "4 %", "0.002 %"]);
    }

    #[test]
    fn four_significant_digits() {
        for (number, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.998_74, "0.9987"),
            (-0.25, "-0.25"),
            (42.666_67, "42.67"),
            (123_456.0, "123456"),
            (0.000_123_45, "0.0001235"),
            (1.3e-5, "1.3e-5"),
            (7.903_4e48, "7.903e48"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(short(number), text);
        }
        assert_eq!(short(Number::scaled(-1.234_56, 16300.0 * std::f64::consts::LN_10)), "-1.234e16300");
    }

    #[test]
    fn thousands_are_separated() {
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1 234 567");
    }
}
