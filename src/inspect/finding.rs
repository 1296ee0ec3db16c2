//! Findings: statements about problems of a checkpoint, the gravest first.

use std::collections::BTreeSet;

use super::{Group, Reading};
use crate::numerals::short;

/// The kind of problem that a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Problem {
    /// Entries are infinite or not numbers.
    NotFinite,
    /// Tensors, or rows or columns of one tensor, are equal or correlated.
    Copies,
    /// A part of a trained checkpoint is still as the scheme initialises it.
    Fresh,
    /// The standard deviation or the mean differs from the scheme's.
    Deviation,
    /// The kurtosis or the largest entry does not agree with the scheme's distribution.
    Tails,
    /// Rows of a table or a head differ in size from the rest, or are zeros.
    Rows,
    /// Parameters of the network are not in the checkpoint.
    Missing,
    /// Tensors of the checkpoint do not belong to the network.
    Unknown,
}

impl Problem {
    /// All kinds of problems.
    pub const ALL: [Self; 8] = [
        Self::NotFinite,
        Self::Copies,
        Self::Fresh,
        Self::Rows,
        Self::Deviation,
        Self::Tails,
        Self::Missing,
        Self::Unknown,
    ];

    /// Returns the name in flags, CSV and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotFinite => "not-finite",
            Self::Copies => "copies",
            Self::Fresh => "fresh",
            Self::Deviation => "deviation",
            Self::Tails => "tails",
            Self::Rows => "rows",
            Self::Missing => "missing",
            Self::Unknown => "unknown",
        }
    }

    /// Returns a description for help texts.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::NotFinite => "entries that are infinite or not numbers",
            Self::Copies => "equal or correlated tensors, or rows or columns of one",
            Self::Fresh => "blocks or matrices of a trained checkpoint that are as the scheme draws them",
            Self::Deviation => "standard deviations or means other than the scheme's",
            Self::Tails => "kurtosis or largest entries that the scheme's distribution does not allow",
            Self::Rows => "rows of a table or a head that are of another size than the rest, or zeros",
            Self::Missing => "parameters of the network that are not in the checkpoint",
            Self::Unknown => "tensors of the checkpoint that are not of the network",
        }
    }
}

/// A statement about the tensors of one name, or of several names.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The kind of problem.
    pub problem: Problem,
    /// The names in the checkpoint with `*` for numbers, each followed by a part if its tensor holds several parts.
    /// Missing and unknown tensors are listed by their full names.
    pub tensors: Vec<String>,
    /// The blocks where the problem occurs; empty for tensors outside of blocks.
    pub blocks: Vec<usize>,
    /// The statement.
    pub text: String,
    /// The size of the problem, by its kind: the number of entries that are not finite; the relative deviation; the
    /// weakest correlation, or the share of lines that are copies; the number of rows; the kurtosis; the number of
    /// tensors.
    pub value: f64,
}

/// Returns a range as text: `0.01…0.02`, or `0.01` if both ends are equal.
pub(crate) fn range((low, high): (f64, f64)) -> String {
    let (low, high) = (short(low), short(high));
    if low == high { low } else { format!("{low}…{high}") }
}

/// Returns the first names of a list and the number of the others, as one text.
pub fn some(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        format!("{shown} and {} more (--format json lists all)", names.len() - SHOWN)
    } else {
        shown
    }
}

/// The blocks of a finding, and the number of all blocks.
pub(super) struct BlockSet {
    pub(super) blocks: BTreeSet<usize>,
    pub(super) of: usize,
}

impl BlockSet {
    pub(super) fn of<'r>(readings: impl IntoIterator<Item = &'r Reading>, group: &Group) -> Self {
        Self::among(readings, n_blocks(group))
    }

    /// Returns the blocks of these readings, out of `of` blocks.
    pub(super) fn among<'r>(readings: impl IntoIterator<Item = &'r Reading>, of: usize) -> Self {
        Self { blocks: readings.into_iter().filter_map(Reading::block).collect(), of }
    }

    pub(super) fn numbers(&self) -> Vec<usize> {
        self.blocks.iter().copied().collect()
    }

    pub(super) fn finding(&self, problem: Problem, group: &Group, text: String, value: f64) -> Finding {
        let blocks = self.numbers();
        Finding { problem, tensors: vec![group.title()], blocks, text, value }
    }
}

/// Writes ` in block 3 of 12`, ` in blocks 0–2, 7 of 12` or ` in all 12 blocks`, and nothing outside of blocks.
impl std::fmt::Display for BlockSet {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match (self.blocks.len(), self.of) {
            (0, _) => Ok(()),
            (1, 1) => write!(f, " in block {}", ranges(&self.blocks)),
            (some, all) if some == all => write!(f, " in all {all} blocks"),
            (1, all) => write!(f, " in block {} of {all}", ranges(&self.blocks)),
            (_, all) => write!(f, " in blocks {} of {all}", ranges(&self.blocks)),
        }
    }
}

/// Returns the number of blocks that have tensors of this name.
pub(super) fn n_blocks(group: &Group) -> usize {
    group.readings.iter().filter_map(|(reading, _)| reading.block()).collect::<BTreeSet<_>>().len()
}

/// Returns numbers as ranges: `0–2, 7`.
pub(super) fn ranges(numbers: &BTreeSet<usize>) -> String {
    let numbers: Vec<usize> = numbers.iter().copied().collect();
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    let texts: Vec<String> = runs
        .map(|run| match run {
            [] => String::new(),
            [one] => one.to_string(),
            [first, .., last] => format!("{first}–{last}"),
        })
        .collect();
    texts.join(", ")
}
