//! DeepNorm: Post-LN with x ↦ norm(α x + f(x)), and Xavier weights with gain β in values, attention output
//! and the feed-forward network.
//!
//! # Formula
//!
//! For N blocks in the encoder and M in the decoder:
//!
//! ```text
//! one stack   α = (2N)^(1/4)             β = (8N)^(−1/4)
//! encoder     α = 0.81 (N⁴M)^(1/16)      β = 0.87 (N⁴M)^(−1/16)
//! decoder     α = (3M)^(1/4)             β = (12M)^(−1/4)
//! ```
//!
//! # Source
//!
//! Wang et al. 2022, *DeepNet*, figure 2; the form of the gain is that of the authors' code for encoder–decoders.
//! (torchscale divides the gain of the encoder by (N⁴M)^(1/16)/1.15, which makes β 1.32 times as large.)

use super::{About, Outer, SchemeError, xavier};
use crate::architecture::{Kind, NormPlacement, Resolved};
use crate::recipe::{Entrance, Fans, Projection, Projections, Recipe, Residual, Residuals, normal};

pub(super) const ABOUT: About = About {
    name: "deepnorm",
    parameters: &[],
    rule: "skip_scale α, branch_scale 1; Xavier normal with gain β for values, attention output and the feed-forward \
           network, gain 1 for queries and keys. One stack of N blocks: α = (2N)^(1/4), β = (8N)^(−1/4). With a \
           decoder of M blocks: α = 0.81 (N⁴M)^(1/16), β = 0.87 (N⁴M)^(−1/16). The decoder: α = (3M)^(1/4), \
           β = (12M)^(−1/4)",
    source: "Wang et al. 2022, DeepNet, figure 2; defined for post-norm",
    touches: "all linear weights, scales of the residual connections",
    build: |_| Box::new(DeepNorm),
};

#[derive(Debug)]
struct DeepNorm;

/// Returns the constants α and β of the scheme for a stream.
fn constants(architecture: &Resolved) -> (f64, f64) {
    let depth = architecture.n_layers as f64;
    match (&architecture.decoder, architecture.memory_width) {
        (Some(decoder), _) => {
            let root = (depth.powi(4) * decoder.n_layers as f64).powf(0.0625);
            (0.81 * root, 0.87 / root)
        }
        (None, Some(_)) => ((3.0 * depth).powf(0.25), (12.0 * depth).powf(-0.25)),
        (None, None) => ((2.0 * depth).powf(0.25), (8.0 * depth).powf(-0.25)),
    }
}

impl Recipe for DeepNorm {
    fn residuals<'a>(&'a self, architecture: &'a Resolved, _: &Entrance) -> Result<Residuals<'a>, SchemeError> {
        Ok(Residual::constant(constants(architecture).0, 1.0).everywhere())
    }

    fn outer(&self, _: &Resolved, _: Outer, fans: Fans) -> Projection {
        normal(fans.xavier_std()).into()
    }

    fn projections<'a>(&'a self, architecture: &'a Resolved, _: &Entrance) -> Result<Projections<'a>, SchemeError> {
        let (_, beta) = constants(architecture);
        Ok(Box::new(move |slot| xavier::with_value_gain(slot, beta)))
    }

    fn caveat(&self, architecture: &Resolved) -> Option<String> {
        let post = architecture.norm.is_some() && architecture.norm_placement == NormPlacement::Post;
        (architecture.kind != Kind::Encoder || !post)
            .then(|| "DeepNorm is defined for Transformers that normalise after every residual sum".to_owned())
    }
}
