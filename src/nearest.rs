//! The known name that a misspelt one most resembles.

/// Returns the name in `known` that is most similar to `text`; `None` if none is similar.
pub fn nearest<'a>(text: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// Jaro–Winkler similarity below which two words have nothing to do with each other.
    const NEAR: f64 = 0.7;
    let similarity = |name: &str| strsim::jaro_winkler(&text.to_lowercase(), name);
    known
        .into_iter()
        .map(|name| (similarity(name), name))
        .filter(|(similarity, _)| *similarity > NEAR)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
        let known = ["xavier", "kaiming", "dslm", "dslm-paper"];
        assert_eq!(nearest("xaiver", known), Some("xavier"));
        assert_eq!(nearest("DSLM-papr", known), Some("dslm-paper"));
        assert_eq!(nearest("qqq", known), None);
    }
}
