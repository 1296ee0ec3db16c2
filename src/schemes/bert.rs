//! BERT: normal of std 0.02 truncated at two standard deviations; effective std 0.017593.
//!
//! # Source
//!
//! Devlin et al. 2019, `modeling.py` (`truncated_normal_initializer`, `initializer_range`).

use sigprop_stack::Init;

use super::About;
use super::everywhere::Everywhere;

pub(super) const ABOUT: About = About {
    name: "bert",
    parameters: &[],
    rule: "all weights N(0, 0.02²) truncated at ±2 std; effective std 0.017593",
    source: "Devlin et al. 2019, modeling.py of google-research/bert",
    touches: "embeddings, all linear weights",
    build: |_| Box::new(Everywhere(Init::TruncatedNormal { std: 0.02, cutoff: 2.0 })),
};
