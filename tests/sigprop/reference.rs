//! Published values, and values recomputed in f64 from published formulas by an independent program (Python,
//! NumPy/SciPy), to the digits they are given with.

use approx::assert_relative_eq;
use sigprop::{Options, Sites, Theory, predict};
use sigprop_stack::{Activation, Attention, Gaussian, Init, Node, Op, Quantity, SiteTable, Source, Stack};

use crate::support::{activation, dropout, linear, norm, stack};

/// The tolerance for numbers given with eight digits.
const EIGHT_DIGITS: f64 = 2e-7;
/// The tolerance for numbers given with ten digits.
const TEN_DIGITS: f64 = 2e-9;

/// The prediction for one node on Gaussian tokens of this variance and correlation, with gradients of correlation 1 at
/// its output.
fn one(node: Node, width: usize, variance: f64, correlation: f64) -> SiteTable {
    let source = Source::Gaussian(Gaussian { width, mean: 0.0, variance, correlation });
    predict_with_gradient(stack(source, 100, vec![node]), 1.0)
}

fn predict_with_gradient(mut stack: Stack, correlation: f64) -> SiteTable {
    stack.gradient.correlation = correlation;
    predict(&stack, Options { theory: Theory::MeanField, ..Options::from(Sites::All) }).expect("valid").table
}

fn value(table: &SiteTable, site: &str, quantity: Quantity) -> f64 {
    table.site(site).and_then(|row| row.value(quantity)).expect("told").value()
}

fn covariance(table: &SiteTable, site: &str) -> f64 {
    value(table, site, Quantity::TokenCorrelation) * value(table, site, Quantity::Variance)
}

/// E g_a g_b at the input of an activation, for gradients of correlation 1 at its output.
fn grad_covariance(table: &SiteTable) -> f64 {
    value(table, "embeddings", Quantity::GradTokenCorrelation) * value(table, "embeddings", Quantity::GradVariance)
}

/// Kedia et al. 2024, covariance and variance of ReLU at σ = 1.
#[test]
fn relu_covariance() {
    let expected = [(0.0, 0.0), (0.2, 0.053_193_84), (0.4, 0.112_910_95), (0.6, 0.179_618_84), (0.8, 0.254_404_92)];
    for (correlation, expected) in expected {
        let table = one(activation("relu", Activation::Relu), 1 << 30, 1.0, correlation);
        assert_relative_eq!(covariance(&table, "relu"), expected, max_relative = EIGHT_DIGITS, epsilon = 1e-12);
        assert_relative_eq!(value(&table, "relu", Quantity::Variance), 0.340_845_06, max_relative = EIGHT_DIGITS);
        let gradient = 0.25 + f64::asin(correlation) / (2.0 * std::f64::consts::PI);
        assert_relative_eq!(grad_covariance(&table), gradient, max_relative = EIGHT_DIGITS);
    }
}

/// Kedia et al. 2024, GELU at σ² = 1, 0.1, 10.
#[test]
fn gelu_moments() {
    let expected = [
        (0.0, 0.0, 0.25),
        (0.2, 0.053_589_32, 0.285_977_13),
        (0.4, 0.114_459_79, 0.322_994_73),
        (0.6, 0.182_938_39, 0.362_295_78),
        (0.8, 0.259_644_62, 0.405_628_74),
    ];
    for (correlation, expected, gradient) in expected {
        let table = one(activation("gelu", Activation::Gelu), 1 << 30, 1.0, correlation);
        assert_relative_eq!(covariance(&table, "gelu"), expected, max_relative = EIGHT_DIGITS, epsilon = 1e-9);
        assert_relative_eq!(grad_covariance(&table), gradient, max_relative = EIGHT_DIGITS);
    }
    let expected = [
        (1.0, 0.282_094_79, 0.345_644_01, 0.455_850_87),
        (0.1, 0.038_037_65, 0.027_643_60, 0.303_011_95),
        (10.0, 1.202_856_23, 3.500_711_46, 0.511_295_77),
    ];
    for (variance, mean, second, gradient) in expected {
        let table = one(activation("gelu", Activation::Gelu), 1 << 30, variance, 0.0);
        assert_relative_eq!(value(&table, "gelu", Quantity::Mean), mean, max_relative = EIGHT_DIGITS);
        assert_relative_eq!(value(&table, "gelu", Quantity::Variance), second, max_relative = EIGHT_DIGITS);
        assert_relative_eq!(value(&table, "embeddings", Quantity::GradVariance), gradient, max_relative = EIGHT_DIGITS);
    }
}

/// Linear maps, dropout and LayerNorm of Kedia et al. 2024, at the numbers of their formulas.
#[test]
fn linear_dropout_and_layernorm() {
    let table = one(linear("linear", 100, 316, 0.01), 100, 2.0, 1.0 / 3.0);
    assert_relative_eq!(value(&table, "linear", Quantity::Variance), 0.02, max_relative = 1e-12);
    assert_relative_eq!(covariance(&table, "linear"), 0.02 / 3.0, max_relative = 1e-12);
    assert_relative_eq!(value(&table, "embeddings", Quantity::GradVariance), 3.16 * 0.01, max_relative = 1e-12);

    let rate = 1.0 / 3.0;
    let table = one(dropout("dropout", rate), 100, 2.0, 0.4);
    assert_relative_eq!(value(&table, "dropout", Quantity::Variance), 3.0, max_relative = 1e-12);
    assert_relative_eq!(covariance(&table, "dropout"), 0.8, max_relative = 1e-12);
    assert_relative_eq!(value(&table, "embeddings", Quantity::GradVariance), 1.5, max_relative = 1e-12);
    assert_relative_eq!(grad_covariance(&table), 1.0, max_relative = 1e-12);

    let kind = sigprop_stack::NormKind::LayerNorm;
    let table = one(norm("norm", kind), 1 << 20, 4.0, 0.4);
    assert_relative_eq!(value(&table, "norm", Quantity::Variance), 1.0, max_relative = 1e-5);
    assert_relative_eq!(covariance(&table, "norm"), 0.4, max_relative = 1e-5);
    assert_relative_eq!(value(&table, "embeddings", Quantity::GradVariance), 0.25, max_relative = 1e-5);
}

/// Kernels of neural-tangents, recomputed: (variances 1, correlation ½) gives E φφ and E φ'φ'.
#[test]
fn kernels() {
    let expected = [
        (Activation::Relu, 0.5, 0.304_498_890_5, 1.0 / 3.0),
        (Activation::Gelu, 0.5, 0.227_294_915_0, 0.342_267_242_5),
        (Activation::Gelu, 1.0, 0.425_221_482_6, 0.455_850_865_6),
        (Activation::Erf, 0.5, 0.216_346_895_9, 0.450_158_158_1),
        (Activation::Erf, 1.0, 0.464_559_054_4, 0.569_410_034_7),
    ];
    for (function, correlation, kernel, derivative) in expected {
        let table = one(activation("activation", function), 1 << 30, 1.0, correlation);
        let mean = value(&table, "activation", Quantity::Mean);
        assert_relative_eq!(covariance(&table, "activation") + mean * mean, kernel, max_relative = TEN_DIGITS);
        assert_relative_eq!(grad_covariance(&table), derivative, max_relative = TEN_DIGITS);
    }
}

/// Moments of activations of N(0, 1): mean, variance, E φ'².
#[test]
fn activation_constants() {
    let expected = [
        (Activation::PlusOne, 1.0, 1.0, 1.0),
        (Activation::Relu, 0.398_942_280_4, 0.340_845_056_9, 0.5),
        (Activation::Gelu, 0.282_094_791_8, 0.345_644_011_0, 0.455_850_865_6),
        (Activation::GeluTanh, 0.282_038_588_1, 0.345_647_945_9, f64::NAN),
        (Activation::Silu, 0.206_620_964_1, 0.313_083_297_0, 0.379_482_351_6),
        (Activation::Tanh, 0.0, 0.394_294_490_4, 0.464_402_902_4),
        (Activation::Sigmoid, 0.5, 0.043_379_035_9, 0.044_836_241_4),
        (Activation::Softplus, 0.806_059_183_3, 0.271_514_501_8, 0.293_379_035_9),
        // ½ + e² Φ(−2), 10 digits by Python's math.erfc; the list this table is from has 0.668_102_017_8.
        (Activation::Elu, 0.160_520_572_3, 0.619_178_563_4, 0.668_102_001_2),
        // s² (½ + α² e² Φ(−2)), likewise; the list has 1.071_773_2.
        (Activation::Selu, 0.0, 1.0, 1.071_574_992_5),
        (Activation::Relu2, 0.5, 1.25, 2.0),
        // By the trapezoidal rule with steps of 6e-5 in Python.
        (Activation::Xielu, 0.528_416_457_8, 1.456_291_182_8, 2.070_335_349_2),
    ];
    for (function, mean, variance, derivative) in expected {
        let table = one(activation("activation", function), 1 << 30, 1.0, 0.3);
        assert_relative_eq!(
            value(&table, "activation", Quantity::Mean),
            mean,
            max_relative = TEN_DIGITS,
            epsilon = 1e-10
        );
        assert_relative_eq!(value(&table, "activation", Quantity::Variance), variance, max_relative = TEN_DIGITS);
        if derivative.is_finite() {
            let gradient = value(&table, "embeddings", Quantity::GradVariance);
            assert_relative_eq!(gradient, derivative, max_relative = TEN_DIGITS);
        }
    }
}

/// Standard deviations of normals truncated at 1, 2 and 3 σ.
#[test]
fn truncated_normals() {
    for (cutoff, expected) in [(1.0, 0.539_560_093_8), (2.0, 0.879_625_661_0), (3.0, 0.986_578_392_6)] {
        assert_relative_eq!(Init::TruncatedNormal { std: 1.0, cutoff }.std(), expected, max_relative = TEN_DIGITS);
    }
}

/// One head on Gaussian inputs of variance 1, as in the simulations of the paper.
fn head(correlation: f64, rate: f64, score_std: f64, d: usize, d_out: usize, seq_len: usize) -> SiteTable {
    let map = |name: &str, weight_variance: f64| linear(name, d, d_out, weight_variance * d as f64);
    let core = Attention {
        dropout_rate: rate,
        ..Attention::plain(
            1,
            1,
            d_out,
            [
                vec![map("query", score_std * score_std / d as f64)],
                vec![map("key", score_std * score_std / d as f64)],
                vec![map("value", 1.0 / d as f64)],
            ],
        )
    };
    let source = Source::Gaussian(Gaussian { width: d, mean: 0.0, variance: 1.0, correlation });
    let stack = stack(source, seq_len, vec![Node::new("heads", Op::Attention(core))]);
    predict_with_gradient(stack, correlation)
}

/// The first-order formulas of the paper for softmax and attention: flat attention, log-normal weights. In their range
/// the exact rules are within a few percent of them: softmax V1 and V2, SHA.
#[test]
fn first_order_formulas_of_the_paper() {
    for (correlation, seq_len, first, second) in [
        (0.0, 300, 1.909_202e-5, 1.940_370e-5),
        (0.8, 300, 2.460_031e-6, 2.475_407e-6),
        (0.0, 10_000, 1.718_282e-8, 1.719_115e-8),
    ] {
        let table = head(correlation, 0.0, 1.0, 1 << 12, 1 << 12, seq_len);
        let variance = value(&table, "softmax", Quantity::Variance);
        // The formulas neglect terms of order 1/n.
        let tolerance = 0.001 + 18.0 / seq_len as f64;
        assert_relative_eq!(variance, first, max_relative = tolerance);
        assert_relative_eq!(variance, second, max_relative = tolerance);
    }
    // The paper leaves out the gradient through the scores, so only flat scores can be compared.
    let table = head(0.0, 0.0, 0.1, 100, 64, 300);
    assert_relative_eq!(value(&table, "heads", Quantity::Variance), 3.334_676_68e-3, max_relative = 1e-3);
    let gain = value(&table, "embeddings", Quantity::GradVariance);
    assert_relative_eq!(gain, 2.133_3e-3, max_relative = 1e-3);
    let table = head(1.0 / 3.0, 1.0 / 3.0, 0.6, 316, 128, 547);
    assert_relative_eq!(value(&table, "heads", Quantity::Variance), 0.335_510_589, max_relative = 2e-3);
    assert_relative_eq!(covariance(&table, "heads"), 0.334_552_769, max_relative = 2e-3);
}

/// The gain of a sufficiently wide stack is the product of the gains of its parts.
#[test]
fn components_of_a_chain_multiply() {
    let d = 1 << 20;
    let body = vec![linear("in", d, d, 2.0), activation("relu", Activation::Relu)];
    let source = Source::Gaussian(Gaussian { width: d, mean: 0.0, variance: 1.0, correlation: 0.0 });
    let table = predict_with_gradient(stack(source, 4, body), 0.0);
    assert_relative_eq!(value(&table, "embeddings", Quantity::GradVariance), 1.0, max_relative = 1e-5);
}
