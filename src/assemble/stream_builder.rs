//! One stream of a network: an encoder, a decoder or an MLP.

use sigprop_stack::{Component, Dropout, Init, Linear, Node, Op, Source, Stream, Tensor};

use super::AssembleError;
use super::input::Reads;
use crate::architecture::Resolved;
use crate::predict::{ForwardPass, PredictError, Theory};
use crate::recipe::{Blocks, Fans, Outer, Projection, Recipe, Residual, Slot};

/// The beginning of a stream.
pub(super) struct Entrance {
    pub(super) seq_len: usize,
    pub(super) source: Source,
    pub(super) node: Node,
}

impl Entrance {
    pub(super) fn new(seq_len: usize, source: Source, body: Vec<Node>) -> Self {
        Self { seq_len, source, node: Node::new("embeddings", Op::Chain(body)) }
    }
}

/// A stream that is being assembled.
pub(super) struct StreamBuilder<'a> {
    pub(super) architecture: &'a Resolved,
    pub(super) recipe: &'a dyn Recipe,
    /// The prefix of the names of all tensors of the stream.
    pub(super) prefix: &'a str,
    /// The token embedding, if it is shared with another stream.
    pub(super) token: Option<Tensor>,
    /// The theory in which schemes follow the signal.
    pub(super) theory: Theory,
}

impl StreamBuilder<'_> {
    /// The whole stream.
    pub(super) fn stream(&self, name: &str, reads: &Reads, train: bool) -> Result<Stream, AssembleError> {
        let Entrance { seq_len, source, node } = self.entrance(reads, train)?;
        let entrance = || self.pass(reads);
        let residuals = self.recipe.residuals(self.architecture, &entrance)?;
        let projections = self.recipe.projections(self.architecture, &entrance)?;
        let blocks = self.blocks(train, &residuals, &projections);
        let body = [node].into_iter().chain(blocks).chain(self.exit(train)).collect();
        Ok(Stream { name: name.to_owned(), seq_len, source, body })
    }

    /// Follows the signal to the input of block 0 in training. At this point the numbers of the blocks are unknown, and
    /// they are not needed.
    fn pass(&self, reads: &Reads) -> Result<ForwardPass, PredictError> {
        let Entrance { seq_len, source, node } = self.entrance(reads, true)?;
        let blocks = self.blocks(true, &|_| Residual::constant(1.0, 1.0), &|_| Init::Zero.into());
        let body = [node].into_iter().chain(blocks).collect();
        let stream = Stream { name: String::new(), seq_len, source, body };
        let mut pass = ForwardPass::in_theory(self.theory, &stream);
        pass.through(&stream.body[..1])?;
        Ok(pass)
    }

    fn blocks(
        &self,
        train: bool,
        residuals: &dyn Fn(usize) -> Residual,
        projections: &dyn Fn(&Slot) -> Projection,
    ) -> Vec<Node> {
        let blocks = Blocks::new(self.architecture, self.recipe, residuals, train, self.prefix);
        (0..self.architecture.n_layers).map(|index| blocks.block(index, projections).node()).collect()
    }

    /// The node after the last block, if anything follows the blocks.
    fn exit(&self, train: bool) -> Option<Node> {
        let (d_model, width) = (self.architecture.d_model, self.architecture.output_width());
        let norm = self.architecture.norm.filter(|_| self.architecture.final_norm).map(Component::Norm);
        let fans = Fans::new(d_model, width);
        // In front of a head that begins with a linear map, no projection is needed: that map narrows the stream.
        let projected = width != d_model && self.architecture.head_activation.is_none();
        let projection = projected.then(|| self.outer("final_norm.projection", Outer::EmbeddingOut, fans, false));
        let dropout = Self::dropout(self.architecture.final_dropout, train);
        match (norm, projection, dropout) {
            (None, None, None) => None,
            (Some(norm), None, None) => Some(Node::apply("final_norm", norm)),
            (norm, projection, dropout) => {
                let norm = norm.map(|norm| Node::apply("norm", norm));
                let body = [norm, projection, dropout].into_iter().flatten().collect();
                Some(Node::new("final_norm", Op::Chain(body)))
            }
        }
    }

    /// A linear map outside the blocks, whose name is the last part of `path` and whose tensors are named after `path`.
    pub(super) fn outer(&self, path: &str, place: Outer, fans: Fans, bias: bool) -> Node {
        let (weight, bias) = self.outer_tensors(path, place, fans, bias);
        let linear = Linear { fan_in: fans.fan_in, fan_out: fans.fan_out, weight, bias, standardised: None };
        Node::apply(path.rsplit('.').next().unwrap_or(path), Component::Linear(linear))
    }

    /// Weight and bias of a linear map outside the blocks.
    pub(super) fn outer_tensors(&self, path: &str, place: Outer, fans: Fans, bias: bool) -> (Tensor, Option<Tensor>) {
        let Projection { weight, bias: bias_init, standardised: _ } = self.recipe.outer(self.architecture, place, fans);
        let tensor = |what: &str, init| Tensor { name: format!("{}{path}.{what}", self.prefix), init };
        (tensor("weight", weight), bias.then(|| tensor("bias", bias_init)))
    }

    pub(super) fn dropout(rate: f64, train: bool) -> Option<Node> {
        (train && rate > 0.0).then(|| Node::apply("dropout", Component::Dropout(Dropout { rate })))
    }
}
