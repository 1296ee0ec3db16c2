//! nanoGPT and minGPT: GPT-2's names, but linear maps of torch in place of Conv1D.

use super::gpt::{MLP, STREAM};
use super::{Modules, QKV, rows};

pub(super) const NANOGPT: Modules =
    &[STREAM, MLP, &[rows("h.*.attn.c_attn", QKV), rows("h.*.attn.c_proj", &["blocks.*.attention.output"])]];
