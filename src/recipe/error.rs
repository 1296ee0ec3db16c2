//! Errors of schemes: a scheme that does not exist, or that is not defined for an architecture.

use crate::PredictError;

/// The reason why a scheme cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SchemeError {
    /// There is no scheme with that name.
    #[error(
        "unknown scheme {got:?}{}; the schemes are {known}",
        nearest.as_ref().map(|name| format!("; did you mean {name}?")).unwrap_or_default()
    )]
    Unknown {
        /// The name that was asked for.
        got: String,
        /// The scheme with the most similar name, if any is similar.
        nearest: Option<&'static str>,
        /// The names of all schemes.
        known: String,
    },
    /// The name of a known technique that is not a scheme but some other setting.
    #[error("{got} is no initialisation scheme: {instead}")]
    Elsewhere {
        /// The name that was asked for.
        got: String,
        /// An explanation of the name, and the setting to use instead, if there is one.
        instead: &'static str,
    },
    /// An argument that is not valid.
    #[error("scheme {scheme}: {key} must be {expected}, got {got}")]
    Argument {
        /// Name of the scheme.
        scheme: &'static str,
        /// Name of the argument.
        key: String,
        /// The expected argument, in words.
        expected: String,
        /// The given argument.
        got: String,
    },
    /// A network that the scheme is not defined for.
    #[error("scheme {scheme} needs {expected}, got {got}")]
    Undefined {
        /// Name of the scheme.
        scheme: &'static str,
        /// The property that the scheme needs.
        expected: String,
        /// The property that the network has.
        got: String,
    },
    /// The prediction on which the scheme is based fails.
    #[error(transparent)]
    Predict(#[from] PredictError),
}
