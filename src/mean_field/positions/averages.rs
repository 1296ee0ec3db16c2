//! Averages of a function of the distance.

/// The sums of a function up to every distance.
#[derive(Clone, Debug)]
pub(crate) struct Averages(Vec<f64>);

impl Averages {
    /// Of a function with these values at the distances from 0.
    pub(crate) fn new(values: impl Iterator<Item = f64>) -> Self {
        let mut sums = vec![0.0];
        sums.extend(values.scan(0.0, |sum, value| {
            *sum += value;
            Some(*sum)
        }));
        Self(sums)
    }

    /// How many distances there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len() - 1
    }

    /// The average over the distances up to `half` away from `distance`.
    pub(crate) fn around(&self, distance: usize, half: usize) -> f64 {
        self.mean(distance - half, distance + half)
    }

    /// The average over the distances from `first` to `last`.
    pub(crate) fn mean(&self, first: usize, last: usize) -> f64 {
        (self.0[last + 1] - self.0[first]) / (last + 1 - first) as f64
    }
}
