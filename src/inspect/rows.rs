//! Rows of a table or of a head whose sizes differ.
//!
//! # Rule
//!
//! The size of a row is the root mean square of its C entries. A row differs if its size is apart from the median by
//! more than a factor of 1.5 and by more than 7 standard errors of ln size, 1/√(2C) for Gaussian entries. Neighbouring
//! rows that differ are a run. Runs are named if they are few and most rows are in none. If sizes differ throughout, as
//! after training or with factors per row, rows are counted in groups by size.

use sigprop_stack::RowGroup;

use super::spread::Spread;

/// The ratio of the size of a row to the median size, or its inverse, above which the row differs.
const FACTOR: f64 = 1.5;
/// The number of standard errors of ln size above which a row differs.
const BEYOND: f64 = 7.0;
/// The largest number of runs that are named.
const MOST_RUNS: usize = 8;
/// The number of groups into which rows are sorted by size if the sizes of most rows differ.
const GROUPS: usize = 8;
/// The standard deviation of ln of the size from which on the sizes of most rows count as different.
const VISIBLE: f64 = 0.2;

/// Consecutive rows of the same size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// The index of the first row, from 0.
    pub first: usize,
    /// The index of the last row.
    pub last: usize,
    /// The statistics of all entries of these rows.
    pub spread: Spread,
}

/// The rows of a tensor, some of which differ in size.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    /// Runs of rows that differ in size from the rest, including runs of zeros; empty if the sizes of most rows differ.
    pub runs: Vec<Run>,
    /// The statistics of the entries of all rows that are in no run.
    pub rest: Spread,
    /// All rows grouped by size: the runs in order and then the rest. If the sizes of most rows differ, the groups are
    /// quantiles.
    pub groups: Vec<RowGroup>,
}

impl Run {
    /// Returns true if all rows of the run are zero.
    pub fn is_zero(&self) -> bool {
        self.spread.root_mean_square().is_none_or(|size| size <= 0.0)
    }

    fn len(&self) -> usize {
        self.last - self.first + 1
    }
}

impl Rows {
    /// Judges rows by the statistics of each; `None` if all have the same size, or if rows are too few or too short.
    pub(super) fn of(rows: &[Spread]) -> Option<Self> {
        /// The least number of rows, and the least number of entries of a row, for which rows are judged.
        const FEWEST: usize = 8;
        let columns = rows.first()?.count as usize;
        if columns < FEWEST || rows.len() < FEWEST || rows.iter().any(|row| row.not_finite > 0) {
            return None;
        }
        let sizes: Vec<f64> = rows.iter().map(|row| row.root_mean_square().unwrap_or_default()).collect();
        let mut sorted: Vec<f64> = sizes.iter().copied().filter(|size| *size > 0.0).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let median = *sorted.get(sorted.len() / 2)?;
        let apart = FACTOR.ln().max(BEYOND / (2.0 * columns as f64).sqrt());
        let differs = |size: f64| size <= 0.0 || (size / median).ln().abs() > apart;
        let runs = runs(rows, &sizes, differs, apart);
        let in_runs: usize = runs.iter().map(Run::len).sum();
        if runs.is_empty() || runs.len() > MOST_RUNS || 2 * in_runs > rows.len() {
            return Self::throughout(rows, &sorted);
        }
        let rest = rows.iter().zip(&sizes).filter(|(_, size)| !differs(**size));
        let rest = rest.fold(Spread::default(), |sum, (row, _)| sum.with(*row));
        let size = |spread: &Spread| spread.root_mean_square().unwrap_or_default();
        let others = RowGroup { rows: rows.len() - in_runs, std: size(&rest) };
        let groups =
            runs.iter().map(|run| RowGroup { rows: run.len(), std: size(&run.spread) }).chain([others]).collect();
        Some(Self { runs, rest, groups })
    }

    /// Groups rows by size if the sizes of most rows differ; otherwise returns `None`. `sorted` are the sizes in
    /// ascending order, without zeros.
    fn throughout(rows: &[Spread], sorted: &[f64]) -> Option<Self> {
        let count = sorted.len() as f64;
        let mean = sorted.iter().map(|size| size.ln()).sum::<f64>() / count;
        let variance = sorted.iter().map(|size| (size.ln() - mean).powi(2)).sum::<f64>() / count;
        if variance.sqrt() < VISIBLE {
            return None;
        }
        let group = |sizes: &[f64]| RowGroup {
            rows: sizes.len(),
            std: (sizes.iter().map(|size| size * size).sum::<f64>() / sizes.len() as f64).sqrt(),
        };
        let mut groups: Vec<RowGroup> = sorted.chunks(sorted.len().div_ceil(GROUPS)).map(group).collect();
        let zeros = rows.len() - sorted.len();
        if zeros > 0 {
            groups.insert(0, RowGroup { rows: zeros, std: 0.0 });
        }
        let rest = rows.iter().fold(Spread::default(), |sum, row| sum.with(*row));
        Some(Self { runs: Vec::new(), rest, groups })
    }

    /// Returns the runs that are reported. A single row of zeros belongs to a padding token and is not reported.
    pub fn named(&self) -> impl Iterator<Item = &Run> {
        let zeros = self.runs.iter().filter(|run| run.is_zero()).map(Run::len).sum::<usize>();
        self.runs.iter().filter(move |run| zeros > 1 || !run.is_zero())
    }
}

/// Returns the runs of neighbouring rows that differ from the median but not from each other.
fn runs(rows: &[Spread], sizes: &[f64], differs: impl Fn(f64) -> bool, apart: f64) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (index, (row, &size)) in rows.iter().zip(sizes).enumerate().filter(|(_, (_, size))| differs(**size)) {
        let goes_on = |run: &Run| {
            let known = run.spread.root_mean_square().unwrap_or_default();
            run.last + 1 == index
                && (known <= 0.0) == (size <= 0.0)
                && (size <= 0.0 || (size / known).ln().abs() <= apart)
        };
        match runs.last_mut().filter(|run| goes_on(run)) {
            Some(run) => (run.last, run.spread) = (index, run.spread.with(*row)),
            None => runs.push(Run { first: index, last: index, spread: *row }),
        }
        if runs.len() > MOST_RUNS {
            break;
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};
    use rand_distr::StandardNormal;

    fn drawn(std: impl Fn(usize) -> f64) -> Vec<Spread> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let mut row = |index| {
            let entries: Vec<f32> =
                (0..64).map(|_| (std(index) * random.sample::<f64, _>(StandardNormal)) as f32).collect();
            Spread::of(&entries)
        };
        (0..2000).map(&mut row).collect()
    }

    #[test]
    fn rows_of_one_size_are_nothing_to_name() {
        assert_eq!(Rows::of(&drawn(|_| 0.02)), None);
        assert_eq!(Rows::of(&drawn(|row| if row % 2 == 0 { 0.02 } else { 0.022 })), None);
        assert_eq!(Rows::of(&[]), None);
    }

    #[test]
    fn runs_are_named_with_their_sizes() {
        let std = |row| match row {
            100..=109 => 0.0,
            1992.. => 1.0,
            _ => 0.02,
        };
        let found = Rows::of(&drawn(std)).expect("two runs");
        let places: Vec<_> = found.runs.iter().map(|run| (run.first, run.last, run.is_zero())).collect();
        assert_eq!(places, [(100, 109, true), (1992, 1999, false)]);
        assert!((found.runs[1].spread.std().expect("entries") - 1.0).abs() < 0.1);
        assert!((found.rest.std().expect("entries") - 0.02).abs() < 1e-3);
        assert_eq!(found.groups.iter().map(|group| group.rows).collect::<Vec<_>>(), [10, 8, 1982]);
        // This is the row of a padding token.
        assert_eq!(Rows::of(&drawn(|row| f64::from(u8::from(row != 1)))).expect("a row").named().count(), 0);
    }

    #[test]
    fn factors_per_row_are_counted_by_size() {
        let std = |row: usize| 0.02 * ((row * 7919 % 2000) as f64 / 1000.0 - 1.0).exp();
        let found = Rows::of(&drawn(std)).expect("sizes differ");
        assert!(found.runs.is_empty());
        assert_eq!(found.groups.len(), GROUPS);
        assert_eq!(found.groups.iter().map(|group| group.rows).sum::<usize>(), 2000);
        assert!(found.groups.windows(2).all(|pair| pair[0].std < pair[1].std));
    }
}
