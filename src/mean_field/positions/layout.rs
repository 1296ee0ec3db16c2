//! The positions that a stack distinguishes.

use std::collections::BTreeSet;
use std::sync::Arc;

use sigprop_stack::{
    Attention, Component, Convolution, Embedding, EmbeddingTerm, Ids, Image, Mask, Node, Op, PositionBias, PowerLaw,
    Source, Stream,
};

use super::{Chart, Grading, Positions, Repetition};

/// Length up to which all positions of a sequence are followed in any case.
const SHORT: usize = 48;

/// The properties of a stream that decide which positions are followed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Layout {
    length: usize,
    /// The mean number of tokens in the first of two segments, if there are two.
    boundary: Option<f64>,
    ids: Repeats,
    /// The size of the images whose pixels are the tokens; `None` if no component of the stream is for images.
    image: Option<Image>,
    /// The chart of positions that differ; `None` if all tokens are exchangeable.
    pub(crate) chart: Option<ChartShape>,
}

/// Everything that a chart depends on: the positions, their grading, and the windows of attentions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ChartShape {
    length: usize,
    grading: Grading,
    windows: Vec<usize>,
}

/// The ids of tokens: none, drawn from a power law, or given for every position.
#[derive(Clone, Debug, PartialEq)]
enum Repeats {
    None,
    Drawn(PowerLaw),
    Given(Vec<u32>),
}

impl Layout {
    /// Returns the layout of streams at their sources, all of the same length and the same positions: one group if all
    /// tokens are exchangeable, two groups if there are two segments, pixels of images, otherwise a chart. `segment` is
    /// the share of the tokens in the first of two segments. The chart has all positions if there is no `grading`, if
    /// `ids` are given or if there are segments.
    pub(crate) fn of(streams: &[&Stream], grading: Option<Grading>, segment: Option<f64>, ids: Option<&[u32]>) -> Self {
        let length = streams[0].seq_len;
        let boundary = segment.map(|share| first_segment(length as f64, share));
        if let Some(ids) = ids {
            let length = ids.len();
            let chart = Some(ChartShape { length, grading: Grading::all(length), windows: Vec::new() });
            return Self { length, boundary, ids: Repeats::Given(ids.to_vec()), image: None, chart };
        }
        let law = |stream: &&Stream| match &stream.source {
            // A single token has no other to share an id with.
            Source::Embedding(Embedding { ids: Ids::PowerLaw(law), .. }) if length > 1 => Some(Repeats::Drawn(*law)),
            Source::Embedding(_) | Source::Gaussian(_) => None,
        };
        let ids = streams.iter().find_map(law).unwrap_or(Repeats::None);
        let masks: BTreeSet<[Option<usize>; 2]> = streams
            .iter()
            .flat_map(|stream| nodes(&stream.body))
            .filter_map(|node| Some(attention(node)?.mask))
            .map(|mask| [mask.before, mask.after])
            .collect();
        // A group needs at least two tokens, so that a smaller first segment requires a chart.
        let is_placed = streams.iter().any(|stream| places(stream)) || boundary.is_some_and(|first| first < 2.0);
        if !is_placed && masks.iter().all(|&[before, after]| hides_nothing(Mask { before, after }, length)) {
            let image = streams.iter().find_map(|stream| stream.image());
            return Self { length, boundary, ids, image, chart: None };
        }
        let grading = match grading {
            Some(grading) if length > SHORT && segment.is_none() => grading,
            Some(_) | None => Grading::all(length),
        };
        let reaches: BTreeSet<usize> = masks.into_iter().flatten().flatten().filter(|&reach| reach > 0).collect();
        let windows = reaches.into_iter().map(|reach| reach + 1).collect();
        Self { length, boundary, ids, image: None, chart: Some(ChartShape { length, grading, windows }) }
    }

    /// Returns true if the ids of all positions are given.
    pub(crate) fn has_given_ids(&self) -> bool {
        matches!(self.ids, Repeats::Given(_))
    }

    /// Returns true if there is a chart that follows only some positions, which represent all others.
    pub(crate) fn is_graded(&self) -> bool {
        self.chart.as_ref().is_some_and(|chart| chart.grading.dense < chart.length)
    }

    /// Returns true if few positions are followed.
    pub(crate) fn is_small(&self) -> bool {
        self.is_graded() || self.chart.is_none() || self.length <= SHORT
    }
}

impl ChartShape {
    /// Builds the chart.
    pub(crate) fn chart(&self) -> Chart {
        Chart::new(self.length, self.grading, &self.windows)
    }
}

impl Positions {
    /// Builds the positions of a layout, on its chart if it has one.
    pub(crate) fn new(layout: &Layout, chart: Option<Arc<Chart>>) -> Self {
        let &Layout { length, boundary, ref ids, image, .. } = layout;
        if let Some(image) = image {
            return Self::pixels(image, (length / image.pixels()) as f64);
        }
        let repetition = match ids {
            Repeats::Drawn(law) => Some(Arc::new(Repetition::new(*law))),
            Repeats::None | Repeats::Given(_) => None,
        };
        let Some(chart) = chart else {
            let length = length as f64;
            return match boundary {
                Some(first) => Self::groups(&[first, length - first], repetition),
                None => Self::groups(&[length], repetition),
            };
        };
        let positions = match ids {
            Repeats::Given(ids) => Self::given(ids, chart),
            Repeats::Drawn(_) | Repeats::None => Self::on(chart, repetition),
        };
        Self { boundary, ..positions }
    }
}

/// Returns true if something in a stream distinguishes positions, masks aside, or is computed on charts alone.
fn places(stream: &Stream) -> bool {
    let places = |term: &EmbeddingTerm| matches!(term, EmbeddingTerm::SinusoidalPosition { .. });
    let at_source = match &stream.source {
        Source::Embedding(embedding) => embedding.terms.iter().any(places),
        Source::Gaussian(_) => false,
    };
    at_source
        || nodes(&stream.body).any(|node| match &node.op {
            Op::Attention(attention) => {
                attention.sink.is_some() || matches!(attention.bias, Some(PositionBias::Alibi { .. }))
            }
            Op::Apply(Component::Rotary(_)) | Op::Recurrence(_) => true,
            Op::Apply(Component::Embedding(term)) => places(term),
            Op::Apply(Component::Convolution(Convolution { kernel, stride, padding, image, .. })) => {
                image.is_none() && (kernel != stride || *padding > 0)
            }
            _ => false,
        })
}

/// Returns the number of tokens in the first of two segments for which the share of pairs within one segment is
/// z² + (1 − z)². This is the mean share of such pairs among tokens of which a part z, here `share`, is in the first
/// segment.
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

/// Returns true if every query sees all of `length` keys.
pub(crate) fn hides_nothing(mask: Mask, length: usize) -> bool {
    [0, length.saturating_sub(1)].into_iter().all(|query| mask.keys(query, length) == (0..length))
}

/// Returns all nodes of a body, including nested ones.
fn nodes(body: &[Node]) -> Box<dyn Iterator<Item = &Node> + '_> {
    Box::new(body.iter().flat_map(|node| std::iter::once(node).chain(node.op.bodies().flat_map(nodes))))
}
