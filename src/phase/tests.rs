use std::f64::consts::{PI, SQRT_2};

use super::*;
use crate::architecture::{Activation, Architecture};
use crate::assemble::{Input, Run, assemble, with_roles};

/// A width at which terms of order 1/width are negligible.
const WIDTH: usize = 1_000_000;

fn mlp(n_layers: usize, activation: Activation) -> Setting {
    let shape = Architecture { n_layers, activation, d_model: WIDTH, seq_len: 2, ..Architecture::mlp() };
    Setting::described(shape, Input::Correlation(0.0), Run::default())
}

fn map(setting: &Setting, scheme: &str, axes: [&str; 2]) -> Result<Phase, PhaseError> {
    let axes = axes.map(|text| text.parse().expect("an axis"));
    phase(setting, &Scheme::parse(scheme).expect("a scheme"), &axes, &|| {})
}

/// The coordinate `axis` of all vertices of the edge of a failure.
fn edge(phase: &Phase, failure: Failure, axis: usize) -> Vec<f64> {
    let region = phase.regions.iter().find(|region| region.failure == failure);
    let region = region.unwrap_or_else(|| panic!("no {} in {:?}", failure.name(), phase.regions));
    region.edges.iter().flatten().map(|place| place[axis]).collect()
}

fn assert_edge(found: &[f64], expected: f64, tolerance: f64) {
    assert!(!found.is_empty());
    for value in found {
        assert!((value / expected - 1.0).abs() < tolerance, "expected {expected}, got {value}");
    }
}

/// He et al. 2015: σ_w² = 2 keeps the size of a ReLU network. The variance changes by σ_w²/2 per layer whatever the
/// input, so that the deeper half of n layers changes it by f at σ_w = √2 f^(1/n), both forward and backward.
#[test]
fn relu_is_critical_at_a_weight_variance_of_two() {
    let setting = mlp(100, Activation::Relu);
    let found = map(&setting, "lecun", ["weight-gain=1.2..1.6:3:linear", "embedding-gain=1..2:2"]);
    assert_eq!(found.unwrap_err(), PhaseError::Nothing { name: "embedding-gain".to_owned() });
    let found = map(&setting, "lecun", ["weight-gain=1.2..1.6:3:linear", "layers=120..240:2"]).expect("a map");
    let tolerance = 0.2 / 256.0 / 1.2;
    for (failure, factor) in [(Failure::Explosion, 1e4_f64), (Failure::Vanishing, 1e-8)] {
        let depths = edge(&found, failure, 1);
        assert_eq!(depths.len(), 2);
        for (weight, layers) in edge(&found, failure, 0).into_iter().zip(depths) {
            assert_edge(&[weight], SQRT_2 * factor.powf(1.0 / layers), tolerance);
        }
    }
    for cell in &found.cells {
        let point = cell.outcome.as_ref().expect("a network");
        let expected = (0.5 * cell.at[0] * cell.at[0]).ln().recip();
        for scale in [point.scales.forward, point.scales.backward] {
            assert_edge(&[scale.expect("it changes")], expected, 1e-3);
        }
    }
}

/// Cho & Saul 2009: the cosine c of two ReLU layers goes to (√(1 − c²) + c (π − arccos c))/π whatever the weights, and
/// the correlation is (π c − 1)/(π − 1). From independent inputs it exceeds 0.99 after a known number of layers.
#[test]
fn relu_tokens_are_alike_after_a_known_depth() {
    let (mut cosine, mut layers, mut correlation) = (0.0_f64, 0, 0.0);
    while correlation <= 0.99 {
        cosine = ((1.0 - cosine * cosine).sqrt() + cosine * (PI - cosine.acos())) / PI;
        correlation = (PI * cosine - 1.0) / (PI - 1.0);
        layers += 1;
    }
    let axes = ["weight-gain=1.39..1.44:2", &format!("layers={}..{layers}:2", layers - 1)];
    let found = map(&mlp(1, Activation::Relu), "lecun", axes).expect("a map");
    for cell in &found.cells {
        let alike = cell.outcome.as_ref().expect("a network").token_correlation.expect("two tokens");
        assert_eq!(alike > 0.99, cell.at[1] > f64::from(layers) - 0.5, "{alike}");
    }
}

/// Schoenholz et al. 2017: with biases of variance 0.05 tanh is critical at σ_w² = 1.76. The deeper half of a network
/// of 64 layers multiplies the gradient by 100 at σ_w = 1.62350, by 1 at √1.76095, and by 10⁻⁸ at 0.82073; the signal
/// keeps its size. The values are from the mean-field recursion of tanh, by quadrature in Python.
#[test]
fn tanh_with_biases_is_critical_where_it_is_known_to_be() {
    let bias = 0.05_f64.sqrt();
    let biases = format!("bias-std={bias}..{}:2", 1.000_001 * bias);
    let found = map(&mlp(64, Activation::Tanh), "lecun", ["weight-gain=0.8..1.7:3", &biases]).expect("a map");
    let tolerance = 0.45 / 256.0 / 0.8;
    assert_edge(&edge(&found, Failure::Explosion, 0), 1.623_50, tolerance);
    assert_edge(&edge(&found, Failure::Vanishing, 0), 0.820_73, tolerance);
}

/// Without branches a Pre-LN block multiplies its stream by λ twice. Over the deeper half of 12 blocks λ^24 is a factor
/// of 10⁴, or of 10⁻⁸, on the variance, both forward and backward.
#[test]
fn scaled_skips_explode_and_vanish_where_they_must() {
    let setting = Setting::from(Architecture { d_model: 64, seq_len: 16, ..Architecture::default() });
    let axes = ["skip-scale=0.4..1.6:3", "branch-scale=0..0.00000001:2"];
    let found = map(&setting, "xavier", axes).expect("a map");
    let tolerance = 2_f64.ln() / 256.0;
    assert_edge(&edge(&found, Failure::Explosion, 0), 1e4_f64.powf(1.0 / 24.0), tolerance);
    assert_edge(&edge(&found, Failure::Vanishing, 0), 1e-8_f64.powf(1.0 / 24.0), tolerance);
}

/// On the edge of entropy collapse a query attends to two tokens. The scores of a Pre-LN block are proportional to the
/// gain of queries times that of keys, so that the edge is where score-gain · weight-gain² has one value.
#[test]
fn entropy_collapses_where_two_tokens_are_left() {
    let shape = Architecture { n_layers: 1, d_model: 64, n_heads: Some(1), seq_len: 64, ..Architecture::default() };
    let setting = Setting::described(shape, Input::Uniform, Run::default());
    let found = map(&setting, "xavier", ["score-gain=1..32:3", "weight-gain=1..2:2"]).expect("a map");
    let scores = edge(&found, Failure::EntropyCollapse, 0).into_iter().zip(edge(&found, Failure::EntropyCollapse, 1));
    let gains: Vec<f64> = scores.map(|(score, weight)| score * weight * weight).collect();
    assert_eq!(gains.len(), 2);
    // Half of ln 32 in 256 steps.
    assert_edge(&gains, gains[0], 0.5 * 32_f64.ln() / 256.0);
    let around = format!("score-gain={}..{}:2", 0.98 * gains[0], gains[0]);
    let near = map(&setting, "xavier", [&around, "layers=1..2:2"]).expect("a map");
    let attended = [0, 1].map(|cell| near.cells[cell].outcome.as_ref().expect("a network").attended);
    let [outside, inside] = attended.map(|attended| attended.expect("attention"));
    assert!(outside > 2.0 && inside < 2.0, "{outside}, {inside}");
}

/// Arguments of a scheme are axes; values that it refuses are reported and have no edge.
#[test]
fn arguments_of_schemes_are_axes() {
    let setting = Setting::from(Architecture { n_layers: 4, d_model: 64, ..Architecture::default() });
    let found = map(&setting, "gains:1,1,1,1,1", ["qk=0.5..2:3", "ratio=-1..1:3"]).expect("a map");
    assert_eq!(found.cells.iter().filter(|cell| cell.outcome.is_err()).count(), 3);
    let message = |axes| map(&setting, "dslm", axes).unwrap_err().to_string();
    assert!(message(["alfa=0..1", "k=1..2"]).contains("did you mean alpha?; with this scheme there are layers,"));
    assert_eq!(message(["k=1..2", "k=1..3"]), "expected two different axes, got k twice");
    assert_eq!(message(["layers=0..3", "k=1..2"]), "layers must be from 1, got 0");
    assert!(message(["weight-gain=-1..1", "k=1..2"]).contains("must be not negative, got -1"));
}

#[test]
fn threads_make_no_difference() {
    let setting = Setting::from(Architecture { n_layers: 24, d_model: 64, ..Architecture::default() });
    let text = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        let found = pool.install(|| map(&setting, "xavier", ["weight-gain=0.5..4:4", "branch-scale=0.1..2:3"]));
        format!("{:?}", found.expect("a map"))
    };
    assert_eq!(text(1), text(3));
}

/// A stack with roles has the map of the architecture from which it was assembled; the numbers of its blocks are given.
#[test]
fn a_stack_has_the_map_of_its_architecture() {
    let shape = Architecture { n_layers: 2, d_model: 64, seq_len: 8, vocab_size: 50, ..Architecture::default() };
    let gpt2 = Architecture { causal: true, ..shape };
    let of_stack = |architecture: &Architecture| {
        let scheme = Scheme::parse("uniform:0.3").expect("a scheme");
        let assembled = assemble(architecture, &scheme, &Input::default(), &Run::default()).expect("a network");
        Setting::from(with_roles(assembled.stack))
    };
    let stack = of_stack(&gpt2);
    let dslm = "dslm:k=1,alpha=1";
    // The scales of an architecture are known to a scheme that follows the signal; those of a stack come after it.
    for (scheme, axes) in [
        ("gpt2", ["skip-scale=0.5..1.5:2", "branch-scale=0.2..2:2"]),
        (dslm, ["weight-gain=0.5..2:2", "embedding-gain=0.1..1:2"]),
        (dslm, ["score-gain=1..4:2", "bias-std=0..0.1:2"]),
        (dslm, ["k=1..2:2", "alpha=0.5..1:2"]),
    ] {
        let [expected, found] =
            [&Setting::from(gpt2.clone()), &stack].map(|setting| map(setting, scheme, axes).expect("a map"));
        assert_eq!(format!("{found:?}"), format!("{expected:?}"));
    }
    let message = map(&stack, "xavier", ["layers=1..4", "weight-gain=1..2"]).unwrap_err().to_string();
    assert!(message.starts_with("layers cannot be varied in a stack") && message.contains("skip-scale"), "{message}");
    let mlp = Architecture { n_layers: 3, d_model: 64, seq_len: 8, ..Architecture::mlp() };
    let axes = ["weight-gain=0.5..2:2", "bias-std=0..0.1:2"];
    let [expected, found] =
        [&Setting::from(mlp.clone()), &of_stack(&mlp)].map(|setting| map(setting, "kaiming", axes).expect("a map"));
    assert_eq!(format!("{found:?}"), format!("{expected:?}"));
}
