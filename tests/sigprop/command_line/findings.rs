//! The errors that `inspect` finds in checkpoints, and the gates that fail on them. The command initialises each
//! checkpoint, and the test damages it. The cases are those that users of training libraries have reported.

use safetensors::tensor::Dtype;
use serde_json::Value;
use tempfile::TempDir;

use super::inspect::{GPT2, drawn, inspected, rewritten};
use super::{run, stderr, text};

const LLAMA: &str = r#"{"model_type": "llama", "num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 4, "intermediate_size": 96, "vocab_size": 100, "max_position_embeddings": 32}"#;
const BERT: &str = r#"{"model_type": "bert", "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4,
    "intermediate_size": 96, "vocab_size": 100, "max_position_embeddings": 32}"#;

/// A checkpoint with changed entries.
fn spoiled(config: &str, change: impl Fn(&str, &mut Vec<f32>)) -> TempDir {
    let folder = drawn(config, "hf");
    rewritten(&folder, Dtype::F32, change);
    folder
}

fn findings<'r>(report: &'r Value, problem: &str) -> Vec<&'r Value> {
    report["findings"].as_array().expect("a list").iter().filter(|finding| finding["problem"] == problem).collect()
}

/// The exit status of `inspect` with a gate.
fn status(folder: &TempDir, gate: &[&str]) -> Option<i32> {
    let folder = folder.path().to_str().expect("the path is text");
    run(&[&["inspect", folder, "-q"], gate].concat()).status.code()
}

/// NaN or infinity in one entry, in some, in a whole matrix and in a whole norm.
#[test]
fn entries_that_are_not_finite_come_first_and_end_the_prediction() {
    type Spoil = fn(&mut [f32]);
    let cases: [(&str, u64, Spoil); 4] = [
        ("h.1.attn.c_proj.weight", 1, |entries| entries[7] = f32::NAN),
        ("h.1.attn.c_proj.weight", 900, |entries| entries[..900].fill(f32::NAN)),
        ("h.1.ln_1.weight", 64, |entries| entries.fill(f32::NAN)),
        ("h.1.mlp.c_fc.weight", 64 * 256, |entries| entries.fill(f32::INFINITY)),
    ];
    for (tensor, count, spoil) in cases {
        let folder = spoiled(GPT2, |name, entries| {
            if name == tensor {
                spoil(entries);
            }
        });
        let report = inspected(&folder, &[]);
        let first = &report["findings"][0];
        assert_eq!((&first["problem"], &first["blocks"]), (&"not-finite".into(), &serde_json::json!([1])), "{tensor}");
        assert_eq!(first["value"].as_f64(), Some(count as f64), "{tensor}");
        let sentence = first["text"].as_str().expect("text");
        assert!(sentence.contains("in block 1 of 3: "), "{sentence}");
        assert_eq!((&report["grade"], &report["prediction"]), (&"not_trainable".into(), &Value::Null));
        let own: Vec<&Value> =
            report["tensors"].as_array().expect("a list").iter().filter(|row| row["tensor"] == tensor).collect();
        assert!(own.iter().all(|row| row["deviates"] == true), "{own:?}");
        assert_eq!(status(&folder, &["--fail-on", "not-finite"]), Some(1), "{tensor}");
        assert_eq!(status(&folder, &["--fail-on", "copies,explosion"]), Some(0), "{tensor}");
        let output = run(&["inspect", folder.path().to_str().expect("text")]);
        let lines = text(&output.stdout);
        assert!(lines.contains("Verdict: not trainable: entries of 1 tensor are not finite"), "{lines}");
        let refused = run(&["inspect", folder.path().to_str().expect("text"), "--dump-stack", "-"]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(stderr(&refused).contains("expected weights that are finite"), "{}", stderr(&refused));
    }
}

#[test]
fn what_is_as_it_should_be_passes_every_gate() {
    for config in [GPT2, LLAMA, BERT] {
        let folder = drawn(config, "hf");
        let report = inspected(&folder, &[]);
        assert_eq!(report["findings"], serde_json::json!([]), "{config}");
        let coverage = &report["coverage"];
        assert_eq!(coverage["parameters"], coverage["found"]);
        let all = "not-finite,copies,deviation,tails,missing,unknown,explosion,vanishing,collapse,entropy-collapse";
        assert_eq!(status(&folder, &["--fail-on", all, "--max-deviation", "20%"]), Some(0), "{config}");
    }
    let output = run(&["inspect", drawn(GPT2, "hf").path().to_str().expect("text")]);
    let lines = text(&output.stdout);
    assert!(lines.contains("Compared with scheme hf: 40 of 40 parameters, 158 528 entries"), "{lines}");
    assert!(lines.contains("All of them are as scheme hf draws them."), "{lines}");
}

/// Blocks 1 to 3 are copied from block 0 after the initialisation.
#[test]
fn cloned_blocks_are_copies() {
    let folder = drawn(BERT, "hf");
    let first = std::sync::Mutex::new(std::collections::HashMap::new());
    rewritten(&folder, Dtype::F32, |name, entries| {
        if let Some((_, path)) = name.split_once("encoder.layer.0.") {
            first.lock().expect("no panic").insert(path.to_owned(), entries.clone());
        }
    });
    let first = first.into_inner().expect("no panic");
    rewritten(&folder, Dtype::F32, |name, entries| {
        let path = name.split_once("encoder.layer.").and_then(|(_, path)| path.split_once('.')).map(|(_, path)| path);
        if let Some(source) = path.and_then(|path| first.get(path)) {
            entries.clone_from(source);
        }
    });
    let report = inspected(&folder, &[]);
    let copies = findings(&report, "copies");
    assert_eq!(copies.len(), 1, "{copies:?}");
    assert_eq!(copies[0]["blocks"], serde_json::json!([0, 1, 2, 3]));
    // Queries, keys, values, outputs and both maps of the feed-forward network; vectors are constants.
    assert_eq!(copies[0]["tensors"].as_array().map(Vec::len), Some(6), "{copies:?}");
    assert_eq!((&report["grade"], findings(&report, "deviation").len()), (&Value::Null, 0));
    assert!(report["headline"].as_str().expect("text").starts_with("cannot be trusted"), "{}", report["headline"]);
    let caveats = report["prediction"]["caveats"].to_string();
    assert!(caveats.contains("assumes that they are independent"), "{caveats}");
    assert_eq!(status(&folder, &["--fail-on", "copies"]), Some(1));
}

/// Every matrix has the standard deviation of the scheme, but none is independent.
#[test]
fn equal_factors_and_repeated_rows_are_copies() {
    let gates = std::sync::Mutex::new(std::collections::HashMap::new());
    let folder = spoiled(LLAMA, |name, entries| {
        let stem = name.split(".mlp.").next().unwrap_or(name).to_owned();
        if name.ends_with("gate_proj.weight") {
            gates.lock().expect("no panic").insert(stem, entries.clone());
        } else if name.ends_with("1.self_attn.q_proj.weight") {
            // The second half of the heads is the first.
            let half = entries.len() / 2;
            entries.copy_within(..half, half);
        }
    });
    let gates = gates.into_inner().expect("no panic");
    rewritten(&folder, Dtype::F32, |name, entries| {
        if let (true, Some(gate)) =
            (name.ends_with("up_proj.weight"), gates.get(name.split(".mlp.").next().unwrap_or(name)))
        {
            entries.clone_from(gate);
        }
    });
    let report = inspected(&folder, &[]);
    let copies = findings(&report, "copies");
    let texts: Vec<&str> = copies.iter().filter_map(|finding| finding["text"].as_str()).collect();
    assert_eq!(copies.len(), 2, "{texts:?}");
    assert!(texts[0].ends_with("mlp.up_proj.weight in all 3 blocks are equal"), "{texts:?}");
    assert!(texts[1].ends_with("q_proj.weight in block 1 of 3: 32 of 64 rows are copies of others"), "{texts:?}");
}

/// A value map that is the sum of 0.7 of a query map and an independent part, and has the same size.
#[test]
fn correlated_matrices_are_copies() {
    let folder = drawn(LLAMA, "hf");
    let query = std::sync::Mutex::new(Vec::new());
    rewritten(&folder, Dtype::F32, |name, entries| {
        if name.ends_with("2.self_attn.q_proj.weight") {
            query.lock().expect("no panic").clone_from(entries);
        }
    });
    let query = query.into_inner().expect("no panic");
    rewritten(&folder, Dtype::F32, |name, entries| {
        if name.ends_with("2.self_attn.v_proj.weight") {
            let rest = 0.51f32.sqrt();
            entries.iter_mut().zip(&query).for_each(|(value, query)| *value = 0.7 * query + rest * *value);
        }
    });
    let report = inspected(&folder, &[]);
    let copies = findings(&report, "copies");
    assert_eq!((copies.len(), &copies[0]["blocks"]), (1, &serde_json::json!([2])), "{copies:?}");
    // 1024 pairs of entries have a standard error of 0.51/32.
    let correlation = copies[0]["value"].as_f64().expect("a number");
    assert!((correlation - 0.7).abs() < 5.0 * 0.51 / 32.0, "{correlation}");
}

/// An entry of 100 standard deviations among 16 384 increases the standard deviation by a quarter. A second checkpoint
/// is normal where its library samples uniform entries of the same standard deviation.
#[test]
fn tails_are_judged_by_distribution_and_size() {
    let folder = spoiled(GPT2, |name, entries| {
        if name == "h.2.mlp.c_proj.weight" {
            entries[1234] = 100.0 * 0.02 / 6f32.sqrt();
        }
    });
    let report = inspected(&folder, &[]);
    let tails = findings(&report, "tails");
    assert_eq!((tails.len(), &tails[0]["blocks"]), (1, &serde_json::json!([2])), "{tails:?}");
    assert!(report["prediction"]["caveats"].to_string().contains("heavy tails"), "{report}");
    assert_eq!(status(&folder, &["--fail-on", "tails"]), Some(1));

    let folder = drawn(GPT2, "xavier");
    let report = inspected(&folder, &["--scheme", "xavier-uniform"]);
    assert!(!findings(&report, "tails").is_empty() && findings(&report, "deviation").is_empty(), "{report}");
}

#[test]
fn the_largest_deviation_is_a_gate() {
    let folder = spoiled(GPT2, |name, entries| {
        if name == "h.0.attn.c_proj.weight" || name == "h.2.attn.c_proj.weight" {
            for entry in entries.iter_mut() {
                *entry *= 1.1;
            }
        }
    });
    let deviations = inspected(&folder, &[]);
    let deviations = findings(&deviations, "deviation");
    assert_eq!((deviations.len(), &deviations[0]["blocks"]), (1, &serde_json::json!([0, 2])));
    let sentence = deviations[0]["text"].as_str().expect("text");
    assert!(sentence.starts_with("h.*.attn.c_proj.weight in blocks 0, 2 of 3: std 0.00"), "{sentence}");
    assert_eq!(status(&folder, &["--max-deviation", "5%"]), Some(1));
    assert_eq!(status(&folder, &["--max-deviation", "0.2"]), Some(0));
    assert_eq!(status(&folder, &["--fail-on", "deviation"]), Some(1));
}
