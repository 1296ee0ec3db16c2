//! The predictor: walks a stack with moments.

use sigprop_stack::{Node, SiteTable, Source, Stack, StackError};

/// Which sites are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sites {
    /// Those on the stream.
    Stream,
    /// Those inside blocks too.
    All,
}

/// A place where a rule is used outside the range it was derived for.
#[derive(Clone, Debug, PartialEq)]
pub struct Caveat {
    /// Path of the first site it concerns.
    pub site: String,
    /// How many sites it concerns.
    pub sites: usize,
    /// What is outside its range, and what follows.
    pub text: String,
}

/// What theory says about a stack.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Every site, in order of depth, and every weight tensor.
    pub table: SiteTable,
    /// Where rules were used outside their range.
    pub caveats: Vec<Caveat>,
}

/// Why there is no prediction.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PredictError {
    /// The stack cannot be walked.
    #[error(transparent)]
    Stack(#[from] StackError),
}

/// Predicts all moments of all sites of a stack, forward and backward.
pub fn predict(_stack: &Stack, _sites: Sites) -> Result<Prediction, PredictError> {
    Ok(Prediction { table: SiteTable::default(), caveats: Vec::new() })
}

/// A prediction on its way forward, for schemes whose next weights depend on what arrives.
#[derive(Clone, Debug)]
pub struct ForwardWalk {
    _seq_len: usize,
}

impl ForwardWalk {
    /// Starts at the source of a stream of `seq_len` tokens.
    pub fn new(_source: &Source, seq_len: usize) -> Self {
        Self { _seq_len: seq_len }
    }

    /// Goes through `body`.
    pub fn through(&mut self, _body: &[Node]) -> Result<(), PredictError> {
        Ok(())
    }

    /// E x² here.
    pub fn second_moment(&self) -> f64 {
        1.0
    }

    /// E over ordered pairs of tokens of x_a x_b, over E x².
    pub fn cosine(&self) -> f64 {
        0.0
    }
}
