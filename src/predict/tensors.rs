//! Caveats of tensors that predictions take for simpler ones than they are.

use std::collections::BTreeMap;

use sigprop_stack::{Component, Node, Op, Quantity, RowGroup, SiteTable, Stack};

use crate::caveat::{Caveat, Condition};

/// Those of rows of other sizes, and of tensors that several sites use.
pub(super) fn caveats(stack: &Stack, table: &SiteTable) -> Vec<Caveat> {
    uneven_rows(stack).into_iter().chain(shared(stack, table)).collect()
}

/// The tensor whose rows differ most.
fn uneven_rows(stack: &Stack) -> Option<Caveat> {
    /// Factors below are not worth a word.
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

/// The tensor that most maps use, if several use one.
fn shared(stack: &Stack, table: &SiteTable) -> Option<Caveat> {
    let mut uses = BTreeMap::new();
    stack.streams.iter().for_each(|stream| count(&stream.body, &mut uses));
    let shared: Vec<(&str, usize)> = uses.into_iter().filter(|(_, uses)| *uses > 1).collect();
    let (name, most) = shared.iter().max_by_key(|(_, uses)| *uses)?;
    let condition = Condition::SharedTensor(*most, coherent_share(table, *most));
    Some(Caveat::of(*name, shared.len(), condition))
}

fn count<'s>(body: &'s [Node], uses: &mut BTreeMap<&'s str, usize>) {
    for node in body {
        let weight = match &node.op {
            Op::Apply(Component::Linear(linear)) => Some(&linear.weight),
            Op::Apply(Component::Convolution(convolution)) => Some(&convolution.weight),
            Op::Mixture(mixture) => Some(&mixture.router),
            Op::Apply(_) | Op::Chain(_) | Op::Sum(_) | Op::Product(_) | Op::Concat(_) | Op::Attention(_) => None,
        };
        if let Some(weight) = weight {
            *uses.entry(&weight.name).or_default() += 1;
        }
        node.op.bodies().for_each(|body| count(body, uses));
    }
}

/// The share by which the variance of a stream grows where what `uses` blocks add is the same vector, in place of independent
/// ones: (Σ √Δ)²/Σ Δ of the growth Δ per block, in runs of so many blocks.
fn coherent_share(table: &SiteTable, uses: usize) -> f64 {
    let variances: Vec<f64> = table
        .sites
        .iter()
        .filter(|row| row.is_stream_site && row.site.contains("blocks."))
        .filter_map(|row| Some(row.value(Quantity::Variance)?.ln_abs()))
        .collect();
    let before = table.sites.iter().find(|row| row.is_stream_site).and_then(|row| row.value(Quantity::Variance));
    let Some(before) = before.map(|variance| variance.ln_abs()) else { return 0.0 };
    let Some(&last) = variances.last() else { return 0.0 };
    let levels: Vec<f64> = [before].into_iter().chain(variances).map(|ln| (ln - last).exp()).collect();
    let growth: Vec<f64> = levels.windows(2).map(|pair| (pair[1] - pair[0]).max(0.0)).collect();
    let coherent: f64 = growth.chunks(uses).map(|run| run.iter().map(|more| more.sqrt()).sum::<f64>().powi(2)).sum();
    coherent - growth.iter().sum::<f64>()
}
