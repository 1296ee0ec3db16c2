//! The moments of a signal: its kernel and its means, and for queries and keys their rotation and their parts.

use std::sync::Arc;

use super::few::Few;
use super::heads::Heads;
use super::kernel::Kernel;
use super::rotation::Rotation;

/// The moments of a signal x.
#[derive(Clone, Debug)]
pub(crate) struct Signal {
    /// Number of entries of a token.
    pub(crate) width: f64,
    /// E x_a x_b.
    pub(crate) kernel: Kernel,
    /// E x at every node, in units of e^(ln_unit/2) of the kernel; `None` if all means are zero.
    pub(crate) means: Option<Few<f64>>,
    /// The rotation of queries and keys, if there is one; `kernel` is the kernel before this rotation.
    pub(crate) rotation: Option<Rotation>,
    /// After a BatchNorm over L tokens, the degrees of freedom L − 1 of the length of a feature over all tokens; `None`
    /// elsewhere. The norm has fixed this length, so that only the direction is random.
    pub(crate) length_lost: Option<f64>,
    /// The parts of the features of queries and keys; `None` if there is only one.
    pub(crate) parts: Option<Arc<[Part]>>,
    /// The heads of the recurrence whose output x is, or is a product with; `None` elsewhere.
    pub(crate) heads: Option<Heads>,
}

/// A part of the features of a signal.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// The share of the features that belong to this part.
    pub(crate) features: f64,
    /// The share of Σ x² over all features that belongs to this part.
    pub(crate) squares: f64,
    pub(crate) rotation: Option<Rotation>,
}

impl Signal {
    /// Returns a signal with this kernel and with mean zero.
    pub(crate) fn centred(width: f64, kernel: Kernel) -> Self {
        Self { width, kernel, means: None, rotation: None, length_lost: None, parts: None, heads: None }
    }

    /// Returns E x at a node.
    pub(crate) fn mean(&self, node: usize) -> f64 {
        self.means.as_ref().map_or(0.0, |means| means[node])
    }

    /// Returns E x_a E x_b at a point.
    pub(crate) fn mean_product(&self, point: usize) -> f64 {
        self.means.as_ref().map_or(0.0, |means| {
            let [a, b] = self.kernel.positions.ends(point, means);
            a * b
        })
    }

    /// Returns the kernel of x − E x.
    pub(crate) fn centred_kernel(&self) -> Kernel {
        if self.means.is_none() {
            return self.kernel.clone();
        }
        let own = self.kernel.own.iter().enumerate().map(|(node, &own)| own - self.mean(node) * self.mean(node));
        let pairs = self.kernel.pairs.iter().enumerate().map(|(point, &product)| product - self.mean_product(point));
        self.kernel.with(self.kernel.ln_unit, own.collect(), pairs.collect())
    }

    /// Returns the mean at every node times `factor` at this node; `None` if all means are zero.
    pub(crate) fn scaled_means(&self, factor: impl Fn(usize) -> f64) -> Option<Few<f64>> {
        Some(self.means.as_ref()?.iter().enumerate().map(|(node, &mean)| mean * factor(node)).collect())
    }
}
