//! Kaiming (He): std gain/√fan_in, where the gain compensates for the activation that follows.
//!
//! # Source
//!
//! He et al. 2015, eq. 10; gains of PyTorch's `calculate_gain`: identity and sigmoid 1, tanh 5/3, ReLU √2, leaky ReLU
//! √(2/(1 + slope²)), SELU 3/4. PyTorch has no gain for the other activations; they get the gain of ReLU, as is common.
//! A map that no activation follows (attention, the linear branch of a gate, the output of the feed-forward network)
//! has gain 1.

use sigprop_stack::Activation;

use super::{About, Role, SchemeError};
use crate::architecture::Resolved;
use crate::recipe::normal;
use crate::recipe::{Entrance, Projections, Recipe};

pub(super) const ABOUT: About = About {
    name: "kaiming",
    parameters: &[],
    rule: "weights N(0, gain²/fan_in); gain of the activation that follows (ReLU √2, leaky ReLU √(2/(1 + slope²)), \
           tanh 5/3, SELU 3/4, sigmoid and identity 1, all others √2), 1 where none follows",
    source: "He et al. 2015, eq. 10; gains of PyTorch's torch/nn/init.py, which has none for GELU, SiLU and others",
    touches: "all linear weights",
    build: |_| Box::new(Kaiming),
};

#[derive(Debug)]
pub(super) struct Kaiming;

impl Recipe for Kaiming {
    fn projections<'a>(&'a self, architecture: &'a Resolved, _: &Entrance) -> Result<Projections<'a>, SchemeError> {
        let activated = gain(architecture.activation.function());
        Ok(Box::new(move |slot| {
            let gain = match slot.role {
                Role::FfnIn | Role::FfnGate | Role::Hidden => activated,
                Role::Query
                | Role::QueryDown
                | Role::Key
                | Role::Value
                | Role::KvDown
                | Role::Taps
                | Role::Step
                | Role::AttentionOutput
                | Role::FfnUp
                | Role::FfnOut
                | Role::Router
                | Role::ExpertOut => 1.0,
            };
            normal(gain * slot.fans.lecun_std()).into()
        }))
    }
}

/// The gain of PyTorch's `calculate_gain`, or √2 if it has none for the activation.
fn gain(activation: Activation) -> f64 {
    match activation {
        Activation::Identity | Activation::PlusOne | Activation::Sigmoid => 1.0,
        Activation::LeakyRelu { slope } => (2.0 / (1.0 + slope * slope)).sqrt(),
        Activation::Tanh => 5.0 / 3.0,
        Activation::Selu => 0.75,
        Activation::Relu
        | Activation::Relu2
        | Activation::Gelu
        | Activation::GeluTanh
        | Activation::Silu
        | Activation::QuickGelu
        | Activation::Mish
        | Activation::HardSwish
        | Activation::Relu6
        | Activation::Erf
        | Activation::Softplus
        | Activation::Elu
        | Activation::Xielu
        | Activation::Expression(_) => std::f64::consts::SQRT_2,
    }
}
