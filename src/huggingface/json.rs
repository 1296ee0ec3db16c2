//! JSON as Python writes it: `Infinity`, `-Infinity` and `NaN` are numbers there.

use std::borrow::Cow;

/// The largest finite number, which replaces infinity.
const INFINITY: &str = "1.7976931348623157e308";
/// A string that replaces NaN, so that a reader of numbers rejects it.
const NAN: &str = "\"NaN\"";

/// Returns the text as standard JSON.
pub(super) fn strict(text: &str) -> Cow<'_, str> {
    if !text.contains("Infinity") && !text.contains("NaN") {
        return Cow::Borrowed(text);
    }
    let mut strict = String::with_capacity(text.len());
    let (mut quoted, mut escaped) = (false, false);
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let (literal, number) = match next {
            'I' if rest.starts_with("Infinity") => ("Infinity", INFINITY),
            'N' if rest.starts_with("NaN") => ("NaN", NAN),
            _ => ("", ""),
        };
        if !quoted && !literal.is_empty() {
            strict.push_str(number);
            rest = &rest[literal.len()..];
            continue;
        }
        quoted ^= next == '"' && !escaped;
        escaped = quoted && next == '\\' && !escaped;
        strict.push(next);
        rest = &rest[next.len_utf8()..];
    }
    Cow::Owned(strict)
}

#[cfg(test)]
mod tests {
    use super::strict;

    #[test]
    fn numbers_of_python_are_replaced_outside_strings() {
        let text = r#"{"a": Infinity, "b": [-Infinity, NaN], "é NaN \" Infinity": "\\", "c": "NaN"}"#;
        let read: serde_json::Value = serde_json::from_str(&strict(text)).unwrap();
        let expected = serde_json::json!({
            "a": f64::MAX, "b": [-f64::MAX, "NaN"], "é NaN \" Infinity": "\\", "c": "NaN"
        });
        assert_eq!(read, expected);
        assert_eq!(strict("{}"), "{}");
    }
}
