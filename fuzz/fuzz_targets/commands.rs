//! Fuzzes predictions with random flags, and with stack files that have random numbers.
#![no_main]

#[path = "../../tests/sigprop/random_commands/commands.rs"]
mod commands;

use libfuzzer_sys::fuzz_target;
use sigprop_fuzz::folder;

fuzz_target!(|data: &[u8]| {
    let mut bytes = data.iter().map(|byte| usize::from(*byte));
    let mut choose = |below: usize| bytes.next().unwrap_or(0) % below;
    if choose(2) == 0 {
        let words = commands::prediction(&mut choose);
        commands::demand(&words, &mut choose);
    } else if let Some(words) = commands::mutated(&mut choose, folder()) {
        commands::demand(&words, &mut choose);
    }
});
