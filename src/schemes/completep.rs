//! CompleteP: muP whose branches are divided by the depth.
//!
//! # Formula
//!
//! ```text
//! branch_scale (blocks/depth)^(−α)     m = d_model/width     embeddings σ     hidden and outputs σ/√m     head σ/m
//! learning rates as muP's; in blocks   Adam: × (blocks/depth)^(α − 1)         SGD: × (blocks/depth)^(2α − 1)
//! ```
//!
//! The factor for SGD is not in the source. SGD's steps in a branch fall with the scale of the branch and act through
//! that scale once more, and the steps of all blocks add up: blocks · (blocks/depth)^(−2α) times the learning rate has
//! to stay constant. Adam's steps do not fall; for them the same argument gives the published factor.
//!
//! # Source
//!
//! Dey et al. 2025, *Don't be lazy: CompleteP enables compute-efficient deep transformers*, table 1: α = 1; α = 1/2 is
//! depth-muP. nanoGPT-mup's `model.py`.

use sigprop_stack::{Init, LearningRates};

use super::mup::Mup;
use super::{About, Outer, Parameter, SchemeError, Table};
use crate::architecture::{Kind, NormPlacement, Resolved};
use crate::recipe::{
    Entrance, Fans, Projection, Projections, Rates, Recipe, Residual, Residuals, StreamPosition, normal,
};

pub(super) const ABOUT: About = About {
    name: "completep",
    parameters: &[
        Parameter::scale("sigma", Some(0.02)),
        Parameter::positive("width", 256.0),
        Parameter::positive("depth", 2.0),
        Parameter::scale("alpha", Some(1.0)),
    ],
    rule: "branch_scale (blocks/depth)^(−alpha); m = d_model/width: embeddings std sigma, weights of blocks sigma/√m, \
           head sigma/m, muP's factor 1/m included. Learning rates as mup's, in blocks × (blocks/depth)^(alpha − 1) \
           (Adam) or (2 alpha − 1) (SGD). Not part of it: attention scale 1/d_head",
    source: "Dey et al. 2025 (CompleteP), table 1; nanoGPT-mup model.py; for norm placement pre",
    touches: "embeddings, all linear weights, scales of the residual connections",
    build: |values| {
        let &[sigma, width, depth, alpha] = values else { unreachable!("as many values as parameters") };
        Box::new(CompleteP { mup: Mup { sigma, width }, depth, alpha })
    },
};

#[derive(Debug)]
struct CompleteP {
    mup: Mup,
    depth: f64,
    alpha: f64,
}

impl CompleteP {
    /// Returns the ratio of the number of blocks to that of the base model.
    fn deeper(&self, architecture: &Resolved) -> f64 {
        architecture.n_layers as f64 / self.depth
    }
}

impl Recipe for CompleteP {
    fn embedding(&self, architecture: &Resolved, table: Table) -> Init {
        self.mup.embedding(architecture, table)
    }

    fn outer(&self, architecture: &Resolved, place: Outer, fans: Fans) -> Projection {
        self.mup.outer(architecture, place, fans)
    }

    fn residuals<'a>(&'a self, architecture: &'a Resolved, _: &Entrance) -> Result<Residuals<'a>, SchemeError> {
        let branch = self.deeper(architecture).powf(-self.alpha);
        Ok(Residual::constant(1.0, branch).everywhere())
    }

    fn projections<'a>(&'a self, architecture: &'a Resolved, _: &Entrance) -> Result<Projections<'a>, SchemeError> {
        let hidden = self.mup.hidden(architecture);
        Ok(Box::new(move |_| normal(hidden).into()))
    }

    fn learning_rates<'a>(&'a self, architecture: &'a Resolved) -> Option<Rates<'a>> {
        let wider = self.mup.learning_rates(architecture)?;
        Some(Box::new(move |trained| {
            let LearningRates { sgd, adam } = wider(trained);
            let deeper = match trained.place {
                StreamPosition::Block(_) => self.deeper(architecture),
                StreamPosition::Embeddings | StreamPosition::End => 1.0,
            };
            LearningRates { sgd: sgd * deeper.powf(2.0 * self.alpha - 1.0), adam: adam * deeper.powf(self.alpha - 1.0) }
        }))
    }

    fn caveat(&self, architecture: &Resolved) -> Option<String> {
        let pre = architecture.norm.is_some() && architecture.norm_placement == NormPlacement::Pre;
        let text = if architecture.kind == Kind::Encoder && pre {
            "CompleteP also scales attention by 1/d_head, which is part of the architecture"
        } else {
            "CompleteP is defined for Transformers whose branches start with a norm"
        };
        Some(text.to_owned())
    }
}
