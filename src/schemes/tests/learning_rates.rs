//! Factors on learning rates, against tables and code of their sources.

use sigprop_stack::{LearningRates, parameters};

use super::Scheme;
use crate::architecture::{Architecture, Head};
use crate::assemble::{Input, Run, assemble};

/// The factors on the learning rates of a tensor in a network of 1024 features, under SGD and Adam.
fn rates(scheme: &str, n_layers: usize, tensor: &str) -> [f64; 2] {
    let architecture = Architecture { n_layers, biases: true, head: Head::Untied, ..Architecture::default() };
    let scheme = Scheme::parse(scheme).unwrap();
    let stack = assemble(&architecture, &scheme, &Input::Zipf, &Run::default()).unwrap().stack;
    let parameters = parameters(&stack).unwrap();
    let found = parameters.iter().find(|parameter| parameter.name == tensor).expect(tensor);
    let LearningRates { sgd, adam } = found.learning_rates;
    [sgd, adam]
}

fn assert_rates(scheme: &str, n_layers: usize, expected: &[(&str, [f64; 2])]) {
    for (tensor, expected) in expected {
        for (got, expected) in rates(scheme, n_layers, tensor).into_iter().zip(expected) {
            approx::assert_relative_eq!(got, *expected, max_relative = 1e-6);
        }
    }
}

#[test]
fn most_schemes_know_one_learning_rate() {
    let architecture = Architecture::default();
    for scheme in ["xavier", "gpt2", "dslm", "deepnorm"] {
        let scheme = Scheme::parse(scheme).unwrap();
        assert!(
            assemble(&architecture, &scheme, &Input::Zipf, &Run::default()).unwrap().stack.learning_rates.is_empty()
        );
    }
}

/// Tensor Programs V, table 3, at four times the width: SGD fan_out, 1, 1/fan_in; Adam 1, 1/fan_in, 1/fan_in.
#[test]
fn mup_scales_by_table_3() {
    let expected = [
        ("embeddings.token", [4.0, 1.0]),
        ("embeddings.position", [4.0, 1.0]),
        ("blocks.1.attention.heads.query.weight", [1.0, 0.25]),
        ("blocks.1.ffn.out.weight", [1.0, 0.25]),
        ("blocks.1.ffn.out.bias", [4.0, 1.0]),
        ("blocks.1.ffn.norm.gain", [4.0, 1.0]),
        ("final_norm.gain", [4.0, 1.0]),
        ("head.weight", [0.25, 0.25]),
    ];
    assert_rates("mup", 2, &expected);
}

/// `lr_scale` of nanoGPT-mup's `configure_optimizers` at four times the width and 32 times the depth: 32^(−1/2) is
/// 0.1767767. Its head shares the embeddings and has a factor 1/4.
#[test]
fn completep_scales_as_its_code_does() {
    let adam = [
        ("embeddings.token", 1.0),
        ("blocks.1.attention.heads.query.weight", 0.25 * 0.176_776_7),
        ("blocks.1.ffn.in.bias", 0.176_776_7),
        ("blocks.1.ffn.norm.gain", 0.176_776_7),
        ("final_norm.gain", 1.0),
        ("head.weight", 0.25),
    ];
    for (tensor, expected) in adam {
        approx::assert_relative_eq!(rates("completep:alpha=0.5", 64, tensor)[1], expected, max_relative = 1e-6);
    }
    // With α = 1 Adam's rates do not depend on the depth, and SGD's grow with it.
    assert_rates("completep", 64, &[("blocks.1.ffn.out.weight", [32.0, 0.25]), ("final_norm.gain", [4.0, 1.0])]);
}

/// The authors' `lr_scale_func_adam`, times the std that is written into the weights in place of a factor: 16 blocks
/// have 32 residual connections, 1024^(−1/2) is 1/32, 32^(−1/2) is 0.1767767. Tokens and positions sum to std 1.
#[test]
fn u_mup_scales_as_its_code_does() {
    let expected = [
        ("embeddings.token", [1024.0, 0.5f64.sqrt() / 32.0]),
        ("blocks.1.attention.heads.value.weight", [1.0, 0.176_776_7 / 1024.0]),
        ("blocks.1.ffn.in.weight", [1.0, 0.176_776_7 / 1024.0]),
        ("blocks.1.ffn.norm.gain", [1024.0, 0.176_776_7]),
        ("final_norm.gain", [1024.0, 1.0]),
        ("head.weight", [1.0 / 1024.0, 1.0 / 1024.0]),
    ];
    assert_rates("u-mup", 16, &expected);
}

/// MAE's `param_groups_lrd` of ViT-B at its 0.75: `layer_scales` recomputed in Python, 0.75^13 = 0.0237572….
#[test]
fn layers_decay_as_in_fine_tuning() {
    let expected = [
        ("embeddings.token", [0.023_757_264; 2]),
        ("blocks.0.attention.heads.key.weight", [0.031_676_352; 2]),
        ("blocks.0.attention.norm.gain", [0.031_676_352; 2]),
        ("blocks.11.ffn.out.weight", [0.75; 2]),
        ("final_norm.gain", [1.0; 2]),
        ("head.weight", [1.0; 2]),
    ];
    assert_rates("bert:layer-decay=0.75", 12, &expected);
    assert_rates("mup:layer-decay=0.75", 12, &[("blocks.11.ffn.out.weight", [0.75, 0.187_5])]);
}
