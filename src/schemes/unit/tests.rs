//! The variances after every map of a network under this scheme, and special cases with known weights.

use sigprop_stack::{Init, Multiplied, Named, Quantity, Stack, Weighting};

use crate::architecture::{Activation, Architecture, Experts, NormChoice, NormPlacement, Positions, QkNorm};
use crate::assemble::{AssembleError, Input, Run, assemble};
use crate::predict::{Options, Positions as Followed};
use crate::schemes::Scheme;
use crate::{Sites, Theory, predict};

/// The relative tolerance of variances.
const CLOSE: f64 = 1e-6;
/// The names of linear maps.
const MAPS: [&str; 9] = ["query", "key", "value", "output", "in", "gate", "up", "out", "linear"];

fn plain() -> Architecture {
    Architecture { n_layers: 3, d_model: 64, n_heads: Some(4), seq_len: 12, vocab_size: 50, ..Architecture::default() }
}

fn assembled(architecture: &Architecture, input: &Input, run: &Run) -> Result<Stack, AssembleError> {
    assemble(architecture, &Scheme::parse("unit").expect("known"), input, run).map(|assembled| assembled.stack)
}

/// The paths and variances of all linear maps in blocks, at infinite width.
fn variances(stack: &Stack) -> Vec<(String, f64)> {
    let options = Options { theory: Theory::MeanField, positions: Some(Followed::Fine), ..Options::from(Sites::All) };
    let sites = predict(stack, options).expect("a prediction").table.sites;
    let is_map =
        |path: &str| path.contains("blocks.") && path.rsplit('.').next().is_some_and(|name| MAPS.contains(&name));
    let variance = |row: &sigprop_stack::SiteRow| row.value(Quantity::Variance).expect("a variance").value();
    sites.iter().filter(|row| is_map(&row.site)).map(|row| (row.site.clone(), variance(row))).collect()
}

/// The standard deviations of the weights whose names end with `end`, in the order of the network.
fn stds(stack: &mut Stack, end: &str) -> Vec<f64> {
    let mut found = Vec::new();
    stack.change(|named| {
        if let Named::Tensor(tensor) = named
            && tensor.name.ends_with(end)
        {
            found.push(tensor.init.std());
        }
    });
    found
}

fn mixture() -> Experts {
    Experts {
        n_experts: 4,
        top_k: 2,
        d_ff: 96,
        shared_d_ff: 64,
        shared_gate: true,
        weighting: Weighting::Softmax,
        weights_multiply: Multiplied::Outputs,
        router_scale: 1.0,
        own_norms: false,
        normalised: true,
        scale: 1.0,
        first_dense: 1,
        every: 1,
    }
}

#[test]
fn every_map_has_an_output_of_variance_one() {
    let gated = Architecture {
        activation: Activation::Swiglu,
        norm: Some(NormChoice::Rmsnorm),
        positions: Positions::Rotary,
        causal: true,
        n_kv_heads: Some(2),
        qk_norm: QkNorm::Head,
        ..plain()
    };
    let mlp =
        Architecture { n_layers: 3, d_model: 64, seq_len: 12, activation: Activation::Tanh, ..Architecture::mlp() };
    let decoder = Some(Box::new(Architecture { causal: true, seq_len: 7, ..plain() }));
    let networks = [
        ("pre", plain()),
        ("post", Architecture { norm_placement: NormPlacement::Post, segments: true, ..plain() }),
        ("sandwich", Architecture { norm_placement: NormPlacement::Sandwich, ..gated.clone() }),
        ("gated", gated),
        ("no norms", Architecture { norm: Some(NormChoice::None), activation: Activation::Relu, ..plain() }),
        ("experts", Architecture { experts: Some(mixture()), ..plain() }),
        ("mlp", mlp.clone()),
        ("residual mlp", Architecture { residual: Some(true), ..mlp }),
        ("two streams", Architecture { decoder, ..plain() }),
    ];
    for (name, architecture) in networks {
        let stack = assembled(&architecture, &Input::Zipf, &Run::default()).expect("a network");
        let found = variances(&stack);
        assert!(found.len() >= architecture.n_layers, "{name}: {found:?}");
        for (site, variance) in found {
            assert!((variance - 1.0).abs() < CLOSE, "{name}, {site}: {variance}");
        }
    }
}

/// The scheme is the initialisation of He et al. 2015, √(2/fan_in), in an MLP of ReLU, except in the first layer, whose
/// input has no activation before it.
#[test]
fn relu_has_the_weights_of_he() {
    let architecture =
        Architecture { n_layers: 4, d_model: 128, seq_len: 3, activation: Activation::Relu, ..Architecture::mlp() };
    let mut stack = assembled(&architecture, &Input::Correlation(0.2), &Run::default()).expect("a network");
    let he = (2.0 / 128f64).sqrt();
    for (std, expected) in stds(&mut stack, "linear.weight").iter().zip([128f64.sqrt().recip(), he, he, he]) {
        approx::assert_relative_eq!(*std, expected, max_relative = CLOSE);
    }
}

/// Attention passes copies of one token on unchanged. The average over four independent tokens has a quarter of the
/// variance if all scores are 0, so that the output map of the first block has twice the standard deviation.
#[test]
fn attention_outputs_undo_the_average_over_tokens() {
    let architecture = Architecture { seq_len: 4, attention_scale: Some(0.0), ..plain() };
    for (correlation, factor) in [(1.0, 1.0), (0.0, 2.0)] {
        let input = Input::Correlation(correlation);
        let mut stack = assembled(&architecture, &input, &Run::default()).expect("a network");
        let first = stds(&mut stack, "attention.output.weight")[0];
        approx::assert_relative_eq!(first, factor / 8.0, max_relative = 1e-4);
    }
}

/// Dropout and stochastic depth change no weight.
#[test]
fn training_has_the_same_weights() {
    let architecture = Architecture {
        dropout: 0.2,
        activation_dropout: 0.1,
        attention_dropout: 0.3,
        drop_path: 0.1,
        embedding_dropout: Some(0.1),
        ..plain()
    };
    let run = |train| Run { train, ..Run::default() };
    let [mut still, mut training] =
        [false, true].map(|train| assembled(&architecture, &Input::Zipf, &run(train)).expect("a network"));
    assert_eq!(stds(&mut still, ".weight"), stds(&mut training, ".weight"));
}

#[test]
fn a_network_without_a_signal_is_refused() {
    let architecture = Architecture { norm: Some(NormChoice::None), ..plain() };
    let mut stack = assembled(&architecture, &Input::Zipf, &Run::default()).expect("a network");
    stack.change(|named| {
        if let Named::Tensor(tensor) = named
            && tensor.name.starts_with("embeddings.")
        {
            tensor.init = Init::Zero;
        }
    });
    let scheme = Scheme::parse("unit").expect("known");
    let error = scheme.recipe().solved(&stack, &|_| true).unwrap_err().to_string();
    let query = "second moment 0 at the output of blocks.0.attention.heads.query.weight";
    assert_eq!(error, format!("scheme unit needs a signal at every map, got {query}"));
}
