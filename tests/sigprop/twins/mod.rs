//! Compares each rule with its sampled component, by z-score (α: [`crate::support::ALPHA`]).

mod activation;
mod attention;
mod batch_norm;
mod concat;
mod convolution;
mod disentangled;
mod dropout;
mod embedding;
mod linear;
mod mixture;
mod norm;
mod pool;
mod prepend;
mod product;
mod recurrence;
mod rotary;
mod scale;
mod select;
mod softmax;
mod sum;
