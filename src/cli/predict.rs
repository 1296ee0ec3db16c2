//! `sigprop predict`: the prediction by theory.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use crate::{
    Followed, Options, Prediction, Sequences,
    head::{Head, Loss, LossPrediction, predict_loss_watched},
    numerals::column,
    predict_watched,
    report::{
        Ink, Picture, PredictionDocument, prediction_curve, prediction_html, prediction_json, sites_rows, sites_table,
        update_rows, update_table, weights_rows, weights_table,
    },
    sequences,
    verdict::{Failure, Shape, Verdict},
};
use clap::{Args, ValueEnum, builder::PossibleValue};
use indicatif::ProgressBar;
use sigprop_stack::Stack;

use super::{
    Outcome,
    caveats::{explain_caveats, write_caveats},
    console::{Console, write_verdict},
    curve::CurveArguments,
    description::AverageArguments,
    export::{drawn, export},
    head::{HeadArguments, write_loss},
    model::ModelArguments,
    models::write_cost,
    output::{DataArguments, Format, SiteChoice},
    plot::PlotArguments,
    report::ReportArguments,
    update::UpdateArguments,
};

/// Predict the size of signals and gradients at every block, with a verdict.
#[derive(Args, Debug)]
#[command(after_help = "\
Columns, averaged over initialisations, masks, inputs, positions and features:
  mean                    mean of an entry
  variance                variance of an entry: E x² − mean²
  token_correlation       (E x_a x_b − mean²)/variance over tokens a ≠ b
  grad_variance           E g², where g is the gradient with respect to this
                          site of independent N(0, 1) gradients at the end
                          (--grad-correlation correlates them); with --head,
                          of the mean loss over the tokens of a sequence
  grad_token_correlation  E g_a g_b/E g² over pairs of tokens
  ln_…                    natural logarithm, finite where the number leaves f64
  …_first, …_last         at the first and the last position
  ln_…_std (±)            standard deviation, across networks, of the ln of a
                          network's own value

Examples:
  sigprop predict --layers 768 --scheme dslm
  sigprop predict gpt2 --scheme xavier --norm-placement post
  sigprop predict mlp --layers 30 --activation relu --scheme uniform:1
  sigprop predict bert-base --train --format csv -o bert.csv
  sigprop predict gpt2 --json | jq .verdict.headline
  sigprop predict gpt2 --head --loss cross-entropy          first loss
  sigprop predict gpt2 --head --first-update adam --lr 1e-3 first step
  sigprop predict config.json --scheme dslm --export init.py
  sigprop predict --layers 192 --plot depth.svg             curves over depth
  sigprop predict gpt2 --report gpt2.html                   a page for a browser
  sigprop predict --layers 48 --fail-on explosion,vanishing exit status 1 if so")]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelArguments,

    #[command(flatten)]
    head: HeadArguments,

    #[command(flatten)]
    update: UpdateArguments,

    #[command(flatten)]
    data: DataArguments,

    /// Also write the initialisation of every parameter: *.json is a plan by name pattern, *.py a PyTorch function that
    /// draws it, *.safetensors the drawn parameters (--seed). For configs of transformers the names are the library's.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    export: Vec<PathBuf>,

    /// Your module's own names of parameters, for --export: lines `name = parameter`, as --names of `sigprop inspect`.
    #[arg(long, value_name = "FILE", requires = "export", help_heading = "Output")]
    names: Option<PathBuf>,

    /// Which sites to report.
    #[arg(long, value_enum, default_value_t = SiteChoice::Stream, help_heading = "Output")]
    sites: SiteChoice,

    /// Report the weights and their gradients: in a second table; in rows, instead of the sites.
    #[arg(long, help_heading = "Output")]
    weights: bool,

    #[command(flatten)]
    plot: PlotArguments,

    #[command(flatten)]
    report: ReportArguments,

    #[command(flatten)]
    curve: CurveArguments,

    #[command(flatten)]
    averages: AverageArguments,

    /// List every kind of caveat: where it applies, which numbers are less certain, and the advice. Then stop.
    #[arg(long, help_heading = "Output")]
    explain_caveats: bool,

    /// Exit with status 1 if any of these is found.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT", help_heading = "Gates")]
    fail_on: Vec<FailOn>,
}

/// A failure that a run can be failed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FailOn(Failure);

impl ValueEnum for FailOn {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [FailOn; 4] = [
            FailOn(Failure::Explosion),
            FailOn(Failure::Vanishing),
            FailOn(Failure::Collapse),
            FailOn(Failure::EntropyCollapse),
        ];
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.name()).help(self.0.meaning()))
    }
}

impl Arguments {
    pub(crate) fn run(self, console: Console) -> anyhow::Result<Outcome> {
        if self.explain_caveats {
            console.emit(None, explain_caveats)?;
            return Ok(Outcome::Done);
        }
        if self.model.explain(console)? {
            return Ok(Outcome::Done);
        }
        let mut network = self.model.network(self.averages.theory.into())?;
        let has_head = self.head.attach(&mut network)?;
        if self.model.dump(&network.stack, console)? {
            return Ok(Outcome::Done);
        }
        let curve = self.curve.ink(self.data.format(), self.data.output.is_none())?;
        self.plot.claim()?;
        self.report.claim()?;
        export(&self.export, &network, self.names.as_deref(), self.averages.seed)?;
        let options = Options { steps: self.update.moves_outputs(), ..self.averages.options(self.sites.into()) };
        let head = network.stack.head.as_ref().filter(|_| has_head);
        let (mut prediction, loss) = predicted(&network.stack, head, options, console)?;
        prediction.caveats.splice(0..0, network.caveats.iter().cloned());
        tell_positions(&prediction, console);
        tell_sequences(&prediction, console);
        let verdict = Verdict::of(&prediction, network.shape(), loss.as_ref());
        let update = self.update.update(&prediction, (&network.stack, head));
        let document = PredictionDocument {
            stack: &network.stack,
            prediction: &prediction,
            weights: self.weights,
            verdict: &verdict,
            cost: &network.cost,
            loss: loss.as_ref(),
            update: update.as_ref(),
        };
        let title = network.title();
        self.plot.draw(console, || Picture::of_prediction(&title, &prediction, network.shape()))?;
        self.report.write(
            console.invocation(),
            (&title, self.averages.seed),
            || Ok(vec![drawn(&network.stack, network.described().map(|(_, scheme)| scheme), &network.names)?]),
            |out| self.write_costs(&document, out),
            |origin, out| prediction_html(origin, &document, out),
        )?;
        console.emit(self.data.output.as_ref(), |out| match self.data.format() {
            Format::Table => self.write_tables((&title, curve), &document, console, out),
            Format::Rows(format) => match &update {
                Some(update) => update_rows(update),
                None if self.weights => weights_rows(&prediction.table),
                None => sites_rows(&prediction.table),
            }
            .write(format, out),
            Format::Json => prediction_json(&document, out),
        })?;
        if self.data.format() != Format::Table {
            console.tell(|out, paint| {
                if let Some(loss) = &loss {
                    write_loss(loss, self.averages.loss_batch(), out)?;
                }
                write_verdict(&verdict, paint, out)?;
                write_caveats(&prediction.caveats, console, out)
            });
        }
        Ok(self.gate(&verdict, console))
    }

    fn write_tables(
        &self,
        (title, curve): (&str, Option<(Ink, usize)>),
        document: &PredictionDocument,
        console: Console,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let PredictionDocument { stack, prediction, weights, verdict, update, .. } = document;
        writeln!(out, "{title}\n")?;
        if let Some(how) = curve {
            prediction_curve(prediction, Shape::of(stack), how, out)?;
            writeln!(out)?;
        }
        sites_table(&prediction.table, out)?;
        writeln!(out)?;
        if *weights {
            weights_table(&prediction.table, out)?;
            writeln!(out)?;
        }
        if let Some(update) = update {
            update_table(update, out)?;
            writeln!(out)?;
        }
        self.write_costs(document, out)?;
        writeln!(out)?;
        write_verdict(verdict, self.data.paint(console), out)?;
        write_caveats(&prediction.caveats, console, out)
    }

    /// Writes the costs of the network and its initial loss.
    fn write_costs(&self, document: &PredictionDocument, out: &mut dyn Write) -> io::Result<()> {
        write_cost(document.cost, out)?;
        document.loss.map_or(Ok(()), |loss| write_loss(loss, self.averages.loss_batch(), out))
    }

    fn gate(&self, verdict: &Verdict, console: Console) -> Outcome {
        let mut outcome = Outcome::Done;
        for (failure, finding) in verdict.failures() {
            if self.fail_on.contains(&FailOn(failure)) {
                console.failed(&finding.text);
                outcome = Outcome::GateFailed;
            }
        }
        outcome
    }
}

/// Predicts the network, with the loss if there is a head. A progress bar counts given sequences of ids.
fn predicted(
    stack: &Stack,
    head: Option<&Head>,
    options: Options,
    console: Console,
) -> anyhow::Result<(Prediction, Option<Loss>)> {
    let passes = sequences(stack) * if head.is_some() { 2 } else { 1 };
    let bar =
        (passes > 2).then(|| console.progress("predicting [{bar:40}] {pos}/{len} sequences, {eta} left", passes, 0));
    let each = || bar.iter().for_each(|bar| bar.inc(1));
    let predicted = match head {
        Some(head) => {
            let LossPrediction { prediction, loss } = predict_loss_watched(stack, head, options, &each)?;
            (prediction, Some(loss))
        }
        None => (predict_watched(stack, options, &each)?, None),
    };
    bar.iter().for_each(ProgressBar::finish_and_clear);
    Ok(predicted)
}

/// Reports how much given sequences of ids differ.
fn tell_sequences(prediction: &Prediction, console: Console) {
    let Some(Sequences { count, deviation }) = prediction.sequences else { return };
    let [one, all] = [deviation, deviation / (count as f64).sqrt()].map(|deviation| column(100.0 * deviation, 1));
    console.note(&format!(
        "averages over {count} sequences; the variance of one differs from them by {one} %, the average of other {count} by \
         {all} % (one standard deviation, at the site where they differ most)"
    ));
}

/// Reports how many positions are followed in place of all.
fn tell_positions(prediction: &Prediction, console: Console) {
    let Some(Followed { positions, seq_len, difference }) = prediction.followed else { return };
    let difference =
        difference.map_or_else(String::new, |by| format!("; fewer would change numbers by up to {by:.1e}"));
    console.detail(&format!("{positions} of {seq_len} positions are followed{difference}"));
}
