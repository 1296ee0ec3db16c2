//! Finite-width terms of sums and products of chains, in addition to their maps.

use super::component::{Answer, GradientEntries};
use super::forward::{Fluctuations, Step};
use super::gradients::Common;
use super::mixed::{Affine, Transport};
use super::noise::{Covariances, FourPoint, GainCovariances, Noise, in_variables};
use super::stream::Stream;
use super::variables::{Matrix, R_AB, U_A, Vector};

/// A sum or product of the branches `parts`, with an output of `length` tokens. Two tokens of the output have the
/// correlation `r` at finite width and `leading` at infinite width.
pub(crate) struct FanContext<'p> {
    /// The common input.
    pub(crate) x: &'p Stream,
    pub(crate) parts: &'p [&'p Stream],
    pub(crate) leading: f64,
    pub(crate) r: f64,
    pub(crate) length: f64,
}

impl FanContext<'_> {
    /// Returns the susceptibility of the output to the last fork before the input (see `Stream::susceptibility`). The
    /// factor on the cosine of gradients is 1, because it is not defined for several branches.
    fn susceptibility(&self, step: &Step) -> [f64; 3] {
        let row = |variable: usize| {
            let parts = step.blocks.iter().zip(self.parts);
            let slot = usize::from(variable == R_AB);
            let of = |(block, stream): (&Matrix, &&Stream)| block[(variable, variable)] * stream.susceptibility[slot];
            self.x.susceptibility[slot] * parts.map(of).sum::<f64>()
        };
        [row(U_A), row(R_AB), 1.0]
    }

    /// Returns the output y of a sum, and the noise that products of different branches add. `shares` are the shares of
    /// the branches in E y²; `means` is (E f)²/E f² for the output f of each branch.
    pub(crate) fn sum(
        &self,
        step: &Step,
        [shares, means]: [&[f64]; 2],
        fluctuations: &Fluctuations,
    ) -> (Stream, Noise) {
        let ones = [0, 1].map(|pair| self.parts.iter().zip(shares).map(|(part, share)| share * part.ones[pair]).sum());
        let mut noise = Noise::none();
        for i in 0..shares.len() {
            for j in 0..i {
                let joint = fluctuations.covariance.entry((step.parts[i], R_AB), (step.parts[j], R_AB));
                let both: f64 = [i, j].iter().map(|&part| shares[part] * (1.0 - means[part])).product();
                let centred = |part: usize| (self.parts[part].correlation - means[part]) / (1.0 - means[part]);
                let more =
                    Covariances::crossed(both, [i, j].map(centred), joint).noise(self.x.width, self.length, self.r);
                noise.covariance += more.covariance;
                noise.drift += more.drift;
            }
        }
        let stream = Stream {
            ones,
            drawn: None,
            susceptibility: self.susceptibility(step),
            ..Stream::drawn(self.parts[0].width, [self.leading, self.r], 0.0)
        };
        (stream, noise)
    }

    /// Returns the finite-width terms of a sum for the gradient of one branch. `share` is the share of the branch in E
    /// y² of the output y.
    pub(crate) fn part_of_sum(&self, share: f64) -> Answer {
        let affine = Affine { isotropic: 1.0, kept: share };
        let pairs = [share, 0.0, 0.0];
        let transport = Transport { radial: affine, cross: affine, pairs, squares: pairs, ..Transport::NONE };
        Answer { transport, ..self.part() }
    }

    /// Returns the output y of a product. `mean_share` is (E y)²/E y².
    pub(crate) fn product(&self, step: &Step, mean_share: f64) -> Stream {
        let entries = self.parts.iter().fold(FourPoint::ONE, |product, part| product.times(part.entries));
        let mut drawn = Noise::none();
        for (&part, stream) in step.parts.iter().zip(self.parts) {
            let before = stream.drawn.unwrap_or_else(|| stream.noise(self.length));
            let jacobian = step.part(part);
            drawn.covariance += jacobian * before.covariance * jacobian.transpose();
            drawn.drift += jacobian * before.drift;
        }
        Stream {
            entries,
            drawn: Some(drawn),
            is_preserved: self.parts.iter().any(|part| part.is_preserved),
            ones: [1.0 - mean_share, self.r - mean_share],
            susceptibility: self.susceptibility(step),
            ..Stream::drawn(self.parts[0].width, [self.leading, self.r], 0.0)
        }
    }

    /// Returns the finite-width terms of a product for the gradient of the branch with the index `own`.
    pub(crate) fn part_of_product(&self, own: usize) -> Answer {
        let others = || self.parts.iter().enumerate().filter(|(other, _)| *other != own).map(|(_, part)| part);
        let factor = others().fold(FourPoint::ONE, |product, part| product.times(part.entries));
        let of_factor = others().map(|part| part.correlation).product();
        let covariances = GainCovariances::of_factor(&factor, of_factor, self.parts[own].correlation);
        let width = self.parts[own].width;
        let [with_own, with_pair] = covariances.vectors(self.length).map(|with| with / width);
        let met = 2.0 * with_pair[U_A] - self.r * with_pair[R_AB];
        Answer {
            with_gains: [with_own, with_pair].map(|with| in_variables(with, self.r)),
            transport: Transport {
                ones: Affine::ISOTROPIC,
                squares: [0.0, (self.parts[own].entries.aaaa - 1.0) * factor.aaaa, 0.0],
                own: [0.0, with_own[U_A], 0.0, 0.0],
                pair: [0.0, 0.0, met, 0.0],
                ..Transport::NONE
            },
            gradient: GradientEntries::Times(factor),
            ..self.part()
        }
    }

    /// Returns, for every two branches, the part along the input that their gradients have in common. `factor` returns
    /// the factor on this part, from the indices of the two branches.
    pub(crate) fn commons(&self, factor: impl Fn(usize, usize) -> f64) -> Vec<Common> {
        let mut commons = Vec::new();
        for j in 0..self.parts.len() {
            for i in 0..j {
                let [[u, r, cosine_factor], [v, s, other]] =
                    [self.parts[i].susceptibility, self.parts[j].susceptibility];
                let factor = factor(i, j);
                commons.push(Common {
                    own: 2.0 * factor * u * v,
                    pairs: 2.0 * factor * u * v,
                    cosine_factor: cosine_factor * other,
                    cross: factor * (u * s + r * v),
                    pair: 2.0 * factor * r * s * (1.0 - self.parts[i].correlation * self.parts[i].correlation),
                });
            }
        }
        commons
    }

    fn part(&self) -> Answer {
        Answer {
            width: self.parts[0].width,
            correlation: self.r,
            entries: self.parts[0].entries,
            centred: self.parts[0].centred,
            fixed: [0.0; 2],
            drawn: None,
            ones: self.parts[0].ones,
            variance: None,
            drift: Vector::zeros(),
            with_gains: [Vector::zeros(); 2],
            transport: Transport::NONE,
            gradient: GradientEntries::Kept,
        }
    }
}
