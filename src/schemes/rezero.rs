//! ReZero: x + α f(x) with a learned α that starts at 0, no norms.
//!
//! # Source
//!
//! Bachlechner et al. 2020; `rezero/transformer/rztx.py`: weights by PyTorch's defaults, one α for both branches
//! of a block.

use sigprop_stack::ScaleParameter;

use super::branches::{Branches, replaces_norms};
use super::pytorch::Pytorch;
use super::{About, Parameter};

pub(super) const ABOUT: About = About {
    name: "rezero",
    parameters: &[Parameter::scale("alpha", Some(0.0))],
    rule: "branch_scale alpha, learned; weights as pytorch",
    source: "Bachlechner et al. 2020 (ReZero); rezero/transformer/rztx.py; for networks without norms",
    touches: "embeddings, all linear weights, biases of the feed-forward network, scales of the residual connections",
    build: |values| {
        let caveat = |architecture: &_| replaces_norms(ABOUT.name, architecture);
        Box::new(Branches { base: Pytorch, scale: values[0], parameter: ScaleParameter::Scalar, caveat })
    },
};
