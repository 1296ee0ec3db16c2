//! What enters block 0: the source of the stream and the node `embeddings`.

use std::convert::Infallible;

use sigprop_stack::{Component, Dropout, Embedding, EmbeddingTerm, Gaussian, Ids, Node, Op, Source, Tensor};

use super::{AssembleError, Input, correlation};
use crate::architecture::{Kind, Positions, Resolved};
use crate::predict::{ForwardWalk, PredictError};
use crate::root::root;
use crate::schemes::{Recipe, Table};

/// An input, resolved for an architecture.
#[derive(Clone, Copy)]
pub(super) enum Reads {
    /// Ids of probabilities that fall with this exponent.
    Ids(f64),
    /// Gaussian vectors of this correlation where embeddings would be.
    Vectors(f64),
}

impl Reads {
    pub(super) fn new(architecture: &Resolved, input: &Input) -> Result<Self, AssembleError> {
        match (architecture.kind, *input) {
            (_, Input::Correlation(r)) => correlation("input correlation", r).map(|()| Self::Vectors(r)),
            (Kind::Encoder, Input::Zipf) => Ok(Self::Ids(1.0)),
            (Kind::Encoder, Input::Uniform) => Ok(Self::Ids(0.0)),
            (Kind::Encoder, Input::TokenRepeat(probability)) => {
                repeating_exponent(architecture.vocab_size, probability).map(Self::Ids)
            }
            // The default of the input, not a wish.
            (Kind::Mlp, Input::Zipf) => Ok(Self::Vectors(0.0)),
            (Kind::Mlp, Input::Uniform | Input::TokenRepeat(_)) => Err(AssembleError::Input {
                field: "input",
                expected: "a correlation between tokens, for an MLP reads vectors".to_owned(),
                got: "token ids".to_owned(),
            }),
        }
    }

    /// The source and the node behind it.
    pub(super) fn enter(
        self,
        architecture: &Resolved,
        recipe: &dyn Recipe,
        train: bool,
    ) -> Result<(Source, Node), PredictError> {
        match self {
            Self::Ids(exponent) => Ok((embedded(architecture, recipe, exponent), processed(architecture, train))),
            Self::Vectors(correlation) => {
                let variance = match architecture.kind {
                    Kind::Encoder => variance(architecture, recipe, train)?,
                    Kind::Mlp => 1.0,
                };
                let gaussian = Gaussian { width: architecture.d_model, variance, correlation };
                Ok((Source::Gaussian(gaussian), Node::new("embeddings", Op::Chain(Vec::new()))))
            }
        }
    }
}

/// The sum of embeddings of ids whose probabilities fall with `exponent`.
fn embedded(architecture: &Resolved, recipe: &dyn Recipe, exponent: f64) -> Source {
    let table =
        |name: &str, table| Tensor { name: format!("embeddings.{name}"), init: recipe.embedding(architecture, table) };
    let mut terms = vec![EmbeddingTerm::Token { table: table("token", Table::Token) }];
    match architecture.positions {
        Positions::None | Positions::Rotary | Positions::Alibi => {}
        Positions::Learned => terms.push(EmbeddingTerm::LearnedPosition { table: table("position", Table::Position) }),
        Positions::Sinusoidal => {
            terms.push(EmbeddingTerm::SinusoidalPosition { scale: recipe.sinusoid(architecture) });
        }
    }
    if architecture.segments {
        terms.push(EmbeddingTerm::Segment { table: table("segment", Table::Segment) });
    }
    let ids = Ids { vocab_size: architecture.vocab_size, exponent };
    Source::Embedding(Embedding { width: architecture.d_model, ids, terms })
}

/// What happens to the sum of embeddings before block 0.
fn processed(architecture: &Resolved, train: bool) -> Node {
    let norm = architecture.norm.filter(|_| architecture.embedding_norm);
    let norm = norm.map(|norm| Node::apply("norm", Component::Norm(norm)));
    let rate = architecture.dropout;
    let dropout = (train && rate > 0.0).then(|| Node::apply("dropout", Component::Dropout(Dropout { rate })));
    Node::new("embeddings", Op::Chain(norm.into_iter().chain(dropout).collect()))
}

/// Second moment of what enters block 0, whatever ids are drawn.
fn variance(architecture: &Resolved, recipe: &dyn Recipe, train: bool) -> Result<f64, PredictError> {
    let mut walk = ForwardWalk::new(&embedded(architecture, recipe, 0.0), architecture.seq_len);
    walk.through(&[processed(architecture, train)])?;
    Ok(walk.second_moment())
}

/// The exponent of the power law whose Σ p² is `probability`.
fn repeating_exponent(vocab_size: usize, probability: f64) -> Result<f64, AssembleError> {
    /// Beyond, Σ p² is 1 to the last digit.
    const STEEPEST: f64 = 64.0;
    let least = 1.0 / vocab_size as f64;
    if !(least..=1.0).contains(&probability) {
        return Err(AssembleError::Input {
            field: "token repeat probability",
            expected: format!("between 1/vocab_size = {least} and 1"),
            got: probability.to_string(),
        });
    }
    let excess = |exponent| Ok(Ids { vocab_size, exponent }.repeat_probability(2).ln() - probability.ln());
    let Ok(exponent) = root::<Infallible>(0.0, STEEPEST, excess);
    Ok(exponent)
}
