//! Gradients of weight tensors: E (dL/dW)² for one sequence.
//!
//! The gradients of the sequences of a batch are squared separately and averaged. A tensor that is used several times
//! (equal names) has the sum of their gradients, so nothing is squared before its last use.

use std::{
    collections::{BTreeMap, HashMap},
    mem,
};

use crate::{plan::Plan, scalar::Scalar, statistics::Moments};

/// Gradient of a tensor from one sequence.
pub(crate) enum TensorGradient<T> {
    /// All entries.
    Dense(Vec<T>),
    /// The rows that are not zero.
    Rows(BTreeMap<usize, Vec<T>>),
}

impl<T: Scalar> TensorGradient<T> {
    fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Dense(mut entries), Self::Dense(others)) => {
                add(&mut entries, &others);
                Self::Dense(entries)
            }
            (Self::Dense(mut entries), Self::Rows(rows)) | (Self::Rows(rows), Self::Dense(mut entries)) => {
                for (row, others) in rows {
                    add(&mut entries[row * others.len()..], &others);
                }
                Self::Dense(entries)
            }
            (Self::Rows(mut rows), Self::Rows(others)) => {
                for (row, other) in others {
                    rows.entry(row).and_modify(|entries| add(entries, &other)).or_insert(other);
                }
                Self::Rows(rows)
            }
        }
    }

    /// Returns the gradient with `change` applied to every entry.
    pub(crate) fn map<U>(self, change: impl Fn(T) -> U) -> TensorGradient<U> {
        let changed = |entries: Vec<T>| entries.into_iter().map(&change).collect();
        match self {
            Self::Dense(entries) => TensorGradient::Dense(changed(entries)),
            Self::Rows(rows) => {
                TensorGradient::Rows(rows.into_iter().map(|(row, entries)| (row, changed(entries))).collect())
            }
        }
    }

    /// Returns row `row`; `None` if it is zero.
    pub(crate) fn row(&self, row: usize, width: usize) -> Option<&[T]> {
        match self {
            Self::Dense(entries) => entries.get(row * width..(row + 1) * width),
            Self::Rows(rows) => rows.get(&row).map(Vec::as_slice),
        }
    }

    fn squares(&self) -> f64 {
        let squares = |entries: &[T]| entries.iter().map(|g| g.to_f64().powi(2)).sum::<f64>();
        match self {
            Self::Dense(entries) => squares(entries),
            Self::Rows(rows) => rows.values().map(|row| squares(row)).sum(),
        }
    }
}

/// Adds `others` to the first of `entries`.
fn add<T: Scalar>(entries: &mut [T], others: &[T]) {
    for (x, &y) in entries.iter_mut().zip(others) {
        *x += y;
    }
}

/// Arrays of the shapes of parameters, by the name of the parameter and the number of its expert, if it is in one.
pub(crate) type ByTensor<T> = HashMap<(String, Option<usize>), TensorGradient<T>>;

/// The gradients of one replicate.
pub(crate) struct WeightGradients<'a, T> {
    plan: &'a Plan,
    tensors: Vec<Gathered<T>>,
    /// The gradients from the first sequence, if they are to be kept.
    kept: Option<ByTensor<T>>,
}

struct Gathered<T> {
    uses: usize,
    /// Sums over the uses so far, one per sequence, until the last use.
    sequences: Vec<TensorGradient<T>>,
    moments: Option<Moments>,
}

impl<'a, T: Scalar> WeightGradients<'a, T> {
    pub(crate) fn new(plan: &'a Plan) -> Self {
        let tensors = plan.tensors.iter().map(|_| Gathered { uses: 0, sequences: Vec::new(), moments: None });
        Self { plan, tensors: tensors.collect(), kept: None }
    }

    /// Returns the same gradients, set to keep the gradients from the first sequence of every tensor.
    pub(crate) fn keeping(self) -> Self {
        Self { kept: Some(ByTensor::new()), ..self }
    }

    /// Returns the kept gradients.
    pub(crate) fn into_kept(self) -> ByTensor<T> {
        self.kept.unwrap_or_default()
    }

    /// Adds the gradients from one use of a tensor, one per sequence.
    pub(crate) fn add(
        &mut self,
        name: &str,
        expert: Option<usize>,
        sequences: impl Iterator<Item = TensorGradient<T>>,
    ) {
        let key = (name.to_owned(), expert);
        let Some(&index) = self.plan.tensor_index.get(&key) else { return };
        let (planned, gathered) = (&self.plan.tensors[index], &mut self.tensors[index]);
        let mut earlier = mem::take(&mut gathered.sequences).into_iter();
        let sums = sequences.map(|gradient| match earlier.next() {
            Some(sum) => sum.plus(gradient),
            None => gradient,
        });
        gathered.uses += 1;
        if gathered.uses < planned.uses {
            gathered.sequences = sums.collect();
        } else {
            let mut squares = 0.0;
            for (sequence, gradient) in sums.enumerate() {
                squares += gradient.squares();
                if let Some(kept) = self.kept.as_mut().filter(|_| sequence == 0) {
                    kept.insert(key.clone(), gradient);
                }
            }
            gathered.moments = Some(Moments::of_squares(self.plan.batch as f64 * planned.entries, squares));
        }
    }

    /// Returns the sums for each planned tensor; `None` for a tensor if the pass ended before its last use, or if its
    /// gradient left the range of f32.
    pub(crate) fn moments(&self) -> Vec<Option<Moments>> {
        self.tensors.iter().map(|gathered| gathered.moments.filter(Moments::in_range)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dense() -> TensorGradient<f64> {
        TensorGradient::Dense(vec![1.0, 2.0, 3.0, 4.0])
    }

    fn rows(rows: &[usize]) -> TensorGradient<f64> {
        TensorGradient::Rows(rows.iter().map(|&row| (row, vec![10.0, 20.0])).collect())
    }

    /// Two rows of two entries: squares of the sums by hand.
    #[test]
    fn gradients_add_before_they_are_squared() {
        for (sum, expected) in [
            (dense().plus(dense()), 4 + 16 + 36 + 64),
            (dense().plus(rows(&[1])), 1 + 4 + 169 + 576),
            (rows(&[1]).plus(dense()), 1 + 4 + 169 + 576),
            (rows(&[0, 1]).plus(rows(&[1])), 100 + 400 + 400 + 1600),
            (rows(&[0]).plus(rows(&[1])), 100 + 400 + 100 + 400),
        ] {
            assert_eq!(sum.squares() as i64, expected);
        }
    }
}
