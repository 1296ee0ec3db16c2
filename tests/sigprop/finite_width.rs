//! The second-order expansion about infinite width, compared with sampled networks at widths where terms of order
//! 1/width are a tenth.

use rayon::prelude::*;
use sigprop::agreement::{Compared, Comparison, compare};
use sigprop::architecture::{Architecture, Format};
use sigprop::assemble::{Input, Run, assemble};
use sigprop::schemes::Scheme;
use sigprop::suite::{Case, Suite};
use sigprop::{Options, Sites, Theory, predict};
use sigprop_stack::{Activation, Node, NormKind, Number, Op, Product, Quantity, SiteTable, Stack};

use crate::support::{
    activation, assert_within, dropout, gaussian_stack, linear, norm, residual, sample, sample_stream, standardised,
};

const REPLICATES: usize = 3000;
/// The largest allowed deviation in standard errors: α = 6e-5 per number.
const LARGEST_Z: f64 = 4.0;

/// Returns the largest error beyond [`LARGEST_Z`] standard errors, and its site. Errors of correlations are absolute,
/// other errors relative.
fn largest(table: &SiteTable, sampled: &SiteTable) -> (f64, String) {
    let told = |quantity| {
        [Quantity::TokenCorrelation, Quantity::GradTokenCorrelation, Quantity::Variance, Quantity::GradVariance]
            .contains(&quantity)
    };
    let mut largest = (0.0, String::new());
    for (row, sampled) in table.sites.iter().zip(&sampled.sites) {
        for quantity in Quantity::ALL.into_iter().filter(|&quantity| told(quantity)) {
            let (Some(value), Some(cell)) = (row.value(quantity), sampled.get(quantity)) else { continue };
            let is_level = matches!(quantity, Quantity::Variance | Quantity::GradVariance);
            let unit = if is_level { cell.value.value() } else { 1.0 };
            let error = ((value.value() - cell.value.value()).abs() - LARGEST_Z * cell.std_error.value()) / unit;
            if error > largest.0 {
                largest = (error, format!("{} {}", row.site, quantity.name()));
            }
        }
    }
    largest
}

/// Asserts that the prediction of finite width is within `tolerance` of sampled networks, and that the theory of
/// infinite width is off by at least `without`.
fn check(name: &str, body: Vec<Node>, seq_len: usize, [tolerance, without]: [f64; 2]) {
    check_stack(name, &gaussian_stack(WIDTH, 1.0, seq_len, body), [tolerance, without]);
}

fn check_stack(name: &str, stack: &Stack, [tolerance, without]: [f64; 2]) {
    let sampled = sample_stream(stack, REPLICATES).table;
    let options = Options::from(Sites::Stream);
    let (error, site) = largest(&predict(stack, options).expect("a prediction").table, &sampled);
    assert!(error < tolerance, "{name}: {site} is {error} off");
    let options = Options { theory: Theory::MeanField, ..options };
    let (error, _) = largest(&predict(stack, options).expect("a prediction").table, &sampled);
    assert!(error > without, "{name}: infinite width is {error} off");
}

const WIDTH: usize = 32;

fn blocks(count: usize, block: impl Fn(&str) -> Vec<Node>) -> Vec<Node> {
    (0..count).flat_map(|index| block(&format!("{index}"))).collect()
}

/// A feed-forward network x → A φ(B x).
fn network(name: &str, function: Activation) -> Vec<Node> {
    vec![
        linear(&format!("{name}.in"), WIDTH, 2 * WIDTH, 1.0),
        activation(&format!("{name}.activation"), function),
        linear(&format!("{name}.out"), 2 * WIDTH, WIDTH, 2.0),
    ]
}

#[test]
fn perceptrons() {
    for (function, gain) in [(Activation::Tanh, 1.5), (Activation::Relu, 2.0)] {
        let body = blocks(6, |name| {
            vec![
                linear(&format!("{name}.linear"), WIDTH, WIDTH, gain),
                activation(&format!("{name}.function"), function),
            ]
        });
        check(&format!("{function:?}"), body, 8, [0.015, 0.03]);
    }
}

#[test]
fn residual_networks_with_norms_before() {
    for kind in [NormKind::LayerNorm, NormKind::RmsNorm] {
        let body = blocks(4, |name| {
            let mut body = vec![norm(&format!("{name}.norm"), kind)];
            body.extend(network(name, Activation::Gelu));
            body.push(dropout(&format!("{name}.dropout"), 0.1));
            vec![residual(name, [1.0, 1.0], 0.0, body)]
        });
        check(&format!("{kind:?}"), body, 8, [0.015, 0.03]);
    }
}

#[test]
fn residual_networks_with_norms_behind() {
    let body = blocks(4, |name| {
        vec![
            residual(name, [1.0, 1.0], 0.0, network(name, Activation::Silu)),
            norm(&format!("{name}.norm"), NormKind::LayerNorm),
        ]
    });
    check("post", body, 8, [0.015, 0.03]);
}

#[test]
fn gated_networks() {
    let body = blocks(4, |name| {
        let gate = vec![
            linear(&format!("{name}.gate"), WIDTH, 2 * WIDTH, 1.0),
            activation(&format!("{name}.activation"), Activation::Silu),
        ];
        let up = vec![linear(&format!("{name}.up"), WIDTH, 2 * WIDTH, 1.0)];
        let body = vec![
            norm(&format!("{name}.norm"), NormKind::RmsNorm),
            Node::new(format!("{name}.gated"), Op::Product(Product { factors: vec![gate, up] })),
            linear(&format!("{name}.out"), 2 * WIDTH, WIDTH, 2.0),
        ];
        vec![residual(name, [1.0, 1.0], 0.0, body)]
    });
    check("gated", body, 8, [0.02, 0.03]);
}

/// Encoders with narrow heads, and half as many tokens as features.
#[test]
fn encoders() {
    let text = "n_layers = 2\nd_model = 32\nn_heads = 2\nseq_len = 16\nvocab_size = 100";
    let scheme = Scheme::parse("xavier").expect("known");
    for placement in ["pre", "post"] {
        let text = format!("{text}\nnorm_placement = '{placement}'");
        let architecture = Architecture::from_file_text(&text, Format::Toml).expect("valid");
        let input = Input::Correlation(0.2);
        let mut stack = assemble(&architecture, &scheme, &input, &Run::default()).expect("a stack").stack;
        stack.gradient.correlation = 0.3;
        check_stack(placement, &stack, [0.03, 0.03]);
    }
}

/// Standardised rows have a fixed length and are not quite Gaussian. The expansion neglects this: 1.5 % per map at this
/// width.
#[test]
fn standardised_weights() {
    let body = blocks(1, |name| {
        vec![
            norm(&format!("{name}.norm"), NormKind::LayerNorm),
            standardised(&format!("{name}.linear"), WIDTH, WIDTH, 1.0),
            activation(&format!("{name}.activation"), Activation::Tanh),
        ]
    });
    check("standardised", body, 8, [0.02, 0.025]);
}

/// Random networks with masks, ids, rotations, experts and two streams: all numbers are finite wherever the theory of
/// infinite width predicts positive gradients. At score variances of thousands that theory may predict negative
/// gradients.
#[test]
fn networks_of_all_kinds_are_followed() {
    let cases = Suite::Random.cases(false, 9);
    let gradients = |table: &SiteTable| -> Vec<Number> {
        table.sites.iter().filter_map(|site| site.value(Quantity::GradVariance)).collect()
    };
    let predicted = |case: &Case, theory| {
        let predicted = case.predict_in(theory).unwrap_or_else(|error| panic!("{}: {error}", case.name));
        gradients(&predicted.table)
    };
    let is_followed = |case: &&Case| predicted(case, Theory::MeanField).iter().all(|gradient| gradient.value() > 0.0);
    let followed = cases.par_iter().filter(is_followed).map(|case| {
        let gradients = predicted(case, Theory::FiniteWidth);
        assert!(gradients.iter().all(|gradient| gradient.ln_abs().is_finite()), "{}", case.name);
    });
    assert!(followed.count() > 40);
}

/// Two segments of random length, with ALiBi slopes that distinguish positions. Queries near the border see both
/// segments and have twice the gradients of queries that see the same pairs at any position.
#[test]
fn segments_by_position_are_followed() {
    const WITHIN: f64 = 0.05;
    let file = "n_layers = 1\nd_model = 256\nn_heads = 4\nseq_len = 32\nvocab_size = 1000\nsegments = true\n\
                positions = 'alibi'\ndropout = 0.0";
    let architecture = Architecture::from_file_text(file, Format::Toml).expect("valid");
    let scheme = Scheme::parse("gpt2").expect("known");
    let stack = assemble(&architecture, &scheme, &Input::Uniform, &Run::default()).expect("a stack").stack;
    let predicted = predict(&stack, Sites::All);
    let rows = compare(&predicted.expect("a prediction").table, &sample(&stack, 400).table, 400);
    let is_told = |row: &&Comparison| {
        let levels = [Quantity::Variance, Quantity::GradVariance].map(Compared::Site);
        levels.contains(&row.quantity) && !row.site.ends_with("softmax")
    };
    assert_within(WITHIN, rows.iter().filter(is_told), 20);
}

/// The prediction of attention after linear maps with biases is computed at every block; without biases it is
/// interpolated on a grid. With negligible biases the two predictions are equal.
#[test]
fn attentions_on_a_grid_are_those_that_are_not() {
    const LEVELS: f64 = 1e-3;
    const CORRELATIONS: f64 = 2e-4;
    const SPREADS: f64 = 5e-4;
    const WEIGHTS: f64 = 5e-4;
    for (scheme, keys) in [
        ("dslm", "norm_placement = 'pre'\nactivation = 'gelu'"),
        ("xavier", "norm_placement = 'post'\nactivation = 'relu'"),
        ("normal:0.06", "norm = 'none'\ncausal = true"),
    ] {
        let table = |biases: &str| {
            let own = "n_layers = 8\nd_model = 128\nn_heads = 4\nseq_len = 48\nvocab_size = 500\nbiases = true\n";
            let file = format!("{own}{keys}\n[init]\n\"blocks.*.attention.heads.*.bias\" = {{ {biases} }}\n");
            let architecture = Architecture::from_file_text(&file, Format::Toml).expect("an architecture");
            let scheme = Scheme::parse(scheme).expect("a scheme");
            let assembled = assemble(&architecture, &scheme, &Input::Zipf, &Run::default()).expect("a stack");
            predict(&assembled.stack, Options::from(Sites::All)).expect("a prediction").table
        };
        let (exact, interpolated) = (table("std = 1e-12"), table("std = 0"));
        for (one, other) in exact.sites.iter().zip(&interpolated.sites) {
            for quantity in Quantity::ALL {
                let (Some(one_value), Some(other)) = (one.value(quantity), other.value(quantity)) else { continue };
                let (one_value, other) = (one_value.value(), other.value());
                // Errors of correlations are absolute, all others relative.
                let (unit, tolerance) = match quantity {
                    Quantity::TokenCorrelation | Quantity::GradTokenCorrelation => (1.0, CORRELATIONS),
                    Quantity::LnVarianceStd | Quantity::LnGradVarianceStd => (one_value, SPREADS),
                    _ => (one_value.abs().max(1e-9), LEVELS),
                };
                let error = ((one_value - other) / unit).abs();
                assert!(error < tolerance, "{scheme} {} {}: {other}, not {one_value}", one.site, quantity.name());
            }
        }
        for (one, other) in exact.weights.iter().zip(&interpolated.weights) {
            let error = (one.grad_second_moment.value.ratio(&other.grad_second_moment.value) - 1.0).abs();
            assert!(error < WEIGHTS || one.tensor.ends_with("bias"), "{scheme} {}: {error} off", one.tensor);
        }
    }
}
