//! GPT-2: std 0.02, and 0.02/√(2 · blocks) in the maps that write to the stream.
//!
//! # Source
//!
//! Radford et al. 2019, §2.3; nanoGPT's `model.py` for the details. Positions too have std 0.02.

use super::About;
use super::megatron::Megatron;

pub(super) const ABOUT: About = About {
    name: "gpt2",
    parameters: &[],
    rule: "all weights N(0, 0.02²); attention output and feed-forward output N(0, 0.02²/(2 · blocks))",
    source: "Radford et al. 2019, section 2.3; nanoGPT model.py",
    touches: "embeddings, all linear weights",
    build: |_| Box::new(Megatron { sigma: 0.02 }),
};
