//! `sigprop phase`: a map of where a network can be trained.

use std::iter;

use crate::{
    compare::Subject,
    phase::{Axis, Map, Phase, PhaseError},
    report::{Picture, edges_rows, phase_json, phase_rows, phase_table},
    schemes::Scheme,
};
use anyhow::bail;
use clap::Args;

use super::{
    Outcome,
    caveats::write_caveats,
    console::Console,
    description::{AverageArguments, Described, DescriptionArguments, identity},
    model::SchemeArguments,
    output::{DataArguments, Format},
    plot::PlotArguments,
    resume::{Items, ResumeArguments},
};

/// Map where a network can be trained, over two of its numbers.
#[derive(Args, Debug)]
#[command(
    mut_arg("plot", |plot| plot.help("Also draw the map: where failures are, and the edges where they begin; *.svg, *.png or *.pdf")),
    after_help = "\
Numbers that can be varied:
  weight-gain             factor on the weights of all linear maps of the blocks
  embedding-gain          factor on the tables of embeddings
  score-gain              factor on attention scores before the softmax
  branch-scale            factor on the output of branches, as --branch-scale
  skip-scale              factor on skip connections, as --skip-scale
  bias-std                standard deviation of the biases of the blocks
  layers                  number of blocks; not with --stack
  an argument of --scheme, in place of the given one: k and alpha of dslm, std
                          of normal, qk, value, ffn, embedding, ratio of gains
Gains multiply the scheme's weights: with --scheme lecun a weight-gain is σ_w
of σ_w²/fan_in.

Columns per cell (--format csv):
  x, y                    values of --x and --y
  forward_depth           number of blocks over which the variance of the
                          stream grows by e, in the deeper half; negative: it
                          falls; blank: it does not change
  backward_depth          this number for the gradient, from the output on
  correlation_depth       number of blocks over which the token correlation
                          comes e times closer to its limit; blank: it does
                          not change, or does not converge
  token_correlation       after the last block
  failures, verdict       as in `sigprop predict --fail-on`
  rule                    the rule of the verdict
Edges are the places where a failure begins. They are found by bisection
between cells once all cells are known; with shards, by the run that gathers.

Examples:
  sigprop phase --layers 192 --x weight-gain=0.2..5 \\
          --y branch-scale=0.05..2 --plot map.svg
  sigprop phase gpt2 --batch 1 --x weight-gain=0.5..8:9 --y score-gain=0.5..8:9
  sigprop phase mlp --layers 400 --activation tanh --scheme lecun \\
          --x weight-gain=0.8..2:25:linear --y bias-std=0..0.5
  sigprop phase --norm-placement post --scheme xavier \\
          --x weight-gain=0.5..2 --y layers=4..1000
  sigprop phase --scheme dslm --x k=0.5..4 --y alpha=0.5..1.5 --edges
Continued after an interruption; and a quarter of the cells:
  sigprop phase gpt2 --x weight-gain=1..8 --y layers=4..96 --resume map
  sigprop phase gpt2 --x weight-gain=1..8 --y layers=4..96 --resume map \\
          --shard 2/4"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    description: DescriptionArguments,

    #[command(flatten)]
    scheme: SchemeArguments,

    /// Number varied to the right: its name, its range, how many values [default: 17]; logarithmic if LOW is above
    /// zero, unless `:linear`.
    #[arg(long, value_name = "NAME=LOW..HIGH[:N][:linear]", help_heading = "Map", allow_hyphen_values = true)]
    x: Axis,

    /// Number varied upwards, in the same form.
    #[arg(long, value_name = "NAME=LOW..HIGH[:N][:linear]", help_heading = "Map", allow_hyphen_values = true)]
    y: Axis,

    #[command(flatten)]
    averages: AverageArguments,

    /// In rows, write the vertices of the edges instead of the cells.
    #[arg(long, help_heading = "Output")]
    edges: bool,

    #[command(flatten)]
    data: DataArguments,

    #[command(flatten)]
    plot: PlotArguments,

    #[command(flatten)]
    resume: ResumeArguments,
}

impl Arguments {
    pub(crate) fn run(self, console: Console) -> anyhow::Result<Outcome> {
        let Some(described) = self.description.begin(self.averages, self.scheme.text(), console)? else {
            return Ok(Outcome::Done);
        };
        let format = self.data.format();
        if self.edges && !matches!(format, Format::Rows(_)) {
            bail!("--edges: expected --format csv, jsonl or md; tables and JSON have cells and edges");
        }
        let axes = [self.x.clone(), self.y.clone()];
        for axis in &axes {
            if self.description.shape.gives(&axis.name) {
                bail!("--{} is given and varied; expected one of both", axis.name);
            }
        }
        self.plot.claim()?;
        let setting = &described.setting;
        let scheme = match &setting.subject {
            Subject::Described { architecture, .. } => self.scheme.scheme(architecture.scheme.as_deref())?,
            Subject::Stack(_) if self.scheme.given().is_none() => {
                bail!(
                    "--stack: expected --scheme NAME too, got none; the numbers that are varied are relative to a scheme"
                )
            }
            Subject::Stack(_) => self.scheme.scheme(None)?,
        };
        let map = Map::new(setting, &scheme, &axes)?;
        let places = map.places();
        let axes = axes.iter().zip(["x", "y"]).map(|(axis, name)| (name, axis.to_string()));
        let run = iter::once(("scheme", scheme.to_string())).chain(axes).chain(identity(setting)).collect();
        let cells = Items { what: "cells", count: places.len(), run };
        self.resume.run(&cells, &|index| map.outcome(places[index]), console, |outcomes, cancelled| {
            match map.phase(outcomes, cancelled) {
                Err(PhaseError::Cancelled) => return Ok(Outcome::Interrupted),
                found => self.write(&described, &scheme, &found?, console)?,
            }
            Ok(Outcome::Done)
        })
    }

    fn write(&self, described: &Described, scheme: &Scheme, map: &Phase, console: Console) -> anyhow::Result<()> {
        let title = format!("{}, scheme {scheme}", described.title());
        self.plot.draw(console, || Picture::of_phase(&title, map))?;
        console.emit(self.data.output.as_ref(), |out| match self.data.format() {
            Format::Table => {
                writeln!(out, "{title}\n")?;
                phase_table(map, out)
            }
            Format::Rows(format) if self.edges => edges_rows(map).write(format, out),
            Format::Rows(format) => phase_rows(map).write(format, out),
            Format::Json => phase_json(&described.title(), &scheme.to_string(), map, out),
        })?;
        let used = map.cells.iter().filter(|cell| cell.outcome.as_ref().is_ok_and(|point| !point.caveats.is_empty()));
        match used.count() {
            0 => {}
            count => console.note(&format!(
                "{count} of {} cells have caveats; --format csv lists them in its last column",
                map.cells.len()
            )),
        }
        console.tell(|out, _| write_caveats(&described.caveats, console, out));
        Ok(())
    }
}
