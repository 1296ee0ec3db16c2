//! Groups of exchangeable tokens: all tokens alike (one group), a class token and the others, two segments.

use smallvec::smallvec;

use super::cubic::Sparse;
use super::{Positions, classes};
use crate::mean_field::moments::Few;

impl Positions {
    /// Groups of so many tokens each; two and three different tokens have the same id with these probabilities, if they have ids.
    pub(crate) fn groups(tokens: &[f64], same_ids: Option<[f64; 2]>) -> Self {
        let (mut first, mut second, mut pairs) = (Few::new(), Vec::new(), Few::new());
        for (a, &of_a) in tokens.iter().enumerate() {
            for (b, &of_b) in tokens[..=a].iter().enumerate() {
                first.push(a as u32);
                second.push(smallvec![(b as u32, 1.0)]);
                pairs.push(if a == b { of_a * (of_a - 1.0) } else { 2.0 * of_a * of_b });
            }
        }
        let (classes, triple) = classes(same_ids);
        let second = Sparse::new(second.into_iter());
        Self { chart: None, length: tokens.iter().sum(), tokens: tokens.into(), first, second, pairs, classes, triple }
    }
}
