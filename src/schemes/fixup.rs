//! Fixup: branches that start at zero and grow by as much as one layer would, no norms.
//!
//! # Formula
//!
//! For branches of m weight layers and L residual connections; He's std is √(2/fan_out):
//!
//! ```text
//! first m − 1 layers  √(2/fan_out) · L^(−1/(2m − 2))      last layer 0      head 0
//! ```
//!
//! # Assumptions
//!
//! Values and output are the two layers of attention; queries and keys have Xavier's std. A gate and its linear branch
//! count as two layers. The scalar biases and multipliers of Fixup start at 0 and 1 and change nothing.
//!
//! # Source
//!
//! Zhang et al. 2019, *Fixup Initialization*, section 3; `fixup_resnet_cifar.py` for fan_out. The extension to
//! Transformers is ours.

use super::branches::replaces_norms;
use super::{About, Outer, Role, SchemeError};
use crate::architecture::{Activation, Resolved};
use crate::recipe::{Entrance, Fans, Projection, Projections, Recipe, normal};
use sigprop_stack::Init;

pub(super) const ABOUT: About = About {
    name: "fixup",
    parameters: &[],
    rule: "branches of m layers, L residual connections: the first m − 1 std √(2/fan_out) · L^(−1/(2m − 2)), the last 0; \
           head 0; queries and keys Xavier. Values and output: m = 2; feed-forward: m = 2, gated 3; a layer of an MLP: \
           m = 1",
    source: "Zhang et al. 2019, Fixup Initialization, section 3, and its code; attention and gates by analogy; for ReLU \
             without norms",
    touches: "all linear weights",
    build: |_| Box::new(Fixup),
};

#[derive(Debug)]
struct Fixup;

impl Recipe for Fixup {
    fn outer(&self, _: &Resolved, place: Outer, fans: Fans) -> Projection {
        match place {
            Outer::Head => Init::Zero,
            Outer::EmbeddingIn | Outer::EmbeddingOut | Outer::Stem => normal(fans.lecun_std()),
        }
        .into()
    }

    fn projections<'a>(&'a self, architecture: &'a Resolved, _: &Entrance) -> Result<Projections<'a>, SchemeError> {
        // An MLP without residual connections has no branches, so that nothing is scaled.
        let branches = architecture.residual_sublayers().max(1) as f64;
        let layers = if architecture.activation.is_gated() { 3.0 } else { 2.0 };
        Ok(Box::new(move |slot| {
            let he = (2.0 / slot.fans.fan_out as f64).sqrt();
            if slot.writes_residual() {
                return Init::Zero.into();
            }
            let std = match slot.role {
                Role::Value => he * branches.powf(-0.5),
                Role::FfnIn | Role::FfnGate | Role::FfnUp => he * branches.powf(-1.0 / (2.0 * layers - 2.0)),
                Role::Hidden => he,
                Role::Query
                | Role::QueryDown
                | Role::Key
                | Role::KvDown
                | Role::Taps
                | Role::Step
                | Role::Router
                | Role::AttentionOutput
                | Role::FfnOut
                | Role::ExpertOut => slot.fans.xavier_std(),
            };
            normal(std).into()
        }))
    }

    fn caveat(&self, architecture: &Resolved) -> Option<String> {
        let relu = architecture.activation == Activation::Relu;
        let other = (!relu).then(|| "fixup is derived for ReLU".to_owned());
        replaces_norms(ABOUT.name, architecture).or(other)
    }
}
