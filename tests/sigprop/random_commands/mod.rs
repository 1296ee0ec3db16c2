//! Random flags and random numbers in stack files: no panic, no NaN, no negative variance, no correlation beyond 1.

mod commands;

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

/// The number of commands of each test.
const COMMANDS: u64 = 150;

/// A number from the environment, for searches that are longer than a test or use another seed.
fn setting(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().expect("the variable is a whole number"))
}

/// Makes random steps, each of which returns true if its command was accepted. A panic does not end the search.
fn search(stream: u64, mut step: impl FnMut(commands::Choose) -> bool) {
    let mut generator = ChaCha8Rng::seed_from_u64(setting("SIGPROP_SEED", 1));
    generator.set_stream(stream);
    let count = setting("SIGPROP_COMMANDS", COMMANDS);
    let (mut accepted, mut failed) = (0, 0);
    for _ in 0..count {
        let mut choose = |below: usize| generator.random_range(0..below);
        match catch_unwind(AssertUnwindSafe(|| step(&mut choose))) {
            Ok(is_accepted) => accepted += u64::from(is_accepted),
            Err(_) => failed += 1,
        }
    }
    assert_eq!(failed, 0, "commands that failed, of {count}; each is printed above");
    assert!(8 * accepted > count, "a search needs commands that are accepted, got {accepted} of {count}");
}

#[test]
fn random_flags_give_numbers_or_an_error() {
    search(0, |choose| {
        let words = commands::prediction(choose);
        commands::demand(&words, choose)
    });
}

#[test]
fn random_numbers_in_stack_files_give_numbers_or_an_error() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    search(1, |choose| commands::mutated(choose, folder.path()).is_some_and(|words| commands::demand(&words, choose)));
}
