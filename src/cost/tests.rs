//! Costs against counts by hand and published ones.

use super::*;
use sigprop_stack::{Multiplied, Weighting};

use crate::architecture::{Activation, Experts, Latent, NormChoice, NormPlacement, Parallel, Positions, Stem};
use crate::assemble::{Input, Run, assemble};
use crate::schemes::Scheme;

fn cost(architecture: &Architecture, train: bool) -> Cost {
    let scheme = Scheme::parse("xavier").unwrap();
    let run = Run { train, ..Run::default() };
    let stack = assemble(architecture, &scheme, &Input::Zipf, &run).unwrap().stack;
    Cost::of(&stack, Some(architecture)).unwrap()
}

/// One block of width 8, 2 heads, 16 tokens, 100 ids.
fn small() -> Architecture {
    let shape = Architecture { n_layers: 1, d_model: 8, n_heads: Some(2), seq_len: 16, ..Architecture::default() };
    Architecture { vocab_size: 100, ..shape }
}

#[test]
fn an_encoder_by_hand() {
    let got = cost(&small(), false);
    // Tables 100·8 + 16·8; block 4(8·8 + 8), 8·32 + 32, 32·8 + 8; three norms of 2·8.
    assert_eq!(got.parameters, 800 + 128 + 288 + 288 + 264 + 48);
    // 2 (4·64 + 2·256) and 4·16·8.
    approx::assert_relative_eq!(got.flops_forward_per_token, 1536.0 + 512.0);
    approx::assert_relative_eq!(got.flops_backward_per_token, 2.0 * 2048.0);
    // Widths kept: norm 8, its output 8, q k v 24, heads 8; norm 8, its output 8, hidden 32 twice;
    // final norm 8. Attention weights 2·16·16.
    approx::assert_relative_eq!(got.activation_bytes, 2.0 * (16.0 * 136.0 + 512.0));
}

/// DyT has one parameter in addition to gains and biases, in each of three places.
#[test]
fn functions_in_place_of_norms_have_an_alpha() {
    let [layernorm, dyt] = [NormChoice::Layernorm, NormChoice::Dyt]
        .map(|norm| cost(&Architecture { norm: Some(norm), ..small() }, false).parameters);
    assert_eq!(dyt, layernorm + 3);
}

#[test]
fn an_mlp_by_hand() {
    let architecture = Architecture { n_layers: 3, d_model: 8, seq_len: 1, ..Architecture::mlp() };
    let got = cost(&architecture, false);
    assert_eq!(got.parameters, 3 * 72);
    approx::assert_relative_eq!(got.flops_forward_per_token, 3.0 * 128.0);
    approx::assert_relative_eq!(got.activation_bytes, 3.0 * 2.0 * 16.0);
    let no_biases = Architecture { biases: false, ..architecture };
    assert_eq!(cost(&no_biases, false).parameters, 3 * 64);
}

#[test]
fn a_gate_has_a_third_matrix_and_fewer_heads_have_smaller_ones() {
    let plain = cost(&small(), false);
    let gated = cost(&Architecture { activation: Activation::Swiglu, ..small() }, false);
    assert_eq!(gated.parameters - plain.parameters, 8 * 32 + 32);
    // Output of the gate's activation and of the linear branch.
    approx::assert_relative_eq!(gated.activation_bytes - plain.activation_bytes, 2.0 * 16.0 * 64.0);
    let grouped = cost(&Architecture { n_kv_heads: Some(1), ..small() }, false);
    assert_eq!(plain.parameters - grouped.parameters, 2 * (8 * 4 + 4));
}

#[test]
fn heads_count() {
    let with = |head| cost(&Architecture { head, ..small() }, false);
    let none = with(Head::None);
    for (head, parameters, flops) in
        [(Head::Tied, 0, 1600.0), (Head::Untied, 800, 1600.0), (Head::Pooler, 72, 2.0 * 64.0 / 16.0)]
    {
        let got = with(head);
        assert_eq!(got.parameters - none.parameters, parameters);
        approx::assert_relative_eq!(got.flops_forward_per_token - none.flops_forward_per_token, flops);
    }
}

/// Korthikanti et al. 2022, eq. 1: seq · width · (34 + 5 heads · seq/width) bytes per block.
#[test]
fn activation_memory_of_a_block_in_training_is_the_published_one() {
    let (d_model, n_heads, seq_len) = (64, 4, 128);
    let of = |n_layers| {
        let shape = Architecture { n_layers, d_model, n_heads: Some(n_heads), seq_len, ..Architecture::default() };
        cost(&Architecture { dropout: 0.1, attention_dropout: 0.1, ..shape }, true).activation_bytes
    };
    approx::assert_relative_eq!(of(3) - of(2), 128.0 * 64.0 * (34.0 + 5.0 * 4.0 * 128.0 / 64.0));
}

/// An architecture like Llama's, without an initialisation.
fn llama_like() -> Architecture {
    Architecture {
        causal: true,
        norm: Some(NormChoice::Rmsnorm),
        positions: Positions::Rotary,
        activation: Activation::Swiglu,
        biases: false,
        head: Head::Untied,
        ..Architecture::default()
    }
}

fn parameters(architecture: &Architecture) -> u64 {
    cost(architecture, false).parameters
}

/// Counts that the checkpoints of these models state.
#[test]
fn parameters_are_the_published_ones() {
    let experts = Experts {
        n_experts: 8,
        top_k: 2,
        d_ff: 14_336,
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
    };
    let mixtral = Architecture {
        n_layers: 32,
        d_model: 4096,
        n_heads: Some(32),
        n_kv_heads: Some(8),
        vocab_size: 32_000,
        experts: Some(experts),
        ..llama_like()
    };
    assert_eq!(parameters(&mixtral), 46_702_792_704);

    let deepseek_v2_lite = Architecture {
        n_layers: 27,
        d_model: 2048,
        n_heads: Some(16),
        d_ff: Some(10_944),
        vocab_size: 102_400,
        latent: Some(Latent { query_rank: None, kv_rank: 512, d_nope: 128, d_rope: 64, d_value: 128 }),
        experts: Some(Experts { n_experts: 64, top_k: 6, d_ff: 1408, shared_d_ff: 2816, first_dense: 1, ..experts }),
        ..llama_like()
    };
    assert_eq!(parameters(&deepseek_v2_lite), 15_706_484_224);

    let gpt_j = Architecture {
        n_layers: 28,
        d_model: 4096,
        n_heads: Some(16),
        vocab_size: 50_400,
        activation: Activation::GeluTanh,
        parallel: Parallel::SharedNorm,
        positions: Positions::Rotary,
        rotary_dim: Some(64),
        qkv_biases: Some(false),
        attention_output_bias: Some(false),
        causal: true,
        head: Head::Untied,
        ..Architecture::default()
    };
    // Its head has a bias.
    assert_eq!(parameters(&gpt_j) + 50_400, 6_050_882_784);

    let pythia_70m = Architecture {
        n_layers: 6,
        d_model: 512,
        n_heads: Some(8),
        vocab_size: 50_304,
        parallel: Parallel::OwnNorms,
        qkv_biases: None,
        attention_output_bias: None,
        ..gpt_j
    };
    assert_eq!(parameters(&pythia_70m), 70_426_624);

    let bloom_560m = Architecture {
        n_layers: 24,
        d_model: 1024,
        n_heads: Some(16),
        vocab_size: 250_880,
        positions: Positions::Alibi,
        embedding_norm: true,
        causal: true,
        ..Architecture::default()
    };
    assert_eq!(parameters(&bloom_560m), 559_214_592);
}

/// Counts that the checkpoints of models state that read images, audio, or two texts.
#[test]
fn parameters_of_other_inputs_are_the_published_ones() {
    let side = Architecture {
        n_layers: 6,
        d_model: 512,
        n_heads: Some(8),
        d_ff: Some(2048),
        vocab_size: 32_128,
        activation: Activation::Relu,
        norm: Some(NormChoice::Rmsnorm),
        positions: Positions::Relative,
        biases: false,
        ..Architecture::default()
    };
    let decoder = Architecture { causal: true, head: Head::Tied, ..side.clone() };
    let t5_small = Architecture { decoder: Some(Box::new(decoder)), shared_embedding: true, ..side };
    assert_eq!(parameters(&t5_small), 60_506_624);

    let vit_base = Architecture {
        n_layers: 12,
        d_model: 768,
        seq_len: 197,
        stem: Some(Stem::Patches {
            patch_width: 768,
            class_token: true,
            distillation_token: false,
            registers: 0,
            bias: true,
            norm: false,
        }),
        ..Architecture::default()
    };
    assert_eq!(parameters(&vit_base), 85_798_656);

    let side = Architecture { n_layers: 4, d_model: 384, n_heads: Some(6), ..Architecture::default() };
    let text = Architecture { seq_len: 448, vocab_size: 51_865, causal: true, ..side.clone() };
    let whisper_tiny = Architecture {
        seq_len: 1500,
        stem: Some(Stem::Audio { n_mels: 80 }),
        positions: Positions::Sinusoidal,
        decoder: Some(Box::new(text)),
        ..side
    };
    // The library counts the 1500 fixed positions; its keys have no biases.
    assert_eq!(parameters(&whisper_tiny) + 1500 * 384 - 3 * 4 * 384, 37_760_640);

    // A post-LN decoder whose token embedding is narrower.
    let opt_350m = Architecture {
        n_layers: 24,
        d_model: 1024,
        seq_len: 2050,
        vocab_size: 50_272,
        embedding_width: Some(512),
        activation: Activation::Relu,
        norm_placement: NormPlacement::Post,
        causal: true,
        ..Architecture::default()
    };
    assert_eq!(parameters(&opt_350m), 331_196_416);
}

#[test]
fn a_token_goes_through_a_few_experts() {
    let experts = |n_experts, top_k| {
        let experts = Experts {
            n_experts,
            top_k,
            d_ff: 32,
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
        };
        cost(&Architecture { experts: Some(experts), ..small() }, false)
    };
    let (dense, mixture) = (cost(&small(), false), experts(4, 2));
    let expert = 8 * 32 + 32 + 32 * 8 + 8;
    assert_eq!(mixture.parameters - dense.parameters, 3 * expert + 4 * 8);
    // One more expert, and scores of four.
    let more = mixture.flops_forward_per_token - dense.flops_forward_per_token;
    approx::assert_relative_eq!(more, 2.0 * 512.0 + 2.0 * 32.0);
}
