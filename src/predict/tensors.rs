//! Caveats for tensors that predictions simplify.

use std::collections::BTreeMap;

use sigprop_stack::{BlockName, Component, Node, Op, Quantity, RowGroup, SiteTable, Stack};

use crate::caveat::{Caveat, Condition};

/// Returns caveats for tensors whose rows differ in size, and for tensors that several sites use.
/// `is_followed` is true if the prediction follows the latter.
pub(super) fn caveats(stack: &Stack, table: &SiteTable, is_followed: bool) -> Vec<Caveat> {
    uneven_rows(stack).into_iter().chain(shared(stack, table, is_followed)).collect()
}

/// Returns a caveat for the tensor whose rows differ most.
fn uneven_rows(stack: &Stack) -> Option<Caveat> {
    /// The smallest ratio of the largest to the smallest standard deviation that has a caveat.
    const VISIBLE: f64 = 1.5;
    let ratio = |groups: &[RowGroup]| {
        let stds = || groups.iter().map(|group| group.std).filter(|std| *std > 0.0);
        stds().fold(0.0, f64::max) / stds().fold(f64::INFINITY, f64::min)
    };
    let ratios = stack.row_groups.iter().map(|(name, groups)| (name, ratio(groups)));
    let uneven: Vec<(&String, f64)> = ratios.filter(|(_, ratio)| *ratio > VISIBLE).collect();
    let (name, ratio) = uneven.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(Caveat::of(*name, uneven.len(), Condition::UnevenRows(*ratio)))
}

/// Returns a caveat if several maps use the same tensor. It names the tensor with the most uses.
fn shared(stack: &Stack, table: &SiteTable, is_followed: bool) -> Option<Caveat> {
    let Shared { name, uses, tensors } = shared_tensors(stack)?;
    let condition = if is_followed {
        Condition::SharedWidth(uses)
    } else {
        Condition::SharedTensor(uses, coherent_share(stack, table, uses))
    };
    Some(Caveat::of(name, tensors, condition))
}

/// The tensors that several maps use.
pub(super) struct Shared<'s> {
    /// Name of the tensor with the most uses.
    name: &'s str,
    /// Number of maps that use it.
    uses: usize,
    /// Number of tensors that several maps use.
    tensors: usize,
}

/// Returns the tensors that several maps use; `None` if there are none.
pub(super) fn shared_tensors(stack: &Stack) -> Option<Shared<'_>> {
    let mut uses = BTreeMap::new();
    stack.streams.iter().for_each(|stream| count(&stream.body, &mut uses));
    let shared: Vec<(&str, usize)> = uses.into_iter().filter(|(_, uses)| *uses > 1).collect();
    let &(name, uses) = shared.iter().max_by_key(|(_, uses)| *uses)?;
    Some(Shared { name, uses, tensors: shared.len() })
}

fn count<'s>(body: &'s [Node], uses: &mut BTreeMap<&'s str, usize>) {
    for node in body {
        let weight = match &node.op {
            Op::Apply(Component::Linear(linear)) => Some(&linear.weight),
            Op::Apply(Component::Convolution(convolution)) => Some(&convolution.weight),
            Op::Mixture(mixture) => Some(&mixture.router),
            Op::Apply(_)
            | Op::Chain(_)
            | Op::Sum(_)
            | Op::Product(_)
            | Op::Concat(_)
            | Op::Attention(_)
            | Op::Recurrence(_)
            | Op::Read(_) => None,
        };
        if let Some(weight) = weight {
            *uses.entry(&weight.name).or_default() += 1;
        }
        node.op.bodies().for_each(|body| count(body, uses));
    }
}

/// Returns the share by which the variance of the stream may be larger if the branches of `uses` blocks add equal
/// vectors instead of independent ones: then amplitudes add up, not squares. Without norms a branch is proportional to
/// its stream, so that the added part grows with the stream.
fn coherent_share(stack: &Stack, table: &SiteTable, uses: usize) -> f64 {
    let ln_variances: Vec<f64> = table
        .sites
        .iter()
        .filter(|row| row.is_stream_site && (row.layer < 0 || BlockName::is_block(&row.site)))
        .filter_map(|row| Some(row.value(Quantity::Variance)?.ln_abs()))
        .collect();
    let Some(&last) = ln_variances.last() else { return 0.0 };
    let levels: Vec<f64> = ln_variances.iter().map(|ln| (ln - last).exp()).collect();
    let is_relative = !stack.streams.iter().any(|stream| has_norms(&stream.body));
    let (mut level, mut before) = (levels[0], levels[0]);
    for run in levels.windows(2).collect::<Vec<_>>().chunks(uses) {
        let (start, mut amplitude) = (level, 0.0);
        for pair in run {
            let growth = (pair[1] - pair[0]).max(0.0) * if is_relative { level / before } else { 1.0 };
            amplitude += growth.sqrt();
            (level, before) = (start + amplitude * amplitude, pair[1]);
        }
    }
    level - 1.0
}

/// Returns true if a branch of a sum in `body` contains a norm.
fn has_norms(body: &[Node]) -> bool {
    let in_sum = |node: &Node| match &node.op {
        Op::Sum(sum) => sum.branches.iter().any(|branch| has_norm(&branch.body)),
        Op::Chain(body) => has_norms(body),
        Op::Apply(_)
        | Op::Product(_)
        | Op::Concat(_)
        | Op::Attention(_)
        | Op::Recurrence(_)
        | Op::Mixture(_)
        | Op::Read(_) => false,
    };
    body.iter().any(in_sum)
}

fn has_norm(body: &[Node]) -> bool {
    let is_norm = |node: &Node| matches!(node.op, Op::Apply(Component::Norm(_)));
    body.iter().any(|node| is_norm(node) || node.op.bodies().any(has_norm))
}
