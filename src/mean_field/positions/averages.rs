//! Averages of a function of the distance.

/// Cumulative sums of a function of the distance, from which averages over ranges of distances follow.
#[derive(Clone, Debug)]
pub(crate) struct Averages(Vec<f64>);

impl Averages {
    /// Sums up a function, from its values at the distances 0, 1, …
    pub(crate) fn new(values: impl Iterator<Item = f64>) -> Self {
        let mut sums = vec![0.0];
        sums.extend(values.scan(0.0, |sum, value| {
            *sum += value;
            Some(*sum)
        }));
        Self(sums)
    }

    /// The number of distances.
    pub(crate) fn len(&self) -> usize {
        self.0.len() - 1
    }

    /// Returns the average over the distances up to `half` away from `distance`.
    pub(crate) fn around(&self, distance: usize, half: usize) -> f64 {
        self.mean(distance - half, distance + half)
    }

    /// Returns the average over the distances from `first` to `last`.
    pub(crate) fn mean(&self, first: usize, last: usize) -> f64 {
        (self.0[last + 1] - self.0[first]) / (last + 1 - first) as f64
    }
}
