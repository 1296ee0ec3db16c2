//! LayerScale: x + γ ∘ f(x) with a learned γ per feature that starts at ε.
//!
//! # Source
//!
//! Touvron et al. 2021, *Going deeper with Image Transformers*: ε = 0.1 up to 18 blocks, 10⁻⁵ up to 24, 10⁻⁶ beyond.
//! 10⁻⁴ is the default of deit's `cait_models.py`, whose weights are N(0, 0.02²) cut at ±2, which cuts nothing.

use sigprop_stack::ScaleParameter;

use super::branches::Branches;
use super::everywhere::Everywhere;
use super::{About, Parameter};
use crate::architecture::{NormPlacement, Resolved};
use crate::recipe::normal;

pub(super) const ABOUT: About = About {
    name: "layerscale",
    parameters: &[Parameter::scale("epsilon", Some(1e-4))],
    rule: "branch_scale epsilon, learned per feature; all weights N(0, 0.02²). The paper: 0.1 up to 18 blocks, 1e-5 up \
           to 24, 1e-6 beyond",
    source: "Touvron et al. 2021 (CaiT); deit's cait_models.py; for norm placement pre",
    touches: "embeddings, all linear weights, scales of the residual connections",
    build: |values| {
        let base = Everywhere(normal(0.02));
        Box::new(Branches { base, scale: values[0], parameter: ScaleParameter::PerFeature, caveat })
    },
};

fn caveat(architecture: &Resolved) -> Option<String> {
    let pre = architecture.norm.is_some() && architecture.norm_placement == NormPlacement::Pre;
    (!architecture.residual || !pre)
        .then(|| "LayerScale is defined for residual branches that start with a norm".to_owned())
}
