//! The targets of the network: ids with the distribution of its input.

use std::collections::HashMap;

use sigprop_stack::{Ids, Source, Stack};

use super::Head;

/// The probabilities that two, three or four different tokens of a sequence have the same id. They are equal for the
/// targets.
#[derive(Clone, Copy)]
pub(super) struct Repeats {
    pub(super) two: f64,
    pub(super) three: f64,
    pub(super) four: f64,
}

impl Repeats {
    /// Computes the probabilities from the input. Without ids all targets are equally likely.
    pub(super) fn of(stack: &Stack, head: &Head) -> Self {
        let uniform = |count| (head.vocab_size as f64).powi(1 - count);
        match &stack.streams[stack.gradient.stream].source {
            Source::Gaussian(_) => Self::by(uniform),
            Source::Embedding(embedding) => match &embedding.ids {
                Ids::PowerLaw(law) => Self::by(|count| law.repeat_probability(count)),
                Ids::Given(given) => Self::by(|count| {
                    let shares = given.sequences.iter().map(|sequence| equal_shares(sequence, count));
                    shares.sum::<f64>() / given.sequences.len() as f64
                }),
            },
        }
    }

    fn by(chance: impl Fn(i32) -> f64) -> Self {
        Self { two: chance(2), three: chance(3), four: chance(4) }
    }
}

/// Returns the share of equal ids: among all choices of `size` different positions, those whose ids are all equal.
fn equal_shares(sequence: &[u32], size: i32) -> f64 {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    for id in sequence {
        *counts.entry(*id).or_default() += 1;
    }
    let choices = |count: usize| (0..size).map(|taken| (count as f64 - f64::from(taken)).max(0.0)).product::<f64>();
    counts.values().map(|&count| choices(count)).sum::<f64>() / choices(sequence.len()).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ids 1 1 1 2 2 3 have 6 · 5 ordered pairs, of which 6 + 2 are equal, and 6 · 5 · 4 triples, of which 6 are
    /// equal. No four are equal.
    #[test]
    fn equal_ids_are_counted() {
        let sequence = [1, 2, 1, 3, 1, 2];
        for (size, expected) in [(2, 8.0 / 30.0), (3, 6.0 / 120.0), (4, 0.0)] {
            approx::assert_relative_eq!(equal_shares(&sequence, size), expected);
        }
        approx::assert_relative_eq!(equal_shares(&[7], 2), 0.0);
    }
}
