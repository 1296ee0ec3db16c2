//! muP: hidden weights of std σ/√m at m times the width at which σ was found.
//!
//! # Formula
//!
//! ```text
//! m = d_model/width     embeddings σ     hidden σ/√m     outputs σ/√(2 · blocks · m)     head σ/m
//! learning rates        Adam: hidden, head 1/m           SGD: embeddings, biases, gains m, head 1/m
//! ```
//!
//! muP applies a factor 1/m after the head. Here it is written into the weights of the head, and into their learning
//! rates.
//!
//! # Source
//!
//! Yang & Hu 2021, Yang et al. 2022 (*Tensor Programs V*), tables 3 and 8; nanoGPT-mup's `model.py`, which adds GPT-2's
//! 1/√(2 · blocks), as does Megatron-LM's `core/utils.py`.

use sigprop_stack::{Init, LearningRates};

use super::{About, Outer, Parameter, SchemeError, Table};
use crate::architecture::Resolved;
use crate::recipe::{Entrance, Fans, Growth, Projection, Projections, Rates, Recipe, normal};

pub(super) const ABOUT: About = About {
    name: "mup",
    parameters: &[Parameter::scale("sigma", Some(0.02)), Parameter::positive("width", 256.0)],
    rule: "m = d_model/width: embeddings std sigma; hidden weights sigma/√m; attention output and feed-forward output \
           sigma/√(2 · blocks · m); head sigma/m, muP's factor 1/m included. Learning rates: Adam 1/m of hidden weights \
           and head; SGD m of embeddings, biases and gains, 1/m of the head. Not part of it: attention scale 1/d_head",
    source: "Yang et al. 2022 (Tensor Programs V), tables 3 and 8; nanoGPT-mup model.py",
    touches: "embeddings, all linear weights",
    build: |values| Box::new(Mup { sigma: values[0], width: values[1] }),
};

#[derive(Debug)]
pub(super) struct Mup {
    pub(super) sigma: f64,
    /// The width of the base model, at which `sigma` was tuned.
    pub(super) width: f64,
}

impl Mup {
    /// Returns the width multiplier m: the width of the network over the width of the base model.
    fn multiplier(&self, architecture: &Resolved) -> f64 {
        architecture.d_model as f64 / self.width
    }

    /// The standard deviation of hidden weights.
    pub(super) fn hidden(&self, architecture: &Resolved) -> f64 {
        self.sigma / self.multiplier(architecture).sqrt()
    }
}

impl Recipe for Mup {
    fn embedding(&self, _: &Resolved, _: Table) -> Init {
        normal(self.sigma)
    }

    fn outer(&self, architecture: &Resolved, place: Outer, _: Fans) -> Projection {
        let std = match place {
            Outer::Stem => self.sigma,
            Outer::EmbeddingIn | Outer::EmbeddingOut => self.hidden(architecture),
            Outer::Head => self.sigma / self.multiplier(architecture),
        };
        normal(std).into()
    }

    fn projections<'a>(&'a self, architecture: &'a Resolved, _: &Entrance) -> Result<Projections<'a>, SchemeError> {
        let hidden = self.hidden(architecture);
        let depth = (architecture.residual_sublayers() as f64).sqrt();
        Ok(Box::new(move |slot| normal(if slot.writes_residual() { hidden / depth } else { hidden }).into()))
    }

    fn learning_rates<'a>(&'a self, architecture: &'a Resolved) -> Option<Rates<'a>> {
        let m = self.multiplier(architecture);
        Some(Box::new(move |trained| match trained.growth {
            Growth::Vector | Growth::Input => LearningRates { sgd: m, adam: 1.0 },
            Growth::Hidden => LearningRates { sgd: 1.0, adam: m.recip() },
            Growth::Output => LearningRates { sgd: m.recip(), adam: m.recip() },
        }))
    }

    fn caveat(&self, _: &Resolved) -> Option<String> {
        Some("muP also scales attention by 1/d_head, which is part of the architecture".into())
    }
}
