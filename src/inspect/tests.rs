//! Tests with small checkpoints whose content is known.

use std::fs;

use tempfile::TempDir;

use super::*;
use crate::caveat::{Caveat, Condition};
use crate::huggingface::{Part, Start};
use sigprop_stack::{
    Branch, Component, Gaussian, GradientSeed, Init, LearningRates, Linear, Node, Norm, NormKind, Op, Source, Stack,
    Stream, Sum, Tensor,
};

/// Returns a checkpoint of f32 matrices, and its folder.
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
    let (parameters, pattern) = (vec![name.to_owned()], name.to_owned());
    Part { parameters, pattern, expert: None, shape, start, offset: 0.0, learning_rates }
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

/// Returns a stack with a norm and a linear map of four features, whose skip connection has this scale.
fn small_stack(skip: f64) -> Stack {
    let weight = Tensor { name: "blocks.0.map.weight".to_owned(), init: Init::Normal { std: 1.0 } };
    let map = Linear { fan_in: 4, fan_out: 4, weight, bias: None, standardised: None };
    let body = vec![Node::apply("map", Component::Linear(map))];
    let branches = [(skip, Vec::new()), (1.0, body)];
    let branches = branches.map(|(scale, body)| Branch::constant(scale, body)).into();
    let block = vec![
        Node::new("sum", Op::Sum(Sum { branches })),
        Node::apply("norm", Component::Norm(Norm::plain(NormKind::LayerNorm, 1e-5))),
    ];
    let source = Source::Gaussian(Gaussian { width: 4, mean: 0.0, variance: 1.0, correlation: 0.0 });
    let body = vec![Node::new("blocks.0", Op::Chain(block))];
    let stream = Stream { name: "main".to_owned(), seq_len: 2, source, body };
    Stack::new("small", vec![stream], GradientSeed { stream: 0, correlation: 0.0 })
}

/// Writes a checkpoint of these tensors, stored minus `offset`, into the small network. Returns its norm, its weights
/// and the omissions.
fn small_network(
    tensors: &[(&str, [usize; 2], &[f32])],
    offset: f64,
) -> (Norm, Init, Vec<(String, usize, OmissionKind)>) {
    let (_folder, checkpoint) = checkpoint(tensors);
    let known = |name: &&str| ["gain", "bias", "weight"].iter().any(|end| name.ends_with(end));
    let names = tensors.iter().map(|(name, ..)| *name).filter(known);
    let held: Vec<Held> = names
        .map(|name| {
            let shape = if name.ends_with("weight") { [4, 4] } else { [4, 1] };
            Held { pattern: starred(name), ..held(name, shape, 0, 1, vec![Part { offset, ..part(name, shape) }]) }
        })
        .collect();
    let inspection = inspect(&checkpoint, Some(&held)).expect("it fits");
    let mut stack = small_stack(1.0);
    let omissions = with_measured(&mut stack, &inspection);
    let (mut norm, mut weight) = (Norm::plain(NormKind::LayerNorm, 0.0), Init::Zero);
    stack.change(|named| match named {
        sigprop_stack::Named::Norm(_, found) => norm = *found,
        sigprop_stack::Named::Tensor(found) => weight = found.init,
        _ => {}
    });
    let omissions = omissions.into_iter().map(|omission| (omission.pattern, omission.tensors.len(), omission.kind));
    (norm, weight, omissions.collect())
}

/// E g² of 1, −1, 2, 0 is 3/2, also if they are stored minus 1. E b² of 3, −3, 3, −3 is 9.
#[test]
fn norms_have_the_measured_size_of_gains_and_biases() {
    let bias: (&str, [usize; 2], &[f32]) = ("blocks.0.norm.bias", [4, 1], &[3.0, -3.0, 3.0, -3.0]);
    for (offset, gains) in [(0.0, [1.0, -1.0, 2.0, 0.0]), (1.0, [0.0, -2.0, 1.0, -1.0])] {
        let (norm, weight, _) = small_network(&[("blocks.0.norm.gain", [4, 1], &gains)], offset);
        assert!((norm.gain - 1.5f64.sqrt()).abs() < 1e-12 && norm.bias == Init::Zero, "{norm:?}");
        assert_eq!(weight, Init::Normal { std: 1.0 });
    }
    let (norm, _, omissions) = small_network(&[bias], 0.0);
    assert!(matches!(norm.bias, Init::Normal { std } if (std - 3.0).abs() < 1e-12), "{norm:?}");
    assert_eq!((norm.gain, omissions), (1.0, Vec::new()));
}

/// The change by a mean of 1 in weights of standard deviation 1/2 and fan-in 4 is 4 · 1/(1/4) = 16. The change by
/// biases of 2 after gains of 1 is 4/(1 + 4).
#[test]
fn means_and_foreign_tensors_are_left_out_and_listed() {
    let weight: Vec<f32> = [0.5, 1.5].repeat(8);
    let extra: &[f32] = &[2.0; 4];
    let (_, written, omissions) = small_network(
        &[
            ("blocks.0.map.weight", [4, 4], &weight),
            ("blocks.0.norm.bias", [4, 1], extra),
            ("blocks.0.scale", [4, 1], extra),
            ("tower.0.scale", [4, 1], extra),
            ("blocks.0.attn.inv_freq", [4, 1], extra),
        ],
        0.0,
    );
    assert!(matches!(written, Init::Normal { std } if (std - 1.25f64.sqrt()).abs() < 1e-12), "{written:?}");
    let expected = [
        ("blocks.*.scale", OmissionKind::Place(2.0)),
        ("blocks.*.map.weight", OmissionKind::Mean(16.0)),
        ("blocks.*.norm.bias", OmissionKind::Mean(0.8)),
    ];
    assert_eq!(omissions, expected.map(|(pattern, kind)| (pattern.to_owned(), 1, kind)));
}

#[test]
fn scales_that_only_the_scheme_has_are_named() {
    let told = |own, foreign| foreign_scales(&small_stack(own), &small_stack(foreign), "deepnorm");
    assert_eq!(told(2.0, 2.0), []);
    let caveat = |text: &str| Caveat::at("blocks.0.sum", Condition::SchemeScale(text.to_owned()));
    let text = "scheme deepnorm also scales the skip by 2.21, which this model does not: predicted without it";
    assert_eq!(told(1.0, 2.21), [caveat(text)]);
    let text = "scheme deepnorm scales the skip by 1, this model by 2: predicted with that of the model";
    assert_eq!(told(2.0, 1.0), [caveat(text)]);
}
