//! Suggestions for misspelt names.

use crate::nearest;

/// Returns `; did you mean xavier?` if a known name is near, else an empty text.
pub(crate) fn did_you_mean<'a>(text: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(text, known).map_or(String::new(), |name| format!("; did you mean {name}?"))
}
