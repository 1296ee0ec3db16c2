//! Writing of a checkpoint of freshly drawn parameters, row by row.

use std::collections::HashSet;
use std::io::{self, Write};

use serde_json::{Map, Value, json};
use sigprop_stack::{Init, Rates, StepBias, Tensor};

use crate::huggingface::{Held, Part, Start};

/// A function that fills one row of a tensor. Its arguments are the tensor, the index of the expert (`None` outside
/// mixtures), the number of rows of the tensor, the index of the row and the row.
pub type Draw<'d> = dyn Fn(&Tensor, Option<usize>, usize, usize, &mut [f32]) + 'd;

/// Writes the parameters in `held` as safetensors of f32. A parameter that several entries contain is written once,
/// under the name of the first.
pub fn checkpoint(held: &[Held], draw: &Draw, out: &mut dyn Write) -> io::Result<()> {
    let held = once(held);
    let mut header = Map::new();
    header.insert("__metadata__".to_owned(), json!({ "format": "pt" }));
    let mut end = 0;
    for held in &held {
        let first = end;
        end += 4 * held.shape.iter().map(|&axis| axis as u64).product::<u64>();
        let tensor = json!({ "dtype": "F32", "shape": held.shape, "data_offsets": [first, end] });
        header.insert(held.name.clone(), tensor);
    }
    let mut header = serde_json::to_vec(&Value::Object(header))?;
    // Data begin at a multiple of 8 bytes.
    header.resize(header.len().next_multiple_of(8), b' ');
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(&header)?;
    held.into_iter().try_for_each(|held| write(held, draw, out))
}

/// Returns the entries of `held`, without those whose parts are all contained in earlier entries.
pub(super) fn once(held: &[Held]) -> Vec<&Held> {
    let mut known = HashSet::new();
    let mut new = |part: &Part| {
        let name = part.parameters[0].clone();
        // A tensor of all experts together is not written if the experts are written one by one.
        let is_new =
            !known.contains(&(name.clone(), part.expert.or(Some(0)))) && !known.contains(&(name.clone(), None));
        known.insert((name, part.expert));
        is_new
    };
    held.iter().filter(|held| held.parts.iter().filter(|part| new(part)).count() > 0).collect()
}

fn write(held: &Held, draw: &Draw, out: &mut dyn Write) -> io::Result<()> {
    let entries: usize = held.shape.iter().product();
    if held.axis > 0 && held.shape.len() == 3 {
        return write_experts(held, draw, out);
    }
    if held.axis > 0 {
        return write_side_by_side(held, draw, out);
    }
    let [rows, groups] = [held.shape[0], held.groups];
    if let [part] = held.parts.as_slice() {
        // The part may have fewer rows than the tensor: a network uses only the first positions of a table.
        let columns = part.shape[1];
        return (0..entries / columns).try_for_each(|row| write_row(part, row, columns, draw, out));
    }
    let columns = entries / rows;
    for group in 0..groups {
        for part in &held.parts {
            let share = part.shape[0] / groups;
            (group * share..(group + 1) * share).try_for_each(|row| write_row(part, row, columns, draw, out))?;
        }
    }
    Ok(())
}

fn write_row(part: &Part, row: usize, columns: usize, draw: &Draw, out: &mut dyn Write) -> io::Result<()> {
    write_entries(&drawn(part, row, columns, draw), out)
}

/// Writes a tensor of all experts: one expert after the other, each with all parts.
fn write_experts(held: &Held, draw: &Draw, out: &mut dyn Write) -> io::Result<()> {
    for expert in 0..held.shape[0] {
        if held.axis == 2 {
            let of_expert = |part: &Part| Part { expert: Some(expert), ..part.clone() };
            let parts = held.parts.iter().map(of_expert).collect();
            let of_expert = Held { shape: held.shape[1..].to_vec(), parts, ..held.clone() };
            write_side_by_side(&of_expert, draw, out)?;
            continue;
        }
        for part in &held.parts {
            let part = Part { expert: Some(expert), ..part.clone() };
            (0..part.shape[0]).try_for_each(|row| write_row(&part, row, part.shape[1], draw, out))?;
        }
    }
    Ok(())
}

/// Writes the parts of a tensor side by side, each transposed. All parts are in memory at once.
fn write_side_by_side(held: &Held, draw: &Draw, out: &mut dyn Write) -> io::Result<()> {
    let inputs = held.shape[0];
    let mut rows = Vec::new();
    for group in 0..held.groups {
        for part in &held.parts {
            let share = part.shape[0] / held.groups;
            rows.extend((group * share..(group + 1) * share).map(|row| drawn(part, row, inputs, draw)));
        }
    }
    (0..inputs).try_for_each(|input| write_entries(&rows.iter().map(|row| row[input]).collect::<Vec<_>>(), out))
}

fn drawn(part: &Part, row: usize, columns: usize, draw: &Draw) -> Vec<f32> {
    match part.start {
        Start::Constant(value) | Start::StepBiases(StepBias::Value(value)) => vec![value as f32; columns],
        Start::LogRates(Rates::Counted) if columns > 1 => (1..=columns).map(|rate| (rate as f32).ln()).collect(),
        Start::LogRates(Rates::Counted) => vec![((row + 1) as f32).ln()],
        Start::LogRates(Rates::Uniform { low, high }) => {
            between([low, high], part, row, columns, draw).into_iter().map(f32::ln).collect()
        }
        Start::StepBiases(StepBias::LogUniform { low, high }) => {
            let logarithms = between([low.ln(), high.ln()], part, row, columns, draw);
            logarithms.into_iter().map(|ln| ln.exp().exp_m1().ln()).collect()
        }
        Start::Drawn(init) => {
            let mut entries = vec![0.0; columns];
            draw(&Tensor { name: part.parameters[0].clone(), init }, part.expert, part.shape[0], row, &mut entries);
            entries
        }
    }
}

/// Returns uniform samples between two bounds.
fn between([low, high]: [f64; 2], part: &Part, row: usize, columns: usize, draw: &Draw) -> Vec<f32> {
    let mut entries = vec![0.0; columns];
    let init = Init::Uniform { bound: 1.0 };
    draw(&Tensor { name: part.parameters[0].clone(), init }, part.expert, part.shape[0], row, &mut entries);
    entries.into_iter().map(|entry| (0.5 * (low + high)) as f32 + (0.5 * (high - low)) as f32 * entry).collect()
}

fn write_entries(entries: &[f32], out: &mut dyn Write) -> io::Result<()> {
    out.write_all(entries.iter().flat_map(|entry| entry.to_le_bytes()).collect::<Vec<u8>>().as_slice())
}
