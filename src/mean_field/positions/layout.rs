//! Which positions a stack tells apart.

use std::collections::BTreeSet;
use std::sync::Arc;

use sigprop_stack::{
    Attention, Component, Convolution, EmbeddingTerm, Ids, Mask, Node, Op, PositionBias, Source, Stream,
};

use super::{Chart, Grading, Positions, Repetition};

/// Tokens of a sequence of which all positions are followed anyway.
const SHORT: usize = 48;

impl Positions {
    /// Those of a stream at its source: one group where all tokens are alike, two where one `segment` has this share, else a
    /// chart, of all positions without a `grading`, with given `ids` or where there are segments.
    pub(crate) fn of(stream: &Stream, grading: Option<Grading>, segment: Option<f64>, ids: Option<&[u32]>) -> Self {
        let boundary = segment.map(|share| first_segment(stream.seq_len as f64, share));
        if let Some(ids) = ids {
            return Self { boundary, ..Self::given(ids) };
        }
        let repetition = match &stream.source {
            Source::Embedding(embedding) => match &embedding.ids {
                Ids::PowerLaw(law) => Some(Arc::new(Repetition::new(*law))),
                Ids::Given(_) => None,
            },
            Source::Gaussian(_) => None,
        };
        let length = stream.seq_len;
        // A token alone has no other to share an id with.
        let repetition = repetition.filter(|_| length > 1);
        let masks: BTreeSet<[Option<usize>; 2]> = nodes(&stream.body)
            .filter_map(|node| Some(attention(node)?.mask))
            .map(|mask| [mask.before, mask.after])
            .collect();
        let places = |term: &EmbeddingTerm| matches!(term, EmbeddingTerm::SinusoidalPosition { .. });
        let is_placed = match &stream.source {
            Source::Embedding(embedding) => embedding.terms.iter().any(places),
            Source::Gaussian(_) => false,
        };
        // No group has less than a pair.
        let is_placed = is_placed
            || boundary.is_some_and(|first| first < 2.0)
            || nodes(&stream.body).any(|node| match &node.op {
                Op::Attention(attention) => matches!(attention.bias, Some(PositionBias::Alibi { .. })),
                Op::Apply(Component::Rotary(_)) => true,
                Op::Apply(Component::Embedding(term)) => places(term),
                Op::Apply(Component::Convolution(Convolution { kernel, stride, padding, .. })) => {
                    kernel != stride || *padding > 0
                }
                _ => false,
            });
        if !is_placed && masks.iter().all(|&[before, after]| hides_nothing(Mask { before, after }, length)) {
            let length = length as f64;
            return match boundary {
                Some(first) => Self::groups(&[first, length - first], repetition),
                None => Self::groups(&[length], repetition),
            };
        }
        let grading = match grading {
            Some(grading) if length > SHORT && segment.is_none() => grading,
            Some(_) | None => Grading::all(length),
        };
        let reaches: BTreeSet<usize> = masks.into_iter().flatten().flatten().filter(|&reach| reach > 0).collect();
        let windows: Vec<usize> = reaches.into_iter().map(|reach| reach + 1).collect();
        Self { boundary, ..Self::on(Chart::new(length, grading, &windows), repetition) }
    }
}

/// How many tokens the first of two segments has for as many pairs within one as a part z of all tokens has on average, z² + (1 − z)².
fn first_segment(length: f64, share: f64) -> f64 {
    let apart = 2.0 * share * (1.0 - share) * length * (length - 1.0);
    0.5 * (length - (length * length - 2.0 * apart).max(0.0).sqrt())
}

fn attention(node: &Node) -> Option<&Attention> {
    match &node.op {
        Op::Attention(attention) => Some(attention),
        _ => None,
    }
}

/// Whether every query sees all of so many keys.
pub(crate) fn hides_nothing(mask: Mask, length: usize) -> bool {
    [0, length.saturating_sub(1)].into_iter().all(|query| mask.keys(query, length) == (0..length))
}

/// All nodes in a body, those inside of others too.
fn nodes(body: &[Node]) -> Box<dyn Iterator<Item = &Node> + '_> {
    Box::new(body.iter().flat_map(|node| std::iter::once(node).chain(node.op.bodies().flat_map(nodes))))
}
