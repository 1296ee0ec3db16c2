//! Maps from a sequence to the sequence with one more token before all others, and back.

use smallvec::SmallVec;

use super::chart::Chart;
use super::cubic::Stencil;
use super::grid::point;
use super::{Given, Positions};
use crate::mean_field::few::Few;

/// The id of a token that is in no table.
const NO_ID: u32 = u32::MAX;

impl Positions {
    /// Returns these positions with one more token before all others.
    pub(crate) fn with_first(&self) -> Self {
        let Some(chart) = &self.chart else {
            let tokens: Few<f64> = std::iter::once(1.0).chain(self.tokens.iter().copied()).collect();
            return Self::groups(&tokens, self.repetition.clone());
        };
        let given = self.given.as_ref().map(|given| Given {
            ids: std::iter::once(NO_ID).chain(given.ids.iter().copied()).collect(),
            repetition: given.repetition.clone(),
        });
        let boundary = self.boundary.map(|boundary| boundary + 1.0);
        Self { given, boundary, ..Self::on(chart.resampled(chart.length + 1), self.repetition.clone()) }
    }

    /// Converts a function of one position to the nodes of `others`, the positions with one more token before all
    /// others. The function is 0 at this token.
    pub(crate) fn own_behind(&self, others: &Self, own: &[f64]) -> Few<f64> {
        self.own_at(others, own, |at| at.checked_sub(1))
    }

    /// Converts a function of two positions to the points of `others`, the positions with one more token before all
    /// others. The function is 0 at pairs with this token.
    pub(crate) fn pairs_behind(&self, others: &Self, pairs: &[f64]) -> Few<f64> {
        self.pairs_at(others, pairs, |at| at.checked_sub(1))
    }

    /// Converts a function of one position to the nodes of `others`, the positions without the first token.
    pub(crate) fn own_without_first(&self, others: &Self, own: &[f64]) -> Few<f64> {
        self.own_at(others, own, |at| Some(at + 1))
    }

    /// Converts a function of two positions to the points of `others`, the positions without the first token.
    pub(crate) fn pairs_without_first(&self, others: &Self, pairs: &[f64]) -> Few<f64> {
        self.pairs_at(others, pairs, |at| Some(at + 1))
    }

    fn own_at(&self, others: &Self, own: &[f64], place: impl Fn(usize) -> Option<usize>) -> Few<f64> {
        let (Some(chart), Some(of_others)) = (&self.chart, &others.chart) else {
            return (0..others.nodes()).map(|node| place(node).map_or(0.0, |node| own[node])).collect();
        };
        of_others.nodes().iter().map(|&at| place(at).map_or(0.0, |at| at_position(chart, own, at))).collect()
    }

    fn pairs_at(&self, others: &Self, pairs: &[f64], place: impl Fn(usize) -> Option<usize>) -> Few<f64> {
        let of_class = |class: usize| -> SmallVec<[f64; 4]> {
            let pairs = &pairs[self.class(class)];
            let (Some(chart), Some(of_others)) = (&self.chart, &others.chart) else {
                let group = |pair: usize| {
                    let (first, second) = others.nodes_of(pair);
                    Some(pairs[point(place(first)?, place(second[0].0 as usize)?) as usize])
                };
                return (0..others.first.len()).map(|point| group(point).unwrap_or(0.0)).collect();
            };
            let all = chart.all(pairs);
            let at = |(first, second): (usize, usize)| {
                let found = chart.found(place(first)?, place(second)?);
                Some(found.iter().map(|&(place, weight)| all[place as usize] * weight).sum::<f64>())
            };
            of_others.lower_positions().map(|positions| at(positions).unwrap_or(0.0)).collect()
        };
        (0..self.classes.len()).flat_map(of_class).collect()
    }
}

fn at_position(chart: &Chart, own: &[f64], at: usize) -> f64 {
    let Stencil { start, weights } = chart.at[at];
    (start..).zip(weights).filter(|(_, weight)| weight.abs() > 0.0).map(|(node, weight)| own[node] * weight).sum()
}
