//! A line that describes a network.

use sigprop_stack::{BlockName, NormKind, Stack};

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

/// Returns such a line for a stack; `architecture` is the one from which it was assembled, if it was.
pub(crate) fn stack_title(stack: &Stack, architecture: Option<&Architecture>) -> String {
    let body = &stack.streams[stack.gradient.stream].body;
    let n_blocks = body.iter().filter(|node| BlockName::is_block(&node.name)).count();
    title(&stack.name, n_blocks, architecture.and_then(norm_placement), Shape::of(stack))
}

/// Returns where a network has norms relative to its skip connections; `None` if it has none there. Batch norms are
/// inside branches.
pub(crate) fn norm_placement(architecture: &Architecture) -> Option<NormPlacement> {
    let resolved = architecture.resolved().ok()?;
    let norm = resolved.norm.filter(|norm| !matches!(norm.kind, NormKind::BatchNorm { .. }));
    norm.map(|_| resolved.norm_placement)
}
