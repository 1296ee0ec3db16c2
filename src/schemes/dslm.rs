//! DSLM (DeepScaleLM): every branch has second moment 1, according to the prediction.
//!
//! # Formula
//!
//! For dropout rate p, m summed embeddings and n residual connections:
//!
//! ```text
//! embeddings (1 − p)/m        Q, K 1/d        V, O √((1 − p)/r_l)/d        FFN s² each
//! branch_scale² = k/n^α       skip_scale² = 1 − branch_scale²
//! ```
//!
//! r_l is the second moment of the output of the heads of block l, if values have the second moment of the input: the
//! branch then has second moment 1 after dropout. s² gives the feed-forward network the same property, for input of
//! second moment 1. Both are values for training: an architecture with dropout has the same weights in evaluation,
//! where its stream is smaller by about 1 − p.
//!
//! # Source
//!
//! Kedia et al. 2024. There r_l follows a recursion for ReLU, `d_ff` = 4 d and flat attention ([`super::dslm_paper`]),
//! and s² is the value for ReLU. Here both are predicted, so that they hold for the actual activation, shape and input.

use sigprop_stack::{Component, Gaussian, Init, Node, Norm, NormKind, Source, Stream};

use super::embeddings::Summed;
use super::{About, Outer, Parameter, Role, SchemeError, Table};
use crate::ForwardPass;
use crate::architecture::{Kind, NormPlacement, Resolved};
use crate::predict::{PredictError, Theory};
use crate::recipe::{Blocks, Entrance, Fans, Projection, Projections, Recipe, Residual, Residuals, Slot, normal};
use crate::root::root;

pub(super) const ABOUT: About = About {
    name: "dslm",
    parameters: &[Parameter::scale("k", Some(2.0)), Parameter::scale("alpha", Some(1.0))],
    rule: "embeddings variance (1 − p)/m each of m; Q, K 1/d; V, O √((1 − p)/r_l)/d with r_l predicted block by block; \
           feed-forward weights such that its output has second moment 1; branch_scale² = k/n^alpha with n residual \
           connections (two per block), skip_scale² = 1 − branch_scale²",
    source: "Kedia et al. 2024 (DeepScaleLM); r_l and the feed-forward gain from the predictor instead of the paper's \
             special case (dslm-paper)",
    touches: "embeddings, all linear weights, scales of the residual connections",
    build: |values| Box::new(Dslm { k: values[0], alpha: values[1] }),
};

#[derive(Debug)]
struct Dslm {
    k: f64,
    alpha: f64,
}

impl Recipe for Dslm {
    fn fits(&self, architecture: &Resolved) -> Result<(), SchemeError> {
        needs_encoder(ABOUT.name, architecture)?;
        let needs = |expected: &str, got: String| {
            Err(SchemeError::Undefined { scheme: ABOUT.name, expected: expected.to_owned(), got })
        };
        if architecture.decoder.is_some() || architecture.memory_width.is_some() {
            return needs("a single stream", "an encoder and a decoder".to_owned());
        }
        if architecture.experts.is_some() {
            return needs("feed-forward networks that all tokens go through", "a mixture of experts".to_owned());
        }
        let ends = matches!(architecture.norm_placement, NormPlacement::Sandwich | NormPlacement::Reordered);
        if ends && architecture.norm.is_some() {
            let got = format!("norm_placement {}", architecture.norm_placement);
            return needs("branches that do not end with a norm", got);
        }
        let branch = self.branch_share(architecture);
        if branch > 1.0 {
            let got = format!("{branch} with n = {}", architecture.residual_sublayers());
            return needs("branch_scale² = k/n^alpha of at most 1", got);
        }
        Ok(())
    }

    fn embedding(&self, architecture: &Resolved, table: Table) -> Init {
        embeddings(architecture).embedding(architecture, table)
    }

    fn outer(&self, architecture: &Resolved, place: Outer, fans: Fans) -> Projection {
        embeddings(architecture).outer(architecture, place, fans)
    }

    fn sinusoid(&self, architecture: &Resolved) -> f64 {
        embeddings(architecture).sinusoid(architecture)
    }

    fn residuals<'a>(&'a self, architecture: &'a Resolved, _: &Entrance) -> Result<Residuals<'a>, SchemeError> {
        let branch = self.branch_share(architecture);
        Ok(Residual::constant((1.0 - branch).max(0.0).sqrt(), branch.sqrt()).everywhere())
    }

    fn projections<'a>(
        &'a self,
        architecture: &'a Resolved,
        entrance: &Entrance,
    ) -> Result<Projections<'a>, SchemeError> {
        let residuals = self.residuals(architecture, entrance)?;
        let blocks = Blocks::new(architecture, self, &residuals, true, "");
        let mut pass = entrance()?;
        let ffn = ffn_variance(architecture, pass.theory(), &blocks)?;
        let mut weights = Weights { value_output: Vec::new(), ffn };
        let keep = 1.0 - architecture.dropout;
        for block in 0..architecture.n_layers {
            let mut probe = pass.clone();
            probe.through(&blocks.block(block, &|slot| normal(slot.fans.lecun_std()).into()).attend())?;
            let attended = probe.second_moment();
            if !attended.is_normal() {
                let why = if attended == 0.0 { " (a LayerNorm of width 1 leaves nothing)" } else { "" };
                return Err(SchemeError::Undefined {
                    scheme: ABOUT.name,
                    expected: "attention that lets a signal through".to_owned(),
                    got: format!("second moment {attended} in block {block}{why}"),
                });
            }
            weights.value_output.push((keep / attended).sqrt());
            pass.through(&[blocks.block(block, &|slot| weights.projection(slot)).node()])?;
        }
        Ok(Box::new(move |slot| weights.projection(slot)))
    }
}

impl Dslm {
    /// Returns the square of the scale on branches.
    fn branch_share(&self, architecture: &Resolved) -> f64 {
        self.k / (architecture.residual_sublayers() as f64).powf(self.alpha)
    }
}

/// The variances of linear maps in the two DSLM schemes.
pub(super) struct Weights {
    /// Variance of the weights of values and attention output, times their fan-in, one number per block.
    pub(super) value_output: Vec<f64>,
    /// Variance of the weights of the feed-forward network.
    pub(super) ffn: f64,
}

impl Weights {
    pub(super) fn projection(&self, slot: &Slot) -> Projection {
        let variance = match slot.role {
            Role::Query | Role::QueryDown | Role::Key | Role::KvDown | Role::Taps | Role::Step | Role::Router => {
                1.0 / slot.fans.fan_in as f64
            }
            Role::Value | Role::AttentionOutput => self.value_output[slot.block] / slot.fans.fan_in as f64,
            Role::FfnIn | Role::FfnGate | Role::FfnUp | Role::FfnOut | Role::ExpertOut | Role::Hidden => self.ffn,
        };
        normal(variance.sqrt()).into()
    }
}

/// The embeddings: their sum has variance 1 − p, so that dropout at rate p gives variance 1.
pub(super) fn embeddings(architecture: &Resolved) -> Summed {
    Summed((1.0 - architecture.embedding_dropout).sqrt())
}

/// Returns an error for an MLP: the rules are for the sub-layers of a Transformer.
pub(super) fn needs_encoder(scheme: &'static str, architecture: &Resolved) -> Result<(), SchemeError> {
    match architecture.kind {
        Kind::Encoder => Ok(()),
        Kind::Mlp => {
            let expected = "the attention and feed-forward branches of an encoder".to_owned();
            Err(SchemeError::Undefined { scheme, expected, got: "an MLP".to_owned() })
        }
    }
}

/// Returns the variance of all weights of the feed-forward network with which its output has second moment 1 if its
/// input has second moment 1.
fn ffn_variance(architecture: &Resolved, theory: Theory, blocks: &Blocks) -> Result<f64, PredictError> {
    let mut start = unit_input(architecture, theory);
    if let Some(norm) = architecture.norm.filter(|norm| norm.kind.pointwise().is_none()) {
        // After a norm all tokens have the same length.
        let norm = Norm { kind: NormKind::RmsNorm, eps: 0.0, gain: 1.0, ..norm };
        start.through(&[Node::apply("norm", Component::Norm(norm))])?;
    }
    let variance = |ln_gain: f64| ln_gain.exp() / architecture.d_model as f64;
    let ln_gain = root(-40.0, 40.0, |ln_gain| {
        let mut pass = start.clone();
        pass.through(&blocks.block(0, &|_| normal(variance(ln_gain).sqrt()).into()).feed_forward())?;
        Ok::<_, PredictError>(pass.second_moment().ln())
    })?;
    Ok(variance(ln_gain))
}

/// Returns a forward prediction that starts with independent Gaussian tokens of variance 1.
pub(super) fn unit_input(architecture: &Resolved, theory: Theory) -> ForwardPass {
    let source = Gaussian { width: architecture.d_model, mean: 0.0, variance: 1.0, correlation: 0.0 };
    let source = Source::Gaussian(source);
    let stream = Stream { name: String::new(), seq_len: architecture.seq_len, source, body: Vec::new() };
    ForwardPass::in_theory(theory, &stream)
}

#[cfg(test)]
mod tests;
