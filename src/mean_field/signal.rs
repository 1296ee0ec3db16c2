//! What is known of a signal: its kernel and its means, and of queries and keys how they are turned and made.

use std::sync::Arc;

use super::few::Few;
use super::kernel::Kernel;
use super::rotation::Rotation;

/// What is known of a signal x.
#[derive(Clone, Debug)]
pub(crate) struct Signal {
    /// Entries of a token.
    pub(crate) width: f64,
    /// E x_a x_b.
    pub(crate) kernel: Kernel,
    /// E x at every node, in units of the root of the kernel's; none of a signal without means.
    pub(crate) means: Option<Few<f64>>,
    /// Of queries and keys that are rotated: the kernel is that before.
    pub(crate) rotation: Option<Rotation>,
    /// Of all tokens behind a BatchNorm, the degrees of freedom of the length that they have lost: their direction alone is random.
    pub(crate) length_lost: Option<f64>,
    /// Of queries and keys of several parts.
    pub(crate) parts: Option<Arc<[Part]>>,
}

/// A part of the features of a signal.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// Its share of them, and of E x².
    pub(crate) features: f64,
    pub(crate) squares: f64,
    pub(crate) rotation: Option<Rotation>,
}

impl Signal {
    /// A signal without means.
    pub(crate) fn centred(width: f64, kernel: Kernel) -> Self {
        Self { width, kernel, means: None, rotation: None, length_lost: None, parts: None }
    }

    /// E x at a node.
    pub(crate) fn mean(&self, node: usize) -> f64 {
        self.means.as_ref().map_or(0.0, |means| means[node])
    }

    /// E x_a E x_b at a point.
    pub(crate) fn mean_product(&self, point: usize) -> f64 {
        self.means.as_ref().map_or(0.0, |means| {
            let [a, b] = self.kernel.positions.ends(point, means);
            a * b
        })
    }

    /// The kernel of x − E x.
    pub(crate) fn centred_kernel(&self) -> Kernel {
        if self.means.is_none() {
            return self.kernel.clone();
        }
        let own = self.kernel.own.iter().enumerate().map(|(node, &own)| own - self.mean(node) * self.mean(node));
        let pairs = self.kernel.pairs.iter().enumerate().map(|(point, &product)| product - self.mean_product(point));
        self.kernel.with(self.kernel.ln_unit, own.collect(), pairs.collect())
    }

    /// Factors on the means, none if there are none.
    pub(crate) fn scaled_means(&self, factor: impl Fn(usize) -> f64) -> Option<Few<f64>> {
        Some(self.means.as_ref()?.iter().enumerate().map(|(node, &mean)| mean * factor(node)).collect())
    }
}
