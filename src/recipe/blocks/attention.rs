//! Attention: self-attention, cross-attention of a decoder to its memory, and latent attention.

use sigprop_stack::{
    Activation, Attention, Component, Concat, ConcatPart, Mask, Node, Norm, NormKind, Op, Product, Rotary, Scale,
    Tensor,
};

use super::{Block, CROSS_ATTENTION};
use crate::architecture::{GlobalHeads, Latent, QkNorm};
use crate::recipe::{Fans, Role};

/// The sizes of the heads of a block.
pub(super) struct HeadSizes {
    n_kv_heads: usize,
    /// The width of a head of queries and keys.
    pub(super) d_head: usize,
    /// The width of a head of values.
    d_value: usize,
    /// True if values have the map of the keys.
    shared_values: bool,
}

/// The chains of nodes that compute queries, keys and values from their input.
struct States {
    query: Vec<Node>,
    key: Vec<Node>,
    value: Vec<Node>,
}

impl Block<'_> {
    /// The attention branch, without the norm of its input.
    pub(super) fn attention(&self) -> Vec<Node> {
        self.attended("attention", self.gated_heads(), self.blocks.architecture.multipliers.attention_output)
    }

    /// The heads, and the gate that multiplies their outputs, if there is one.
    pub(super) fn gated_heads(&self) -> Node {
        let architecture = self.blocks.architecture;
        let heads = self.heads();
        if !architecture.attention_gate {
            return heads;
        }
        let fans = Fans::new(architecture.d_model, architecture.n_heads * architecture.d_value);
        let gate = vec![
            self.linear("attention.gate", Role::Value, fans, architecture.qkv_biases),
            Node::apply("gate_activation", Component::Activation(Activation::Sigmoid)),
        ];
        Node::new("gated", Op::Product(Product { factors: vec![vec![heads], gate] }))
    }

    /// The cross-attention branch, without the norm of its input. It reads a memory of width `memory_width`.
    pub(super) fn cross_attention(&self, memory_width: usize) -> Vec<Node> {
        let states = self.states(&format!("{CROSS_ATTENTION}.heads"), memory_width, None);
        let heads = Attention { memory: Some(0), ..self.softmax(states) };
        self.attended(CROSS_ATTENTION, Node::new("heads", Op::Attention(heads)), 1.0)
    }

    /// The node of the attention heads.
    pub(super) fn heads(&self) -> Node {
        let architecture = self.blocks.architecture;
        let path = "attention.heads";
        let rotary = self.rotary();
        let (states, factor) = match architecture.latent {
            Some(latent) => (self.latent_states(path, latent, rotary.as_ref()), 1.0),
            None => (self.states(path, architecture.d_model, rotary.as_ref()), self.score_factor(rotary.as_ref())),
        };
        let plain = self.softmax(states);
        let scale = factor * plain.scale;
        let heads =
            Attention { scale, mask: self.mask(), bias: self.position_bias(path), sink: self.sink(path), ..plain };
        Node::new("heads", Op::Attention(heads))
    }

    /// The factor on scores that has the same effect as the factor m on the rotated features of queries and keys. It is
    /// m² if all features are rotated. Otherwise it is the root of the mean square of m² (rotated features) and 1
    /// (others), (2n m⁴ + d − 2n)/d for n frequencies and d features.
    fn score_factor(&self, rotary: Option<&Rotary>) -> f64 {
        let share = rotary.map_or(0.0, |rotary| 2.0 * rotary.frequencies.len() as f64 / rotary.d_head as f64);
        (share * self.rotary_scale().powi(4) + 1.0 - share).sqrt()
    }

    /// The attention of the heads to all tokens of the same sequence, with the given `states`.
    fn softmax(&self, states: States) -> Attention {
        let architecture = self.blocks.architecture;
        let heads = self.head_sizes();
        let by_layer = if architecture.attention_scale_by_layer { 1.0 / (self.index + 1) as f64 } else { 1.0 };
        Attention {
            n_heads: architecture.n_heads,
            n_kv_heads: heads.n_kv_heads,
            d_head: heads.d_head,
            d_value: heads.d_value,
            scale: architecture.attention_scale * by_layer,
            softcap: architecture.attention_softcap,
            mask: Mask::FULL,
            bias: None,
            sink: None,
            dropout_rate: self.blocks.rate(architecture.attention_dropout),
            query: states.query,
            key: states.key,
            value: states.value,
            memory: None,
        }
    }

    /// The nodes of an attention branch, from the heads to its output, which is multiplied by `scale`.
    fn attended(&self, path: &str, heads: Node, scale: f64) -> Vec<Node> {
        let architecture = self.blocks.architecture;
        let fans = Fans::new(architecture.n_heads * self.head_sizes().d_value, architecture.d_model);
        let mut body = vec![heads];
        body.extend(self.inner_norm());
        let output = format!("{path}.output");
        body.push(self.linear(&output, Role::AttentionOutput, fans, architecture.attention_output_bias));
        body.extend(Self::multiplier("output_scale", scale));
        body.extend(self.dropout("dropout", architecture.dropout));
        body.extend(self.output_norm());
        body
    }

    /// Queries, keys and values as linear maps; keys and values read an input of width `kv_width`.
    fn states(&self, path: &str, kv_width: usize, rotary: Option<&Rotary>) -> States {
        let architecture = self.blocks.architecture;
        let linear = |name: &str, role, fan_in, fan_out| {
            self.linear(&format!("{path}.{name}"), role, Fans::new(fan_in, fan_out), architecture.qkv_biases)
        };
        let (query_heads, sizes) = (architecture.n_heads, self.head_sizes());
        let heads = sizes.n_kv_heads;
        let query = linear("query", Role::Query, architecture.d_model, query_heads * sizes.d_head);
        let key = linear("key", Role::Key, kv_width, heads * sizes.d_head);
        let value = if sizes.shared_values {
            Node { name: "value".to_owned(), ..key.clone() }
        } else {
            linear("value", Role::Value, kv_width, heads * sizes.d_value)
        };
        let finished = |linear, name: &str, heads| {
            let rotary = rotary.map(|rotary| rotated(&format!("{name}_rotary"), rotary));
            let norm = self.qk_norm(&format!("{name}_norm"), heads, rotary.is_some());
            [Some(linear), norm, rotary].into_iter().flatten().collect()
        };
        let has_norm = architecture.qk_norm == QkNorm::HeadAndValue;
        let norm = has_norm.then(|| self.qk_norm("value_norm", heads, false)).flatten();
        let factor = architecture.value_scale;
        let scale = Self::multiplier("value_scale", factor);
        let value = [value].into_iter().chain(norm).chain(scale).collect();
        States { query: finished(query, "query", query_heads), key: finished(key, "key", heads), value }
    }

    /// The sinks of the heads at `path`, if this block has some.
    fn sink(&self, path: &str) -> Option<Tensor> {
        let architecture = self.blocks.architecture;
        let has_sinks = architecture.attention_sinks.get(self.index).copied().unwrap_or(false);
        has_sinks.then(|| self.tensor(path, ".sink", self.blocks.recipe.sink(architecture)))
    }

    /// The sizes of the heads of this block.
    pub(super) fn head_sizes(&self) -> HeadSizes {
        let architecture = self.blocks.architecture;
        match architecture.global_heads.filter(|_| self.window().is_none()) {
            Some(GlobalHeads { n_kv_heads, d_head, shared_values }) => {
                HeadSizes { n_kv_heads, d_head, d_value: d_head, shared_values }
            }
            None => HeadSizes {
                n_kv_heads: architecture.kv_heads_of(self.index),
                d_head: architecture.d_head,
                d_value: architecture.d_value,
                shared_values: false,
            },
        }
    }

    /// The norm of queries, keys or values, if they have one.
    fn qk_norm(&self, name: &str, heads: usize, rotated: bool) -> Option<Node> {
        let norm = self.blocks.architecture.norm?;
        let groups = match self.blocks.architecture.qk_norm {
            QkNorm::None => return None,
            QkNorm::Rotated if !rotated => return None,
            QkNorm::Head | QkNorm::HeadAndValue | QkNorm::Rotated => heads,
            QkNorm::Projection => 1,
        };
        Some(Node::apply(name, Component::Norm(Norm { groups, ..norm })))
    }

    /// The chains of multi-head latent attention. Keys and values have a common latent: it is computed in both chains,
    /// with shared weights.
    fn latent_states(&self, path: &str, latent: Latent, rotary: Option<&Rotary>) -> States {
        let architecture = self.blocks.architecture;
        let (width, heads) = (architecture.d_model, architecture.n_heads);
        let down = |name: &str, tensor: &str, role, rank| {
            let map = self.map(&format!("{path}.{tensor}"), role, Fans::new(width, rank), architecture.qkv_biases);
            [Node::apply(name, map)].into_iter().chain(self.latent_norm(&format!("{name}_norm")))
        };
        let up = |name: &str, role, fan_in, fan_out| {
            self.linear(&format!("{path}.{name}"), role, Fans::new(fan_in, fan_out), false)
        };
        let factor = self.rotary_scale();
        let turned = |name: &str| {
            let scale = Component::Scale(Scale { factor });
            let scale = ((factor - 1.0).abs() > 0.0).then(|| Node::apply("rotary_scale", scale));
            rotary.map(|rotary| [Some(rotated(name, rotary)), scale]).into_iter().flatten().flatten()
        };
        let beside = |nope: Vec<Node>, rope: Vec<Node>, shared| {
            let parts = vec![ConcatPart { shared: false, body: nope }, ConcatPart { shared, body: rope }];
            Op::Concat(Concat { n_heads: heads, parts })
        };

        let (mut query, rank): (Vec<Node>, usize) = match latent.query_rank {
            Some(rank) => (down("query_down", "query_down", Role::QueryDown, rank).collect(), rank),
            None => (Vec::new(), width),
        };
        let nope = vec![up("query.nope", Role::Query, rank, heads * latent.d_nope)];
        let rope = [up("query.rope", Role::Query, rank, heads * latent.d_rope)].into_iter().chain(turned("rotary"));
        query.push(Node::new("query", beside(nope, rope.collect(), false)));

        let nope = down("down", "kv_down", Role::KvDown, latent.kv_rank).chain([up(
            "key.nope",
            Role::Key,
            latent.kv_rank,
            heads * latent.d_nope,
        )]);
        let rope = self.map(
            &format!("{path}.key.rope"),
            Role::KvDown,
            Fans::new(width, latent.d_rope),
            architecture.qkv_biases,
        );
        let rope = [Node::apply("rope", rope)].into_iter().chain(turned("rotary"));
        let key = vec![Node::new("key", beside(nope.collect(), rope.collect(), true))];

        let value = down("value_down", "kv_down", Role::KvDown, latent.kv_rank).chain([up(
            "value",
            Role::Value,
            latent.kv_rank,
            heads * latent.d_value,
        )]);
        States { query, key, value: value.collect() }
    }

    /// The norm of a latent: always RMSNorm.
    fn latent_norm(&self, name: &str) -> Option<Node> {
        let norm = self.blocks.architecture.norm?;
        Some(Node::apply(name, Component::Norm(Norm { kind: NormKind::RmsNorm, ..norm })))
    }
}

fn rotated(name: &str, rotary: &Rotary) -> Node {
    Node::apply(name, Component::Rotary(rotary.clone()))
}
