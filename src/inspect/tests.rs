//! Small checkpoints, measured beside what is known of them.

use std::fs;

use tempfile::TempDir;

use super::*;
use crate::huggingface::{Part, Start};
use sigprop_stack::{Init, LearningRates};

/// A checkpoint of f32 matrices, and where it lies.
fn checkpoint(tensors: &[(&str, [usize; 2], &[f32])]) -> (TempDir, Checkpoint) {
    let bytes: Vec<Vec<u8>> =
        tensors.iter().map(|(_, _, entries)| entries.iter().flat_map(|x| x.to_le_bytes()).collect()).collect();
    let views = tensors.iter().zip(&bytes).map(|((name, shape, _), data)| {
        let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape.to_vec(), data);
        (*name, view.expect("a view"))
    });
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model.safetensors");
    fs::write(&path, safetensors::serialize(views, None).expect("serializable")).expect("writable");
    let checkpoint = Checkpoint::open(&path).expect("a checkpoint");
    (folder, checkpoint)
}

fn part(name: &str, shape: [usize; 2]) -> Part {
    let (start, learning_rates) = (Start::Drawn(Init::Normal { std: 1.0 }), LearningRates::default());
    Part { parameters: vec![name.to_owned()], pattern: name.to_owned(), expert: None, shape, start, learning_rates }
}

fn held(name: &str, shape: [usize; 2], axis: usize, groups: usize, parts: Vec<Part>) -> Held {
    let (name, pattern) = (name.to_owned(), name.to_owned());
    Held { name, base: None, pattern, shape: shape.to_vec(), axis, groups, parts }
}

/// Entries 1 belong to the first part, entries 2 to the second, in every layout.
#[test]
fn parts_are_found_in_every_layout() {
    let parts = || vec![part("a", [4, 3]), part("b", [2, 3])];
    let rows: Vec<f32> = [1.0; 12].into_iter().chain([2.0; 6]).collect();
    let groups: Vec<f32> = [[1.0; 6].as_slice(), &[2.0; 3]].concat().repeat(2);
    let columns: Vec<f32> = [1.0, 1.0, 1.0, 1.0, 2.0, 2.0].repeat(3);
    for (entries, shape, axis, n_groups) in [(rows, [6, 3], 0, 1), (groups, [6, 3], 0, 2), (columns, [3, 6], 1, 1)] {
        let (_folder, checkpoint) = checkpoint(&[("w", shape, &entries)]);
        let held = [held("w", shape, axis, n_groups, parts())];
        let found = inspect(&checkpoint, Some(&held)).expect("it fits");
        let told: Vec<_> = found.readings.iter().map(|reading| (reading.spread.mean, reading.spread.std())).collect();
        assert_eq!(told, [(1.0, Some(0.0)), (2.0, Some(0.0))]);
        // A matrix of ones of n entries has the singular value √n.
        let values: Vec<f64> = found.readings.iter().map(|reading| reading.singular_value.expect("a matrix")).collect();
        assert!((values[0] - 12f64.sqrt()).abs() < 1e-9 && (values[1] - 2.0 * 6f64.sqrt()).abs() < 1e-9, "{values:?}");
    }
}

#[test]
fn prefixes_missing_and_foreign_tensors_are_found() {
    let (_folder, checkpoint) =
        checkpoint(&[("model.h.0.w", [2, 3], &[1.0; 6]), ("model.h.1.w", [2, 3], &[2.0; 6]), ("head", [1, 1], &[0.0])]);
    let named = |name: &str| {
        let part = Part { pattern: "h.*.w".to_owned(), ..part(name, [2, 3]) };
        Held { pattern: "h.*.w".to_owned(), ..held(name, [2, 3], 0, 1, vec![part]) }
    };
    let held = [named("h.0.w"), named("h.1.w"), named("h.2.w")];
    let found = inspect(&checkpoint, Some(&held)).expect("it fits");
    assert_eq!((found.unknown, found.missing), (vec!["head".to_owned()], vec!["h.2.w".to_owned()]));
    assert_eq!(found.readings.iter().filter(|reading| reading.part.is_some()).count(), 2);
    let groups = Group::all(&found.readings);
    let told: Vec<(&str, usize)> = groups.iter().map(|group| (group.pattern, group.readings.len())).collect();
    assert_eq!(told, [("head", 1), ("model.h.*.w", 2)]);

    let wide = [Held { shape: vec![3, 2], ..named("h.0.w") }];
    let message = inspect(&checkpoint, Some(&wide)).expect_err("it does not fit").to_string();
    assert!(
        message.ends_with("tensor \"model.h.0.w\": expected the shape [3, 2] of the config, got [2, 3]"),
        "{message}"
    );
}

#[test]
fn names_without_numbers_are_patterns() {
    assert_eq!(starred("model.layers.10.mlp.w1.weight"), "model.layers.*.mlp.w1.weight");
    assert_eq!(starred("weight"), "weight");
    assert_eq!(starred("a..3"), "a..*");
}
