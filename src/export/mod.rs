//! Plans that travel: what every parameter starts with, for programs that know nothing of sigprop.
//!
//! [`plan_json`] tells it by name pattern, [`init_py`] is a PyTorch function that does it, [`checkpoint()`] the drawn
//! parameters themselves.

mod checkpoint;
mod plan;
#[cfg(test)]
mod tests;

pub use checkpoint::{Draw, checkpoint};
pub use plan::Plan;

use std::io::{self, Write};

/// A Python module with the function `initialise(model, seed)`; `@PLAN@` stands for the JSON of a plan.
pub const INIT_PY: &str = include_str!("init.py");

/// Writes a plan as JSON.
pub fn plan_json(plan: &Plan, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, plan)?;
    writeln!(out)
}

/// Writes a plan as a Python module with the function `initialise(model, seed)`.
pub fn init_py(plan: &Plan, out: &mut dyn Write) -> io::Result<()> {
    let json = serde_json::to_string_pretty(plan)?;
    // JSON in a raw string of Python: it has no triple quotes, for quotes in it are escaped.
    out.write_all(INIT_PY.replace("@PLAN@", &json).as_bytes())
}
