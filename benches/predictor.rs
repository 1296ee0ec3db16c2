//! Benchmarks of the predictor: `cargo bench --bench predictor`.

use divan::{Bencher, black_box};
use sigprop::architecture::{Activation, Architecture};
use sigprop::assemble::{Input, Run, assemble};
use sigprop::compare::Setting;
use sigprop::recommend;
use sigprop::recommend::Demands;
use sigprop::schemes::Scheme;
use sigprop::{Options, Positions, Sites, Theory, predict};
use sigprop_stack::{Stack, check};

fn main() {
    divan::main();
}

const BLOCKS: [usize; 3] = [10, 100, 1000];
const WIDTHS: [usize; 2] = [256, 4096];

fn stack(architecture: &Architecture, scheme: &str, input: &Input) -> Stack {
    let scheme = Scheme::parse(scheme).expect("known");
    assemble(architecture, &scheme, input, &Run::default()).expect("a stack").stack
}

fn encoder(n_layers: usize, d_model: usize, scheme: &str) -> Stack {
    let architecture = Architecture { n_layers, d_model, ..Architecture::default() };
    stack(&architecture, scheme, &Input::Correlation(0.2))
}

/// The part of a prediction that does not grow with depth, once the process has its tables (overlaps of the softmax,
/// activations).
#[divan::bench(consts = WIDTHS)]
fn set_up<const WIDTH: usize>(bencher: Bencher) {
    let stack = encoder(1, WIDTH, "xavier");
    bencher.bench(|| predict(black_box(&stack), Sites::Stream));
}

/// A whole prediction, set-up included. Its cost must be linear in depth and independent of the width.
#[divan::bench(args = BLOCKS, consts = WIDTHS)]
fn xavier<const WIDTH: usize>(bencher: Bencher, blocks: usize) {
    let stack = encoder(blocks, WIDTH, "xavier");
    bencher.bench(|| predict(black_box(&stack), Sites::Stream));
}

/// The check of the stack, which is a part of every prediction.
#[divan::bench(args = BLOCKS)]
fn checked(bencher: Bencher, blocks: usize) {
    let stack = encoder(blocks, 256, "xavier");
    bencher.bench(|| check(black_box(&stack)));
}

/// Assembly of the stack from architecture and scheme, which precedes every prediction.
#[divan::bench(args = BLOCKS)]
fn assembled(blocks: usize) -> Stack {
    encoder(black_box(blocks), 256, "xavier")
}

/// Prediction with assembly, because this scheme predicts block by block while it assembles.
#[divan::bench(args = BLOCKS)]
fn dslm_with_assembly(bencher: Bencher, blocks: usize) {
    bencher.bench(|| predict(&encoder(black_box(blocks), 1024, "dslm"), Sites::Stream));
}

/// Layers without norms: each has another scale, and the cosines of tanh have no closed form.
#[divan::bench(args = [10, 100])]
fn without_norms(bencher: Bencher, layers: usize) {
    let architecture = Architecture { n_layers: layers, activation: Activation::Tanh, ..Architecture::mlp() };
    let stack = stack(&architecture, "lecun", &Input::Correlation(0.9));
    bencher.bench(|| predict(black_box(&stack), Sites::Stream));
}

/// A causal encoder, where every pair of positions is followed.
#[divan::bench(args = [64, 256], sample_count = 5)]
fn causal(bencher: Bencher, seq_len: usize) {
    let architecture = Architecture { n_layers: 4, causal: true, seq_len, ..Architecture::default() };
    let stack = stack(&architecture, "gpt2", &Input::default());
    let options = Options::from(Sites::Stream);
    bencher.bench(|| predict(black_box(&stack), options));
}

fn of_infinite_width(positions: Option<Positions>) -> Options {
    Options { theory: Theory::MeanField, positions, ..Sites::Stream.into() }
}

/// The theory of infinite width: its cost must be linear in depth and independent of the width.
#[divan::bench(args = BLOCKS, consts = WIDTHS)]
fn mean_field<const WIDTH: usize>(bencher: Bencher, blocks: usize) {
    let stack = encoder(blocks, WIDTH, "xavier");
    bencher.bench(|| predict(black_box(&stack), of_infinite_width(None)));
}

/// A causal encoder at infinite width, whose positions differ. Eight times the length needs a few more nodes, and the
/// cost is quadratic in the nodes.
#[divan::bench(args = [512, 4096, 32_768], sample_count = 5)]
fn mean_field_causal(bencher: Bencher, seq_len: usize) {
    let architecture = Architecture { n_layers: 4, causal: true, seq_len, ..Architecture::default() };
    let stack = stack(&architecture, "gpt2", &Input::default());
    bencher.bench(|| predict(black_box(&stack), of_infinite_width(Some(Positions::Fine))));
}

/// A recommendation, which makes hundreds of predictions.
#[divan::bench(sample_count = 5)]
fn recommended(bencher: Bencher) {
    let setting = Setting::from(Architecture { n_layers: 12, ..Architecture::default() });
    bencher.bench(|| recommend(black_box(&setting), &Demands::default(), &|| {}));
}
