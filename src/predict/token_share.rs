//! The share of token embeddings in the sum of embeddings.
//!
//! # Formula
//!
//! ```text
//! share = E e_token²/Σ E e²
//! ```
//!
//! where share is the share of the token embeddings in the second moment of the sum; E is the average over random
//! weights and over features; e is an entry of a term of the sum; e_token is an entry of the token table; Σ is the sum
//! over the token table, positions, token types and constants.
//!
//! The sum has the terms up to the first norm, map or dropout, with their factors. Sinusoidal waves have half their
//! squared amplitude as E e².

use sigprop_stack::{Component, EmbeddingTerm, Node, Op, Source, Stack, Stream};

/// Returns the smallest share of a token table in the sum of embeddings over all streams; `None` if nothing is added to
/// a table.
pub(crate) fn token_share(stack: &Stack) -> Option<f64> {
    stack.streams.iter().filter_map(of_stream).reduce(f64::min)
}

#[derive(Default)]
struct Sums {
    token: f64,
    others: f64,
}

impl Sums {
    fn add(&mut self, term: &EmbeddingTerm) {
        match term {
            EmbeddingTerm::Token { table } => self.token += table.init.variance(),
            EmbeddingTerm::LearnedPosition { table }
            | EmbeddingTerm::Constant { table, .. }
            | EmbeddingTerm::Segment { table } => self.others += table.init.variance(),
            EmbeddingTerm::SinusoidalPosition { scale } => self.others += 0.5 * scale * scale,
        }
    }

    /// Adds a component to the sum of embeddings. Returns false if the sum ends before this component.
    fn pass(&mut self, component: &Component) -> bool {
        match component {
            Component::Embedding(term) => self.add(term),
            Component::Scale(scale) => {
                let square = scale.factor * scale.factor;
                self.token *= square;
                self.others *= square;
            }
            Component::Linear(_)
            | Component::Convolution(_)
            | Component::Norm(_)
            | Component::Activation(_)
            | Component::Dropout(_)
            | Component::Rotary(_)
            | Component::Prepend(_)
            | Component::Pool(_)
            | Component::Select(_) => return false,
        }
        true
    }
}

fn of_stream(stream: &Stream) -> Option<f64> {
    let Source::Embedding(source) = &stream.source else { return None };
    let mut sums = Sums::default();
    source.terms.iter().for_each(|term| sums.add(term));
    let entrance = match stream.body.first() {
        Some(Node { op: Op::Chain(steps), .. }) => steps.as_slice(),
        _ => &stream.body,
    };
    for node in entrance {
        let Op::Apply(component) = &node.op else { break };
        if !sums.pass(component) {
            break;
        }
    }
    let has_table = source.terms.iter().any(|term| matches!(term, EmbeddingTerm::Token { .. }));
    (has_table && sums.others > 0.0).then(|| sums.token / (sums.token + sums.others))
}
