//! The input of a network, resolved for an architecture.

use std::convert::Infallible;

use sigprop_stack::{GivenIds, Ids, PowerLaw};

use super::{AssembleError, Input, correlation};
use crate::architecture::{Kind, Resolved, Stem};
use crate::root::root;

/// An input, resolved for an architecture.
pub(super) enum Reads {
    /// Token ids.
    Ids(Ids),
    /// Patches or frames.
    Stem(Stem),
    /// Gaussian vectors with this correlation between tokens, in place of embeddings.
    Vectors(f64),
}

impl Reads {
    pub(super) fn new(architecture: &Resolved, input: &Input) -> Result<Self, AssembleError> {
        let without_ids = match (architecture.kind, architecture.stem) {
            (Kind::Mlp, _) => Some(("an MLP reads vectors", Self::Vectors(0.0))),
            (Kind::Encoder, Some(stem)) => Some(("a stem reads patches or frames", Self::Stem(stem))),
            (Kind::Encoder, None) => None,
        };
        let vocab_size = architecture.vocab_size;
        let law = |exponent| Self::Ids(Ids::PowerLaw(PowerLaw { vocab_size, exponent }));
        match (input, without_ids) {
            (Input::Correlation(r), _) => correlation("input correlation", *r).map(|()| Self::Vectors(*r)),
            // `Zipf` is the default, not an explicit choice, so that networks without token ids accept it.
            (Input::Zipf, Some((_, reads))) => Ok(reads),
            (Input::Uniform | Input::TokenRepeat(_) | Input::Tokens { .. }, Some((reason, _))) => {
                Err(AssembleError::Input {
                    field: "input",
                    expected: format!("a correlation between tokens, for {reason}"),
                    got: "token ids".to_owned(),
                })
            }
            (Input::Zipf, None) => Ok(law(1.0)),
            (Input::Uniform, None) => Ok(law(0.0)),
            (Input::TokenRepeat(probability), None) => repeating_exponent(vocab_size, *probability).map(law),
            (Input::Tokens { sequences }, None) => {
                given(vocab_size, sequences).map(|given| Self::Ids(Ids::Given(given)))
            }
        }
    }

    /// The number of tokens; `None` if the input does not set it.
    pub(super) fn seq_len(&self) -> Option<usize> {
        match self {
            Self::Ids(Ids::Given(given)) => given.sequences.first().map(Vec::len),
            Self::Ids(Ids::PowerLaw(_)) | Self::Stem(_) | Self::Vectors(_) => None,
        }
    }
}

/// Returns the given sequences of ids. It is an error if their lengths differ or if an id is not in the vocabulary.
fn given(vocab_size: usize, sequences: &[Vec<u32>]) -> Result<GivenIds, AssembleError> {
    let error = |expected: String, got: String| Err(AssembleError::Input { field: "tokens", expected, got });
    let Some(first) = sequences.first().filter(|first| !first.is_empty()) else {
        return error("at least one id".to_owned(), "none".to_owned());
    };
    if let Some(other) = sequences.iter().find(|other| other.len() != first.len()) {
        let got = format!("{} ids and {}", other.len(), first.len());
        return error("sequences of one length".to_owned(), got);
    }
    if let Some(id) = sequences.iter().flatten().find(|&&id| id as usize >= vocab_size) {
        return error(format!("ids below vocab_size = {vocab_size}"), id.to_string());
    }
    Ok(GivenIds { vocab_size, sequences: sequences.to_vec() })
}

/// The exponent of the power law of ids for which two positions have the same id with this `probability`, Σ p².
fn repeating_exponent(vocab_size: usize, probability: f64) -> Result<f64, AssembleError> {
    /// Beyond this exponent Σ p² is 1 to the last digit.
    const STEEPEST: f64 = 64.0;
    let least = 1.0 / vocab_size as f64;
    if !(least..=1.0).contains(&probability) {
        return Err(AssembleError::Input {
            field: "token repeat probability",
            expected: format!("between 1/vocab_size = {least} and 1"),
            got: probability.to_string(),
        });
    }
    let excess = |exponent| Ok(PowerLaw { vocab_size, exponent }.repeat_probability(2).ln() - probability.ln());
    let Ok(exponent) = root::<Infallible>(0.0, STEEPEST, excess);
    Ok(exponent)
}
