//! SubLN (Magneto): norms also before the last map of every branch, and Xavier weights with gain γ in values, attention
//! output and the feed-forward network.
//!
//! # Formula
//!
//! For N blocks in the encoder and M in the decoder; cross-attention has gain 1:
//!
//! ```text
//! one stack γ = √(ln 2N)      encoder γ = √(ln 3M · ln 2N / 3)      decoder γ = √(ln 3M)
//! ```
//!
//! # Source
//!
//! Wang et al. 2022, *Foundation Transformers*, figure 2; torchscale.

use super::{About, Outer, SchemeError, xavier};
use crate::architecture::{Kind, NormPlacement, Resolved};
use crate::recipe::{Entrance, Fans, Projection, Projections, Recipe, normal};

pub(super) const ABOUT: About = About {
    name: "subln",
    parameters: &[],
    rule: "Xavier normal with gain γ for values, attention output and the feed-forward network, gain 1 for queries, \
           keys and cross-attention. One stack of N blocks: γ = √(ln 2N). With a decoder of M blocks: \
           γ = √(ln 3M · ln 2N / 3). The decoder: γ = √(ln 3M)",
    source: "Wang et al. 2022, Foundation Transformers (Magneto), figure 2; torchscale; for norm placement sub",
    touches: "all linear weights",
    build: |_| Box::new(SubLn),
};

#[derive(Debug)]
struct SubLn;

/// The gain γ.
fn gain(architecture: &Resolved) -> f64 {
    let depth = architecture.n_layers as f64;
    let decoder = |blocks: f64| (3.0 * blocks).ln();
    match (&architecture.decoder, architecture.memory_width) {
        (Some(other), _) => (decoder(other.n_layers as f64) * (2.0 * depth).ln() / 3.0).sqrt(),
        (None, Some(_)) => decoder(depth).sqrt(),
        (None, None) => (2.0 * depth).ln().sqrt(),
    }
}

impl Recipe for SubLn {
    fn outer(&self, _: &Resolved, _: Outer, fans: Fans) -> Projection {
        normal(fans.xavier_std()).into()
    }

    fn projections<'a>(&'a self, architecture: &'a Resolved, _: &Entrance) -> Result<Projections<'a>, SchemeError> {
        let gain = gain(architecture);
        Ok(Box::new(move |slot| xavier::with_value_gain(slot, if slot.cross { 1.0 } else { gain })))
    }

    fn caveat(&self, architecture: &Resolved) -> Option<String> {
        let sub = architecture.norm.is_some() && architecture.norm_placement == NormPlacement::Sub;
        (architecture.kind != Kind::Encoder || !sub)
            .then(|| "SubLN is defined for Transformers of norm placement sub".to_owned())
    }
}
