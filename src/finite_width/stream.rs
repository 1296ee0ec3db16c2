//! The state of a stream beyond its second moments: the distribution of its entries, and the noise that they have
//! added so far.
//!
//! Sums over entries have noise that depends on this distribution. A component that works entry by entry changes the
//! distribution and leaves the noise out of the covariance. A component that reads inner products x_a·x_b (linear map,
//! norm, attention, sum) adds the noise first.

use super::forward::Step;
use super::noise::{FourPoint, Noise};
use super::variables::{Matrix, R_AB, U_A, Vector};

/// The statistics of φ − E φ, the entries after an activation φ less their mean.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Centred {
    pub(crate) entries: FourPoint,
    /// Covariances of φ − E φ with ln of the activation's gains on E g_a² and E g_a g_b, in the variables, less those
    /// of φ itself.
    pub(crate) with_gains: [Vector; 2],
    /// The correction of ln E g_a² by the activation per ρ − 1: for φ, and for φ − E φ.
    pub(crate) own: [f64; 2],
    /// The correction of ln E g_a g_b by the activation per α − 1: for φ, and for φ − E φ.
    pub(crate) pair: [f64; 2],
}

/// The state of a stream beyond its second moments.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) width: f64,
    /// The correlation of two tokens at infinite width.
    pub(crate) leading: f64,
    /// The mean correlation of two tokens over networks.
    pub(crate) correlation: f64,
    /// The four-point function of one entry.
    pub(crate) entries: FourPoint,
    /// The entries less their mean; `None` if they are Gaussian.
    pub(crate) centred: Option<Centred>,
    /// The part of x that is the same in all networks: its share of E x², and its correlation between two tokens.
    pub(crate) fixed: [f64; 2],
    /// The noise of finitely many entries that is already in the covariance; `None` if all of it is.
    pub(crate) drawn: Option<Noise>,
    /// True if `drawn` is noise from before an orthogonal map ([`super::preserved`]).
    pub(crate) is_preserved: bool,
    /// n/E x² times E D_a² and times E D_a D_b for two tokens a, b, where D is the mean of a token's entries minus E x.
    pub(crate) ones: [f64; 2],
    /// The derivatives of u_a and r_ab of this stream with respect to u_a and r_ab at the last fork, and the factor on
    /// the cosine of two gradients from here back to the fork.
    pub(crate) susceptibility: [f64; 3],
    /// The contribution of finitely many entries to the variance over networks of ln V, where V is the variance of all
    /// entries. `None` if ln V has the variance of U.
    pub(crate) variance: Option<f64>,
}

impl Centred {
    /// Gaussian entries that do not come from an activation. `variance` is the variance of the correlation `r` over
    /// networks.
    pub(crate) fn gaussian(r: f64, variance: f64) -> Self {
        let entries = FourPoint::gaussian(r, variance);
        Self { entries, with_gains: [Vector::zeros(); 2], own: [0.0; 2], pair: [0.0; 2] }
    }
}

impl Stream {
    /// A stream of Gaussian entries that were just sampled. `variance` is the variance of their correlation over
    /// networks.
    pub(crate) fn drawn(width: f64, [leading, correlation]: [f64; 2], variance: f64) -> Self {
        Self {
            width,
            leading,
            correlation,
            entries: FourPoint::gaussian(correlation, variance),
            centred: None,
            fixed: [0.0; 2],
            drawn: Some(Noise::none()),
            is_preserved: false,
            ones: [1.0, correlation],
            susceptibility: [1.0; 3],
            variance: None,
        }
    }

    /// The state at the start of a stream. `fixed` is the part of x that is the same in all networks: its share of E
    /// x², and its correlation between two tokens.
    pub(crate) fn start(width: f64, correlation: f64, fixed: [f64; 2]) -> Self {
        let [share, of_fixed] = fixed;
        Self { fixed, ones: [1.0 - share, correlation - share * of_fixed], ..Self::drawn(width, [correlation; 2], 0.0) }
    }

    /// Returns all noise that finitely many entries of `length` tokens add.
    pub(crate) fn noise(&self, length: f64) -> Noise {
        let covariances = self.entries.covariances(self.correlation).less_fixed(self.fixed);
        covariances.noise(self.width, length, self.correlation)
    }

    /// Returns the noise that is not yet in the covariance; `None` if all of it is.
    pub(crate) fn pending(&self, length: f64) -> Option<Noise> {
        let drawn = self.drawn.as_ref()?;
        let Noise { covariance, drift } = self.noise(length);
        Some(Noise { covariance: covariance - drawn.covariance, drift: drift - drawn.drift })
    }

    /// Returns the noise that is in the covariance after a component that works entry by entry: the noise of the
    /// input's entries, carried through the map.
    pub(crate) fn behind(&self, step: &Step, length: f64) -> Noise {
        let before = self.drawn.unwrap_or_else(|| self.noise(length));
        let jacobian = step.part(step.parts[0]);
        let bent = step.hessians.bent(|(_, row), (_, column)| before.covariance[(row, column)]);
        let drift = jacobian * before.drift + bent;
        Noise { covariance: jacobian * before.covariance * jacobian.transpose(), drift }
    }

    /// Returns the susceptibility after a map with this Jacobian and this factor on the cosine of gradients.
    pub(crate) fn susceptible(&self, jacobian: &Matrix, cosine_factor: f64) -> [f64; 3] {
        let [u, r, cosine] = self.susceptibility;
        [u * jacobian[(U_A, U_A)], r * jacobian[(R_AB, R_AB)], cosine * cosine_factor]
    }
}
