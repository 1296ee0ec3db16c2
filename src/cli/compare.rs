//! `sigprop compare`: schemes side by side.

use std::{
    io::{self, Write},
    iter,
};

use crate::{
    compare::{Candidate, Column, WorstTensor, all_schemes, candidate, default_schemes, sort},
    report::{Drawn, Picture, comparison_html, comparison_json, comparison_rows, comparison_tables},
    schemes::{Scheme, SchemeError},
    verdict::Finding,
};
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};

use super::{
    Outcome,
    caveats::write_caveats,
    console::Console,
    description::{AverageArguments, Described, DescriptionArguments, identity},
    export::drawn,
    output::{DataArguments, Format},
    plot::PlotArguments,
    prose::write_indented,
    report::ReportArguments,
    resume::{Items, ResumeArguments},
};

/// Compare initialisation schemes on one network.
#[derive(Args, Debug)]
#[command(after_help = "\
Columns (--format csv; the table has shorter names):
  forward, backward       factor on the variance of the stream over all
                          blocks, and on that of its gradient
  …_per_block             this factor per block
  token_correlation       after the last block; 1: all tokens are the same
  score_std               √(E s²) of the largest scores before a softmax
  attended_tokens         1/ΣA² of the sharpest attention weights A
  gradient_ratio          largest over smallest gradient norm of one weight
                          matrix over the blocks
  worst_tensor            the tensor with the largest gradient norm;
                          …_ratio: this norm over the median of all tensors
  fp16_margin …           doublings or halvings of the stream that the format
                          allows; negative: it is exceeded
  verdict, rule           the verdict of `sigprop predict`, and its rule
  caveat                  why a scheme is not meant for the network

Examples:
  sigprop compare --layers 48
  sigprop compare --layers 48 --schemes all --sort verdict
  sigprop compare gpt2 --schemes gpt2,normal:0.02,dslm
  sigprop compare --layers 192 --norm-placement post --sort backward
  sigprop compare config.json --format csv -o schemes.csv --plot schemes.svg
  sigprop compare gpt2 --report schemes.html
Continued after an interruption; and every fourth scheme from the second on:
  sigprop compare gpt2 --schemes all --resume done
  sigprop compare gpt2 --schemes all --resume done --shard 2/4")]
pub(crate) struct Arguments {
    #[command(flatten)]
    description: DescriptionArguments,

    /// Schemes with their arguments, separated by commas, as `gpt2,normal:0.02,dslm:k=2,alpha=1`, or `all` schemes that
    /// need no argument [default: from every family, one that is meant for the network].
    #[arg(long, value_name = "LIST", value_parser = list, help_heading = "Initialisation")]
    schemes: Option<List>,

    #[command(flatten)]
    averages: AverageArguments,

    /// Sort by a column, ascending; `verdict` goes from healthy to failing [default: in the order of the schemes].
    #[arg(long, value_name = "COLUMN", value_parser = column(), help_heading = "Output")]
    sort: Option<Column>,

    #[command(flatten)]
    data: DataArguments,

    #[command(flatten)]
    plot: PlotArguments,

    #[command(flatten)]
    report: ReportArguments,

    #[command(flatten)]
    resume: ResumeArguments,
}

/// Several schemes in one argument.
#[derive(Clone, Debug)]
struct List(Vec<Scheme>);

fn list(text: &str) -> Result<List, SchemeError> {
    Ok(List(if text == "all" { all_schemes() } else { Scheme::parse_list(text)? }))
}

fn column() -> impl TypedValueParser<Value = Column> {
    let named = |name: String| Column::ALL.into_iter().find(|column| column.name() == name);
    PossibleValuesParser::new(Column::ALL.map(Column::name)).map(move |name| named(name).expect("one of the names"))
}

impl Arguments {
    pub(crate) fn run(self, console: Console) -> anyhow::Result<Outcome> {
        let Some(described) = self.description.begin(self.averages, None, console)? else { return Ok(Outcome::Done) };
        let schemes = match &self.schemes {
            Some(List(schemes)) => schemes.clone(),
            None => default_schemes(&described.setting.architecture())?,
        };
        self.plot.claim()?;
        self.report.claim()?;
        let names: Vec<String> = schemes.iter().map(Scheme::to_string).collect();
        let run = iter::once(("schemes", names.join(" "))).chain(identity(&described.setting)).collect();
        let items = Items { what: "schemes", count: schemes.len(), run };
        let predict = |index: usize| {
            let Candidate { outcome, caveats, scheme: _ } = candidate(&described.setting, &schemes[index], |_| {})?;
            Ok(outcome.map(|summary| (summary, caveats)))
        };
        self.resume.run(&items, &predict, console, |outcomes, _| {
            let candidates = schemes.iter().cloned().zip(outcomes).map(|(scheme, outcome)| {
                let (outcome, caveats) =
                    outcome.map_or_else(|error| (Err(error), Vec::new()), |(summary, caveats)| (Ok(summary), caveats));
                Candidate { scheme, outcome, caveats }
            });
            self.write(&described, candidates.collect(), console)?;
            Ok(Outcome::Done)
        })
    }

    fn write(&self, described: &Described, mut candidates: Vec<Candidate>, console: Console) -> anyhow::Result<()> {
        if let Some(column) = self.sort {
            sort(&mut candidates, column);
        }
        let title = described.title();
        self.plot.draw(console, || Picture::of_comparison(&title, &candidates))?;
        self.report.write(
            console.invocation(),
            (&title, self.averages.seed),
            || networks(described, &candidates),
            |out| comparison_tables(&candidates, out),
            |origin, out| comparison_html(origin, &candidates, out),
        )?;
        console.emit(self.data.output.as_ref(), |out| match self.data.format() {
            Format::Table => {
                writeln!(out, "{title}\n")?;
                comparison_tables(&candidates, out)?;
                writeln!(out)?;
                write_verdicts(&candidates, out)
            }
            Format::Rows(format) => comparison_rows(&candidates).write(format, out),
            Format::Json => comparison_json(&title, &candidates, out),
        })?;
        console.tell(|out, _| write_caveats(&described.caveats, console, out));
        Ok(())
    }
}

/// Returns the networks of the schemes that are defined.
fn networks(described: &Described, candidates: &[Candidate]) -> anyhow::Result<Vec<Drawn>> {
    let defined = candidates.iter().filter(|candidate| candidate.outcome.is_ok());
    let network = |Candidate { scheme, .. }: &Candidate| {
        let stack = described.setting.assemble(scheme)?.stack;
        drawn(&stack, Some(scheme), &described.names)
    };
    defined.map(network).collect()
}

/// Writes the verdict and the caveats of every scheme, a paragraph each.
fn write_verdicts(candidates: &[Candidate], out: &mut dyn Write) -> io::Result<()> {
    for candidate in candidates {
        let label = candidate.scheme.label();
        match &candidate.outcome {
            Ok(summary) => {
                write_indented("  ", 4, &format!("{label}: {}", summary.verdict.headline), out)?;
                if let Some(Finding { text, rule, .. }) = summary.verdict.worst().filter(|finding| !finding.is_fine()) {
                    write_indented("    ", 4, &format!("{text} (rule: {rule})"), out)?;
                }
                if let Some(WorstTensor { tensor, .. }) = &summary.worst_tensor {
                    write_indented("    ", 4, &format!("largest gradient norm: {tensor}"), out)?;
                }
            }
            Err(error) => write_indented("  ", 4, &format!("{label}: not defined: {error}"), out)?,
        }
        for caveat in &candidate.caveats {
            write_indented("    caveat: ", 12, &format!("{}. {}", caveat.text(), caveat.kind().advice), out)?;
        }
    }
    Ok(())
}
