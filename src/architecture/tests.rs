//! What architectures resolve to, and which are refused.

use sigprop_stack::{Norm, NormKind};

use super::*;

fn message(architecture: &Architecture) -> String {
    architecture.resolved().unwrap_err().to_string()
}

fn plain() -> Architecture {
    Architecture::default()
}

#[test]
fn the_plain_encoder_is_the_documented_one() {
    let resolved = plain().resolved().unwrap();
    let shape = [resolved.n_layers, resolved.d_model, resolved.n_heads, resolved.n_kv_heads, resolved.d_ff];
    assert_eq!(shape, [12, 1024, 16, 16, 4096]);
    assert_eq!((resolved.seq_len, resolved.vocab_size), (256, 32_000));
    assert_eq!(resolved.norm, Some(Norm { kind: NormKind::LayerNorm, eps: 1e-5, gain: 1.0 }));
    assert!(resolved.final_norm && resolved.residual && resolved.biases);
}

#[test]
fn open_fields_follow_the_others() {
    let heads = |d_model| Architecture { d_model, ..plain() }.resolved().unwrap().n_heads;
    assert_eq!([256, 320, 100, 63, 1].map(heads), [4, 5, 1, 1, 1]);
    // The largest divisor of 1000 up to 1000/64 = 15.
    assert_eq!(heads(1000), 10);
    let final_norm = |architecture: Architecture| architecture.resolved().unwrap().final_norm;
    assert!(!final_norm(Architecture { norm_placement: NormPlacement::Post, ..plain() }));
    assert!(!final_norm(Architecture { norm: Some(NormChoice::None), ..plain() }));
    assert!(!final_norm(Architecture { norm: Some(NormChoice::Rmsnorm), ..Architecture::mlp() }));
    assert_eq!(Architecture::mlp().resolved().unwrap().norm, None);
    assert_eq!(Architecture::mlp().resolved().unwrap().residual_sublayers(), 0);
    assert_eq!(plain().resolved().unwrap().residual_sublayers(), 24);
}

#[test]
fn heads_must_divide_the_width() {
    let got = message(&Architecture { n_heads: Some(7), ..plain() });
    assert_eq!(got, "n_heads must be a divisor of d_model = 1024, got 7; nearest divisors: 4, 8");
    let got = message(&Architecture { n_kv_heads: Some(32), ..plain() });
    assert_eq!(got, "n_kv_heads must be a divisor of n_heads = 16, got 32; nearest divisors: 16");
}

#[test]
fn sizes_and_numbers_must_be_in_range() {
    assert_eq!(message(&Architecture { d_model: 0, ..plain() }), "d_model must be between 1 and 1048576, got 0");
    assert_eq!(
        message(&Architecture { n_layers: 100_001, ..plain() }),
        "n_layers must be between 1 and 100000, got 100001"
    );
    assert_eq!(message(&Architecture { dropout: 1.0, ..plain() }), "dropout must be in [0, 1), got 1");
    assert_eq!(message(&Architecture { drop_path: f64::NAN, ..plain() }), "drop_path must be in [0, 1), got NaN");
    assert_eq!(
        message(&Architecture { norm_eps: -1.0, ..plain() }),
        "norm_eps must be finite and not negative, got -1"
    );
    assert_eq!(
        message(&Architecture { branch_scale: Some(f64::INFINITY), ..plain() }),
        "branch_scale must be finite, got inf"
    );
}

#[test]
fn contradictions_and_what_is_not_computed_are_refused() {
    let none = || Architecture { norm: Some(NormChoice::None), ..plain() };
    let mlp = Architecture::mlp;
    for (architecture, expected) in [
        (Architecture { causal: true, ..plain() }, "causal true is not supported yet: under a causal mask"),
        (
            Architecture { norm_placement: NormPlacement::Sandwich, ..plain() },
            "norm_placement sandwich is not supported yet",
        ),
        (Architecture { final_norm: Some(true), ..none() }, "final_norm must be false without a norm, got true"),
        (Architecture { embedding_norm: true, ..none() }, "embedding_norm must be false without a norm"),
        (Architecture { residual: Some(false), ..plain() }, "residual must be true in an encoder, got false"),
        (Architecture { segments: true, ..mlp() }, "segments must be false in an MLP"),
        (Architecture { activation: Activation::Swiglu, ..mlp() }, "activation must be not gated in an MLP"),
        (Architecture { head: Head::Tied, ..mlp() }, "head must be none in an MLP"),
        (Architecture { skip_scale: Some(1.0), ..mlp() }, "skip_scale, branch_scale must be absent"),
    ] {
        let got = message(&architecture);
        assert!(got.starts_with(expected), "expected {expected}…, got {got}");
    }
}
