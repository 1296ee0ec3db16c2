//! Architectures and their resolved fields, and architectures that are refused.

use sigprop_stack::{Multiplied, Norm, NormKind, Weighting};

use super::*;

fn message(architecture: &Architecture) -> String {
    architecture.resolved().unwrap_err().to_string()
}

/// A mixture that uses two of eight experts.
fn experts() -> Experts {
    Experts {
        n_experts: 8,
        top_k: 2,
        d_ff: 64,
        shared_d_ff: 0,
        shared_gate: false,
        weighting: Weighting::Softmax,
        weights_multiply: Multiplied::Outputs,
        router_scale: 1.0,
        own_norms: false,
        normalised: true,
        scale: 1.0,
        first_dense: 0,
        every: 1,
    }
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
    assert_eq!(resolved.norm, Some(Norm::plain(NormKind::LayerNorm, 1e-5)));
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
fn a_decoder_reads_the_width_of_the_encoder() {
    let decoder = Some(Box::new(Architecture { d_model: 64, ..plain() }));
    let resolved = Architecture { decoder, d_model: 128, ..plain() }.resolved().unwrap();
    let decoder = resolved.decoder.unwrap();
    assert_eq!((decoder.d_model, decoder.memory_width, decoder.residual_sublayers()), (64, Some(128), 36));
    let open = Architecture { positions: Positions::Learned, token_types: 2, segments: true, ..plain() };
    assert_eq!(open.resolved().unwrap().added_embeddings(), 3);
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    for (architecture, expected) in vec![
        (
            Architecture { dyt_alpha: Some(0.5), ..plain() },
            "dyt_alpha, dyt_attention_alpha must be absent unless norm is",
        ),
        (
            Architecture {
                norm: Some(NormChoice::Dyt),
                dyt_attention_alpha: Some(0.8),
                norm_placement: NormPlacement::Post,
                ..plain()
            },
            "dyt_attention_alpha must be absent unless attention starts with a norm of its own",
        ),
        (
            Architecture { drop_path_schedule: DropPathSchedule::Linear, ..plain() },
            "drop_path_schedule must be constant without drop_path, got linear",
        ),
        (Architecture { windows: vec![4], ..plain() }, "windows must be empty or one per block, 12 values, got 1"),
        (Architecture { rotated: vec![true], ..plain() }, "rotated must be empty or one per block, 12 values, got 1"),
        (
            Architecture { rotary_window_frequencies: Some(vec![1.0; 33]), ..plain() },
            "rotary_window_frequencies must be at most 32 numbers",
        ),
        (Architecture { rotary_dim: Some(66), ..plain() }, "rotary_dim must be even and at most 64, got 66"),
        (
            Architecture { positions: Positions::Relative, relative_max_distance: 32, ..plain() },
            "relative_max_distance must be more than relative_buckets = 32, got 32",
        ),
        (
            Architecture { experts: Some(Experts { shared_gate: true, shared_d_ff: 0, ..experts() }), ..plain() },
            "experts.shared_gate must be false without shared experts, got true",
        ),
        (
            Architecture { experts: Some(Experts { top_k: 9, ..experts() }), ..plain() },
            "experts.top_k must be between 1 and 8, got 9",
        ),
        (Architecture { shared_embedding: true, ..plain() }, "shared_embedding must be false without a decoder"),
        (
            Architecture { segments: true, embedding_scale: 2.0, ..plain() },
            "segments must be false with a scaled or projected token embedding, got true; token_types gives",
        ),
    ] {
        let got = message(&architecture);
        assert!(got.starts_with(expected), "{got}");
    }
}

/// Zhu et al. 2025: α is 0.5, and for LLaMA-7B 0.8 at the start of attention and 0.2 elsewhere.
#[test]
fn dyt_takes_alpha_where_it_is_told() {
    let dyt = Architecture { norm: Some(NormChoice::Dyt), ..plain() };
    let norm = |alpha| Some(Norm::plain(NormKind::Dyt { alpha }, 0.0));
    let resolved = dyt.resolved().unwrap();
    assert_eq!((resolved.attention_norm, resolved.norm), (norm(0.5), norm(0.5)));
    let llama = Architecture { dyt_alpha: Some(0.2), dyt_attention_alpha: Some(0.8), ..dyt }.resolved().unwrap();
    assert_eq!((llama.attention_norm, llama.norm), (norm(0.8), norm(0.2)));
}

#[test]
fn heads_may_have_any_width_of_their_own() {
    let resolved = Architecture { n_heads: Some(7), d_head: Some(5), ..plain() }.resolved().unwrap();
    assert_eq!((resolved.d_head, resolved.d_value, resolved.rotary_dim), (5, 5, 4));
    approx::assert_relative_eq!(resolved.attention_scale, 5f64.powf(-0.5));
}

/// The first block has attention alone, the second a feed-forward network alone, the third both.
#[test]
fn blocks_may_have_sizes_of_their_own() {
    let uneven = Architecture { n_layers: 3, block_kv_heads: vec![4, 0, 1], block_d_ff: vec![0, 8, 16], ..plain() };
    let resolved = uneven.resolved().unwrap();
    assert_eq!([0, 1, 2, 3].map(|block| resolved.residuals_before(block)), [0, 1, 2, 4]);
    assert_eq!(
        [0, 1, 2].map(|block| (resolved.kv_heads_of(block), resolved.d_ff_of(block))),
        [(4, 0), (0, 8), (1, 16)]
    );
    let got = message(&Architecture { block_kv_heads: vec![3, 0, 1], ..uneven.clone() });
    assert_eq!(got, "block_kv_heads must be a divisor of n_heads = 16, got 3; nearest divisors: 2, 4");
    let got = message(&Architecture { block_d_ff: vec![8], ..uneven.clone() });
    assert_eq!(got, "block_d_ff must be empty or one per block, 3 values, got 1 values");
    let got = message(&Architecture { shared_blocks: true, ..uneven });
    assert!(got.starts_with("block_kv_heads, block_d_ff must be empty in an MLP, and with"), "{got}");
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
    for (architecture, expected) in vec![
        (Architecture { final_norm: Some(true), ..none() }, "final_norm must be false without a norm, got true"),
        (Architecture { embedding_norm: true, ..none() }, "embedding_norm must be false without a norm"),
        (Architecture { residual: Some(false), ..plain() }, "residual must be true in an encoder, got false"),
        (Architecture { segments: true, ..mlp() }, "segments must be false in an MLP"),
        (Architecture { activation: Activation::Swiglu, ..mlp() }, "activation must be not gated in an MLP"),
        (Architecture { head: Head::Tied, ..mlp() }, "head must be none in an MLP"),
        (Architecture { skip_scale: Some(1.0), ..mlp() }, "skip_scale, branch_scale must be absent"),
        (
            Architecture { parallel: Parallel::OwnNorms, layer_scale: true, ..plain() },
            "layer_scale must be false unless every branch has a residual connection of its own, got true",
        ),
        (Architecture { causal: true, ..mlp() }, "causal must be false in an MLP"),
        (Architecture { qk_norm: QkNorm::Head, ..none() }, "qk_norm must be none without a norm, got head"),
        (
            Architecture { parallel: Parallel::OwnNorms, norm_placement: NormPlacement::Post, ..plain() },
            "parallel must be none unless blocks have norms placed pre, got own_norms",
        ),
    ] {
        let got = message(&architecture);
        assert!(got.starts_with(expected), "expected {expected}…, got {got}");
    }
}
