//! The input of block 0: the source of the stream and the node `embeddings`.

use sigprop_stack::{
    Activation, Component, Convolution, Embedding, EmbeddingTerm, Gaussian, Ids, Node, PowerLaw, Prepend, Scale,
    Source, Stream, Tensor,
};

use super::input::Reads;
use super::stream_builder::{Entrance, StreamBuilder};
use crate::architecture::{EmbeddingProjection, Kind, Positions, Stem};
use crate::predict::{ForwardPass, PredictError};
use crate::recipe::{Fans, Outer, Table};

impl StreamBuilder<'_> {
    /// The beginning of the stream, up to block 0, for the input `reads`.
    pub(super) fn entrance(&self, reads: &Reads, train: bool) -> Result<Entrance, PredictError> {
        match reads {
            Reads::Ids(ids) => Ok(self.embedded(ids.clone(), train)),
            Reads::Stem(stem) => Ok(self.stem(stem, train)),
            Reads::Vectors(correlation) => {
                let variance = match self.architecture.kind {
                    Kind::Encoder => self.variance(train)?,
                    Kind::Mlp => 1.0,
                };
                let gaussian =
                    Gaussian { width: self.architecture.d_model, mean: 0.0, variance, correlation: *correlation };
                Ok(Entrance::new(self.architecture.seq_len, Source::Gaussian(gaussian), Vec::new()))
            }
        }
    }

    /// The table of the token embedding.
    pub(super) fn token(&self) -> Tensor {
        self.token.clone().unwrap_or_else(|| self.table("token", Table::Token))
    }

    /// Embedded ids. Terms that are added to the token embedding are part of the source if the token embedding enters
    /// the sum as it is; if it is scaled or projected first, they are nodes after it.
    fn embedded(&self, ids: Ids, train: bool) -> Entrance {
        let architecture = self.architecture;
        let factor = architecture.embedding_scale;
        let scale = ((factor - 1.0).abs() > 0.0).then(|| Node::apply("scale", Component::Scale(Scale { factor })));
        let width = architecture.embedding_width;
        let projection = |place, bias| {
            let projected = width != architecture.d_model && architecture.embedding_projection == place;
            let fans = Fans::new(width, architecture.d_model);
            projected.then(|| self.outer("embeddings.projection", Outer::EmbeddingIn, fans, bias))
        };
        let mut body: Vec<Node> = scale.into_iter().chain(projection(EmbeddingProjection::Token, false)).collect();
        let mut terms = vec![EmbeddingTerm::Token { table: self.token() }];
        if body.is_empty() {
            terms.extend(self.added().into_iter().map(|(_, term)| term));
        } else {
            body.extend(self.added_nodes());
        }
        body.extend(self.finished(architecture.embedding_norm, train));
        body.extend(projection(EmbeddingProjection::Sum, architecture.biases));
        Entrance::new(architecture.seq_len, Source::Embedding(Embedding::new(width, ids, terms)), body)
    }

    /// Embedded patches or frames, whose entries are independent with distribution N(0, 1).
    fn stem(&self, stem: &Stem, train: bool) -> Entrance {
        let width = self.architecture.d_model;
        let seq_len = self.architecture.seq_len;
        let noise = |width| Source::Gaussian(Gaussian { width, mean: 0.0, variance: 1.0, correlation: 0.0 });
        let (seq_len, source, mut body, norm) = match *stem {
            Stem::Patches { patch_width, class_token, distillation_token, registers, bias, norm } => {
                let fans = Fans::new(patch_width, width);
                let mut body = vec![self.outer("embeddings.patches", Outer::Stem, fans, bias)];
                let single = [(distillation_token, "distillation_token"), (class_token, "class_token")];
                let single = single.into_iter().filter(|(is_there, _)| *is_there).map(|(_, name)| name.to_owned());
                let learned = (0..registers).rev().map(|number| format!("register_{number}")).chain(single);
                let learned: Vec<Node> = learned
                    .map(|name| {
                        let token = self.table(&name, Table::ClassToken);
                        Node::apply(name, Component::Prepend(Prepend { token }))
                    })
                    .collect();
                let seq_len = seq_len - learned.len();
                body.extend(learned);
                (seq_len, noise(patch_width), body, norm)
            }
            Stem::Audio { n_mels } => {
                let activation = |name: &str| Node::apply(name, Component::Activation(Activation::Gelu));
                let body = vec![
                    self.convolution("conv1", n_mels, 1),
                    activation("activation1"),
                    self.convolution("conv2", width, 2),
                    activation("activation2"),
                ];
                (2 * seq_len, noise(n_mels), body, false)
            }
        };
        body.extend(self.added_nodes());
        body.extend(self.finished(norm || self.architecture.embedding_norm, train));
        Entrance::new(seq_len, source, body)
    }

    /// A convolution of width 3.
    fn convolution(&self, name: &str, fan_in: usize, stride: usize) -> Node {
        let (kernel, fan_out) = (3, self.architecture.d_model);
        let fans = Fans::new(kernel * fan_in, fan_out);
        let path = format!("embeddings.{name}");
        let (weight, bias) = self.outer_tensors(&path, Outer::Stem, fans, self.architecture.biases);
        let convolution = Convolution {
            fan_in,
            fan_out,
            kernel,
            stride,
            padding: 1,
            groups: 1,
            causal: false,
            image: None,
            weight,
            bias,
        };
        Node::apply(name, Component::Convolution(convolution))
    }

    /// The terms that are added to the embedding of a token or patch, each with its name.
    fn added(&self) -> Vec<(&'static str, EmbeddingTerm)> {
        let mut terms = Vec::new();
        match self.architecture.positions {
            Positions::None | Positions::Rotary | Positions::Alibi | Positions::Relative => {}
            Positions::Learned | Positions::LearnedRelative => {
                let table = self.table("position", Table::Position);
                terms.push(("position", EmbeddingTerm::LearnedPosition { table }));
            }
            Positions::Sinusoidal => {
                let scale = self.recipe.sinusoid(self.architecture);
                terms.push(("position", EmbeddingTerm::SinusoidalPosition { scale }));
            }
        }
        if self.architecture.segments {
            terms.push(("segment", EmbeddingTerm::Segment { table: self.table("segment", Table::Segment) }));
        }
        let rows = self.architecture.token_types;
        if rows > 0 {
            let table = self.table("token_type", Table::TokenType);
            terms.push(("token_type", EmbeddingTerm::Constant { table, rows }));
        }
        terms
    }

    fn added_nodes(&self) -> impl Iterator<Item = Node> {
        self.added().into_iter().map(|(name, term)| Node::apply(name, Component::Embedding(term)))
    }

    /// The nodes that follow the sum of embeddings before block 0: norm and dropout.
    fn finished(&self, norm: bool, train: bool) -> impl Iterator<Item = Node> {
        let norm = self.architecture.norm.filter(|_| norm);
        let norm = norm.map(|norm| Node::apply("norm", Component::Norm(norm)));
        norm.into_iter().chain(Self::dropout(self.architecture.embedding_dropout, train))
    }

    /// The second moment of the input of block 0, which does not depend on the distribution of ids.
    fn variance(&self, train: bool) -> Result<f64, PredictError> {
        let uniform = PowerLaw { vocab_size: self.architecture.vocab_size, exponent: 0.0 };
        let Entrance { seq_len, source, node } = match &self.architecture.stem {
            Some(stem) => self.stem(stem, train),
            None => self.embedded(Ids::PowerLaw(uniform), train),
        };
        let stream = Stream { name: String::new(), seq_len, source, body: vec![node] };
        let mut pass = ForwardPass::new(&stream);
        pass.through(&stream.body)?;
        Ok(pass.second_moment())
    }

    fn table(&self, name: &str, table: Table) -> Tensor {
        let init = self.recipe.embedding(self.architecture, table);
        Tensor { name: format!("{}embeddings.{name}", self.prefix), init }
    }
}
