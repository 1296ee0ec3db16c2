//! The public entry: replicates in parallel, pooled in order.

use std::{sync::atomic::AtomicBool, thread};

use rayon::ThreadPool;
use serde::{Deserialize, Serialize};
use sigprop_stack::{Cell, GIBIBYTE, Quantity, SiteRow, SiteTable, Stack, StackError, check};

use crate::{
    journal::{Identity, Journal, JournalError},
    plan::Plan,
    replicates::{Replicates, complete},
    rows::{first_overflow, table},
    sample::{Replicate, replicate},
    shard::Shard,
};

/// How much is sampled, and what is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Networks to sample: weights, input, masks and gradient are fresh for each.
    pub replicates: usize,
    /// Sequences that share the weights of a replicate.
    pub batch: usize,
    /// Same seed, same result, at any number of threads.
    pub seed: u64,
    /// Threads; all processors if none.
    pub threads: Option<usize>,
    /// Bytes that the run may take. Beyond them fewer replicates are under way at a time, then more of the insides
    /// of blocks is computed again in the backward pass, which costs up to a quarter of the time again.
    pub memory: f64,
    /// Whether the sites inside blocks get rows too.
    pub all_sites: bool,
    /// Whether the gradients of weights are told.
    pub weights: bool,
    /// Whether what is known of Gaussian inputs and gradients is used to lower the errors of the sites (control
    /// variates; from 32 replicates).
    pub controls: bool,
    /// How linear maps are sampled.
    pub sampler: Sampling,
    /// Whether to go on beyond `replicates`.
    pub target: Option<Target>,
}

impl Settings {
    /// What decides the result of a run of `stack`, a fingerprint.
    pub fn identity(&self, stack: &str) -> Identity {
        let Self { replicates, batch, seed, threads: _, memory: _, all_sites, weights, controls, sampler, target } =
            self;
        vec![
            ("stack", stack.to_owned()),
            ("seed", seed.to_string()),
            ("replicates", replicates.to_string()),
            ("batch", batch.to_string()),
            ("all-sites", all_sites.to_string()),
            ("weights", weights.to_string()),
            ("controls", controls.to_string()),
            ("sampler", format!("{sampler:?}")),
            ("target", format!("{target:?}")),
        ]
    }
}

/// How linear maps are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// Their weights are drawn, and multiplied.
    Direct,
    /// Only what their weights make of the tokens and the gradients is drawn, from its distribution: the same
    /// distribution in tokens² × width operations instead of tokens × width². For Gaussian weights that are used once.
    Conditional,
}

/// When sampling may end.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Largest standard error of the variances (relative) and of the token correlations.
    pub std_error: f64,
    /// Of these sites; of all that get a row if none.
    pub sites: Vec<String>,
    /// Largest number of replicates.
    pub replicates: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            replicates: 16,
            batch: 1,
            seed: 0,
            threads: None,
            memory: 4.0 * GIBIBYTE,
            all_sites: false,
            weights: false,
            controls: false,
            sampler: Sampling::Direct,
            target: None,
        }
    }
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Every site in forward order, every tensor that has a gradient.
    ///
    /// Standard errors are zero when there is only one replicate: they are not known then. Cells
    /// that any replicate computed from numbers outside the range of f32 are blank; a tensor whose
    /// gradient left that range has no row.
    pub table: SiteTable,
    /// Replicates really done.
    pub replicates: usize,
    /// Replicates to be done: more than that after a cancellation.
    pub goal: usize,
    /// Path of the first site, forward then backward, that left the range of f32 in any replicate:
    /// beyond its largest number, or so small that digits are lost.
    pub overflow: Option<String>,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The stack cannot be walked.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// A setting outside its range.
    #[error("{field} must be at least 1, got {got}")]
    Setting {
        /// Name of the setting.
        field: &'static str,
        /// What it is.
        got: usize,
    },
    /// The conditional sampler cannot do this.
    #[error("{site}: {reason}; the conditional sampler needs Gaussian weights that are used once: sample directly")]
    Conditional {
        /// Where.
        site: String,
        /// Why not.
        reason: &'static str,
    },
    /// The arrays would not fit.
    #[error(
        "about {:.2} GiB of memory needed, {:.2} GiB allowed; lower the batch or the sequence length, or allow more",
        bytes / GIBIBYTE,
        limit / GIBIBYTE
    )]
    Memory {
        /// Estimated need of one replicate.
        bytes: f64,
        /// What is allowed.
        limit: f64,
    },
    /// Threads could not be started.
    #[error("cannot start threads")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    /// Replicates could not be taken down.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A signal or gradient is beyond f32, where nothing can be told without it.
    #[error("{site} left the range of f32; lower the scale of the weights")]
    Overflow {
        /// Where.
        site: String,
    },
    /// Cancelled before the first replicate was done.
    #[error("cancelled before the first replicate was done")]
    Cancelled,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Replicates done.
    pub done: usize,
    /// Replicates to be done, as far as is known: a target may need more.
    pub goal: usize,
}

/// Samples `settings.replicates` networks and tells what flows through them.
///
/// `progress` is called after each replicate. Once `cancelled` is true, replicates under way are
/// abandoned and the result holds replicates 0 .. k without a gap, the same as a run with
/// `replicates` = k but for its `goal`.
///
/// # Panics
///
/// Only if `progress` does.
pub fn measure(
    stack: &Stack,
    settings: &Settings,
    progress: &(dyn Fn(Progress) + Sync),
    cancelled: &AtomicBool,
) -> Result<Measurement, MeasureError> {
    measure_with(None, stack, settings, progress, cancelled)
}

/// As [`measure`], with a journal of this run: every replicate is taken down as it comes, those that it holds are
/// not sampled again. The result is the same.
///
/// # Panics
///
/// Only if `progress` does.
pub fn measure_with(
    journal: Option<&mut Journal<Replicate>>,
    stack: &Stack,
    settings: &Settings,
    progress: &(dyn Fn(Progress) + Sync),
    cancelled: &AtomicBool,
) -> Result<Measurement, MeasureError> {
    let (plan, pools) = prepare(stack, settings)?;
    let target = settings.target.as_ref();
    let mut replicates = Replicates::new(journal);
    let mut goal = settings.replicates;
    loop {
        let sample = |index| replicate(stack, &plan, settings, index, cancelled);
        let done = replicates.reach(goal, &pools, &sample, progress)?;
        if done.is_empty() {
            return Err(MeasureError::Cancelled);
        }
        let table = table(stack, &plan, settings, done);
        let more = target.filter(|_| done.len() == goal);
        match more.and_then(|target| next_goal(&table, target, goal)) {
            Some(next) => goal = next,
            None => {
                return Ok(Measurement { table, replicates: done.len(), goal, overflow: first_overflow(done) });
            }
        }
    }
}

/// Samples those replicates of a run without a target that are of a shard, into a journal of its own; how many of them
/// that holds now: fewer than all after a cancellation. A run that gathers the journals of all shards is the same as one
/// that samples all of it.
///
/// # Panics
///
/// Only if `progress` does.
pub fn measure_shard(
    journal: &mut Journal<Replicate>,
    shard: Shard,
    stack: &Stack,
    settings: &Settings,
    progress: &(dyn Fn(Progress) + Sync),
    cancelled: &AtomicBool,
) -> Result<Progress, MeasureError> {
    let (plan, pools) = prepare(stack, settings)?;
    let sample = |index| replicate(stack, &plan, settings, index, cancelled);
    Ok(complete(journal, (shard, settings.replicates), &pools, &sample, progress)?)
}

/// What is sampled how, and the threads that do it.
fn prepare(stack: &Stack, settings: &Settings) -> Result<(Plan, Vec<ThreadPool>), MeasureError> {
    check(stack)?;
    let threads = number_of_threads(settings.threads)?;
    for (field, got) in [("replicates", settings.replicates), ("batch", settings.batch)] {
        if got == 0 {
            return Err(MeasureError::Setting { field, got });
        }
    }
    // Replicates side by side, as many as fit, and inside each as many threads as that leaves.
    let target = settings.target.as_ref();
    let most = threads.min(target.map_or(0, |target| target.replicates).max(settings.replicates));
    let largest = Plan::new(stack, settings, f64::INFINITY).bytes;
    let workers = ((settings.memory / largest) as usize).clamp(1, most);
    let plan = Plan::new(stack, settings, settings.memory / workers as f64);
    if let Some((site, reason)) = plan.refusal {
        return Err(MeasureError::Conditional { site, reason });
    }
    if plan.bytes > settings.memory {
        return Err(MeasureError::Memory { bytes: plan.bytes, limit: settings.memory });
    }
    let pool = || rayon::ThreadPoolBuilder::new().num_threads(threads / workers).build();
    let pools = (0..workers).map(|_| pool()).collect::<Result<Vec<_>, _>>()?;
    Ok((plan, pools))
}

/// All processors if none are asked for.
pub(crate) fn number_of_threads(asked: Option<usize>) -> Result<usize, MeasureError> {
    let threads = asked.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    if threads == 0 { Err(MeasureError::Setting { field: "threads", got: 0 }) } else { Ok(threads) }
}

/// How many replicates are likely to reach the target, unless `now` do or are all that is allowed.
fn next_goal(table: &SiteTable, target: &Target, now: usize) -> Option<usize> {
    /// Errors that are estimates themselves are not trusted with more.
    const LARGEST_STEP: usize = 8;
    let relative = |cell: &Cell| cell.std_error.ratio(&cell.value);
    let absolute = |cell: &Cell| cell.std_error.value();
    let counts = |row: &&SiteRow| target.sites.is_empty() || target.sites.contains(&row.site);
    let errors = table.sites.iter().filter(counts).flat_map(|row| {
        let variances = [Quantity::Variance, Quantity::GradVariance].map(|quantity| row.get(quantity).map(relative));
        let correlations = [Quantity::TokenCorrelation, Quantity::GradTokenCorrelation];
        variances.into_iter().chain(correlations.map(|quantity| row.get(quantity).map(absolute))).flatten()
    });
    let worst = errors.filter(|error| error.is_finite()).fold(0.0, f64::max);
    if worst <= target.std_error || now >= target.replicates {
        return None;
    }
    let needed = 1.1 * now as f64 * (worst / target.std_error).powi(2);
    Some((needed as usize).clamp(now + 1, LARGEST_STEP * now).min(target.replicates))
}
