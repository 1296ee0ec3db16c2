//! Means and covariance of the variables of all live streams, to order 1/width.
//!
//! ```text
//! y' = f(y) + ξ          E y' = f(E y) + ½ ∇∇f:S + E ξ          S' = J S Jᵀ + Ξ          J, ∇∇f at E y
//! ```
//!
//! where y is the vector of the variables of all live streams; y' is y after a component; f is the map of the variables
//! by a component; ξ is the noise that the entries of a layer add to the variables; E is the average over random
//! weights and over features; S is the covariance of the variables y; S' is the covariance of y'; J is the Jacobian of
//! the map f; ∇∇f is the tensor of the second derivatives of f; Ξ is the covariance Cov ξ of the noise.
//!
//! S is of order 1/n, and so is E y less its value at infinite width, which is kept as `mean`. In the code f is
//! `Map::moved`, ½ ∇∇f:S is `bent`, E ξ is `Noise::drift`. A fork copies a stream, and a fan joins several streams into
//! one. The blocks of S between streams are their covariances.
//!
//! Source: van Kampen 2007, chapter X; Jazwinski 1970, section 9.3 (second-order filter).

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::map::{Hessians, Map};
use super::noise::{Noise, shift};
use super::quadratic::{StreamVariable, Symmetric, Vectors};
use super::variables::{Matrix, R, R_A, R_AB, R_B, U, U_A, U_B, Vector};

/// Mean and covariance of the variables of all live streams.
#[derive(Clone, Debug)]
pub(crate) struct Fluctuations {
    /// E y less its value at infinite width.
    pub(crate) mean: Vectors,
    /// The covariance S. The forward pass shares it with the copies that are kept for the backward pass.
    pub(crate) covariance: Arc<Symmetric>,
}

/// Returns γ, the variance of ε_ab in r_ab = R + o_a + o_b + (1 − R) ε_ab, from the covariance of the variables of a
/// stream. R is its `correlation`.
pub(crate) fn concentration(covariance: &Matrix, correlation: f64) -> f64 {
    let less = |of: usize| (covariance[(of, of)] - covariance[(R, R)]).max(0.0);
    let apart = 1.0 - correlation;
    if apart > 0.0 { ((less(R_AB) - 2.0 * less(R_A)) / (apart * apart)).max(0.0) } else { 0.0 }
}

/// Returns the matrix that replaces the variables of single tokens by the averages over all tokens.
pub(crate) fn average() -> Matrix {
    let mut average = Matrix::zeros();
    for (token, all) in [(U_A, U), (U_B, U), (R_AB, R), (R_A, R), (R_B, R), (U, U), (R, R)] {
        average[(token, all)] = 1.0;
    }
    average
}

/// A linear map of the variables of all live streams, with the second derivatives of the output stream with respect to
/// its inputs.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// The indices of the input streams among the live streams. The output takes the first of these indices.
    pub(crate) parts: SmallVec<[usize; 2]>,
    /// The derivatives of the output variables with respect to the variables of each input stream.
    pub(crate) blocks: SmallVec<[Matrix; 1]>,
    /// The second derivatives of the output variables with respect to the input variables.
    pub(crate) hessians: Hessians,
    /// ½ ∇∇f:S, the mean of the output less f at E y.
    pub(crate) bent: Vector,
}

impl Fluctuations {
    /// The fluctuations of a first stream that is the same in all networks.
    pub(crate) fn none() -> Self {
        Self { mean: smallvec![Vector::zeros()], covariance: Arc::new(Symmetric::zeros(1)) }
    }

    pub(crate) fn streams(&self) -> usize {
        self.mean.len()
    }

    /// Adds a copy of a stream, as the last stream.
    pub(crate) fn fork(&mut self, stream: usize) {
        self.mean.push(self.mean[stream]);
        Arc::make_mut(&mut self.covariance).fork(stream);
    }

    /// Applies a map to the streams with the indices `parts`. The output takes the first of these indices. The other
    /// streams have to be the last ones, and are removed.
    pub(crate) fn map(&mut self, parts: &[usize], map: Map) -> Step {
        let Map { moved, leading, jacobians: blocks, hessians } = map;
        let of_part = |(part, variable): StreamVariable| (parts[part], variable);
        let bent = hessians.bent(|a, b| self.covariance.entry(of_part(a), of_part(b)));
        self.covariance = Arc::new(self.covariance.joined(parts, &blocks));
        self.mean.truncate(self.covariance.streams());
        self.mean[parts[0]] = shift(moved) + bent;
        self.make_consistent(parts[0], leading);
        Step { parts: parts.into(), blocks, hessians, bent }
    }

    /// Adds noise to a stream whose correlation is `leading` at infinite width.
    pub(crate) fn add(&mut self, stream: usize, noise: &Noise, leading: f64) {
        *Arc::make_mut(&mut self.covariance).own_mut(stream) += noise.covariance;
        self.mean[stream] += noise.drift;
        self.make_consistent(stream, leading);
    }

    /// Returns the covariance S of one stream.
    pub(crate) fn of(&self, stream: usize) -> Matrix {
        *self.covariance.own(stream)
    }

    /// Returns the mean of the variables of one stream, less its value at infinite width.
    pub(crate) fn mean_of(&self, stream: usize) -> Vector {
        self.mean[stream]
    }

    /// Returns E u_a and E r_ab less their values at infinite width.
    pub(crate) fn means(&self, stream: usize) -> [f64; 2] {
        let mean = self.mean_of(stream);
        [mean[U_A], mean[R_AB]]
    }

    /// Sets the means of U, R, R_A and R_B, which are averages over tokens, to the values that follow from u_a and
    /// r_ab.
    fn make_consistent(&mut self, stream: usize, leading: f64) {
        let shift = consistency_shift(&self.mean_of(stream), &self.of(stream), leading);
        self.mean[stream] += shift;
    }
}

/// The mean square, correlation and variance of one stream at finite width.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Levels {
    /// ln of E mean |x_a|² over its value at infinite width.
    pub(crate) ln_level: f64,
    /// The correlation of two tokens, less its value at infinite width.
    pub(crate) correlation: f64,
    /// The variance over networks of U, the logarithm of the mean square of all tokens.
    pub(crate) variance: f64,
}

impl Fluctuations {
    /// Returns the levels of a stream whose correlation is `leading` at infinite width. `pending` is the noise of its
    /// entries that is not yet in the covariance.
    pub(crate) fn levels(&self, stream: usize, pending: Option<&Noise>, leading: f64) -> Levels {
        let (mut mean, mut covariance) = (self.mean_of(stream), self.of(stream));
        if let Some(noise) = pending {
            mean += noise.drift;
            covariance += noise.covariance;
            mean += consistency_shift(&mean, &covariance, leading);
        }
        let variance = covariance[(U, U)].max(0.0);
        Levels { ln_level: mean[U] + 0.5 * variance, correlation: mean[R] + covariance[(U, R)], variance }
    }
}

/// Returns the shift that makes the means of averages consistent with those of single tokens: E e^U = E e^(u_a), and
/// both E e^U R and E e^((u_a + U)/2) r_a are equal to E e^((u_a + u_b)/2) r_ab.
fn consistency_shift(mean: &Vector, covariance: &Matrix, leading: f64) -> Vector {
    let r = leading + mean[R_AB];
    let s = |i: usize, j: usize| covariance[(i, j)];
    // ln E e^((x + y)/2) less the means, and Cov((x + y)/2, r).
    let ends = |i: usize, j: usize| (s(i, i) + 2.0 * s(i, j) + s(j, j)) / 8.0;
    let with = |i: usize, j: usize, product: usize| 0.5 * (s(i, product) + s(j, product));
    let mut settled = Vector::zeros();
    let level = 0.5 * (s(U_A, U_A) - s(U, U));
    settled[U] = mean[U_A] + level - mean[U];
    let pair = r * ends(U_A, U_B) + with(U_A, U_B, R_AB);
    for (row, token) in [(R_A, U_A), (R_B, U_B)] {
        let found = r * (0.5 * level + ends(token, U)) + with(token, U, row);
        settled[row] = mean[R_AB] + pair - found - mean[row];
    }
    settled[R] = mean[R_AB] + pair - r * (level + ends(U, U)) - with(U, U, R) - mean[R];
    settled
}

impl Step {
    /// Returns the derivatives of the output variables with respect to the variables of one input stream.
    pub(crate) fn part(&self, part: usize) -> Matrix {
        let index = self.parts.iter().position(|&of| of == part).expect("it is a part");
        self.blocks[index]
    }
}
