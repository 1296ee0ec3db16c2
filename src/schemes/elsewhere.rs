//! Names that people look for among schemes although they are none.

/// Names that are not schemes, each with the setting to use instead. A scheme decides only how a network starts:
/// distributions of weights, lengths to which weights are standardised, residual scales and gains.
/// Everything else that changes the network is part of the architecture.
pub(super) const INSTEAD: &[(&str, &str)] = &[
    ("peri-ln", "it places norms at both ends of a branch; use --norm-placement sandwich"),
    ("reordered-norm", "it places norms at the end of a branch; use --norm-placement reordered"),
    ("stochastic-depth", "it drops branches in training; use --drop-path P --drop-path-schedule linear --train"),
    ("drop-path", "it drops branches in training; use --drop-path P --train"),
    ("weight-standardisation", "the scheme that standardises weights is called standardised: --scheme standardised"),
    ("lsuv", "the scheme that gives the output of every map variance 1 is called unit: --scheme unit"),
    (
        "layer-wise-lr",
        "every scheme takes it as an argument, for plans and --first-update: --scheme bert:layer-decay=0.8",
    ),
];

#[cfg(test)]
mod tests {
    use super::INSTEAD;
    use crate::schemes::{SCHEMES, Scheme};

    #[test]
    fn what_is_no_scheme_says_what_it_is() {
        let error = Scheme::parse("peri-ln").unwrap_err().to_string();
        assert!(error.starts_with("peri-ln is no initialisation scheme: it places norms"), "{error}");
        assert!(INSTEAD.iter().all(|(name, _)| SCHEMES.iter().all(|about| about.name != *name)));
    }
}
