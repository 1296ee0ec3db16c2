//! Normal: one std for all weights.
//!
//! # Source
//!
//! Common practice; 0.02 in the GPT and Llama families before depth scaling.

use super::everywhere::Everywhere;
use super::{About, Parameter};
use crate::recipe::normal;

pub(super) const ABOUT: About = About {
    name: "normal",
    parameters: &[Parameter::scale("std", None)],
    rule: "all weights N(0, std²)",
    source: "common practice (Hugging Face's initializer_range)",
    touches: "embeddings, all linear weights",
    build: |values| Box::new(Everywhere(normal(values[0]))),
};
