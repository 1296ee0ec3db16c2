//! The sums that are kept of a sampled array, and the quantities that are reported.
//!
//! Raw sums of a replicate are pooled over replicates first, and ratios are formed last:
//!
//! ```text
//! mean                    E x
//! variance                E x² − mean²
//! token_correlation       (E x_a x_b − mean²) / variance     over ordered pairs of tokens a ≠ b
//! grad_variance           E g²
//! grad_token_correlation  E g_a g_b / grad_variance
//! ```
//!
//! Standard errors: delete-one jackknife over n replicates (Efron and Stein 1981),
//! `se² = (n − 1)/n · Σ_i (θ_(i) − θ̄)²`, with θ_(i) the quantity without replicate i and θ̄ their mean.

use std::ops::{Add, AddAssign};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sigprop_stack::{Cell, Number};

use crate::{
    array::Array,
    scalar::{Scalar, sum},
    vectorised::vectorised,
};

/// A variance below this share of the second moment counts as zero: it is the rounding error of f32.
const ROUNDING: f64 = 1e-13;

/// Root mean squares below this lose digits in f32, whose normal numbers start at 1.2e-38.
const SMALLEST: f64 = 1e-36;

/// A variation of replicates below this share of their mean counts as rounding of a constant in single precision.
const CONSTANT: f64 = 1e-4;

/// One token in this many is examined at sites without a row. A signal that leaves the range of f32 does so in all
/// tokens, or remains infinite up to a site where all tokens are examined.
const APART: usize = 8;

/// Number of entries squared at a time.
const PIECE: usize = 1 << 14;

/// Number of columns summed at a time.
const COLUMNS: usize = 128;

/// Raw sums of one array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Moments {
    entries: f64,
    sum: f64,
    squares: f64,
    pairs: f64,
    products: f64,
    /// Sums of the first and the last position.
    ends: [End; 2],
}

/// Raw sums of one position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct End {
    entries: f64,
    sum: f64,
    squares: f64,
}

impl Moments {
    /// Number of sums.
    pub(crate) const SUMS: usize = 7;

    /// The sums over all sequences of an array.
    pub(crate) fn of<T: Scalar>(array: &Array<T>) -> Self {
        let width = array.width();
        let sequences: Vec<&[T]> = array.sequences().collect();
        let of_sequences = sequences.iter().zip(Self::of_sequences(&sequences, width));
        of_sequences.fold(Self::default(), |moments, (sequence, of_sequence)| {
            let (first, last) = (&sequence[..width], &sequence[sequence.len() - width..]);
            moments + Self { ends: [End::of(first), End::of(last)], ..of_sequence }
        })
    }

    /// The sums over one sequence, its tokens having `width` entries.
    pub(crate) fn of_sequence<T: Scalar>(entries: &[T], width: usize) -> Self {
        Self::of_sequences(&[entries], width).swap_remove(0)
    }

    /// The sums over each sequence; Σ over pairs of x_a·x_b is |Σ_a x_a|² − Σ_a |x_a|².
    fn of_sequences<T: Scalar>(sequences: &[&[T]], width: usize) -> Vec<Self> {
        let pieces = width.div_ceil(COLUMNS);
        let piece = |index: usize| column_sums(sequences[index / pieces], width, index % pieces * COLUMNS);
        let sums: Vec<[f64; 3]> = (0..sequences.len() * pieces).into_par_iter().map(piece).collect();
        let of_sequence = |(entries, sums): (&&[T], &[[f64; 3]])| {
            let [sum, squares, products] =
                sums.iter().fold([0.0; 3], |sum: [f64; 3], more| [0, 1, 2].map(|i| sum[i] + more[i]));
            let tokens = (entries.len() / width) as f64;
            Self {
                entries: entries.len() as f64,
                sum,
                squares,
                pairs: entries.len() as f64 * (tokens - 1.0),
                products: products - squares,
                ends: [End::default(); 2],
            }
        };
        sequences.iter().zip(sums.chunks_exact(pieces)).map(of_sequence).collect()
    }

    /// Returns the sums; the other fields are counts.
    pub(crate) fn sums(&self) -> [f64; Self::SUMS] {
        let [first, last] = self.ends;
        [self.sum, self.squares, self.products, first.sum, first.squares, last.sum, last.squares]
    }

    /// Returns the same counts with other sums.
    pub(crate) fn with_sums(&self, [sum, squares, products, ends @ ..]: [f64; Self::SUMS]) -> Self {
        let end = |index: usize| End { sum: ends[2 * index], squares: ends[2 * index + 1], ..self.ends[index] };
        Self { sum, squares, products, ends: [end(0), end(1)], ..*self }
    }

    /// E x, E x² and, if there are pairs of tokens, the mean of x_a x_b over them.
    pub(crate) fn averages(&self) -> Vec<f64> {
        let cross = (self.pairs > 0.0).then(|| self.products / self.pairs);
        [self.mean(), self.second_moment()].into_iter().chain(cross).collect()
    }

    /// Returns the count and Σ x² of one token in [`APART`] alone, enough to see whether an array is in range.
    pub(crate) fn of_some<T: Scalar>(array: &Array<T>) -> Self {
        let width = array.width();
        let tokens: Vec<&[T]> = array.rows().step_by(APART).collect();
        let pieces = tokens.par_iter().with_min_len(PIECE.div_ceil(width));
        let squares: Vec<f64> = pieces.map(|token| squares(token)).collect();
        Self::of_squares((squares.len() * width) as f64, squares.into_iter().sum())
    }

    /// Returns sums that hold only Σ x² = `squares` over this number of entries, as they are kept for the gradient of a
    /// weight.
    pub(crate) fn of_squares(entries: f64, squares: f64) -> Self {
        Self { entries, squares, ..Self::default() }
    }

    /// Returns true if f32 holds the array with all its digits, as it does for an array of zeros.
    pub(crate) fn in_range(&self) -> bool {
        let second_moment = self.second_moment();
        second_moment <= 0.0 || (SMALLEST * SMALLEST..f64::INFINITY).contains(&second_moment)
    }

    pub(crate) fn mean(&self) -> f64 {
        self.sum / self.entries
    }

    pub(crate) fn second_moment(&self) -> f64 {
        self.squares / self.entries
    }

    pub(crate) fn variance(&self) -> f64 {
        let variance = self.second_moment() - self.mean().powi(2);
        if variance > ROUNDING * self.second_moment() { variance } else { 0.0 }
    }

    /// The token correlation; `None` for single tokens and for constants.
    pub(crate) fn token_correlation(&self) -> Option<f64> {
        let covariance = self.products / self.pairs - self.mean().powi(2);
        (self.pairs > 0.0 && self.variance() > 0.0).then(|| covariance / self.variance())
    }

    /// Variance at the first (0) or the last (1) position; `None` if there are no sums of single positions.
    pub(crate) fn variance_at(&self, end: usize) -> Option<f64> {
        let End { entries, sum, squares } = self.ends[end];
        let variance = squares / entries - (sum / entries).powi(2);
        (entries > 0.0).then(|| if variance > ROUNDING * squares / entries { variance } else { 0.0 })
    }

    /// Second moment at the first (0) or the last (1) position; `None` if there are no sums of single positions.
    pub(crate) fn second_moment_at(&self, end: usize) -> Option<f64> {
        let End { entries, squares, .. } = self.ends[end];
        (entries > 0.0).then(|| squares / entries)
    }

    /// The token correlation of a gradient; `None` for single tokens and for zeros.
    pub(crate) fn grad_token_correlation(&self) -> Option<f64> {
        (self.pairs > 0.0 && self.squares > 0.0).then(|| self.products / self.pairs / self.second_moment())
    }
}

impl AddAssign for Moments {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Add for Moments {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            entries: self.entries + other.entries,
            sum: self.sum + other.sum,
            squares: self.squares + other.squares,
            pairs: self.pairs + other.pairs,
            products: self.products + other.products,
            ends: [self.ends[0] + other.ends[0], self.ends[1] + other.ends[1]],
        }
    }
}

impl End {
    fn of<T: Scalar>(entries: &[T]) -> Self {
        let sums = entries.iter().fold((0.0, 0.0), |(sum, squares), x| {
            let x = x.to_f64();
            (sum + x, squares + x * x)
        });
        Self { entries: entries.len() as f64, sum: sums.0, squares: sums.1 }
    }
}

impl Add for End {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { entries: self.entries + other.entries, sum: self.sum + other.sum, squares: self.squares + other.squares }
    }
}

vectorised! {
    /// Σ x².
    fn squares<T: Scalar>(entries: &[T]) -> f64 {
        sum(entries, entries, |x, _| x * x)
    }
}

vectorised! {
    /// Returns Σ x, Σ x² and Σ over columns of (Σ over rows x)², over at most [`COLUMNS`] columns from `start` on.
    fn column_sums<T: Scalar>(entries: &[T], width: usize, start: usize) -> [f64; 3] {
        let count = COLUMNS.min(width - start);
        let (mut sums, mut squares) = ([0.0; COLUMNS], [0.0; COLUMNS]);
        for row in entries.chunks_exact(width) {
            let row = &row[start..start + count];
            for ((sum, square), x) in sums.iter_mut().zip(&mut squares).zip(row) {
                let x = x.to_f64();
                *sum += x;
                *square += x * x;
            }
        }
        [sum(&sums, &sums, |x, _| x), sum(&squares, &squares, |x, _| x), sum(&sums, &sums, |x, _| x * x)]
    }
}

/// Returns a quantity of the pooled replicates with its jackknife standard error. The error is zero for a single
/// replicate, where it is not known. `None` if the quantity does not exist for all replicates together, or for all but
/// one of them.
pub(crate) fn jackknife(replicates: &[Moments], quantity: impl Fn(&Moments) -> Option<f64>) -> Option<Cell> {
    let n = replicates.len();
    // Sums from the end, because subtracting one replicate from the total would lose all digits
    // where one of them dominates.
    let mut after = vec![Moments::default(); n + 1];
    for i in (0..n).rev() {
        after[i] = replicates[i] + after[i + 1];
    }
    let value = Number::from(quantity(&after[0])?);
    if n == 1 {
        return Some(Cell { value, std_error: Number::ZERO });
    }
    let mut before = Moments::default();
    let mut without = Vec::with_capacity(n);
    for i in 0..n {
        without.push(quantity(&(before + after[i + 1]))?);
        before += replicates[i];
    }
    let mean = without.iter().sum::<f64>() / n as f64;
    let squares: f64 = without.iter().map(|theta| (theta - mean).powi(2)).sum();
    let std_error = ((n - 1) as f64 / n as f64 * squares).sqrt();
    Some(Cell { value, std_error: Number::from(std_error) })
}

/// Returns the standard deviation of ln `quantity` over single replicates, with its delete-one jackknife error. `None`
/// for fewer than three replicates, for zeros, and if the variation is only rounding.
pub(crate) fn spread(replicates: &[Moments], quantity: impl Fn(&Moments) -> f64) -> Option<Cell> {
    let n = replicates.len() as f64;
    let logarithms: Vec<f64> = replicates.iter().map(|replicate| quantity(replicate).ln()).collect();
    let mean = logarithms.iter().sum::<f64>() / n;
    let squares: Vec<f64> = logarithms.iter().map(|ln| (ln - mean).powi(2)).collect();
    let total: f64 = squares.iter().sum();
    let varies = total.is_finite() && total > (n - 1.0) * CONSTANT * CONSTANT;
    if replicates.len() < 3 || !varies {
        return None;
    }
    // Without replicate i: Σ (x − mean)² minus n/(n − 1) (x_i − mean)².
    let without: Vec<f64> =
        squares.iter().map(|square| ((total - n / (n - 1.0) * square) / (n - 2.0)).sqrt()).collect();
    let average = without.iter().sum::<f64>() / n;
    let deviations: f64 = without.iter().map(|theta| (theta - average).powi(2)).sum();
    let std_error = ((n - 1.0) / n * deviations).sqrt();
    Some(Cell { value: Number::from((total / (n - 1.0)).sqrt()), std_error: Number::from(std_error) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Shape;

    const EXACT: f64 = 1e-12;

    fn assert_close(got: f64, expected: f64) {
        assert!((got - expected).abs() < EXACT, "expected {expected}, got {got}");
    }

    fn array(batch: usize, seq_len: usize, entries: &[f64]) -> Array<f64> {
        let mut array = Array::zeros(Shape { batch, seq_len }, entries.len() / (batch * seq_len));
        array.entries_mut().copy_from_slice(entries);
        array
    }

    /// Two sequences of two tokens of two features, all by hand.
    #[test]
    fn moments_agree_with_hand_computed_ones() {
        let moments = Moments::of(&array(2, 2, &[1.0, 2.0, 3.0, 4.0, 0.0, -1.0, 2.0, 1.0]));
        assert_close(moments.mean(), 12.0 / 8.0);
        assert_close(moments.second_moment(), 36.0 / 8.0);
        assert_close(moments.variance(), 4.5 - 2.25);
        // Ordered pairs: 2 · (1·3 + 2·4) and 2 · (0·2 − 1·1) over 2 · 2 · 2 products.
        assert_close(moments.token_correlation().expect("two tokens"), ((22.0 - 2.0) / 8.0 - 2.25) / 2.25);
        assert_close(moments.grad_token_correlation().expect("two tokens"), 2.5 / 4.5);
    }

    #[test]
    fn single_tokens_and_constants_have_no_correlation() {
        assert_eq!(Moments::of(&array(2, 1, &[1.0, 2.0])).token_correlation(), None);
        assert_eq!(Moments::of(&array(1, 2, &[0.1, 0.1])).token_correlation(), None);
        assert_eq!(Moments::of(&array(1, 2, &[0.0, 0.0])).grad_token_correlation(), None);
    }

    /// The jackknife error of a mean is its textbook standard error: for 1, 2, 6 it is √(7/3).
    #[test]
    fn jackknife_of_a_mean_is_the_standard_error() {
        let replicates = [1.0, 2.0, 6.0].map(|x| Moments::of(&array(1, 1, &[x])));
        let cell = jackknife(&replicates, |pooled| Some(pooled.mean())).expect("a mean");
        assert_close(cell.value.value(), 3.0);
        assert_close(cell.std_error.value(), (7.0f64 / 3.0).sqrt());
    }

    /// Variance of 1, 2, 6: pooled 41/3 − 9; without one of them 4, 25/4, 1/4.
    #[test]
    fn jackknife_forms_ratios_last() {
        let replicates = [1.0, 2.0, 6.0].map(|x| Moments::of(&array(1, 1, &[x])));
        let cell = jackknife(&replicates, |pooled| Some(pooled.variance())).expect("a variance");
        let (without, mean) = ([4.0, 6.25, 0.25], 3.5);
        let squares: f64 = without.iter().map(|x: &f64| (x - mean).powi(2)).sum();
        assert_close(cell.value.value(), 41.0 / 3.0 - 9.0);
        assert_close(cell.std_error.value(), (2.0 / 3.0 * squares).sqrt());
    }

    /// Logarithms 0, 1, 5: variance 7; without one of them standard deviations 4/√2, 5/√2 and 1/√2.
    #[test]
    fn spread_of_logarithms_by_hand() {
        let replicates = [0.0f64, 1.0, 5.0].map(|ln| Moments::of(&array(1, 1, &[(0.5 * ln).exp()])));
        let cell = spread(&replicates, Moments::second_moment).expect("three replicates");
        assert_close(cell.value.value(), 7.0f64.sqrt());
        let (without, mean) = ([4.0, 5.0, 1.0].map(|x: f64| x / 2.0f64.sqrt()), 10.0 / 3.0 / 2.0f64.sqrt());
        let squares: f64 = without.iter().map(|x| (x - mean).powi(2)).sum();
        assert_close(cell.std_error.value(), (2.0 / 3.0 * squares).sqrt());
        assert_eq!(spread(&replicates[..2], Moments::second_moment), None);
        assert_eq!(spread(&[replicates[0]; 4], Moments::second_moment), None);
        assert_eq!(spread(&[Moments::of(&array(1, 1, &[0.0])); 4], Moments::second_moment), None);
    }

    #[test]
    fn one_replicate_has_no_error_and_overflow_is_seen() {
        let moments = Moments::of(&array(1, 2, &[1.0, 2.0]));
        assert!(jackknife(&[moments], |pooled| Some(pooled.mean())).expect("a mean").std_error.is_zero());
        assert!(moments.in_range());
        assert!(Moments::of(&array(1, 2, &[0.0, 0.0])).in_range());
        for x in [f64::INFINITY, f64::NAN, 1e-40] {
            assert!(!Moments::of(&array(1, 2, &[x, x])).in_range());
        }
    }
}
