//! First updates: a table for people, rows, JSON.

use std::io::{self, Write};

use serde::Serialize;
use sigprop_stack::Number;

use super::numbers::within_f64;
use super::table::selected_table;
use super::{Rows, ln};
use crate::first_step::{FirstUpdate, UpdateRow};
use crate::numerals::short;

/// Columns of [`update_rows`].
const COLUMNS: [&str; 8] = [
    "layer",
    "tensor",
    "learning_rate",
    "update_rms",
    "relative_update",
    "output_change_rms",
    "relative_output_change",
    "loss_drop",
];

/// Writes the first step of every tensor relative to its weights, and the total drop of the loss. A weight has the name
/// of the site of its linear map.
pub fn update_table(update: &FirstUpdate, out: &mut dyn Write) -> io::Result<()> {
    let header = ["tensor", "Δw/w", "Δy/y", "drop"];
    let rows = update.rows.iter().map(|row| {
        let [_, _, relative_update, _, relative_change, loss_drop] = row.numbers();
        let numbers = [relative_update, relative_change, loss_drop];
        let numbers = numbers.map(|number| number.map(short).unwrap_or_default());
        let name = row.tensor.strip_suffix(".weight").unwrap_or(&row.tensor).to_owned();
        (row.layer, [name].into_iter().chain(numbers).collect())
    });
    selected_table(&header, rows.collect(), out)?;
    writeln!(out, "(root mean squares; y: output of a map, unknown for keys, and near φ by adam;")?;
    writeln!(out, " loss drop: to first order, {} in all; --format csv has Δw and Δy)", short(update.loss_drop))
}

/// Returns the first step of every tensor.
pub fn update_rows(update: &FirstUpdate) -> Rows {
    let rows = update.rows.iter().map(|row| {
        let [rate, update, relative_update, change, relative_change, loss_drop] = row.numbers().map(Into::into);
        [
            row.layer.into(),
            row.tensor.as_str().into(),
            rate,
            update,
            relative_update,
            change,
            relative_change,
            loss_drop,
        ]
    });
    Rows::new(COLUMNS, rows)
}

impl UpdateRow {
    /// Returns the numbers in the order of the columns.
    fn numbers(&self) -> [Option<Number>; 6] {
        let Self {
            layer: _,
            tensor: _,
            learning_rate,
            update,
            relative_update,
            output_change,
            relative_output_change,
            loss_drop,
        } = self;
        [
            Some(*learning_rate),
            Some(*update),
            *relative_update,
            *output_change,
            *relative_output_change,
            Some(*loss_drop),
        ]
    }
}

#[derive(Serialize)]
pub(super) struct UpdateJson<'a> {
    loss_drop: Option<f64>,
    ln_loss_drop: Option<f64>,
    tensors: Vec<UpdateRowJson<'a>>,
}

#[derive(Serialize)]
struct UpdateRowJson<'a> {
    layer: i64,
    tensor: &'a str,
    learning_rate: Option<f64>,
    update_rms: Option<f64>,
    relative_update: Option<f64>,
    output_change_rms: Option<f64>,
    relative_output_change: Option<f64>,
    loss_drop: Option<f64>,
    ln_update_rms: Option<f64>,
    ln_output_change_rms: Option<f64>,
    ln_loss_drop: Option<f64>,
}

impl<'a> UpdateJson<'a> {
    pub(super) fn of(update: &'a FirstUpdate) -> Self {
        let loss_drop = Some(update.loss_drop);
        let tensors = update.rows.iter().map(UpdateRowJson::of).collect();
        Self { loss_drop: within_f64(loss_drop), ln_loss_drop: ln(loss_drop), tensors }
    }
}

impl<'a> UpdateRowJson<'a> {
    fn of(row: &'a UpdateRow) -> Self {
        let numbers = row.numbers();
        let [learning_rate, update_rms, relative_update, output_change_rms, relative_output_change, loss_drop] =
            numbers.map(within_f64);
        let [_, ln_update_rms, _, ln_output_change_rms, _, ln_loss_drop] = numbers.map(ln);
        Self {
            layer: row.layer,
            tensor: &row.tensor,
            learning_rate,
            update_rms,
            relative_update,
            output_change_rms,
            relative_output_change,
            loss_drop,
            ln_update_rms,
            ln_output_change_rms,
            ln_loss_drop,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_names_fit_a_terminal() {
        let number = Number::from(1.234e-5);
        let row = |tensor: &str| UpdateRow {
            layer: 11,
            tensor: format!("decoder.blocks.11.cross_attention.heads.value.{tensor}"),
            learning_rate: number,
            update: number,
            relative_update: Some(number),
            output_change: Some(number),
            relative_output_change: Some(number),
            loss_drop: number,
        };
        let mut out = Vec::new();
        let update = FirstUpdate { rows: vec![row("weight"), row("bias")], loss_drop: number };
        update_table(&update, &mut out).expect("a vector takes everything");
        let text = String::from_utf8(out).expect("text");
        assert!(text.contains(" 1.234e-5"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
