//! What a checkpoint holds, and what it should.
//!
//! [`inspect()`] measures every tensor of floats; beside the parameters that a network has ([`Held`]) it knows which of
//! ours each holds, how far it is from what the scheme draws, and what is missing. [`with_measured`] writes what was
//! measured into the network's stack, which can then be predicted like any other.

mod closest;
mod cut;
mod deviation;
mod group;
mod reading;
mod singular;
mod spread;
mod stack;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use rayon::prelude::*;

use crate::checkpoint::{Checkpoint, CheckpointError, Entry};
use crate::huggingface::Held;

pub use closest::{Candidate, Resemblance};
pub use deviation::Deviation;
pub use group::Group;
pub use reading::Reading;
pub use spread::Spread;
pub use stack::with_measured;

/// Everything that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Inspection {
    /// Every tensor of floats, part by part, in the order of the checkpoint.
    pub readings: Vec<Reading>,
    /// Tensors that hold nothing of the network, in the order of the checkpoint.
    pub unknown: Vec<String>,
    /// Parameters of the network that no tensor holds; patterns where all of a pattern are missing.
    pub missing: Vec<String>,
    /// Tensors that are not of F32, F16 or BF16, with their type; they are not read.
    pub unread: Vec<(String, String)>,
}

/// Measures a checkpoint; `held` are the parameters that it should have, none if that is not known.
pub fn inspect(checkpoint: &Checkpoint, held: Option<&[Held]>) -> Result<Inspection, CheckpointError> {
    let held = held.unwrap_or_default();
    let by_name: HashMap<&str, &Held> = held.iter().map(|held| (held.name.as_str(), held)).collect();
    let prefix = prefix(checkpoint, &by_name);
    // Names of a head are whole.
    let known = |entry: &Entry| {
        let relative = entry.name.strip_prefix(prefix).and_then(|name| by_name.get(name));
        relative.or_else(|| by_name.get(entry.name.as_str())).copied()
    };
    let (floats, others): (Vec<&Entry>, Vec<&Entry>) = checkpoint.entries.iter().partition(|entry| entry.is_float());
    let readings: Result<Vec<Vec<Reading>>, CheckpointError> = floats
        .par_iter()
        .map(|entry| {
            let held = known(entry);
            held.map_or(Ok(()), |held| fits(entry, held))?;
            let pattern = match held {
                Some(held) if held.name == entry.name => held.pattern.clone(),
                Some(held) => format!("{prefix}{}", held.pattern),
                None => starred(&entry.name),
            };
            reading::read(entry, held, &pattern)
        })
        .collect();
    let found: Vec<&Held> = checkpoint.entries.iter().filter_map(known).collect();
    let unknown = checkpoint.entries.iter().filter(|entry| known(entry).is_none()).map(|entry| entry.name.clone());
    let unknown = if held.is_empty() { Vec::new() } else { unknown.collect() };
    let unread = others.into_iter().map(|entry| (entry.name.clone(), entry.dtype.name().to_owned())).collect();
    let readings = readings?.into_iter().flatten().collect();
    // A base model has no head.
    let expected = held.iter().filter(|held| held.base.is_none_or(|base| prefix.ends_with(base)));
    Ok(Inspection { readings, unknown, missing: missing(&expected.collect::<Vec<_>>(), &found), unread })
}

/// What nothing in `found` holds: names, or the pattern if none of its names is there.
fn missing(held: &[&Held], found: &[&Held]) -> Vec<String> {
    // Of one expert, or of all.
    let there: HashSet<(&str, Option<usize>)> = found.iter().flat_map(|held| parameters(held)).collect();
    let named: HashSet<&str> = there.iter().map(|(parameter, _)| *parameter).collect();
    let is_there = |(parameter, expert): (&str, Option<usize>)| match expert {
        Some(_) => there.contains(&(parameter, expert)) || there.contains(&(parameter, None)),
        None => named.contains(parameter),
    };
    let absent: Vec<&Held> = held.iter().copied().filter(|held| !parameters(held).all(is_there)).collect();
    let total = by_pattern(held.iter().copied());
    let missing = by_pattern(absent.iter().copied());
    let mut told = HashSet::new();
    let names = absent.iter().map(|held| {
        if total[held.pattern.as_str()] == missing[held.pattern.as_str()] { &held.pattern } else { &held.name }
    });
    names.filter(|name| told.insert(*name)).cloned().collect()
}

/// How many there are of each pattern.
fn by_pattern<'h>(held: impl Iterator<Item = &'h Held>) -> HashMap<&'h str, usize> {
    let mut counts = HashMap::new();
    for held in held {
        *counts.entry(held.pattern.as_str()).or_default() += 1;
    }
    counts
}

/// Names of ours that a tensor holds, and of which expert.
fn parameters(held: &Held) -> impl Iterator<Item = (&str, Option<usize>)> {
    held.parts.iter().flat_map(|part| part.parameters.iter().map(|name| (name.as_str(), part.expert)))
}

/// What stands before the names of the base model: `transformer.`, `model.`, nothing. The one before most of them.
fn prefix<'c>(checkpoint: &'c Checkpoint, held: &HashMap<&str, &Held>) -> &'c str {
    let mut votes: HashMap<&str, usize> = HashMap::new();
    for entry in &checkpoint.entries {
        let starts = std::iter::once(0).chain(entry.name.match_indices('.').map(|(dot, _)| dot + 1));
        for start in starts.filter(|&start| held.contains_key(&entry.name[start..])) {
            *votes.entry(&entry.name[..start]).or_default() += 1;
        }
    }
    let most = votes.into_iter().max_by_key(|&(prefix, votes)| (votes, std::cmp::Reverse(prefix)));
    most.map_or("", |(prefix, _)| prefix)
}

/// The number of rows and what a row holds, axes of 1 left out.
fn outline(shape: &[usize]) -> (usize, usize) {
    let mut axes = shape.iter().filter(|&&axis| axis != 1);
    (axes.next().copied().unwrap_or(1), axes.product())
}

fn fits(entry: &Entry, held: &Held) -> Result<(), CheckpointError> {
    if outline(&entry.shape) == outline(&held.shape) {
        return Ok(());
    }
    let expected = format!("the shape {:?} of the config", held.shape);
    Err(CheckpointError::tensor(&entry.path, &entry.name, expected, format!("{:?}", entry.shape)))
}

/// A name with `*` for the numbers in it.
fn starred(name: &str) -> String {
    let star =
        |part: &str| if part.bytes().all(|byte| byte.is_ascii_digit()) { "*".to_owned() } else { part.to_owned() };
    name.split('.').map(|part| if part.is_empty() { String::new() } else { star(part) }).collect::<Vec<_>>().join(".")
}
