//! What a misspelt name was meant to be.

use crate::nearest;

/// `; did you mean xavier?`, if any known name is near.
pub(crate) fn did_you_mean<'a>(text: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(text, known).map_or(String::new(), |name| format!("; did you mean {name}?"))
}
