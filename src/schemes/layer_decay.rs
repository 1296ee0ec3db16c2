//! Learning rates that fall from the head to the embeddings: an argument of every scheme, for fine-tuning.
//!
//! # Formula
//!
//! ```text
//! embeddings d^(L+1)     block l of L, from 0, d^(L−l)     behind the last block 1
//! ```
//!
//! # Source
//!
//! Clark et al. 2020 (ELECTRA, arXiv 2003.10555), appendix on fine-tuning: d^(L−l). Layers are counted as in BEiT's
//! `optim_factory.py` and MAE's `lr_decay.py`; ELECTRA's `optimization.py` has one more power of d everywhere but at
//! the head. The layers of an encoder and of a decoder are counted separately.

use super::Parameter;
use crate::recipe::StreamPosition;

/// The factor d between the learning rates of successive blocks, a parameter that every scheme has.
pub const LAYER_DECAY: Parameter = Parameter::share("layer-decay", 1.0);

/// Returns the factor on learning rates at a place in a stream of `n_layers` blocks.
pub(super) fn factor(decay: f64, n_layers: usize, place: StreamPosition) -> f64 {
    let below = match place {
        StreamPosition::Embeddings => n_layers + 1,
        StreamPosition::Block(block) => n_layers - block,
        StreamPosition::End => 0,
    };
    decay.powf(below as f64)
}
