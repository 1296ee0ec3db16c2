//! The properties of a stack that make its positions differ, and the given ids and the segments that a prediction
//! averages over.

use sigprop_stack::{Component, Embedding, EmbeddingTerm, Ids, Mask, Node, Op, Source, Stack, Stream};

/// Two values of the share of the smaller of two segments, which represent a split at a uniformly random position.
/// Together with the shares of the larger segment they have the moments of a uniform variable in [0, 1] up to the fifth
/// (Chebyshev's four nodes of equal weight).
const SEGMENT_SHARES: [f64; 2] = [0.102_672_764, 0.406_203_763];

/// Returns true if the tokens of `stack` are exchangeable: there are no masks, no correlated positions, no scores that
/// depend on positions, and no given ids.
pub(crate) fn is_exchangeable(stack: &Stack) -> bool {
    let unmasked = |mask: &Mask| *mask == Mask::FULL;
    stack.streams.len() == 1
        && stack
            .streams
            .iter()
            .all(|stream| drawn(stream) && unplaced(stream) && stream.body.iter().all(|node| alike(node, &unmasked)))
}

/// Returns true if any ids of `stack` are given.
pub(super) fn has_given_ids(stack: &Stack) -> bool {
    stack.streams.iter().any(|stream| !drawn(stream))
}

/// Returns the values of the share of the first of two segments that represent all splits; a single `None` if `stack`
/// has no segments.
pub(super) fn segments(stack: &Stack) -> Vec<Option<f64>> {
    let is_segment = |term: &EmbeddingTerm| matches!(term, EmbeddingTerm::Segment { .. });
    let has_segments = stack.streams.iter().any(|stream| match &stream.source {
        Source::Gaussian(_) => false,
        Source::Embedding(embedding) => embedding.terms.iter().any(is_segment),
    });
    if has_segments { SEGMENT_SHARES.map(Some).to_vec() } else { vec![None] }
}

fn drawn(stream: &Stream) -> bool {
    match &stream.source {
        Source::Gaussian(_) => true,
        Source::Embedding(embedding) => matches!(embedding.ids, Ids::PowerLaw(_)),
    }
}

/// Returns true if the positions of a source differ only by entries that are sampled, not by sinusoidal waves.
fn unplaced(stream: &Stream) -> bool {
    match &stream.source {
        Source::Gaussian(_) => true,
        Source::Embedding(embedding) => {
            !embedding.terms.iter().any(|term| matches!(term, EmbeddingTerm::SinusoidalPosition { .. }))
        }
    }
}

/// Returns true if a node treats all tokens equally. A mask of an attention does so if `sees_all` returns true for it.
fn alike(node: &Node, sees_all: &dyn Fn(&Mask) -> bool) -> bool {
    let itself = match &node.op {
        Op::Apply(component) => match component {
            Component::Linear(_)
            | Component::Norm(_)
            | Component::Activation(_)
            | Component::Dropout(_)
            | Component::Scale(_)
            | Component::Select(_) => true,
            Component::Rotary(_)
            | Component::Embedding(_)
            | Component::Convolution(_)
            | Component::Prepend(_)
            | Component::Pool(_) => false,
        },
        Op::Chain(_) | Op::Sum(_) | Op::Product(_) | Op::Concat(_) | Op::Mixture(_) | Op::Read(_) => true,
        Op::Attention(attention) => sees_all(&attention.mask) && attention.bias.is_none(),
        Op::Recurrence(_) => false,
    };
    itself && node.op.bodies().flatten().all(|node| alike(node, sees_all))
}

/// Returns the given ids of every pass. A pass has one sequence of ids per stream, which is empty if the ids of the
/// stream are sampled.
pub(super) fn given(stack: &Stack) -> Vec<Vec<Vec<u32>>> {
    let given = |stream: &Stream| match &stream.source {
        Source::Embedding(Embedding { ids: Ids::Given(given), .. }) => given.sequences.clone(),
        Source::Embedding(_) | Source::Gaussian(_) => vec![Vec::new()],
    };
    let streams: Vec<Vec<Vec<u32>>> = stack.streams.iter().map(given).collect();
    let passes = streams.iter().map(Vec::len).max().unwrap_or(1);
    (0..passes).map(|pass| streams.iter().map(|all| all[pass % all.len()].clone()).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::SEGMENT_SHARES;

    /// E z^k = 1/(k + 1) for a uniform share, up to k = 5.
    #[test]
    fn shares_of_segments_have_the_moments_of_uniform_ones() {
        for k in 1..=5 {
            let both = |z: f64| 0.5 * (z.powi(k) + (1.0 - z).powi(k));
            let mean = SEGMENT_SHARES.into_iter().map(both).sum::<f64>() / SEGMENT_SHARES.len() as f64;
            approx::assert_relative_eq!(mean, 1.0 / f64::from(k + 1), max_relative = 1e-8);
        }
    }
}
