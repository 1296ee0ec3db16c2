//! Each rule against its sampled component, by z-score (α: [`crate::support::ALPHA`]).

mod activation;
mod attention;
mod dropout;
mod embedding;
mod linear;
mod norm;
mod product;
mod softmax;
mod sum;
