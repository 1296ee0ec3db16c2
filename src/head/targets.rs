//! What the network is to predict: ids of the law of its input.

use std::collections::HashMap;

use sigprop_stack::{Ids, Source, Stack};

use super::Head;

/// Probability that two tokens of a sequence have the same target; without ids all are equally likely.
pub(super) fn repeat(stack: &Stack, head: &Head) -> f64 {
    match &stack.streams[stack.gradient.stream].source {
        Source::Gaussian(_) => 1.0 / head.vocab_size as f64,
        Source::Embedding(embedding) => match &embedding.ids {
            Ids::PowerLaw(law) => law.repeat_probability(2),
            Ids::Given(given) => {
                let shares = given.sequences.iter().map(|sequence| equal_pairs(sequence));
                shares.sum::<f64>() / given.sequences.len() as f64
            }
        },
    }
}

/// Share of the pairs of different positions with equal ids.
fn equal_pairs(sequence: &[u32]) -> f64 {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    for id in sequence {
        *counts.entry(*id).or_default() += 1;
    }
    let pairs = |count: usize| (count * count.saturating_sub(1)) as f64;
    counts.values().map(|&count| pairs(count)).sum::<f64>() / pairs(sequence.len()).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the 6 · 5 ordered pairs of 1 1 1 2 2 3, 6 + 2 are equal.
    #[test]
    fn equal_pairs_are_counted() {
        approx::assert_relative_eq!(equal_pairs(&[1, 2, 1, 3, 1, 2]), 8.0 / 30.0);
        approx::assert_relative_eq!(equal_pairs(&[7]), 0.0);
    }
}
