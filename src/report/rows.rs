//! Rows under named columns: as CSV, as JSON lines, as a Markdown table.
//!
//! ```text
//! csv     all digits; numbers beyond f64 are decimal text, what does not exist is blank
//! jsonl   an object per row that starts with schema_version; numbers beyond f64 are strings, what does not exist null
//! md      for people: four digits, what does not exist is blank
//! ```

use std::io::{self, Write};

use csv::{ErrorKind, Writer};
use serde::{Serialize, Serializer};
use sigprop_stack::Number;

use super::{SCHEMA_VERSION, numbers::within_f64};
use crate::numerals::short;

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFormat {
    /// Comma-separated values.
    Csv,
    /// One JSON object per line.
    JsonLines,
    /// A table of GitHub's Markdown.
    Markdown,
}

/// The content of a column in a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Field {
    /// No value.
    Blank,
    /// Text.
    Text(String),
    /// A count, or the index of a block.
    Integer(i64),
    /// A number within f64.
    Float(f64),
    /// A number of any size.
    Number(Number),
    /// True or false.
    Truth(bool),
}

/// Rows under named columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    pub(super) columns: Vec<&'static str>,
    pub(super) rows: Vec<Vec<Field>>,
}

impl Rows {
    /// Returns rows that have a field for each of the columns.
    pub(super) fn new<const N: usize>(columns: [&'static str; N], rows: impl IntoIterator<Item = [Field; N]>) -> Self {
        Self { columns: columns.to_vec(), rows: rows.into_iter().map(Vec::from).collect() }
    }

    /// Writes the rows with the names of their columns.
    pub fn write(&self, format: RowFormat, out: &mut dyn Write) -> io::Result<()> {
        match format {
            RowFormat::Csv => self.csv(out),
            RowFormat::JsonLines => self.json_lines(out),
            RowFormat::Markdown => self.markdown(out),
        }
    }

    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut writer = Writer::from_writer(out);
        writer.write_record(&self.columns).map_err(into_io)?;
        for row in &self.rows {
            writer.write_record(row.iter().map(Field::text)).map_err(into_io)?;
        }
        writer.flush()
    }

    fn json_lines(&self, out: &mut dyn Write) -> io::Result<()> {
        for row in &self.rows {
            serde_json::to_writer(&mut *out, &Line { columns: &self.columns, row })?;
            writeln!(out)?;
        }
        Ok(())
    }

    fn markdown(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut line = |cells: Vec<String>| writeln!(out, "| {} |", cells.join(" | "));
        line(self.columns.iter().map(|&column| column.to_owned()).collect())?;
        let is_text = |column: usize| self.rows.iter().any(|row| matches!(row[column], Field::Text(_)));
        let rules = (0..self.columns.len()).map(|column| if is_text(column) { "---" } else { "---:" });
        line(rules.map(str::to_owned).collect())?;
        self.rows.iter().try_for_each(|row| line(row.iter().map(Field::markdown).collect()))
    }
}

impl Field {
    /// Returns the field as decimal text.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Blank => String::new(),
            Self::Text(text) => text.clone(),
            Self::Integer(count) => count.to_string(),
            Self::Float(value) => value.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Truth(truth) => truth.to_string(),
        }
    }

    fn markdown(&self) -> String {
        match self {
            Self::Text(text) => {
                let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
                let escaped = words.chars().flat_map(|char| {
                    let marks = matches!(char, '|' | '*' | '_' | '<' | '`' | '\\' | '[').then_some('\\');
                    marks.into_iter().chain([char])
                });
                escaped.collect()
            }
            Self::Float(value) => short(*value),
            Self::Number(number) => short(*number),
            Self::Blank | Self::Integer(_) | Self::Truth(_) => self.text(),
        }
    }
}

impl Serialize for Field {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Blank => serializer.serialize_none(),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Integer(count) => serializer.serialize_i64(*count),
            Self::Float(value) => serializer.serialize_f64(*value),
            Self::Number(number) => match within_f64(Some(*number)) {
                Some(value) => serializer.serialize_f64(value),
                None => serializer.collect_str(number),
            },
            Self::Truth(truth) => serializer.serialize_bool(*truth),
        }
    }
}

/// A row as a JSON object.
struct Line<'a> {
    columns: &'a [&'static str],
    row: &'a [Field],
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let version = Field::Integer(SCHEMA_VERSION.into());
        let fields = self.columns.iter().copied().zip(self.row);
        serializer.collect_map([("schema_version", &version)].into_iter().chain(fields))
    }
}

impl From<&str> for Field {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Field {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Field {
    fn from(count: i64) -> Self {
        Self::Integer(count)
    }
}

impl From<usize> for Field {
    fn from(count: usize) -> Self {
        Self::Integer(count as i64)
    }
}

impl From<u64> for Field {
    fn from(count: u64) -> Self {
        Self::Integer(count as i64)
    }
}

impl From<f64> for Field {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<bool> for Field {
    fn from(truth: bool) -> Self {
        Self::Truth(truth)
    }
}

/// Converts a number to a field; a number that is not finite becomes blank.
impl From<Number> for Field {
    fn from(number: Number) -> Self {
        if number.is_finite() { Self::Number(number) } else { Self::Blank }
    }
}

impl<T: Into<Field>> From<Option<T>> for Field {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Blank, Into::into)
    }
}

/// Returns the I/O error inside an error of CSV, so that a closed pipe is still recognised as such.
fn into_io(error: csv::Error) -> io::Error {
    match error.into_kind() {
        ErrorKind::Io(error) => error,
        kind => io::Error::other(format!("{kind:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(format: RowFormat) -> String {
        let large = Number::from_ln(1e4 * std::f64::consts::LN_10);
        let rows = Rows::new(
            ["site", "layer", "variance", "share", "met"],
            [
                ["a|b, *c".into(), (-1_i64).into(), large.into(), Field::Blank, true.into()],
                ["d".into(), 2_usize.into(), Number::from(0.25).into(), (1.0 / 3.0).into(), Field::Blank],
            ],
        );
        let mut out = Vec::new();
        rows.write(format, &mut out).expect("a vector takes everything");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn the_same_rows_in_every_format() {
        assert_eq!(
            written(RowFormat::Csv),
            "site,layer,variance,share,met\n\"a|b, *c\",-1,1e10000,,true\nd,2,0.25,0.3333333333333333,\n"
        );
        assert_eq!(
            written(RowFormat::JsonLines),
            "{\"schema_version\":1,\"site\":\"a|b, *c\",\"layer\":-1,\"variance\":\"1e10000\",\"share\":null,\"met\":true}\n\
             {\"schema_version\":1,\"site\":\"d\",\"layer\":2,\"variance\":0.25,\"share\":0.3333333333333333,\"met\":null}\n"
        );
        assert_eq!(
            written(RowFormat::Markdown),
            "| site | layer | variance | share | met |\n| --- | ---: | ---: | ---: | ---: |\n\
             | a\\|b, \\*c | -1 | 1e10000 |  | true |\n| d | 2 | 0.25 | 0.3333 |  |\n"
        );
    }
}
