//! Tables that depend on shapes alone: positions, and sums along them.
//!
//! Small ones are kept for all predictions of the process, the latest of them: a search or a comparison asks about one shape hundreds of times.
//! Large ones, of charts of thousands of points, live as long as the prediction that needs them.

use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use sigprop_stack::{Activation, Convolution, Mask, Rotary};

use crate::mean_field::attention::{RotatedSums, Sums};
use crate::mean_field::convolution;
use crate::mean_field::dual::{Dual, function};
use crate::mean_field::positions::{
    Chart, Positions,
    layout::{ChartShape, Layout},
};
use crate::mean_field::rotation::Turn;

/// The tables of one prediction, or of all.
#[derive(Debug, Default)]
pub(super) struct Tables {
    duals: Cache<function::Words, Dual>,
    charts: Cache<ChartShape, Chart>,
    positions: Cache<Layout, Positions>,
    turns: Cache<(Rotary, Same<Chart>), Turn>,
    convolutions: Cache<(Convolution, Same<Positions>), convolution::Rule>,
    sums: Cache<View, Sums>,
    rotated: Cache<(View, Same<Turn>), RotatedSums>,
}

/// A mask on a chart, of weights that fall like e^(−slope · distance).
#[derive(Clone, Debug, PartialEq)]
struct View {
    chart: Same<Chart>,
    mask: Mask,
    slope: f64,
}

/// An object that equals itself alone.
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
    /// The tables of a chart: those of all predictions if it is small.
    fn of(&self, chart: &Chart) -> &Self {
        if chart.is_small() { &SHARED } else { self }
    }

    /// The dual of an activation, whose table is the same in all predictions.
    pub(super) fn dual(activation: Activation) -> Arc<Dual> {
        SHARED.duals.get(&function::words(activation), || Dual::new(activation))
    }

    /// Positions of this layout.
    pub(super) fn positions(&self, layout: &Layout) -> Arc<Positions> {
        let tables = if layout.is_small() { &*SHARED } else { self };
        let chart = layout.chart.as_ref().map(|shape| tables.charts.get(shape, || shape.chart()));
        let new = || Positions::new(layout, chart);
        // Every sequence of given ids has positions of its own, of all pairs.
        if layout.has_given_ids() { Arc::new(new()) } else { tables.positions.get(layout, new) }
    }

    /// A rotation on a chart.
    pub(super) fn turn(&self, rotary: &Rotary, chart: &Arc<Chart>) -> Arc<Turn> {
        let key = (rotary.clone(), Same(Arc::clone(chart)));
        self.of(chart).turns.get(&key, || Turn::new(rotary, chart))
    }

    /// A convolution of tokens at these positions.
    pub(super) fn convolution(&self, convolution: &Convolution, inputs: &Arc<Positions>) -> Arc<convolution::Rule> {
        let key = (convolution.clone(), Same(Arc::clone(inputs)));
        let tables = inputs.chart.as_ref().map_or(&*SHARED, |chart| self.of(chart));
        tables.convolutions.get(&key, || convolution::Rule::new(convolution, inputs))
    }

    /// The sums of a mask on a chart, of weights that fall like e^(−slope · distance).
    pub(super) fn sums(&self, chart: &Arc<Chart>, mask: Mask, slope: f64) -> Arc<Sums> {
        let view = View { chart: Same(Arc::clone(chart)), mask, slope };
        self.of(chart).sums.get(&view, || Sums::new(chart, mask, slope))
    }

    /// The sums of keys and queries that are rotated.
    pub(super) fn rotated(&self, chart: &Arc<Chart>, mask: Mask, slope: f64, turn: &Arc<Turn>) -> Arc<RotatedSums> {
        let view = View { chart: Same(Arc::clone(chart)), mask, slope };
        let key = (view, Same(Arc::clone(turn)));
        self.of(chart).rotated.get(&key, || RotatedSums::new(chart, mask, slope, turn))
    }
}

/// A value that one thread makes.
type Place<V> = Arc<OnceLock<Arc<V>>>;

/// The latest values, by key.
#[derive(Debug)]
struct Cache<K, V>(Mutex<Vec<(K, Place<V>)>>);

impl<K, V> Default for Cache<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + PartialEq, V> Cache<K, V> {
    /// The value of a key, made once; other threads that ask for it wait.
    fn get(&self, key: &K, make: impl FnOnce() -> V) -> Arc<V> {
        Arc::clone(self.place(key).get_or_init(|| Arc::new(make())))
    }

    /// Where the value of a key is or will be.
    fn place(&self, key: &K) -> Place<V> {
        /// How many keys are kept.
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
