//! The engine: `cargo bench --bench engine`.

use std::sync::atomic::AtomicBool;

use divan::Bencher;
use sigprop::architecture::Architecture;
use sigprop::assemble::{Input, Run, assemble};
use sigprop::schemes::Scheme;
use sigprop_validate::{Settings, measure};

fn main() {
    divan::main();
}

/// One network per thread: weights drawn, forward, backward, statistics; width 256, 128 tokens.
#[divan::bench(args = [1, 2], sample_count = 5)]
fn twelve_blocks(bencher: Bencher, threads: usize) {
    let architecture =
        Architecture { n_layers: 12, d_model: 256, n_heads: Some(4), seq_len: 128, ..Architecture::default() };
    let scheme = Scheme::parse("xavier").expect("known");
    let stack = assemble(&architecture, &scheme, &Input::default(), &Run::default()).expect("a stack").stack;
    let settings = Settings { replicates: threads, threads: Some(threads), ..Settings::default() };
    bencher.bench(|| measure(&stack, &settings, &|_| {}, &AtomicBool::new(false)).expect("small and valid"));
}
