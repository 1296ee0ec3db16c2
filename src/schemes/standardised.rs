//! Weight standardisation: the forward pass subtracts the mean of every row of a weight and divides by its std.
//!
//! # Formula
//!
//! ```text
//! Ŵ_ij = γ (W_ij − mean_j W_ij)/(std_j W_ij · √fan_in)     W ~ N(0, 1/fan_in)
//! γ = 1/√(Var φ(u)) behind an activation φ,  1/√(E φ(u)²) behind a gated one,  u ~ N(0, 1);  1 elsewhere
//! ```
//!
//! A common shift of all inputs of a row, such as the mean of an activation, contributes nothing to the output. Norms
//! take care of scales: after a norm γ is 1, as it is where inputs have no mean.
//!
//! # Source
//!
//! Qiao et al. 2019, *Micro-Batch Training with Batch-Channel Normalization and Weight Standardization*, without
//! γ/√fan_in; in this form Brock et al. 2021, *Characterizing signal propagation to close the performance gap in
//! unnormalized ResNets*, eq. 4 and 5; *High-Performance Large-Scale Image Recognition Without Normalization*, whose
//! code has γ of many activations. There γ multiplies activations, which is equivalent. The extension to Transformers
//! is ours: queries, keys and routers, which scale scores rather than the stream, are not standardised.

use sigprop_stack::{Component, Linear, Node, Tensor};

use super::{About, Role, SchemeError, dslm};
use crate::architecture::{NormPlacement, Resolved};
use crate::predict::Theory;
use crate::recipe::{Entrance, Projection, Projections, Recipe, Slot, normal};

pub(super) const ABOUT: About = About {
    name: "standardised",
    parameters: &[],
    rule: "the forward pass uses Ŵ_ij = γ (W_ij − mean_j W_ij)/(std_j W_ij · √fan_in), rows of mean zero and length γ; γ is \
           1/√(Var φ(u)), u ~ N(0, 1), of maps that read an activation (ReLU: √(2/(1 − 1/π))), 1/√(E φ(u)²) of maps that \
           read a gated one, else 1; W from N(0, 1/fan_in)",
    source: "Qiao et al. 2019, arXiv 1903.10520; Brock et al. 2021, arXiv 2101.08692, eq. 4 and 5, there of convolutions",
    touches: "linear weights of blocks, of which those of queries, keys and routers are only drawn; the network itself \
              changes: it standardises in every forward pass",
    build: |_| Box::new(Standardised),
};

#[derive(Debug)]
struct Standardised;

impl Recipe for Standardised {
    fn projections<'a>(&'a self, architecture: &'a Resolved, _: &Entrance) -> Result<Projections<'a>, SchemeError> {
        let activated = gain(architecture)?;
        Ok(Box::new(move |slot| {
            let length = if reads_activation(slot) { activated } else { 1.0 };
            let standardised = slot.carries_values().then_some(length);
            Projection { standardised, ..normal(slot.fans.lecun_std()).into() }
        }))
    }
}

/// Returns the gain γ of a linear map that reads the output of an activation. It gives the output of the map variance 1
/// if the input of the activation is N(0, 1).
fn gain(architecture: &Resolved) -> Result<f64, SchemeError> {
    let width = architecture.d_model;
    let weight = Tensor { name: String::new(), init: normal(1.0) };
    let map = Linear { fan_in: width, fan_out: width, weight, bias: None, standardised: Some(1.0) };
    let activation = Node::apply("activation", Component::Activation(architecture.activation.function()));
    let map = (!architecture.activation.is_gated()).then(|| Node::apply("map", Component::Linear(map)));
    let mut pass = dslm::unit_input(architecture, Theory::MeanField);
    pass.through(&[activation].into_iter().chain(map).collect::<Vec<_>>())?;
    Ok(pass.second_moment().sqrt().recip())
}

/// Returns true if nothing but dropout lies between an activation and this map.
fn reads_activation(slot: &Slot) -> bool {
    let normed = slot.architecture.norm.is_some();
    match slot.role {
        Role::FfnOut | Role::ExpertOut => !normed || slot.architecture.norm_placement != NormPlacement::Sub,
        Role::Hidden => !normed && !slot.architecture.residual && slot.block > 0,
        Role::Query
        | Role::QueryDown
        | Role::Key
        | Role::KvDown
        | Role::Taps
        | Role::Step
        | Role::Value
        | Role::AttentionOutput
        | Role::FfnIn
        | Role::FfnGate
        | Role::FfnUp
        | Role::Router => false,
    }
}

#[cfg(test)]
mod tests {
    use approx::assert_relative_eq;

    use super::*;
    use crate::architecture::{Activation, Architecture};
    use crate::recipe::Fans;
    use crate::schemes::Scheme;

    /// The length of the rows of a weight in block `block`.
    fn length(architecture: &Architecture, role: Role, block: usize) -> Option<f64> {
        let architecture = architecture.resolved().unwrap();
        let scheme = Scheme::parse("standardised").unwrap();
        let projections = scheme.recipe().projections(&architecture, &|| unreachable!("it follows no signal")).unwrap();
        let slot = Slot { architecture: &architecture, role, block, fans: Fans::new(64, 64), cross: false };
        projections(&slot).standardised
    }

    /// ReLU: √(2/(1 − 1/π)). The others are the values of `nfnets/base.py` in the authors' code, sampled to three
    /// digits.
    #[test]
    fn lengths_are_the_published_gains() {
        for (activation, expected, tolerance) in [
            (Activation::Relu, (2.0 / (1.0 - std::f64::consts::FRAC_1_PI)).sqrt(), 1e-9),
            (Activation::Gelu, 1.701_504_349_708_557_1, 2e-3),
            (Activation::Silu, 1.788_129_329_681_396_5, 2e-3),
            (Activation::Tanh, 1.593_911_767_005_920_4, 2e-3),
            (Activation::Sigmoid, 4.803_835_391_998_291, 2e-3),
            (Activation::Identity, 1.0, 1e-9),
        ] {
            let architecture = Architecture { activation, ..Architecture::default() };
            let got = length(&architecture, Role::FfnOut, 0).unwrap();
            assert_relative_eq!(got, expected, max_relative = tolerance);
        }
    }

    /// Maps that read norms, values or products have length 1 or the length of a gate; maps to scores are not
    /// standardised.
    #[test]
    fn lengths_follow_what_is_read() {
        let plain = || Architecture { activation: Activation::Relu, ..Architecture::default() };
        let one = Some(1.0);
        for role in [Role::Value, Role::AttentionOutput, Role::FfnIn] {
            assert_eq!(length(&plain(), role, 3), one, "{role:?}");
        }
        for role in [Role::Query, Role::Key, Role::Router] {
            assert_eq!(length(&plain(), role, 3), None, "{role:?}");
        }
        assert_eq!(length(&Architecture { norm_placement: NormPlacement::Sub, ..plain() }, Role::FfnOut, 3), one);
        // E ReLU² = 1/2, and the other factor has mean zero.
        let gated = length(&Architecture { activation: Activation::Reglu, ..plain() }, Role::FfnOut, 3).unwrap();
        assert_relative_eq!(gated, 2f64.sqrt(), max_relative = 1e-9);
        let mlp = || Architecture { activation: Activation::Relu, ..Architecture::mlp() };
        assert_eq!(length(&mlp(), Role::Hidden, 0), one);
        assert_relative_eq!(length(&mlp(), Role::Hidden, 1).unwrap(), 1.712_858_6, max_relative = 1e-6);
    }
}
