//! `sigprop recommend`: an initialisation that meets demands.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use super::{
    Outcome,
    caveats::write_caveats,
    console::{Console, Paint, write_verdict},
    description::{AverageArguments, DescriptionArguments},
    output::{DataArguments, Format},
    parse,
    prose::write_indented,
};
use crate::{
    compare::MARGIN_FORMATS,
    numerals::short,
    recommend,
    recommend::{Demands, Nearest, Recommendation},
    report::{recommendation_json, recommendation_rows, recommendation_tables},
    stack_file::stack_json,
};
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};

/// Recommend an initialisation that meets demands on the network.
#[derive(Args, Debug)]
#[command(after_help = "\
Five numbers are searched: gains on the stds 1/√fan_in of queries and keys, of
values and attention output, and of the feed-forward network; the std of the
embeddings; and the ratio of branch to skip, whose squares sum to 1. Of all
that meet the demands, the nearest to gains of 1 and equal shares is taken.
The search uses the mean-field theory; --theory decides which theory judges
the result, and which numbers are printed.

Rows (--format csv) are the stds of all tensors. `without` is the result
without a demand that is at its limit. Exit status 1: the demands exclude each
other, and the output says which one is relaxed.

Examples:
  sigprop recommend --layers 192 --norm-placement post
  sigprop recommend gpt2 --max-correlation 0.5 --dump-stack stack.json
  sigprop recommend llama-7b --theory mean-field         faster
  sigprop validate --stack stack.json                    sampled networks
  sigprop predict gpt2 --scheme gains:1,0.7,0.9,1,0.2    a result, or another")]
pub(crate) struct Arguments {
    #[command(flatten)]
    description: DescriptionArguments,

    #[command(flatten)]
    averages: AverageArguments,

    #[command(flatten)]
    demands: DemandArguments,

    #[command(flatten)]
    data: DataArguments,

    /// Also write the network with the recommended numbers as JSON; `-` writes it to standard output instead of
    /// everything else.
    #[arg(long, value_name = "FILE", help_heading = "Stack files")]
    dump_stack: Option<PathBuf>,
}

/// The demands on the network.
#[derive(Args, Debug)]
#[command(next_help_heading = "Demands")]
struct DemandArguments {
    /// Largest factor on the variance of the stream over all blocks, or its inverse; `none` sets no limit.
    #[arg(long, value_name = "X", default_value = "2", value_parser = parse::factor_limit)]
    max_forward_growth: parse::Limit,

    /// Largest ratio of the gradient norms of one weight matrix over the blocks.
    #[arg(long, value_name = "X", default_value = "3", value_parser = parse::factor_limit)]
    max_gradient_ratio: parse::Limit,

    /// Largest correlation between tokens after the last block.
    #[arg(long, value_name = "R", default_value = "0.9", value_parser = parse::share_limit)]
    max_correlation: parse::Limit,

    /// Largest standard deviation of attention scores.
    #[arg(long, value_name = "X", default_value = "1", value_parser = parse::positive_limit)]
    max_score_std: parse::Limit,

    /// Float format that the stream must fit, in its tails and in its precision.
    #[arg(long, value_name = "FORMAT", default_value = "bf16", value_parser = format())]
    dtype: usize,
}

/// Parses the name of a format. Returns its index in `MARGIN_FORMATS`.
fn format() -> impl TypedValueParser<Value = usize> {
    let place = |name: String| MARGIN_FORMATS.iter().position(|format| format.name == name);
    PossibleValuesParser::new(MARGIN_FORMATS.map(|format| format.name)).map(move |name| place(name).expect("a format"))
}

impl DemandArguments {
    fn demands(&self) -> Demands {
        Demands {
            max_forward_growth: self.max_forward_growth.0,
            max_gradient_ratio: self.max_gradient_ratio.0,
            max_correlation: self.max_correlation.0,
            max_score_std: self.max_score_std.0,
            format: Some(self.dtype),
        }
    }
}

impl Arguments {
    pub(crate) fn run(self, console: Console) -> anyhow::Result<Outcome> {
        let Some(described) = self.description.begin(self.averages, None, console)? else { return Ok(Outcome::Done) };
        let bar = console.waiting("searching: {pos} predictions, {elapsed}");
        let recommendation = recommend(&described.setting, &self.demands.demands(), &|| bar.inc(1));
        bar.finish_and_clear();
        let recommendation = recommendation?;
        if let Some(path) = &self.dump_stack {
            console.emit(Some(path), |out| stack_json(&recommendation.stack, out))?;
            if path == Path::new("-") {
                return Ok(gate(&recommendation, console));
            }
        }
        let title = described.title();
        console.emit(self.data.output.as_ref(), |out| match self.data.format() {
            Format::Table => {
                let paint = self.data.paint(console);
                writeln!(out, "{title}\n")?;
                write_recommendation(&recommendation, paint, out)
            }
            Format::Rows(format) => recommendation_rows(&recommendation).write(format, out),
            Format::Json => recommendation_json(&recommendation, out),
        })?;
        console.tell(|out, _| {
            write_caveats(&described.caveats, console, out)?;
            write_caveats(&recommendation.summary.caveats, console, out)
        });
        Ok(gate(&recommendation, console))
    }
}

fn write_recommendation(recommendation: &Recommendation, paint: Paint, out: &mut dyn Write) -> io::Result<()> {
    let Recommendation { scheme, summary, nearest, without, .. } = recommendation;
    writeln!(out, "--scheme {scheme}\n")?;
    recommendation_tables(recommendation, out)?;
    writeln!(out)?;
    if let Some(Nearest { scheme, distance }) = nearest {
        let text =
            format!("{scheme}; stds and scales differ by a factor of {}, root mean square", short(distance.exp()));
        write_indented("Nearest named scheme: ", 22, &text, out)?;
    }
    for (demand, scheme) in without {
        write_indented("Without ", 8, &format!("--{} {}: {scheme}", demand.name(), demand.limit()), out)?;
    }
    writeln!(out)?;
    write_verdict(&summary.verdict, paint, out)
}

/// Reports the demands that the recommended network does not meet. Returns the outcome of the command.
fn gate(recommendation: &Recommendation, console: Console) -> Outcome {
    for outcome in recommendation.outcomes.iter().filter(|outcome| !outcome.is_met()) {
        let reached = outcome.reached.map_or("none".to_owned(), short);
        let (name, limit) = (outcome.demand.name(), outcome.demand.limit());
        console.failed(&format!("the demands exclude each other: --{name} {limit} gives way, {reached} is reached"));
    }
    if recommendation.is_feasible() { Outcome::Done } else { Outcome::GateFailed }
}
