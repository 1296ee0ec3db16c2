//! Xavier (Glorot): std √(2/(fan_in + fan_out)), normal or uniform.
//!
//! # Source
//!
//! Glorot & Bengio 2010, eq. 16; gain 1 as in PyTorch's `xavier_normal_` and `xavier_uniform_`.
//! Queries, keys, values and output are separate matrices, each with its own fans.

use sigprop_stack::Init;

use super::{About, Outer, SchemeError};
use crate::architecture::Resolved;
use crate::recipe::{Entrance, Fans, Projection, Projections, Recipe, normal, uniform};

pub(super) const NORMAL: About = About {
    name: "xavier",
    parameters: &[],
    rule: "weights N(0, 2/(fan_in + fan_out)); queries, keys, values separate",
    source: SOURCE,
    touches: TOUCHES,
    build: |_| Box::new(Xavier { draw: normal }),
};

pub(super) const UNIFORM: About = About {
    name: "xavier-uniform",
    parameters: &[],
    rule: "weights U(±√(6/(fan_in + fan_out))); queries, keys, values separate",
    source: SOURCE,
    touches: TOUCHES,
    build: |_| Box::new(Xavier { draw: uniform }),
};

const SOURCE: &str = "Glorot & Bengio 2010, eq. 16; gain 1 as in PyTorch's torch/nn/init.py";
const TOUCHES: &str = "all linear weights";

#[derive(Debug)]
struct Xavier {
    /// Distribution from its std.
    draw: fn(f64) -> Init,
}

impl Recipe for Xavier {
    fn outer(&self, _: &Resolved, _: Outer, fans: Fans) -> Projection {
        (self.draw)(fans.xavier_std()).into()
    }

    fn projections<'a>(&'a self, _: &'a Resolved, _: &Entrance) -> Result<Projections<'a>, SchemeError> {
        Ok(Box::new(|slot| (self.draw)(slot.fans.xavier_std()).into()))
    }
}
