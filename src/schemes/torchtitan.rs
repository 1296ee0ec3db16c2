//! torchtitan's Llama 3: std 0.02, and 0.02/√(2 (l + 1)) in attention output, up and down of block l from 0.
//!
//! # Source
//!
//! torchtitan's `models/llama3` and `models/common/param_init.py`. Its `trunc_normal_` cuts at ±2, a hundred
//! standard deviations: nothing is cut but the head, at ±3 std.

use super::olmo_core::Llama;
use super::{About, Parameter};
use crate::recipe::normal;

pub(super) const ABOUT: About = About {
    name: "torchtitan",
    parameters: &[Parameter::scale("std", Some(0.02))],
    rule: "queries, keys, values and gate std; attention output, up and down std/√(2 (l + 1)) in block l from 0; \
           embeddings N(0, 1); head 1/√d_model truncated at ±3 std; router and experts as olmo-core-depth",
    source: "torchtitan models/llama3, models/common/param_init.py; experts, which it draws otherwise, by analogy",
    touches: "embeddings, all linear weights",
    build: |values| Box::new(Llama { std: values[0], by_depth: true, draw: normal }),
};
