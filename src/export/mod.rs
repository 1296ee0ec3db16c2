//! Exported plans: the initialisation of every parameter, for programs that do not know sigprop.
//!
//! [`plan_json`] writes it by name pattern, [`init_py`] as a PyTorch function that applies it, and [`checkpoint()`]
//! writes the drawn parameters themselves.

mod checkpoint;
mod plan;
#[cfg(test)]
mod tests;

pub use checkpoint::{Draw, checkpoint};
pub use plan::Plan;

use std::io::{self, Write};

/// A Python module with the function `initialise(model, seed)`; `@PLAN@` is replaced by the JSON of a plan.
pub const INIT_PY: &str = include_str!("init.py");

/// Writes a plan as JSON.
pub fn plan_json(plan: &Plan, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, plan)?;
    writeln!(out)
}

/// Writes a plan as a Python module with the function `initialise(model, seed)`.
pub fn init_py(plan: &Plan, out: &mut dyn Write) -> io::Result<()> {
    let json = serde_json::to_string_pretty(plan)?;
    // The JSON becomes a raw string in triple quotes. It cannot contain three quotes in a row, because quotes in it are
    // escaped.
    out.write_all(INIT_PY.replace("@PLAN@", &json).as_bytes())
}
