//! LayerNorm-Scaling: the norms at the start of both branches of block l, from 1, are multiplied by 1/√l.
//!
//! # Source
//!
//! Sun et al. 2025, *The Curse of Depth in Large Language Models*; OLMo-core's `block.py`. Weights are N(0, 0.02²) and
//! not scaled by depth, which the paper advises against. The factor is part of the forward pass there and is written
//! into gains here.

use super::everywhere::{Everywhere, WithGains};
use super::{About, Parameter};
use crate::architecture::{Kind, NormPlacement, Resolved};
use crate::recipe::{BlockNorm, normal};

pub(super) const ABOUT: About = About {
    name: "ln-scaling",
    parameters: &[Parameter::scale("std", Some(0.02))],
    rule: "norms at the start of branches × 1/√(l + 1) in block l from 0, written into their gains; all weights \
           N(0, std²)",
    source: "Sun et al. 2025, The Curse of Depth in Large Language Models; OLMo-core block.py; for norm placement pre",
    touches: "embeddings, all linear weights, gains of norms at the start of branches",
    build: |values| Box::new(WithGains { weights: Everywhere(normal(values[0])), gain, caveat }),
};

fn gain(norm: BlockNorm, block: usize) -> f64 {
    match norm {
        BlockNorm::Input => ((block + 1) as f64).powf(-0.5),
        BlockNorm::Inner | BlockNorm::Output | BlockNorm::Sum => 1.0,
    }
}

fn caveat(architecture: &Resolved) -> Option<String> {
    let pre = architecture.norm.is_some() && architecture.norm_placement == NormPlacement::Pre;
    (architecture.kind != Kind::Encoder || !pre || architecture.skip_from_norm)
        .then(|| "LayerNorm-Scaling is defined for Transformers whose branches alone start with a norm".to_owned())
}
