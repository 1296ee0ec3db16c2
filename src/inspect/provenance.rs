//! The origin of a checkpoint: an initialisation, a trained network, or a trained one of which a part was sampled
//! again.
//!
//! # Method
//!
//! The evidence is the weight matrices that the scheme samples. A matrix that deviates is called trained if no
//! initialisation has its largest singular value or its kurtosis: more than 1.15 times the value of a random matrix, or
//! a kurtosis above that of normal entries. If most of the deviating matrices are trained, the matrices that are as the
//! scheme samples them were sampled again, or never loaded.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::{BlockSet, Finding, Problem, ranges};
use super::{Inspection, Reading};
use crate::huggingface::Start;

/// The least number of entries of a matrix that is evidence by itself.
const FEWEST: u64 = 1000;

/// The evidence of the weight matrices on the origin of a checkpoint: is it an initialisation by the scheme, or
/// trained?
#[derive(Debug)]
pub(super) struct Provenance<'r> {
    /// The number of weight matrices that the scheme samples.
    matrices: usize,
    /// The number of these matrices that deviate from the scheme.
    deviating: usize,
    /// The number of deviating matrices that are unlike any initialisation.
    trained: usize,
    /// Blocks whose tensors are all as the scheme samples them.
    blocks: Vec<FreshBlocks>,
    /// Matrices that are as the scheme samples them, without those of `blocks`, by title (the name with `*` for
    /// numbers).
    matrices_by_title: BTreeMap<String, Vec<&'r Reading>>,
}

/// Blocks of one stack whose tensors are all as the scheme samples them.
#[derive(Debug)]
struct FreshBlocks {
    /// The prefix that the names of all tensors of the stack share.
    stack: String,
    numbers: BTreeSet<usize>,
    /// The number of blocks of the stack.
    of: usize,
    /// Names of the tensors, in the order of the checkpoint.
    tensors: Vec<String>,
}

impl<'r> Provenance<'r> {
    pub(super) fn of(readings: &'r [Reading]) -> Self {
        let mut blocks: BTreeMap<(&str, usize), Vec<&Reading>> = BTreeMap::new();
        for reading in readings.iter().filter(|reading| reading.part.is_some()) {
            if let Some(block) = block(reading) {
                blocks.entry(block).or_default().push(reading);
            }
        }
        let is_fresh = |members: &[&Reading]| {
            members.iter().any(|reading| is_matrix(reading)) && members.iter().all(|reading| !reading.deviates())
        };
        let fresh: BTreeSet<(&str, usize)> =
            blocks.iter().filter(|(_, members)| is_fresh(members)).map(|(block, _)| *block).collect();
        let matrices: Vec<&Reading> = readings.iter().filter(|reading| is_matrix(reading)).collect();
        let (deviating, conforming): (Vec<&Reading>, Vec<&Reading>) =
            matrices.iter().partition(|reading| reading.deviates());
        let mut by_title: BTreeMap<String, Vec<&Reading>> = BTreeMap::new();
        let outside = |reading: &&Reading| block(reading).is_none_or(|block| !fresh.contains(&block));
        for reading in conforming.into_iter().filter(outside).filter(|reading| reading.spread.count >= FEWEST) {
            by_title.entry(reading.title()).or_default().push(reading);
        }
        let trained = deviating.iter().filter(|reading| is_trained(reading)).count();
        Self {
            matrices: matrices.len(),
            deviating: deviating.len(),
            trained,
            blocks: by_stack(&fresh, &blocks),
            matrices_by_title: by_title,
        }
    }

    /// Returns true if at least a third of the matrices deviate, and most of them by training.
    fn is_trained(&self) -> bool {
        self.deviating > 0 && 3 * self.deviating >= self.matrices && 4 * self.trained >= 3 * self.deviating
    }

    /// Returns the first line about a checkpoint that is not an initialisation by the scheme; `None` if it may be one.
    pub(super) fn headline(&self, scheme: &str) -> Option<String> {
        /// The least number of matrices for a verdict on all of them; fewer are listed one by one.
        const FEWEST: usize = 4;
        let Self { matrices, deviating, trained, blocks, matrices_by_title } = self;
        let subject = format!("This is not an initialisation by scheme {scheme}");
        let all = deviating == matrices && *matrices >= FEWEST;
        let has_fresh = !blocks.is_empty() || !matrices_by_title.is_empty();
        if all && self.is_trained() {
            Some(format!(
                "{subject}: every one of its {matrices} weight matrices deviates, and {trained} have singular values or \
                 tails that no initialisation has. It is a trained checkpoint."
            ))
        } else if all {
            Some(format!(
                "{subject}: every one of its {matrices} weight matrices deviates. It is a checkpoint of another scheme, or a \
                 trained one."
            ))
        } else if self.is_trained() && has_fresh {
            Some(format!(
                "{subject} but a trained checkpoint, of which parts are as the scheme draws them: {deviating} of \
                 {matrices} weight matrices deviate."
            ))
        } else {
            None
        }
    }

    /// Returns the parts of a trained checkpoint that are as the scheme samples them.
    pub(super) fn findings(&self, scheme: &str, total: impl Fn(&str) -> usize) -> Vec<Finding> {
        if !self.is_trained() {
            return Vec::new();
        }
        let several = self.blocks.iter().map(|blocks| &blocks.stack).collect::<BTreeSet<_>>().len() > 1;
        let blocks = self.blocks.iter().map(|blocks| blocks.finding(scheme, several));
        let matrices = self.matrices_by_title.iter().map(|(title, readings)| {
            let place = BlockSet::among(readings.iter().copied(), total(title));
            let is = if readings.len() == 1 { "is as scheme" } else { "are as scheme" };
            let others =
                format!("{} of the other {} weight matrices are not", self.deviating, self.matrices - readings.len());
            let pronoun = if readings.len() == 1 { "was it" } else { "were they" };
            Finding {
                problem: Problem::Fresh,
                tensors: vec![title.clone()],
                blocks: place.numbers(),
                text: format!("{title}{place} {is} {scheme} draws it, while {others}: {pronoun} drawn anew?"),
                value: readings.len() as f64,
            }
        });
        blocks.chain(matrices).collect()
    }
}

impl FreshBlocks {
    fn finding(&self, scheme: &str, several: bool) -> Finding {
        let Self { stack, numbers, of, tensors } = self;
        let noun = if numbers.len() == 1 { "block" } else { "blocks" };
        let stack = if several { format!(" ({stack})") } else { String::new() };
        let pronoun = if numbers.len() == 1 { "was it" } else { "were they" };
        let text = format!(
            "{noun} {} of {of}{stack}: all {} tensors are as scheme {scheme} draws them, those of the other blocks are not: \
             {pronoun} drawn anew?",
            ranges(numbers),
            tensors.len()
        );
        let blocks = numbers.iter().copied().collect();
        Finding { problem: Problem::Fresh, tensors: tensors.clone(), blocks, text, value: tensors.len() as f64 }
    }
}

/// Groups blocks by their stack; `fresh` and `blocks` are keyed by the prefix of the stack and the number of the block.
fn by_stack(fresh: &BTreeSet<(&str, usize)>, blocks: &BTreeMap<(&str, usize), Vec<&Reading>>) -> Vec<FreshBlocks> {
    let mut stacks: Vec<FreshBlocks> = Vec::new();
    for &(stack, number) in fresh {
        if stacks.last().is_none_or(|last| last.stack != stack) {
            let of = blocks.keys().filter(|(other, _)| *other == stack).count();
            stacks.push(FreshBlocks { stack: stack.to_owned(), numbers: BTreeSet::new(), of, tensors: Vec::new() });
        }
        let Some(last) = stacks.last_mut() else { continue };
        last.numbers.insert(number);
        let mut names: Vec<String> = blocks[&(stack, number)].iter().map(|reading| reading.tensor.clone()).collect();
        names.dedup();
        last.tensors.append(&mut names);
    }
    stacks
}

impl Inspection {
    /// Returns the first line about a checkpoint that is not an initialisation by `scheme`; `None` if it may be one.
    pub fn headline(&self, scheme: &str) -> Option<String> {
        Provenance::of(&self.readings).headline(scheme)
    }
}

/// Returns the prefix of the stack of a reading, and the number of its block; `None` outside of blocks.
fn block(reading: &Reading) -> Option<(&str, usize)> {
    Some((super::omission::block(&reading.pattern)?, reading.block()?))
}

/// Returns true for a matrix that the scheme samples.
fn is_matrix(reading: &Reading) -> bool {
    let is_sampled = match reading.part.as_ref().map(|part| part.start) {
        Some(Start::Drawn(init)) => init.std() > 0.0,
        Some(Start::Constant(_) | Start::LogRates(_) | Start::StepBiases(_)) | None => false,
    };
    is_sampled && reading.shape.iter().all(|&axis| axis > 1) && reading.spread.count > 0
}

/// Returns true if no initialisation has its largest singular value or its kurtosis.
fn is_trained(reading: &Reading) -> bool {
    /// The factor over the largest singular value of a random matrix above which a matrix is trained.
    const STRUCTURE: f64 = 1.15;
    /// The kurtosis of normal entries, the largest of all initialisations.
    const NORMAL: f64 = 3.0;
    /// The number of standard errors of the kurtosis, √(24/n) for normal entries, above which a matrix is trained.
    const BEYOND: f64 = 5.0;
    let ratio = reading.singular_value.zip(reading.random_singular_value());
    let error = (24.0 / reading.spread.count as f64).sqrt();
    ratio.is_some_and(|(largest, random)| largest > STRUCTURE * random)
        || reading.spread.kurtosis().is_some_and(|kurtosis| kurtosis > NORMAL + BEYOND * error)
}
