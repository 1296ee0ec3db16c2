//! A sampled signal, computed when it is first looked at.
//!
//! In the forward pass that is at once. Where a part of it is repeated for the backward pass, what that does not look
//! at is not computed again: the last linear map of a branch, the output of a block.

use std::{
    cell::{Cell, OnceCell},
    ops::Deref,
    rc::Rc,
};

use crate::{array::Array, scalar::Scalar};

/// Shared by everything that reads it.
#[derive(Clone)]
pub(crate) struct Signal<T: Scalar>(Rc<Later<T>>);

/// What computes an array, with what that needs.
type Work<T> = Box<dyn FnOnce() -> Array<T>>;

struct Later<T: Scalar> {
    array: OnceCell<Array<T>>,
    /// Until it is done.
    work: Cell<Option<Work<T>>>,
}

impl<T: Scalar> Signal<T> {
    /// What `work` will return, if it is looked at.
    pub(crate) fn later(work: impl FnOnce() -> Array<T> + 'static) -> Self {
        Self(Rc::new(Later { array: OnceCell::new(), work: Cell::new(Some(Box::new(work))) }))
    }

    /// The array by itself, copied if others read it too.
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

    /// Once, however often it is looked at, and never if it is not.
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
