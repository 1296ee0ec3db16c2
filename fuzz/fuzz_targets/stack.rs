//! Fuzzes stacks in JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sigprop::stack_file::{read_stack, stack_json};
use sigprop_fuzz::file;

fuzz_target!(|data: &[u8]| {
    if let Ok(stack) = read_stack(&file("stack.json", data)) {
        let mut text = Vec::new();
        stack_json(&stack, &mut text).expect("memory takes every byte");
        read_stack(&file("again.json", &text)).expect("what is written is read");
    }
});
