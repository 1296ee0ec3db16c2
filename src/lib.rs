//! The predictions of theory for a network at initialisation.

pub mod agreement;
pub mod architecture;
pub mod assemble;
pub mod caveat;
pub mod checkpoint;
#[cfg(feature = "cli")]
pub mod cli;
pub mod compare;
pub mod cost;
pub mod diff;
pub mod export;
mod finite_width;
pub mod first_step;
pub mod head;
pub mod huggingface;
pub mod inspect;
mod logarithms;
mod mean_field;
mod nearest;
pub mod numerals;
pub mod phase;
pub mod predict;
pub mod presets;
mod quadrature;
mod recipe;
pub mod recommend;
pub mod report;
mod root;
pub mod schemes;
pub mod stack_file;
pub mod suite;
pub mod tokens;
pub mod verdict;

pub use caveat::{Caveat, CaveatKind, Condition};
pub use compare::compare;
pub use nearest::nearest;
pub use phase::phase;
pub use predict::{
    AttentionRow, Blocked, Followed, ForwardPass, LinearRow, Options, Positions, PredictError, Prediction, Repeller,
    ScaleRow, Sequences, Sites, Theory, UnfitExpression, predict, predict_watched, sequences,
};
pub use recommend::recommend;

/// The code examples of the book, which are tested together with those of the documentation.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../docs/library.md")]
    struct Library;
    #[doc = include_str!("../docs/concepts.md")]
    struct Concepts;
    #[doc = include_str!("../docs/extending.md")]
    struct Extending;
}
