//! Plans and checkpoints are written, counted and read again.

use super::checkpoint::once;
use super::*;
use crate::assemble::{Input, Run, assemble};
use crate::huggingface::{Held, Options, import};
use crate::presets::Preset;
use crate::schemes::Scheme;
use serde_json::Value;
use sigprop_stack::{Init, Stack, parameters};

fn network(text: &str, scheme: &str) -> (Stack, Vec<Held>) {
    let imported = import(text, &Options::default()).expect("a config");
    let scheme = Scheme::parse(scheme).expect("a scheme");
    let stack = assemble(&imported.architecture, &scheme, &Input::default(), &Run::default()).expect("a network").stack;
    let held = imported.names.held(&parameters(&stack).expect("it can be walked"));
    (stack, held)
}

/// Published counts: GPT-2 and T5 with their tied heads, LLaMA and Mistral with their own heads, BERT with the head of
/// BertForMaskedLM and without pooler, ViT without head.
#[test]
fn checkpoints_have_the_published_number_of_parameters() {
    for (name, expected) in [
        ("gpt2", 124_439_808),
        ("gpt2-xl", 1_557_611_200),
        ("llama-7b", 6_738_415_616),
        ("mistral-7b", 7_241_732_096),
        ("gemma-2-9b", 9_241_705_984),
        ("bert-base", 109_514_298),
        ("t5-small", 60_506_624),
        ("vit-base", 85_798_656),
    ] {
        let (_, held) = network(Preset::find(name).expect("a preset").text, "xavier");
        let entries = |held: &&Held| held.shape.iter().product::<usize>();
        assert_eq!(once(&held).iter().map(entries).sum::<usize>(), expected, "{name}");
    }
}

/// Rows of parts are written where the layout puts them. Every entry is a number that encodes its part, row and column.
#[test]
fn parts_are_packed_as_their_layout_says() {
    let init = Init::Normal { std: 1.0 };
    let part = |name: &str, rows| crate::huggingface::Part {
        parameters: vec![name.to_owned()],
        pattern: name.to_owned(),
        expert: None,
        shape: [rows, 2],
        start: crate::huggingface::Start::Drawn(init),
        offset: 0.0,
        learning_rates: sigprop_stack::LearningRates::default(),
    };
    let draw = |tensor: &sigprop_stack::Tensor, expert: Option<usize>, _: usize, row: usize, out: &mut [f32]| {
        let part: f32 = tensor.name.parse().expect("a number");
        for (column, entry) in out.iter_mut().enumerate() {
            *entry = 1000.0 * expert.unwrap_or(0) as f32 + 100.0 * part + 10.0 * row as f32 + column as f32;
        }
    };
    let written = |axis, groups, shape: &[usize]| {
        let parts = vec![part("1", 4), part("2", 2)];
        let (name, shape) = ("w".to_owned(), shape.to_vec());
        let held = Held { pattern: name.clone(), name, base: None, shape, axis, groups, parts };
        let mut bytes = Vec::new();
        checkpoint(&[held], &draw, &mut bytes).expect("a vector takes everything");
        let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("the format");
        let view = tensors.tensor("w").expect("the tensor");
        view.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect::<Vec<f32>>()
    };
    let rows = [100., 101., 110., 111., 120., 121., 130., 131., 200., 201., 210., 211.];
    assert_eq!(written(0, 1, &[6, 2]), rows);
    let grouped = [100., 101., 110., 111., 200., 201., 120., 121., 130., 131., 210., 211.];
    assert_eq!(written(0, 2, &[6, 2]), grouped);
    let transposed = [100., 110., 120., 130., 200., 210., 101., 111., 121., 131., 201., 211.];
    assert_eq!(written(1, 1, &[2, 6]), transposed);
    let experts: Vec<f32> = rows.iter().copied().chain(rows.map(|entry| 1000.0 + entry)).collect();
    assert_eq!(written(1, 1, &[2, 6, 2]), experts);
}

#[test]
fn a_plan_has_one_entry_for_all_blocks_that_are_alike() {
    let config =
        r#"{"model_type": "gpt2", "n_layer": 3, "n_embd": 64, "n_head": 4, "n_positions": 32, "vocab_size": 100}"#;
    let (stack, held) = network(config, "bert");
    let mut bytes = Vec::new();
    plan_json(&Plan::new(&stack, Some("bert".to_owned()), &held), &mut bytes).expect("a vector takes everything");
    let plan: Value = serde_json::from_slice(&bytes).expect("JSON");
    let names: Vec<&str> = plan["parameters"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|planned| planned["name"].as_str().expect("text"))
        .collect();
    // Two tables, twelve parameters of a block, the last norm's two, and the tied head.
    assert_eq!(names.len(), 2 + 12 + 2 + 1, "{names:?}");
    assert!(names.contains(&"h.*.mlp.c_proj.bias"), "{names:?}");
    let token = plan["parameters"].as_array().expect("a list").iter().find(|planned| planned["name"] == "wte.weight");
    let token = &token.expect("the token embedding")["parts"][0];
    assert_eq!(token["distribution"], "truncated_normal");
    assert_eq!((token["untruncated_std"].as_f64(), &token["bounds"]), (Some(0.02), &serde_json::json!([-0.04, 0.04])));
    assert!((token["std"].as_f64().expect("a number") - 0.017_593).abs() < 1e-6, "{token}");
    assert_eq!(plan["residual"], serde_json::json!([]));
}

/// Returns the values of a key for all parts of the parameter `name` in a plan.
fn told(plan: &Value, name: &str, what: &str) -> Vec<Value> {
    let parameters = plan["parameters"].as_array().expect("a list");
    let planned = parameters.iter().find(|planned| planned["name"] == name).expect("a parameter");
    let parts = planned["parts"].as_array().expect("a list");
    parts.iter().map(|part| part[what].clone()).collect()
}

/// Only the values in the packed matrix are standardised; the second map reads GELU.
#[test]
fn a_plan_tells_what_is_standardised() {
    let config =
        r#"{"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "n_positions": 32, "vocab_size": 100}"#;
    let (stack, held) = network(config, "standardised");
    let plan = serde_json::to_value(Plan::new(&stack, None, &held)).expect("JSON");
    let lengths = |name: &str| told(&plan, name, "standardised").iter().map(Value::as_f64).collect::<Vec<_>>();
    assert_eq!(lengths("h.*.attn.c_attn.weight"), [None, None, Some(1.0)]);
    assert_eq!(lengths("h.*.mlp.c_fc.weight"), [Some(1.0)]);
    assert!((lengths("h.*.mlp.c_proj.weight")[0].expect("a length") - 1.7).abs() < 0.01);
    assert_eq!(lengths("wte.weight"), [None]);
}

/// Width 64 from 16 is four times as wide; blocks 0 and 1 of 2 are two and one below the end.
#[test]
fn a_plan_tells_learning_rates() {
    let config =
        r#"{"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "n_positions": 32, "vocab_size": 100}"#;
    let (stack, held) = network(config, "mup:width=16,layer-decay=0.5");
    let plan = serde_json::to_value(Plan::new(&stack, None, &held)).expect("JSON");
    let rates = |name: &str| told(&plan, name, "learning_rates");
    let expected = |sgd: f64, adam: f64| serde_json::json!({ "sgd": sgd, "adam": adam });
    assert_eq!(rates("h.0.attn.c_attn.weight"), vec![expected(0.25, 0.0625); 3]);
    assert_eq!(rates("h.1.mlp.c_proj.bias"), [expected(2.0, 0.5)]);
    assert_eq!(rates("ln_f.bias"), [expected(4.0, 1.0)]);
    assert_eq!(rates("wte.weight"), [expected(0.5, 0.125)]);
}
