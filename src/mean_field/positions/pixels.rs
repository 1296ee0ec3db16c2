//! Classes of the pixels of images, and sums over the taps of windows that slide over them.
//!
//! Windows at the edges lack taps. Along each axis, the [`EDGE`] positions next to either edge have a class each, and
//! all others one. A class of pixels is a pair of classes, which is a node.

use std::sync::Arc;

use nalgebra::DMatrix;
use sigprop_stack::{Axis, Image, Sliding};

use super::Positions;
use super::grid::point;

/// Number of positions next to an edge that have a class each.
const EDGE: usize = 3;

/// Returns the class of a position on an axis of this length.
fn class(at: usize, length: usize) -> usize {
    if length <= 2 * EDGE + 1 || at < EDGE { at } else { EDGE + at.saturating_sub(length - EDGE - 1) }
}

/// Returns the number of positions of each class on an axis of this length.
fn counts(length: usize) -> Vec<f64> {
    let mut counts = vec![0.0; class(length - 1, length) + 1];
    (0..length).for_each(|at| counts[class(at, length)] += 1.0);
    counts
}

impl Positions {
    /// The classes of the pixels of `images` images of one size.
    pub(crate) fn pixels(image: Image, images: f64) -> Self {
        let [rows, columns] = [image.height, image.width].map(counts);
        let tokens = rows.iter().flat_map(|row| columns.iter().map(move |column| row * column * images));
        Self { is_of_pixels: true, ..Self::groups(&tokens.collect::<Vec<f64>>(), None) }
    }

    /// Returns the values at all pairs of nodes, as a symmetric matrix, from the values at points.
    pub(crate) fn matrix(&self, pairs: &[f64]) -> DMatrix<f64> {
        DMatrix::from_fn(self.nodes(), self.nodes(), |a, b| pairs[point(a, b) as usize])
    }

    /// Returns the number of ordered pairs of different tokens of two nodes.
    pub(crate) fn count_pairs(&self, a: usize, b: usize) -> f64 {
        self.tokens[a] * if a == b { self.tokens[b] - 1.0 } else { self.tokens[b] }
    }
}

/// Numbers of taps along one axis.
#[derive(Debug)]
struct Taps {
    /// Per class of windows and class of positions: the number of taps that read one from the other.
    own: DMatrix<f64>,
    /// Per pair of classes of windows and pair of classes of positions: the number of pairs of windows one tap of which
    /// reads such a pair of positions.
    pairs: DMatrix<f64>,
}

impl Taps {
    fn new(axis: Axis) -> Self {
        let windows = axis.windows();
        let [outputs, inputs] = [windows, axis.length].map(|length| class(length - 1, length) + 1);
        let (mut own, mut pairs) = (DMatrix::zeros(outputs, inputs), DMatrix::zeros(outputs.pow(2), inputs.pow(2)));
        for tap in 0..axis.kernel {
            let mut of_tap = DMatrix::zeros(outputs, inputs);
            for window in 0..windows {
                if let Some(at) = axis.read(window, tap) {
                    of_tap[(class(window, windows), class(at, axis.length))] += 1.0;
                }
            }
            pairs += of_tap.kronecker(&of_tap);
            own += of_tap;
        }
        Self { own, pairs }
    }

    fn transposed(&self) -> Self {
        Self { own: self.own.transpose(), pairs: self.pairs.transpose() }
    }
}

/// Returns the mean number of pixels of every class (columns) in a window of every class (rows).
pub(crate) fn composition(sliding: Sliding) -> DMatrix<f64> {
    let [rows, columns] = [sliding.rows, sliding.columns].map(|axis| {
        let mut taps = Taps::new(axis).own;
        taps.row_iter_mut().zip(counts(axis.windows())).for_each(|(mut row, count)| row /= count);
        taps
    });
    rows.kronecker(&columns)
}

/// Sums over the taps of windows: of functions of pixels at the input, or the other way round.
#[derive(Debug)]
pub(crate) struct Sums {
    rows: Taps,
    columns: Taps,
    images: f64,
    from: Arc<Positions>,
    to: Arc<Positions>,
}

impl Sums {
    /// Returns the sums over the inputs of an output, and over the outputs of an input.
    pub(crate) fn both_ways(sliding: Sliding, inputs: &Arc<Positions>) -> [Self; 2] {
        let images = inputs.length / (sliding.rows.length * sliding.columns.length) as f64;
        let outputs = Arc::new(Positions::pixels(sliding.output(), images));
        let [rows, columns] = [sliding.rows, sliding.columns].map(Taps::new);
        let [rows_back, columns_back] = [&rows, &columns].map(Taps::transposed);
        let [from, to] = [Arc::clone(&outputs), Arc::clone(inputs)];
        let back = Self { rows: rows_back, columns: columns_back, images, from, to };
        [Self { rows, columns, images, from: Arc::clone(inputs), to: outputs }, back]
    }

    /// The positions at which the sums are.
    pub(crate) fn positions(&self) -> &Arc<Positions> {
        &self.to
    }

    /// Returns the mean over the pixels of every class, and over the pairs of pixels of every pair of classes, of sums
    /// over taps. They are sums of a function of one pixel, given at nodes, and of a function of two different pixels,
    /// given at points.
    pub(crate) fn of(&self, own: &[f64], pairs: &[f64]) -> [Vec<f64>; 2] {
        let to = &self.to;
        let sums = self.of_pixels(own);
        let same: Vec<f64> = (0..self.from.nodes()).map(|node| pairs[point(node, node) as usize]).collect();
        let same = self.of_pixels(&same);
        let of_pairs = self.of_pairs(pairs);
        let (squares, columns) = (self.images * self.images, self.columns.own.nrows());
        let pair = |at: usize| {
            let (a, nodes) = to.nodes_of(at);
            let b = nodes[0].0 as usize;
            let row = a / columns * self.rows.own.nrows() + b / columns;
            let sum = squares * of_pairs[(row, a % columns * columns + b % columns)];
            // A tap of one window reads one pixel, which is no pair.
            let count = to.count_pairs(a, b);
            if count > 0.0 { (sum - if a == b { same[a] } else { 0.0 }) / count } else { sum / to.tokens[a].powi(2) }
        };
        let own = sums.iter().zip(&to.tokens).map(|(sum, tokens)| sum / tokens).collect();
        [own, (0..to.points()).map(pair).collect()]
    }

    /// Returns the sums over all pixels of a class and their taps of a function of one pixel.
    fn of_pixels(&self, own: &[f64]) -> Vec<f64> {
        let at_pixels = DMatrix::from_row_slice(self.rows.own.ncols(), self.columns.own.ncols(), own);
        let sums = &self.rows.own * at_pixels * self.columns.own.transpose() * self.images;
        sums.transpose().as_slice().to_vec()
    }

    /// Returns the sums over all pairs of pixels of two classes, in two images, and their taps. A row is a pair of
    /// classes of rows of pixels, and a column is a pair of classes of columns.
    fn of_pairs(&self, pairs: &[f64]) -> DMatrix<f64> {
        let [rows, columns] = [&self.rows, &self.columns].map(|taps| taps.own.ncols());
        let at_pairs = DMatrix::from_fn(rows * rows, columns * columns, |row, column| {
            let [a, b] = [(row / rows, column / columns), (row % rows, column % columns)];
            pairs[point(a.0 * columns + a.1, b.0 * columns + b.1) as usize]
        });
        &self.rows.pairs * at_pairs * self.columns.pairs.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_axes() {
        let of = |length| (0..length).map(|at| class(at, length)).collect::<Vec<usize>>();
        assert_eq!(of(7), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(of(9), [0, 1, 2, 3, 3, 3, 4, 5, 6]);
        assert_eq!(counts(9), [1.0, 1.0, 1.0, 3.0, 1.0, 1.0, 1.0]);
    }

    /// Two images of 2 × 3 pixels, windows of 3 × 3 with padding 1: sums over taps are those of a loop over all pixels
    /// and pairs of pixels, in both directions.
    #[test]
    fn sums_are_those_of_loops() {
        let sliding = Sliding::over(Image { height: 2, width: 3 }, 3, 1, 1);
        let inputs = Arc::new(Positions::pixels(Image { height: 2, width: 3 }, 2.0));
        let value = |a: usize, b: usize| 1.0 / (1 + a + b) as f64;
        let own: Vec<f64> = (0..6).map(|a| value(a, a) + 1.0).collect();
        let pairs: Vec<f64> =
            (0..inputs.points()).map(|at| value(inputs.nodes_of(at).0, inputs.nodes_of(at).1[0].0 as usize)).collect();
        let reads: Vec<_> = sliding.reads(12).collect();
        for (is_back, sums) in Sums::both_ways(sliding, &inputs).iter().enumerate() {
            let [of_pixels, of_pairs] = sums.of(&own, &pairs);
            let mut looped = (vec![0.0; 6], DMatrix::<f64>::zeros(6, 6));
            for a in &reads {
                let [to, from] = if is_back == 0 { [a.window, a.input] } else { [a.input, a.window] };
                looped.0[to % 6] += own[from % 6] / 2.0;
                for b in reads.iter().filter(|b| b.tap == a.tap) {
                    let [to_b, from_b] = if is_back == 0 { [b.window, b.input] } else { [b.input, b.window] };
                    if to != to_b {
                        looped.1[(to % 6, to_b % 6)] += value(from % 6, from_b % 6);
                    }
                }
            }
            for (sum, looped) in of_pixels.iter().zip(&looped.0) {
                approx::assert_relative_eq!(sum, looped, max_relative = 1e-12);
            }
            for (at, sum) in of_pairs.iter().enumerate() {
                let (a, b) = (sums.to.nodes_of(at).0, sums.to.nodes_of(at).1[0].0 as usize);
                approx::assert_relative_eq!(*sum, looped.1[(a, b)] / sums.to.count_pairs(a, b), max_relative = 1e-12);
            }
        }
    }
}
