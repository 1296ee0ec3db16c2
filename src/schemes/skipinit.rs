//! SkipInit: x + α f(x) with a learned α per branch that starts at 0, no norms.
//!
//! # Source
//!
//! De & Smith 2020, *Batch Normalization Biases Residual Blocks Towards the Identity Function*, with He's weights as
//! there. For n branches, α ≤ 1/√n does as well there.

use sigprop_stack::ScaleParameter;

use super::branches::{Branches, replaces_norms};
use super::kaiming::Kaiming;
use super::{About, Parameter};

pub(super) const ABOUT: About = About {
    name: "skipinit",
    parameters: &[Parameter::scale("alpha", Some(0.0))],
    rule: "branch_scale alpha, learned; weights as kaiming",
    source: "De & Smith 2020 (SkipInit); for networks without norms",
    touches: "all linear weights, scales of the residual connections",
    build: |values| {
        let caveat = |architecture: &_| replaces_norms(ABOUT.name, architecture);
        Box::new(Branches { base: Kaiming, scale: values[0], parameter: ScaleParameter::Scalar, caveat })
    },
};
