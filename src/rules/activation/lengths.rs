//! What an activation makes of the lengths of single tokens (`domain/lengths.rs`).

use std::array::from_fn;

use super::scales::Scales;
use crate::domain::{Law, Step};

/// Of so many entries, whose φ² draw `tail` times as much as those of Gaussian ones, before a gradient that knows them less
/// their mean to the part `centred`.
pub(super) fn step(scales: &Scales, (width, tail): (f64, f64), centred: f64) -> impl Fn(f64) -> Option<Step> + '_ {
    move |place| {
        let at = scales.at(place);
        let [together, kept] = at.known(centred);
        Some(Step {
            width,
            ln_gains: [at.ln_second - place, at.ln_derivative_second],
            drawn: [tail * at.kurtosis, 3.0 * at.derivative_kurtosis],
            together,
            radial: [kept, 1.0 - 2.0 * at.exponent],
        })
    }
}

/// What squares of two tokens, whose cosines have this mean and concentration, have in common (`Profile::squares`), on
/// average over their scales.
pub(super) fn squares(scales: &Scales, law: &Law, (cosine, concentration): (f64, f64)) -> [f64; 3] {
    law.points().fold([0.0; 3], |sum, (place, share)| {
        let squares = scales.near(place).squares;
        from_fn(|k| sum[k] + share * squares[k].at(cosine, concentration))
    })
}
