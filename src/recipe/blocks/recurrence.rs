//! Recurrences in place of attention: the gated delta rule, Mamba-2, lightning attention and Mamba-1.

use sigprop_stack::{
    Activation, Component, Decay, Node, Norm, NormKind, Op, Product, Recurrence, Scale, Stepped, Write,
};

use super::{Block, RECURRENCE};
use crate::architecture::{Multipliers, RecurrentForm, RecurrentMixer};
use crate::recipe::{Fans, Role};

/// The number that the library adds to the squared length of a query or a key before it divides by the length.
const LENGTH_EPS: f64 = 1e-6;

impl Block<'_> {
    /// The branch of a recurrence, without the norm of its input.
    pub(super) fn recurrence(&self) -> Vec<Node> {
        let architecture = self.blocks.architecture;
        let mixer = self.recurrent_mixer();
        let mut body = self.gated_recurrence();
        body.extend(self.inner_norm());
        let fans = Fans::new(mixer.width(), architecture.d_model);
        body.push(self.linear(&format!("{RECURRENCE}.output"), Role::AttentionOutput, fans, mixer.biases));
        body.extend(Self::multiplier("output_scale", self.multipliers().recurrence_output));
        body.extend(self.dropout("dropout", architecture.dropout));
        body.extend(self.output_norm());
        body
    }

    /// The recurrence with its gate, up to the last linear map.
    pub(super) fn gated_recurrence(&self) -> Vec<Node> {
        let mixer = self.recurrent_mixer();
        let eps = mixer.norm_eps.unwrap_or(self.norm_eps());
        let norm = |name| (mixer.norm_groups > 0).then(|| rms_norm(name, mixer.norm_groups, eps));
        let map = self.recurrent_map("gated.gate", Role::Value, mixer.width());
        let scale = Self::multiplier("gate_scale", self.multipliers().recurrence_gate);
        let function = match mixer.form {
            RecurrentForm::GatedDelta | RecurrentForm::Mamba2 | RecurrentForm::Mamba1 => Activation::Silu,
            RecurrentForm::Lightning => Activation::Sigmoid,
        };
        let activation = Node::apply("gate_activation", Component::Activation(function));
        let gate = [map].into_iter().chain(scale).chain([activation]).collect();
        let (heads, after) = match mixer.form {
            RecurrentForm::GatedDelta => ([self.delta_heads()].into_iter().chain(norm("norm")).collect(), None),
            RecurrentForm::Lightning => ([self.lightning_heads()].into_iter().chain(norm("norm")).collect(), None),
            RecurrentForm::Mamba2 => (vec![self.mamba2_heads()], norm("gated_norm")),
            RecurrentForm::Mamba1 => {
                let factor = self.multipliers().recurrence_value;
                let mut heads = self.convolved("gated.input", Role::Value, mixer.width(), factor);
                heads.push(self.mamba1_heads());
                (heads, norm("gated_norm"))
            }
        };
        let gated = Node::new("gated", Op::Product(Product { factors: vec![heads, gate] }));
        [gated].into_iter().chain(after).collect()
    }

    fn recurrent_mixer(&self) -> &RecurrentMixer {
        self.blocks.architecture.recurrence.as_ref().expect("a checked architecture with this mixer describes it")
    }

    fn multipliers(&self) -> &Multipliers {
        &self.blocks.architecture.multipliers
    }

    fn norm_eps(&self) -> f64 {
        self.blocks.architecture.norm.map_or(0.0, |norm| norm.eps)
    }

    /// A linear map of the input of the branch.
    fn recurrent_map(&self, name: &str, role: Role, width: usize) -> Node {
        let fans = Fans::new(self.blocks.architecture.d_model, width);
        self.linear(&format!("{RECURRENCE}.{name}"), role, fans, self.recurrent_mixer().biases)
    }

    /// A linear map of the input of the branch, times `factor`, a short convolution and SiLU.
    fn convolved(&self, name: &str, role: Role, width: usize, factor: f64) -> Vec<Node> {
        let mixer = self.recurrent_mixer();
        let path = format!("{RECURRENCE}.{name}_taps");
        let last = name.rsplit('.').next().unwrap_or(name);
        let taps = self.taps(&path, width, (mixer.taps, mixer.tap_biases));
        let scale = Self::multiplier(&format!("{last}_scale"), factor);
        let activation = silu(&format!("{last}_activation"));
        [self.recurrent_map(name, role, width)].into_iter().chain(scale).chain([taps, activation]).collect()
    }

    /// The heads of a gated delta rule, whose queries and keys have length 1.
    fn delta_heads(&self) -> Node {
        let mixer = self.recurrent_mixer();
        let keys = mixer.n_key_heads * mixer.d_key;
        let root = (mixer.d_key as f64).sqrt().recip();
        let of_length_one = |name: &str, role, factor| {
            let mut chain = self.convolved(&format!("gated.heads.{name}"), role, keys, factor);
            let eps = LENGTH_EPS / mixer.d_key as f64;
            chain.push(rms_norm(&format!("{name}_norm"), mixer.n_key_heads, eps));
            chain.push(Node::apply(format!("{name}_scale"), Component::Scale(Scale { factor: root })));
            chain
        };
        let factors = self.multipliers();
        let strength = vec![self.recurrent_map("gated.heads.strength", Role::Step, mixer.n_heads)];
        heads(Recurrence {
            scale: root,
            write: Write::Sigmoid { factor: mixer.strength, strength },
            delta: true,
            skip: None,
            query: of_length_one("query", Role::Query, factors.recurrence_query),
            key: of_length_one("key", Role::Key, factors.recurrence_key),
            value: self.convolved("gated.heads.value", Role::Value, mixer.width(), factors.recurrence_value),
            ..self.state_space(self.step())
        })
    }

    /// The chain of the steps of the heads.
    fn step(&self) -> Vec<Node> {
        let map = self.recurrent_map("gated.heads.step", Role::Step, self.recurrent_mixer().n_heads);
        [map].into_iter().chain(Self::multiplier("step_scale", self.multipliers().recurrence_step)).collect()
    }

    fn mamba2_heads(&self) -> Node {
        let (mixer, factors) = (self.recurrent_mixer(), self.multipliers());
        let keys = mixer.n_key_heads * mixer.d_key;
        heads(Recurrence {
            query: self.convolved("gated.heads.query", Role::Query, keys, factors.recurrence_query),
            key: self.convolved("gated.heads.key", Role::Key, keys, factors.recurrence_key),
            value: self.convolved("gated.heads.value", Role::Value, mixer.width(), factors.recurrence_value),
            ..self.state_space(self.step())
        })
    }

    /// The heads of lightning attention. Rates fall from head to head, and from block to block down to 0.
    fn lightning_heads(&self) -> Node {
        /// The library adds this number to the last index of a block, and to the factor on the rates of a block.
        const ROUNDING: f64 = 1e-5;
        let mixer = self.recurrent_mixer();
        let last = (self.blocks.architecture.n_layers - 1) as f64;
        let factor = 1.0 - self.index as f64 / (last + ROUNDING) + ROUNDING;
        let rate = |head: usize| factor * (-8.0 * (head + 1) as f64 / mixer.n_heads as f64).exp2();
        let function = self.blocks.architecture.activation.function();
        let activated = |name: &str, role, width| {
            let activation = Node::apply(format!("{name}_activation"), Component::Activation(function));
            vec![self.recurrent_map(&format!("gated.heads.{name}"), role, width), activation]
        };
        let keys = mixer.n_key_heads * mixer.d_key;
        heads(Recurrence {
            n_heads: mixer.n_heads,
            n_key_heads: mixer.n_key_heads,
            d_key: mixer.d_key,
            d_value: mixer.d_value,
            scale: 1.0,
            decay: Decay::Fixed { rates: (0..mixer.n_heads).map(rate).collect() },
            write: Write::One,
            delta: false,
            skip: None,
            query: activated("query", Role::Query, keys),
            key: activated("key", Role::Key, keys),
            value: activated("value", Role::Value, mixer.width()),
        })
    }

    /// The heads of Mamba-1, one per feature. Their input is convolved already, and it is the values, too.
    fn mamba1_heads(&self) -> Node {
        let mixer = self.recurrent_mixer();
        let eps = mixer.norm_eps.unwrap_or(self.norm_eps());
        let factors = self.multipliers();
        let latent = |name: &str, role, width, factor| {
            let path = format!("{RECURRENCE}.gated.heads.{name}");
            let map = self.linear(&path, role, Fans::new(mixer.width(), width), false);
            let norm = mixer.latent_norms.then(|| rms_norm(&format!("{name}_norm"), 1, eps));
            let scale = Self::multiplier(&format!("{name}_scale"), factor);
            [Some(map), scale, norm].into_iter().flatten().collect::<Vec<Node>>()
        };
        let mut step = latent("step_down", Role::KvDown, mixer.step_rank, 1.0);
        let fans = Fans::new(mixer.step_rank, mixer.n_heads);
        step.push(self.linear(&format!("{RECURRENCE}.gated.heads.step"), Role::Step, fans, false));
        step.extend(Self::multiplier("step_scale", factors.recurrence_step));
        let query = latent("query", Role::Query, mixer.d_key, factors.recurrence_query);
        let key = latent("key", Role::Key, mixer.d_key, factors.recurrence_key);
        let plain = self.state_space(step);
        let Decay::Stepped(stepped) = plain.decay else { unreachable!("state-space models have steps") };
        let decay = Decay::Stepped(Stepped { rate_per_channel: true, ..stepped });
        heads(Recurrence { decay, query, key, ..plain })
    }

    /// A recurrence of a state-space model, without its chains but for the `step`.
    fn state_space(&self, step: Vec<Node>) -> Recurrence {
        let &RecurrentMixer { n_heads, n_key_heads, d_key, d_value, rates, step_bias: bias, .. } =
            self.recurrent_mixer();
        let stepped = Stepped { step, step_per_channel: false, bias, rates, rate_per_channel: false };
        Recurrence {
            n_heads,
            n_key_heads,
            d_key,
            d_value,
            scale: 1.0,
            decay: Decay::Stepped(stepped),
            write: Write::Step,
            delta: false,
            skip: Some(1.0),
            query: Vec::new(),
            key: Vec::new(),
            value: Vec::new(),
        }
    }
}

fn heads(recurrence: Recurrence) -> Node {
    Node::new("heads", Op::Recurrence(recurrence))
}

fn silu(name: &str) -> Node {
    Node::apply(name, Component::Activation(Activation::Silu))
}

fn rms_norm(name: &str, groups: usize, eps: f64) -> Node {
    Node::apply(name, Component::Norm(Norm { groups, ..Norm::plain(NormKind::RmsNorm, eps) }))
}
