//! A network with the measured weights.
//!
//! # Formula
//!
//! Only the size of weights is used; other effects of training on them are left out. Per feature, gains g and biases b
//! of a norm have
//!
//! ```text
//! E g² = mean² + std²      E b² = mean² + std²      E y_a y_b = E g² E x̂_a x̂_b + E b²
//! ```
//!
//! Assumptions: gains and biases of different norms are independent, feature by feature.

use std::collections::HashMap;

use sigprop_stack::{Init, Named, Stack};

use super::omission::{Omission, bias_of, omissions};
use super::spread::Spread;
use super::{Inspection, Reading};

/// Writes measured sizes into a stack. Weights and biases become normal with the measured √E w². Norms get the measured
/// size of their gains (some checkpoints store gains minus 1), and branches that of their factors per feature
/// (LayerScale). Parameters that were not measured stay as they are. Returns the properties of the checkpoint that a
/// prediction of the changed stack leaves out.
pub fn with_measured(stack: &mut Stack, inspection: &Inspection) -> Vec<Omission> {
    let measured = Measured::of(&inspection.readings);
    stack.change(|named| match named {
        Named::Tensor(tensor) => measured.write(&tensor.name, &mut tensor.init),
        Named::Norm(name, norm) => {
            if let Some(gain) = measured.size(&name) {
                norm.gain = gain;
            }
            measured.write(&bias_of(&name), &mut norm.bias);
        }
        Named::Sum(site, sum) => {
            let Some(size) = measured.size(&format!("{site}.scale")) else { return };
            sum.branches.iter_mut().skip(1).for_each(|branch| branch.scale = size);
        }
        Named::Attention(_) => {}
    });
    for reading in &inspection.readings {
        let (Some(part), Some(rows)) = (&reading.part, &reading.rows) else { continue };
        // A checkpoint may have rows that the network does not have.
        if rows.groups.iter().map(|group| group.rows).sum::<usize>() != part.shape[0] {
            continue;
        }
        stack.row_groups.extend(part.parameters.iter().map(|name| (name.clone(), rows.groups.clone())));
    }
    omissions(stack, inspection)
}

/// For each parameter, by name: the statistics of its entries, pooled over all experts, and the offset that the network
/// adds to each stored entry (1 if gains are stored minus 1, else 0; see `Part::offset`).
struct Measured<'r>(HashMap<&'r str, (Spread, f64)>);

impl<'r> Measured<'r> {
    fn of(readings: &'r [Reading]) -> Self {
        let mut spreads: HashMap<&str, (Spread, f64)> = HashMap::new();
        for reading in readings {
            let Some(part) = &reading.part else { continue };
            for name in &part.parameters {
                let (spread, offset) = spreads.entry(name).or_default();
                (*spread, *offset) = (spread.with(reading.spread), part.offset);
            }
        }
        Self(spreads)
    }

    /// Returns √E w² of a parameter.
    fn size(&self, name: &str) -> Option<f64> {
        let (spread, offset) = self.0.get(name)?;
        spread.std().map(|std| (spread.mean + offset).hypot(std))
    }

    fn write(&self, name: &str, init: &mut Init) {
        match self.size(name) {
            Some(std) if std > 0.0 => *init = Init::Normal { std },
            Some(_) => *init = Init::Zero,
            None => {}
        }
    }
}
