//! The named scheme that a network resembles most. Networks that standardise weights are compared only with each other.

use std::collections::BTreeMap;

use sigprop_stack::{Component, EmbeddingTerm, Node, Op, Source, Stack};

use crate::assemble::AssembleError;
use crate::compare::{Setting, all_schemes};
use crate::predict::{Options, Theory};
use crate::schemes::Scheme;

/// A named scheme, and its distance from the recommended network.
#[derive(Clone, Debug)]
pub struct Nearest {
    /// The scheme.
    pub scheme: Scheme,
    /// Root mean square of the differences of logarithms, over all weight stds and all ratios of branch scale to skip
    /// scale.
    pub distance: f64,
}

/// Returns the named scheme whose weights and scales are nearest to those of `stack`; `None` if there is none to
/// compare. Schemes that depend on the signal are compared with a signal at infinite width; only the distance of the
/// returned scheme is computed in the theory of the setting.
pub(super) fn nearest(setting: &Setting, stack: &Stack) -> Result<Option<Nearest>, AssembleError> {
    let wide = Setting { options: Options { theory: Theory::MeanField, ..setting.options }, ..setting.clone() };
    let (own, standardises) = (numbers(stack), |stack: &Stack| !stack.standardised().is_empty());
    let mut nearest: Option<Nearest> = None;
    for scheme in all_schemes() {
        let other = match wide.assemble(&scheme).map(|assembled| assembled.stack) {
            Ok(other) if standardises(&other) != standardises(stack) => continue,
            Ok(other) => other,
            Err(AssembleError::Scheme(_)) => continue,
            Err(error) => return Err(error),
        };
        let distance = distance(&own, &numbers(&other));
        if nearest.as_ref().is_none_or(|nearest| distance < nearest.distance) {
            nearest = Some(Nearest { scheme, distance });
        }
    }
    let Some(Nearest { scheme, .. }) = nearest else { return Ok(None) };
    let distance = distance(&own, &numbers(&setting.assemble(&scheme)?.stack));
    Ok(Some(Nearest { scheme, distance }))
}

fn distance(one: &BTreeMap<String, f64>, other: &BTreeMap<String, f64>) -> f64 {
    let pairs = one.iter().filter_map(|(name, ln)| Some((ln, other.get(name)?)));
    let squares: Vec<f64> = pairs.map(|(one, other)| (one - other).powi(2)).collect();
    (squares.iter().sum::<f64>() / squares.len().max(1) as f64).sqrt()
}

/// ln of all weight stds above zero and of all ratios of branch scale to skip scale, by name.
fn numbers(stack: &Stack) -> BTreeMap<String, f64> {
    let mut numbers = BTreeMap::new();
    for stream in &stack.streams {
        if let Source::Embedding(embedding) = &stream.source {
            let tables = embedding.terms.iter().filter_map(EmbeddingTerm::table);
            numbers.extend(tables.map(|table| (table.name.clone(), table.init.std().ln())));
        }
        collect(&stream.body, &stream.name, &mut numbers);
    }
    numbers.retain(|_, ln| ln.is_finite());
    numbers
}

fn collect(body: &[Node], path: &str, numbers: &mut BTreeMap<String, f64>) {
    for Node { name, op, .. } in body {
        let path = format!("{path}.{name}");
        if let Op::Apply(Component::Linear(linear)) = op {
            numbers.insert(linear.weight.name.clone(), linear.weight.init.std().ln());
        }
        if let Op::Sum(sum) = op {
            let place = sum.branches.iter().position(|branch| branch.body.is_empty()).unwrap_or(0);
            let skip = sum.branches.get(place).map_or(1.0, |skip| skip.scale);
            for (index, branch) in sum.branches.iter().enumerate().filter(|(index, _)| *index != place) {
                numbers.insert(format!("{path}.{index}"), (branch.scale / skip).abs().ln());
            }
        }
        op.bodies().for_each(|body| collect(body, &path, numbers));
    }
}
