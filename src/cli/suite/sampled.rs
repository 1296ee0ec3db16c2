//! Suites: the runs that are sampled.

use std::{
    slice,
    sync::atomic::{AtomicBool, Ordering},
};

use crate::{
    report::SuiteRuns,
    suite::{Case, GaussianScores, Look, Predicted, Run, Sample, score},
};
use anyhow::Context;
use sigprop_validate::{
    Journal, MeasureError, Measurement, Progress, Settings, Shard, Target, measure, measure_softmax,
};

use super::{SuiteRun, count, title};
use crate::cli::{console::Console, folder::claim, sampling::cancellation};

impl SuiteRun<'_> {
    /// Samples a run with every seed, up to an interruption. Each of several runs gets a report of its own. Cases that
    /// the journal holds are not sampled again.
    pub(super) fn sampled(
        &self,
        (cases, predicted): (&[Case], &[Predicted]),
        mut journal: Option<&mut Journal<Measurement>>,
        console: Console,
    ) -> anyhow::Result<(SuiteRuns, Vec<Run>)> {
        let cancelled = cancellation(console);
        let total = cases.len() * self.seeds.len();
        let held = journal.as_ref().map_or(0, |journal| journal.len());
        let bar = console.progress("[{bar:30}] {pos}/{len} cases, {eta} left: {msg}", total, held);
        let mut runs = Vec::new();
        for (number, &seed) in self.seeds.iter().enumerate() {
            let mut run = Run(vec![Vec::new(); cases.len()]);
            for (index, case) in cases.iter().enumerate() {
                bar.set_message(case.group);
                let record = number * cases.len() + index;
                let measured = match journal.as_mut().and_then(|journal| journal.take(record)) {
                    None => {
                        let Some(measured) = self.measured(case, (seed, index), &cancelled)? else { break };
                        bar.inc(1);
                        if let Some(journal) = &mut journal {
                            journal.append(record, &measured)?;
                        }
                        measured
                    }
                    Some(held) => held,
                };
                run.0[index] = case.compare(&predicted[index], &measured.table, measured.replicates);
            }
            let kept = self.output.filter(|_| self.seeds.len() > 1 && count(&run) > 0);
            if let Some(folder) = kept.map(|folder| folder.path.join(seed.to_string())) {
                claim(&folder)?;
                let lines = score(cases, predicted, slice::from_ref(&run), &run);
                self.keep(Some(&folder), &SuiteRuns::Seed { seed }, (cases, predicted, &run), &lines)?;
            }
            runs.extend(Some(run).filter(|run| count(run) > 0));
            if cancelled.load(Ordering::Relaxed) {
                break;
            }
        }
        bar.finish_and_clear();
        let origin = match self.seeds {
            &[seed] => SuiteRuns::Seed { seed },
            seeds => SuiteRuns::Seeds { seeds: seeds[..runs.len()].to_vec() },
        };
        Ok((origin, runs))
    }

    /// Samples the cases of a shard into its journal, up to an interruption.
    pub(super) fn sampled_shard(
        &self,
        cases: &[Case],
        (journal, shard): (&mut Journal<Measurement>, Shard),
        console: Console,
    ) -> anyhow::Result<Progress> {
        let cancelled = cancellation(console);
        let (lacking, mut done) = journal.lacking(shard, cases.len() * self.seeds.len());
        let goal = done + lacking.len();
        let bar = console.progress("[{bar:30}] {pos}/{len} cases of the shard, {eta} left: {msg}", goal, done);
        for record in lacking {
            let (number, index) = (record / cases.len(), record % cases.len());
            bar.set_message(cases[index].group);
            let Some(measured) = self.measured(&cases[index], (self.seeds[number], index), &cancelled)? else { break };
            journal.append(record, &measured)?;
            done += 1;
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(Progress { done, goal })
    }

    /// Samples a whole case; returns `None` after an interruption. Every case has random numbers of its own.
    fn measured(
        &self,
        case: &Case,
        (seed, index): (u64, usize),
        cancelled: &AtomicBool,
    ) -> anyhow::Result<Option<Measurement>> {
        let seed = seed.wrapping_mul(1_000_003).wrapping_add(index as u64);
        match self.measure(case, seed, cancelled) {
            Ok(Measurement { replicates, goal, .. }) if replicates < goal => Ok(None),
            Err(MeasureError::Cancelled) => Ok(None),
            result => result.map(Some).with_context(|| title(case)),
        }
    }

    fn measure(&self, case: &Case, seed: u64, cancelled: &AtomicBool) -> Result<Measurement, MeasureError> {
        match &case.sample {
            Sample::Softmax { scores: GaussianScores { count, variance, correlation }, replicates } => {
                let replicates = self.max_replicates.map_or(*replicates, |most| most.min(*replicates));
                measure_softmax(*count, *variance, *correlation, replicates, seed, self.threads, cancelled)
            }
            Sample::Stack { stack, std_error, replicates } => {
                let most = self.max_replicates.unwrap_or(replicates[1]);
                let replicates = replicates[0].min(most);
                let target = Target { std_error: *std_error, sites: case.look.sites(), replicates: most };
                let settings = Settings {
                    replicates,
                    seed,
                    threads: self.threads,
                    memory: self.memory,
                    weights: case.look == Look::Everything,
                    controls: true,
                    target: Some(target),
                    ..Settings::default()
                };
                measure(stack, &settings, &|_| {}, cancelled)
            }
        }
    }
}
