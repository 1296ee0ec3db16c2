//! Groups of readings: the same tensor of all blocks.

use super::{Deviation, Reading, Spread};
use crate::huggingface::Start;

/// The readings of all tensors whose names differ only in the numbers of blocks and experts.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// Name of the tensor in the checkpoint, with `*` for numbers.
    pub pattern: &'a str,
    /// The name of the parameter in the network, with `*` for the number of the block; `None` if it is not known.
    pub parameter: Option<&'a str>,
    /// The readings, each with its deviation from the scheme. The deviation is `None` if the parameter is not known or
    /// no entry is finite.
    pub readings: Vec<(&'a Reading, Option<Deviation>)>,
    /// The statistics of the judged entries of all readings together, without rows of other sizes.
    pub spread: Spread,
}

impl<'a> Group<'a> {
    /// Returns the groups in the order of their first readings.
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

    /// Returns the name in the checkpoint, followed by the part if the tensor holds several.
    pub fn title(&self) -> String {
        self.readings[0].0.title()
    }

    /// Returns the readings that deviate.
    pub fn deviating(&self) -> impl Iterator<Item = (&'a Reading, Deviation)> {
        self.readings
            .iter()
            .filter_map(|(reading, deviation)| Some((*reading, deviation.filter(|found| found.deviates)?)))
    }

    /// Returns the smallest and the largest standard deviation with which the scheme initialises these tensors; `None`
    /// for constants.
    pub fn scheme_stds(&self) -> Option<(f64, f64)> {
        let stds = self.readings.iter().filter_map(|(_, deviation)| match deviation.as_ref()?.start {
            Start::Drawn(init) => Some(init.std()),
            Start::Constant(_) | Start::LogRates(_) | Start::StepBiases(_) => None,
        });
        stds.fold(None, |range, std| {
            Some(range.map_or((std, std), |(low, high): (f64, f64)| (low.min(std), high.max(std))))
        })
    }

    /// Returns the z-score that is furthest from zero among those of the readings; `None` if no reading has one.
    pub fn worst_z(&self) -> Option<f64> {
        let zs = self.readings.iter().filter_map(|(_, deviation)| deviation.as_ref()?.z);
        zs.max_by(|a, b| a.abs().total_cmp(&b.abs()))
    }

    /// Returns the ratio of the largest singular value of a reading to that of a random matrix of the same size, for
    /// the reading where it is largest; `None` if no singular value was measured.
    pub fn singular_ratio(&self) -> Option<f64> {
        let ratios = self.readings.iter().filter_map(|(reading, _)| {
            let random = reading.random_singular_value().filter(|random| *random > 0.0)?;
            Some(reading.singular_value? / random)
        });
        ratios.max_by(f64::total_cmp)
    }
}
