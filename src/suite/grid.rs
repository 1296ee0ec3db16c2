//! Grids of factors, whole or in part.

use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;

/// Number of points of a stratified sample of a grid. Factors of the published grids have 2 to 5 levels. These numbers
/// divide the number of points, so that each level occurs equally often.
pub(super) const SAMPLE: usize = 60;

/// Returns points of a grid, each as the index of the level of every factor. These are all combinations if `full` or if
/// there are at most `sample` of them, else a sample of `sample` points.
pub(super) fn points(levels: &[usize], sample: usize, full: bool, seed: u64) -> Vec<Vec<usize>> {
    let total: usize = levels.iter().product();
    if full || total <= sample {
        return (0..total).map(|index| digits(index, levels)).collect();
    }
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    let columns: Vec<Vec<usize>> = levels
        .iter()
        .map(|&count| {
            let mut column: Vec<usize> = (0..sample).map(|i| i % count).collect();
            column.shuffle(&mut generator);
            column
        })
        .collect();
    (0..sample).map(|i| columns.iter().map(|column| column[i]).collect()).collect()
}

/// Returns the digits of `index` in a number system with the given base for each digit, the lowest digit first.
fn digits(mut index: usize, bases: &[usize]) -> Vec<usize> {
    let mut digits = Vec::with_capacity(bases.len());
    for base in bases {
        digits.push(index % base);
        index /= base;
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_every_level_equally_often() {
        let levels = [3, 5, 4, 2];
        let points = points(&levels, SAMPLE, false, 7);
        assert_eq!(points.len(), SAMPLE);
        for (factor, &count) in levels.iter().enumerate() {
            for level in 0..count {
                assert_eq!(points.iter().filter(|point| point[factor] == level).count(), SAMPLE / count);
            }
        }
    }

    #[test]
    fn a_full_grid_has_every_combination_once() {
        let mut all = points(&[3, 2, 2], SAMPLE, true, 0);
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 12);
    }
}
