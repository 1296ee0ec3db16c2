//! Lists of ids: CSV with one sequence per line, JSON with arrays in arrays.

use csv::{ReaderBuilder, Trim};
use serde_json::Value;

use super::Sequences;

/// Reads one sequence per line; there is no header.
pub(super) fn csv(bytes: &[u8]) -> Result<Sequences, String> {
    let mut reader = ReaderBuilder::new().has_headers(false).flexible(true).trim(Trim::All).from_reader(bytes);
    let mut sequences = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| error.to_string())?;
        let line = record.position().map_or(0, csv::Position::line);
        let id = |(place, field): (usize, &str)| {
            field.parse().map_err(|_| {
                let hint = if line == 1 { "; there is no header, every line is a sequence" } else { "" };
                format!("line {line}, field {}: expected an id from 0, got `{field}`{hint}", place + 1)
            })
        };
        sequences.push(record.iter().enumerate().map(id).collect::<Result<_, _>>()?);
    }
    Ok(sequences)
}

/// Reads nested arrays of any depth. The innermost arrays are the sequences.
pub(super) fn json(bytes: &[u8]) -> Result<Sequences, String> {
    let document = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let mut sequences = Vec::new();
    collect(&document, "", &mut sequences)?;
    Ok(sequences)
}

fn collect(value: &Value, place: &str, sequences: &mut Sequences) -> Result<(), String> {
    let at = if place.is_empty() { "the document" } else { place };
    let Value::Array(items) = value else {
        return Err(format!("{at}: expected an array, got {}", kind(value)));
    };
    let inner = |index: usize| format!("{place}[{index}]");
    if items.first().is_some_and(Value::is_array) {
        return items.iter().enumerate().try_for_each(|(index, item)| collect(item, &inner(index), sequences));
    }
    let id = |(index, item): (usize, &Value)| {
        let id = item.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| format!("{}: expected an id from 0 to {}, got {}", inner(index), u32::MAX, kind(item)))
    };
    sequences.push(items.iter().enumerate().map(id).collect::<Result<_, _>>()?);
    Ok(())
}

fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(_) => "a string".to_owned(),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}
