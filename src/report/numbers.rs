//! Numbers of documents, which are f64.

use sigprop_stack::Number;

/// Returns the number if f64 can hold it; `None` if it would overflow to ∞ or underflow towards zero.
pub(super) fn within_f64(number: Option<Number>) -> Option<f64> {
    let number = number?;
    let value = number.value();
    (value.is_finite() && (value.is_normal() || number.is_zero())).then_some(value)
}
