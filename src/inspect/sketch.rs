//! A summary that identifies the entries of a tensor, and repetitions of its rows or columns, in one pass.
//!
//! # Formula
//!
//! Lines (rows, or columns) are equal if the hashes of all their entries are. Blocks of lines are compared by K entries
//! of every line, at the same places. Entries x and y of two blocks are divided by the root mean square of their place
//! over all lines. Then each line is centred and divided by its root mean square, so that lines of different sizes
//! count equally:
//!
//! ```text
//! r = Σ x y/√(Σ x² Σ y²)        z = Σ x y/√(Σ x² y²)
//! ```
//!
//! where sums run over the N = K · lines/blocks entries of a block, for every number of blocks that divides the lines,
//! up to 128. For independent entries z is N(0, 1), whatever their sizes and however many are zero. Blocks depend on
//! each other if |r| is above 0.2 and |z| above 7, which fewer than one in 10¹¹ pairs of independent blocks reach.

use super::Spread;

/// The number of samples of all lines together, if a tensor is large. A line is a row or a column of a matrix.
const SAMPLES: usize = 1 << 20;
/// The largest number of samples of a line.
const MOST_PER_LINE: usize = 64;
/// The length below which lines may be equal by chance: a few percent of bf16 entries are equal.
const SHORTEST: usize = 8;
/// The largest number of lines that are compared; matrices with more rows or columns are not matrices of a network.
const MOST_LINES: usize = 1 << 20;
/// The largest number of blocks that are compared.
const MOST_BLOCKS: usize = 128;
/// The least number of samples of a block.
const FEWEST_SAMPLES: usize = 256;
/// The number of entries that are compared between tensors.
const COMPARED: usize = 1024;
/// Correlations below this are not reported.
const VISIBLE: f64 = 0.2;
/// The number of standard errors above which a correlation is not due to chance.
const BEYOND: f64 = 7.0;

/// A summary of the entries of one tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Fingerprint {
    /// The hash of all entries in their order; tensors of one shape and hash are equal.
    pub(super) hash: u64,
    /// Some entries, at places that depend on the shape alone, centred and divided by the root mean square of their
    /// row.
    sample: Vec<f32>,
    /// Rows or columns that depend on each other; `None` if there are none.
    pub repetition: Option<Repetition>,
}

/// Lines (rows or columns) of a matrix that repeat other lines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Repetition {
    /// True if lines are rows as they are stored, false if they are columns.
    pub is_of_rows: bool,
    /// The kind of repetition.
    pub kind: RepetitionKind,
}

/// The kinds of repetitions of the lines of a matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RepetitionKind {
    /// Some lines are equal to earlier lines.
    Equal {
        /// The number of copies.
        copies: usize,
        /// The number of all lines.
        of: usize,
    },
    /// Two blocks of lines are correlated.
    Correlated {
        /// The number of blocks that the lines are cut into.
        blocks: usize,
        /// The indices of the two blocks, from 0.
        pair: [usize; 2],
        /// The correlation of the entries of the two blocks.
        correlation: f64,
    },
}

impl Fingerprint {
    /// Returns the correlation of the entries of two tensors of the same shape; `None` if it may be due to chance.
    pub(super) fn correlation(&self, other: &Self) -> Option<f64> {
        let compared = self.sample.len() == other.sample.len() && self.sample.len() >= FEWEST_SAMPLES;
        if !compared {
            return None;
        }
        let norm = |sample: &[f32]| dot(sample, sample).sqrt();
        beyond_chance(&self.sample, &other.sample, norm(&self.sample) * norm(&other.sample))
    }
}

/// Returns the correlation of two samples, whose norms have the product `norms`; `None` if it may be due to chance.
fn beyond_chance(a: &[f32], b: &[f32], norms: f64) -> Option<f64> {
    let product = dot(a, b);
    let correlation = product / norms;
    if norms <= 0.0 || correlation.abs() <= VISIBLE {
        return None;
    }
    let squares: f64 = a.iter().zip(b).map(|(a, b)| f64::from(a * b).powi(2)).sum();
    (product.abs() > BEYOND * squares.sqrt()).then_some(correlation)
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    // The pieces are short enough for sums in f32, and the compiler vectorises them.
    let pieces = a.chunks(64).zip(b.chunks(64));
    pieces.map(|(a, b)| f64::from(a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>())).sum()
}

/// The state of a row or column while it is read.
#[derive(Clone, Copy)]
struct Line {
    hash: u64,
    first: Option<u32>,
    is_constant: bool,
}

impl Line {
    const EMPTY: Self = Self { hash: 0, first: None, is_constant: true };

    fn add(&mut self, bits: u32) {
        self.hash = mixed(self.hash, u64::from(bits));
        self.is_constant &= *self.first.get_or_insert(bits) == bits;
    }
}

/// Returns the bits of an entry, which are the same for both zeros.
fn bits(entry: f32) -> u32 {
    (entry + 0.0).to_bits()
}

fn mixed(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// The state of a [`Fingerprint`] while a matrix is read.
pub(super) struct Sketch {
    shape: [usize; 2],
    /// The hash of all entries so far.
    hash: u64,
    count: usize,
    rows: Lines,
    columns: Lines,
}

/// All rows, or all columns, of a matrix, with samples of each. `sampled` are the places of the samples within a line.
struct Lines {
    each: Vec<Line>,
    sampled: Vec<usize>,
    samples: Vec<f32>,
}

impl Lines {
    fn new(lines: usize, across: usize) -> Self {
        let lines = if lines > MOST_LINES { 0 } else { lines };
        let count = (SAMPLES / lines.max(1)).clamp(1, MOST_PER_LINE).min(across);
        let sampled = (0..count).map(|index| index * across / count.max(1)).collect();
        Self { each: vec![Line::EMPTY; lines], sampled, samples: vec![0.0; lines * count] }
    }

    /// Adds consecutive entries of the line with index `line`; `first` is the place of the first of them in the line.
    fn add_to_line(&mut self, line: usize, first: usize, entries: &[f32]) {
        let Some(whole) = self.each.get_mut(line) else { return };
        for entry in entries {
            whole.add(bits(*entry));
        }
        let begin = self.sampled.partition_point(|&across| across < first);
        let end = self.sampled.partition_point(|&across| across < first + entries.len());
        for index in begin..end {
            self.samples[line * self.sampled.len() + index] = entries[self.sampled[index] - first];
        }
    }

    /// Adds one entry to each of the lines from index `first` on; `across` is the place of these entries in their
    /// lines.
    fn add_across(&mut self, across: usize, first: usize, entries: &[f32]) {
        let lines = self.each.get_mut(first..).unwrap_or_default();
        for (line, entry) in lines.iter_mut().zip(entries) {
            line.add(bits(*entry));
        }
        if let (Ok(index), false) = (self.sampled.binary_search(&across), self.each.is_empty()) {
            for (line, &entry) in (first..).zip(entries) {
                self.samples[line * self.sampled.len() + index] = entry;
            }
        }
    }

    fn repetition(&self, across: usize, is_of_rows: bool) -> Option<Repetition> {
        let equal = if across < SHORTEST { None } else { self.equal() };
        Some(Repetition { is_of_rows, kind: equal.or_else(|| self.correlated())? })
    }

    fn equal(&self) -> Option<RepetitionKind> {
        let varying = self.each.iter().filter(|line| !line.is_constant);
        let mut hashes: Vec<u64> = varying.map(|line| line.hash).collect();
        let before = hashes.len();
        hashes.sort_unstable();
        hashes.dedup();
        let copies = before - hashes.len();
        (copies > 0).then_some(RepetitionKind::Equal { copies, of: self.each.len() })
    }

    /// Returns the strongest correlation between two blocks, over all numbers of blocks into which the lines can be
    /// cut. Of nearly equal correlations it is the one with fewer blocks. `None` if none is beyond chance.
    fn correlated(&self) -> Option<RepetitionKind> {
        /// The factor by which a correlation with more blocks must be stronger to be preferred.
        const STRONGER: f64 = 1.05;
        let samples = self.normalised();
        let n_lines = self.each.len();
        let mut strongest: Option<(usize, [usize; 2], f64)> = None;
        for blocks in (2..=MOST_BLOCKS).filter(|&blocks| n_lines.is_multiple_of(blocks)) {
            let size = n_lines / blocks * self.sampled.len();
            if size < FEWEST_SAMPLES {
                break;
            }
            let parts: Vec<&[f32]> = samples.chunks_exact(size).collect();
            let norms: Vec<f64> = parts.iter().map(|part| dot(part, part).sqrt()).collect();
            for (a, b) in (0..blocks).flat_map(|b| (0..b).map(move |a| (a, b))) {
                let Some(found) = beyond_chance(parts[a], parts[b], norms[a] * norms[b]) else { continue };
                if strongest.is_none_or(|(_, _, known)| found.abs() > STRONGER * known.abs()) {
                    strongest = Some((blocks, [a, b], found));
                }
            }
        }
        strongest.map(|(blocks, pair, correlation)| RepetitionKind::Correlated { blocks, pair, correlation })
    }

    /// Returns the samples in two steps of normalisation. Samples are divided by the root mean square over all lines at
    /// their place; then each line is centred and divided by its root mean square. If lines have few samples, only the
    /// mean of all samples is subtracted.
    fn normalised(&self) -> Vec<f32> {
        let per_line = self.sampled.len();
        if per_line < SHORTEST {
            return centred(&self.samples);
        }
        let mut samples = self.samples.clone();
        for place in 0..per_line {
            let each = || samples.iter().skip(place).step_by(per_line).map(|&x| f64::from(x));
            let size = (each().map(|x| x * x).sum::<f64>() / each().count() as f64).sqrt() as f32;
            if size > 0.0 {
                samples.iter_mut().skip(place).step_by(per_line).for_each(|x| *x /= size);
            }
        }
        for line in samples.chunks_exact_mut(per_line) {
            let of_line = centred(line);
            let size = (dot(&of_line, &of_line) / per_line as f64).sqrt() as f32;
            for (x, of_line) in line.iter_mut().zip(of_line) {
                *x = if size > 0.0 { of_line / size } else { 0.0 };
            }
        }
        samples
    }
}

/// Returns samples minus their mean; zero for samples that are not finite.
fn centred(samples: &[f32]) -> Vec<f32> {
    let mean = Spread::of(samples).mean as f32;
    samples.iter().map(|&x| if x.is_finite() { x - mean } else { 0.0 }).collect()
}

impl Sketch {
    /// Starts a sketch of a matrix of this shape, whose entries are added row by row.
    pub(super) fn new(shape: [usize; 2]) -> Self {
        let [rows, columns] = shape;
        Self { shape, hash: 0, count: 0, rows: Lines::new(rows, columns), columns: Lines::new(columns, rows) }
    }

    /// Returns the number of rows and columns.
    pub(super) fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// Adds the next entries.
    pub(super) fn add(&mut self, mut entries: &[f32]) {
        let n_columns = self.shape[1];
        while !entries.is_empty() {
            let (row, column) = (self.count / n_columns, self.count % n_columns);
            let (now, rest) = entries.split_at((n_columns - column).min(entries.len()));
            self.hash = now.iter().fold(self.hash, |hash, entry| mixed(hash, u64::from(entry.to_bits())));
            self.rows.add_to_line(row, column, now);
            self.columns.add_across(row, column, now);
            self.count += now.len();
            entries = rest;
        }
    }

    /// Returns the fingerprint; `None` for a constant.
    pub(super) fn fingerprint(&self, spread: &Spread) -> Option<Fingerprint> {
        spread.std().filter(|std| *std > 0.0)?;
        // An odd stride passes through all columns.
        let stride = self.rows.samples.len().div_ceil(COMPARED) | 1;
        let sample = self.rows.normalised().into_iter().step_by(stride).collect();
        let [rows, columns] = self.shape;
        let repetition = self.rows.repetition(columns, true).or_else(|| self.columns.repetition(rows, false));
        Some(Fingerprint { hash: self.hash, sample, repetition })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};

    fn drawn(shape: [usize; 2], seed: u64) -> Vec<f32> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        (0..shape[0] * shape[1]).map(|_| random.random_range(-1.0..1.0)).collect()
    }

    fn fingerprint(shape: [usize; 2], entries: &[f32]) -> Fingerprint {
        let mut sketch = Sketch::new(shape);
        // In pieces that end within rows.
        entries.chunks(1000).for_each(|piece| sketch.add(piece));
        sketch.fingerprint(&Spread::of(entries)).expect("no constant")
    }

    const SHAPE: [usize; 2] = [96, 64];

    #[test]
    fn independent_entries_depend_on_nothing() {
        let one = fingerprint(SHAPE, &drawn(SHAPE, 1));
        let other = fingerprint(SHAPE, &drawn(SHAPE, 2));
        assert_eq!((one.repetition, one.correlation(&other)), (None, None));
        assert_ne!(one.hash, other.hash);
        assert_eq!(fingerprint(SHAPE, &drawn(SHAPE, 1)), one);
        assert!(Sketch::new([4, 4]).fingerprint(&Spread::of(&[0.5; 16])).is_none());
    }

    /// Entries 0.8 x + 0.6 y of independent x and y of one variance have the correlation 0.8 with x.
    #[test]
    fn correlated_tensors_have_their_correlation() {
        let (x, y) = (drawn(SHAPE, 1), drawn(SHAPE, 2));
        let mixed: Vec<f32> = x.iter().zip(&y).map(|(x, y)| 0.8 * x + 0.6 * y).collect();
        let found = fingerprint(SHAPE, &x).correlation(&fingerprint(SHAPE, &mixed)).expect("beyond chance");
        assert!((found - 0.8).abs() < 5.0 * 0.36 / (COMPARED as f64).sqrt(), "{found}");
    }

    #[test]
    fn equal_rows_and_columns_are_counted() {
        let mut rows = drawn(SHAPE, 1);
        rows.copy_within(..32 * 64, 64 * 64);
        let equal = |copies, of| RepetitionKind::Equal { copies, of };
        let found = fingerprint(SHAPE, &rows).repetition;
        assert_eq!(found, Some(Repetition { is_of_rows: true, kind: equal(32, 96) }));
        let columns: Vec<f32> = drawn([96, 32], 1).chunks(32).flat_map(|row| row.repeat(2)).collect();
        let found = fingerprint(SHAPE, &columns).repetition;
        assert_eq!(found, Some(Repetition { is_of_rows: false, kind: equal(32, 64) }));
        // A row of zeros, and one more, repeat nothing.
        let mut padded = drawn(SHAPE, 1);
        padded[..128].fill(0.0);
        assert_eq!(fingerprint(SHAPE, &padded).repetition, None);
    }

    /// Rows five times as large, rows with lognormal factors, and rows of zeros at the end repeat nothing. Copies are
    /// found among rows of other sizes.
    #[test]
    fn rows_of_other_sizes_are_no_copies() {
        const LARGE: [usize; 2] = [2112, 128];
        let scaled = |seed, factor: &dyn Fn(usize) -> f32| {
            let entries = drawn(LARGE, seed);
            entries.iter().enumerate().map(|(index, x)| x * factor(index / 128)).collect::<Vec<f32>>()
        };
        let lognormal = |row: usize| (2.0 * ((row * 7919 % 2112) as f32 / 1056.0 - 1.0)).exp().powi(2);
        for seed in 1..6 {
            let last = |factor| move |row: usize| if row >= 2048 { factor } else { 1.0 };
            for entries in
                [scaled(seed, &last(5.0)), scaled(seed, &last(0.0)), scaled(seed, &last(1e4)), scaled(seed, &lognormal)]
            {
                assert_eq!(fingerprint(LARGE, &entries).repetition, None);
            }
            let [one, other] = [seed, seed + 10].map(|seed| fingerprint(LARGE, &scaled(seed, &lognormal)));
            assert_eq!(one.correlation(&other), None);
        }
        let mut copied = scaled(1, &lognormal);
        let (first, second) = copied.split_at_mut(1056 * 128);
        for (row, original) in second.chunks_exact_mut(128).zip(first.chunks_exact(128)) {
            row.iter_mut().zip(original).for_each(|(x, original)| *x = 3.0 * original);
        }
        let found = fingerprint(LARGE, &copied).repetition.expect("rows repeat up to their size");
        let RepetitionKind::Correlated { pair: [0, 1], correlation, .. } = found.kind else { panic!("{found:?}") };
        assert!(correlation > 0.999, "{correlation}");
    }

    /// The third of four blocks of rows is the first one's negative with noise of half its standard deviation: its
    /// correlation is −1/√1.25.
    #[test]
    fn correlated_blocks_are_named() {
        let (mut entries, noise) = (drawn(SHAPE, 1), drawn(SHAPE, 2));
        let block = entries.len() / 4;
        for index in 0..block {
            entries[2 * block + index] = 0.5f32.mul_add(noise[index], -entries[index]);
        }
        let Some(Repetition { is_of_rows: true, kind: RepetitionKind::Correlated { blocks, pair, correlation } }) =
            fingerprint(SHAPE, &entries).repetition
        else {
            panic!("nothing found")
        };
        assert_eq!((blocks, pair), (4, [0, 2]));
        assert!((correlation + 1.25f64.sqrt().recip()).abs() < 0.03, "{correlation}");
    }
}
