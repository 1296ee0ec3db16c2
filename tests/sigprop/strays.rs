//! Networks without norms, each of which strays from the others: how far, and what that does to their average.

use sigprop::agreement::Compared;
use sigprop::assemble::{Input, Run};
use sigprop::{Sites, predict};
use sigprop_stack::{Activation, Gaussian, GradientSeed, Node, Quantity, SiteRow, Source, Stack};

use crate::support::{self, activation, compared, linear, residual, sample_stream, stack};

/// α of 6e-5 per number.
const LARGEST_Z: f64 = 4.0;

/// Tokens and gradients that share nothing, through layers of `variance` = fan-in · weight variance.
fn layers(count: usize, width: usize, seq_len: usize, variance: f64, phi: Activation) -> Stack {
    let layer = |i: usize| [linear(&format!("map{i}"), width, width, variance), activation(&format!("act{i}"), phi)];
    let body: Vec<Node> = (0..count).flat_map(layer).collect();
    let source = Source::Gaussian(Gaussian { width, mean: 0.0, variance: 1.0, correlation: 0.0 });
    Stack { gradient: GradientSeed { stream: 0, correlation: 0.0 }, ..stack(source, seq_len, body) }
}

/// Asserts that the prediction lies within this part of what so many networks show at one site, noise aside.
fn assert_within(
    part: f64,
    stack: &Stack,
    networks: usize,
    site: impl Fn(&[SiteRow]) -> Option<&SiteRow>,
    quantity: Quantity,
) {
    let predicted = predict(stack, Sites::Stream).expect("a prediction").table;
    let sampled = sample_stream(stack, networks).table;
    let [expected, got] =
        [&predicted, &sampled].map(|table| *site(&table.sites).and_then(|row| row.get(quantity)).expect("it has one"));
    let (expected, observed, error) = (expected.value.value(), got.value.value(), got.std_error.value());
    assert!((expected - observed).abs() < part * observed + LARGEST_Z * error, "{expected}: {observed} ± {error}");
}

/// Many tokens that differ: gradients draw what signals drew, and answer to it (86 % too large without).
/// Not reached: gradients are 56 % too large.
#[test]
#[should_panic(expected = " ± ")]
fn gradients_draw_what_signals_drew() {
    /// Of the standard deviation, of which terms of order 1/width are neglected.
    const WITHIN: f64 = 0.1;
    let stack = layers(8, 64, 256, 25.0 / 9.0, Activation::Tanh);
    assert_within(WITHIN, &stack, 200, <[_]>::first, Quantity::LnGradVarianceStd);
}

/// Networks whose signals are large and others do not level out, on average (44 % too small without).
/// Not reached: signals are 46 % too small.
#[test]
#[should_panic(expected = " ± ")]
fn averages_know_that_networks_stray() {
    let stack = layers(10, 128, 16, 2.0, Activation::Silu);
    assert_within(0.0, &stack, 300, <[_]>::last, Quantity::Variance);
}

/// The same where lengths stray by more than first order tells (34 % too large by it).
/// Not reached: signals are 56 % too small.
#[test]
#[should_panic(expected = " ± ")]
fn averages_are_taken_over_scales() {
    /// 16 % too small with 20000 networks: of the second moment 8 %, the rest is the mean's, which is told at the average length.
    const WITHIN: f64 = 0.2;
    let stack = layers(12, 64, 16, 2.0, Activation::Gelu);
    assert_within(WITHIN, &stack, 2000, <[_]>::last, Quantity::Variance);
}

/// Few tokens whose entries saturate: sums of ±1 are not Gaussian (± 26 % too large if they were).
#[test]
fn entries_that_saturate_draw_less() {
    const WITHIN: f64 = 0.05;
    let stack = layers(2, 64, 16, 16.0, Activation::Tanh);
    assert_within(WITHIN, &stack, 800, |sites| sites.get(1), Quantity::LnVarianceStd);
}

/// Blocks x + φ(W x), whose branches have means: the part of a gradient along them grows with the signal (17 % too small at the
/// input without).
/// Not reached: gradients are 18 % too small.
#[test]
#[should_panic(expected = "± ")]
fn gradients_grow_along_means() {
    /// Twice what was measured with 300 networks: 1.4 and 1.5 %.
    const WITHIN: f64 = 0.03;
    for phi in [Activation::Relu, Activation::Gelu] {
        let block = |i: usize| {
            let branch = vec![linear(&format!("map{i}"), 64, 64, 2.0), activation(&format!("act{i}"), phi)];
            residual(&format!("block{i}"), [1.0; 2], 0.0, branch)
        };
        let source = Source::Gaussian(Gaussian { width: 64, mean: 0.0, variance: 1.0, correlation: 0.2 });
        let stack = stack(source, 32, (0..6).map(block).collect());
        let stack = Stack { gradient: GradientSeed { stream: 0, correlation: 0.0 }, ..stack };
        assert_within(WITHIN, &stack, 200, <[_]>::first, Quantity::GradVariance);
    }
}

/// MLPs by their files, beside so many networks: these quantities of all sites, of which there are 9 and more, within a part.
fn assert_mlp_within(part: f64, (file, scheme): (&str, &str), run: &Run, networks: usize, quantities: &[Quantity]) {
    let file = format!("kind = 'mlp'\nd_model = 64\n{file}");
    let rows = compared(&file, scheme, (&Input::Correlation(0.0), run), Sites::Stream, networks);
    let asked = |of: &Compared| quantities.iter().any(|quantity| *of == Compared::Site(*quantity));
    support::assert_within(part, rows.iter().filter(|row| asked(&row.quantity)), 9 * quantities.len());
}

const SPREADS: [Quantity; 2] = [Quantity::LnVarianceStd, Quantity::LnGradVarianceStd];

/// Tokens whose lengths stray far from Gaussian (gradients 55 % too small, signals 25 %, where two moments were all).
/// Not reached: where signals differ by a factor ± of gradients is 40 to 65 % too small.
#[test]
#[should_panic(expected = "numbers")]
fn long_tokens_are_multiplied_by_more() {
    /// 9 % of 8000 networks.
    const WITHIN: f64 = 0.1;
    let file = "seq_len = 16\nn_layers = 12\nactivation = 'silu'";
    assert_mlp_within(WITHIN, (file, "kaiming"), &Run::default(), 800, &SPREADS);
}

/// Long ones have more in common, too: with many tokens gradients are 23 % too small where all pairs have the same.
/// Not reached: where signals differ by a factor ± of gradients is 40 to 65 % too small.
#[test]
#[should_panic(expected = "numbers")]
fn long_tokens_have_more_in_common() {
    /// 7 % of 3000 networks.
    const WITHIN: f64 = 0.08;
    let file = "seq_len = 256\nn_layers = 12\nactivation = 'silu'";
    assert_mlp_within(WITHIN, (file, "kaiming"), &Run::default(), 400, &SPREADS);
}

/// Blocks x + φ(W x), whose branches have means that nothing draws (signals 31 % too large), whose differences line up with those of the
/// stream (42 % too small with 128 tokens), and whose gradients grow along the signal (42 % too small at the input).
/// Not reached: ± of gradients is 26 to 46 % too small.
#[test]
#[should_panic(expected = "numbers")]
fn branches_have_means_and_gradients_lie_along_signals() {
    // 12 % of 2000 networks; 8 %; 18 % of 1500; 5 % of 2000.
    for (within, file, scheme, networks) in [
        (0.14, "seq_len = 16\nn_layers = 12\nresidual = true\nactivation = 'silu'", "kaiming", 600),
        (0.08, "seq_len = 16\nn_layers = 12\nresidual = true\nactivation = 'silu'\nnorm = 'layernorm'", "kaiming", 600),
        (0.2, "seq_len = 128\nn_layers = 12\nresidual = true\nactivation = 'tanh'", "xavier", 400),
        (0.05, "seq_len = 64\nn_layers = 12\nresidual = true\nactivation = 'gelu'\nnorm = 'rmsnorm'", "kaiming", 400),
    ] {
        assert_mlp_within(within, (file, scheme), &Run::default(), networks, &SPREADS);
    }
}

/// Networks without residuals with masks between (36 and 42 % too small), behind norms (gradients 23 % too small), with biases that are
/// not Gaussian (signals 42 % too large).
/// Not reached: where signals differ by a factor ± of gradients is 40 to 65 % too small.
#[test]
#[should_panic(expected = "numbers")]
fn single_tokens_are_followed_through_masks_norms_and_biases() {
    let training = Run { train: true, ..Run::default() };
    // As far as 4000 to 8000 networks were off.
    for (within, file, scheme, run) in [
        (0.16, "seq_len = 16\nn_layers = 12\nactivation = 'silu'\ndropout = 0.1", "kaiming", &training),
        (0.12, "seq_len = 16\nn_layers = 8\nactivation = 'silu'\nnorm = 'layernorm'", "kaiming", &Run::default()),
        (0.13, "seq_len = 16\nn_layers = 8\nactivation = 'silu'", "pytorch", &Run::default()),
    ] {
        assert_mlp_within(within, (file, scheme), run, 600, &SPREADS[usize::from(file.contains("norm"))..]);
    }
}

/// A norm that takes off the mean right behind an activation: gradients know φ less its mean (11 % too small if they knew φ).
#[test]
fn gradients_behind_layer_norms_know_centred_activations() {
    /// 1.7 ± 0.5 % of 6000 networks.
    const WITHIN: f64 = 0.02;
    let file = "seq_len = 16\nn_layers = 8\nactivation = 'relu'\nnorm = 'layernorm'";
    assert_mlp_within(WITHIN, (file, "kaiming"), &Run::default(), 1500, &[Quantity::GradVariance]);
}

/// Uniform biases, which are most of what activations get: the mean of ReLU is larger and its variance 6 % smaller.
/// Not reached: variances are 5 to 6 % too large.
#[test]
#[should_panic(expected = "numbers")]
fn biases_that_are_not_gaussian() {
    /// 2.2 % of 8000 networks: the sixth cumulant.
    const WITHIN: f64 = 0.03;
    let file = "seq_len = 16\nn_layers = 8\nactivation = 'relu'";
    assert_mlp_within(WITHIN, (file, "pytorch"), &Run::default(), 3000, &[Quantity::Variance]);
}
