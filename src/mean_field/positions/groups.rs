//! Groups of exchangeable tokens: one group of all tokens, a class token and the others, or two segments.

use std::sync::{Arc, OnceLock};

use smallvec::smallvec;

use super::cubic::Sparse;
use super::grid::point;
use super::{Positions, Repetition, classes};
use crate::mean_field::few::Few;

impl Positions {
    /// Groups with these numbers of tokens; `repetition` is the distribution of the ids, if tokens have ids.
    pub(crate) fn groups(tokens: &[f64], repetition: Option<Arc<Repetition>>) -> Self {
        let (mut first, mut second, mut pairs) = (Few::new(), Vec::new(), Few::new());
        for (a, &of_a) in tokens.iter().enumerate() {
            for (b, &of_b) in tokens[..=a].iter().enumerate() {
                first.push(a as u32);
                second.push(smallvec![(b as u32, 1.0)]);
                pairs.push(if a == b { of_a * (of_a - 1.0) } else { 2.0 * of_a * of_b });
            }
        }
        let second = Sparse::new(second.into_iter());
        let row_sums = Sparse::new((0..tokens.len()).map(|a| {
            let others = |b: usize| if a == b { tokens[b] - 1.0 } else { tokens[b] };
            (0..tokens.len()).map(|b| (point(a, b), others(b))).collect()
        }));
        Self {
            chart: None,
            length: tokens.iter().sum(),
            tokens: tokens.into(),
            first,
            second,
            pairs,
            row_sums,
            classes: classes(repetition.as_deref()),
            repetition,
            given: None,
            boundary: None,
            is_of_pixels: false,
            grid: OnceLock::new(),
        }
    }

    /// Isolated pairs of tokens: the effect of a component on a pair depends on that pair alone.
    pub(crate) fn pairs(count: usize) -> Self {
        let matrix = |column: fn(usize) -> usize, rows: usize| {
            Sparse::new((0..rows).map(|row| smallvec![(column(row) as u32, 1.0)]))
        };
        Self {
            chart: None,
            length: 2.0,
            tokens: smallvec![1.0; 2 * count],
            first: (0..count).map(|pair| 2 * pair as u32 + 1).collect(),
            second: matrix(|pair| 2 * pair, count),
            pairs: smallvec![2.0; count],
            row_sums: matrix(|token| token / 2, 2 * count),
            classes: smallvec![1.0],
            repetition: None,
            given: None,
            boundary: None,
            is_of_pixels: false,
            grid: OnceLock::new(),
        }
    }
}
