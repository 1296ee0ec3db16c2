//! The public entry points: replicates run in parallel and are pooled in order.

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

/// The settings of a measurement: the number of samples, the reported quantities and the resources.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Number of networks to sample; weights, input, masks and gradient are fresh for each.
    pub replicates: usize,
    /// Number of sequences that share the weights of a replicate.
    pub batch: usize,
    /// Seed of all random numbers: the same seed gives the same result with any number of threads.
    pub seed: u64,
    /// Number of threads; `None`: one per processor.
    pub threads: Option<usize>,
    /// Bytes that the run may take. If they do not suffice, first fewer replicates run at a time. Then more parts of
    /// blocks are computed again in the backward pass, which takes up to a quarter more time.
    pub memory: f64,
    /// True if the sites inside blocks get rows too.
    pub all_sites: bool,
    /// True if the gradients of weights are reported.
    pub weights: bool,
    /// True if the known moments of Gaussian inputs and gradients are used to lower the errors of the sites (control
    /// variates; from 32 replicates).
    pub controls: bool,
    /// How linear maps are sampled.
    pub sampler: Sampling,
    /// Accuracy for which sampling goes on beyond `replicates`; `None`: it ends there.
    pub target: Option<Target>,
}

impl Settings {
    /// Returns the settings that determine the result of a run; `stack` is a fingerprint of the network.
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
    /// Their weights are sampled, then multiplied.
    Direct,
    /// Only the products of the weights with tokens and gradients are sampled, from their exact distribution. This
    /// takes tokens² × width operations instead of tokens × width². It needs Gaussian weights that are used once.
    Conditional,
}

/// The accuracy at which sampling may end.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Largest allowed standard error of the variances (relative) and of the token correlations.
    pub std_error: f64,
    /// Sites that must reach this error; if empty, all sites with a row.
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

/// The result of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// The rows of every site in forward order, and of every tensor that has a gradient.
    ///
    /// Standard errors are zero when there is only one replicate, because they are not known then. Cells that any
    /// replicate computed from numbers outside the range of f32 are blank. A tensor whose gradient left that range has
    /// no row.
    pub table: SiteTable,
    /// Number of replicates that were done.
    pub replicates: usize,
    /// Number of replicates to be done: larger than `replicates` after a cancellation.
    pub goal: usize,
    /// Path of the first site, forward then backward, that left the range of f32 in any replicate:
    /// beyond its largest number, or so small that digits are lost.
    pub overflow: Option<String>,
}

/// The reason why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The stack is invalid.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// A setting is outside its range.
    #[error("{field} must be at least 1, got {got}")]
    Setting {
        /// Name of the setting.
        field: &'static str,
        /// The value given.
        got: usize,
    },
    /// The conditional sampler cannot handle a site.
    #[error("{site}: {reason}; the conditional sampler needs Gaussian weights that are used once: sample directly")]
    Conditional {
        /// Path of the site.
        site: String,
        /// The reason.
        reason: &'static str,
    },
    /// The arrays do not fit into the allowed memory.
    #[error(
        "about {:.2} GiB of memory needed, {:.2} GiB allowed; lower the batch or the sequence length, or allow more",
        bytes / GIBIBYTE,
        limit / GIBIBYTE
    )]
    Memory {
        /// Estimated need of one replicate, in bytes.
        bytes: f64,
        /// The allowed number of bytes.
        limit: f64,
    },
    /// Threads could not be started.
    #[error("cannot start threads")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    /// The journal could not be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A signal or gradient left the range of f32, and there is no result without it.
    #[error("{site} left the range of f32; lower the scale of the weights")]
    Overflow {
        /// Path of the site.
        site: String,
    },
    /// Cancelled before the first replicate was done.
    #[error("cancelled before the first replicate was done")]
    Cancelled,
}

/// The progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Number of replicates done.
    pub done: usize,
    /// Number of replicates to be done, as far as is known: a target may need more.
    pub goal: usize,
}

/// Samples `settings.replicates` networks and returns the moments of their signals and gradients.
///
/// `progress` is called after each replicate. Once `cancelled` is true, replicates under way are abandoned. The result
/// then holds replicates 0 .. k without a gap; it is the result of a run with `replicates` = k except for its `goal`.
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

/// Measures like [`measure`], with a journal of this run: every replicate is recorded as soon as it is done, and
/// replicates in the journal are not sampled again. The result is the same.
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

/// Samples the replicates of a shard of a run without a target, into a journal of its own. Returns how many of them the
/// journal holds now: fewer than all after a cancellation. A run that gathers the journals of all shards gives the same
/// result as a run that samples everything.
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

/// Checks the settings; returns the plan of a replicate, and one pool of threads per replicate that runs at a time.
fn prepare(stack: &Stack, settings: &Settings) -> Result<(Plan, Vec<ThreadPool>), MeasureError> {
    check(stack)?;
    let threads = number_of_threads(settings.threads)?;
    for (field, got) in [("replicates", settings.replicates), ("batch", settings.batch)] {
        if got == 0 {
            return Err(MeasureError::Setting { field, got });
        }
    }
    // As many replicates run side by side as fit into the memory; they share the threads.
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

/// Returns the number of threads asked for, or else of processors.
pub(crate) fn number_of_threads(asked: Option<usize>) -> Result<usize, MeasureError> {
    let threads = asked.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    if threads == 0 { Err(MeasureError::Setting { field: "threads", got: 0 }) } else { Ok(threads) }
}

/// Returns the number of replicates that is likely to reach the target; `None` if `now` replicates reach it, or if no
/// more are allowed.
fn next_goal(table: &SiteTable, target: &Target, now: usize) -> Option<usize> {
    /// Largest factor on the number of replicates at a time, because the errors are estimates themselves.
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
