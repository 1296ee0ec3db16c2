//! The predictor: `cargo bench --bench predictor`.

use divan::{Bencher, black_box};
use sigprop::architecture::Architecture;
use sigprop::assemble::{Input, Run, assemble};
use sigprop::schemes::Scheme;
use sigprop::{Sites, predict};
use sigprop_stack::{Stack, check};

fn main() {
    divan::main();
}

const BLOCKS: [usize; 3] = [10, 100, 1000];
const WIDTHS: [usize; 2] = [256, 4096];

fn encoder(n_layers: usize, d_model: usize, scheme: &str) -> Stack {
    let architecture = Architecture { n_layers, d_model, ..Architecture::default() };
    let scheme = Scheme::parse(scheme).expect("known");
    assemble(&architecture, &scheme, &Input::Correlation(0.2), &Run::default()).expect("a stack").stack
}

/// What does not grow with depth: the overlap tables of a softmax and the moments of an activation, and a block.
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
