//! The content of a checkpoint, compared with its expected initialisation.
//!
//! [`inspect()`] measures every tensor of floats. Given the parameters of a network ([`Held`]), it finds the parameter
//! that each tensor holds, its deviation from the scheme, and the missing parameters. [`with_measured`] writes the
//! measured values into the network's stack, which can then be predicted like any other.

mod absent;
mod adapter;
mod buffers;
mod closest;
mod copies;
mod cut;
mod deviation;
mod examples;
mod finding;
mod findings;
mod group;
mod judgement;
mod matching;
mod omission;
mod provenance;
mod reading;
mod rows;
mod scales;
mod singular;
mod sketch;
mod spread;
mod stack;
mod tails;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};

use rayon::prelude::*;

use crate::checkpoint::{Checkpoint, CheckpointError, Entry};
use crate::huggingface::Held;
use crate::verdict::{FORMATS, Format};
use matching::{Matching, fits};

pub use absent::AbsentBlocks;
pub use adapter::Adapter;
pub use closest::{Candidate, Resemblance};
pub use deviation::Deviation;
pub(crate) use finding::range;
pub use finding::some;
pub use finding::{Finding, Problem};
pub use group::Group;
pub use judgement::{Judgement, caveats, coverage, of_problem};
pub use matching::{names_of, unused_rule};
pub use omission::{Omission, OmissionKind};
pub use reading::Reading;
pub use rows::{Rows, Run};
pub use scales::foreign_scales;
pub use sketch::{Fingerprint, Repetition, RepetitionKind};
pub use spread::Spread;
pub use stack::with_measured;
pub use tails::Tails;

/// The result of an inspection.
#[derive(Clone, Debug, PartialEq)]
pub struct Inspection {
    /// Every tensor of floats, part by part, in the order of the checkpoint.
    pub readings: Vec<Reading>,
    /// Names of the tensors that hold no part of the network, in the order of the checkpoint.
    pub unknown: Vec<String>,
    /// Names of the parameters of the network that no tensor holds. If all parameters whose names differ only in
    /// numbers are missing, the name with `*` for numbers is listed instead.
    pub missing: Vec<String>,
    /// Blocks of the network without any tensor in the checkpoint.
    pub absent_blocks: Vec<AbsentBlocks>,
    /// Names of the tensors that are not read because their type is not a supported float, each with its type.
    pub unread: Vec<(String, String)>,
    /// The share of the network that the checkpoint holds.
    pub coverage: Coverage,
}

impl Inspection {
    /// Returns the format in which most entries are stored and training continues. For eight-bit formats, in which only
    /// weights are kept, it is bf16.
    pub fn format(&self) -> &'static Format {
        let mut entries: BTreeMap<&str, u64> = BTreeMap::new();
        for reading in &self.readings {
            *entries.entry(&reading.dtype).or_default() += reading.spread.count + reading.spread.not_finite;
        }
        let most = entries.into_iter().max_by_key(|(_, count)| *count).map(|(dtype, _)| dtype);
        let [half, brain, single] = &FORMATS;
        match most {
            Some("F16") => half,
            Some(dtype) if dtype == "BF16" || dtype.starts_with("F8") => brain,
            Some(_) | None => single,
        }
    }
}

/// The extent to which a checkpoint holds a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// The number of parameters of the network, as the checkpoint's library counts tensors.
    pub parameters: usize,
    /// The number of parameters that are in the checkpoint and were read.
    pub found: usize,
    /// The number of entries of the parameters that were found.
    pub entries: u64,
    /// The number of entries of the parameters that are not in the checkpoint.
    pub missing_entries: u64,
}

impl Coverage {
    /// Returns true if fewer than half of the parameters were found, too few for a checkpoint of the network.
    pub fn is_poor(&self) -> bool {
        2 * self.found < self.parameters
    }

    /// Returns the share of the network's entries that is not in the checkpoint.
    pub fn missing_share(&self) -> f64 {
        let missing = self.missing_entries as f64;
        if missing > 0.0 { missing / (missing + self.entries as f64) } else { 0.0 }
    }
}

impl Inspection {
    /// Returns the names of parameters that are missing outside of absent blocks.
    fn missing_elsewhere(&self) -> Vec<String> {
        let absent: HashSet<&str> =
            self.absent_blocks.iter().flat_map(|blocks| &blocks.tensors).map(String::as_str).collect();
        // If all blocks are absent, names are patterns.
        let patterns: HashSet<String> = absent.iter().map(|name| starred(name)).collect();
        let is_other = |name: &&String| !absent.contains(name.as_str()) && !patterns.contains(name.as_str());
        self.missing.iter().filter(is_other).cloned().collect()
    }
}

/// Measures a checkpoint. `held` are the parameters that it should have; `None` if they are not known.
pub fn inspect(checkpoint: &Checkpoint, held: Option<&[Held]>) -> Result<Inspection, CheckpointError> {
    let held = held.unwrap_or_default();
    let matching = Matching::new(checkpoint, held);
    let known = |entry: &Entry| matching.find(entry).map(|(held, _)| held);
    let (floats, others): (Vec<&Entry>, Vec<&Entry>) = checkpoint.entries.iter().partition(|entry| entry.is_float());
    let readings: Result<Vec<Vec<Reading>>, CheckpointError> = floats
        .par_iter()
        .map(|entry| {
            let Some((held, pattern)) = matching.find(entry) else {
                return reading::read(entry, None, &starred(&entry.name));
            };
            must_fit(entry, held)?;
            reading::read(entry, Some(held), &pattern)
        })
        .collect();
    let unknown = checkpoint.entries.iter().filter(|entry| known(entry).is_none()).map(|entry| entry.name.clone());
    let unknown = if held.is_empty() { Vec::new() } else { unknown.collect() };
    let unread = others.into_iter().map(|entry| (entry.name.clone(), entry.dtype.name().to_owned())).collect();
    let readings: Vec<Reading> = readings?.into_iter().flatten().collect();
    let read: Vec<&Held> = floats.iter().filter_map(|entry| known(entry)).collect();
    // A base model has no head.
    let expected = held.iter().filter(|held| held.base.is_none_or(|base| matching.prefix().ends_with(base)));
    let expected: Vec<&Held> = expected.collect();
    let absent = absent(&expected, &read);
    let own = readings.iter().filter(|reading| reading.part.is_some());
    let entries = own.map(|reading| reading.spread.count + reading.spread.not_finite).sum();
    let found = distinct(&read);
    let coverage =
        Coverage { parameters: found + distinct(&absent), found, entries, missing_entries: entries_of(&absent) };
    let absent_blocks = AbsentBlocks::all(&expected, &absent);
    Ok(Inspection { readings, unknown, missing: names(&expected, &absent), absent_blocks, unread, coverage })
}

/// Returns the number of entries of all tensors; tables under several names count once.
fn entries_of(held: &[&Held]) -> u64 {
    let mut seen = HashSet::new();
    let first = |held: &Held| held.parts.first().map(|part| (part.parameters[0].clone(), part.expert));
    let once = held.iter().filter(|held| seen.insert(first(held)));
    once.map(|held| held.shape.iter().map(|&axis| axis as u64).product::<u64>()).sum()
}

/// Returns the number of tensors; tables under several names count once.
fn distinct(held: &[&Held]) -> usize {
    let firsts = held.iter().map(|held| held.parts.first().map(|part| (&part.parameters[0], part.expert)));
    firsts.collect::<HashSet<_>>().len()
}

/// Returns the tensors of `held` with a parameter that none of `found` holds.
fn absent<'h>(held: &[&'h Held], found: &[&Held]) -> Vec<&'h Held> {
    // Each is paired with its expert; `None` means all experts.
    let there: HashSet<(&str, Option<usize>)> = found.iter().flat_map(|held| parameters(held)).collect();
    let named: HashSet<&str> = there.iter().map(|(parameter, _)| *parameter).collect();
    let is_there = |(parameter, expert): (&str, Option<usize>)| match expert {
        Some(_) => there.contains(&(parameter, expert)) || there.contains(&(parameter, None)),
        None => named.contains(parameter),
    };
    held.iter().copied().filter(|held| !parameters(held).all(is_there)).collect()
}

/// Returns the names of the `absent` tensors. If all tensors of `held` with the same pattern are absent, the pattern
/// replaces their names.
fn names(held: &[&Held], absent: &[&Held]) -> Vec<String> {
    let total = by_pattern(held.iter().copied());
    let missing = by_pattern(absent.iter().copied());
    let mut told = HashSet::new();
    let names = absent.iter().map(|held| {
        if total[held.pattern.as_str()] == missing[held.pattern.as_str()] { &held.pattern } else { &held.name }
    });
    names.filter(|name| told.insert(*name)).cloned().collect()
}

/// Returns the number of tensors of each pattern.
fn by_pattern<'h>(held: impl Iterator<Item = &'h Held>) -> HashMap<&'h str, usize> {
    let mut counts = HashMap::new();
    for held in held {
        *counts.entry(held.pattern.as_str()).or_default() += 1;
    }
    counts
}

/// Returns the names of the network's parameters that a tensor holds, each with its expert.
fn parameters(held: &Held) -> impl Iterator<Item = (&str, Option<usize>)> {
    held.parts.iter().flat_map(|part| part.parameters.iter().map(|name| (name.as_str(), part.expert)))
}

fn must_fit(entry: &Entry, held: &Held) -> Result<(), CheckpointError> {
    if fits(entry, held) {
        return Ok(());
    }
    let expected = format!("the shape {:?} of the config", held.shape);
    Err(CheckpointError::tensor(&entry.path, &entry.name, expected, format!("{:?}", entry.shape)))
}

/// Returns a name with `*` for the numbers in it.
fn starred(name: &str) -> String {
    let star =
        |part: &str| if part.bytes().all(|byte| byte.is_ascii_digit()) { "*".to_owned() } else { part.to_owned() };
    name.split('.').map(|part| if part.is_empty() { String::new() } else { star(part) }).collect::<Vec<_>>().join(".")
}
