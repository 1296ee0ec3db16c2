//! The output of a command, and the excerpt of it on a page.

use std::{fmt::Write as _, process::Output};

use strsim::normalized_levenshtein;

/// The mark for omitted lines, or for the omitted end of a line.
const LEFT_OUT: &str = "…";

/// The weight of a line's distance against the similarity, which is at most 1: of two similar lines the nearer one is
/// chosen.
const NEARNESS: f64 = 0.005;

/// Standard output, then standard error, without blanks at the ends of lines.
pub(super) fn text(output: &Output) -> String {
    let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat();
    text.lines().fold(String::new(), |mut text, line| {
        writeln!(text, "{}", line.trim_end()).expect("a string can be written to");
        text
    })
}

/// Returns true if `shown` equals `got` except for omissions.
pub(super) fn is_shown(shown: &str, got: &str) -> bool {
    let mut parts = shown.split(LEFT_OUT);
    let Some(mut rest) = got.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((end, between)) = parts.split_last() else { return rest.is_empty() };
    for part in between {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    *end == "\n" || rest.ends_with(end)
}

/// The lines of `got` that are most similar to those of `shown`, with omissions marked.
pub(super) fn renew(shown: &str, got: &str) -> String {
    let got: Vec<&str> = got.lines().collect();
    let (mut next, mut lines) = (0, Vec::new());
    for line in shown.lines().filter(|line| *line != LEFT_OUT && !line.is_empty()) {
        let likeness = |index: &usize| normalized_levenshtein(line, got[*index]) - NEARNESS * (index - next) as f64;
        let likest = |a: &usize, b: &usize| likeness(a).total_cmp(&likeness(b));
        let Some(found) = (next..got.len()).max_by(likest) else { break };
        let blank = found > next && got[found - 1].is_empty();
        if found > next + usize::from(blank) {
            lines.push(LEFT_OUT);
        }
        lines.extend(blank.then_some(""));
        lines.push(got[found]);
        next = found + 1;
    }
    if next < got.len() {
        lines.push(LEFT_OUT);
    }
    lines.iter().flat_map(|line| [line, "\n"]).collect()
}

#[test]
fn ellipses_stand_for_what_is_left_out() {
    let got = "head\na 1\nb 2\nb 3\nend\n";
    for shown in [got, "head\n…\nb 3\nend\n", "…\nb 2\n…\n", "head\n…\n", "head\na …\nb 2\n…\n", "…\n"] {
        assert!(is_shown(shown, got), "{shown}");
    }
    for shown in ["head\n", "a 1\n…\n", "head\n…\nb 4\n…\n", "…\nb 3\n…\nb 2\n…\n", "head\n…\nb 3\n", ""]
    {
        assert!(!is_shown(shown, got), "{shown}");
    }
    assert_eq!(renew("head\n…\nb 4\n…\n", got), "head\n…\nb 2\n…\n");
}
