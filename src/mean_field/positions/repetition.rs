//! Statistics of repeated token ids, which are drawn independently by a power law or given.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::OnceLock;

use foldhash::fast::FixedState;
use sigprop_stack::PowerLaw;
use statrs::distribution::{Binomial, Discrete, Hypergeometric};

/// Numbers N of ids, each with the number m of tokens per id.
pub(crate) type Counts = Vec<(f64, f64)>;

/// The distribution of ids, and the probabilities π₂ and π₃ that two and that three tokens have the same id.
#[derive(Clone, Debug)]
pub(crate) struct Repetition {
    law: Law,
    pair: f64,
    triple: f64,
    /// Probabilities, each with the number of ids that have it; nearby ranks are merged.
    ranks: OnceLock<Counts>,
}

/// The probabilities that two and that three tokens have the same id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares {
    pub(crate) pair: f64,
    pub(crate) triple: f64,
}

impl Shares {
    /// The shares if pairs with the same id do not form a class of their own.
    pub(crate) const NONE: Self = Self { pair: 0.0, triple: 0.0 };

    /// The share of every class of pairs: different ids, and the same id.
    pub(crate) fn classes(self) -> [f64; 2] {
        [1.0 - self.pair, self.pair]
    }

    /// The probability that a token has the same id as the first of two others and not as the second.
    pub(crate) fn one_pair(self) -> f64 {
        self.pair - self.triple
    }
}

/// The origin of ids.
#[derive(Clone, Debug)]
enum Law {
    Power(PowerLaw),
    /// The number of ids for each number of tokens, and the total number of tokens.
    Given(BTreeMap<usize, usize>, usize),
}

impl Repetition {
    pub(crate) fn new(law: PowerLaw) -> Self {
        let [pair, triple] = [2, 3].map(|count| law.repeat_probability(count));
        Self { law: Law::Power(law), pair, triple, ranks: OnceLock::new() }
    }

    /// Counts how often each of the given ids occurs.
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

    /// Returns a key that identifies the distribution of ids.
    pub(crate) fn law(&self) -> [u64; 2] {
        match &self.law {
            Law::Power(law) => [law.vocab_size as u64, law.exponent.to_bits()],
            Law::Given(counts, length) => {
                let hash = FixedState::with_seed(*length as u64).hash_one(counts);
                // No power law has this exponent.
                [hash, f64::NAN.to_bits()]
            }
        }
    }

    /// π₃ − π₂²: the covariance of the events that two pairs of tokens have equal ids, where the pairs share one token.
    pub(crate) fn covariance(&self) -> f64 {
        self.triple - self.pair * self.pair
    }

    /// π₂ − π₃: the variance of the event that one pair of tokens has equal ids, minus the covariance.
    pub(crate) fn excess(&self) -> f64 {
        self.pair - self.triple
    }

    /// The excess minus the covariance once more, for a pair of which both tokens are also in other pairs.
    pub(crate) fn excess_of_both(&self) -> f64 {
        self.excess() - self.covariance()
    }

    /// π₂, the probability that two tokens have the same id.
    pub(crate) fn same(&self) -> f64 {
        self.pair
    }

    /// 1 if two tokens of a class of pairs have the same id and 0 if not, minus π₂.
    pub(crate) fn of_pair(&self, class: usize) -> f64 {
        class as f64 - self.pair
    }

    /// The probability that a third token has the id of one of two tokens of a class of pairs, minus π₂.
    pub(crate) fn of_third(&self, class: usize) -> f64 {
        let own = match class {
            // There is only one id.
            0 if self.pair >= 1.0 => return 0.0,
            0 => self.excess() / (1.0 - self.pair),
            _ => self.triple / self.pair,
        };
        own - self.pair
    }

    /// Returns π₂ and π₃.
    pub(crate) fn shares(&self) -> Shares {
        Shares { pair: self.pair, triple: self.triple }
    }

    /// Returns two values, with weights, of the shares p₂ and p₃ of pairs and triples of equal ids in one sequence of
    /// `length` tokens. Their variances are computed for n = π₂³/π₃² ids with Poisson numbers of tokens, λ = L π₃/π₂ on
    /// average:
    ///
    /// ```text
    /// Var p₂/π₂² = (4/λ + 2/λ²)/n     Var p₃/π₃² = (9/λ + 18/λ² + 6/λ³)/n
    /// ```
    ///
    /// Both shares are taken as log-normal and as fully correlated (the correlation is 0.97 for large λ).
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
        // This weight preserves the mean of p₂.
        let weight = (1.0 - few[0]) / (many[0] - few[0]);
        let of = |[pairs, triples]: [f64; 2]| {
            let pair = (pair * pairs).min(1.0);
            Shares { pair, triple: (triple * triples).min(pair) }
        };
        vec![(weight, of(many)), (1.0 - weight, of(few))]
    }

    /// Returns the mean number of ids for each number of tokens in a sequence of `length` tokens. Large numbers of
    /// tokens are merged into classes.
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
            // A shorter sequence is a random part of the given ids; in a longer one numbers of tokens grow in
            // proportion.
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

/// Numbers of ids and of their tokens, by classes of the number of tokens per id.
#[derive(Default)]
struct Classes(BTreeMap<usize, (f64, f64)>);

impl Classes {
    /// Adds `ids` ids with `tokens` tokens each.
    fn add(&mut self, ids: f64, tokens: f64) {
        /// Largest number of tokens that has a class of its own.
        const EXACT: f64 = 4.0;
        /// Classes per factor of e in larger numbers of tokens.
        const FINENESS: f64 = 3.0;
        /// Ids are left out if their expected number is below this.
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
    /// Number of ranks that are kept one by one.
    const APART: usize = 64;
    /// Relative distance of later ranks that are merged.
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

    /// Given ids have their exact counts in the full sequence; in any other length the counts add up to all tokens.
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

    /// Counts add up to all tokens, and two of these have the same id as often as two that are drawn.
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
