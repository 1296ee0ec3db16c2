//! Schemes that draw every weight, embeddings included, from one distribution.

use sigprop_stack::Init;

use super::{Outer, SchemeError, Table};
use crate::architecture::Resolved;
use crate::recipe::{Entrance, Fans, Projection, Projections, Recipe};

/// All weights from one distribution; biases zero.
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
