//! Finite-width terms of a component beyond its map: entries that it samples, their covariances with gradients, and
//! c_ab = x_a·g_b.
//!
//! ```text
//!               becomes                                        adds to ln E g_a²      to ln E g_a g_b
//! linear map    ρ − 1 → ν (ρ − 1), α − 1 → ν (α − 1)            ν τ (ρ − 1)/n          (2 − r_x²) ν τ (α − 1)/n
//! norm          ρ → (1 − ζ)² ρ,    α → (1 − ζ)² α               −ζ (2 − ζ) ρ/n         −(2 − r_x²) ζ (2 − ζ) α/n
//! activation    ρ → ρ_φ + ν_φ (ρ − 1), α → α_φ + ν_φ (α − 1)    ∇H·Cov(ξ, w)           ∇(H + ln κ)·Cov(ξ, w_ab)
//! dropout       ρ → ρ, α − 1 → (α − 1)/(1 − p)                  ∇H·Cov(ξ, w)           ∇(H + ln κ)·Cov(ξ, w_ab)
//! ```
//!
//! where ρ is E c_aa²/(n E x² E g²) of a gradient; α is E c_aa c_ab/(n E x² E g_a g_b) of a gradient; E is the average
//! over random weights and over features; g_a, g_b are the gradients of the loss with respect to the vectors of tokens
//! a and b; a, b are positions of tokens; n is the number of features; r_x is the mean correlation of two different
//! tokens of the input x; ν is the share of E y² of the output y that does not come from the bias; τ is 1, and 1 −
//! min(1, n/n_out) of an orthogonal map; n_out is the fan-out of a linear map; ζ is E x²/(E x² +
//! ε); ε is the number that a norm adds to the variance; φ is the activation; ρ_φ, α_φ are ρ and α at the input of φ
//! for an isotropic gradient at its output, E u²φ'²/(E u² E φ'²) and E u_a²φ'_aφ'_b/(E u² E φ'_aφ'_b); ν_φ is (E
//! uφφ')²/(E φ² E u² E φ'²); u is the argument of φ; H is ln E[|g_a|²/n | y], given the variables y; κ is the cosine of
//! the gradients of two tokens, given the variables; ∇ is the derivative with respect to the variables; ξ is the noise
//! that the entries of a layer add to the variables; w, w_ab are the logarithms of the gains on g_a² and on g_a g_b;
//! Cov is a covariance over networks; p is the probability that dropout sets an entry to zero.
//!
//! The first column is the map from the numbers at the output to those at the input. A linear map conserves g·x, a norm
//! removes it. Derived in docs/expansion.md, section 4.

use sigprop_stack::{Convolution, Dropout, Linear, Norm, NormKind, Select};

use super::entries::EntryMoments;
use super::mixed::{Affine, Transport};
use super::noise::{FourPoint, GainCovariances, Noise, in_variables, shift};
use super::preserved::{self, Through};
use super::stream::{Centred, Stream};
use super::variables::{Matrix, PairMoments, R, R_A, R_AB, R_B, U, U_A, U_B, Vector};

/// A component with its input `x` and an output of `length` tokens of the correlation `r`.
pub(crate) struct Context<'x> {
    pub(crate) x: &'x Stream,
    pub(crate) r: f64,
    pub(crate) length: f64,
    /// The covariance of the variables: after the map if the component mixes entries, before it otherwise.
    pub(crate) covariance: Matrix,
}

/// The finite-width terms of a component beyond its map.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The width of the output.
    pub(crate) width: f64,
    /// The correlation of two tokens of the output.
    pub(crate) correlation: f64,
    /// The four-point function of one entry of the output.
    pub(crate) entries: FourPoint,
    /// The entries of the output less their mean; `None` if they are Gaussian.
    pub(crate) centred: Option<Centred>,
    /// The share of E y² that is the same in all networks, and the correlation of two tokens of that share.
    pub(crate) fixed: [f64; 2],
    /// If the component mixes entries: the noise of the output's entries that is already in the covariance; `None` if
    /// all of it is.
    pub(crate) drawn: Option<Noise>,
    /// n/E y² times E D_a² and times E D_a D_b for two tokens a, b, where D is the mean of a token's entries minus E y.
    pub(crate) ones: [f64; 2],
    /// The contribution of finitely many entries to the variance over networks of ln V, where V is the variance of all
    /// entries of the output. `None` if ln V has the variance of U.
    pub(crate) variance: Option<f64>,
    /// The shift of the means of the output's variables, in addition to the shift by the map.
    pub(crate) drift: Vector,
    /// Covariances of the output's variables with ln of the gains on E g_a² and E g_a g_b, caused by the entries and of
    /// order 1/width.
    pub(crate) with_gains: [Vector; 2],
    pub(crate) transport: Transport,
    pub(crate) gradient: GradientEntries,
}

/// The distribution of the entries of the gradient at the input.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GradientEntries {
    /// The entries at the output, unchanged.
    Kept,
    /// New Gaussian entries, independent of those at the output. The products of two tokens keep the share `preserved`
    /// of their covariance.
    Drawn { preserved: f64 },
    /// The entries at the output times factors with this four-point function.
    Times(FourPoint),
}

/// Returns the share of E y² that does not come from the bias.
pub(crate) fn without_bias(linear: &Linear, y: &PairMoments) -> f64 {
    let bias = linear.bias.as_ref().map_or(0.0, |bias| bias.init.variance());
    if bias > 0.0 { 1.0 - bias * (-y.ln_level()).exp() } else { 1.0 }
}

impl Answer {
    /// Subtracts a part of the terms that is counted elsewhere.
    pub(super) fn less(&mut self, counted: &Through) {
        self.variance = self.variance.map(|entries| entries - counted.level);
        (0..2).for_each(|of| self.with_gains[of] -= counted.with_gains[of]);
    }
}

impl Context<'_> {
    /// The finite-width terms of a component that leaves the distribution of the entries unchanged.
    pub(crate) fn unchanged(&self) -> Answer {
        Answer {
            width: self.x.width,
            correlation: self.r,
            entries: self.x.entries,
            centred: self.x.centred,
            fixed: self.x.fixed,
            drawn: None,
            ones: self.x.ones,
            variance: self.x.variance,
            drift: Vector::zeros(),
            with_gains: [Vector::zeros(); 2],
            transport: Transport::NONE,
            gradient: GradientEntries::Kept,
        }
    }

    /// The finite-width terms of a component that adds Gaussian entries. `share` is the share of the input in E y².
    pub(crate) fn added(&self, share: f64) -> Answer {
        let kept = Affine { isotropic: 1.0, kept: share };
        let of_pairs = [share, 0.0, 0.0];
        let transport = Transport { radial: kept, cross: kept, pairs: of_pairs, squares: of_pairs, ..Transport::NONE };
        Answer {
            entries: FourPoint::gaussian(self.r, 0.0),
            centred: None,
            variance: None,
            transport,
            ..self.unchanged()
        }
    }

    /// The finite-width terms of a component that adds entries that are the same in all networks. `fixed` is the share
    /// of such entries in E y², and the correlation of that share.
    pub(crate) fn fixed(&self, fixed: [f64; 2]) -> Answer {
        let [share, of_fixed] = fixed;
        let ones = [self.x.ones[0] * (1.0 - share), self.r - share * of_fixed];
        Answer {
            entries: FourPoint::gaussian(self.r, 0.0),
            centred: None,
            fixed,
            ones,
            variance: None,
            ..self.unchanged()
        }
    }

    /// The finite-width terms of a component that samples all entries anew, with an output of this width.
    pub(crate) fn drawn(&self, width: f64) -> Answer {
        Answer {
            width,
            entries: FourPoint::gaussian(self.r, self.covariance[(R_AB, R_AB)]),
            centred: None,
            fixed: [0.0; 2],
            drawn: Some(Noise::none()),
            ones: [1.0, self.r],
            variance: None,
            gradient: GradientEntries::Drawn { preserved: 0.0 },
            transport: Transport {
                radial: Affine::ISOTROPIC,
                cross: Affine::ISOTROPIC,
                ones: Affine::ISOTROPIC,
                squares: [0.0; 3],
                ..Transport::NONE
            },
            ..self.unchanged()
        }
    }

    /// The finite-width terms of a selection of features.
    pub(crate) fn select(&self, select: Select) -> Answer {
        Answer { width: select.width as f64, variance: None, ..self.unchanged() }
    }

    /// The finite-width terms of a convolution. Its features are Gaussian if they read all features of the input;
    /// features that read few have heavier tails, because a lasting large weight or input is in all of their tokens.
    pub(crate) fn convolution(&self, convolution: &Convolution) -> Answer {
        let drawn = self.drawn(convolution.fan_out as f64);
        if convolution.groups == 1 {
            return drawn;
        }
        let same = (convolution.window() as f64).recip();
        let neighbours = same * (convolution.kernel as f64 - 1.0);
        Answer { entries: self.x.entries.weighted_sums([same, neighbours], drawn.entries), ..drawn }
    }

    /// The finite-width terms of a maximum over windows. `values` and `centred` are the four-point functions of its
    /// output y and of y − E y; `mean` is (E y)²/E y², and `count` the number of windows.
    pub(crate) fn maximum(&self, [values, centred]: [[f64; 5]; 2], mean: f64, count: f64) -> Answer {
        let [aaaa, aaab, aabb, aabc, abcd] = values;
        let [square, _, product, ..] = centred;
        let variance = product - 1.0 + (square - product) / count;
        Answer {
            entries: FourPoint { aaaa, aaab, aabb, aabc, abcd },
            ones: [1.0 - mean, self.r - mean],
            variance: Some(variance / self.x.width),
            ..self.drawn(self.x.width)
        }
    }

    /// The finite-width terms of the map to x − E x, which comes before a component that subtracts the mean over
    /// features. `mean` is (E x)²/E x².
    pub(crate) fn centred(&self, mean: f64) -> Answer {
        let (rest, [share, of_fixed]) = (1.0 - mean, self.x.fixed);
        let without_mean = |product: f64| (product - mean).max(0.0) / rest;
        let fixed = without_mean(share);
        let of_fixed = if fixed > 0.0 { without_mean(share * of_fixed) / fixed } else { 0.0 };
        // The component that comes next removes the part of gradients along (1, …, 1), so that g·x is g·(x − E x).
        let along_rest = Affine { isotropic: rest, kept: rest };
        let gaussian = || Centred::gaussian(self.r, self.covariance[(R_AB, R_AB)]);
        let Centred { entries, with_gains, own: [own, own_rest], pair: [pair, pair_rest] } =
            self.x.centred.unwrap_or_else(gaussian);
        Answer {
            entries,
            with_gains,
            fixed: [fixed, of_fixed],
            ones: self.x.ones.map(|share| share / rest),
            variance: None,
            transport: Transport {
                radial: along_rest,
                cross: along_rest,
                pairs: [rest, 0.0, 0.0],
                own: [mean * own, own_rest - rest * own, 0.0, 0.0],
                pair: [mean * pair, 0.0, pair_rest - rest * pair, 0.0],
                ..Transport::NONE
            },
            ..self.unchanged()
        }
    }

    /// The finite-width terms of a linear map. `kept` is the share of E y² that does not come from the bias.
    pub(crate) fn linear(&self, linear: &Linear, kept: f64) -> Answer {
        let (inputs, c) = (linear.fan_in as f64, self.x.correlation);
        let affine = Affine { isotropic: 1.0, kept };
        let is_centred = linear.standardised.is_some();
        let [of_signal, of_gradient] = preserved::shares(linear);
        let r = [self.r, self.covariance[(R_AB, R_AB)]];
        let along = kept * (1.0 - of_gradient) / inputs;
        Answer {
            width: linear.fan_out as f64,
            correlation: self.r,
            fixed: [0.0; 2],
            drawn: Some(preserved::noise(self.x, r, linear.fan_out as f64, self.length, kept * kept * of_signal)),
            entries: FourPoint::gaussian(self.r, self.covariance[(R_AB, R_AB)]),
            centred: None,
            ones: [1.0, self.r],
            variance: None,
            drift: if is_centred { self.standardised() } else { Vector::zeros() },
            with_gains: [Vector::zeros(); 2],
            transport: Transport {
                radial: affine,
                cross: affine,
                ones: if is_centred { Affine::NOTHING } else { Affine::ISOTROPIC },
                pairs: [kept, 0.0, 0.0],
                squares: [0.0, 0.0, self.x.entries.aaaa - 1.0],
                own: [0.0, along, 0.0, 0.0],
                pair: [0.0, 0.0, (2.0 - c * c) * along, 0.0],
                // Rows of fixed length have less of the other inputs, the more they have of this one.
                less_entries: if is_centred { [1.0, 2.0 - c * c].map(|of| of * kept / inputs) } else { [0.0; 2] },
                ..Transport::NONE
            },
            gradient: GradientEntries::Drawn { preserved: of_gradient },
        }
    }

    /// Returns the shifts of the levels u and the correlations r when the mean over features is subtracted from entries
    /// of expectation zero.
    fn without_ones(&self) -> Vector {
        let [own, pair] = self.x.ones.map(|share| share / self.x.width);
        shift([-own, self.x.correlation * own - pair])
    }

    /// Returns the shifts of the levels u and the correlations r for standardised weights: their rows have no part
    /// along (1, …, 1), and the same length in one dimension less.
    fn standardised(&self) -> Vector {
        self.without_ones() + shift([self.x.width.recip(), 0.0])
    }

    /// The finite-width terms of a norm. `share` is E x²/(E x² + ε).
    pub(crate) fn norm(&self, norm: &Norm, share: f64) -> Answer {
        let (n, c) = (self.x.width, self.x.correlation);
        let is_centred = norm.kind == NormKind::LayerNorm;
        let removed = share * (2.0 - share) / n;
        let affine = Affine { isotropic: (1.0 - share).powi(2), kept: (1.0 - share).powi(2) };
        // LayerNorm removes the share k/n of E g², which is along (1, …, 1). The length that it divides by lacks the
        // part of x along this direction.
        let centring = if is_centred { 1.0 / n } else { 0.0 };
        let divisor = share * centring * self.x.ones[0];
        let mut drift = if is_centred { self.without_ones() } else { Vector::zeros() };
        for level in [U_A, U_B, U] {
            drift[level] *= 1.0 - share;
        }
        Answer {
            entries: FourPoint::gaussian(self.r, self.covariance[(R_AB, R_AB)]),
            centred: None,
            ones: if is_centred { [0.0; 2] } else { self.x.ones },
            variance: None,
            drift,
            transport: Transport {
                radial: affine,
                cross: affine,
                ones: if is_centred { Affine::NOTHING } else { Affine::SAME },
                pairs: [affine.kept, 0.0, -c * share * (2.0 - share)],
                squares: [1.0, 1.0 - self.x.entries.aaaa, self.x.entries.aaaa - 1.0],
                own: [divisor - removed - centring, -removed, 0.0, -centring],
                pair: [divisor - (2.0 - c * c) * removed - centring, 0.0, -(2.0 - c * c) * removed, -centring],
                ..Transport::NONE
            },
            ..self.unchanged()
        }
    }

    /// The finite-width terms of a BatchNorm whose map has this Jacobian. Averages over all tokens are the same in all
    /// networks, so E y_a² and E y_a y_b keep their values at infinite width. `squares` is the variance of |y|² for one
    /// feature y over all tokens, divided by the squared mean of |y|².
    pub(crate) fn batch_norm(&self, jacobian: &Matrix, squares: f64) -> Answer {
        let behind = jacobian * self.covariance * jacobian.transpose();
        let level = -0.5 * behind[(U_A, U_A)];
        let ends = 0.25 * (behind[(U_A, U_A)] + behind[(U_A, U_B)]);
        let pair = self.r * (level + ends) + 0.5 * (behind[(U_A, R_AB)] + behind[(U_B, R_AB)]);
        Answer {
            entries: FourPoint::direction(self.length),
            centred: None,
            fixed: [0.0; 2],
            ones: [1.0, self.r],
            variance: Some(squares / self.x.width),
            drift: shift([level, -pair]),
            transport: Transport {
                radial: Affine::ISOTROPIC,
                cross: Affine::ISOTROPIC,
                ones: Affine::ISOTROPIC,
                ..Transport::NONE
            },
            ..self.unchanged()
        }
    }

    /// The finite-width terms of an activation with these moments. `mean_share` is (E φ)²/E φ².
    pub(crate) fn activation(&self, moments: &EntryMoments, mean_share: f64) -> Answer {
        let n = self.x.width;
        let [own, pair] = moments.gains.vectors(self.length).map(|with| with / n);
        let [isotropic, kept] = moments.radial;
        let met = 2.0 * pair[U_A] - self.r * pair[R_AB];
        let with_gains = [own, pair].map(|with| in_variables(with, self.r));
        let centred = self.activation_centred(moments, mean_share, (with_gains, [own[U_A], met]));
        let of_pairs = self.covariance[(R_AB, R_AB)];
        Answer {
            entries: moments.values(of_pairs),
            centred: Some(centred),
            fixed: [0.0; 2],
            ones: [1.0 - mean_share, self.r - mean_share],
            variance: Some(moments.variance(self.length, of_pairs) / n),
            with_gains,
            transport: Transport {
                radial: Affine { isotropic, kept },
                cross: Affine { isotropic: moments.cross, kept },
                ones: Affine::ISOTROPIC,
                pairs: [kept, moments.pairs[0], -self.x.correlation],
                squares: [0.0, moments.squares, 0.0],
                entries: [isotropic, moments.cross],
                own: [0.0, own[U_A], 0.0, 0.0],
                pair: [0.0, 0.0, met, 0.0],
                ..Transport::NONE
            },
            gradient: GradientEntries::Times(moments.derivatives),
            ..self.unchanged()
        }
    }

    /// Returns the statistics of φ − E φ for an activation φ. `mean` is (E φ)²/E φ², `with_gains` are the covariances
    /// of φ with its gains. `own` and `pair` are the corrections by φ of ln E g_a² per ρ − 1 and of ln E g_a g_b per α
    /// − 1.
    fn activation_centred(
        &self,
        moments: &EntryMoments,
        mean: f64,
        (with_gains, [own, pair]): ([Vector; 2], [f64; 2]),
    ) -> Centred {
        let r = (self.r - mean) / (1.0 - mean);
        let [own_rest, pair_rest] = moments.centred_gains.vectors(self.length).map(|with| with / self.x.width);
        let beyond = |mut with: Vector, rest: Vector| {
            for correlation in [R_AB, R_A, R_B, R] {
                with[correlation] /= 1.0 - mean;
            }
            in_variables(rest, r) - with
        };
        Centred {
            entries: moments.centred(self.covariance[(R_AB, R_AB)]),
            with_gains: [beyond(with_gains[0], own_rest), beyond(with_gains[1], pair_rest)],
            own: [own, own_rest[U_A]],
            pair: [pair, 2.0 * pair_rest[U_A] - r * pair_rest[R_AB]],
        }
    }

    pub(crate) fn dropout(&self, dropout: Dropout) -> Answer {
        let (n, kept, r) = (self.x.width, 1.0 - dropout.rate, self.r);
        // Covariances of products with the masks of one token, and with those of both tokens.
        let (drawn, of_both) = (dropout.rate / kept, kept.powi(-2) - 1.0);
        let own = [drawn, 0.0, drawn * r, 0.0];
        let pair = Some([drawn, 0.0, of_both * r, drawn * r, 0.0]);
        let with_gains = GainCovariances { own, pair }.vectors(self.length);
        Answer {
            entries: self.x.entries.masked(dropout.rate),
            centred: None,
            ones: [kept * self.x.ones[0] + dropout.rate, self.x.ones[1] * kept],
            variance: None,
            with_gains: with_gains.map(|with| in_variables(with / n, r)),
            transport: Transport {
                cross: Affine { isotropic: 1.0, kept: kept.recip() },
                ones: Affine { isotropic: 1.0, kept },
                squares: [0.0, (self.x.entries.aaaa - 1.0) / kept, 0.0],
                ..Transport::NONE
            },
            gradient: GradientEntries::Times(FourPoint::ONE.masked(dropout.rate)),
            ..self.unchanged()
        }
    }
}
