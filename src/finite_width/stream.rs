//! What is known of a stream beside its second moments: of what law its entries are, and what they have added so far.
//!
//! Entries that differ from Gaussian ones add noise to sums over them. A component that works entry by entry changes their law and leaves
//! that noise out of the covariance; one that reads inner products x_a·x_b (linear map, norm, attention, sum) takes it in first.

use super::forward::Step;
use super::noise::{FourPoint, Noise};
use super::variables::{Matrix, R_AB, U_A, Vector};

/// Of entries less their mean, behind an activation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Centred {
    pub(crate) entries: FourPoint,
    /// Their covariances with ln of the activation's gains of E g_a² and E g_a g_b, in the variables, less those of φ itself.
    pub(crate) with_gains: [Vector; 2],
    /// What the activation adds to ln E g_a² per ρ − 1, and to ln E g_a g_b per α − 1: of φ, and of φ − E φ.
    pub(crate) own: [f64; 2],
    pub(crate) pair: [f64; 2],
}

/// What is known of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) width: f64,
    /// The correlation of two tokens at infinite width, and its mean.
    pub(crate) leading: f64,
    pub(crate) correlation: f64,
    /// Of one entry, and of what it is beyond its mean; as Gaussian if none.
    pub(crate) entries: FourPoint,
    pub(crate) centred: Option<Centred>,
    /// The share of E x² that is the same in all networks, and its own correlation of two tokens.
    pub(crate) fixed: [f64; 2],
    /// What finitely many entries add, as far as it is in the covariance already; all of it if none.
    pub(crate) drawn: Option<Noise>,
    /// n (mean of entries − E)² over E x² of one token, and the product of two.
    pub(crate) ones: [f64; 2],
    /// ∂u_a and ∂r_ab here by those at the last fork, and the factor on the cosine of two gradients from here to there.
    pub(crate) susceptibility: [f64; 3],
    /// Variance over networks of ln of the variance of all entries, as far as entries make it; that of u if none.
    pub(crate) variance: Option<f64>,
}

impl Centred {
    /// Of Gaussian entries that follow no activation.
    pub(crate) fn gaussian(r: f64, variance: f64) -> Self {
        let entries = FourPoint::gaussian(r, variance);
        Self { entries, with_gains: [Vector::zeros(); 2], own: [0.0; 2], pair: [0.0; 2] }
    }
}

impl Stream {
    /// Gaussian entries that were drawn just now, of a correlation with this variance over networks.
    pub(crate) fn drawn(width: f64, [leading, correlation]: [f64; 2], variance: f64) -> Self {
        Self {
            width,
            leading,
            correlation,
            entries: FourPoint::gaussian(correlation, variance),
            centred: None,
            fixed: [0.0; 2],
            drawn: Some(Noise::none()),
            ones: [1.0, correlation],
            susceptibility: [1.0; 3],
            variance: None,
        }
    }

    /// The start of a stream, of which a share is the same in all networks, with this correlation of its own.
    pub(crate) fn start(width: f64, correlation: f64, fixed: [f64; 2]) -> Self {
        let [share, of_fixed] = fixed;
        Self { fixed, ones: [1.0 - share, correlation - share * of_fixed], ..Self::drawn(width, [correlation; 2], 0.0) }
    }

    /// All that finitely many entries of `length` tokens add.
    pub(crate) fn noise(&self, length: f64) -> Noise {
        let covariances = self.entries.covariances(self.correlation).less_fixed(self.fixed);
        covariances.noise(self.width, length, self.correlation)
    }

    /// What they are still to add.
    pub(crate) fn pending(&self, length: f64) -> Option<Noise> {
        let drawn = self.drawn.as_ref()?;
        let Noise { covariance, drift } = self.noise(length);
        Some(Noise { covariance: covariance - drawn.covariance, drift: drift - drawn.drift })
    }

    /// What entries behind a map of every entry have added before they are drawn: what those of the input made of it.
    pub(crate) fn behind(&self, step: &Step, length: f64) -> Noise {
        let before = self.drawn.unwrap_or_else(|| self.noise(length));
        let jacobian = step.part(step.parts[0]);
        let bent = step.hessians.bent(|(_, row), (_, column)| before.covariance[(row, column)]);
        let drift = jacobian * before.drift + bent;
        Noise { covariance: jacobian * before.covariance * jacobian.transpose(), drift }
    }

    /// The susceptibility behind a map with this factor on the cosine of gradients.
    pub(crate) fn susceptible(&self, jacobian: &Matrix, cosine_factor: f64) -> [f64; 3] {
        let [u, r, cosine] = self.susceptibility;
        [u * jacobian[(U_A, U_A)], r * jacobian[(R_AB, R_AB)], cosine * cosine_factor]
    }
}
