//! Blocks: attention and feed-forward branches around residual connections, and layers of MLPs.

use sigprop_stack::{Attention, Branch, Component, Dropout, Init, Linear, Node, Op, Product, Sum, Tensor};

use super::{Projection, Residual, Role, Slot};
use crate::architecture::{Kind, Placement, Resolved};

/// Builds the blocks of one network.
pub(crate) struct Blocks<'a> {
    architecture: &'a Resolved,
    residual: Residual,
    train: bool,
}

/// The distributions of any linear map.
type Projections<'a> = dyn Fn(&Slot) -> Projection + 'a;

impl<'a> Blocks<'a> {
    /// Blocks of `architecture`; its own residual scales, if it has any, replace `residual`.
    pub(crate) fn new(architecture: &'a Resolved, residual: Residual, train: bool) -> Self {
        let residual = Residual {
            skip: architecture.skip_scale.unwrap_or(residual.skip),
            branch: architecture.branch_scale.unwrap_or(residual.branch),
        };
        Self { architecture, residual, train }
    }

    /// The node of block `index`.
    pub(crate) fn block(&self, index: usize, projections: &Projections) -> Node {
        let name = format!("blocks.{index}");
        let attention = || self.residual("attention", self.attention(index, projections));
        let ffn = || self.residual("ffn", self.feed_forward(index, projections));
        let body = match (self.architecture.kind, self.architecture.placement) {
            (Kind::Encoder, Placement::Pre) => vec![attention(), ffn()],
            (Kind::Encoder, Placement::Post) => {
                let norms = [self.norm("attention_norm"), self.norm("ffn_norm")];
                [attention(), ffn()]
                    .into_iter()
                    .zip(norms)
                    .flat_map(|(sum, norm)| Some(sum).into_iter().chain(norm))
                    .collect()
            }
            (Kind::Mlp, placement) => {
                let norm = self.norm("norm").filter(|_| placement == Placement::Post);
                let layer = self.layer(index, projections);
                let layer = if self.architecture.residual { vec![self.residual("layer", layer)] } else { layer };
                layer.into_iter().chain(norm).collect()
            }
        };
        Node::new(name, Op::Chain(body))
    }

    /// The norm called `name`, if the network has norms.
    pub(crate) fn norm(&self, name: &str) -> Option<Node> {
        self.architecture.norm.map(|norm| Node::apply(name, Component::Norm(norm)))
    }

    /// Attention's branch up to the output of its heads.
    pub(crate) fn attend(&self, index: usize, projections: &Projections) -> Vec<Node> {
        let site = format!("blocks.{index}.attention.heads");
        let map = |name, role| vec![self.linear(&site, name, role, index, projections)];
        let heads = Attention {
            n_heads: self.architecture.n_heads,
            n_kv_heads: self.architecture.n_kv_heads,
            d_head: self.architecture.d_head(),
            scale: (self.architecture.d_head() as f64).powf(-0.5),
            dropout_rate: self.rate(self.architecture.attention_dropout),
            query: map("query", Role::Query),
            key: map("key", Role::Key),
            value: map("value", Role::Value),
        };
        self.pre_norm().into_iter().chain([Node::new("heads", Op::Attention(heads))]).collect()
    }

    /// The feed-forward branch.
    pub(crate) fn feed_forward(&self, index: usize, projections: &Projections) -> Vec<Node> {
        let site = format!("blocks.{index}.ffn");
        let activation = Component::Activation(self.architecture.activation.function());
        let activation = Node::apply("activation", activation);
        let mut body: Vec<Node> = self.pre_norm().into_iter().collect();
        if self.architecture.activation.is_gated() {
            let site = format!("{site}.gated");
            let gate = self.linear(&site, "gate", Role::FfnGate, index, projections);
            let up = self.linear(&site, "up", Role::FfnUp, index, projections);
            let gated = Product { factors: vec![vec![gate, activation], vec![up]] };
            body.push(Node::new("gated", Op::Product(gated)));
        } else {
            body.push(self.linear(&site, "in", Role::FfnIn, index, projections));
            body.push(activation);
        }
        body.push(self.linear(&site, "out", Role::FfnOut, index, projections));
        body.extend(self.dropout());
        body
    }

    fn attention(&self, index: usize, projections: &Projections) -> Vec<Node> {
        let mut body = self.attend(index, projections);
        let site = format!("blocks.{index}.attention");
        body.push(self.linear(&site, "output", Role::AttentionOutput, index, projections));
        body.extend(self.dropout());
        body
    }

    /// A layer of an MLP.
    fn layer(&self, index: usize, projections: &Projections) -> Vec<Node> {
        let block = format!("blocks.{index}");
        let site = if self.architecture.residual { format!("{block}.layer") } else { block };
        let mut body: Vec<Node> = self.pre_norm().into_iter().collect();
        body.push(self.linear(&site, "linear", Role::Hidden, index, projections));
        let activation = Component::Activation(self.architecture.activation.function());
        body.push(Node::apply("activation", activation));
        body.extend(self.dropout());
        body
    }

    fn residual(&self, name: &str, body: Vec<Node>) -> Node {
        let skip = Branch { scale: self.residual.skip, drop_rate: 0.0, body: Vec::new() };
        let drop_rate = self.rate(self.architecture.drop_path);
        let branch = Branch { scale: self.residual.branch, drop_rate, body };
        Node::new(name, Op::Sum(Sum { branches: vec![skip, branch] }))
    }

    fn pre_norm(&self) -> Option<Node> {
        self.norm("norm").filter(|_| self.architecture.placement == Placement::Pre)
    }

    fn dropout(&self) -> Option<Node> {
        let rate = self.rate(self.architecture.dropout);
        (rate > 0.0).then(|| Node::apply("dropout", Component::Dropout(Dropout { rate })))
    }

    /// A rate of dropping something; nothing is dropped in evaluation.
    fn rate(&self, rate: f64) -> f64 {
        if self.train { rate } else { 0.0 }
    }

    fn linear(&self, site: &str, name: &str, role: Role, block: usize, projections: &Projections) -> Node {
        let slot = Slot::new(self.architecture, role, block);
        let Projection { weight, bias } = projections(&slot);
        let tensor = |what: &str, init: Init| Tensor { name: format!("{site}.{name}.{what}"), init };
        let linear = Linear {
            fan_in: slot.fan_in,
            fan_out: slot.fan_out,
            weight: tensor("weight", weight),
            bias: self.architecture.biases.then(|| tensor("bias", bias)),
        };
        Node::apply(name, Component::Linear(linear))
    }
}
