//! `sigprop inspect`: what a checkpoint holds, and what it should.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use clap::Args;
use sigprop::{
    Caveat, Prediction, Sites,
    architecture::Architecture,
    assemble::{Input, Run, assemble},
    checkpoint::Checkpoint,
    cost::Cost,
    huggingface::{Names, Version},
    inspect::{Candidate, Inspection, Resemblance, inspect, with_measured},
    numerals::short,
    predict,
    report::{InspectionDocument, PredictionDocument, deviations, inspection_json, inspection_rows, inspection_table},
    stack_file::stack_json,
    verdict::{Shape, Verdict},
};
use sigprop_stack::{Stack, parameters};

use super::{
    Outcome,
    console::{Console, Paint, write_verdict},
    model::SchemeArguments,
    output::{DataArguments, Format, emit},
    predict::write_caveats,
    prose::write_indented,
    source::ConfigArguments,
};

/// Measure the tensors of a checkpoint, compare them with an initialisation, predict what follows.
#[derive(Args, Debug)]
#[command(after_help = "\
Columns:
  mean, std, kurtosis     of the entries; kurtosis is 3 for a normal, 1.8 for a uniform distribution
  singular_value          estimate of the largest one; random_singular_value is that of a random
                          matrix of this size with independent entries: std · (√rows + √columns)
  scheme_…, ratio         what the scheme draws; measured std over it
  z                       deviation of std (or of the mean) in standard errors of independent draws
  deviates                |z| above 5 and more than 1 % off

The prediction takes the measured sizes of weights and gains for independent draws: what training
has put into them beyond their size is not seen.

Examples:
  sigprop inspect model.safetensors                 with the config.json beside it
  sigprop inspect my-model --scheme gpt2            a folder; is it what GPT-2 would have drawn?
  sigprop inspect my-model --dump-stack measured.json && sigprop predict --stack measured.json")]
pub(crate) struct Arguments {
    /// A safetensors file, the index of several, or a folder with model.safetensors or its index.
    #[arg(value_name = "CHECKPOINT")]
    checkpoint: PathBuf,

    /// The model it is of: a config.json, a preset, or an architecture file, as MODEL of `sigprop predict`
    /// [default: config.json beside the checkpoint, if there is one; else tensors are only measured].
    #[arg(long, value_name = "MODEL")]
    config: Option<String>,

    #[command(flatten)]
    source: ConfigArguments,

    #[command(flatten)]
    scheme: SchemeArguments,

    #[command(flatten)]
    data: DataArguments,

    /// Also write the network with the measured weights, as `--stack` of other commands reads it.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    dump_stack: Option<PathBuf>,
}

/// What the checkpoint should be.
struct Expected {
    architecture: Architecture,
    names: Names,
    scheme: String,
    stack: Stack,
    /// What in it is not quite what the config says.
    caveats: Vec<Caveat>,
}

/// What follows from what it is.
struct Measured {
    stack: Stack,
    prediction: Prediction,
    verdict: Verdict,
    cost: Cost,
    closest: Vec<Resemblance>,
}

impl Arguments {
    pub(crate) fn run(self, console: Console) -> anyhow::Result<Outcome> {
        let model = self.model();
        if self.source.explain(model.as_deref(), self.scheme.text(), None)? {
            return Ok(Outcome::Done);
        }
        let expected = model.map(|model| self.expected(&model)).transpose()?;
        self.refuse_without(expected.as_ref())?;
        let checkpoint = Checkpoint::open(&self.checkpoint)?;
        let held = match &expected {
            Some(expected) => Some(expected.names.held(&parameters(&expected.stack)?)),
            None => None,
        };
        let inspection = inspect(&checkpoint, held.as_deref())?;
        let measured = expected.as_ref().map(|expected| self.measured(expected, &inspection)).transpose()?;
        if let (Some(path), Some(measured)) = (&self.dump_stack, &measured) {
            emit(Some(path), |out| stack_json(&measured.stack, out))?;
            if path == Path::new("-") {
                return Ok(Outcome::Done);
            }
        }
        self.write(&inspection, expected.as_ref(), measured.as_ref(), console)?;
        Ok(Outcome::Done)
    }

    /// What describes the network: what was named, else the config beside the checkpoint.
    fn model(&self) -> Option<String> {
        let beside = || {
            let folder =
                if self.checkpoint.is_dir() { Some(self.checkpoint.as_path()) } else { self.checkpoint.parent() };
            let config = folder?.join("config.json");
            config.is_file().then(|| config.to_str().map(str::to_owned)).flatten()
        };
        self.config.clone().or_else(beside)
    }

    fn expected(&self, model: &str) -> anyhow::Result<Expected> {
        let described = self.source.described(Some(model), self.scheme.text(), None)?;
        let (names, mut caveats) = (described.names(), described.caveats());
        let architecture = described.architecture;
        let scheme = self.scheme.scheme(architecture.scheme.as_deref())?;
        let assembled = assemble(&architecture, &scheme, &Input::default(), &Run::default())?;
        caveats.extend(assembled.caveats);
        let scheme = match self.scheme.text() {
            // The release has been heard when the config was read.
            Some(text) if text.starts_with("hf@") => text.to_owned(),
            Some(_) | None => scheme.to_string(),
        };
        Ok(Expected { architecture, names, scheme, stack: assembled.stack, caveats })
    }

    /// Flags that need a network.
    fn refuse_without(&self, expected: Option<&Expected>) -> anyhow::Result<()> {
        if expected.is_some() {
            return Ok(());
        }
        match self.scheme.given().or(self.dump_stack.as_ref().map(|_| "--dump-stack")) {
            None => Ok(()),
            Some(flag) => bail!(
                "{flag}: expected a config.json beside {}, got none; name one with --config",
                self.checkpoint.display()
            ),
        }
    }

    fn measured(&self, expected: &Expected, inspection: &Inspection) -> anyhow::Result<Measured> {
        let mut stack = expected.stack.clone();
        if inspection.readings.iter().all(|reading| reading.part.is_none()) {
            bail!(
                "{}: expected tensors of {}, got none of its names; is it the config of this checkpoint?",
                self.checkpoint.display(),
                expected.stack.name
            );
        }
        let left_out = with_measured(&mut stack, &inspection.readings);
        let mut prediction = predict(&stack, Sites::Stream).context("with the measured weights")?;
        prediction.caveats.splice(0..0, expected.caveats.iter().cloned().chain(left_out));
        let verdict = Verdict::of(&prediction, Shape::of(&stack));
        let cost = Cost::of(&stack, Some(&expected.architecture))?.with_names(&stack, &expected.names)?;
        Ok(Measured { prediction, verdict, cost, closest: self.closest(expected, inspection)?, stack })
    }

    /// Known schemes, the nearest first; releases of the library that draw the same are told once.
    fn closest(&self, expected: &Expected, inspection: &Inspection) -> anyhow::Result<Vec<Resemblance>> {
        let Expected { architecture, names, scheme, .. } = expected;
        let mut candidates = vec![Candidate::of(scheme, &names.held(&parameters(&expected.stack)?))];
        if let Some(model) = self.model() {
            for release in Version::WORDS.iter().rev() {
                let name = format!("hf@{release}");
                let described = self.source.described(Some(&model), Some(&name), None)?;
                let hf = described.architecture.init.map(|_| "hf".parse()).transpose()?;
                let candidate = hf.and_then(|hf| Candidate::new(&name, &described.architecture, names, &hf));
                candidates.extend(candidate);
            }
        }
        candidates.extend(Candidate::known(architecture, names, &inspection.readings));
        let mut closest: Vec<Resemblance> =
            candidates.iter().filter_map(|candidate| candidate.resemblance(&inspection.readings)).collect();
        closest.sort_by(|a, b| a.factor.total_cmp(&b.factor));
        closest.dedup_by(|later, earlier| (later.factor - earlier.factor).abs() <= f64::EPSILON * later.factor);
        Ok(closest)
    }

    fn write(
        &self,
        inspection: &Inspection,
        expected: Option<&Expected>,
        measured: Option<&Measured>,
        console: Console,
    ) -> anyhow::Result<()> {
        let name = self.checkpoint.display().to_string();
        let scheme = expected.map(|expected| expected.scheme.as_str());
        emit(self.data.output.as_ref(), |out| match self.data.format() {
            Format::Table => {
                let paint = self.data.paint(console);
                writeln!(
                    out,
                    "{name}{}\n",
                    expected.map_or(String::new(), |expected| format!(": {}", expected.title()))
                )?;
                inspection_table(inspection, out)?;
                writeln!(out)?;
                write_findings(inspection, scheme, measured, paint, out)
            }
            Format::Rows(format) => inspection_rows(inspection).write(format, out),
            Format::Json => {
                let prediction = measured.map(|measured| PredictionDocument {
                    stack: &measured.stack,
                    prediction: &measured.prediction,
                    weights: false,
                    verdict: &measured.verdict,
                    cost: &measured.cost,
                    loss: None,
                    update: None,
                });
                let closest = measured.map_or(&[][..], |measured| &measured.closest);
                let document = InspectionDocument { checkpoint: &name, inspection, scheme, closest, prediction };
                inspection_json(&document, out)
            }
        })?;
        if self.data.format() != Format::Table {
            console.tell(|out, paint| write_findings(inspection, scheme, measured, paint, out));
        }
        Ok(())
    }
}

impl Expected {
    fn title(&self) -> String {
        format!("{}, scheme {}", self.stack.name, self.scheme)
    }
}

/// What deviates, what is missing and what follows.
fn write_findings(
    inspection: &Inspection,
    scheme: Option<&str>,
    measured: Option<&Measured>,
    paint: Paint,
    out: &mut dyn Write,
) -> io::Result<()> {
    let list = |title: &str, names: &[String], out: &mut dyn Write| {
        if names.is_empty() { Ok(()) } else { write_indented(title, 2, &some(names), out) }
    };
    let unread: Vec<String> = inspection.unread.iter().map(|(name, dtype)| format!("{name} ({dtype})")).collect();
    list("Not read: ", &unread, out)?;
    let (Some(scheme), Some(measured)) = (scheme, measured) else {
        return writeln!(out, "No config: tensors are only measured.");
    };
    let deviations = deviations(inspection, scheme);
    if deviations.is_empty() {
        writeln!(out, "All tensors are as scheme {scheme} draws them.")?;
    }
    for sentence in &deviations {
        write_indented("  ! ", 4, sentence, out)?;
    }
    list("Missing: ", &inspection.missing, out)?;
    list("Not of the network: ", &inspection.unknown, out)?;
    let closest = measured.closest.iter().take(3);
    let closest: Vec<String> =
        closest.map(|Resemblance { scheme, factor }| format!("{scheme} (×{})", short(*factor))).collect();
    writeln!(out, "Closest schemes: {}\n", closest.join(", "))?;
    writeln!(out, "With the measured weights, at {} tokens:", measured.stack.streams[0].seq_len)?;
    write_verdict(&measured.verdict, paint, out)?;
    write_caveats(&measured.prediction.caveats, out)
}

/// The first names of a list.
fn some(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        format!("{shown} and {} more (--format json tells all)", names.len() - SHOWN)
    } else {
        shown
    }
}
