//! What is wrong with a checkpoint: statements, the gravest first.

use std::collections::BTreeSet;

use super::{Group, Reading};
use crate::numerals::short;

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Problem {
    /// Entries are infinite or not numbers.
    NotFinite,
    /// Tensors, or rows or columns of one, are equal or correlated.
    Copies,
    /// A part of a trained checkpoint is as the scheme draws it.
    Fresh,
    /// Standard deviation or mean is not what the scheme draws.
    Deviation,
    /// Kurtosis or largest entry is not what the scheme's distribution allows.
    Tails,
    /// Rows of a table or a head are of another size than the rest, or zeros.
    Rows,
    /// Parameters of the network are not in the checkpoint.
    Missing,
    /// Tensors of the checkpoint are not of the network.
    Unknown,
}

impl Problem {
    /// All of them.
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

    /// Name in flags, CSV and JSON.
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

    /// What it is, for help texts.
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

/// A statement about tensors of one name, or of several.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What it is about.
    pub problem: Problem,
    /// Names in the checkpoint with `*` for numbers, and of which part; of what is missing or unknown, names.
    pub tensors: Vec<String>,
    /// The blocks where it is so; empty for what is in no block.
    pub blocks: Vec<usize>,
    /// The statement.
    pub text: String,
    /// Number of entries that are not finite; share of the deviation; weakest correlation, or share of lines that are
    /// copies; number of rows; kurtosis; number of tensors.
    pub value: f64,
}

/// `0.01`, or `0.01…0.02`.
pub(crate) fn range((low, high): (f64, f64)) -> String {
    let (low, high) = (short(low), short(high));
    if low == high { low } else { format!("{low}…{high}") }
}

/// The first names of a list.
pub fn some(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        format!("{shown} and {} more (--format json lists all)", names.len() - SHOWN)
    } else {
        shown
    }
}

/// The blocks of a finding, out of how many.
pub(super) struct Place {
    pub(super) blocks: BTreeSet<usize>,
    pub(super) of: usize,
}

impl Place {
    pub(super) fn of<'r>(readings: impl IntoIterator<Item = &'r Reading>, group: &Group) -> Self {
        Self::among(readings, n_blocks(group))
    }

    /// The blocks of readings, out of a known number.
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

/// ` in block 3 of 12`, ` in blocks 0–2, 7 of 12`, ` in all 12 blocks`; nothing of what is in no block.
impl std::fmt::Display for Place {
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

/// How many blocks have tensors of this name.
pub(super) fn n_blocks(group: &Group) -> usize {
    group.readings.iter().filter_map(|(reading, _)| reading.block()).collect::<BTreeSet<_>>().len()
}

/// `0–2, 7`.
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
