//! The head after the stream that the gradient goes through.

use sigprop_stack::{Component, EmbeddingTerm, Node, Op, Source, Stack, Tensor};

use super::stream_builder::StreamBuilder;
use crate::architecture::Head;
use crate::recipe::{Fans, Outer};

/// The table of token embeddings of the stream that the gradient goes through, and its shape; `None` if that stream
/// embeds no ids.
pub(crate) fn token_table(stack: &Stack) -> Option<(&Tensor, [usize; 2])> {
    let Source::Embedding(embedding) = &stack.streams[stack.gradient.stream].source else { return None };
    let table = embedding.terms.iter().find_map(|term| match term {
        EmbeddingTerm::Token { table } => Some(table),
        EmbeddingTerm::LearnedPosition { .. }
        | EmbeddingTerm::SinusoidalPosition { .. }
        | EmbeddingTerm::Constant { .. }
        | EmbeddingTerm::Segment { .. } => None,
    })?;
    Some((table, [embedding.ids.vocab_size(), embedding.width]))
}

impl StreamBuilder<'_> {
    /// A head of this kind after the stream; `None` if the kind has no logits, or if there is no table to tie the head
    /// to.
    pub(super) fn head(&self, stack: &Stack, kind: Head) -> Option<sigprop_stack::Head> {
        let architecture = self.architecture;
        let shape = [architecture.vocab_size, architecture.embedding_width];
        let (weight, bias) = self.outer_tensors("head", Outer::Head, Fans::new(shape[1], shape[0]), true);
        let (weight, shape) = match kind {
            Head::None | Head::Pooler => return None,
            Head::Tied => token_table(stack).map(|(table, shape)| (table.clone(), shape))?,
            Head::Untied => (weight, shape),
        };
        Some(sigprop_stack::Head {
            body: self.before_head().into_iter().collect(),
            bias: bias.filter(|_| architecture.head_bias),
            scale: architecture.logit_scale,
            softcap: architecture.logit_softcap,
            ..sigprop_stack::Head::new(weight, shape)
        })
    }

    /// The linear map, activation and norm before the head of a masked language model.
    fn before_head(&self) -> Option<Node> {
        let architecture = self.architecture;
        let activation = architecture.head_activation?;
        let fans = Fans::new(architecture.d_model, architecture.embedding_width);
        let map = self.outer("head.dense", Outer::EmbeddingOut, fans, architecture.biases);
        let activation = Node::apply("activation", Component::Activation(activation.function()));
        let norm = architecture.norm.map(|norm| Node::apply("norm", Component::Norm(norm)));
        Some(Node::new("head", Op::Chain([map, activation].into_iter().chain(norm).collect())))
    }
}
