//! The replicates of a run: sampled in parallel, some of them read from a journal.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use rayon::ThreadPool;

use crate::{
    Progress,
    journal::{Journal, JournalError},
    sample::Replicate,
    shard::Shard,
};

/// The first replicates of a run, which are done without a gap, and the journal of the run.
pub(crate) struct Replicates<'a> {
    done: Vec<Replicate>,
    journal: Option<&'a mut Journal<Replicate>>,
}

/// The state that workers share.
struct Work<'a> {
    /// The replicates that follow the replicates of earlier calls, in order; `None` where one is missing.
    replicates: Vec<Option<Replicate>>,
    progress: Progress,
    journal: Option<&'a mut Journal<Replicate>>,
    failure: Option<JournalError>,
}

impl<'a> Replicates<'a> {
    pub(crate) fn new(journal: Option<&'a mut Journal<Replicate>>) -> Self {
        Self { done: Vec::new(), journal }
    }

    /// Returns the replicates from 0 to `goal` − 1; after a cancellation, only those before the first unfinished one.
    ///
    /// Every pool that is free takes the next missing replicate. After a cancellation, few finished replicates
    /// therefore follow the first unfinished one: they overtook replicates that were in progress.
    pub(crate) fn reach(
        &mut self,
        goal: usize,
        pools: &[ThreadPool],
        sample: &(dyn Fn(usize) -> Option<Replicate> + Sync),
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<&[Replicate], JournalError> {
        let first = self.done.len();
        let held = |index| self.journal.as_mut().and_then(|journal| journal.take(index));
        let replicates: Vec<Option<Replicate>> = (first..goal).map(held).collect();
        let lacking: Vec<usize> = (first..goal).filter(|index| replicates[index - first].is_none()).collect();
        let progress_so_far = Progress { done: goal - lacking.len(), goal };
        let journal = self.journal.as_deref_mut();
        let work = Mutex::new(Work { replicates, progress: progress_so_far, journal, failure: None });
        side_by_side(&lacking, pools, sample, &|index, sampled| {
            let mut work = work.lock().expect("only progress could panic under the lock");
            let goes_on = work.take_down(index, first, sampled);
            if goes_on {
                progress(work.progress);
            }
            goes_on
        });
        let work = work.into_inner().expect("only progress could panic under the lock");
        if let Some(failure) = work.failure {
            return Err(failure);
        }
        self.done.extend(work.replicates.into_iter().map_while(|replicate| replicate));
        Ok(&self.done)
    }
}

/// Samples the missing replicates of a shard, of `replicates` in all, into its journal; returns the progress.
pub(crate) fn complete(
    journal: &mut Journal<Replicate>,
    (shard, replicates): (Shard, usize),
    pools: &[ThreadPool],
    sample: &(dyn Fn(usize) -> Option<Replicate> + Sync),
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Progress, JournalError> {
    let (lacking, done) = journal.lacking(shard, replicates);
    let state = Mutex::new((journal, Progress { done, goal: done + lacking.len() }, None));
    side_by_side(&lacking, pools, sample, &|index, sampled| {
        let (journal, so_far, failure) = &mut *state.lock().expect("only progress could panic under the lock");
        if failure.is_none() {
            *failure = journal.append(index, &sampled).err();
        }
        if failure.is_none() {
            so_far.done += 1;
            progress(*so_far);
        }
        failure.is_none()
    });
    let (_, so_far, failure) = state.into_inner().expect("only progress could panic under the lock");
    failure.map_or(Ok(so_far), Err)
}

/// Samples the missing replicates. Each pool takes the next one when it is free, until a cancellation or until
/// `take_down` returns false.
fn side_by_side(
    lacking: &[usize],
    pools: &[ThreadPool],
    sample: &(dyn Fn(usize) -> Option<Replicate> + Sync),
    take_down: &(dyn Fn(usize, Replicate) -> bool + Sync),
) {
    let next = AtomicUsize::new(0);
    let take_turns = || {
        while let Some(&index) = lacking.get(next.fetch_add(1, Ordering::Relaxed)) {
            let Some(sampled) = sample(index) else { return };
            if !take_down(index, sampled) {
                return;
            }
        }
    };
    thread::scope(|scope| {
        for pool in pools {
            scope.spawn(|| pool.install(take_turns));
        }
    });
}

impl Work<'_> {
    /// Appends a replicate to the journal. Returns true if the work goes on, and false once an append has failed.
    fn take_down(&mut self, index: usize, first: usize, sampled: Replicate) -> bool {
        if self.failure.is_some() {
            return false;
        }
        if let Some(Err(failure)) = self.journal.as_mut().map(|journal| journal.append(index, &sampled)) {
            self.failure = Some(failure);
            return false;
        }
        self.replicates[index - first] = Some(sampled);
        self.progress.done += 1;
        true
    }
}
