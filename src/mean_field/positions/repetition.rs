//! How token ids repeat: of ids that are drawn independently by a power law, and of given ones.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::OnceLock;

use foldhash::fast::FixedState;
use sigprop_stack::PowerLaw;
use statrs::distribution::{Binomial, Discrete, Hypergeometric};

/// Ids with how many tokens each: N and m.
pub(crate) type Counts = Vec<(f64, f64)>;

/// π₂ and π₃, the probabilities that two and three tokens have the same id, and how many ids there are of which probability.
#[derive(Clone, Debug)]
pub(crate) struct Repetition {
    law: Law,
    pair: f64,
    triple: f64,
    /// Probabilities, each with how many ids have it: nearby ranks together.
    ranks: OnceLock<Counts>,
}

/// The probabilities that two and that three tokens have the same id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares {
    pub(crate) pair: f64,
    pub(crate) triple: f64,
}

impl Shares {
    /// Where ids are no class of pairs.
    pub(crate) const NONE: Self = Self { pair: 0.0, triple: 0.0 };

    /// Of every class of pairs.
    pub(crate) fn classes(self) -> [f64; 2] {
        [1.0 - self.pair, self.pair]
    }

    /// The probability that a token has the same id as one of two others and not as the second.
    pub(crate) fn one_pair(self) -> f64 {
        self.pair - self.triple
    }
}

/// Where ids come from.
#[derive(Clone, Debug)]
enum Law {
    Power(PowerLaw),
    /// How many ids have how many tokens, of so many.
    Given(BTreeMap<usize, usize>, usize),
}

impl Repetition {
    pub(crate) fn new(law: PowerLaw) -> Self {
        let [pair, triple] = [2, 3].map(|count| law.repeat_probability(count));
        Self { law: Law::Power(law), pair, triple, ranks: OnceLock::new() }
    }

    /// Of given ids.
    pub(crate) fn given(ids: &[u32]) -> Self {
        let mut tokens: BTreeMap<u32, usize> = BTreeMap::new();
        for &id in ids {
            *tokens.entry(id).or_default() += 1;
        }
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        for tokens in tokens.into_values() {
            *counts.entry(tokens).or_default() += 1;
        }
        let chosen = |from: usize, count: usize| (0..count).map(|taken| from as f64 - taken as f64).product::<f64>();
        let repeated = |count: usize| {
            let all = chosen(ids.len(), count);
            let same = counts.iter().map(|(&tokens, &ids)| ids as f64 * chosen(tokens, count)).sum::<f64>();
            if all > 0.0 { same / all } else { 0.0 }
        };
        let [pair, triple] = [2, 3].map(repeated);
        Self { law: Law::Given(counts, ids.len()), pair, triple, ranks: OnceLock::new() }
    }

    /// What tells one law from another.
    pub(crate) fn law(&self) -> [u64; 2] {
        match &self.law {
            Law::Power(law) => [law.vocab_size as u64, law.exponent.to_bits()],
            Law::Given(counts, length) => {
                let hash = FixedState::with_seed(*length as u64).hash_one(counts);
                // No exponent.
                [hash, f64::NAN.to_bits()]
            }
        }
    }

    /// π₃ − π₂²: the covariance of two pairs of tokens with one token in common having the same ids.
    pub(crate) fn covariance(&self) -> f64 {
        self.triple - self.pair * self.pair
    }

    /// π₂ − π₃: by how much the variance of one pair is larger.
    pub(crate) fn excess(&self) -> f64 {
        self.pair - self.triple
    }

    /// The same, less the covariance once more: of a pair that both its tokens have in common with others.
    pub(crate) fn excess_of_both(&self) -> f64 {
        self.excess() - self.covariance()
    }

    /// π₂.
    pub(crate) fn same(&self) -> f64 {
        self.pair
    }

    /// Whether two tokens of a class of pairs have the same id, less π₂.
    pub(crate) fn of_pair(&self, class: usize) -> f64 {
        class as f64 - self.pair
    }

    /// The probability that a third token has the id of one of two tokens of a class of pairs, less π₂.
    pub(crate) fn of_third(&self, class: usize) -> f64 {
        let own = match class {
            // There is one id.
            0 if self.pair >= 1.0 => return 0.0,
            0 => self.excess() / (1.0 - self.pair),
            _ => self.triple / self.pair,
        };
        own - self.pair
    }

    /// Both probabilities.
    pub(crate) fn shares(&self) -> Shares {
        Shares { pair: self.pair, triple: self.triple }
    }

    /// Two values, with their weights, of the shares p₂ and p₃ of pairs and triples of equal ids in one sequence of `length` tokens. Their
    /// variances are those of n = π₂³/π₃² ids with Poisson numbers of tokens, λ = L π₃/π₂ on average,
    ///
    /// ```text
    /// Var p₂/π₂² = (4/λ + 2/λ²)/n     Var p₃/π₃² = (9/λ + 18/λ² + 6/λ³)/n
    /// ```
    ///
    /// both are taken as log-normal and as fully correlated (0.97 for large λ).
    pub(crate) fn draws(&self, length: f64) -> Vec<(f64, Shares)> {
        let Shares { pair, triple } = self.shares();
        if pair <= 0.0 || pair >= 1.0 || triple <= 0.0 {
            return vec![(1.0, self.shares())];
        }
        let (tokens, ids) = (length * triple / pair, pair.powi(3) / triple.powi(2));
        let variances = [
            (4.0 / tokens + 2.0 / tokens.powi(2)) / ids,
            (9.0 / tokens + 18.0 / tokens.powi(2) + 6.0 / tokens.powi(3)) / ids,
        ];
        let factors = |sign: f64| variances.map(|of| (sign * of.ln_1p().sqrt() - 0.5 * of.ln_1p()).exp());
        let (many, few) = (factors(1.0), factors(-1.0));
        // So that the mean of p₂ stays.
        let weight = (1.0 - few[0]) / (many[0] - few[0]);
        let of = |[pairs, triples]: [f64; 2]| {
            let pair = (pair * pairs).min(1.0);
            Shares { pair, triple: (triple * triples).min(pair) }
        };
        vec![(weight, of(many)), (1.0 - weight, of(few))]
    }

    /// How many ids have how many of `length` tokens, on average: many tokens in classes.
    pub(crate) fn counts(&self, length: usize) -> Counts {
        let mut counts = Classes::default();
        match &self.law {
            Law::Power(law) => {
                for &(probability, ids) in self.ranks.get_or_init(|| ranks(*law)) {
                    let drawn = Binomial::new(probability, length as u64).expect("a probability");
                    let mean = length as f64 * probability;
                    let last = ((mean + 8.0 * mean.sqrt() + 8.0) as usize).min(length);
                    for tokens in ((mean - 8.0 * mean.sqrt()).max(1.0) as usize)..=last {
                        counts.add(ids * drawn.pmf(tokens as u64), tokens as f64);
                    }
                }
            }
            // Of all, any `length`; of more, in proportion.
            Law::Given(given, all) => {
                for (&tokens, &ids) in given {
                    if length >= *all {
                        counts.add(ids as f64, tokens as f64 * length as f64 / *all as f64);
                        continue;
                    }
                    let drawn = Hypergeometric::new(*all as u64, tokens as u64, length as u64).expect("a part of all");
                    for taken in 1..=tokens.min(length) {
                        counts.add(ids as f64 * drawn.pmf(taken as u64), taken as f64);
                    }
                }
            }
        }
        counts.0.into_values().map(|(ids, tokens)| (ids, tokens / ids)).collect()
    }
}

/// Ids and their tokens, by classes of how many tokens an id has.
#[derive(Default)]
struct Classes(BTreeMap<usize, (f64, f64)>);

impl Classes {
    /// Adds so many ids with so many tokens each.
    fn add(&mut self, ids: f64, tokens: f64) {
        /// Largest number of tokens that is not taken together with others, and classes per factor of e beyond.
        const EXACT: f64 = 4.0;
        const FINENESS: f64 = 3.0;
        /// Expected numbers of ids below which there are none.
        const NONE: f64 = 1e-9;
        let class = if tokens <= EXACT { tokens as usize } else { 100 + (tokens.ln() * FINENESS) as usize };
        if ids > NONE {
            let (of_ids, of_tokens) = self.0.entry(class).or_default();
            *of_ids += ids;
            *of_tokens += ids * tokens;
        }
    }
}

fn ranks(law: PowerLaw) -> Counts {
    /// Ranks that are taken one by one, and by how much later ones differ that are taken together.
    const APART: usize = 64;
    const TOGETHER: f64 = 0.04;
    let probabilities = law.probabilities();
    let mut ranks = Vec::new();
    let mut first = 0;
    while first < probabilities.len() {
        let many = if first < APART { 1 } else { ((first as f64 * TOGETHER) as usize).max(1) };
        let together = &probabilities[first..(first + many).min(probabilities.len())];
        ranks.push((together.iter().sum::<f64>() / together.len() as f64, together.len() as f64));
        first += together.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any of given ids repeat as all do, and all of them as they are counted.
    #[test]
    fn given_ids_repeat_as_they_are_counted() {
        let ids = [3, 1, 3, 3, 7, 1, 9, 8];
        let repetition = Repetition::given(&ids);
        approx::assert_relative_eq!(repetition.same(), 8.0 / 56.0, max_relative = 1e-12);
        assert_eq!(repetition.counts(8), [(3.0, 1.0), (1.0, 2.0), (1.0, 3.0)]);
        for length in [2, 5, 16] {
            let counts = repetition.counts(length);
            let tokens: f64 = counts.iter().map(|(ids, tokens)| ids * tokens).sum();
            approx::assert_relative_eq!(tokens, length as f64, max_relative = 1e-9);
        }
        assert_ne!(repetition.law(), Repetition::given(&ids[1..]).law());
    }

    /// They add up to all tokens, and two or three of these have the same id as often as two or three that are drawn.
    #[test]
    fn counted_ids_have_all_tokens() {
        for (vocab_size, exponent, length) in [(1000, 1.0, 48), (32_000, 1.0, 4096), (30, 0.0, 64), (1, 1.0, 16)] {
            let repetition = Repetition::new(PowerLaw { vocab_size, exponent });
            let counts = repetition.counts(length);
            let n = length as f64;
            let sum = |of: &dyn Fn(f64) -> f64| counts.iter().map(|&(ids, tokens)| ids * of(tokens)).sum::<f64>();
            approx::assert_relative_eq!(sum(&|m| m), n, max_relative = 1e-6);
            let pairs = sum(&|m| m * (m - 1.0)) / (n * (n - 1.0));
            approx::assert_relative_eq!(pairs, repetition.pair, max_relative = 2e-2);
        }
    }
}
