//! Blocks of a network that are absent from a checkpoint.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::finding::{Finding, Problem, ranges};
use super::omission::block;
use crate::huggingface::Held;

/// Blocks of one stack that are not in the checkpoint at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbsentBlocks {
    /// The prefix that the names of all tensors of the stack share, relative to the base model; `None` if the network
    /// has only one stack.
    pub stack: Option<String>,
    /// The numbers of the blocks.
    pub numbers: BTreeSet<usize>,
    /// The number of all blocks of the stack.
    pub of: usize,
    /// The names of the tensors of the absent blocks.
    pub tensors: Vec<String>,
}

impl AbsentBlocks {
    /// Finds the absent blocks among all tensors that a network has, given the absent tensors.
    pub(super) fn all(expected: &[&Held], absent: &[&Held]) -> Vec<Self> {
        let absent: HashSet<&str> = absent.iter().map(|held| held.name.as_str()).collect();
        let mut blocks: BTreeMap<(&str, usize), Vec<&Held>> = BTreeMap::new();
        for held in expected {
            let number = held.name.split('.').find_map(|part| part.parse().ok());
            if let Some(place) = block(&held.pattern).zip(number) {
                blocks.entry(place).or_default().push(held);
            }
        }
        let is_only = blocks.keys().map(|(stack, _)| stack).collect::<BTreeSet<_>>().len() == 1;
        let mut found: Vec<Self> = Vec::new();
        for (&(stack, number), members) in &blocks {
            if members.iter().any(|held| !absent.contains(held.name.as_str())) {
                continue;
            }
            let named = (!is_only).then(|| stack.to_owned());
            if found.last().is_none_or(|last| last.stack != named) {
                let of = blocks.keys().filter(|(other, _)| *other == stack).count();
                found.push(Self { stack: named, numbers: BTreeSet::new(), of, tensors: Vec::new() });
            }
            let Some(last) = found.last_mut() else { continue };
            last.numbers.insert(number);
            last.tensors.extend(members.iter().map(|held| held.name.clone()));
        }
        found
    }

    /// Returns `blocks 2–3 of 4`, with the stack if the network has several.
    pub fn place(&self) -> String {
        let Self { stack, numbers, of, .. } = self;
        let noun = if numbers.len() == 1 { "block" } else { "blocks" };
        let stack = stack.as_ref().map(|stack| format!(" ({stack})")).unwrap_or_default();
        format!("{noun} {} of {of}{stack}", ranges(numbers))
    }

    pub(super) fn finding(&self) -> Finding {
        let text = format!("{}: all tensors are missing, taken as the scheme draws them", self.place());
        let (tensors, blocks) = (self.tensors.clone(), self.numbers.iter().copied().collect());
        Finding { problem: Problem::Missing, tensors, blocks, text, value: self.tensors.len() as f64 }
    }
}
