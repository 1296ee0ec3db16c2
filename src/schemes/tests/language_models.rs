//! Initialisations in the code of large language models, at the sizes of their own configurations.

use super::{Role, Scheme, Table, projection, residual};
use crate::architecture::{Activation, Architecture, Experts, NormPlacement, Resolved};
use crate::recipe::{Fans, Outer, Slot};
use sigprop_stack::{Multiplied, Weighting};

/// The standard deviation of a normal distribution truncated at ±3.
const CUT: f64 = 0.986_578_392_6;

fn sized(d_model: usize, n_layers: usize) -> Architecture {
    Architecture { d_model, n_layers, activation: Activation::Swiglu, ..Architecture::default() }
}

/// Asserts a standard deviation to the digits that are given: nine, or eight decimals.
fn assert_std(scheme: &str, architecture: &Architecture, role: Role, expected: f64) {
    let got = projection(scheme, &architecture.resolved().unwrap(), role).weight.std();
    assert!((got - expected).abs() < 5.1e-9, "{scheme} {role:?}: {got} instead of {expected}");
}

fn head(scheme: &str, architecture: &Architecture) -> f64 {
    let resolved = architecture.resolved().unwrap();
    let fans = Fans::new(resolved.d_model, resolved.vocab_size);
    Scheme::parse(scheme).unwrap().recipe().outer(&resolved, Outer::Head, fans).weight.std()
}

fn token(scheme: &str, architecture: &Architecture) -> f64 {
    Scheme::parse(scheme).unwrap().recipe().embedding(&architecture.resolved().unwrap(), Table::Token).std()
}

fn assert_near(got: f64, expected: f64) {
    approx::assert_abs_diff_eq!(got, expected, epsilon = 5.1e-9);
}

/// The reference values at width 1024 and 24 blocks.
#[test]
fn neox_is_small_and_wang() {
    let architecture = sized(1024, 24);
    for role in [Role::Query, Role::Value, Role::FfnGate, Role::FfnUp] {
        assert_std("neox", &architecture, role, 0.019_764_24);
    }
    for role in [Role::AttentionOutput, Role::FfnOut] {
        assert_std("neox", &architecture, role, 0.002_604_17);
    }
    assert_near(token("neox", &architecture), 0.019_764_24);
    assert_near(head("neox", &architecture), 0.019_764_24);
}

/// OLMo-1B: width 2048, 16 blocks, 8192 features in the feed-forward network; block 3.
#[test]
fn olmo_scales_by_block_or_by_number_of_blocks() {
    let architecture = sized(2048, 16);
    assert_std("olmo-normal", &architecture, Role::FfnOut, 0.02);
    assert_near(token("olmo-normal", &architecture), 0.02);

    assert_std("olmo-mitchell", &architecture, Role::Query, CUT * 0.022_097_086_9);
    assert_std("olmo-mitchell", &architecture, Role::FfnUp, CUT * 0.022_097_086_9);
    assert_std("olmo-mitchell", &architecture, Role::AttentionOutput, CUT / 128.0);
    assert_std("olmo-mitchell", &architecture, Role::FfnOut, CUT / 256.0);
    assert_near(token("olmo-mitchell", &architecture), CUT * 0.022_097_086_9);

    assert_std("olmo-megatron", &architecture, Role::Value, CUT * 0.02);
    assert_std("olmo-megatron", &architecture, Role::AttentionOutput, CUT * 0.003_535_533_9);
    assert_std("olmo-megatron", &architecture, Role::FfnOut, CUT * 0.003_535_533_9);
    assert_near(head("olmo-megatron", &architecture), CUT * 0.022_097_086_9);
    assert_near(token("olmo-megatron", &architecture), CUT * 0.02);
}

/// Llama 7B: width 4096, 32 blocks; block 3.
#[test]
fn olmo_core_and_torchtitan_scale_up_beside_down() {
    let architecture = sized(4096, 32);
    for (scheme, cut, scaled) in [
        ("olmo-core-llama", CUT, 0.0025),
        ("olmo-core-depth", CUT, 0.007_071_067_8),
        ("torchtitan", 1.0, 0.007_071_067_8),
    ] {
        for role in [Role::Query, Role::Key, Role::Value, Role::FfnGate] {
            assert_std(scheme, &architecture, role, cut * 0.02);
        }
        for role in [Role::AttentionOutput, Role::FfnUp, Role::FfnOut] {
            assert_std(scheme, &architecture, role, cut * scaled);
        }
        assert_near(token(scheme, &architecture), 1.0);
        assert_near(head(scheme, &architecture), CUT / 64.0);
    }
}

/// OLMo-core scales all three matrices of an expert, and the router.
#[test]
fn olmo_core_scales_experts() {
    let experts = Experts {
        n_experts: 8,
        top_k: 2,
        d_ff: 1024,
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
    let architecture = Architecture { experts: Some(experts), ..sized(4096, 32) };
    for role in [Role::Router, Role::FfnGate, Role::FfnUp, Role::ExpertOut] {
        assert_std("olmo-core-llama", &architecture, role, CUT * 0.0025);
    }
}

/// A network of width 1024 with 24 blocks.
#[test]
fn ngpt_starts_at_the_root_of_the_width() {
    let architecture = sized(1024, 24);
    assert_std("ngpt", &architecture, Role::FfnGate, 0.031_25);
    assert_std("ngpt", &architecture, Role::AttentionOutput, 0.004_510_55);
    assert_near(token("ngpt", &architecture), 0.031_25);
}

/// The gain of a role over Xavier's standard deviation.
fn gain(scheme: &str, side: &Resolved, role: Role, cross: bool) -> f64 {
    let recipe = Scheme::parse(scheme).unwrap();
    let projections = recipe.recipe().projections(side, &|| unreachable!("it follows no signal")).unwrap();
    let fans = Fans::new(side.d_model, side.d_ff);
    projections(&Slot { architecture: side, role, block: 0, fans, cross }).weight.std() / fans.xavier_std()
}

/// Encoder and decoder of 12 blocks each, to the digits of the project's table of schemes.
#[test]
fn deepnorm_beside_a_decoder() {
    let side = || Architecture { norm_placement: NormPlacement::Post, ..sized(64, 12) };
    let encoder = Architecture { decoder: Some(Box::new(side())), ..side() }.resolved().unwrap();
    let scheme = Scheme::parse("deepnorm").unwrap();
    assert_eq!(scheme.recipe().caveat(&encoder), None);
    for (side, alpha, beta) in
        [(&encoder, 1.760_88, 0.400_20), (&**encoder.decoder.as_ref().unwrap(), 2.449_49, 0.288_68)]
    {
        approx::assert_abs_diff_eq!(residual(scheme.recipe(), side).skip, alpha, epsilon = 5.1e-6);
        for cross in [false, true] {
            approx::assert_abs_diff_eq!(gain("deepnorm", side, Role::Value, cross), beta, epsilon = 5.1e-6);
            approx::assert_abs_diff_eq!(gain("deepnorm", side, Role::Key, cross), 1.0, epsilon = 1e-12);
        }
    }
}

/// The gains are √ln 24, √ln 48, √(ln 36 · ln 24 / 3) and √ln 36; their values are from tables of logarithms.
#[test]
fn subln_gains() {
    let side = |n_layers| Architecture { norm_placement: NormPlacement::Sub, ..sized(64, n_layers) };
    for (n_layers, expected) in [(12, 1.782_71), (24, 1.967_54)] {
        let stack = side(n_layers).resolved().unwrap();
        assert_eq!(Scheme::parse("subln").unwrap().recipe().caveat(&stack), None);
        approx::assert_abs_diff_eq!(gain("subln", &stack, Role::FfnOut, false), expected, epsilon = 5.1e-6);
        approx::assert_abs_diff_eq!(gain("subln", &stack, Role::Query, false), 1.0, epsilon = 1e-12);
    }
    let encoder = Architecture { decoder: Some(Box::new(side(12))), ..side(12) }.resolved().unwrap();
    let decoder = encoder.decoder.as_ref().unwrap();
    approx::assert_abs_diff_eq!(gain("subln", &encoder, Role::Value, false), 1.948_39, epsilon = 5.1e-6);
    approx::assert_abs_diff_eq!(gain("subln", decoder, Role::Value, false), 1.893_02, epsilon = 5.1e-6);
    approx::assert_abs_diff_eq!(gain("subln", decoder, Role::Value, true), 1.0, epsilon = 1e-12);
}
