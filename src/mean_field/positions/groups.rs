//! Groups of exchangeable tokens: all tokens alike (one group), a class token and the others, two segments.

use std::sync::{Arc, OnceLock};

use smallvec::smallvec;

use super::cubic::Sparse;
use super::grid::point;
use super::{Positions, Repetition, classes};
use crate::mean_field::scalar::Few;

impl Positions {
    /// Groups of so many tokens each, whose ids repeat like this if they have some.
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
            grid: OnceLock::new(),
        }
    }

    /// Two tokens and no others.
    pub(crate) fn pair() -> Self {
        let matrix = |rows: &[(u32, f64)]| Sparse::new(rows.iter().map(|&entry| smallvec![entry]));
        Self {
            chart: None,
            length: 2.0,
            tokens: smallvec![1.0; 2],
            first: smallvec![1],
            second: matrix(&[(0, 1.0)]),
            pairs: smallvec![2.0],
            row_sums: matrix(&[(0, 1.0), (0, 1.0)]),
            classes: smallvec![1.0],
            repetition: None,
            given: None,
            boundary: None,
            grid: OnceLock::new(),
        }
    }
}
