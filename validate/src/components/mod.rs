//! The action of each component on sampled arrays, forward and backward. One file per component; the same word names
//! its description, its rule and its twin test.

pub(crate) mod activation;
pub(crate) mod attention;
pub(crate) mod batch_norm;
pub(crate) mod concat;
pub(crate) mod convolution;
pub(crate) mod disentangled;
pub(crate) mod dropout;
pub(crate) mod embedding;
pub(crate) mod linear;
pub(crate) mod mixture;
pub(crate) mod norm;
pub(crate) mod pool;
pub(crate) mod prepend;
pub(crate) mod product;
pub(crate) mod recurrence;
pub(crate) mod rotary;
pub(crate) mod scale;
pub(crate) mod select;
pub(crate) mod softmax;
pub(crate) mod sum;
