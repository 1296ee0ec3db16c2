//! The infinitely wide network: how every component maps second moments, forward and backward.
//!
//! The state is E x_a x_b of single entries for all tokens a, b ([`kernel`]), at the positions that are followed
//! ([`positions`]). Every component has one file, with formula, assumption, source, and code that reads like the
//! formula; dW is dL/dW. Nothing here depends on finite width except [`steps`], whose formulas contain 1/n.
//!
//! Reading order along a block: [`kernel`], `norm`, `linear`, [`attention`] (`scores`, `head`, `everywhere`, `row`),
//! [`softmax`], `sum`, `activation`, [`dual`]. Masks, rotations, repeated ids and slopes can wait (`masked`, `rotated`,
//! `groups`, `repeats`, `slopes`).

mod activation;
pub(crate) mod attention;
pub(crate) mod batch_norm;
pub(crate) mod component;
mod concat;
pub(crate) mod convolution;
mod dropout;
pub(crate) mod dual;
pub(crate) mod embedding;
pub(crate) mod few;
pub(crate) mod gradient;
pub(crate) mod kernel;
mod linear;
pub(crate) mod mixture;
mod norm;
pub(crate) mod positions;
mod prepend;
mod product;
mod rotary;
pub(crate) mod rotation;
mod scale;
pub(crate) mod signal;
pub(crate) mod softmax;
pub(crate) mod steps;
mod sum;
