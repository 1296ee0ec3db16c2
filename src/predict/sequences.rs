//! Which token domain a stack needs, and the sequences of ids that the Gram domain averages over.

use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use sigprop_stack::{Component, EmbeddingTerm, Ids, Mask, Node, Op, Source, Stack, Stream};

use super::typical;
use crate::rules::embedding;

/// Whether tokens of `stack` are exchangeable: no masks, no positions that are alike or that scores know of, no given
/// ids.
pub(crate) fn is_exchangeable(stack: &Stack) -> bool {
    let unmasked = |mask: &Mask| *mask == Mask::FULL;
    stack.streams.len() == 1
        && stack
            .streams
            .iter()
            .all(|stream| drawn(stream) && unplaced(stream) && stream.body.iter().all(|node| alike(node, &unmasked)))
}

/// Whether any ids of `stack` are given.
pub(super) fn has_given_ids(stack: &Stack) -> bool {
    stack.streams.iter().any(|stream| !drawn(stream))
}

/// Whether tokens of `stack` lie in segments.
pub(super) fn has_segments(stack: &Stack) -> bool {
    stack.streams.iter().any(|stream| match &stream.source {
        Source::Gaussian(_) => false,
        Source::Embedding(embedding) => embedding::has_segments(embedding),
    })
}

/// Whether nothing in `stack` but the ids tells one token from another: a mask may be there, if it hides nothing.
pub(super) fn treats_tokens_alike(stack: &Stack) -> bool {
    stack.streams.len() == 1
        && stack.streams.iter().all(|stream| {
            let length = stream.seq_len;
            let hides_nothing =
                |mask: &Mask| [0, length.saturating_sub(1)].into_iter().all(|a| mask.keys(a, length) == (0..length));
            unplaced(stream) && stream.body.iter().all(|node| alike(node, &hides_nothing))
        })
}

fn drawn(stream: &Stream) -> bool {
    match &stream.source {
        Source::Gaussian(_) => true,
        Source::Embedding(embedding) => matches!(embedding.ids, Ids::PowerLaw(_)),
    }
}

/// Whether no position is told from another by more than what is drawn for it.
fn unplaced(stream: &Stream) -> bool {
    match &stream.source {
        Source::Gaussian(_) => true,
        Source::Embedding(embedding) => {
            !embedding.terms.iter().any(|term| matches!(term, EmbeddingTerm::SinusoidalPosition { .. }))
        }
    }
}

/// Whether a node treats all tokens alike, if all masks do of which `sees_all` says so.
fn alike(node: &Node, sees_all: &dyn Fn(&Mask) -> bool) -> bool {
    let itself = match &node.op {
        Op::Apply(component) => match component {
            Component::Linear(_)
            | Component::Norm(_)
            | Component::Activation(_)
            | Component::Dropout(_)
            | Component::Scale(_) => true,
            Component::Rotary(_) | Component::Embedding(_) | Component::Convolution(_) | Component::Prepend(_) => false,
        },
        Op::Chain(_) | Op::Sum(_) | Op::Product(_) | Op::Concat(_) | Op::Mixture(_) => true,
        Op::Attention(attention) => sees_all(&attention.mask) && attention.bias.is_none(),
    };
    itself && node.op.bodies().flatten().all(|node| alike(node, sees_all))
}

/// One sequence of ids per stream (none for a Gaussian source), as often as the prediction averages: all given
/// ones, or `count` drawn ones; once if there is nothing to draw.
pub(super) fn sequences(stack: &Stack, count: Option<usize>, seed: u64) -> Vec<Vec<Vec<u32>>> {
    let count = count.unwrap_or_else(|| enough(stack)).max(1);
    let given = stack.streams.iter().map(|stream| match &stream.source {
        Source::Gaussian(_) => 1,
        Source::Embedding(embedding) => match &embedding.ids {
            Ids::PowerLaw(_) => count,
            Ids::Given(given) => given.sequences.len(),
        },
    });
    let walks = given.max().unwrap_or(1);
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    let per_stream: Vec<Vec<Vec<u32>>> = stack
        .streams
        .iter()
        .map(|stream| match &stream.source {
            Source::Gaussian(_) => vec![Vec::new(); walks],
            Source::Embedding(embedding) => match &embedding.ids {
                Ids::PowerLaw(law) => typical::draw(*law, stream.seq_len, walks, &mut generator),
                Ids::Given(given) => given.sequences.iter().cycle().take(walks).cloned().collect(),
            },
        })
        .collect();
    (0..walks).map(|walk| per_stream.iter().map(|stream| stream[walk].clone()).collect()).collect()
}

/// How often ids repeat is known as well from few long sequences as from many short ones; how well, `typical` tells.
fn enough(stack: &Stack) -> usize {
    /// All together.
    const TOKENS: usize = 1024;
    /// Of short sequences.
    const MOST: usize = 16;
    let longest = stack.streams.iter().map(|stream| stream.seq_len).max().unwrap_or(1);
    (TOKENS / longest.max(1)).clamp(1, MOST)
}
