//! Tensors that a library saves next to the weights and that no generator samples.

/// Endings of the names of buffers: masks, frequencies, positions.
const BUFFERS: [&str; 6] = ["attn.bias", "attention.bias", "masked_bias", "causal_mask", "inv_freq", "position_ids"];
/// Endings of the names of parameters that start as a fixed sequence: the decay rates of Mamba, ln 1 to ln n.
const SEQUENCES: [&str; 2] = ["A_log", "A_logs"];

/// Returns true if a tensor of this name is a buffer.
pub(super) fn is_buffer(pattern: &str) -> bool {
    BUFFERS.iter().any(|name| pattern.ends_with(name))
}

/// Returns true if tensors of this name are meant to be equal in all blocks or in all rows.
pub(super) fn is_fixed(pattern: &str) -> bool {
    is_buffer(pattern) || SEQUENCES.iter().any(|name| pattern.ends_with(name))
}
