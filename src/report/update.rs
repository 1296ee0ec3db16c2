//! First updates: for people, CSV, JSON.

use std::io::{self, Write};

use serde::Serialize;
use sigprop_stack::Number;

use super::csv::{text, write_rows};
use super::json::within_f64;
use super::ln;
use super::table::selected_table;
use crate::numerals::short;
use crate::update::{FirstUpdate, UpdateRow};

/// Columns of [`update_csv`].
const COLUMNS: [&str; 7] =
    ["layer", "tensor", "update_rms", "relative_update", "output_change_rms", "relative_output_change", "loss_drop"];

/// The first step of every tensor, and of all together.
pub fn update_table(update: &FirstUpdate, out: &mut dyn Write) -> io::Result<()> {
    let header = ["tensor", "update", "/weight", "Δ output", "/output", "loss drop"];
    let rows = update.rows.iter().map(|row| {
        let numbers = row.numbers().map(|number| number.map(short).unwrap_or_default());
        (row.layer, [row.tensor.clone()].into_iter().chain(numbers).collect())
    });
    selected_table(&header, rows.collect(), out)?;
    writeln!(out, "(root mean squares; loss drop: to first order, {} in all)", short(update.loss_drop))
}

/// The first step of every tensor; what does not exist is blank.
pub fn update_csv(update: &FirstUpdate, out: &mut dyn Write) -> io::Result<()> {
    write_rows(out, &COLUMNS, |writer| {
        for row in &update.rows {
            writer.write_field(row.layer.to_string())?;
            writer.write_field(&row.tensor)?;
            for number in row.numbers() {
                writer.write_field(text(number))?;
            }
            writer.write_record(None::<&[u8]>)?;
        }
        Ok(())
    })
}

impl UpdateRow {
    /// In the order of the columns.
    fn numbers(&self) -> [Option<Number>; 5] {
        let Self { update, relative_update, output_change, relative_output_change, loss_drop, layer: _, tensor: _ } =
            self;
        [Some(*update), *relative_update, *output_change, *relative_output_change, Some(*loss_drop)]
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
        let [update_rms, relative_update, output_change_rms, relative_output_change, loss_drop] =
            numbers.map(within_f64);
        let [ln_update_rms, _, ln_output_change_rms, _, ln_loss_drop] = numbers.map(ln);
        Self {
            layer: row.layer,
            tensor: &row.tensor,
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
