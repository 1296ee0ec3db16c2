//! Checkpoints written by `--export`, as `inspect` reports them, and errors in them.

use std::{collections::BTreeMap, fs};

use half::{bf16, f16};
use safetensors::{
    SafeTensors,
    tensor::{Dtype, TensorView, serialize},
};
use serde_json::{Value, json as value};
use tempfile::TempDir;

use super::{folder, json, path, refused, run, small, stderr, stdout, written};

/// A GPT-2 of three blocks.
pub(super) const GPT2: &str =
    r#"{"model_type": "gpt2", "n_layer": 3, "n_embd": 64, "n_head": 4, "n_positions": 32, "vocab_size": 100}"#;
/// A mixture with grouped keys.
const MIXTRAL: &str = r#"{"model_type": "mixtral", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 96, "num_local_experts": 3, "vocab_size": 100, "max_position_embeddings": 32}"#;
/// Latent queries and keys, dense and sparse blocks.
const DEEPSEEK: &str = r#"{"model_type": "deepseek_v2", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
    "intermediate_size": 96, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 12, "qk_rope_head_dim": 4,
    "v_head_dim": 10, "n_routed_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "first_k_dense_replace": 1, "vocab_size": 100, "max_position_embeddings": 32}"#;
const T5: &str = r#"{"model_type": "t5", "num_layers": 2, "d_model": 64, "num_heads": 4, "d_kv": 16, "d_ff": 96,
    "vocab_size": 100, "n_positions": 32}"#;
const VIT: &str = r#"{"model_type": "vit", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
    "intermediate_size": 96, "image_size": 32, "patch_size": 8}"#;

/// A folder with a config and a checkpoint initialised from it.
pub(super) fn drawn(config: &str, scheme: &str) -> TempDir {
    let folder = folder();
    let file = written(&folder, "config.json", config.as_bytes());
    let target = path(&folder, "model.safetensors");
    stdout(&run(&["predict", &file, "--scheme", scheme, "--batch", "1", "--export", &target, "-q"]));
    folder
}

pub(super) fn inspected(folder: &TempDir, arguments: &[&str]) -> Value {
    let folder = folder.path().to_str().expect("the path is text");
    json(&run(&[&["inspect", folder, "--format", "json", "-q"], arguments].concat()))
}

/// Rewrites every tensor of a checkpoint with changed entries, in this format.
pub(super) fn rewritten(folder: &TempDir, dtype: Dtype, change: impl Fn(&str, &mut Vec<f32>)) {
    let target = path(folder, "model.safetensors");
    let bytes = fs::read(&target).expect("readable");
    let tensors = SafeTensors::deserialize(&bytes).expect("a checkpoint");
    let changed: BTreeMap<String, (Vec<usize>, Vec<u8>)> = tensors
        .iter()
        .map(|(name, view)| {
            let mut entries: Vec<f32> =
                view.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
            change(name, &mut entries);
            let stored: Vec<u8> = match dtype {
                Dtype::BF16 => entries.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect(),
                Dtype::F16 => entries.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect(),
                _ => entries.iter().flat_map(|x| x.to_le_bytes()).collect(),
            };
            (name.to_owned(), (view.shape().to_vec(), stored))
        })
        .collect();
    let views = changed
        .iter()
        .map(|(name, (shape, data))| (name, TensorView::new(dtype, shape.clone(), data).expect("a view")));
    fs::write(&target, serialize(views, None).expect("serializable")).expect("writable");
}

fn tensors(report: &Value) -> &[Value] {
    report["tensors"].as_array().expect("a list")
}

fn assert_is(report: &Value, scheme: &str) {
    let deviating: Vec<&Value> = tensors(report).iter().filter(|tensor| tensor["deviates"] != false).collect();
    assert!(deviating.is_empty(), "{deviating:?}");
    assert_eq!((&report["unknown"], &report["missing"], &report["unread"]), (&value!([]), &value!([]), &value!([])));
    assert_eq!(report["closest"][0]["scheme"], scheme, "{}", report["closest"]);
}

#[test]
fn an_exported_checkpoint_is_the_scheme_it_was_drawn_from() {
    for config in [GPT2, MIXTRAL, DEEPSEEK, T5, VIT] {
        for scheme in ["hf", "xavier-uniform"] {
            let folder = drawn(config, scheme);
            assert_is(&inspected(&folder, &["--scheme", scheme]), scheme);
        }
    }
}

/// A checkpoint holds weights as they are sampled, before the forward pass standardises them.
#[test]
fn standardised_weights_are_compared_as_they_are_drawn() {
    let report = inspected(&drawn(GPT2, "standardised"), &["--scheme", "standardised"]);
    assert!(tensors(&report).iter().all(|tensor| tensor["deviates"] == false), "{report}");
}

/// The tensors of a network that is not one of transformers' have the names of its stack.
#[test]
fn plain_networks_travel_too() {
    let folder = folder();
    let model = written(&folder, "model.toml", b"n_layers = 2\nd_model = 64\nvocab_size = 100\nseq_len = 16\n");
    let target = path(&folder, "model.safetensors");
    stdout(&run(&["predict", &model, "--scheme", "bert", "--export", &target, "-q"]));
    assert_is(&inspected(&folder, &["--config", &model, "--scheme", "bert"]), "bert");
}

/// A checkpoint with the names of a stack file is compared with the distributions of the file, and means are reported.
#[test]
fn a_stack_file_is_a_network_to_compare_with() {
    let folder = folder();
    let [stack, target] = ["stack.json", "model.safetensors"].map(|name| path(&folder, name));
    stdout(&small("predict", &["--dump-stack", &stack, "--export", &target, "-q"]));
    let report = inspected(&folder, &["--stack", &stack]);
    assert!(tensors(&report).iter().all(|tensor| tensor["deviates"] == false), "{report}");
    assert_eq!((&report["findings"], &report["unknown"], &report["missing"]), (&value!([]), &value!([]), &value!([])));
    let name = "blocks.1.ffn.in.weight";
    rewritten(&folder, Dtype::F32, |tensor, entries| {
        if tensor == name {
            for entry in &mut *entries {
                *entry += 0.3;
            }
        }
    });
    let report = inspected(&folder, &["--stack", &stack]);
    let findings = report["findings"].as_array().expect("a list");
    assert!(findings.iter().any(|found| found["problem"] == "deviation"), "{report}");
    let caveats = report["prediction"]["caveats"].as_array().expect("a list");
    assert!(caveats.iter().any(|caveat| caveat["kind"] == "mean_of_weights" && caveat["site"] == name), "{report}");
    let folder = folder.path().to_str().expect("the path is text");
    let output = run(&["inspect", folder, "--stack", &stack, "--scheme", "xavier"]);
    assert!(refused(&output).contains("\"roles\""), "{}", stderr(&output));
}

#[test]
fn the_same_seed_exports_the_same_bytes_in_the_shapes_of_the_library() {
    let bytes = |folder: &TempDir| fs::read(path(folder, "model.safetensors")).expect("readable");
    let folder = drawn(GPT2, "hf");
    let first = bytes(&folder);
    assert_eq!(bytes(&drawn(GPT2, "hf")), first);
    let file = path(&folder, "config.json");
    let other = path(&folder, "other.safetensors");
    stdout(&run(&["predict", &file, "--batch", "1", "--seed", "1", "--export", &other, "-q"]));
    assert_ne!(fs::read(other).expect("readable"), first);
    let tensors = SafeTensors::deserialize(&first).expect("its own library reads it");
    for (name, shape) in [
        ("wte.weight", &[100, 64][..]),
        ("wpe.weight", &[32, 64]),
        ("h.2.attn.c_attn.weight", &[64, 192]),
        ("h.2.attn.c_attn.bias", &[192]),
        ("h.2.mlp.c_fc.weight", &[64, 256]),
        ("ln_f.bias", &[64]),
    ] {
        assert_eq!(tensors.tensor(name).expect(name).shape(), shape, "{name}");
    }
    assert_eq!(tensors.len(), 2 + 3 * 12 + 2);
}

/// Releases 5.0 to 5.14 of transformers left out the residual scaling: std 0.02 instead of 0.02/√6.
#[test]
fn missing_residual_scaling_is_told() {
    let folder = drawn(GPT2, "hf@5.0");
    let output = run(&["inspect", folder.path().to_str().expect("text")]);
    // Joined again, because lines may break anywhere.
    let told = stdout(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    for projection in ["attn", "mlp"] {
        let start = format!("! h.*.{projection}.c_proj.weight in all 3 blocks: std 0.0");
        let (_, rest) = told.split_once(&start).unwrap_or_else(|| panic!("no {start} in {told}"));
        let (_, said) = rest.split_once(", scheme hf says ").unwrap_or_else(|| panic!("no scheme in {rest}"));
        assert!(said.starts_with("0.008165 (×2.4"), "{said}");
    }
    assert_eq!(told.matches("c_proj.weight in all 3 blocks").count(), 2, "{told}");
    assert!(told.contains("Closest schemes: hf@5.0 (×1.0"), "{told}");
    assert!(told.contains("Verdict: "), "{told}");
}

#[test]
fn half_precision_several_files_and_a_head_are_read_alike() {
    let folder = drawn(GPT2, "hf");
    let whole = inspected(&folder, &[]);
    for dtype in [Dtype::BF16, Dtype::F16] {
        let folder = drawn(GPT2, "hf");
        rewritten(&folder, dtype, |_, _| {});
        let halves = inspected(&folder, &[]);
        assert_is(&halves, "hf");
        assert_eq!(tensors(&halves).len(), tensors(&whole).len());
        for half in tensors(&halves) {
            let same = |tensor: &&Value| ["tensor", "parameter"].iter().all(|key| tensor[key] == half[key]);
            let float = tensors(&whole).iter().find(same).expect("the same part");
            let stds = [half, float].map(|tensor| tensor["std"].as_f64().expect("a number"));
            assert!((stds[0] - stds[1]).abs() <= 1e-3 * stds[1], "{half} {float}");
        }
    }
    fs::rename(path(&folder, "model.safetensors"), path(&folder, "one.safetensors")).expect("renamed");
    let map: BTreeMap<&str, &str> =
        tensors(&whole).iter().filter_map(|tensor| Some((tensor["tensor"].as_str()?, "one.safetensors"))).collect();
    written(&folder, "model.safetensors.index.json", value!({ "weight_map": map }).to_string().as_bytes());
    let split = inspected(&folder, &[]);
    assert_eq!(split["tensors"], whole["tensors"]);
}

#[test]
fn what_is_missing_foreign_or_not_finite_is_told() {
    let folder = drawn(GPT2, "hf");
    let target = path(&folder, "model.safetensors");
    let bytes = fs::read(&target).expect("readable");
    let tensors = SafeTensors::deserialize(&bytes).expect("a checkpoint");
    let named = tensors.iter().filter(|(name, _)| *name != "h.1.ln_2.weight").map(|(name, view)| {
        let name = if name == "ln_f.bias" { "score.weight".to_owned() } else { format!("transformer.{name}") };
        (name, view)
    });
    let ids = [0u8; 8];
    let ids = ("transformer.ids".to_owned(), TensorView::new(Dtype::I64, vec![1], &ids).expect("a view"));
    fs::write(&target, serialize(named.chain([ids]), None).expect("serializable")).expect("writable");
    let report = inspected(&folder, &[]);
    assert_eq!(report["missing"], value!(["h.1.ln_2.weight", "ln_f.bias"]));
    assert_eq!(report["unknown"], value!(["transformer.ids", "score.weight"]));
    assert_eq!(report["unread"], value!([{"tensor": "transformer.ids", "dtype": "I64"}]));

    let folder = drawn(GPT2, "hf");
    rewritten(&folder, Dtype::F32, |name, entries| {
        if name == "h.0.ln_1.weight" {
            entries[3] = f32::NAN;
        }
    });
    let output = run(&["inspect", folder.path().to_str().expect("text")]);
    let told = stdout(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    let sentence = "h.*.ln_1.weight in block 0 of 3: 1 of 64 entries are not finite";
    assert!(told.contains(sentence), "{told}");
}

/// The prediction uses the measured weights. For weights of the scheme it equals that of the scheme, for outputs twice
/// as large it does not.
#[test]
fn the_prediction_is_that_of_the_measured_weights() {
    let growth = |folder: &TempDir| {
        let sites = inspected(folder, &[])["prediction"]["sites"].clone();
        let of = |site: &str| {
            let row = sites.as_array().expect("a list").iter().find(|row| row["site"] == site).expect("the site");
            row["variance"].as_f64().expect("a number")
        };
        (of("blocks.2") - of("embeddings")) / of("embeddings")
    };
    let folder = drawn(GPT2, "hf");
    let config = path(&folder, "config.json");
    let stack = path(&folder, "measured.json");
    let plain = growth(&folder);
    rewritten(&folder, Dtype::F32, |name, entries| {
        if name.ends_with("c_proj.weight") {
            for x in entries.iter_mut() {
                *x *= 2.0;
            }
        }
    });
    // Branches have four times the second moment. Their inputs grow slightly, too.
    let doubled = growth(&folder);
    assert!((3.6..4.4).contains(&(doubled / plain)), "{plain} {doubled}");
    let output = run(&["inspect", folder.path().to_str().expect("text"), "--dump-stack", &stack, "-q"]);
    stdout(&output);
    assert_ne!(stdout(&run(&["predict", "--stack", &stack, "-q"])), stdout(&run(&["predict", &config, "-q"])));
}

#[test]
fn without_a_config_tensors_are_only_measured() {
    let folder = drawn(GPT2, "hf");
    fs::remove_file(path(&folder, "config.json")).expect("removable");
    let report = inspected(&folder, &[]);
    assert!(tensors(&report).iter().all(|tensor| tensor["parameter"].is_null() && tensor["std"].is_number()));
    assert_eq!(report["closest"], value!([]));
    let checkpoint = path(&folder, "model.safetensors");
    let output = run(&["inspect", &checkpoint]);
    assert!(stdout(&output).contains("h.*.attn.c_attn.weight  3  64×192"), "{}", stdout(&output));
    assert!(stdout(&output).contains("No network to compare with: tensors are only measured."));
    let output = run(&["inspect", &checkpoint, "--scheme", "gpt2"]);
    assert!(refused(&output).contains("name one with --config"), "{}", stderr(&output));
}

#[test]
fn csv_has_a_row_per_part() {
    let folder = drawn(GPT2, "hf");
    let output = run(&["inspect", folder.path().to_str().expect("text"), "--format", "csv"]);
    let lines: Vec<&str> = stdout(&output).lines().collect();
    let columns = "tensor,parameter,expert,dtype,rows,columns,count,not_finite,mean,std,kurtosis,largest,singular_value,\
                   random_singular_value,scheme_mean,scheme_std,ratio,z,deviates";
    assert_eq!(lines[0], columns);
    assert_eq!(lines.len(), 1 + 4 + 3 * (12 + 2 * 2));
    let row = "h.0.attn.c_attn.weight,blocks.0.attention.heads.key.weight,,F32,64,64,4096,0,";
    assert!(lines.iter().any(|line| line.starts_with(row)), "{lines:?}");
    assert!(stderr(&output).contains("Closest schemes: hf"), "{}", stderr(&output));
}

#[test]
fn bad_checkpoints_are_refused_with_the_place() {
    let folder = drawn(GPT2, "hf");
    let checkpoint = path(&folder, "model.safetensors");
    let bytes = fs::read(&checkpoint).expect("readable");
    written(&folder, "model.safetensors", &bytes[..bytes.len() - 1]);
    let cut = run(&["inspect", &checkpoint]);
    assert!(refused(&cut).contains("bytes of data in the file; is it whole?"), "{}", stderr(&cut));
    assert!(stderr(&cut).contains("model.safetensors: tensor \""), "{}", stderr(&cut));
    written(&folder, "model.safetensors", &bytes);
    let wider = GPT2.replace("64", "128");
    let wider = written(&folder, "wider.json", wider.as_bytes());
    let output = run(&["inspect", &checkpoint, "--config", &wider]);
    assert!(refused(&output).contains("of the config, got ["), "{}", stderr(&output));
    let output = run(&["inspect", &checkpoint, "--config", "t5-small"]);
    assert!(refused(&output).contains("got 0 of "), "{}", stderr(&output));
    let nowhere = path(&folder, "nowhere");
    assert!(refused(&run(&["inspect", &nowhere])).contains("cannot read"));
}

#[test]
fn a_plan_tells_patterns_parts_and_multipliers() {
    let folder = folder();
    let config = written(&folder, "config.json", GPT2.as_bytes());
    let (plan, function) = (path(&folder, "plan.json"), path(&folder, "init.py"));
    let export = ["--batch", "1", "-q", "--export", &plan, "--export", &function];
    stdout(&run(&[&["predict", &config, "--scheme", "gpt2", "--branch-scale", "0.5"], &export[..]].concat()));
    let read = || serde_json::from_str::<Value>(&fs::read_to_string(&plan).expect("readable")).expect("JSON");
    let find = |plan: &Value, name: &str| {
        let all = plan["parameters"].as_array().expect("a list");
        all.iter().find(|planned| planned["name"] == name).unwrap_or_else(|| panic!("no {name} in {plan}")).clone()
    };
    let gpt2 = read();
    let packed = find(&gpt2, "h.*.attn.c_attn.weight");
    assert_eq!((&packed["axis"], packed["parts"].as_array().map(Vec::len)), (&value!(1), Some(3)));
    let query = "blocks.*.attention.heads.query.weight";
    let learning_rates = value!({"sgd": 1.0, "adam": 1.0});
    let part = value!({
        "parameter": query, "size": 64, "distribution": "normal", "std": 0.02, "learning_rates": learning_rates
    });
    assert_eq!(packed["parts"][0], part);
    assert_eq!(find(&gpt2, "h.*.ln_1.weight")["parts"][0]["value"], 1.0);
    assert_eq!(gpt2["scheme"], "gpt2");
    assert_eq!(gpt2["residual"].as_array().map(Vec::len), Some(6));
    assert_eq!(gpt2["residual"][5], value!({"site": "blocks.2.ffn", "skip": 1.0, "branches": [0.5]}));
    let text = fs::read_to_string(&function).expect("readable");
    assert!(text.contains("\"scheme\": \"gpt2\"") && !text.contains("@PLAN@"));

    // Values differ by block, so there is no pattern for all of them.
    let shape = ["predict", "--layers", "3", "--width", "64", "--seq-len", "16", "--vocab", "100", "--scheme", "dslm"];
    stdout(&run(&[shape.as_slice(), &export[..]].concat()));
    let dslm = read();
    let value = |block: usize| {
        let found = find(&dslm, &format!("blocks.{block}.attention.heads.value.weight"));
        found["parts"][0]["std"].as_f64().expect("a number")
    };
    assert!(value(0) > value(1) && value(1) > value(2));
    // A query has variance 1/d, and a branch the scale √(2/6).
    assert_eq!(find(&dslm, query)["parts"][0]["std"], 0.125);
    let branch = dslm["residual"][0]["branches"][0].as_f64().expect("a number");
    assert!((branch * branch - 1.0 / 3.0).abs() < 1e-12, "{branch}");
    let output = small("predict", &["--export", &path(&folder, "plan.yaml")]);
    assert!(refused(&output).contains("*.json, *.py or *.safetensors"), "{}", stderr(&output));
}

/// A checkpoint that transformers built and saved (data/checkpoints): bf16, with the prefix of a model with a head.
#[test]
fn a_checkpoint_of_the_library_is_what_its_config_says() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/data/checkpoints/gpt2-tiny");
    let report = json(&run(&["inspect", folder, "--format", "json", "-q"]));
    assert_is(&report, "hf");
    assert_eq!(tensors(&report).len(), 4 + 3 * (12 + 2 * 2));
    assert!(tensors(&report).iter().all(|tensor| tensor["dtype"] == "BF16"));
}
