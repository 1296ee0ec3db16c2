//! `sigprop predict`: what theory says.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use clap::{Args, ValueEnum};
use sigprop::{
    Caveat, Options, Prediction, predict,
    report::{PredictionDocument, prediction_json, sites_csv, sites_table, weights_csv, weights_table},
    verdict::{Failure, Verdict},
};

use super::{
    Outcome,
    console::{Console, Paint, write_verdict},
    export::export,
    model::{ModelArguments, Network},
    models::write_cost,
    output::{Format, SiteChoice, emit},
    parse,
    prose::write_indented,
};

/// Predict the size of signals and gradients at every block, and what it means.
#[derive(Args, Debug)]
#[command(after_help = "\
Columns, averaged over initialisations, masks, inputs, positions and features:
  mean                    of one entry
  variance                of one entry: E x² − mean²
  token_correlation       (E x_a x_b − mean²)/variance over pairs of tokens a ≠ b
  grad_variance           E g², g the gradient with respect to this site for independent N(0, 1)
                          gradients at the end (--grad-correlation correlates them)
  grad_token_correlation  E g_a g_b/E g² over pairs of tokens
  ln_…                    natural logarithm, finite where the number leaves f64
  …_first, …_last         at the first and the last position
  ln_…_std (±)            standard deviation over networks of the ln of one network's own value

Examples:
  sigprop predict --layers 768 --scheme dslm
  sigprop predict gpt2 --scheme xavier --norm-placement post
  sigprop predict mlp --layers 30 --width 256 --activation relu --scheme uniform:1
  sigprop predict bert-base --train --format csv -o bert.csv
  sigprop predict config.json --scheme dslm --export init.py  how to draw such a model in PyTorch
  sigprop predict --layers 48 --fail-on explosion,vanishing   exit status 1 if it does")]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelArguments,

    /// How to write the data.
    #[arg(long, value_enum, default_value_t = Format::Table, help_heading = "Output")]
    format: Format,

    /// Write the data to a file; `-` is standard output.
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,

    /// Also write what every parameter starts with: *.json is a plan by name pattern, *.py a PyTorch function that
    /// draws it, *.safetensors the drawn parameters (--seed). Names are those of transformers for its configs.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    export: Vec<PathBuf>,

    /// Which sites to tell.
    #[arg(long, value_enum, default_value_t = SiteChoice::Stream, help_heading = "Output")]
    sites: SiteChoice,

    /// Tell the weights and their gradients: a second table; in CSV instead of the sites.
    #[arg(long, help_heading = "Output")]
    weights: bool,

    /// Sequences of ids to draw and average over, where tokens are not exchangeable.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = parse::count, allow_negative_numbers = true, help_heading = "Averages")]
    batch: usize,

    /// Same seed, same sequences and exported parameters.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, help_heading = "Averages")]
    seed: u64,

    /// Exit with status 1 if any of these is found.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT", help_heading = "Gates")]
    fail_on: Vec<FailOn>,
}

/// What a run can be failed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FailOn {
    /// Signals or gradients explode.
    Explosion,
    /// Signals or gradients vanish.
    Vanishing,
    /// Tokens become copies of each other.
    Collapse,
}

impl From<Failure> for FailOn {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Explosion => Self::Explosion,
            Failure::Vanishing => Self::Vanishing,
            Failure::Collapse => Self::Collapse,
        }
    }
}

impl Arguments {
    pub(crate) fn run(self, console: Console) -> anyhow::Result<Outcome> {
        if self.model.explain()? {
            return Ok(Outcome::Done);
        }
        let network = self.model.network()?;
        if self.model.dump(&network.stack)? {
            return Ok(Outcome::Done);
        }
        export(&self.export, &network, self.seed)?;
        let options = Options { sites: self.sites.into(), sequences: self.batch, seed: self.seed };
        let mut prediction = predict(&network.stack, options)?;
        prediction.caveats.splice(0..0, network.caveats.iter().cloned());
        let verdict = Verdict::of(&prediction.table, network.shape());
        emit(self.output.as_ref(), |out| match self.format {
            Format::Table => {
                let paint = if self.output.is_none() { console.paint(&io::stdout()) } else { Paint(false) };
                self.write_tables(&network, &prediction, &verdict, paint, out)
            }
            Format::Csv if self.weights => weights_csv(&prediction.table, out),
            Format::Csv => sites_csv(&prediction.table, out),
            Format::Json => {
                let document = PredictionDocument {
                    stack: &network.stack,
                    prediction: &prediction,
                    weights: self.weights,
                    verdict: &verdict,
                    cost: &network.cost,
                };
                prediction_json(&document, out)
            }
        })?;
        if self.format != Format::Table {
            console.tell(|out, paint| {
                write_verdict(&verdict, paint, out)?;
                write_caveats(&prediction.caveats, out)
            });
        }
        Ok(self.gate(&verdict, console))
    }

    fn write_tables(
        &self,
        network: &Network,
        prediction: &Prediction,
        verdict: &Verdict,
        paint: Paint,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        writeln!(out, "{}\n", network.title())?;
        sites_table(&prediction.table, out)?;
        writeln!(out)?;
        if self.weights {
            weights_table(&prediction.table, out)?;
            writeln!(out)?;
        }
        write_cost(&network.cost, out)?;
        writeln!(out)?;
        write_verdict(verdict, paint, out)?;
        write_caveats(&prediction.caveats, out)
    }

    fn gate(&self, verdict: &Verdict, console: Console) -> Outcome {
        let mut outcome = Outcome::Done;
        for (failure, finding) in verdict.failures() {
            if self.fail_on.contains(&failure.into()) {
                console.failed(&finding.text);
                outcome = Outcome::GateFailed;
            }
        }
        outcome
    }
}

/// Where the prediction is not quite of what was asked for, or uses a rule outside its range.
pub(crate) fn write_caveats(caveats: &[Caveat], out: &mut dyn Write) -> io::Result<()> {
    for Caveat { site, sites, text } in caveats {
        let others = if *sites > 1 { format!(" and {} more", sites - 1) } else { String::new() };
        write_indented("Caveat: ", 8, &format!("{site}{others}: {text}"), out)?;
    }
    Ok(())
}
