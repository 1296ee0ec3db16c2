//! Parts that read another signal than their common input: the positions of the streams that they join, and the reads
//! that are not predicted.

use std::iter;

use sigprop_stack::{Embedding, GivenIds, Ids, Node, Op, Read, Source, Stack, Stream};

use super::PredictError;
use crate::caveat::{Caveat, Condition};

/// Returns every signal that parts of `stack` read in place of their common input.
pub(super) fn reads(stack: &Stack) -> impl Iterator<Item = &Read> {
    stack.streams.iter().flat_map(of_stream)
}

fn of_stream(stream: &Stream) -> impl Iterator<Item = &Read> {
    stream.body.iter().flat_map(|node| node.op.reads())
}

/// Returns the indices of the streams that have the positions of stream `index`, this one first: the streams of its
/// length that sums, products and concatenations join with it.
pub(super) fn joined(stack: &Stack, index: usize) -> Vec<usize> {
    let mut groups: Vec<usize> = (0..stack.streams.len()).collect();
    for (reader, stream) in stack.streams.iter().enumerate() {
        for read in of_stream(stream) {
            if let Read::Stream(other) = read {
                let [from, to] = [reader, *other].map(|stream| groups[stream]);
                groups.iter_mut().filter(|group| **group == from).for_each(|group| *group = to);
            }
        }
    }
    let length = stack.streams[index].seq_len;
    let is_joined = |other: &usize| groups[*other] == groups[index] && stack.streams[*other].seq_len == length;
    let others = (0..groups.len()).filter(|other| *other != index && is_joined(other));
    iter::once(index).chain(others).collect()
}

/// Refuses stacks that join streams whose ids are independent of each other.
pub(super) fn check(stack: &Stack) -> Result<(), PredictError> {
    /// The largest number of nodes of a stack with reads: covariances are followed node by node.
    const MOST: usize = 5000;
    if reads(stack).next().is_none() {
        return Ok(());
    }
    let refuse = |site: &str, what| Err(PredictError::NotFollowed { site: site.to_owned(), what });
    if stack.streams.iter().flat_map(|stream| &stream.body).map(count).sum::<usize>() > MOST {
        return refuse(&stack.name, "a stack of more than 5000 nodes with parts that read other sites");
    }
    for (index, stream) in stack.streams.iter().enumerate() {
        let all: Vec<IdSource> = joined(stack, index).into_iter().filter_map(|other| ids(stack, other)).collect();
        if all.iter().any(|ids| *ids != all[0]) {
            return refuse(&stream.name, "a sum or product of streams with different ids");
        }
    }
    Ok(())
}

/// The source of the ids of a stream.
#[derive(PartialEq)]
enum IdSource<'s> {
    /// The ids that are sampled for the stream with this index.
    Sampled(usize),
    Given(&'s GivenIds),
}

/// Returns the source of the ids of stream `index`; `None` if it has no ids.
fn ids(stack: &Stack, index: usize) -> Option<IdSource<'_>> {
    match &stack.streams[index].source {
        Source::Gaussian(_) => None,
        Source::Embedding(Embedding { ids: Ids::Given(given), .. }) => Some(IdSource::Given(given)),
        Source::Embedding(Embedding { ids: Ids::PowerLaw(_), same_ids_as: None, .. }) => Some(IdSource::Sampled(index)),
        Source::Embedding(Embedding { ids: Ids::PowerLaw(_), same_ids_as: Some(other), .. }) => ids(stack, *other),
    }
}

/// Returns the number of nodes, including the nodes inside this one.
pub(super) fn count(node: &Node) -> usize {
    1 + node.op.bodies().flatten().map(count).sum::<usize>()
}

/// Returns the caveat of stacks with reads.
pub(super) fn caveat(stack: &Stack) -> Option<Caveat> {
    let site = stack.streams.iter().find_map(|stream| first(&stream.body))?;
    let reads = reads(stack).count();
    Some(Caveat::of(site, reads, Condition::ReadWidth(reads)))
}

/// Returns the path, in its stream, of the first node with a part that reads another signal.
fn first(body: &[Node]) -> Option<String> {
    body.iter().find_map(|node| {
        let reads = |body: &[Node]| matches!(body.first(), Some(Node { op: Op::Read(_), .. }));
        if node.op.bodies().any(reads) {
            return Some(node.name.clone());
        }
        Some(format!("{}.{}", node.name, node.op.bodies().find_map(first)?))
    })
}
