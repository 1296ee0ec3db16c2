//! Tests of whole stacks: limits, extremes, properties.

use proptest::prelude::*;
use sigprop::agreement::{Compared, Comparison};
use sigprop::architecture::Architecture;
use sigprop::assemble::{Input, Run, assemble};
use sigprop::schemes::Scheme;
use sigprop::{PredictError, Sites, predict};
use sigprop_stack::{
    Activation, Attention, Embedding, EmbeddingTerm, Gaussian, Ids, Mask, Node, NormKind, Op, PowerLaw, Product,
    Quantity, SiteTable, Source, Stack,
};

use crate::support::{
    activation, assert_twin, assert_within, compared, dropout, gaussian_stack, linear, norm, residual, stack, tensor,
};

fn ln(table: &SiteTable, site: &str, quantity: Quantity) -> f64 {
    table.site(site).and_then(|row| row.value(quantity)).expect("told").ln_abs()
}

/// `count` blocks of a linear map and an activation.
fn mlp(count: usize, variance: f64, function: Activation) -> Stack {
    let block = |index: usize| {
        let body = vec![linear(&format!("linear{index}"), 256, 256, variance), activation("activation", function)];
        Node::new(format!("blocks.{index}"), Op::Chain(body))
    };
    gaussian_stack(256, 1.0, 4, (0..count).map(block).collect())
}

/// Distinct ids of a large vocabulary in a deep encoder whose branches are most of its stream. With sampled ids the
/// tokens are exchangeable; with given ids every pair of positions is followed. Weights of queries and keys were 13 %
/// smaller with given ids when attention by position did not pass on how its outputs depend on its inputs.
#[test]
fn exchangeable_tokens_are_what_they_are_followed_one_by_one() {
    const CLOSE: f64 = 0.025;
    let scheme = Scheme::parse("subln").expect("known");
    let architecture = Architecture {
        n_layers: 5,
        d_model: 128,
        n_heads: Some(4),
        seq_len: 48,
        vocab_size: 1_000_000,
        ..Architecture::default()
    };
    let weights = |input: &Input| {
        let stack = assemble(&architecture, &scheme, input, &Run::default()).expect("valid").stack;
        predict(&stack, Sites::Stream).expect("a prediction").table.weights
    };
    let given = Input::Tokens { sequences: vec![(0..48).collect()] };
    let (drawn, followed) = (weights(&Input::Uniform), weights(&given));
    assert_eq!(drawn.len(), followed.len());
    let inside = |tensor: &str| tensor.starts_with("blocks") && tensor.ends_with("weight");
    for (drawn, followed) in drawn.iter().zip(&followed).filter(|(row, _)| inside(&row.tensor)) {
        let [drawn_ln, followed_ln] = [drawn, followed].map(|row| row.grad_second_moment.value.ln_abs());
        let apart = (followed_ln - drawn_ln).abs();
        assert!(apart < CLOSE, "{}: {apart}", drawn.tensor);
    }
}

/// U(−1, 1) weights of width 256 multiply the second moment by 256/6 per layer.
#[test]
fn ten_thousand_exploding_layers_give_numbers() {
    let table = predict(&mlp(10_000, 256.0 / 3.0, Activation::Relu), Sites::Stream).expect("a prediction").table;
    let row = table.site("blocks.9999").expect("told");
    let variance = row.value(Quantity::Variance).expect("told");
    let mean = row.value(Quantity::Mean).expect("told");
    let expected = 10_000.0 * (256f64 / 6.0).ln();
    approx::assert_relative_eq!((variance.value() + mean.value()).min(1.0), 1.0);
    approx::assert_relative_eq!(
        variance.ln_abs(),
        expected + (1.0 - 1.0 / std::f64::consts::PI).ln(),
        max_relative = 1e-9
    );
    assert!(variance.to_string().contains('e'), "{variance}");
    approx::assert_relative_eq!(ln(&table, "embeddings", Quantity::GradVariance), expected, max_relative = 1e-3);
}

/// An MLP of ReLU without norms, standardised by the scheme. Variances stay, and tokens become less correlated, because
/// the centred cosine map has the slope 1/(1 − 1/π) at 1 and half of it at 0.
#[test]
fn standardised_mlps_keep_their_variance() {
    let architecture = |n_layers: usize, d_model: usize| Architecture {
        activation: sigprop::architecture::Activation::Relu,
        n_layers,
        d_model,
        seq_len: 6,
        ..Architecture::mlp()
    };
    let scheme = Scheme::parse("standardised").expect("known");
    let assembled = |n_layers, d_model| {
        let architecture = architecture(n_layers, d_model);
        assemble(&architecture, &scheme, &Input::Correlation(0.9), &Run::default()).expect("valid").stack
    };
    assert_twin(&assembled(4, 256), 300);
    let table = predict(&assembled(100, 4096), Sites::All).expect("a prediction").table;
    let last = "blocks.99.linear";
    approx::assert_relative_eq!(ln(&table, last, Quantity::Variance), 0.0, epsilon = 1e-9);
    let correlation = table.site(last).and_then(|row| row.value(Quantity::TokenCorrelation)).expect("told").value();
    assert!(correlation < 0.01, "{correlation}");
}

/// Sampled networks under the scheme `unit`: every map has an output of variance 1, up to terms of order 1/width, which
/// the prediction has, too.
#[test]
fn maps_of_unit_have_variance_one_in_samples() {
    /// The largest deviation from 1 by finite width, and from the prediction by its omitted terms.
    const OF_WIDTH: f64 = 0.05;
    const CLOSE: f64 = 0.01;
    const MAPS: [&str; 7] = ["query", "key", "value", "output", "in", "out", "linear"];
    let mlp = "kind = \"mlp\"\nn_layers = 6\nd_model = 128\nseq_len = 4\nactivation = \"tanh\"";
    let encoder = "n_layers = 2\nd_model = 128\nn_heads = 4\nseq_len = 12\nvocab_size = 1000";
    for (file, count) in [(mlp, 6), (encoder, 12)] {
        let rows = compared(file, "unit", (&Input::default(), &Run::default()), Sites::All, 400);
        let is_map = |row: &&Comparison| {
            let name = row.site.rsplit('.').next();
            row.quantity == Compared::Site(Quantity::Variance) && name.is_some_and(|name| MAPS.contains(&name))
        };
        let maps = || rows.iter().filter(is_map);
        assert_within(CLOSE, maps(), count);
        for row in maps() {
            let apart = (row.observed.value() - 1.0).abs();
            assert!(apart < OF_WIDTH + 4.0 * row.std_error.value(), "{row:?}");
        }
    }
}

/// Squaring activations overflow even the logarithms, which is an error that names the site.
#[test]
fn what_even_logarithms_cannot_hold_is_an_error() {
    let error = predict(&mlp(3000, 50.0, Activation::Relu2), Sites::Stream).expect_err("beyond all numbers");
    assert!(matches!(error, PredictError::NotANumber { .. }), "{error}");
}

#[test]
fn zero_weights_are_zero_signals() {
    let branch = vec![norm("norm", NormKind::LayerNorm), linear("map", 32, 32, 0.0), activation("a", Activation::Silu)];
    let stack = gaussian_stack(32, 1.0, 4, vec![residual("sum", [1.0, 1.0], 0.0, branch)]);
    let table = predict(&stack, Sites::All).expect("a prediction").table;
    assert!(table.site("sum.map").and_then(|row| row.value(Quantity::Variance)).expect("told").is_zero());
    assert_eq!(table.site("sum.map").expect("told").get(Quantity::TokenCorrelation), None);
    approx::assert_relative_eq!(ln(&table, "sum", Quantity::Variance), 0.0, epsilon = 1e-12);
    approx::assert_relative_eq!(ln(&table, "embeddings", Quantity::GradVariance), 0.0, epsilon = 1e-12);
}

/// A Pre-LN stream grows linearly, and its gradient hyperbolically.
#[test]
fn pre_norm_stream_grows_linearly() {
    let block = |index: usize| {
        let body = vec![norm("norm", NormKind::RmsNorm), linear(&format!("map{index}"), 4096, 4096, 1.0)];
        residual(&format!("blocks.{index}"), [1.0, 1.0], 0.0, body)
    };
    let mut body: Vec<Node> = (0..100).map(block).collect();
    body.push(norm("final_norm", NormKind::RmsNorm));
    let table = predict(&gaussian_stack(4096, 1.0, 2, body), Sites::Stream).expect("a prediction").table;
    approx::assert_relative_eq!(ln(&table, "blocks.99", Quantity::Variance), 101f64.ln(), max_relative = 1e-6);
    let hyperbolic =
        -(ln(&table, "blocks.99", Quantity::GradVariance) - ln(&table, "blocks.9", Quantity::GradVariance));
    approx::assert_relative_eq!(hyperbolic, (101f64 / 11.0).ln(), max_relative = 5e-3);
}

/// A sequence of one token has no pairs and attends to itself.
#[test]
fn one_token_alone() {
    let table = predict(&encoder(&Shape { seq_len: 1, ..Shape::default() }), Sites::All).expect("a prediction").table;
    for row in &table.sites {
        assert_eq!(row.get(Quantity::TokenCorrelation), None);
        assert_eq!(row.get(Quantity::GradTokenCorrelation), None);
    }
}

#[derive(Clone, Debug)]
struct Shape {
    blocks: usize,
    seq_len: usize,
    score_variance: f64,
    skip: f64,
    branch: f64,
    rate: f64,
    post: bool,
    kind: Option<NormKind>,
    function: Activation,
    exponent: f64,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            blocks: 2,
            seq_len: 16,
            score_variance: 1.0,
            skip: 1.0,
            branch: 1.0,
            rate: 0.0,
            post: false,
            kind: Some(NormKind::LayerNorm),
            function: Activation::Gelu,
            exponent: 1.0,
        }
    }
}

/// An encoder of width 32 on embedded ids, with gated feed-forward networks.
fn encoder(shape: &Shape) -> Stack {
    let width = 32;
    let mut body = Vec::new();
    let sub_layer = |name: &str, inner: Vec<Node>| {
        let pre = shape.kind.filter(|_| !shape.post).map(|kind| norm("norm", kind));
        let mut nodes: Vec<Node> = pre.into_iter().chain(inner).collect();
        if shape.rate > 0.0 {
            nodes.push(dropout("dropout", shape.rate));
        }
        let sum = residual(name, [shape.skip, shape.branch], shape.rate, nodes);
        let post = shape.kind.filter(|_| shape.post).map(|kind| norm(&format!("{name}_norm"), kind));
        std::iter::once(sum).chain(post).collect::<Vec<Node>>()
    };
    for index in 0..shape.blocks {
        let map = |name: &str, fan_in, fan_out, variance| linear(&format!("{name}{index}"), fan_in, fan_out, variance);
        let heads = Attention {
            dropout_rate: shape.rate,
            ..Attention::plain(
                4,
                2,
                8,
                [
                    vec![map("query", width, 32, shape.score_variance)],
                    vec![map("key", width, 16, 1.0)],
                    vec![map("value", width, 16, 1.0)],
                ],
            )
        };
        let attention = vec![Node::new("heads", Op::Attention(heads)), map("output", 32, width, 1.0)];
        let gate = vec![map("gate", width, 64, 1.0), activation("activation", shape.function)];
        let gated = Node::new("gated", Op::Product(Product { factors: vec![gate, vec![map("up", width, 64, 1.0)]] }));
        let ffn = vec![gated, map("out", 64, width, 1.0)];
        let nodes = [sub_layer("attention", attention), sub_layer("ffn", ffn)].concat();
        body.push(Node::new(format!("blocks.{index}"), Op::Chain(nodes)));
    }
    let terms = vec![
        EmbeddingTerm::Token { table: tensor("token", 0.5) },
        EmbeddingTerm::LearnedPosition { table: tensor("position", 0.1) },
        EmbeddingTerm::Segment { table: tensor("segment", 0.1) },
    ];
    let ids = Ids::PowerLaw(PowerLaw { vocab_size: 100, exponent: shape.exponent });
    stack(Source::Embedding(Embedding::new(width, ids, terms)), shape.seq_len, body)
}

fn shapes() -> impl Strategy<Value = Shape> {
    let kind = prop_oneof![Just(None), Just(Some(NormKind::LayerNorm)), Just(Some(NormKind::RmsNorm))];
    let function =
        prop_oneof![Just(Activation::Relu), Just(Activation::Gelu), Just(Activation::Tanh), Just(Activation::Erf)];
    let numbers = (
        1usize..8,
        1usize..200,
        prop_oneof![3 => 0f64..2.0, 1 => 2f64..12.0],
        0.1f64..3.0,
        0f64..3.0,
        0f64..0.9,
        0f64..3.0,
    );
    (numbers, any::<bool>(), kind, function).prop_map(
        |((blocks, seq_len, score_variance, skip, branch, rate, exponent), post, kind, function)| Shape {
            blocks,
            seq_len,
            score_variance,
            skip,
            branch,
            rate,
            post,
            kind,
            function,
            exponent,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(1), ..ProptestConfig::default() })]

    /// Every encoder has finite numbers, and correlations between −1 and 1.
    #[test]
    fn every_encoder_has_a_prediction(shape in shapes()) {
        let table = predict(&encoder(&shape), Sites::All).expect("a prediction").table;
        for row in &table.sites {
            for quantity in [Quantity::TokenCorrelation, Quantity::GradTokenCorrelation] {
                if let Some(value) = row.value(quantity) {
                    prop_assert!((-1.0 - 1e-9..=1.0 + 1e-9).contains(&value.value()), "{} {quantity:?} {value}", row.site);
                }
            }
            for quantity in Quantity::ALL {
                prop_assert!(row.value(quantity).is_none_or(|value| value.is_finite()));
            }
        }
    }
}

/// The tolerance between the two rules, which approximate differently beyond the first order in the scores.
const DOMAINS: f64 = 1e-2;

/// If every query sees every key, the prediction with one token per position equals that with one token for all.
#[test]
fn both_token_domains_agree() {
    let mut all = encoder(&Shape { rate: 0.1, score_variance: 0.5, ..Shape::default() });
    all.streams[0].source = Source::Gaussian(Gaussian { width: 32, mean: 0.0, variance: 1.0, correlation: 0.3 });
    let mut positions = all.clone();
    // A window that hides nothing makes the prediction follow one token per position.
    for node in &mut positions.streams[0].body {
        widen(node);
    }
    let (one, other) =
        (predict(&all, Sites::Stream).expect("valid"), predict(&positions, Sites::Stream).expect("valid"));
    for (one, other) in one.table.sites.iter().zip(&other.table.sites) {
        for quantity in Quantity::ALL {
            let (Some(a), Some(b)) = (one.value(quantity), other.value(quantity)) else { continue };
            let (a, b) = (a.value(), b.value());
            assert!((a - b).abs() < DOMAINS * a.abs().max(0.2), "{} {}: {a} and {b}", one.site, quantity.name());
        }
    }
}

fn widen(node: &mut Node) {
    match &mut node.op {
        Op::Chain(body) => body.iter_mut().for_each(widen),
        Op::Sum(sum) => sum.branches.iter_mut().flat_map(|branch| &mut branch.body).for_each(widen),
        Op::Attention(attention) => attention.mask = Mask { before: Some(1000), after: None },
        Op::Apply(_) | Op::Product(_) | Op::Concat(_) | Op::Recurrence(_) | Op::Mixture(_) | Op::Read(_) => {}
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut long = encoder(&Shape::default());
    long.streams[0].seq_len = 60_000;
    for node in &mut long.streams[0].body {
        widen(node);
    }
    let error = predict(&long, Sites::Stream).expect_err("matrices of 27 GiB each").to_string();
    assert!(error.contains("GiB") && error.contains("sequence length"), "{error}");
}
