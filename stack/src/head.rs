//! The output head of a language model: logits from the end of a stream.
//!
//! # Formula
//!
//! With x the output of `body` at the end of the stream, W of shape `vocab_size` × width and c the soft cap,
//!
//! ```text
//! u = scale · (W x + b)        logits = u, or c tanh(u/c)
//! ```
//!
//! A head is not part of the forward and backward pass of a [`Stack`]: cross-entropy couples all logits of a token.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::{Node, Stack, Tensor};

/// A projection to the vocabulary at the end of the stream where the gradient starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Nodes between the end of the stream and the projection; usually none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub body: Vec<Node>,
    /// Number of different token ids.
    pub vocab_size: usize,
    /// Number of features that the projection reads.
    pub width: usize,
    /// The projection, `vocab_size` × `width`. A tied one has the name of the table of token embeddings.
    pub weight: Tensor,
    /// The bias of the projection; `None` if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<Tensor>,
    /// Factor on the logits.
    #[serde(default = "one")]
    pub scale: f64,
    /// The soft cap c, which bounds the magnitude of a logit by a tanh; `None` without a bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub softcap: Option<f64>,
}

fn one() -> f64 {
    1.0
}

impl Head {
    /// A projection without a body, a bias or a cap.
    pub fn new(weight: Tensor, [vocab_size, width]: [usize; 2]) -> Self {
        Self { body: Vec::new(), vocab_size, width, weight, bias: None, scale: 1.0, softcap: None }
    }
}

impl Stack {
    /// Returns the stack with the body of `head` appended to the stream where the gradient starts.
    pub fn with_head_body(&self, head: &Head) -> Cow<'_, Self> {
        if head.body.is_empty() {
            return Cow::Borrowed(self);
        }
        let mut stack = self.clone();
        stack.streams[self.gradient.stream].body.extend(head.body.iter().cloned());
        stack.head = Some(Head { body: Vec::new(), ..head.clone() });
        Cow::Owned(stack)
    }
}
