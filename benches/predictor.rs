//! The predictor: `cargo bench --bench predictor`.

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

/// What does not grow with depth, where the process has its tables: of overlaps of a softmax, of an activation.
#[divan::bench(consts = WIDTHS)]
fn set_up<const WIDTH: usize>(bencher: Bencher) {
    let stack = encoder(1, WIDTH, "xavier");
    bencher.bench(|| predict(black_box(&stack), Sites::Stream));
}

/// Set-up included. Depth must cost linearly, width nothing.
#[divan::bench(args = BLOCKS, consts = WIDTHS)]
fn xavier<const WIDTH: usize>(bencher: Bencher, blocks: usize) {
    let stack = encoder(blocks, WIDTH, "xavier");
    bencher.bench(|| predict(black_box(&stack), Sites::Stream));
}

/// What of it is the check of the stack.
#[divan::bench(args = BLOCKS)]
fn checked(bencher: Bencher, blocks: usize) {
    let stack = encoder(blocks, 256, "xavier");
    bencher.bench(|| check(black_box(&stack)));
}

/// What comes before: the stack from architecture and scheme.
#[divan::bench(args = BLOCKS)]
fn assembled(blocks: usize) -> Stack {
    encoder(black_box(blocks), 256, "xavier")
}

/// Assembly included, which for this scheme predicts block by block.
#[divan::bench(args = BLOCKS)]
fn dslm_with_assembly(bencher: Bencher, blocks: usize) {
    bencher.bench(|| predict(&encoder(black_box(blocks), 1024, "dslm"), Sites::Stream));
}

/// Whose scale is another in every layer, and whose cosines have no closed form.
#[divan::bench(args = [10, 100])]
fn without_norms(bencher: Bencher, layers: usize) {
    let architecture = Architecture { n_layers: layers, activation: Activation::Tanh, ..Architecture::mlp() };
    let stack = stack(&architecture, "lecun", &Input::Correlation(0.9));
    bencher.bench(|| predict(black_box(&stack), Sites::Stream));
}

/// Every pair of positions of four sequences.
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

/// The network of infinite width: depth must cost linearly, width nothing.
#[divan::bench(args = BLOCKS, consts = WIDTHS)]
fn mean_field<const WIDTH: usize>(bencher: Bencher, blocks: usize) {
    let stack = encoder(blocks, WIDTH, "xavier");
    bencher.bench(|| predict(black_box(&stack), of_infinite_width(None)));
}

/// Where positions differ: eight times the length costs the square of a few points more.
#[divan::bench(args = [512, 4096, 32_768], sample_count = 5)]
fn mean_field_causal(bencher: Bencher, seq_len: usize) {
    let architecture = Architecture { n_layers: 4, causal: true, seq_len, ..Architecture::default() };
    let stack = stack(&architecture, "gpt2", &Input::default());
    bencher.bench(|| predict(black_box(&stack), of_infinite_width(Some(Positions::Fine))));
}

/// Hundreds of predictions.
#[divan::bench(sample_count = 5)]
fn recommended(bencher: Bencher) {
    let setting = Setting::from(Architecture { n_layers: 12, ..Architecture::default() });
    bencher.bench(|| recommend(black_box(&setting), &Demands::default(), &|| {}));
}
