//! The infinitely wide network: how every component maps second moments, forward and backward.
//!
//! The state is E x_a x_b of single entries for all tokens a, b ([`kernel`]). It is stored at the positions that are
//! followed: one for every group of equivalent tokens, or some or all of the positions of a sequence ([`positions`]).
//! Every component has one file, with formula, assumption, source, and code that reads like the formula. E dW² is
//! E (dL/dW_ij)² of one entry of a weight, where the loss L is summed over the tokens of a sequence. Nothing here
//! depends on finite width except [`steps`], whose formulas contain 1/n.
//!
//! Reading order along a block: [`kernel`], [`component`], `norm`, `linear`, [`attention`] (`scores`, `seen`,
//! `everywhere`, `head`, `row`), [`softmax`], `sum`, `activation`, [`dual`]. `src/predict/mean_field.rs` then applies
//! components along a stack. For chains with a common input, `merge` returns the output of the component that they end
//! in, `split` the gradients at their ends, and `join` the sum of the gradients that come back to the input.
//!
//! The files for masks, rotations, repeated ids and slopes can be read later (`masked`, `rotated`, `groups`, `repeats`,
//! `slopes`).

mod activation;
pub(crate) mod attention;
pub(crate) mod batch_norm;
pub(crate) mod component;
mod concat;
pub(crate) mod convolution;
mod disentangled;
mod dropout;
pub(crate) mod dual;
pub(crate) mod embedding;
pub(crate) mod few;
pub(crate) mod gradient;
pub(crate) mod heads;
pub(crate) mod kernel;
mod linear;
pub(crate) mod mixture;
mod norm;
pub(crate) mod pool;
pub(crate) mod positions;
mod prepend;
mod product;
pub(crate) mod recurrence;
mod rotary;
pub(crate) mod rotation;
pub(crate) mod rule;
mod scale;
mod select;
pub(crate) mod shifted;
pub(crate) mod signal;
pub(crate) mod softmax;
pub(crate) mod steps;
mod sum;
