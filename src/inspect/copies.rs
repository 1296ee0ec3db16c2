//! Tensors that are copies of each other, or strongly correlated.
//!
//! # Method
//!
//! Equal tensors are found by their hashes. Correlated tensors are found by samples of their entries
//! ([`Fingerprint`](super::Fingerprint)), among tensors of one name over all blocks and experts, and among all tensors
//! of one shape in a block. If a name has thousands of tensors, as experts have, each is compared with its neighbours
//! alone.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::Reading;
use super::buffers::is_fixed;

/// The largest number of pairs that are compared under one name.
const PAIRS: usize = 1 << 22;

/// Tensors that are not independent of each other.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Copies {
    /// The titles of the tensors: names in the checkpoint with `*` for numbers. If `is_over_blocks`, the tensors of one
    /// title in different blocks depend on each other; otherwise the tensors of two titles in the same block do.
    pub(super) titles: Vec<String>,
    /// The numbers of the blocks that hold these tensors.
    pub(super) blocks: BTreeSet<usize>,
    /// True if tensors of different blocks depend on each other, false if tensors of the same block do.
    pub(super) is_over_blocks: bool,
    /// The weakest correlation between the tensors; 1 if they are equal.
    pub(super) correlation: f64,
}

/// Returns all copies among the tensors of the network, or among all tensors if no network is known.
pub(super) fn copies(readings: &[Reading]) -> Vec<Copies> {
    let mut seen = HashSet::new();
    let is_known = readings.iter().any(|reading| reading.part.is_some());
    let of_interest = readings.iter().filter(|reading| match &reading.part {
        // Tied tables are in a checkpoint under several names.
        Some(part) => seen.insert((&part.parameters[0], part.expert)),
        None => !is_known,
    });
    let is_drawn = |reading: &&Reading| reading.fingerprint.is_some() && !is_fixed(&reading.pattern);
    let readings: Vec<&Reading> = of_interest.filter(is_drawn).collect();
    let mut found = over_blocks(&readings);
    // Without a network, equal tables outside of all blocks are taken to be tied.
    let is_tied = |copies: &Copies| !is_known && copies.blocks.is_empty() && copies.is_equal();
    found.extend(within_blocks(&readings).into_iter().filter(|copies| !is_tied(copies)));
    found
}

/// Returns the correlation of two tensors; `None` if they do not depend on each other.
fn dependence(one: &Reading, other: &Reading) -> Option<f64> {
    /// The least number of entries; shorter vectors may be equal by chance.
    const FEWEST: u64 = 8;
    let (a, b) = (one.fingerprint.as_ref()?, other.fingerprint.as_ref()?);
    if one.shape != other.shape || one.spread.count < FEWEST {
        return None;
    }
    if a.hash == b.hash { Some(1.0) } else { a.correlation(b) }
}

/// Returns the tensors that depend on tensors of the same name in other blocks. Names for which this holds in the same
/// blocks are joined.
fn over_blocks(readings: &[&Reading]) -> Vec<Copies> {
    let mut by_title: BTreeMap<String, Vec<&Reading>> = BTreeMap::new();
    for reading in readings {
        by_title.entry(reading.title()).or_default().push(reading);
    }
    let mut found: Vec<Copies> = Vec::new();
    for (title, members) in by_title {
        for (blocks, correlation) in groups(&members) {
            let like = found.iter_mut().find(|known| known.blocks == blocks && known.is_equal() == is_one(correlation));
            match like {
                Some(known) => {
                    known.titles.push(title.clone());
                    known.correlation = weaker(known.correlation, correlation);
                }
                None => found.push(Copies { titles: vec![title.clone()], blocks, is_over_blocks: true, correlation }),
            }
        }
    }
    found
}

/// Returns the sets of blocks whose tensors in `members` depend on each other. Each set comes with the weakest of the
/// correlations by which its tensors are joined.
fn groups(members: &[&Reading]) -> Vec<(BTreeSet<usize>, f64)> {
    let window = (PAIRS / members.len()).max(1);
    let mut group: Vec<usize> = (0..members.len()).collect();
    let mut weakest = vec![1.0; members.len()];
    let mut first_of: HashMap<u64, usize> = HashMap::new();
    let mut linked = vec![false; members.len()];
    for index in 0..members.len() {
        let hash = members[index].fingerprint.as_ref().map_or(0, |fingerprint| fingerprint.hash);
        let equal = *first_of.entry(hash).or_insert(index);
        let near = index.saturating_sub(window)..index;
        let others = near.chain((equal < index).then_some(equal));
        for other in others {
            let Some(correlation) = dependence(members[other], members[index]) else { continue };
            let (from, to) = (group[index], group[other]);
            let weak = weaker(weaker(weakest[from], weakest[to]), correlation);
            group.iter_mut().filter(|label| **label == from).for_each(|label| *label = to);
            (weakest[to], linked[other], linked[index]) = (weak, true, true);
        }
    }
    let mut sets: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for index in (0..members.len()).filter(|&index| linked[index]) {
        sets.entry(group[index]).or_default().extend(members[index].block());
    }
    sets.into_iter().map(|(label, blocks)| (blocks, weakest[label])).collect()
}

/// Returns the tensors that depend on a tensor of another name in the same block.
fn within_blocks(readings: &[&Reading]) -> Vec<Copies> {
    let mut by_block: BTreeMap<_, Vec<&Reading>> = BTreeMap::new();
    for reading in readings {
        let expert = reading.part.as_ref().and_then(|part| part.expert);
        by_block.entry((reading.block(), expert)).or_default().push(reading);
    }
    let mut found: BTreeMap<[String; 2], (BTreeSet<usize>, f64)> = BTreeMap::new();
    for ((block, _), members) in by_block {
        for (index, one) in members.iter().enumerate() {
            for other in &members[index + 1..] {
                let Some(correlation) = dependence(one, other) else { continue };
                let titles = [one.title(), other.title()];
                let (blocks, weakest) = found.entry(titles).or_insert((BTreeSet::new(), 1.0));
                blocks.extend(block);
                *weakest = weaker(*weakest, correlation);
            }
        }
    }
    let copies = |(titles, (blocks, correlation)): ([String; 2], _)| Copies {
        titles: titles.to_vec(),
        blocks,
        is_over_blocks: false,
        correlation,
    };
    found.into_iter().map(copies).collect()
}

fn weaker(a: f64, b: f64) -> f64 {
    if a.abs() < b.abs() { a } else { b }
}

fn is_one(correlation: f64) -> bool {
    (correlation - 1.0).abs() < f64::EPSILON
}

impl Copies {
    /// Returns true if the tensors are equal, entry by entry.
    pub(super) fn is_equal(&self) -> bool {
        is_one(self.correlation)
    }
}
