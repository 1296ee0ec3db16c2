//! Feed-forward networks: plain, gated, mixtures of experts.

use sigprop_stack::{
    Activation, Branch, Component, Mixture, Multiplied, Node, Op, Product, Scale, Sum, Tensor, Weighting,
};

use super::Block;
use crate::architecture::{Activation as Choice, Experts};
use crate::recipe::{BlockNorm, Fans, Role, Slot};

impl Block<'_> {
    /// The feed-forward branch, without the norm of its input.
    pub(super) fn ffn(&self) -> Vec<Node> {
        let architecture = self.blocks.architecture;
        let mut body = match architecture.experts_of(self.index) {
            Some(experts) => vec![self.mixture("ffn.experts", experts)],
            None => self.perceptron("ffn", architecture.d_ff_of(self.index), Role::FfnOut),
        };
        body.extend(Self::multiplier("output_scale", architecture.multipliers.ffn_output));
        body.extend(self.dropout("dropout", architecture.dropout));
        body.extend(self.output_norm());
        body
    }

    /// One hidden layer of width `d_ff` and the linear map back.
    fn perceptron(&self, path: &str, d_ff: usize, out: Role) -> Vec<Node> {
        let architecture = self.blocks.architecture;
        let (width, biases) = (architecture.d_model, architecture.ffn_biases);
        let widen = |name: &str, role| self.linear(&format!("{path}.{name}"), role, Fans::new(width, d_ff), biases);
        let activation = Node::apply("activation", Component::Activation(architecture.activation.function()));
        let mut body = if architecture.activation.is_gated() {
            let scale = Self::multiplier("gate_scale", architecture.multipliers.ffn_gate);
            let gate = [widen("gated.gate", Role::FfnGate)].into_iter().chain(scale).chain([activation]).collect();
            let plus_one = || Node::apply("plus_one", Component::Activation(Activation::PlusOne));
            let shifts = architecture.activation == Choice::QuickGegluPlusOne;
            let up = [widen("gated.up", Role::FfnUp)].into_iter().chain(shifts.then(plus_one)).collect();
            vec![Node::new("gated", Op::Product(Product { factors: vec![gate, up] }))]
        } else {
            vec![widen("in", Role::FfnIn), activation]
        };
        body.extend(self.inner_norm());
        body.extend(self.dropout("activation_dropout", architecture.activation_dropout));
        body.push(self.linear(&format!("{path}.out"), out, Fans::new(d_ff, width), biases));
        body
    }

    /// A mixture of experts, plus the shared experts that every token goes to, if there are any.
    fn mixture(&self, path: &str, experts: &Experts) -> Node {
        if experts.shared_d_ff == 0 {
            return Node::new("experts", self.routed(path, experts));
        }
        let routed = self.routed(&format!("{path}.routed"), experts);
        let shared = self.shared(&format!("{path}.shared"), experts);
        let branches = [("routed", routed), ("shared", shared)].map(|(name, op)| {
            let op = if experts.own_norms { self.normed(op) } else { op };
            Branch::constant(1.0, vec![Node::new(name, op)])
        });
        Node::new("experts", Op::Sum(Sum { branches: branches.into() }))
    }

    /// Experts between norms of their own.
    fn normed(&self, experts: Op) -> Op {
        let norms = [("norm", BlockNorm::Input), ("output_norm", BlockNorm::Output)];
        let [before, after] = norms.map(|(name, place)| self.norm(name, place));
        Op::Chain(before.into_iter().chain([Node::new("experts", experts)]).chain(after).collect())
    }

    /// The shared experts, which every token goes to. With a gate they are a mixture of one expert, weighted by the
    /// sigmoid of its score.
    fn shared(&self, path: &str, experts: &Experts) -> Op {
        let body = self.perceptron(path, experts.shared_d_ff, Role::FfnOut);
        if !experts.shared_gate {
            return Op::Chain(body);
        }
        Op::Mixture(Mixture {
            n_experts: 1,
            top_k: 1,
            weighting: Weighting::Sigmoid,
            weights_multiply: Multiplied::Outputs,
            normalised: false,
            scale: 1.0,
            router: self.router(path, 1),
            expert: body,
        })
    }

    /// The experts that the router chooses. A factor on scores is one on the input of the router, which experts undo.
    fn routed(&self, path: &str, experts: &Experts) -> Op {
        let is_scaled = (experts.router_scale - 1.0).abs() > 0.0;
        let scale = |name, factor| is_scaled.then(|| Node::apply(name, Component::Scale(Scale { factor })));
        let expert = self.perceptron(path, experts.d_ff, Role::ExpertOut);
        let mixture = Op::Mixture(Mixture {
            n_experts: experts.n_experts,
            top_k: experts.top_k,
            weighting: experts.weighting,
            weights_multiply: experts.weights_multiply,
            normalised: experts.normalised,
            scale: experts.scale,
            router: self.router(path, experts.n_experts),
            expert: scale("input_scale", experts.router_scale.recip()).into_iter().chain(expert).collect(),
        });
        match scale("router_scale", experts.router_scale) {
            Some(scale) => Op::Chain(vec![scale, Node::new("experts", mixture)]),
            None => mixture,
        }
    }

    fn router(&self, path: &str, n_experts: usize) -> Tensor {
        let architecture = self.blocks.architecture;
        let fans = Fans::new(architecture.d_model, n_experts);
        let slot = Slot { architecture, role: Role::Router, block: self.owner, fans, cross: false };
        self.tensor(path, ".router.weight", (self.projections)(&slot).weight)
    }
}
