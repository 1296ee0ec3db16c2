//! Why there is no scheme of a name, or none for an architecture.

use crate::PredictError;

/// Why a scheme cannot be had.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SchemeError {
    /// There is no scheme of that name.
    #[error(
        "unknown scheme {got:?}{}; the schemes are {known}",
        nearest.as_ref().map(|name| format!("; did you mean {name}?")).unwrap_or_default()
    )]
    Unknown {
        /// What was asked for.
        got: String,
        /// The scheme it most resembles.
        nearest: Option<&'static str>,
        /// All schemes.
        known: String,
    },
    /// Something that people look for among schemes and that is none.
    #[error("{got} is no initialisation scheme: {instead}")]
    Elsewhere {
        /// What was asked for.
        got: String,
        /// What it is, and where it is to be had, if it is.
        instead: &'static str,
    },
    /// An argument that does not fit.
    #[error("scheme {scheme}: {key} must be {expected}, got {got}")]
    Argument {
        /// Name of the scheme.
        scheme: &'static str,
        /// Name of the argument.
        key: String,
        /// What it must be.
        expected: String,
        /// What it is.
        got: String,
    },
    /// A network that the scheme is not defined for.
    #[error("scheme {scheme} needs {expected}, got {got}")]
    Undefined {
        /// Name of the scheme.
        scheme: &'static str,
        /// What it needs.
        expected: String,
        /// What the network has.
        got: String,
    },
    /// The prediction that the scheme rests on fails.
    #[error(transparent)]
    Predict(#[from] PredictError),
}
