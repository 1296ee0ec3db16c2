//! Factors that a scheme applies in the forward pass, in addition to its weights. A checkpoint does not hold them; its
//! model may have them or not.

use std::collections::BTreeMap;

use sigprop_stack::{Named, Stack};

use crate::caveat::{Caveat, Condition};
use crate::numerals::short;

/// Returns a caveat for every factor of the forward pass (such as residual scales) that differs between `model` and
/// `drawn`, the same network with the scales of `scheme`.
pub fn foreign_scales(model: &Stack, drawn: &Stack, scheme: &str) -> Vec<Caveat> {
    let [own, foreign] = [model, drawn].map(residual_scales);
    let mut caveats = Vec::new();
    for (part, place) in [("skip", 0), ("branches", 1)] {
        let pairs = own.iter().zip(&foreign).map(|((site, own), (_, foreign))| (site, own[place], foreign[place]));
        let differing: Vec<(&String, f64, f64)> =
            pairs.filter(|(_, own, foreign)| (own - foreign).abs() > f64::EPSILON * own.abs()).collect();
        let Some((site, ..)) = differing.first() else { continue };
        let [own, foreign] = [differing.iter().map(|x| x.1).collect(), differing.iter().map(|x| x.2).collect()];
        let text = sentence(scheme, &format!("scales the {part} by {}", range(foreign)), &range(own));
        caveats.push(Caveat::of(site.as_str(), differing.len(), Condition::SchemeScale(text)));
    }
    let (own, foreign) = (model.standardised(), drawn.standardised());
    if let Some((tensor, _)) = foreign.first_key_value().filter(|_| own != foreign) {
        let text = sentence(scheme, "standardises weights", "1");
        caveats.push(Caveat::of(*tensor, foreign.len(), Condition::SchemeScale(text)));
    }
    caveats
}

fn sentence(scheme: &str, does: &str, own: &str) -> String {
    if own == "1" {
        return format!("scheme {scheme} also {does}, which this model does not: predicted without it");
    }
    format!("scheme {scheme} {does}, this model by {own}: predicted with that of the model")
}

/// Returns the scales of the skip connection and of the first branch of every residual connection, by site.
fn residual_scales(stack: &Stack) -> BTreeMap<String, [f64; 2]> {
    let mut scales = BTreeMap::new();
    stack.clone().change(|named| {
        if let Named::Sum(site, sum) = named
            && let [skip, branch, ..] = sum.branches.as_slice()
        {
            scales.insert(site, [skip.scale, branch.scale]);
        }
    });
    scales
}

/// Returns the smallest and the largest value as text, or one value if they are equal.
fn range(values: Vec<f64>) -> String {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.into_iter().fold(f64::NEG_INFINITY, f64::max);
    if short(low) == short(high) { short(low) } else { format!("{} to {}", short(low), short(high)) }
}
