//! A line that describes a network.

use sigprop_stack::NormKind;

use crate::{
    architecture::{Architecture, NormPlacement},
    verdict::Shape,
};

/// Returns a line such as `encoder: 48 blocks, pre-norm, width 1024, 256 tokens`.
pub(crate) fn title(name: &str, n_blocks: usize, placement: Option<NormPlacement>, shape: Shape) -> String {
    let blocks = if n_blocks == 1 { "block" } else { "blocks" };
    let norm = placement.map_or(String::new(), |placement| format!(", {placement}-norm"));
    let Shape { width, seq_len } = shape;
    format!("{name}: {n_blocks} {blocks}{norm}, width {width}, {seq_len} tokens")
}

/// Returns where a network has norms relative to its skip connections; `None` if it has none there. Batch norms are
/// inside branches.
pub(crate) fn norm_placement(architecture: &Architecture) -> Option<NormPlacement> {
    let resolved = architecture.resolved().ok()?;
    let norm = resolved.norm.filter(|norm| !matches!(norm.kind, NormKind::BatchNorm { .. }));
    norm.map(|_| resolved.norm_placement)
}
