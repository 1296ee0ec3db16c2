//! Sampling from the command line: the sampler, the memory, the progress, and the ways to end it early.

use std::{
    fs, process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use clap::ValueEnum;
use sigprop_stack::Stack;
use sigprop_validate::{
    Journal, MeasureError, Measurement, Progress, Replicate, Sampling, Settings, Shard, measure_shard, measure_with,
};

use super::console::Console;

/// How linear maps are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum SamplerChoice {
    /// Draw the weights, and multiply.
    Direct,
    /// Draw only the effect of Gaussian weights on tokens and gradients: the same distribution, faster if networks are
    /// wider than five times their tokens.
    Conditional,
}

impl SamplerChoice {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Conditional => "conditional",
        }
    }
}

impl From<SamplerChoice> for Sampling {
    fn from(choice: SamplerChoice) -> Self {
        match choice {
            SamplerChoice::Direct => Self::Direct,
            SamplerChoice::Conditional => Self::Conditional,
        }
    }
}

/// Returns the number of bytes of free memory, as Linux reports it; `None` on other systems.
pub(super) fn free_memory() -> Option<f64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok().map(|kibibytes| 1024.0 * kibibytes)
}

/// Samples networks, with a progress bar on a terminal. Ctrl-C ends it early.
pub(super) fn sample(
    stack: &Stack,
    settings: &Settings,
    journal: Option<&mut Journal<Replicate>>,
    console: Console,
) -> Result<Measurement, MeasureError> {
    let cancelled = cancellation(console);
    let held = journal.as_ref().map_or(0, |journal| journal.len());
    let bar = console.progress("sampling [{bar:40}] {pos}/{len} networks, {eta} left", settings.replicates, held);
    let progress = |Progress { done, goal }| {
        bar.set_length(goal as u64);
        bar.set_position(done as u64);
    };
    let measurement = measure_with(journal, stack, settings, &progress, &cancelled);
    bar.finish_and_clear();
    measurement
}

/// Samples the replicates of a shard, which go into its journal and nowhere else.
pub(super) fn sample_shard(
    stack: &Stack,
    settings: &Settings,
    (journal, shard): (&mut Journal<Replicate>, Shard),
    console: Console,
) -> Result<Progress, MeasureError> {
    let cancelled = cancellation(console);
    let bar = console.progress("sampling [{bar:40}] {pos}/{len} networks of the shard, {eta} left", 0, journal.len());
    let progress = |Progress { done, goal }| {
        bar.set_length(goal as u64);
        bar.set_position(done as u64);
    };
    let done = measure_shard(journal, shard, stack, settings, &progress, &cancelled);
    bar.finish_and_clear();
    done
}

/// Returns a flag that becomes true at Ctrl-C. A second Ctrl-C ends the program at once.
pub(super) fn cancellation(console: Console) -> Arc<AtomicBool> {
    if let Some(caller) = console.caller() {
        return caller.cancelled();
    }
    let cancelled = Arc::new(AtomicBool::new(false));
    let by_signal = Arc::clone(&cancelled);
    let handler = ctrlc::set_handler(move || {
        if by_signal.swap(true, Ordering::Relaxed) {
            process::exit(130);
        }
    });
    if let Err(error) = handler {
        console.note(&format!("Ctrl-C will end the run at once, without a report: {error}"));
    }
    cancelled
}
