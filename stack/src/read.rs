//! Another signal of the network as the input of a part of a sum, a product or a concatenation.

use serde::{Deserialize, Serialize};

/// The signal that a part reads in place of the common input. It is the first node of the chain of the part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Read {
    /// The output of an earlier stream, by its index.
    Stream(usize),
    /// The output of an earlier site of the same stream, by its path.
    Site(String),
}

impl Read {
    /// Returns the path of the site that is read; `None` if a stream is.
    pub(crate) fn site(&self) -> Option<&str> {
        match self {
            Self::Stream(_) => None,
            Self::Site(path) => Some(path),
        }
    }
}
