//! Checkpoints that users have reported: attention maps with other fans, `torch.nn.TransformerDecoder`, tied heads
//! without a table, parameters that were not gathered.

use std::fs;

use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use safetensors::tensor::Dtype;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::checkpoints::{Stored, Tensors, of, save, tensors, told};
use super::inspect::{drawn, inspected, rewritten};
use super::{folder, path, refused, run, stdout, written};

fn deviating(report: &Value) -> Vec<(&str, f64)> {
    let all = report["tensors"].as_array().expect("a list").iter();
    all.filter(|tensor| tensor["deviates"] == true)
        .map(|tensor| (tensor["tensor"].as_str().expect("a name"), tensor["ratio"].as_f64().expect("a number")))
        .collect()
}

/// Kernels of rank three, for which Glorot's rule used the fans of a convolution: queries, keys and values have
/// 2/(width (heads + d_head)) instead of 2/(2 width), outputs 2/(heads (d_head + width)).
#[test]
fn maps_drawn_with_fans_of_a_convolution_are_found() {
    const BERT: &str = r#"{"model_type": "bert", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
        "intermediate_size": 256, "vocab_size": 100, "max_position_embeddings": 32}"#;
    let folder = drawn(BERT, "xavier-uniform");
    let (inputs, output) = ((64.0 / (64.0 * 20.0f32)).sqrt(), (64.0 / (4.0 * 80.0f32)).sqrt());
    rewritten(&folder, Dtype::F32, |name, entries| {
        let factor = match name {
            _ if name.contains("attention.self") => inputs,
            _ if name.contains("attention.output.dense") => output,
            _ => 1.0,
        };
        for x in entries {
            *x *= factor;
        }
    });
    let report = inspected(&folder, &["--scheme", "xavier-uniform"]);
    let found = deviating(&report);
    assert_eq!(found.len(), 8, "{found:?}");
    for (name, ratio) in found {
        let expected = if name.contains("attention.self") { inputs } else { output };
        assert!((ratio / f64::from(expected) - 1.0).abs() < 0.05, "{name}: {ratio}");
    }
}

/// A decoder alone: the encoder is missing, and the decoder's own table belongs to no network. PyTorch copies its first
/// layer.
#[test]
fn a_decoder_of_pytorch_is_read_by_its_names() {
    let side = "d_model = 64\nn_heads = 4\nvocab_size = 100\nseq_len = 16\nnorm_placement = \"post\"\n\
        positions = \"none\"\nactivation = \"relu\"\n";
    let described = format!(
        "n_layers = 1\n{side}scheme = \"pytorch\"\nshared_embedding = true\n[decoder]\nn_layers = 3\n{side}causal = true\n"
    );
    let folder = folder();
    let model = written(&folder, "model.toml", described.as_bytes());
    let mut all = Tensors::new();
    for layer in 0..3 {
        let mut generator = ChaCha8Rng::seed_from_u64(1);
        let mut add = |name: &str, shape: &[usize], bound: f32| {
            let entries: Vec<f32> =
                (0..shape.iter().product()).map(|_| bound * generator.random_range(-1.0..1.0f32)).collect();
            all.insert(format!("decoder.layers.{layer}.{name}"), Stored::floats(shape, &entries));
        };
        for attention in ["self_attn", "multihead_attn"] {
            add(&format!("{attention}.in_proj_weight"), &[192, 64], (6.0 / 256.0f32).sqrt());
            add(&format!("{attention}.in_proj_bias"), &[192], 0.0);
            add(&format!("{attention}.out_proj.weight"), &[64, 64], 0.125);
            add(&format!("{attention}.out_proj.bias"), &[64], 0.0);
        }
        for (map, inputs, outputs) in [("linear1", 64, 256), ("linear2", 256, 64)] {
            let bound = (inputs as f32).sqrt().recip();
            add(&format!("{map}.weight"), &[outputs, inputs], bound);
            add(&format!("{map}.bias"), &[outputs], bound);
        }
        for norm in ["norm1", "norm2", "norm3"] {
            all.insert(format!("decoder.layers.{layer}.{norm}.weight"), Stored::floats(&[64], &[1.0; 64]));
            all.insert(format!("decoder.layers.{layer}.{norm}.bias"), Stored::floats(&[64], &[0.0; 64]));
        }
    }
    all.insert("embeddings.weight".to_owned(), Stored::floats(&[100, 64], &vec![1.0; 6400]));
    save(&folder, "model.safetensors", &all);
    let report = inspected(&folder, &["--config", &model]);
    assert!(deviating(&report).is_empty(), "{report}");
    assert_eq!(
        (&report["names"], &report["unknown"]),
        (&json!("torch.nn.TransformerDecoder"), &json!(["embeddings.weight"]))
    );
    let words = told_beside(&folder, &model);
    for expected in ["blocks 0–2 of 3 are equal", "block 0 of 1 (encoder.blocks): all tensors are missing"] {
        assert!(words.contains(expected), "{words}");
    }
}

fn told_beside(folder: &TempDir, model: &str) -> String {
    let output = run(&["inspect", of(folder), "--config", model, "-q"]);
    stdout(&output).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Models with tied tables, whose file contains only the head.
#[test]
fn a_tied_head_alone_is_the_table() {
    const OPT: &str = r#"{"model_type": "opt", "num_hidden_layers": 2, "hidden_size": 64, "ffn_dim": 256,
        "num_attention_heads": 4, "vocab_size": 100, "max_position_embeddings": 32, "word_embed_proj_dim": 64,
        "tie_word_embeddings": true}"#;
    const LLAMA: &str = r#"{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
        "num_key_value_heads": 4, "intermediate_size": 160, "vocab_size": 100, "max_position_embeddings": 32,
        "tie_word_embeddings": true}"#;
    for config in [OPT, LLAMA] {
        let folder = drawn(config, "hf");
        let mut all = tensors(&folder);
        let table = all.keys().find(|name| name.contains("embed_tokens")).expect("a table").clone();
        let table = all.remove(&table).expect("a table");
        all.insert("lm_head.weight".to_owned(), table);
        save(&folder, "model.safetensors", &all);
        let words = told(&folder);
        assert!(words.contains("All of them are as scheme hf draws them") && words.contains("healthy"), "{words}");
    }
}

/// A run that is partitioned over ranks, with parameters that were not gathered: they are empty, or flat.
#[test]
fn parameters_that_were_not_gathered_are_refused_by_name_and_shape() {
    const LLAMA: &str = r#"{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
        "num_key_value_heads": 4, "intermediate_size": 160, "vocab_size": 100, "max_position_embeddings": 32}"#;
    let folder = drawn(LLAMA, "hf");
    let whole = fs::read(path(&folder, "model.safetensors")).expect("readable");
    let empty = Stored { dtype: Dtype::F32, shape: vec![0], bytes: Vec::new() };
    for flat in [false, true] {
        fs::write(path(&folder, "model.safetensors"), &whole).expect("writable");
        let mut all = tensors(&folder);
        let table = all.get_mut("model.embed_tokens.weight").expect("a table");
        *table = if flat { Stored { shape: vec![6400], ..table.clone() } } else { empty.clone() };
        save(&folder, "model.safetensors", &all);
        let length = if flat { 6400 } else { 0 };
        let expected =
            format!("tensor \"model.embed_tokens.weight\": expected the shape [100, 64] of the config, got [{length}]");
        let output = run(&["inspect", of(&folder), "-q"]);
        assert!(refused(&output).contains(&expected), "{}", refused(&output));
    }
}
