//! Symmetric matrices of the variables of several streams, and functions of these variables to second order.
//!
//! A live stream has [`VARIABLES`](super::variables::VARIABLES) variables. Few streams are live at a time, and a
//! component changes one of them. Matrices are therefore stored block by block, one block per pair of streams.

use smallvec::{SmallVec, smallvec};

use super::variables::{Matrix, Vector};

/// One vector per stream.
pub(crate) type Vectors = SmallVec<[Vector; 2]>;

/// A variable: the index of its stream, and its index in the stream.
pub(crate) type StreamVariable = (usize, usize);

/// A symmetric matrix of the variables of several streams.
#[derive(Clone, Debug)]
pub(crate) struct Symmetric {
    streams: usize,
    /// The blocks of each stream with all streams up to itself, stream by stream.
    blocks: SmallVec<[Matrix; 1]>,
}

/// Returns the index in `blocks` of the block of the streams `row` and `column` ≤ `row`.
fn lower(row: usize, column: usize) -> usize {
    row * (row + 1) / 2 + column
}

impl Symmetric {
    pub(crate) fn zeros(streams: usize) -> Self {
        Self { streams, blocks: smallvec![Matrix::zeros(); lower(streams, 0)] }
    }

    pub(crate) fn streams(&self) -> usize {
        self.streams
    }

    /// Returns the block of two streams.
    pub(crate) fn block(&self, a: usize, b: usize) -> Matrix {
        if a < b { self.blocks[lower(b, a)].transpose() } else { self.blocks[lower(a, b)] }
    }

    /// Returns the diagonal block of one stream.
    pub(crate) fn own(&self, stream: usize) -> &Matrix {
        &self.blocks[lower(stream, stream)]
    }

    pub(crate) fn own_mut(&mut self, stream: usize) -> &mut Matrix {
        &mut self.blocks[lower(stream, stream)]
    }

    /// Returns the entry of two variables.
    pub(crate) fn entry(&self, a: StreamVariable, b: StreamVariable) -> f64 {
        let ((row, i), (column, j)) = if a.0 < b.0 { (b, a) } else { (a, b) };
        self.blocks[lower(row, column)][(i, j)]
    }

    /// Adds a number to the entry of two variables, and to the entry across the diagonal.
    pub(crate) fn add_entry(&mut self, a: StreamVariable, b: StreamVariable, value: f64) {
        let ((row, i), (column, j)) = if a.0 < b.0 { (b, a) } else { (a, b) };
        let block = &mut self.blocks[lower(row, column)];
        block[(i, j)] += value;
        if row == column && i != j {
            block[(j, i)] += value;
        }
    }

    fn set(&mut self, a: usize, b: usize, block: &Matrix) {
        if a < b {
            self.blocks[lower(b, a)] = block.transpose();
        } else {
            self.blocks[lower(a, b)] = *block;
        }
    }

    /// Adds a multiple of another matrix.
    pub(crate) fn add(&mut self, other: &Self, factor: f64) {
        self.blocks.iter_mut().zip(&other.blocks).for_each(|(block, other)| *block += other * factor);
    }

    /// Adds a multiple of x yᵀ + y xᵀ.
    fn add_product(&mut self, x: &Vectors, y: &Vectors, factor: f64) {
        for row in 0..self.streams {
            for column in 0..=row {
                let block = &mut self.blocks[lower(row, column)];
                block.ger(factor, &x[row], &y[column], 1.0);
                block.ger(factor, &y[row], &x[column], 1.0);
            }
        }
    }

    fn scale(&mut self, factor: f64) {
        self.blocks.iter_mut().for_each(|block| *block *= factor);
    }

    /// Returns the trace of the product with another matrix.
    pub(crate) fn contracted(&self, other: &Self) -> f64 {
        let mut sum = 0.0;
        for row in 0..self.streams {
            for column in 0..=row {
                let twice = if row == column { 1.0 } else { 2.0 };
                sum += twice * self.blocks[lower(row, column)].dot(&other.blocks[lower(row, column)]);
            }
        }
        sum
    }

    /// Returns the product with a vector.
    pub(crate) fn times(&self, x: &Vectors) -> Vectors {
        let mut product: Vectors = smallvec![Vector::zeros(); self.streams];
        for row in 0..self.streams {
            product[row].gemv(1.0, self.own(row), &x[row], 1.0);
            for column in 0..row {
                let block = &self.blocks[lower(row, column)];
                product[row].gemv(1.0, block, &x[column], 1.0);
                product[column].gemv_tr(1.0, block, &x[row], 1.0);
            }
        }
        product
    }

    /// Adds a copy of a stream, as the last stream.
    pub(crate) fn fork(&mut self, stream: usize) {
        let row: SmallVec<[Matrix; 4]> = (0..self.streams).map(|other| self.block(stream, other)).collect();
        self.blocks.extend(row);
        self.blocks.push(*self.own(stream));
        self.streams += 1;
    }

    /// Returns F A Fᵀ for this matrix A and a map F that joins the streams `parts` into one. `maps` are the blocks of
    /// F, one per part. The joined stream takes the index of the first part. The other parts have to be the last
    /// streams, and are removed.
    pub(crate) fn joined(&self, parts: &[usize], maps: &[Matrix]) -> Self {
        let (first, mut joined) = (parts[0], self.clone());
        joined.truncate(self.streams + 1 - parts.len());
        let with =
            |other: usize| -> Matrix { parts.iter().zip(maps).map(|(&part, map)| map * self.block(part, other)).sum() };
        for other in (0..joined.streams).filter(|&other| other != first) {
            joined.set(first, other, &with(other));
        }
        *joined.own_mut(first) = parts.iter().zip(maps).map(|(&part, map)| with(part) * map.transpose()).sum();
        joined
    }

    /// Returns Fᵀ A F for this matrix A and the map F of [`Self::joined`].
    pub(crate) fn split(&self, parts: &[usize], maps: &[Matrix]) -> Self {
        let (first, mut split) = (parts[0], self.clone());
        split.streams += parts.len() - 1;
        split.blocks.resize(lower(split.streams, 0), Matrix::zeros());
        for (index, (&part, map)) in parts.iter().zip(maps).enumerate() {
            let of_output = map.tr_mul(self.own(first));
            for (&other, of_other) in parts.iter().zip(maps).take(index + 1) {
                split.set(part, other, &(of_output * of_other));
            }
            for other in (0..self.streams).filter(|&other| other != first) {
                split.set(part, other, &map.tr_mul(&self.block(first, other)));
            }
        }
        split
    }

    /// Replaces A by Fᵀ A F for a fork F of a stream, whose copy is the last stream.
    pub(crate) fn unforked(&mut self, stream: usize) {
        let copy = self.streams - 1;
        for other in (0..copy).filter(|&other| other != stream) {
            let sum = self.block(stream, other) + self.block(copy, other);
            self.set(stream, other, &sum);
        }
        let across = self.block(copy, stream);
        let of_copy = *self.own(copy);
        *self.own_mut(stream) += across + across.transpose() + of_copy;
        self.truncate(copy);
    }

    fn truncate(&mut self, streams: usize) {
        self.streams = streams;
        self.blocks.truncate(lower(streams, 0));
    }
}

/// A function of the variables about one point, to second order.
#[derive(Clone, Debug)]
pub(crate) struct Quadratic {
    pub(crate) value: f64,
    pub(crate) gradient: Vectors,
    pub(crate) hessian: Symmetric,
}

impl Quadratic {
    /// A constant function.
    pub(crate) fn constant(value: f64, streams: usize) -> Self {
        Self { value, gradient: smallvec![Vector::zeros(); streams], hessian: Symmetric::zeros(streams) }
    }

    /// Returns the number of streams on whose variables the function depends.
    pub(crate) fn streams(&self) -> usize {
        self.gradient.len()
    }

    /// Adds a function of some of the streams. Stream i of `other` is stream `parts[i]` here.
    pub(crate) fn add_placed(&mut self, other: &Self, parts: &[usize]) {
        self.value += other.value;
        for (row, &part) in parts.iter().enumerate() {
            self.gradient[part] += other.gradient[row];
            for (column, &with) in parts.iter().enumerate().take(row + 1) {
                let block = self.hessian.block(part, with) + other.hessian.block(row, column);
                self.hessian.set(part, with, &block);
            }
        }
    }

    /// Returns the function as a function of `streams` streams. Stream i of this function becomes stream `parts[i]`.
    pub(crate) fn placed(&self, parts: &[usize], streams: usize) -> Self {
        let mut placed = Self::constant(0.0, streams);
        placed.add_placed(self, parts);
        placed
    }

    /// Adds a multiple of another function.
    pub(crate) fn add(&mut self, other: &Self, factor: f64) {
        self.value += factor * other.value;
        self.gradient.iter_mut().zip(&other.gradient).for_each(|(of, other)| *of += other * factor);
        self.hessian.add(&other.hessian, factor);
    }

    pub(crate) fn times(&self, other: &Self) -> Self {
        let mut product = self.clone();
        product.scale(other.value);
        product.hessian.add(&other.hessian, self.value);
        product.gradient.iter_mut().zip(&other.gradient).for_each(|(of, other)| *of += other * self.value);
        product.hessian.add_product(&self.gradient, &other.gradient, 1.0);
        product.value = self.value * other.value;
        product
    }

    pub(crate) fn scale(&mut self, factor: f64) {
        self.value *= factor;
        self.gradient.iter_mut().for_each(|of| *of *= factor);
        self.hessian.scale(factor);
    }

    /// Returns the reciprocal of the function.
    pub(crate) fn inverse(&self) -> Self {
        let mut ln = self.ln();
        ln.scale(-1.0);
        ln.exp(self.value.recip())
    }

    /// Returns ln of the function.
    pub(crate) fn ln(&self) -> Self {
        let mut ln = self.clone();
        ln.scale(self.value.recip());
        let gradient = ln.gradient.clone();
        ln.hessian.add_product(&gradient, &gradient, -0.5);
        ln.value = self.value.ln();
        ln
    }

    /// Returns the exponential of the function; `value` is its value at the point.
    pub(crate) fn exp(mut self, value: f64) -> Self {
        self.hessian.add_product(&self.gradient, &self.gradient, 0.5);
        self.scale(value);
        self.value = value;
        self
    }

    /// Turns a function of the output of the linear map of [`Symmetric::joined`] into a function of the map's inputs.
    pub(crate) fn pull(&mut self, parts: &[usize], maps: &[Matrix]) {
        let output = self.gradient[parts[0]];
        self.gradient.resize(self.streams() + parts.len() - 1, Vector::zeros());
        for (&part, map) in parts.iter().zip(maps) {
            self.gradient[part] = map.tr_mul(&output);
        }
        self.hessian = self.hessian.split(parts, maps);
    }

    /// Turns a function of a stream and its copy, which is the last stream, into a function of the stream before the
    /// fork.
    pub(crate) fn unfork(&mut self, stream: usize) {
        if let Some(copy) = self.gradient.pop() {
            self.gradient[stream] += copy;
        }
        self.hessian.unforked(stream);
    }

    /// Returns E of the function at Gaussian variables of this covariance, less its value.
    pub(crate) fn bent(&self, covariance: &Symmetric) -> f64 {
        0.5 * self.hessian.contracted(covariance)
    }

    /// Returns E of the function minus its value, if only the variables of one stream vary, with this covariance.
    pub(crate) fn bent_by(&self, stream: usize, covariance: &Matrix) -> f64 {
        0.5 * self.hessian.own(stream).dot(covariance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finite_width::variables::VARIABLES;

    /// Returns a matrix whose entries differ, symmetric in the two variables.
    fn some(streams: usize, seed: f64) -> Symmetric {
        let mut matrix = Symmetric::zeros(streams);
        let entry = |a: StreamVariable, b: StreamVariable| {
            let [a, b] = [a, b].map(|(stream, variable)| (stream * VARIABLES + variable) as f64);
            (seed + 0.37 * (a + b) + 0.11 * a * b).sin()
        };
        for row in 0..streams {
            for column in 0..=row {
                let block = Matrix::from_fn(|i, j| entry((row, i), (column, j)));
                matrix.set(row, column, &block);
            }
        }
        matrix
    }

    fn map(seed: f64) -> Matrix {
        Matrix::from_fn(|i, j| (seed + 1.3 * i as f64 - 0.7 * j as f64).cos())
    }

    /// tr B (F A Fᵀ) = tr (Fᵀ B F) A, for a map that joins two of three streams.
    #[test]
    fn maps_go_forward_and_back() {
        let (parts, maps) = ([0, 2], [map(0.2), map(0.9)]);
        let (a, b) = (some(3, 0.1), some(2, 0.5));
        let [forward, back] = [b.contracted(&a.joined(&parts, &maps)), b.split(&parts, &maps).contracted(&a)];
        assert!((forward - back).abs() < 1e-9 * forward.abs(), "{forward} {back}");
    }

    #[test]
    fn forks_go_forward_and_back() {
        let (a, b) = (some(2, 0.1), some(3, 0.5));
        let (mut forked, mut joined) = (a.clone(), b.clone());
        forked.fork(0);
        joined.unforked(0);
        assert!((b.contracted(&forked) - joined.contracted(&a)).abs() < 1e-9);
    }

    /// Derivatives of products, logarithms and powers along a line.
    #[test]
    fn functions_have_the_derivatives_of_numbers() {
        const STEP: f64 = 1e-4;
        let function = |seed: f64| {
            let gradient =
                (0..2).map(|stream| Vector::from_fn(|i, _| (seed + i as f64 - f64::from(stream)).sin())).collect();
            Quadratic { value: 1.5 + seed, gradient, hessian: some(2, seed) }
        };
        let (f, g) = (function(0.3), function(0.8));
        let along: Vectors = (0..2).map(|stream| Vector::from_fn(|i, _| 0.1 * (i + stream) as f64)).collect();
        let dot = |a: &Vectors, b: &Vectors| a.iter().zip(b).map(|(a, b)| a.dot(b)).sum::<f64>();
        let at = |f: &Quadratic, t: f64| {
            f.value + t * dot(&f.gradient, &along) + 0.5 * t * t * dot(&along, &f.hessian.times(&along))
        };
        let cases: [(Quadratic, &dyn Fn(f64) -> f64); 3] = [
            (f.times(&g), &|t| at(&f, t) * at(&g, t)),
            (f.ln(), &|t| at(&f, t).ln()),
            (g.inverse(), &|t| at(&g, t).recip()),
        ];
        for (found, expected) in cases {
            let [less, here, more] = [-STEP, 0.0, STEP].map(expected);
            assert!((found.value - here).abs() < 1e-12);
            assert!((dot(&found.gradient, &along) - (more - less) / (2.0 * STEP)).abs() < 1e-5);
            let curvature = dot(&along, &found.hessian.times(&along));
            assert!((curvature - (more - 2.0 * here + less) / (STEP * STEP)).abs() < 1e-4, "{curvature}");
        }
    }
}
