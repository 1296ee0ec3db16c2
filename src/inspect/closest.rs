//! The known scheme that a checkpoint most resembles.
//!
//! # Formula
//!
//! A tensor has √E w² = s and the fourth moment κs⁴, a scheme has σ and κ_σ. The distance between the two is
//! √(ln²(s/σ) + (¼ ln(κ/κ_σ))²), which compares the sizes of a typical and of a large entry. Tensors of the same name
//! in all blocks count once, with the mean of the squares of their distances.

use std::collections::{BTreeMap, HashMap};

use super::Reading;
use super::spread::Spread;
use crate::architecture::Architecture;
use crate::assemble::{Input, Run, assemble};
use crate::huggingface::{Held, Names, Start};
use crate::schemes::{SCHEMES, Scheme};
use sigprop_stack::{Init, parameters};

/// The ratio of the measured to the initial size that is assumed if only one of them is zero.
const NOTHING: f64 = 1000.0;

/// A scheme, and the distance of a checkpoint from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Resemblance {
    /// The scheme, with its arguments.
    pub scheme: String,
    /// The root mean square distance (see the header) of all sampled tensors from the scheme, as a factor; 1 if all
    /// agree with it.
    pub factor: f64,
}

/// The initialisation of a network by a scheme, under a name.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The name of the candidate.
    pub name: String,
    /// The initialisation of every parameter, by its name in the network.
    starts: HashMap<String, Start>,
}

impl Candidate {
    /// Applies a scheme to an architecture; `None` if the scheme is not defined for it.
    pub fn new(name: &str, architecture: &Architecture, names: &Names, scheme: &Scheme) -> Option<Self> {
        let stack = assemble(architecture, scheme, &Input::default(), &Run::default()).ok()?.stack;
        Some(Self::of(name, &names.held(&parameters(&stack).ok()?)))
    }

    /// Returns the candidate that initialises tensors as listed in `held`.
    pub fn of(name: &str, held: &[Held]) -> Self {
        let parts = held.iter().flat_map(|held| &held.parts);
        let starts = parts.map(|part| (part.parameters[0].clone(), part.start)).collect();
        Self { name: name.to_owned(), starts }
    }

    /// Returns every scheme that needs no arguments and is defined for the architecture, and one more candidate: a
    /// normal distribution for all tensors, whose standard deviation is the median of the measured ones, to two digits.
    pub fn known(architecture: &Architecture, names: &Names, readings: &[Reading]) -> Vec<Self> {
        let named =
            SCHEMES.iter().filter(|about| about.name != "hf").filter_map(|about| Scheme::parse(about.name).ok());
        let everywhere = median(readings).and_then(|std| Scheme::parse(&format!("normal:{std:.1e}")).ok());
        let schemes: Vec<Scheme> = named.chain(everywhere).collect();
        schemes.iter().filter_map(|scheme| Self::new(&scheme.to_string(), architecture, names, scheme)).collect()
    }

    /// Returns the distance of the readings from the candidate; `None` if no tensor can be compared.
    pub fn resemblance(&self, readings: &[Reading]) -> Option<Resemblance> {
        // A fixed order gives equal sums for equal terms.
        let mut tensors: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        for reading in readings {
            let Some(part) = &reading.part else { continue };
            let Some(Start::Drawn(init)) = self.starts.get(&part.parameters[0]) else { continue };
            let Some(square) = square_of_distance(&reading.spread, *init) else { continue };
            let (sum, count) = tensors.entry(&part.pattern).or_default();
            (*sum, *count) = (*sum + square, *count + 1.0);
        }
        let mean = tensors.values().map(|(sum, count)| sum / count).sum::<f64>() / tensors.len() as f64;
        (!tensors.is_empty()).then(|| Resemblance { scheme: self.name.clone(), factor: mean.sqrt().exp() })
    }
}

fn square_of_distance(spread: &Spread, init: Init) -> Option<f64> {
    let (got, expected) = (spread.root_mean_square()?, init.std());
    let size = match (got > 0.0, expected > 0.0) {
        (true, true) => (got / expected).ln(),
        (false, false) => 0.0,
        (true, false) | (false, true) => NOTHING.ln(),
    };
    let shape = match (spread.kurtosis(), init.kurtosis()) {
        (Some(got), Some(expected)) => 0.25 * (got / expected).ln(),
        (None, _) | (_, None) => 0.0,
    };
    Some(size * size + shape * shape)
}

/// Returns the median of the standard deviations of matrices.
fn median(readings: &[Reading]) -> Option<f64> {
    let matrices = readings.iter().filter(|reading| reading.part.is_some() && reading.shape[1] > 1);
    let mut stds: Vec<f64> = matrices.filter_map(|reading| reading.spread.std()).filter(|std| *std > 0.0).collect();
    stds.sort_by(f64::total_cmp);
    stds.get(stds.len() / 2).copied()
}
