//! A sampled signal, computed when it is first read.
//!
//! In the forward pass it is computed at once. When a part of the forward pass is repeated for the backward pass,
//! arrays that the backward pass does not read are not computed again: the output of the last linear map of a branch,
//! or of a block.

use std::{
    cell::{Cell, OnceCell},
    ops::Deref,
    rc::Rc,
};

use crate::{array::Array, scalar::Scalar};

/// A signal, shared by all its readers.
#[derive(Clone)]
pub(crate) struct Signal<T: Scalar>(Rc<Later<T>>);

/// A function that computes an array, with the data that it needs.
type Work<T> = Box<dyn FnOnce() -> Array<T>>;

struct Later<T: Scalar> {
    array: OnceCell<Array<T>>,
    /// The work, until it is done.
    work: Cell<Option<Work<T>>>,
}

impl<T: Scalar> Signal<T> {
    /// A signal that is the result of `work`, which runs when the signal is first read.
    pub(crate) fn later(work: impl FnOnce() -> Array<T> + 'static) -> Self {
        Self(Rc::new(Later { array: OnceCell::new(), work: Cell::new(Some(Box::new(work))) }))
    }

    /// Returns the array, copied if other readers share it.
    pub(crate) fn into_array(self) -> Array<T> {
        match Rc::try_unwrap(self.0) {
            Ok(mut later) => match later.array.take() {
                Some(array) => array,
                None => later.compute(),
            },
            Err(shared) => Array::clone(&Self(shared)),
        }
    }
}

impl<T: Scalar> Later<T> {
    fn compute(&self) -> Array<T> {
        self.work.take().expect("an array that is not there has not been computed")()
    }
}

impl<T: Scalar> Deref for Signal<T> {
    type Target = Array<T>;

    fn deref(&self) -> &Array<T> {
        self.0.array.get_or_init(|| self.0.compute())
    }
}

impl<T: Scalar> From<Array<T>> for Signal<T> {
    fn from(array: Array<T>) -> Self {
        Self(Rc::new(Later { array: OnceCell::from(array), work: Cell::new(None) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Shape;

    fn array() -> Array<f64> {
        Array::zeros(Shape { batch: 1, seq_len: 2 }, 3)
    }

    /// The work runs once, however often the signal is read, and never if it is not.
    #[test]
    fn a_signal_is_computed_when_it_is_looked_at() {
        let runs = Rc::new(Cell::new(0));
        let counted = |runs: &Rc<Cell<usize>>| {
            let runs = Rc::clone(runs);
            Signal::later(move || {
                runs.set(runs.get() + 1);
                array()
            })
        };
        drop(counted(&runs));
        assert_eq!(runs.get(), 0);
        let signal = counted(&runs);
        let reader = signal.clone();
        assert_eq!((signal.width(), reader.width(), runs.get()), (3, 3, 1));
        assert_eq!((signal.into_array(), reader.into_array()), (array(), array()));
        assert_eq!(runs.get(), 1);
        assert_eq!(counted(&runs).into_array(), array());
        assert_eq!(runs.get(), 2);
    }
}
