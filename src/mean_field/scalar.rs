//! The numbers that moments are made of: f64, or dual numbers that carry derivatives along.

use smallvec::SmallVec;
use std::fmt::Debug;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};

/// One number per node, or per pair of nodes and class: seldom more than have room in place.
pub(crate) type Few<S> = SmallVec<[S; 2]>;

/// A real number, perhaps with its derivatives by some variables.
pub(crate) trait Scalar:
    Copy
    + Debug
    + From<f64>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Add<f64, Output = Self>
    + Sub<f64, Output = Self>
    + Mul<f64, Output = Self>
    + Div<f64, Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + Sum
{
    /// The number without its derivatives.
    fn value(self) -> f64;

    /// f of the number, from f, f' and f'' at its value.
    fn chain(self, derivatives: impl FnOnce(f64) -> [f64; 3]) -> Self;

    /// √x.
    fn sqrt(self) -> Self {
        self.chain(|x| {
            let root = x.sqrt();
            [root, 0.5 / root, -0.25 / (root * x)]
        })
    }

    /// e^x.
    fn exp(self) -> Self {
        self.chain(|x| [x.exp(); 3])
    }

    /// ln x.
    fn ln(self) -> Self {
        self.chain(|x| [x.ln(), x.recip(), -(x * x).recip()])
    }

    /// 1/x.
    fn recip(self) -> Self {
        self.chain(|x| {
            let inverse = x.recip();
            [inverse, -inverse * inverse, 2.0 * inverse.powi(3)]
        })
    }

    /// arcsin x.
    fn asin(self) -> Self {
        self.chain(|x| {
            let cosine2 = 1.0 - x * x;
            [x.asin(), cosine2.sqrt().recip(), x / (cosine2 * cosine2.sqrt())]
        })
    }

    /// arccos x.
    fn acos(self) -> Self {
        self.chain(|x| {
            let sine2 = 1.0 - x * x;
            [x.acos(), -sine2.sqrt().recip(), -x / (sine2 * sine2.sqrt())]
        })
    }

    /// x, or the end of the interval that it lies beyond, where derivatives are zero.
    fn clamped(self, low: f64, high: f64) -> Self {
        if self.value() < low {
            Self::from(low)
        } else if self.value() > high {
            Self::from(high)
        } else {
            self
        }
    }
}

impl Scalar for f64 {
    fn value(self) -> f64 {
        self
    }

    fn chain(self, derivatives: impl FnOnce(f64) -> [f64; 3]) -> Self {
        derivatives(self)[0]
    }
}
