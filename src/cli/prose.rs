//! Sentences that fit a terminal.

use std::io::{self, Write};

/// Columns of a terminal.
const COLUMNS: usize = 80;

/// Writes `head`, which fills the first `indent` columns, then `text`. Lines break between words, and the later lines
/// are indented by `indent` columns.
pub(crate) fn write_indented(head: &str, indent: usize, text: &str, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{head}")?;
    let mut column = indent;
    for (index, word) in text.split_whitespace().enumerate() {
        let width = word.chars().count();
        if index > 0 && column + 1 + width > COLUMNS {
            write!(out, "\n{:indent$}", "")?;
            column = indent;
        } else if index > 0 {
            write!(out, " ")?;
            column += 1;
        }
        write!(out, "{word}")?;
        column += width;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        let mut out = Vec::new();
        write_indented("Caveat: ", 8, &"word ".repeat(20), &mut out).expect("a vector takes everything");
        let text = String::from_utf8(out).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].starts_with("Caveat: word word") && lines[0].len() <= COLUMNS, "{text}");
        assert!(lines[1].starts_with("        word"), "{text}");
    }
}
