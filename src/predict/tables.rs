//! Tables that depend only on shapes: positions, and sums along them.
//!
//! The latest small tables are kept for all predictions of the process, because a search or a comparison uses one shape
//! hundreds of times. Large tables, of charts of thousands of points, live as long as the prediction that needs them.

use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use sigprop_stack::{Activation, Convolution, Mask, Rotary};

use crate::mean_field::attention::{RotatedSums, Sums};
use crate::mean_field::convolution;
use crate::mean_field::dual::{Dual, function};
use crate::mean_field::positions::{
    Chart, Positions,
    layout::{ChartShape, Layout},
};
use crate::mean_field::recurrence::Ladder;
use crate::mean_field::rotation::Turn;

/// The tables of one prediction, or those that all predictions share.
#[derive(Debug, Default)]
pub(super) struct Tables {
    duals: Cache<function::Words, Dual>,
    charts: Cache<ChartShape, Chart>,
    positions: Cache<Layout, Positions>,
    turns: Cache<(Rotary, Same<Chart>), Turn>,
    convolutions: Cache<(Convolution, Same<Positions>), convolution::Rule>,
    ladders: Cache<Same<Chart>, Ladder>,
    sums: Cache<View, Sums>,
    rotated: Cache<(View, Same<Turn>), RotatedSums>,
}

/// A mask on a chart, with weights that fall like e^(−slope · distance).
#[derive(Clone, Debug, PartialEq)]
struct View {
    chart: Same<Chart>,
    mask: Mask,
    slope: f64,
}

/// A shared object that is equal only to itself.
#[derive(Debug)]
struct Same<T>(Arc<T>);

impl<T> Clone for Same<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> PartialEq for Same<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

static SHARED: LazyLock<Tables> = LazyLock::new(Tables::default);

impl Tables {
    /// Returns the tables in which results for a chart are kept: the shared tables if the chart is small, else `self`.
    fn of(&self, chart: &Chart) -> &Self {
        if chart.is_small() { &SHARED } else { self }
    }

    /// Returns the dual activation of an activation. All predictions share its table.
    pub(super) fn dual(activation: Activation) -> Arc<Dual> {
        SHARED.duals.get(&function::words(activation), || Dual::new(activation))
    }

    /// Returns the positions of this layout.
    pub(super) fn positions(&self, layout: &Layout) -> Arc<Positions> {
        let tables = if layout.is_small() { &*SHARED } else { self };
        let chart = layout.chart.as_ref().map(|shape| tables.charts.get(shape, || shape.chart()));
        let new = || Positions::new(layout, chart);
        // Every sequence of given ids has its own positions, of all pairs, which are not kept.
        if layout.has_given_ids() { Arc::new(new()) } else { tables.positions.get(layout, new) }
    }

    /// Returns the rotation of a rotary embedding at the points of a chart.
    pub(super) fn turn(&self, rotary: &Rotary, chart: &Arc<Chart>) -> Arc<Turn> {
        let key = (rotary.clone(), Same(Arc::clone(chart)));
        self.of(chart).turns.get(&key, || Turn::new(rotary, chart))
    }

    /// Returns the rule of a convolution for inputs at these positions.
    pub(super) fn convolution(&self, convolution: &Convolution, inputs: &Arc<Positions>) -> Arc<convolution::Rule> {
        let key = (convolution.clone(), Same(Arc::clone(inputs)));
        let tables = inputs.chart.as_ref().map_or(&*SHARED, |chart| self.of(chart));
        tables.convolutions.get(&key, || convolution::Rule::new(convolution, inputs))
    }

    /// Returns the sums with geometric decays on a chart.
    pub(super) fn ladder(&self, chart: &Arc<Chart>) -> Arc<Ladder> {
        self.of(chart).ladders.get(&Same(Arc::clone(chart)), || Ladder::new(chart))
    }

    /// Returns the sums of a mask on a chart, with weights that fall like e^(−slope · distance).
    pub(super) fn sums(&self, chart: &Arc<Chart>, mask: Mask, slope: f64) -> Arc<Sums> {
        let view = View { chart: Same(Arc::clone(chart)), mask, slope };
        self.of(chart).sums.get(&view, || Sums::new(chart, mask, slope))
    }

    /// Returns the sums for rotated keys and queries.
    pub(super) fn rotated(&self, chart: &Arc<Chart>, mask: Mask, slope: f64, turn: &Arc<Turn>) -> Arc<RotatedSums> {
        let view = View { chart: Same(Arc::clone(chart)), mask, slope };
        let key = (view, Same(Arc::clone(turn)));
        self.of(chart).rotated.get(&key, || RotatedSums::new(chart, mask, slope, turn))
    }
}

/// The place of a value, which the first thread that needs it computes.
type Place<V> = Arc<OnceLock<Arc<V>>>;

/// The values that were used last, each with its key.
#[derive(Debug)]
struct Cache<K, V>(Mutex<Vec<(K, Place<V>)>>);

impl<K, V> Default for Cache<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + PartialEq, V> Cache<K, V> {
    /// Returns the value of a key, computed once; other threads that ask for it wait.
    fn get(&self, key: &K, make: impl FnOnce() -> V) -> Arc<V> {
        Arc::clone(self.place(key).get_or_init(|| Arc::new(make())))
    }

    /// Returns the place of the value of `key`; it is empty if the value has not been computed yet.
    fn place(&self, key: &K) -> Place<V> {
        /// The number of keys that are kept.
        const MOST: usize = 16;
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = match entries.iter().position(|(known, _)| known == key) {
            Some(index) => entries.remove(index),
            None => (key.clone(), Arc::default()),
        };
        let place = Arc::clone(&entry.1);
        entries.push(entry);
        if entries.len() > MOST {
            entries.remove(0);
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_kept() {
        let cache = Cache::<usize, usize>::default();
        assert_eq!(*cache.get(&1, || 10), 10);
        assert_eq!(*cache.get(&1, || 11), 10);
        for other in 2..17 {
            cache.get(&other, || 0);
        }
        assert_eq!(*cache.get(&1, || 12), 10, "16 are kept");
        for other in 17..33 {
            cache.get(&other, || 0);
        }
        assert_eq!(*cache.get(&1, || 13), 13, "the latest alone");
    }
}
