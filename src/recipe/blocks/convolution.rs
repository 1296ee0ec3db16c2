//! Short convolutions of single features in place of attention.

use sigprop_stack::{Component, Convolution, Node, Op, Product};

use super::{Block, CONVOLUTION};
use crate::recipe::{Fans, Role, Slot};

impl Block<'_> {
    /// The branch of a short convolution, without the norm of its input.
    pub(super) fn convolution(&self) -> Vec<Node> {
        let architecture = self.blocks.architecture;
        let fans = Fans::new(architecture.d_model, architecture.d_model);
        let mut body = vec![self.short_convolution()];
        body.extend(self.inner_norm());
        body.push(self.convolution_map("output", Role::AttentionOutput, fans));
        body.extend(self.dropout("dropout", architecture.dropout));
        body.extend(self.output_norm());
        body
    }

    /// The convolution between its two gates, c ∘ conv(b ∘ x).
    pub(super) fn short_convolution(&self) -> Node {
        let architecture = self.blocks.architecture;
        let width = architecture.d_model;
        let map = |name: &str| self.convolution_map(name, Role::Value, Fans::new(width, width));
        let input = vec![vec![map("gated.input.gate")], vec![map("gated.input.value")]];
        let input = Node::new("input", Op::Product(Product { factors: input }));
        let taps = (architecture.convolution_taps, architecture.convolution_biases);
        let taps = self.taps(&format!("{CONVOLUTION}.gated.taps"), width, taps);
        let factors = vec![vec![map("gated.gate")], vec![input, taps]];
        Node::new("gated", Op::Product(Product { factors }))
    }

    fn convolution_map(&self, name: &str, role: Role, fans: Fans) -> Node {
        self.linear(&format!("{CONVOLUTION}.{name}"), role, fans, self.blocks.architecture.convolution_biases)
    }

    /// The causal convolution of each of `width` features over `taps` tokens, with or without biases.
    pub(super) fn taps(&self, path: &str, width: usize, (taps, biases): (usize, bool)) -> Node {
        let architecture = self.blocks.architecture;
        let fans = Fans::new(taps, taps);
        let slot = Slot { architecture, role: Role::Taps, block: self.index, fans, cross: false };
        let projection = (self.projections)(&slot);
        let convolution = Convolution {
            fan_in: width,
            fan_out: width,
            kernel: taps,
            stride: 1,
            padding: taps - 1,
            groups: width,
            causal: true,
            image: None,
            weight: self.tensor(path, ".weight", projection.weight),
            bias: biases.then(|| self.tensor(path, ".bias", projection.bias)),
        };
        Node::apply(path.rsplit('.').next().unwrap_or(path), Component::Convolution(convolution))
    }
}
