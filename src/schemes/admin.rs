//! Admin: Post-LN with x ↦ norm(ω x + f(x)), ω from the number of residual connections alone.
//!
//! # Formula
//!
//! With n residual connections, output changes of order ln n: ω = √((n + 1)/ln(n + 1) − 1).
//!
//! # Source
//!
//! Liu et al. 2020, *Understanding the Difficulty of Training Transformers*, profiles ω ([`super::admin_profiled`]);
//! the closed form is that of the authors' `admin_torch`. Weights are drawn as in fairseq, where Admin was made.

use super::xavier::Packed;
use super::{About, Outer, SchemeError};
use crate::architecture::{Kind, NormPlacement, Resolved};
use crate::recipe::{Entrance, Fans, Projection, Projections, Recipe, Residual, Residuals};

pub(super) const ABOUT: About = About {
    name: "admin",
    parameters: &[],
    rule: "skip_scale √((n + 1)/ln(n + 1) − 1) with n residual connections, branch_scale 1; weights as xavier-packed",
    source: "Liu et al. 2020 (Admin); closed form of admin_torch/admin.py (output changes of order ln n); for post-norm",
    touches: "all linear weights, scales of the residual connections",
    build: |_| Box::new(Admin),
};

#[derive(Debug)]
struct Admin;

impl Recipe for Admin {
    fn residuals<'a>(&'a self, architecture: &'a Resolved, _: &Entrance) -> Result<Residuals<'a>, SchemeError> {
        let after = (architecture.residual_sublayers() + 1) as f64;
        Ok(Residual::constant((after / after.ln() - 1.0).sqrt(), 1.0).everywhere())
    }

    fn outer(&self, architecture: &Resolved, place: Outer, fans: Fans) -> Projection {
        Packed.outer(architecture, place, fans)
    }

    fn projections<'a>(
        &'a self,
        architecture: &'a Resolved,
        entrance: &Entrance,
    ) -> Result<Projections<'a>, SchemeError> {
        Packed.projections(architecture, entrance)
    }

    fn caveat(&self, architecture: &Resolved) -> Option<String> {
        caveat(architecture)
    }
}

/// Returns the caveat, which is the same for both schemes, `admin` and the one that measures ω.
pub(super) fn caveat(architecture: &Resolved) -> Option<String> {
    let post = architecture.norm.is_some() && architecture.norm_placement == NormPlacement::Post;
    (architecture.kind != Kind::Encoder || !post)
        .then(|| "Admin is defined for Transformers that normalise after every residual sum".to_owned())
}
