//! Schemes that draw every weight, embeddings included, from one distribution.

use sigprop_stack::Init;

use super::{SchemeError, Table};
use crate::architecture::Resolved;
use crate::recipe::{Entrance, Projections, Recipe};

/// All weights from one distribution; biases zero.
#[derive(Debug)]
pub(super) struct Everywhere(pub(super) Init);

impl Recipe for Everywhere {
    fn embedding(&self, _: &Resolved, _: Table) -> Init {
        self.0
    }

    fn projections<'a>(&'a self, _: &'a Resolved, _: &Entrance) -> Result<Projections<'a>, SchemeError> {
        Ok(Box::new(|_| self.0.into()))
    }
}
