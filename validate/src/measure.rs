//! The public entry: replicates in parallel, pooled in order.

use std::{
    ops::Range,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use sigprop_stack::{Cell, Quantity, SiteRow, SiteTable, Stack, StackError, WeightRow, check};

use crate::{
    controls::Controls,
    plan::Plan,
    sample::{Replicate, replicate},
    statistics::{Moments, jackknife, spread},
};

const GIBIBYTE: f64 = 1024.0 * 1024.0 * 1024.0;

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
    /// Bytes that the run may take. Beyond them fewer replicates are under way at a time, then the insides
    /// of blocks are computed again in the backward pass, which costs up to half as much time again.
    pub memory: f64,
    /// Whether the sites inside blocks get rows too.
    pub all_sites: bool,
    /// Whether the gradients of weights are told.
    pub weights: bool,
    /// Whether what is known of Gaussian inputs and gradients is used to lower the errors of the sites (control
    /// variates; from 32 replicates).
    pub controls: bool,
    /// Whether to go on beyond `replicates`.
    pub target: Option<Target>,
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
            target: None,
        }
    }
}

/// What was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// Every site in forward order, every tensor that has a gradient.
    ///
    /// Standard errors are zero when there is only one replicate: they are not known then. Cells
    /// that any replicate computed from numbers outside the range of f32 are blank; a tensor whose
    /// gradient left that range has no row.
    pub table: SiteTable,
    /// Replicates really done: fewer than asked for after a cancellation.
    pub replicates: usize,
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
    /// Cancelled before the first replicate was done.
    #[error("cancelled before the first replicate was done")]
    Cancelled,
}

/// Samples `settings.replicates` networks and tells what flows through them.
///
/// `progress` is called after each replicate with the number of those done. Once `cancelled` is
/// true, replicates under way are abandoned and the result holds replicates 0 .. k without a gap,
/// the same as a run with `replicates` = k.
///
/// # Panics
///
/// Only if `progress` does.
pub fn measure(
    stack: &Stack,
    settings: &Settings,
    progress: &(dyn Fn(usize) + Sync),
    cancelled: &AtomicBool,
) -> Result<Measurement, MeasureError> {
    check(stack)?;
    let threads = settings.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    for (field, got) in [("replicates", settings.replicates), ("batch", settings.batch), ("threads", threads)] {
        if got == 0 {
            return Err(MeasureError::Setting { field, got });
        }
    }
    // Replicates side by side, as many as fit, and inside each as many threads as that leaves.
    let share = |workers: usize| Plan::new(stack, settings, settings.memory / workers as f64);
    let target = settings.target.as_ref();
    let most = threads.min(target.map_or(0, |target| target.replicates).max(settings.replicates));
    let largest = Plan::new(stack, settings, f64::INFINITY).bytes;
    let workers = ((settings.memory / largest) as usize).clamp(1, most);
    let plan = share(workers);
    if plan.bytes > settings.memory {
        return Err(MeasureError::Memory { bytes: plan.bytes, limit: settings.memory });
    }
    let pool = || rayon::ThreadPoolBuilder::new().num_threads(threads / workers).build();
    let pools = (0..workers).map(|_| pool()).collect::<Result<Vec<_>, _>>()?;

    let mut replicates = Vec::new();
    let mut goal = settings.replicates;
    loop {
        let sample = |index| replicate(stack, &plan, settings, index, cancelled);
        replicates.extend(sample_all(&pools, replicates.len()..goal, &sample, progress));
        if replicates.is_empty() {
            return Err(MeasureError::Cancelled);
        }
        let table = SiteTable {
            sites: site_rows(stack, &plan, settings, &replicates),
            weights: weight_rows(&plan, &replicates),
        };
        let more = target.filter(|_| replicates.len() == goal);
        match more.and_then(|target| next_goal(&table, target, goal)) {
            Some(next) => goal = next,
            None => {
                return Ok(Measurement { table, replicates: replicates.len(), overflow: first_overflow(&replicates) });
            }
        }
    }
}

/// The replicates of a range, those at its end lacking after a cancellation.
///
/// Each worker takes the next one when it is free, so that those done have no gaps but the ones under way.
fn sample_all(
    pools: &[rayon::ThreadPool],
    range: Range<usize>,
    sample: &(dyn Fn(usize) -> Option<Replicate> + Sync),
    progress: &(dyn Fn(usize) + Sync),
) -> impl Iterator<Item = Replicate> + use<> {
    let next = AtomicUsize::new(range.start);
    let done = Mutex::new(Done { count: range.start, replicates: range.clone().map(|_| None).collect() });
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= range.end {
                return;
            }
            let Some(sampled) = sample(index) else { return };
            let mut done = done.lock().expect("only progress could panic under the lock");
            done.replicates[index - range.start] = Some(sampled);
            done.count += 1;
            progress(done.count);
        }
    };
    thread::scope(|scope| {
        for pool in pools {
            scope.spawn(|| pool.install(work));
        }
    });
    let done = done.into_inner().expect("only progress could panic under the lock");
    done.replicates.into_iter().map_while(|replicate| replicate)
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

/// The earliest site that left the range of f32 in any replicate.
fn first_overflow(replicates: &[Replicate]) -> Option<String> {
    let overflows = replicates.iter().filter_map(|replicate| replicate.overflow.as_ref());
    overflows.min_by_key(|first| first.step).map(|overflow| overflow.site.clone())
}

struct Done {
    count: usize,
    replicates: Vec<Option<Replicate>>,
}

fn site_rows(stack: &Stack, plan: &Plan, settings: &Settings, replicates: &[Replicate]) -> Vec<SiteRow> {
    let inputs: Vec<&[Moments]> = replicates.iter().map(|replicate| replicate.inputs.as_slice()).collect();
    let controls = if settings.controls { Controls::new(stack, &inputs) } else { None };
    let gather = |moments: &dyn Fn(&Replicate) -> Option<Moments>| replicates.iter().map(moments).collect();
    let adjust = |all: &Vec<Moments>| controls.as_ref().map_or_else(|| all.clone(), |controls| controls.adjust(all));
    let rows = plan.rows.iter().enumerate().map(|(index, row)| {
        let signals: Option<Vec<Moments>> = gather(&|replicate| replicate.signals.get(index).copied());
        let adjusted = signals.as_ref().map(adjust);
        let signal = |quantity: fn(&Moments) -> Option<f64>| jackknife(adjusted.as_ref()?, quantity);
        let met = plan.backward.iter().position(|&row| row == index);
        let gradients = met.and_then(|met| gather(&|replicate| replicate.gradients.get(met).copied()));
        let adjusted = gradients.as_ref().map(adjust);
        let gradient = |quantity: fn(&Moments) -> Option<f64>| jackknife(adjusted.as_ref()?, quantity);
        SiteRow {
            layer: row.layer,
            site: row.site.clone(),
            is_stream_site: row.is_stream_site,
            cells: [
                signal(|pooled| Some(pooled.mean())),
                signal(|pooled| Some(pooled.variance())),
                signal(Moments::token_correlation),
                gradient(|pooled| Some(pooled.second_moment())),
                gradient(Moments::grad_token_correlation),
                signal(|pooled| pooled.variance_at(0)),
                signal(|pooled| pooled.variance_at(1)),
                gradient(|pooled| pooled.second_moment_at(0)),
                gradient(|pooled| pooled.second_moment_at(1)),
                signals.as_ref().and_then(|own| spread(own, Moments::variance)),
                gradients.as_ref().and_then(|own| spread(own, Moments::second_moment)),
            ],
        }
    });
    rows.collect()
}

fn weight_rows(plan: &Plan, replicates: &[Replicate]) -> Vec<WeightRow> {
    let rows = plan.tensors.iter().enumerate().filter_map(|(index, planned)| {
        // The tensors of all experts are told as one.
        if planned.expert.is_some_and(|expert| expert > 0) {
            return None;
        }
        let alike: Vec<usize> = (index..plan.tensors.len())
            .filter(|&other| other == index || plan.tensors[other].is_expert_beside(planned))
            .collect();
        let pooled: Option<Vec<Moments>> = replicates
            .iter()
            .map(|replicate| alike.iter().map(|&i| replicate.weights[i]).reduce(|a, b| Some(a? + b?)).flatten())
            .collect();
        Some(WeightRow {
            layer: planned.layer,
            tensor: planned.tensor.name.clone(),
            variance: planned.tensor.init.variance(),
            grad_second_moment: jackknife(&pooled?, |pooled| Some(pooled.second_moment()))?,
        })
    });
    rows.collect()
}
