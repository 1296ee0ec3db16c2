//! The predictor: `cargo bench --bench predictor`.

use divan::{Bencher, black_box};
use sigprop::architecture::Architecture;
use sigprop::assemble::{Input, Run, assemble};
use sigprop::schemes::Scheme;
use sigprop::{Sites, predict};
use sigprop_stack::Stack;

fn main() {
    divan::main();
}

fn encoder(n_layers: usize, scheme: &str) -> Stack {
    let architecture = Architecture { n_layers, ..Architecture::default() };
    let scheme = Scheme::parse(scheme).expect("known");
    assemble(&architecture, &scheme, &Input::Correlation(0.2), &Run::default()).expect("a stack").stack
}

/// Depth must cost linearly; one block is mostly the table set-up.
#[divan::bench(args = [1, 10, 100, 1000])]
fn xavier(bencher: Bencher, blocks: usize) {
    let stack = encoder(blocks, "xavier");
    bencher.bench(|| predict(black_box(&stack), Sites::Stream));
}

/// Assembly included, which for this scheme predicts block by block.
#[divan::bench(args = [10, 100, 768])]
fn dslm_with_assembly(bencher: Bencher, blocks: usize) {
    bencher.bench(|| predict(&encoder(black_box(blocks), "dslm"), Sites::Stream));
}
