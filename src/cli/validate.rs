//! `sigprop validate`: the prediction compared with sampled networks.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    slice,
};

use crate::{
    Prediction, Sites, Theory,
    agreement::{Comparison, Observation, Summary, compare, compare_observations, read_observations, summarise},
    numerals::short,
    predict,
    report::{
        Ink, Observed, Picture, RowFormat, Run, ValidationDocument, comparisons_rows, summary_json, summary_table,
        validation_curve, validation_html, validation_json,
    },
    stack_file::stack_hash,
    verdict::Verdict,
};
use anyhow::Context;
use clap::{Arg, Args};
use sigprop_stack::{GIBIBYTE, Stack};
use sigprop_validate::{MeasureError, Measurement, Settings, Shard, Target};

use super::{
    Outcome,
    caveats::write_caveats,
    console::Console,
    curve::CurveArguments,
    export::drawn,
    folder::{ReportFolder, claim, write_into},
    model::{ModelArguments, Network},
    output::{Format, FormatArguments, SiteChoice},
    parse::{self, Seeds, Threads},
    plot::PlotArguments,
    report::ReportArguments,
    sampling::{SamplerChoice, free_memory, sample, sample_shard},
    suite::{SuiteChoice, SuiteRun},
};

/// Arguments that go with a suite; all others describe one model or how it is sampled.
const WITH_SUITE: [&str; 15] = [
    "suite",
    "full",
    "groups",
    "seed",
    "seeds",
    "observed",
    "threads",
    "memory",
    "max_replicates",
    "format",
    "json",
    "output",
    "resume",
    "shard",
    "max_error",
];

/// The file of the replicates of a run that has not ended, in the folder of its report.
const JOURNAL: &str = "replicates.journal";

/// The number of replicates below which standard errors are rough: seven know them to 29 %.
const FEW_REPLICATES: usize = 8;

/// The largest number of networks that `--target-error` may sample by default.
const MOST_REPLICATES: usize = 100_000;

/// Sample the network and compare its signals and gradients with the prediction.
#[derive(Args, Debug)]
#[command(
    mut_args(apart_from_suite),
    after_help = "\
Examples:
  sigprop validate --layers 24 --width 256
  sigprop validate gpt2 --seq-len 128 --replicates 32 --weights
  sigprop validate --layers 12 --scheme deepnorm --norm-placement post -o report
  sigprop validate --layers 48 --plot depth.svg  curves with observed points
  sigprop validate gpt2 --report gpt2.html       a page for a browser
  sigprop validate gpt2 --observed mine.csv      your own measurements
Gates for CI, and sampling until the errors are small enough:
  sigprop validate --layers 12 --width 256 --min-r2 0.999 --max-error 0.05
  sigprop validate gpt2 --target-error 1%
Continued after an interruption; and the second quarter on another machine:
  sigprop validate gpt2 --replicates 900 --resume report
  sigprop validate gpt2 --replicates 900 --resume report --shard 2/4
Suites: every rule over the published grids (five minutes; --full: hours),
encoders with several seeds, kept measurements, and random networks:
  sigprop validate --suite components
  sigprop validate --suite components --full --resume full
  sigprop validate --suite models --max-replicates 64 --seeds 3,11..16 -o runs
  sigprop validate --suite models --observed runs
  sigprop validate --suite random --seed 7 -o drawn"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelArguments,

    /// Networks to sample.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = parse::count, allow_negative_numbers = true, help_heading = "Sampling")]
    replicates: usize,

    /// Sequences per network.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse::count, allow_negative_numbers = true, help_heading = "Sampling")]
    batch: usize,

    /// Seed of the samples: the same seed gives the same numbers, at any number of threads.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, help_heading = "Sampling")]
    seed: u64,

    /// Threads: a number, or `all`.
    #[arg(long, value_name = "N", default_value = "all", value_parser = parse::threads, allow_negative_numbers = true, help_heading = "Sampling")]
    threads: Threads,

    /// Memory that the sampling may take, as 4GiB or 500MiB; beyond it blocks are computed twice [default: three
    /// quarters of the free memory, 4GiB if that is unknown].
    #[arg(long, value_name = "SIZE", value_parser = parse::memory, allow_negative_numbers = true, help_heading = "Sampling")]
    memory: Option<f64>,

    /// How to sample linear maps.
    #[arg(long, value_enum, default_value_t = SamplerChoice::Direct, value_name = "SAMPLER", help_heading = "Sampling")]
    sampler: SamplerChoice,

    /// Continue until the standard errors of variances (relative) and token correlations are below this, as `0.01` or
    /// `1%`.
    #[arg(long, value_name = "ERROR", value_parser = parse::error, allow_negative_numbers = true, group = "limited", help_heading = "Sampling")]
    target_error: Option<f64>,

    /// Largest number of networks to sample for --target-error [default: 100000], and for a case of a suite [default:
    /// the case's own].
    #[arg(long, value_name = "N", requires = "limited", value_parser = parse::count, allow_negative_numbers = true, help_heading = "Sampling")]
    max_replicates: Option<usize>,

    /// Run a suite of many cases instead of one model and report the percentiles of their errors: single components
    /// over the grids of Kedia et al. (2024) compared with the errors published there, attention at any sharpness,
    /// whole encoders, or networks drawn at random.
    #[arg(long, value_enum, value_name = "SUITE", group = "limited", help_heading = "Suites")]
    suite: Option<SuiteChoice>,

    /// Run all cases of the grids, which takes hours, instead of a stratified sample; 320 random networks instead of
    /// 48.
    #[arg(long, help_heading = "Suites")]
    full: bool,

    /// Run only these groups of the suite, such as `linear` or `post`.
    #[arg(long = "group", value_name = "NAME", help_heading = "Suites")]
    groups: Vec<String>,

    /// Seeds for several runs of --suite models, as `3,11..16`: each run has a report in a folder of --output, and one
    /// more covers all networks together.
    #[arg(long, conflicts_with = "seed", value_name = "LIST", value_parser = parse::seeds, allow_negative_numbers = true, help_heading = "Suites")]
    seeds: Option<Seeds>,

    /// Compare with measurements of your own instead of sampling: CSV with the columns
    /// site,quantity,observed,std_error, as --format csv writes them. With --suite, the results of earlier runs: the
    /// folder of one or of several; may be given several times.
    #[arg(long, value_name = "FILE.csv", conflicts_with_all = ["replicates", "batch", "threads", "memory", "sampler", "target_error", "max_replicates", "seeds", "sites", "weights"], help_heading = "Sampling")]
    observed: Vec<PathBuf>,

    #[command(flatten)]
    format: FormatArguments,

    /// Write report.csv and summary.json into a folder, which is made if need be. Until the run has ended, every
    /// replicate is kept there in replicates.journal, or every case of a suite in cases.journal.
    #[arg(short, long, value_name = "DIR", help_heading = "Output")]
    output: Option<PathBuf>,

    /// Write the report as --output does, but continue a run with the same arguments that was ended early, from its
    /// replicates (for a suite: its cases); the report is the same as without the interruption.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "observed"], help_heading = "Output")]
    resume: Option<PathBuf>,

    /// Sample one part alone (`2/4` is the second of four) into a journal of its own in the folder of --resume, on any
    /// machine that sees it. The same command without --shard takes over the results of all parts, samples the missing
    /// ones, and writes the same report as one machine would have written.
    #[arg(long, value_name = "I/N", requires = "resume", conflicts_with_all = ["target_error", "output", "observed"], value_parser = parse::shard, allow_negative_numbers = true, help_heading = "Sampling")]
    shard: Option<Shard>,

    #[command(flatten)]
    plot: PlotArguments,

    #[command(flatten)]
    report: ReportArguments,

    #[command(flatten)]
    curve: CurveArguments,

    /// Which sites to compare; the summary covers only the sites on the stream.
    #[arg(long, value_enum, default_value_t = SiteChoice::Stream, help_heading = "Output")]
    sites: SiteChoice,

    /// Compare the gradients of weights too.
    #[arg(long, help_heading = "Output")]
    weights: bool,

    /// Exit with status 1 if R² of ln variance and ln `grad_variance` together is below this.
    #[arg(long, value_name = "R2", value_parser = parse::finite, allow_negative_numbers = true, help_heading = "Gates")]
    min_r2: Option<f64>,

    /// Exit with status 1 if the 99th percentile of the relative errors of variance and `grad_variance`, or of any line
    /// of a suite, is above this.
    #[arg(long, value_name = "ERROR", value_parser = parse::not_negative, allow_negative_numbers = true, help_heading = "Gates")]
    max_error: Option<f64>,
}

fn apart_from_suite(argument: Arg) -> Arg {
    if WITH_SUITE.contains(&argument.get_id().as_str()) { argument } else { argument.conflicts_with("suite") }
}

/// The result of a validation.
struct Validation {
    run: Run,
    comparisons: Vec<Comparison>,
    summary: Summary,
}

impl Validation {
    fn new(network: &Network, observed: Observed, comparisons: Vec<Comparison>) -> Self {
        let Stack { name, .. } = &network.stack;
        let run = Run { stack: name.clone(), stack_hash: stack_hash(&network.stack), observed };
        Self { run, summary: summarise(&comparisons), comparisons }
    }
}

impl Arguments {
    pub(crate) fn run(self, console: Console) -> anyhow::Result<Outcome> {
        if let Some(choice) = self.suite {
            let run = SuiteRun {
                choice,
                full: self.full,
                groups: &self.groups,
                seeds: self.seeds.as_ref().map_or(slice::from_ref(&self.seed), |Seeds(seeds)| seeds),
                observed: &self.observed,
                max_replicates: self.max_replicates,
                threads: self.threads.0,
                memory: self.memory(),
                format: self.format.format(),
                output: self.folder(),
                shard: self.shard,
                max_error: self.max_error,
            };
            return run.run(console);
        }
        // Checked here: clap does not enforce that a flag requires --suite where MODEL, which conflicts with --suite,
        // is given.
        let of_suite = [("--full", self.full), ("--group", !self.groups.is_empty()), ("--seeds", self.seeds.is_some())];
        if let Some((flag, _)) = of_suite.into_iter().find(|(_, given)| *given) {
            anyhow::bail!("{flag}: expected --suite with it, got one model");
        }
        if self.model.explain(console)? {
            return Ok(Outcome::Done);
        }
        let network = self.model.network(Theory::default())?;
        if self.model.dump(&network.stack, console)? {
            return Ok(Outcome::Done);
        }
        if let (Some(shard), Some(folder)) = (self.shard, self.folder()) {
            return self.sampled_shard(&network.stack, (folder, shard), console);
        }
        let observations = match &self.observed[..] {
            [] => None,
            [file] => Some(read(file)?),
            files => anyhow::bail!("--observed: expected one file for one model, got {}", files.len()),
        };
        let sites = if observations.is_some() { Sites::All } else { self.sites.into() };
        let mut predicted = predict(&network.stack, sites)?;
        predicted.caveats.splice(0..0, network.caveats.iter().cloned());
        if let Some(folder) = self.folder() {
            claim(folder.path)?;
        }
        self.plot.claim()?;
        self.report.claim()?;
        let curve = self.curve.ink(self.format.format(), true)?;
        match observations {
            Some((file, observations)) => {
                let comparisons = compare_observations(&predicted.table, &observations).context(file.clone())?;
                let validation = Validation::new(&network, Observed::File { observed: file }, comparisons);
                self.write((&network, &predicted), &validation, curve, console)?;
                console.tell(|out, _| write_caveats(&predicted.caveats, console, out));
                Ok(self.gate(&validation.summary, console))
            }
            None => self.sampled(&network, &predicted, curve, console),
        }
    }

    /// Compares the prediction with sampled networks.
    fn sampled(
        &self,
        network: &Network,
        predicted: &Prediction,
        curve: Option<(Ink, usize)>,
        console: Console,
    ) -> anyhow::Result<Outcome> {
        let settings = self.settings();
        let identity = settings.identity(&stack_hash(&network.stack));
        let mut journal = self.folder().map(|folder| folder.journal(JOURNAL, &identity, console)).transpose()?;
        let measurement = match sample(&network.stack, &settings, journal.as_mut(), console) {
            Err(MeasureError::Cancelled) => {
                console.error("interrupted before the first replicate was done");
                return Ok(Outcome::Interrupted);
            }
            result => result?,
        };
        let Measurement { table, replicates, goal, overflow } = measurement;
        let comparisons = compare(&predicted.table, &table, replicates);
        let sampled = Observed::Sampled {
            seed: self.seed,
            batch: self.batch,
            replicates,
            sampler: self.sampler.name(),
            overflow: overflow.clone(),
        };
        let validation = Validation::new(network, sampled, comparisons);
        self.write((network, predicted), &validation, curve, console)?;
        if let Some(text) = rough(replicates).filter(|_| self.format.format() != Format::Table) {
            console.note(&text);
        }
        console.tell(|out, _| write_caveats(&predicted.caveats, console, out));
        if let Some(site) = &overflow {
            console.note(&format!("the sampled networks left the range of f32 at {site}; nothing is observed there"));
        }
        if replicates < goal {
            let go_on = self.folder().map(ReportFolder::go_on).unwrap_or_default();
            console.note(&format!("interrupted after {replicates} of {goal} replicates, which are reported{go_on}"));
            return Ok(Outcome::Interrupted);
        }
        if let Some(journal) = journal {
            journal.remove()?;
        }
        Ok(self.gate(&validation.summary, console))
    }

    /// Samples a part of the networks. The run that gathers all parts writes the report.
    fn sampled_shard(
        &self,
        stack: &Stack,
        (folder, shard): (ReportFolder, Shard),
        console: Console,
    ) -> anyhow::Result<Outcome> {
        let settings = self.settings();
        let identity = settings.identity(&stack_hash(stack));
        let sample = |journal: &mut _| Ok(sample_shard(stack, &settings, (journal, shard), console)?);
        folder.run_shard((JOURNAL, "networks"), shard, &identity, console, sample)
    }

    /// Returns the folder of the report, if there is one.
    fn folder(&self) -> Option<ReportFolder<'_>> {
        let path = self.output.as_deref().or(self.resume.as_deref())?;
        Some(ReportFolder { path, resumes: self.resume.is_some() })
    }

    /// Returns the bytes that the sampling may take.
    fn memory(&self) -> f64 {
        self.memory.or_else(|| Some(0.75 * free_memory()?)).unwrap_or(4.0 * GIBIBYTE)
    }

    fn settings(&self) -> Settings {
        Settings {
            replicates: self.replicates,
            batch: self.batch,
            seed: self.seed,
            threads: self.threads.0,
            memory: self.memory(),
            all_sites: self.sites == SiteChoice::All,
            weights: self.weights,
            controls: false,
            sampler: self.sampler.into(),
            target: self.target_error.map(|std_error| Target {
                std_error,
                sites: Vec::new(),
                replicates: self.max_replicates.unwrap_or(MOST_REPLICATES),
            }),
        }
    }

    fn write(
        &self,
        (network, prediction): (&Network, &Prediction),
        validation: &Validation,
        curve: Option<(Ink, usize)>,
        console: Console,
    ) -> anyhow::Result<()> {
        let Validation { run, comparisons, summary } = validation;
        let (title, shape) = (network.title(), network.shape());
        self.plot.draw(console, || Picture::of_validation(&title, prediction, comparisons, shape))?;
        let verdict = Verdict::of(prediction, shape, None);
        let document = ValidationDocument { prediction, verdict: &verdict, run, summary, comparisons };
        self.report.write(
            console.invocation(),
            (&title, self.seed),
            || Ok(vec![drawn(&network.stack, network.described().map(|(_, scheme)| scheme), &network.names)?]),
            |out| write_summary(validation, out),
            |origin, out| validation_html(origin, &document, out),
        )?;
        if let Some(ReportFolder { path: folder, .. }) = self.folder() {
            write_into(folder, "report.csv", |out| comparisons_rows(comparisons).write(RowFormat::Csv, out))?;
            write_into(folder, "summary.json", |out| summary_json(run, summary, out))?;
        }
        console.emit(None, |out| match self.format.format() {
            Format::Table => {
                writeln!(out, "{title}")?;
                if let Some(how) = curve {
                    writeln!(out)?;
                    validation_curve(prediction, comparisons, shape, how, out)?;
                    writeln!(out)?;
                }
                write_summary(validation, out)
            }
            Format::Rows(format) => comparisons_rows(comparisons).write(format, out),
            Format::Json => validation_json(&document, out),
        })
    }

    /// Returns the outcome of the gates. A number that does not exist passes none.
    fn gate(&self, summary: &Summary, console: Console) -> Outcome {
        let mut outcome = Outcome::Done;
        let mut fail = |what: &str, bound: &str, limit: f64, found: Option<f64>| {
            let found = found.map_or("there is none".to_owned(), |found| format!("got {}", short(found)));
            console.failed(&format!("{what}: expected {bound} {}, {found}", short(limit)));
            outcome = Outcome::GateFailed;
        };
        if let Some(limit) = self.min_r2.filter(|&limit| summary.pooled.r2_log.is_none_or(|r2| r2 < limit)) {
            fail("R² of ln variance and ln grad_variance", "at least", limit, summary.pooled.r2_log);
        }
        if let Some(limit) = self.max_error.filter(|&limit| summary.pooled.p99.is_none_or(|error| error > limit)) {
            fail("99th percentile of the relative errors", "at most", limit, summary.pooled.p99);
        }
        outcome
    }
}

/// Reads a file of observations. Returns its name and the observations.
fn read(path: &Path) -> anyhow::Result<(String, Vec<Observation>)> {
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
    let observations = read_observations(file).context(name.clone())?;
    Ok((name, observations))
}

/// Returns the caution that a small number of networks needs.
fn rough(replicates: usize) -> Option<String> {
    let networks = match replicates {
        1 => "A single replicate has no standard errors".to_owned(),
        _ => format!("Standard errors of {replicates} replicates are rough, z-scores follow Student's t"),
    };
    (replicates < FEW_REPLICATES).then(|| format!("{networks}; sites of one network deviate together."))
}

fn write_summary(validation: &Validation, out: &mut dyn Write) -> io::Result<()> {
    let Validation { run, comparisons, summary } = validation;
    let Run { stack_hash, observed, .. } = run;
    match observed {
        Observed::Sampled { seed, batch, replicates, .. } => {
            write!(out, "networks sampled: {replicates}, sequences each: {batch}, seed {seed}")?;
        }
        Observed::File { observed } => write!(out, "compared with {observed}")?,
    }
    writeln!(out, ", stack {stack_hash}\n")?;
    summary_table(summary, out)?;
    if let Observed::Sampled { replicates, .. } = observed
        && let Some(text) = rough(*replicates)
    {
        writeln!(out, "{text}")?;
    }
    let finite = comparisons.iter().filter_map(|row| Some((row.relative_error?.abs(), row)));
    if let Some((_, worst)) = finite.max_by(|(one, _), (other, _)| one.total_cmp(other)) {
        let z = worst.z.map_or(String::new(), |z| format!(", z = {z:.1}"));
        let (predicted, observed) = (short(worst.predicted), short(worst.observed));
        let (site, quantity) = (&worst.site, worst.quantity.name());
        writeln!(out, "Largest deviation: {quantity} at {site}, predicted {predicted}, observed {observed}{z}")?;
    }
    Ok(())
}
