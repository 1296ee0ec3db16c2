//! The classic cases, judged by the comparison of schemes.

use sigprop::architecture::{Activation, Architecture, NormChoice, NormPlacement, Positions};
use sigprop::assemble::{Input, Run};
use sigprop::compare::{Setting, Summary, compare};
use sigprop::presets::Preset;
use sigprop::schemes::Scheme;
use sigprop::verdict::{Failure, Finding, Kind, Severity, Trend};
use sigprop::{Options, Sites};

fn summary(setting: &Setting, scheme: &str) -> Summary {
    let scheme = Scheme::parse(scheme).expect("a scheme");
    let candidates = compare(setting, &[scheme]).expect("the network holds together");
    candidates.into_iter().next().expect("one scheme").outcome.expect("the scheme is defined")
}

/// Encoders that read random ids, so that tokens are distinct at the start.
fn encoder(n_layers: usize, norm_placement: NormPlacement) -> Setting {
    uniform(shape(n_layers, norm_placement))
}

fn shape(n_layers: usize, norm_placement: NormPlacement) -> Architecture {
    Architecture { n_layers, norm_placement, d_model: 256, seq_len: 128, ..Architecture::default() }
}

fn uniform(architecture: Architecture) -> Setting {
    Setting::described(architecture, Input::Uniform, Run::default())
}

fn finding(summary: &Summary, kind: Kind) -> &Finding {
    let findings = &summary.verdict.findings;
    findings.iter().find(|finding| finding.kind == kind).unwrap_or_else(|| panic!("no {kind:?} in {findings:#?}"))
}

fn failures(summary: &Summary) -> Vec<Failure> {
    summary.verdict.failures().into_iter().map(|(failure, _)| failure).collect()
}

/// Xiong et al. 2020: Post-LN gradients differ over depth; Noci et al. 2022: tokens collapse, and with them the
/// gradients of queries and keys.
#[test]
fn post_ln_xavier_learns_unevenly() {
    let post = summary(&encoder(192, NormPlacement::Post), "xavier");
    let uneven = finding(&post, Kind::Uneven);
    assert!(uneven.value > 1e3_f64.ln(), "{uneven:?}");
    assert!(uneven.rule.contains("between") || uneven.rule.contains("over the blocks"), "{uneven:?}");
    assert_eq!(failures(&post), [Failure::Collapse]);
    assert_eq!(post.verdict.worst().map(|worst| worst.kind), Some(Kind::Collapse));
}

/// De & Smith 2020, Kedia et al. 2024: the variance of a Pre-LN stream grows linearly. Its gradient therefore falls
/// like one over the depth, steeply at the input and hardly at the end: no explosion.
#[test]
fn pre_ln_xavier_grows_linearly() {
    let pre = summary(&encoder(192, NormPlacement::Pre), "xavier");
    let forward = finding(&pre, Kind::Forward(Trend::Grows));
    assert!(forward.text.ends_with("linearly") && forward.severity == Severity::Warning, "{forward:?}");
    assert!(forward.rule.contains("more than ×10000 over all blocks"), "{forward:?}");
    let backward = finding(&pre, Kind::Backward(Trend::Grows));
    assert!(backward.text.ends_with("mostly near the input"), "{backward:?}");
    assert!(!failures(&pre).contains(&Failure::Explosion));
}

/// Dong et al. 2021: attention without skip connections becomes rank one doubly exponentially.
#[test]
fn without_skips_tokens_collapse_at_once() {
    let architecture = Architecture { skip_scale: Some(0.0), ..shape(12, NormPlacement::Pre) };
    let bare = summary(&uniform(architecture), "xavier");
    let collapse = finding(&bare, Kind::Collapse);
    assert_eq!(collapse.severity, Severity::Failure);
    assert!(collapse.block.is_some_and(|block| block <= 3), "{collapse:?}");
    assert!(failures(&bare).contains(&Failure::Collapse));
    assert_eq!(collapse.rule, "token correlation after the last block above 0.99");
}

#[test]
fn a_thousand_blocks_are_healthy_with_deepnorm_and_dslm() {
    for (placement, scheme) in
        [(NormPlacement::Post, "deepnorm"), (NormPlacement::Post, "dslm"), (NormPlacement::Pre, "dslm")]
    {
        let deep = summary(&encoder(1000, placement), scheme);
        assert_eq!(failures(&deep), [], "{placement} {scheme}");
        assert!(deep.verdict.headline.starts_with("healthy"), "{placement} {scheme}");
        assert!(deep.token_correlation.is_some_and(|r| r < 0.9), "{placement} {scheme}");
        finding(&deep, Kind::Distinct);
    }
}

/// Scores of variance 16 between 1024 keys: in samples E ΣA² is 0.273 (project notes), so a query attends to 1/0.273 =
/// 3.66 tokens. With `d_head` 1024 the fluctuations of finite heads are negligible. At variance 400 a query attends to
/// fewer than two tokens.
#[test]
fn sharp_scores_lose_their_entropy() {
    let scaled = |scale: f64| {
        let d_model = 1024;
        let attention_scale = Some(scale * (d_model as f64).powf(-0.5));
        let shape = Architecture { n_layers: 1, d_model, n_heads: Some(1), seq_len: 1024, ..Architecture::default() };
        let architecture = Architecture { attention_scale, vocab_size: 1_000_000, norm_eps: 1e-12, ..shape };
        summary(&uniform(architecture), "xavier")
    };
    let sharp = scaled(4.0);
    assert!((sharp.score_variance.expect("attention").value() / 16.0 - 1.0).abs() < 0.01);
    assert!((sharp.attended.expect("attention") / 3.66 - 1.0).abs() < 0.03, "{:?}", sharp.attended);
    assert_eq!(finding(&sharp, Kind::EntropyCollapse).severity, Severity::Warning);
    let frozen = scaled(20.0);
    let collapse = finding(&frozen, Kind::EntropyCollapse);
    assert_eq!(collapse.severity, Severity::Failure);
    assert!(collapse.value < 2.0 && collapse.rule.contains("below 2"), "{collapse:?}");
    assert!(failures(&frozen).contains(&Failure::EntropyCollapse));
    finding(&scaled(1.0), Kind::Attends);
}

/// OLMo's N(0, 0.02) with norms at the ends of branches: every branch has variance 1 whatever the weights are. A small
/// embedding is drowned at once, and the stream then grows by two per block.
#[test]
fn reordered_norm_drowns_small_embeddings() {
    let mut shape = shape(16, NormPlacement::Reordered);
    (shape.norm, shape.activation, shape.biases) = (Some(NormChoice::Rmsnorm), Activation::Swiglu, false);
    // The first branches are almost zero, so the default ε of the norms would keep their outputs below 1.
    (shape.positions, shape.causal, shape.norm_eps) = (Positions::Rotary, true, 1e-20);
    let olmo = summary(&uniform(shape), "normal:0.02");
    // From 0.02² to 0.02² + 2 · 16.
    assert!((olmo.forward.ln_total - (32.0 / 4e-4_f64).ln()).abs() < 0.02, "{:?}", olmo.forward);
    let forward = finding(&olmo, Kind::Forward(Trend::Grows));
    assert!(forward.text.ends_with("linearly"), "{forward:?}");
}

/// Radford et al. 2019: 0.02/√(2 · blocks) in the maps that write to the stream divides the variance that they add by 2
/// · blocks.
#[test]
fn gpt2_with_and_without_residual_scaling() {
    let architecture =
        Architecture { n_layers: 48, seq_len: 64, ..Preset::find("gpt2").expect("known").architecture() };
    let options = Options::from(Sites::Stream);
    let setting = Setting { options, ..Setting::from(architecture) };
    let (with, without) = (summary(&setting, "gpt2"), summary(&setting, "normal:0.02"));
    let added = |summary: &Summary| summary.forward.ln_total.exp_m1();
    let ratio = added(&without) / added(&with);
    assert!((96.0..125.0).contains(&ratio), "96 and what token correlation adds, got {ratio}");
    for summary in [&with, &without] {
        assert!(finding(summary, Kind::Forward(Trend::Grows)).text.ends_with("linearly"));
        assert_eq!(failures(summary), []);
    }
    let steeper = without.backward.ln_total - with.backward.ln_total;
    assert!(steeper > 96_f64.ln(), "the gradient falls with the stream, got {steeper}");
    assert!(with.ln_gradient_ratio < without.ln_gradient_ratio);
}
