//! Schemes that take their weights from another scheme and have residual scales of their own.

use sigprop_stack::{Init, ScaleParameter};

use super::{Outer, SchemeError, Table};
use crate::architecture::Resolved;
use crate::recipe::{Entrance, Fans, Projection, Projections, Recipe, Residual, Residuals};

/// A scheme with the weights of `base`, in which a parameter that starts at `scale` multiplies every branch.
#[derive(Debug)]
pub(super) struct Branches<R> {
    pub(super) base: R,
    pub(super) scale: f64,
    pub(super) parameter: ScaleParameter,
    pub(super) caveat: fn(&Resolved) -> Option<String>,
}

impl<R: Recipe> Recipe for Branches<R> {
    fn embedding(&self, architecture: &Resolved, table: Table) -> Init {
        self.base.embedding(architecture, table)
    }

    fn outer(&self, architecture: &Resolved, place: Outer, fans: Fans) -> Projection {
        self.base.outer(architecture, place, fans)
    }

    fn residuals<'a>(&'a self, _: &'a Resolved, _: &Entrance) -> Result<Residuals<'a>, SchemeError> {
        Ok(Residual { skip: 1.0, branch: self.scale, parameter: self.parameter }.everywhere())
    }

    fn projections<'a>(
        &'a self,
        architecture: &'a Resolved,
        entrance: &Entrance,
    ) -> Result<Projections<'a>, SchemeError> {
        self.base.projections(architecture, entrance)
    }

    fn caveat(&self, architecture: &Resolved) -> Option<String> {
        (self.caveat)(architecture)
    }
}

/// Returns a caveat if the network has norms, which the scheme replaces, or no residual connections.
pub(super) fn replaces_norms(scheme: &str, architecture: &Resolved) -> Option<String> {
    match (architecture.residual, architecture.norm) {
        (false, _) => Some(format!("{scheme} is defined for networks with residual connections")),
        (true, Some(_)) => Some(format!("{scheme} takes the place of norms; this network has them")),
        (true, None) => None,
    }
}
