//! DeepNorm: Post-LN with x ↦ norm(α x + f(x)), α = (2N)^(1/4), and Xavier weights with gain
//! β = (8N)^(−1/4) in values, attention output and the feed-forward network; N blocks.
//!
//! # Source
//!
//! Wang et al. 2022, *DeepNet*, figure 2 (encoder only); gain form as in the authors' code.

use super::{About, Outer, Role, SchemeError};
use crate::architecture::{Kind, NormPlacement, Resolved};
use crate::recipe::{Entrance, Fans, Projection, Projections, Recipe, Residual, normal};

pub(super) const ABOUT: About = About {
    name: "deepnorm",
    parameters: &[],
    rule: "skip_scale (2N)^(1/4), branch_scale 1; Xavier normal with gain (8N)^(−1/4) for values, attention output and \
           the feed-forward network, gain 1 for queries and keys; N blocks",
    source: "Wang et al. 2022, DeepNet, figure 2, encoder only; defined for post-norm encoders",
    touches: "all linear weights, scales of the residual connections",
    build: |_| Box::new(DeepNorm),
};

#[derive(Debug)]
struct DeepNorm;

impl Recipe for DeepNorm {
    fn residual(&self, architecture: &Resolved) -> Residual {
        Residual { skip: (2.0 * architecture.n_layers as f64).powf(0.25), branch: 1.0 }
    }

    fn outer(&self, _: &Resolved, _: Outer, fans: Fans) -> Projection {
        normal(fans.xavier_std()).into()
    }

    fn projections<'a>(&'a self, architecture: &'a Resolved, _: &Entrance) -> Result<Projections<'a>, SchemeError> {
        let beta = (8.0 * architecture.n_layers as f64).powf(-0.25);
        Ok(Box::new(move |slot| {
            let gain = match slot.role {
                Role::Query | Role::QueryDown | Role::Key | Role::KvDown | Role::Router => 1.0,
                Role::Value
                | Role::AttentionOutput
                | Role::FfnIn
                | Role::FfnGate
                | Role::FfnUp
                | Role::FfnOut
                | Role::ExpertOut
                | Role::Hidden => beta,
            };
            normal(gain * slot.fans.xavier_std()).into()
        }))
    }

    fn caveat(&self, architecture: &Resolved) -> Option<String> {
        let post = architecture.norm.is_some() && architecture.norm_placement == NormPlacement::Post;
        let encoder = architecture.kind == Kind::Encoder && architecture.decoder.is_none();
        (!encoder || !post)
            .then(|| "DeepNorm is defined for encoders that normalise after every residual sum".to_owned())
    }
}
