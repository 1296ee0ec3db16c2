//! A network with the weights that were measured.

use std::collections::HashMap;

use sigprop_stack::{Init, Named, Stack};

use super::Reading;
use super::spread::Spread;
use crate::huggingface::Start;
use crate::numerals::short;
use crate::predict::Caveat;

/// Writes what was measured into a stack: normal weights of the measured size √E w², norms with the measured size of
/// their gains, of which some store a part: all but 1; factors on branches (LayerScale) of the measured size. What was not measured stays as it is; what a stack has no place for
/// is told.
pub fn with_measured(stack: &mut Stack, readings: &[Reading]) -> Vec<Caveat> {
    let mut spreads: HashMap<&str, (Spread, f64)> = HashMap::new();
    for reading in readings {
        let Some(part) = &reading.part else { continue };
        for name in &part.parameters {
            let (spread, stored) = spreads.entry(name).or_default();
            *spread = spread.with(reading.spread);
            if let Start::Constant(value) = part.start {
                *stored = value;
            }
        }
    }
    stack.change(|named| match named {
        Named::Tensor(tensor) => {
            let size = spreads.get(tensor.name.as_str()).and_then(|(spread, _)| spread.root_mean_square());
            match size {
                Some(std) if std > 0.0 => tensor.init = Init::Normal { std },
                Some(_) => tensor.init = Init::Zero,
                None => {}
            }
        }
        Named::Norm(name, norm) => {
            let Some((spread, stored)) = spreads.get(name.as_str()) else { return };
            let Some(std) = spread.std() else { return };
            norm.gain = (spread.mean + norm.gain - stored).hypot(std);
        }
        Named::Sum(site, sum) => {
            let size = spreads.get(format!("{site}.scale").as_str());
            let Some(size) = size.and_then(|(spread, _)| spread.root_mean_square()) else { return };
            sum.branches.iter_mut().skip(1).for_each(|branch| branch.scale = size);
        }
        Named::Attention(_) => {}
    });
    left_out(readings).into_iter().collect()
}

/// Norms of a stack have no biases, which are zero until they are trained.
fn left_out(readings: &[Reading]) -> Option<Caveat> {
    let biases = readings.iter().filter_map(|reading| {
        let part = reading.part.as_ref().filter(|part| part.parameters[0].rsplit('.').next() == Some("bias"))?;
        let size = reading.spread.root_mean_square().filter(|size| *size > 0.0)?;
        matches!(part.start, Start::Constant(_)).then_some((part, size))
    });
    let biases: Vec<_> = biases.collect();
    let (first, _) = biases.first()?;
    let largest = biases.iter().map(|(_, size)| *size).fold(0.0, f64::max);
    let text = format!("biases of norms are left out of the prediction; the largest have a size of {}", short(largest));
    Some(Caveat { site: first.parameters[0].clone(), sites: biases.len(), text })
}
