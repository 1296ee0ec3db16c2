//! LeCun: std 1/√fan_in.
//!
//! # Source
//!
//! LeCun et al. 1998, *Efficient BackProp*, eq. 16.

use super::{About, SchemeError};
use crate::architecture::Resolved;
use crate::recipe::normal;
use crate::recipe::{Entrance, Projections, Recipe};

pub(super) const ABOUT: About = About {
    name: "lecun",
    parameters: &[],
    rule: "weights N(0, 1/fan_in)",
    source: "LeCun et al. 1998, Efficient BackProp, eq. 16",
    touches: "all linear weights",
    build: |_| Box::new(Lecun),
};

#[derive(Debug)]
struct Lecun;

impl Recipe for Lecun {
    fn projections<'a>(&'a self, _: &'a Resolved, _: &Entrance) -> Result<Projections<'a>, SchemeError> {
        Ok(Box::new(|slot| normal(slot.fans.lecun_std()).into()))
    }
}
