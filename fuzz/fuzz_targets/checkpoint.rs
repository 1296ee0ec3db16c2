//! Fuzzes safetensors files, and the index of a checkpoint of several files.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sigprop::checkpoint::Checkpoint;
use sigprop_fuzz::file;

fuzz_target!(|data: &[u8]| {
    let _ = Checkpoint::open(&file("model.safetensors.index.json", data));
    let Ok(checkpoint) = Checkpoint::open(&file("model.safetensors", data)) else { return };
    for entry in checkpoint.entries.iter().filter(|entry| entry.is_float()) {
        let mut count = 0;
        entry.read(|piece| count += piece.entries.len()).expect("a checked file is whole");
        assert_eq!(count, entry.matrix().iter().product::<usize>());
    }
});
