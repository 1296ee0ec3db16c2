//! Zero gain: the norm at the end of every branch starts with gain 0, so that blocks are identities.
//!
//! # Source
//!
//! Goyal et al. 2017, section 5.1, for the last norm of a residual block; Swin Transformer v2 (Liu et al. 2022,
//! `_init_respostnorm`) for the norms at the end of Transformer branches, with its weights of std 0.02.

use super::everywhere::{Everywhere, WithGains};
use super::{About, Parameter};
use crate::architecture::{NormPlacement, Resolved};
use crate::recipe::{BlockNorm, normal};

pub(super) const ABOUT: About = About {
    name: "zero-gain",
    parameters: &[Parameter::scale("std", Some(0.02))],
    rule: "gain 0 in the norm at the end of every branch (norm placement sandwich or reordered); all weights N(0, std²)",
    source: "Goyal et al. 2017, section 5.1; Swin Transformer v2 (Liu et al. 2022), _init_respostnorm",
    touches: "embeddings, all linear weights, gains of norms at the end of branches",
    build: |values| Box::new(WithGains { weights: Everywhere(normal(values[0])), gain, caveat }),
};

fn gain(norm: BlockNorm, _: usize) -> f64 {
    match norm {
        BlockNorm::Output => 0.0,
        BlockNorm::Input | BlockNorm::Inner | BlockNorm::Sum => 1.0,
    }
}

fn caveat(architecture: &Resolved) -> Option<String> {
    let ends = matches!(architecture.norm_placement, NormPlacement::Sandwich | NormPlacement::Reordered);
    (architecture.norm.is_none() || !ends)
        .then(|| "zero-gain needs branches that end with a norm; without, it only draws weights".to_owned())
}
