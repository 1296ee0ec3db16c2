//! Errors that the check of a stack finds.

/// The reason why a stack is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StackError {
    /// The width of a signal does not fit the component that reads it.
    #[error("{site}: expected width {expected}, got {got}")]
    Width {
        /// Path of the site.
        site: String,
        /// Width the component needs.
        expected: usize,
        /// Width that arrives.
        got: usize,
    },
    /// A number is outside its range.
    #[error("{site}: {field} must be {expected}, got {got}")]
    Value {
        /// Path of the site.
        site: String,
        /// Name of the number.
        field: &'static str,
        /// Range it must be in.
        expected: &'static str,
        /// The value found.
        got: String,
    },
}
