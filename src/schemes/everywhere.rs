//! Schemes that draw every weight, embeddings included, from one distribution; some also set the gains of norms.

use sigprop_stack::Init;

use super::{Outer, SchemeError, Table};
use crate::architecture::Resolved;
use crate::recipe::{BlockNorm, Entrance, Fans, Projection, Projections, Recipe};

/// A scheme that samples all weights from one distribution and sets biases to zero.
#[derive(Debug)]
pub(super) struct Everywhere(pub(super) Init);

impl Recipe for Everywhere {
    fn embedding(&self, _: &Resolved, _: Table) -> Init {
        self.0
    }

    fn outer(&self, _: &Resolved, _: Outer, _: Fans) -> Projection {
        self.0.into()
    }

    fn projections<'a>(&'a self, _: &'a Resolved, _: &Entrance) -> Result<Projections<'a>, SchemeError> {
        Ok(Box::new(|_| self.0.into()))
    }
}

/// A scheme that samples all weights from one distribution and sets the gains of the norms in blocks.
#[derive(Debug)]
pub(super) struct WithGains {
    pub(super) weights: Everywhere,
    /// The gain of a norm in the block with this index.
    pub(super) gain: fn(BlockNorm, usize) -> f64,
    pub(super) caveat: fn(&Resolved) -> Option<String>,
}

impl Recipe for WithGains {
    fn embedding(&self, architecture: &Resolved, table: Table) -> Init {
        self.weights.embedding(architecture, table)
    }

    fn outer(&self, architecture: &Resolved, place: Outer, fans: Fans) -> Projection {
        self.weights.outer(architecture, place, fans)
    }

    fn norm_gain(&self, norm: BlockNorm, block: usize) -> f64 {
        (self.gain)(norm, block)
    }

    fn projections<'a>(
        &'a self,
        architecture: &'a Resolved,
        entrance: &Entrance,
    ) -> Result<Projections<'a>, SchemeError> {
        self.weights.projections(architecture, entrance)
    }

    fn caveat(&self, architecture: &Resolved) -> Option<String> {
        (self.caveat)(architecture)
    }
}
