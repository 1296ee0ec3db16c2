//! The same tensor of all blocks.

use super::{Deviation, Reading, Spread};
use crate::huggingface::Start;

/// Readings of one name, numbers of blocks and experts left out.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// Name of the tensor in the checkpoint, with `*` for numbers.
    pub pattern: &'a str,
    /// What of ours it is, with `*` for the number of the block; none if that is not known.
    pub parameter: Option<&'a str>,
    /// The readings, with how each deviates.
    pub readings: Vec<(&'a Reading, Option<Deviation>)>,
    /// All entries of all readings together that are judged.
    pub spread: Spread,
}

impl<'a> Group<'a> {
    /// Groups in the order of their first readings.
    pub fn all(readings: &'a [Reading]) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        let mut places = std::collections::HashMap::new();
        for reading in readings {
            let parameter = reading.part.as_ref().map(|part| part.pattern.as_str());
            let key = (reading.pattern.as_str(), parameter);
            let place = *places.entry(key).or_insert(groups.len());
            if place == groups.len() {
                groups.push(Self { pattern: key.0, parameter, readings: Vec::new(), spread: Spread::default() });
            }
            let group = &mut groups[place];
            let deviation = reading.part.as_ref().and_then(|part| Deviation::of(reading.judged(), part.start));
            group.readings.push((reading, deviation));
            group.spread = group.spread.with(*reading.judged());
        }
        groups
    }

    /// The name in the checkpoint, and which part of it, if it holds several.
    pub fn title(&self) -> String {
        self.readings[0].0.title()
    }

    /// Those that deviate.
    pub fn deviating(&self) -> impl Iterator<Item = (&'a Reading, Deviation)> {
        self.readings
            .iter()
            .filter_map(|(reading, deviation)| Some((*reading, deviation.filter(|found| found.deviates)?)))
    }

    /// The smallest and the largest standard deviation that the scheme says, constants having none.
    pub fn scheme_stds(&self) -> Option<(f64, f64)> {
        let stds = self.readings.iter().filter_map(|(_, deviation)| match deviation.as_ref()?.start {
            Start::Drawn(init) => Some(init.std()),
            Start::Constant(_) => None,
        });
        stds.fold(None, |range, std| {
            Some(range.map_or((std, std), |(low, high): (f64, f64)| (low.min(std), high.max(std))))
        })
    }

    /// The z that is furthest from zero.
    pub fn worst_z(&self) -> Option<f64> {
        let zs = self.readings.iter().filter_map(|(_, deviation)| deviation.as_ref()?.z);
        zs.max_by(|a, b| a.abs().total_cmp(&b.abs()))
    }

    /// The largest singular value over that of a random matrix of the same size, where it is largest.
    pub fn singular_ratio(&self) -> Option<f64> {
        let ratios = self.readings.iter().filter_map(|(reading, _)| {
            let random = reading.random_singular_value().filter(|random| *random > 0.0)?;
            Some(reading.singular_value? / random)
        });
        ratios.max_by(f64::total_cmp)
    }
}
