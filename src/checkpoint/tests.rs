//! Tests with files by the format's own library, and with hostile files.

use std::fs;
use std::path::PathBuf;

use half::{bf16, f16};
use proptest::prelude::*;
use safetensors::tensor::{Dtype as TheirDtype, TensorView, serialize};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn written(folder: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, bytes).expect("writable");
    path
}

/// Returns a file of two tensors, by the format's own library.
fn small() -> Vec<u8> {
    let (a, b) = ([1.0f32, -2.0, 3.5, 4.0, 5.0, 6.0].map(f32::to_le_bytes), [0.5f32, 7.0].map(f32::to_le_bytes));
    let view = |shape, data| TensorView::new(TheirDtype::F32, shape, data).expect("a view");
    let tensors = [("a.weight", view(vec![2, 3], a.as_flattened())), ("a.bias", view(vec![2], b.as_flattened()))];
    serialize(tensors, None).expect("serializable")
}

/// Returns a file with this header and `data` bytes of data.
fn file(header: &str, data: usize) -> Vec<u8> {
    let length = (header.len() as u64).to_le_bytes();
    [length.as_slice(), header.as_bytes(), &vec![0; data]].concat()
}

fn opened(bytes: &[u8]) -> Result<Checkpoint, CheckpointError> {
    let folder = folder();
    Checkpoint::open(&written(&folder, "model.safetensors", bytes))
}

/// Returns the error message for a file that must be refused, without the name of the file at its start.
fn message(bytes: &[u8]) -> String {
    let message = opened(bytes).expect_err("no checkpoint").to_string();
    let (path, rest) = message.split_once("model.safetensors: ").unwrap_or_else(|| panic!("no file in {message}"));
    assert!(!path.contains('\n'));
    rest.to_owned()
}

fn entries(entry: &Entry) -> Vec<f32> {
    let mut all = Vec::new();
    entry
        .read(|piece| {
            assert_eq!(piece.first, all.len());
            all.extend_from_slice(piece.entries);
        })
        .expect("readable");
    all
}

#[test]
fn tensors_are_read_as_they_were_written() {
    let folder = folder();
    let checkpoint = Checkpoint::open(&written(&folder, "model.safetensors", &small())).expect("a checkpoint");
    let find = |name: &str| checkpoint.entries.iter().find(|entry| entry.name == name).expect("the tensor");
    assert_eq!(entries(find("a.weight")), [1.0, -2.0, 3.5, 4.0, 5.0, 6.0]);
    assert_eq!((find("a.weight").matrix(), find("a.bias").matrix()), ([2, 3], [2, 1]));
    assert_eq!(entries(find("a.bias")), [0.5, 7.0]);
    assert_eq!(Checkpoint::open(folder.path()).expect("a folder"), checkpoint);
}

#[test]
fn half_precision_is_exact_and_long_tensors_come_in_pieces() {
    let folder = folder();
    let numbers: Vec<f32> = (0..400_000).map(|i| (i % 128) as f32 / 64.0 - 1.0).collect();
    let halves: Vec<u8> = numbers.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect();
    let brains: Vec<u8> = numbers.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect();
    let view = |dtype, data| TensorView::new(dtype, vec![4000, 100], data).expect("a view");
    let tensors = [("half", view(TheirDtype::F16, &halves)), ("brain", view(TheirDtype::BF16, &brains))];
    let bytes = serialize(tensors, None).expect("serializable");
    let checkpoint = Checkpoint::open(&written(&folder, "model.safetensors", &bytes)).expect("a checkpoint");
    for entry in &checkpoint.entries {
        assert!(entries(entry) == numbers, "{}", entry.name);
        let mut pieces = 0;
        entry
            .read(|piece| {
                pieces += 1;
                assert!(piece.entries.len().is_multiple_of(100));
            })
            .expect("readable");
        assert!(pieces > 1);
    }
}

#[test]
fn files_of_an_index_are_one_checkpoint() {
    let folder = folder();
    written(&folder, "one.safetensors", &small());
    written(&folder, "two.safetensors", &file(r#"{"b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}"#, 4));
    let index = |map: Value| {
        written(&folder, "model.safetensors.index.json", json!({"weight_map": map}).to_string().as_bytes())
    };
    index(json!({"a.weight": "one.safetensors", "b": "two.safetensors"}));
    let names = |checkpoint: Checkpoint| checkpoint.entries.into_iter().map(|entry| entry.name).collect::<Vec<_>>();
    assert_eq!(names(Checkpoint::open(folder.path()).expect("a checkpoint")), ["a.weight", "b"]);
    for (map, hint) in [
        (json!({"c": "one.safetensors"}), "tensor \"c\": expected a tensor of one.safetensors, got none"),
        (json!({"b": "three.safetensors"}), "expected three.safetensors next to the index, which lists 1 files"),
        (json!({"b": "../two.safetensors"}), "expected names of files next to the index, got \"../two.safetensors\""),
        (json!(["b"]), "expected an index with a weight_map, got invalid type"),
    ] {
        let message = Checkpoint::open(&index(map)).expect_err("no checkpoint").to_string();
        assert!(message.contains(hint), "{message}");
    }
    let empty = tempfile::tempdir().expect("a temporary folder");
    assert!(Checkpoint::open(empty.path()).expect_err("nothing").to_string().contains("save_pretrained"));
}

#[test]
fn truncation_at_every_byte_is_told() {
    let whole = small();
    for length in 0..whole.len() {
        assert!(message(&whole[..length]).starts_with("expected ") || message(&whole[..length]).starts_with("tensor "));
    }
    assert!(message(&[whole.as_slice(), &[0]].concat()).contains("expected 32 bytes of data"));
    assert!(message(&whole[..whole.len() - 1]).contains("31 bytes of data in the file; is it whole?"));
}

#[test]
fn hostile_headers_are_told() {
    let tensor = |dtype: &str, shape: &str, from: &str, to: &str| {
        format!(r#"{{"w": {{"dtype": "{dtype}", "shape": {shape}, "data_offsets": [{from}, {to}]}}}}"#)
    };
    let big = u64::MAX.to_string();
    for (header, data, hint) in [
        (tensor("F32", "[2]", "0", "4"), 4, "tensor \"w\": expected 8 bytes for F32 [2], got data from 0 to 4"),
        (tensor("F32", "[2]", "4", "12"), 12, "expected data from 0 on, where the tensor before it ends, got 4"),
        (tensor("F32", "[2]", "8", "0"), 8, "expected data from 0 on"),
        (tensor("F32", "[2]", "0", "8"), 4, "expected data up to 8, got 4 bytes of data in the file"),
        (tensor("F32", "[2]", "0", "8"), 9, "expected 8 bytes of data, as the header says, got 9 bytes"),
        (tensor("F32", "[2]", "0", &big), 8, "got data from 0 to 18446744073709551615"),
        (tensor("F32", "[9223372036854775807, 4]", "0", "8"), 8, "expected a number of whole bytes below 2^61"),
        (tensor("F32", "[0, 9223372036854775807, 4]", "0", "0"), 0, "expected a number of whole bytes below 2^61"),
        (tensor("F32", "[4611686018427387904]", "0", "8"), 8, "expected a number of whole bytes below 2^61"),
        (tensor("F32", "[1152921504606846975]", "0", "8"), 8, "tensor \"w\": expected"),
        (tensor("F32", "[-1]", "0", "8"), 8, "tensor \"w\": invalid value"),
        (tensor("F32", "[1e30]", "0", "8"), 8, "tensor \"w\": invalid type"),
        (tensor("F4", "[3]", "0", "1"), 1, "expected a number of whole bytes"),
        (tensor("F33", "[2]", "0", "8"), 8, "tensor \"w\": expected a dtype of safetensors, got \"F33\""),
        ("[]".to_owned(), 0, "expected tensors as JSON in the header, got invalid type: sequence"),
        (r#"{"w": 3}"#.to_owned(), 0, "tensor \"w\": invalid type"),
        (r#"{"w": {"dtype": "F32", "shape": []}}"#.to_owned(), 0, "missing field `data_offsets`"),
        ("[".repeat(100_000), 0, "expected tensors as JSON"),
        (format!(r#"{{"__metadata__": {}"#, "[".repeat(100_000)), 0, "EOF while parsing a list"),
    ] {
        let message = message(&file(&header, data));
        assert!(message.contains(hint), "expected {hint}, got {message}");
    }
    let twice = r#"{"w": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}, "w": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}"#;
    assert!(message(&file(twice, 1)).contains("tensor \"w\": expected once, got twice"));
    let overlapping = r#"{"v": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "w": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}"#;
    assert!(message(&file(overlapping, 12)).contains("tensor \"w\": expected data from 8 on"));
    let length = [(1u64 << 60).to_le_bytes().as_slice(), &[0; 20]].concat();
    assert!(message(&length).contains("whose header fits into 20 bytes"));
}

#[test]
fn empty_tensors_and_scalars_are_read() {
    let header = r#"{"__metadata__": {"format": "pt"}, "none": {"dtype": "F32", "shape": [0, 5], "data_offsets": [0, 0]},
                     "one": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}}"#;
    let folder = folder();
    let checkpoint = Checkpoint::open(&written(&folder, "model.safetensors", &file(header, 4))).expect("a checkpoint");
    let all: Vec<_> = checkpoint.entries.iter().map(|entry| (entry.name.as_str(), entries(entry))).collect();
    assert_eq!(all, [("none", vec![]), ("one", vec![0.0])]);
}

proptest! {
    /// Any bytes give an error or tensors that lie in the file, never a panic or an allocation beyond it.
    #[test]
    fn no_header_panics(header in proptest::collection::vec(any::<u8>(), 0..200), data in 0usize..20) {
        let length = (header.len() as u64).to_le_bytes();
        let _ = opened(&[length.as_slice(), &header, &vec![0; data]].concat());
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = opened(&bytes);
    }

    /// A good file with one changed byte is read or refused.
    #[test]
    fn no_changed_byte_panics(place in 0usize..1000, byte: u8) {
        let mut bytes = small();
        let place = place % bytes.len();
        bytes[place] = byte;
        if let Ok(checkpoint) = opened(&bytes) {
            prop_assert!(checkpoint.entries.iter().map(|entry| entry.shape.iter().product::<usize>()).sum::<usize>() <= 32);
        }
    }

    #[test]
    fn no_numbers_panic(shape in proptest::collection::vec(any::<u64>(), 0..5), from: u64, to: u64, dtype in "F32|F16|BF16|F4|I64") {
        let header = json!({"w": {"dtype": dtype, "shape": shape, "data_offsets": [from, to]}}).to_string();
        let _ = opened(&file(&header, 16));
    }
}
