//! `sigprop models`: the presets and their costs.

use std::io::{self, Write};

use crate::{
    assemble::{Input, Run, assemble},
    cost::Cost,
    numerals::grouped,
    presets::{PRESETS, Preset},
    report::{PresetCost, models_json, models_rows, plain_table},
    schemes::Scheme,
};
use clap::Args;

use super::{
    Outcome,
    console::Console,
    output::{DataArguments, Format},
};

/// List the presets with their size and cost.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sigprop models
  sigprop models --format csv -o models.csv
  sigprop predict gpt2                             one of them

A network that is no preset and has no Hugging Face config is described by a
model file in TOML or JSON: docs/model-files.md lists all keys.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    data: DataArguments,
}

impl Arguments {
    pub(crate) fn run(self, console: Console) -> anyhow::Result<Outcome> {
        let models = PRESETS.iter().map(preset_cost).collect::<anyhow::Result<Vec<_>>>()?;
        console.emit(self.data.output.as_ref(), |out| match self.data.format() {
            Format::Table => write_table(&models, out),
            Format::Rows(format) => models_rows(&models).write(format, out),
            Format::Json => models_json(&models, out),
        })?;
        Ok(Outcome::Done)
    }
}

fn preset_cost(preset: &Preset) -> anyhow::Result<PresetCost> {
    let (architecture, names) = preset.architecture_and_names();
    let scheme = Scheme::parse(architecture.scheme.as_deref().unwrap_or("xavier"))?;
    let run = Run { train: true, ..Run::default() };
    let stack = assemble(&architecture, &scheme, &Input::default(), &run)?.stack;
    let cost = Cost::of(&stack, Some(&architecture))?.with_names(&stack, &names)?;
    Ok(PresetCost {
        name: preset.name,
        n_layers: architecture.n_layers,
        d_model: architecture.d_model,
        scheme: scheme.to_string(),
        cost,
    })
}

fn write_table(models: &[PresetCost], out: &mut dyn Write) -> io::Result<()> {
    let header = ["model", "blocks", "width", "scheme", "params", "FLOPs fwd", "FLOPs bwd", "activations"];
    let rows = models.iter().map(|PresetCost { name, n_layers, d_model, scheme, cost }| {
        vec![
            (*name).to_owned(),
            n_layers.to_string(),
            d_model.to_string(),
            scheme.split(':').next().unwrap_or_default().to_owned(),
            scaled(cost.parameters as f64, 1000.0, ""),
            scaled(cost.flops_forward_per_token, 1000.0, ""),
            scaled(cost.flops_backward_per_token, 1000.0, ""),
            scaled(cost.activation_bytes, 1024.0, "iB"),
        ]
    });
    plain_table(&header, rows, out)?;
    writeln!(out, "(FLOPs per token; memory of activations for the backward pass of one sequence)")
}

/// Writes the cost lines of a prediction.
pub(crate) fn write_cost(cost: &Cost, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "Parameters:         {}", grouped(cost.parameters))?;
    let [forward, backward] =
        [cost.flops_forward_per_token, cost.flops_backward_per_token].map(|flops| scaled(flops, 1000.0, "FLOP"));
    writeln!(out, "Compute per token:  {forward} forward, {backward} backward")?;
    let memory = scaled(cost.activation_bytes, 1024.0, "iB");
    writeln!(out, "Activation memory:  {memory} per sequence, 2 bytes per entry")
}

/// Formats a number with three digits and a prefix: `124 M`, `1.56 G`, `345 MiB`.
fn scaled(value: f64, step: f64, unit: &str) -> String {
    let prefixes = ["", "k", "M", "G", "T", "P", "E", "Z", "Y"];
    let mut value = value;
    let mut index = 0;
    while value >= 0.9995 * step && index + 1 < prefixes.len() {
        value /= step;
        index += 1;
    }
    let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    let prefix = if unit == "iB" && index == 1 { "K" } else { prefixes[index] };
    let unit = if unit == "iB" && index == 0 { "B" } else { unit };
    format!("{value:.decimals$} {prefix}{unit}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::scaled;

    #[test]
    fn three_digits_and_a_prefix() {
        assert_eq!(scaled(124_439_808.0, 1000.0, ""), "124 M");
        assert_eq!(scaled(999_700.0, 1000.0, "FLOP"), "1.00 MFLOP");
        assert_eq!(scaled(1536.0, 1024.0, "iB"), "1.50 KiB");
        assert_eq!(scaled(12.0, 1024.0, "iB"), "12.0 B");
    }
}
