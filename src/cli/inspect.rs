//! `sigprop inspect`: a checkpoint compared with its initialisation.

mod findings;
mod gate;
mod reference;
mod subject;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::{
    Caveat, Prediction, Sites, Theory,
    architecture::Architecture,
    assemble::{Input, Run, assemble, initialise},
    cost::Cost,
    head::{Loss, predict_loss},
    huggingface::{Names, Version},
    inspect::{
        Candidate, Finding, Inspection, Judgement, Omission, Problem, Resemblance, caveats, coverage, foreign_scales,
        inspect, of_problem, some, with_measured,
    },
    numerals::short,
    predict,
    report::{InspectionDocument, PredictionDocument, inspection_json, inspection_rows, inspection_table},
    stack_file::{read_stack, stack_json},
    verdict::{Shape, Verdict},
};
use anyhow::{Context, bail};
use clap::Args;
use sigprop_stack::{Stack, parameters};

use findings::write_findings;
use reference::{Reference, unmatched};
use subject::Subject;

use super::{
    Outcome,
    caveats::write_caveats,
    console::{Console, Paint, write_verdict},
    head::write_loss,
    model::SchemeArguments,
    names::of_checkpoint,
    output::{DataArguments, Format},
    prose::write_indented,
    source::ConfigArguments,
};

/// Measure the tensors of a checkpoint, compare them with an initialisation, predict signals and gradients.
#[derive(Args, Debug)]
#[command(after_help = "\
Columns:
  mean, std, kurtosis     of the entries; kurtosis is 3 for a normal and 1.8
                          for a uniform distribution
  singular_value          estimate of the largest singular value
  random_singular_value   std · (√rows + √columns), that of a random matrix
  scheme_…, ratio         the scheme's values; measured std over them
  z                       deviation of std (or of the mean) in standard errors
                          of independent entries
  largest                 largest absolute value of an entry
  deviates                |z| is above 5 and the deviation above 1 %, or the
                          scheme's distribution excludes the kurtosis or the
                          largest entry, or entries are not finite

Copies are reported too: tensors of several blocks, tensors of one block, and
rows or columns of one tensor that are equal or correlated.

The prediction is that of the network of the config with the weights of the
checkpoint; scales of residual connections are the model's, never those of
--scheme. It uses the measured sizes of weights, gains and biases and assumes
independent entries: other effects of training are not included.

Examples:
  sigprop inspect model.safetensors      with the config.json next to it
  sigprop inspect my-model --scheme gpt2
  sigprop inspect my-model --fail-on not-finite,copies,deviation
  sigprop inspect my-model --fail-on deviation --max-deviation 5%
  sigprop inspect my-model --config my.toml --names my.names
  sigprop inspect my-model --dump-stack measured.json")]
pub(crate) struct Arguments {
    /// A safetensors file, the index of several, or a folder with model.safetensors, its index, or
    /// adapter_model.safetensors.
    #[arg(value_name = "CHECKPOINT")]
    checkpoint: PathBuf,

    /// Model of the checkpoint: a config.json, a preset, or an architecture file, as MODEL of `sigprop predict`
    /// [default: config.json next to the checkpoint, if there is one; else tensors are only measured]. For an adapter,
    /// the config.json in the folder of its base model, to whose weights it is added.
    #[arg(long, value_name = "MODEL")]
    config: Option<String>,

    /// Stack file of the network, in place of --config. Tensors have the names of the stack, gains and biases of norms
    /// those of their sites: `blocks.0.ffn.norm.gain`. They are compared with the distributions of the file, or with
    /// --scheme by the roles of its maps.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "names", "tower", "family", "explain_import"])]
    stack: Option<PathBuf>,

    #[command(flatten)]
    source: ConfigArguments,

    /// The checkpoint's own names of parameters: lines `name = parameter`. `name` has a * for the number of a block
    /// (and a second one for the number of an expert); `parameter` is the name in transformers, in another known
    /// convention, or in a plan (--export plan.json). `a + b`: b is below a in one matrix. # begins a comment.
    #[arg(long, value_name = "FILE")]
    names: Option<PathBuf>,

    #[command(flatten)]
    scheme: SchemeArguments,

    #[command(flatten)]
    data: DataArguments,

    /// Also write the network with the measured weights, for --stack of other commands.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    dump_stack: Option<PathBuf>,

    #[command(flatten)]
    gate: gate::Gate,
}

/// The network that the checkpoint should be.
struct Expected {
    /// `None` for a stack file.
    architecture: Option<Architecture>,
    names: Names,
    scheme: String,
    /// The network with weights initialised by the scheme.
    stack: Stack,
    /// The network of the config, with the model's own factors in the forward pass.
    model: Stack,
    /// The ways in which the network differs from the one that the config describes.
    caveats: Vec<Caveat>,
}

/// The network with the measured weights, and its prediction.
struct Measured {
    stack: Stack,
    prediction: Prediction,
    /// The loss with the output head; `None` if the model has no head.
    loss: Option<Loss>,
    /// Parts of the checkpoint that are not in the network of the measured weights.
    omissions: Vec<Omission>,
    verdict: Verdict,
    cost: Cost,
}

/// A checkpoint compared with the network that it should be.
struct Compared<'a> {
    inspection: &'a Inspection,
    /// The network that the checkpoint should be; `None` if no config or flag describes it.
    expected: Option<&'a Expected>,
    /// Facts about the checkpoint that are not problems, one sentence each.
    notes: Vec<String>,
    findings: Vec<Finding>,
    closest: Vec<Resemblance>,
    /// The network with the measured weights and its prediction; `None` if nothing can be predicted.
    measured: Option<Measured>,
    /// The reason why nothing is predicted; `None` if there is a prediction.
    unpredicted: Option<String>,
    judgement: Judgement,
}

impl Arguments {
    pub(crate) fn run(self, console: Console) -> anyhow::Result<Outcome> {
        let model = self.model();
        if self.source.explain(model.as_deref(), self.scheme.text(), None, console)? {
            return Ok(Outcome::Done);
        }
        let subject = Subject::open(&self.checkpoint, self.config.as_deref())?;
        let mut reference = self.reference(subject.adapter.is_some())?;
        if let Reference::Network(expected) = &mut reference {
            let parameters = parameters(&expected.stack)?;
            if let Some(architecture) = &expected.architecture {
                let (names, own) = (&expected.names, self.names.as_deref());
                expected.names = of_checkpoint(names, own, &subject.checkpoint, architecture, &parameters)?;
            }
        }
        let held = match (&reference, &subject.adapter) {
            (Reference::Network(expected), _) => Some(expected.names.held(&parameters(&expected.stack)?)),
            (Reference::Nothing(_), Some(adapter)) => Some(adapter.held()),
            (Reference::Nothing(_), None) => None,
        };
        let inspection = inspect(&subject.checkpoint, held.as_deref())?;
        let compared = match &reference {
            Reference::Network(expected) => self.compared(expected, &inspection, subject.notes)?,
            Reference::Nothing(reason) => Compared::alone(&inspection, subject, reason.clone()),
        };
        if let Some(path) = &self.dump_stack {
            let Some(measured) = &compared.measured else {
                bail!("--dump-stack: expected weights that are finite, got a checkpoint with others");
            };
            console.emit(Some(path), |out| stack_json(&measured.stack, out))?;
            if path == Path::new("-") {
                return Ok(Outcome::Done);
            }
        }
        self.write(&compared, console)?;
        Ok(self.gate.outcome(&compared, console))
    }

    /// Returns the description of the network: the value of --config, else the config.json next to the checkpoint;
    /// `None` without either, and for a stack file.
    fn model(&self) -> Option<String> {
        if self.stack.is_some() {
            return None;
        }
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
        described.check_effects(&described.architecture, self.scheme.text())?;
        let (names, mut caveats) = (described.names(), described.caveats());
        let architecture = described.architecture;
        let scheme = self.scheme.scheme(architecture.scheme.as_deref())?;
        let assembled = assemble(&architecture, &scheme, &Input::default(), &Run::default())?;
        caveats.extend(assembled.caveats);
        let own = SchemeArguments::default().scheme(architecture.scheme.as_deref())?;
        let model = assemble(&architecture, &own, &Input::default(), &Run::default())?.stack;
        caveats.extend(foreign_scales(&model, &assembled.stack, &scheme.label()));
        let scheme = match self.scheme.text() {
            // The release was taken into account when the config was read.
            Some(text) if text.starts_with("hf@") => text.to_owned(),
            Some(_) | None => scheme.to_string(),
        };
        Ok(Expected { architecture: Some(architecture), names, scheme, stack: assembled.stack, model, caveats })
    }

    /// Returns the network of a stack file.
    fn expected_of_stack(&self, path: &Path) -> anyhow::Result<Expected> {
        let model = read_stack(path)?;
        let mut stack = model.clone();
        let names = Names::own(&Architecture::default());
        if self.scheme.given().is_none() {
            let scheme = "of the stack file".to_owned();
            return Ok(Expected { architecture: None, names, scheme, stack, model, caveats: Vec::new() });
        }
        let scheme = self.scheme.scheme(None)?;
        let mut caveats = initialise(&mut stack, &scheme, Theory::default())?;
        caveats.extend(foreign_scales(&model, &stack, &scheme.label()));
        Ok(Expected { architecture: None, names, scheme: scheme.to_string(), stack, model, caveats })
    }

    fn compared<'a>(
        &self,
        expected: &'a Expected,
        inspection: &'a Inspection,
        mut notes: Vec<String>,
    ) -> anyhow::Result<Compared<'a>> {
        if inspection.coverage.is_poor() {
            bail!(
                "{}: expected the tensors of {}, got {}; {}",
                self.checkpoint.display(),
                expected.stack.name,
                coverage(inspection),
                unmatched(inspection)
            );
        }
        let findings = inspection.findings(&expected.scheme);
        let is_finite = of_problem(&findings, Problem::NotFinite).next().is_none();
        let measured = is_finite.then(|| measured(expected, inspection, &findings)).transpose()?;
        let predicted = measured.as_ref().map(|measured| (&measured.verdict, measured.omissions.as_slice()));
        let judgement = Judgement::of(&findings, inspection, predicted);
        let closest = self.closest(expected, inspection)?;
        notes.extend(inspection.headline(&expected.scheme));
        let unpredicted =
            (!is_finite).then(|| "everything after entries that are not finite is not a number".to_owned());
        let expected = Some(expected);
        Ok(Compared { inspection, expected, notes, findings, closest, measured, unpredicted, judgement })
    }

    /// Returns the known schemes, the nearest first. Releases of the library that draw the same weights are listed
    /// once.
    fn closest(&self, expected: &Expected, inspection: &Inspection) -> anyhow::Result<Vec<Resemblance>> {
        let Expected { architecture: Some(architecture), names, scheme, .. } = expected else {
            // Schemes other than the given one are for architectures.
            return Ok(Vec::new());
        };
        let mut candidates = vec![Candidate::of(scheme, &names.held(&parameters(&expected.stack)?))];
        if let Some(model) = self.model() {
            for release in Version::WORDS.iter().rev() {
                let name = format!("hf@{release}");
                let described = self.source.described(Some(&model), Some(&name), None)?;
                let hf = described.architecture.hf_init.map(|_| "hf".parse()).transpose()?;
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

    fn write(&self, compared: &Compared, console: Console) -> anyhow::Result<()> {
        let Compared { inspection, expected, .. } = compared;
        let name = self.checkpoint.display().to_string();
        console.emit(self.data.output.as_ref(), |out| match self.data.format() {
            Format::Table => {
                let paint = self.data.paint(console);
                writeln!(
                    out,
                    "{name}{}\n",
                    expected.map_or(String::new(), |expected| format!(": {}", expected.title()))
                )?;
                inspection_table(inspection, out)?;
                writeln!(out)?;
                compared.write((console, paint), out)
            }
            Format::Rows(format) => inspection_rows(inspection).write(format, out),
            Format::Json => inspection_json(&compared.document(&name), out),
        })?;
        if self.data.format() != Format::Table {
            console.tell(|out, paint| compared.write((console, paint), out));
        }
        Ok(())
    }
}

/// Predicts the network with the weights of the checkpoint.
fn measured(expected: &Expected, inspection: &Inspection, findings: &[Finding]) -> anyhow::Result<Measured> {
    let mut stack = expected.model.clone();
    let omissions = with_measured(&mut stack, inspection);
    let mut prediction = predict(&stack, Sites::Stream).context("with the measured weights")?;
    let caveats = expected.caveats.iter().cloned().chain(caveats(findings, inspection));
    prediction.caveats.splice(0..0, caveats.chain(omissions.iter().map(Omission::caveat)));
    let loss = match &stack.head {
        Some(head) => {
            let under_loss = predict_loss(&stack, head, Sites::Stream).context("with the measured weights")?;
            // A head of zeros lets no gradient through.
            prediction.blocked = under_loss.prediction.blocked;
            Some(under_loss.loss)
        }
        None => None,
    };
    let verdict = Verdict::in_format(&prediction, Shape::of(&stack), loss.as_ref(), inspection.format());
    let cost = Cost::of(&stack, expected.architecture.as_ref())?.with_names(&stack, &expected.names)?;
    Ok(Measured { stack, prediction, loss, omissions, verdict, cost })
}

impl Expected {
    fn title(&self) -> String {
        let names = self.names.convention().map_or(String::new(), |convention| format!(", names: {convention}"));
        format!("{}, scheme {}{names}", self.stack.name, self.scheme)
    }
}

impl<'a> Compared<'a> {
    /// Returns the result for a checkpoint without a network to compare it with; `reason` says why there is none.
    fn alone(inspection: &'a Inspection, subject: Subject, reason: String) -> Self {
        let Subject { adapter, mut notes, .. } = subject;
        let findings = match &adapter {
            Some(adapter) => adapter.findings(inspection),
            None => inspection.findings(""),
        };
        notes.extend(adapter.and_then(|adapter| adapter.opening(inspection)));
        let judgement = Judgement::of(&findings, inspection, None);
        let (expected, closest, measured, unpredicted) = (None, Vec::new(), None, Some(reason));
        Self { inspection, expected, notes, findings, closest, measured, unpredicted, judgement }
    }

    fn document<'s>(&'s self, name: &'s str) -> InspectionDocument<'s> {
        InspectionDocument {
            checkpoint: name,
            inspection: self.inspection,
            scheme: self.expected.map(|expected| expected.scheme.as_str()),
            names: self.expected.and_then(|expected| expected.names.convention()),
            notes: &self.notes,
            findings: &self.findings,
            judgement: &self.judgement,
            closest: &self.closest,
            prediction: self.measured.as_ref().map(|measured| PredictionDocument {
                stack: &measured.stack,
                prediction: &measured.prediction,
                weights: false,
                verdict: &measured.verdict,
                cost: &measured.cost,
                loss: measured.loss.as_ref(),
                update: None,
            }),
        }
    }

    /// Writes the findings, the closest schemes and the verdict.
    fn write(&self, to: (Console, Paint), out: &mut dyn Write) -> io::Result<()> {
        let unread: Vec<String> =
            self.inspection.unread.iter().map(|(name, dtype)| format!("{name} ({dtype})")).collect();
        if !unread.is_empty() {
            write_indented("Not read: ", 2, &some(&unread), out)?;
        }
        for note in &self.notes {
            write_indented("", 0, note, out)?;
        }
        let compared = self.expected.map(|expected| (expected, coverage(self.inspection)));
        match &compared {
            Some((expected, coverage)) => writeln!(out, "Compared with scheme {}: {coverage}", expected.scheme)?,
            None if self.inspection.readings.iter().any(|reading| reading.part.is_some()) => {
                writeln!(out, "No network to compare with: A and B are compared with the initialisation by PEFT.")?;
            }
            None => writeln!(out, "No network to compare with: tensors are only measured.")?,
        }
        if let (Some((expected, _)), true) = (&compared, self.findings.is_empty()) {
            writeln!(out, "All of them are as scheme {} draws them.", expected.scheme)?;
        }
        let is_initialisation =
            self.expected.is_none_or(|expected| self.inspection.headline(&expected.scheme).is_none());
        write_findings(&self.findings, is_initialisation, out)?;
        let closest = self.closest.iter().take(3);
        let closest: Vec<String> =
            closest.map(|Resemblance { scheme, factor }| format!("{scheme} (×{})", short(*factor))).collect();
        if !closest.is_empty() {
            writeln!(out, "Closest schemes: {}", closest.join(", "))?;
        }
        self.write_judgement(to, out)
    }

    fn write_judgement(&self, (console, paint): (Console, Paint), out: &mut dyn Write) -> io::Result<()> {
        let Judgement { headline, .. } = &self.judgement;
        writeln!(out)?;
        let Some(Measured { stack, verdict, prediction, loss, .. }) = &self.measured else {
            writeln!(out, "Verdict: {headline}")?;
            let reason = self.unpredicted.iter().map(|reason| format!("Nothing is predicted: {reason}."));
            return reason.into_iter().try_for_each(|line| write_indented("", 0, &line, out));
        };
        writeln!(out, "With the measured weights, at {} tokens:", stack.streams[0].seq_len)?;
        if let Some(loss) = loss {
            write_loss(loss, 1, out)?;
        }
        let verdict = Verdict { headline: headline.clone(), ..verdict.clone() };
        write_verdict(&verdict, paint, out)?;
        write_caveats(&prediction.caveats, console, out)
    }
}
