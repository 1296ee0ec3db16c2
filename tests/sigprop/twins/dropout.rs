use sigprop_stack::NormKind;

use crate::support::{assert_twin, dropout, gaussian_stack, linear, norm};

#[test]
fn dropout_of_gaussian_tokens() {
    for rate in [0.1, 0.5] {
        let body = vec![linear("in", 32, 32, 1.0), dropout("dropout", rate), linear("out", 32, 32, 1.0)];
        assert_twin(&gaussian_stack(32, 1.5, 8, body), 2000);
    }
}

/// Dropout masks make lengths fluctuate, and a norm divides by the length.
#[test]
fn dropout_before_a_norm() {
    let body = vec![dropout("dropout", 0.3), norm("norm", NormKind::RmsNorm)];
    assert_twin(&gaussian_stack(256, 1.0, 6, body), 1000);
}
