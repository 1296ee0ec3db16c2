//! Uniform: one bound for all weights.
//!
//! # Source
//!
//! The textbook example of an initialisation that explodes: U(−1, 1).

use sigprop_stack::Init;

use super::everywhere::Everywhere;
use super::{About, Parameter};

pub(super) const ABOUT: About = About {
    name: "uniform",
    parameters: &[Parameter::scale("bound", None)],
    rule: "all weights U(±bound), variance bound²/3",
    source: "common practice; with bound 1 the textbook example of an explosion",
    touches: "embeddings, all linear weights",
    build: |values| Box::new(Everywhere(Init::Uniform { bound: values[0] })),
};
