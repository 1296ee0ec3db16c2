//! The presets and their costs: rows and JSON.

use std::io::{self, Write};

use serde::Serialize;

use super::{Rows, SCHEMA_VERSION, json::CostJson};
use crate::cost::Cost;

/// A preset, and the cost of its training on sequences of the preset's own length.
#[derive(Clone, Debug, PartialEq)]
pub struct PresetCost {
    /// Name of the preset.
    pub name: &'static str,
    /// Number of blocks of its (first) stream.
    pub n_layers: usize,
    /// Width of its (first) stream.
    pub d_model: usize,
    /// The scheme that draws its weights.
    pub scheme: String,
    /// Parameters, FLOPs and memory.
    pub cost: Cost,
}

/// Returns one row per preset.
pub fn models_rows(models: &[PresetCost]) -> Rows {
    let columns = [
        "name",
        "n_layers",
        "d_model",
        "scheme",
        "parameters",
        "flops_forward_per_token",
        "flops_backward_per_token",
        "activation_bytes",
    ];
    let rows = models.iter().map(|model| {
        let ModelJson { name, n_layers, d_model, scheme, cost } = ModelJson::of(model);
        [
            name.into(),
            n_layers.into(),
            d_model.into(),
            scheme.into(),
            cost.parameters.into(),
            cost.flops_forward_per_token.into(),
            cost.flops_backward_per_token.into(),
            cost.activation_bytes.into(),
        ]
    });
    Rows::new(columns, rows)
}

/// Writes the presets and their costs as one JSON document.
pub fn models_json(models: &[PresetCost], out: &mut dyn Write) -> io::Result<()> {
    let document = ModelsJson {
        schema_version: SCHEMA_VERSION,
        version: env!("CARGO_PKG_VERSION"),
        models: models.iter().map(ModelJson::of).collect(),
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

#[derive(Serialize)]
struct ModelsJson<'a> {
    schema_version: u32,
    version: &'static str,
    models: Vec<ModelJson<'a>>,
}

#[derive(Serialize)]
struct ModelJson<'a> {
    name: &'static str,
    n_layers: usize,
    d_model: usize,
    scheme: &'a str,
    #[serde(flatten)]
    cost: CostJson,
}

impl<'a> ModelJson<'a> {
    fn of(model: &'a PresetCost) -> Self {
        let PresetCost { name, n_layers, d_model, scheme, cost } = model;
        Self { name, n_layers: *n_layers, d_model: *d_model, scheme, cost: CostJson::of(cost) }
    }
}
