//! Random flags and random numbers in stack files: no panic, no NaN, no negative variance, no correlation beyond 1.

mod commands;

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

/// Commands of a test, and stack files.
const COMMANDS: usize = 300;

/// The seed of both tests; another one where `SIGPROP_SEED` has it, so many times as `SIGPROP_COMMANDS` says.
fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

fn search(stream: u64, mut step: impl FnMut(commands::Choose)) {
    let mut generator = ChaCha8Rng::seed_from_u64(setting("SIGPROP_SEED", 1) as u64);
    generator.set_stream(stream);
    for _ in 0..setting("SIGPROP_COMMANDS", COMMANDS) {
        step(&mut |below| generator.random_range(0..below));
    }
}

#[test]
fn random_flags_give_numbers_or_an_error() {
    search(0, |choose| {
        let words = commands::prediction(choose);
        commands::demand(&words, choose);
    });
}

#[test]
fn random_numbers_in_stack_files_give_numbers_or_an_error() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    search(1, |choose| {
        if let Some(words) = commands::mutated(choose, folder.path()) {
            commands::demand(&words, choose);
        }
    });
}
