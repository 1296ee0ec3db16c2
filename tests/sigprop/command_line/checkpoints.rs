//! Checkpoints as users have them: of unknown networks, quantised, of low rank, incomplete, partly initialised anew.

use std::{collections::BTreeMap, fs};

use rand::{SeedableRng, rngs::ChaCha8Rng};
use rand_distr::{Distribution, StandardNormal};
use safetensors::{
    SafeTensors,
    tensor::{Dtype, TensorView, serialize},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::inspect::{GPT2, drawn, inspected, rewritten};
use super::{folder, path, refused, run, stderr, stdout, written};

const LLAMA: &str = r#"{"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 4, "intermediate_size": 160, "vocab_size": 100, "max_position_embeddings": 32,
    "tie_word_embeddings": false}"#;

/// A tensor as it is stored.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    pub(super) bytes: Vec<u8>,
}

impl Stored {
    pub(super) fn floats(shape: &[usize], entries: &[f32]) -> Self {
        let bytes = entries.iter().flat_map(|x| x.to_le_bytes()).collect();
        Self { dtype: Dtype::F32, shape: shape.to_vec(), bytes }
    }

    fn entries(&self) -> Vec<f32> {
        self.bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }
}

pub(super) type Tensors = BTreeMap<String, Stored>;

pub(super) fn tensors(folder: &TempDir) -> Tensors {
    let bytes = fs::read(path(folder, "model.safetensors")).expect("readable");
    let all = SafeTensors::deserialize(&bytes).expect("a checkpoint");
    let stored =
        |view: &TensorView| Stored { dtype: view.dtype(), shape: view.shape().to_vec(), bytes: view.data().to_vec() };
    all.iter().map(|(name, view)| (name.to_owned(), stored(&view))).collect()
}

pub(super) fn save(folder: &TempDir, name: &str, tensors: &Tensors) {
    let views = tensors.iter().map(|(name, Stored { dtype, shape, bytes })| {
        (name, TensorView::new(*dtype, shape.clone(), bytes).expect("a view"))
    });
    fs::write(path(folder, name), serialize(views, None).expect("serializable")).expect("writable");
}

pub(super) fn of(folder: &TempDir) -> &str {
    folder.path().to_str().expect("the path is text")
}

fn status(folder: &TempDir, gate: &str) -> Option<i32> {
    run(&["inspect", of(folder), "-q", "--fail-on", gate]).status.code()
}

/// The standard output of `inspect`, with single spaces.
pub(super) fn told(folder: &TempDir) -> String {
    stdout(&run(&["inspect", of(folder)])).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn texts<'r>(report: &'r Value, problem: &str) -> Vec<&'r str> {
    let findings = report["findings"].as_array().expect("a list").iter();
    findings.filter(|finding| finding["problem"] == problem).filter_map(|finding| finding["text"].as_str()).collect()
}

#[test]
fn gates_without_a_network_say_that_they_need_one() {
    let folder = drawn(LLAMA, "hf");
    fs::remove_file(path(&folder, "config.json")).expect("removable");
    for gate in ["deviation", "missing", "tails", "unknown", "fresh", "explosion", "not-finite,collapse"] {
        let output = run(&["inspect", of(&folder), "-q", "--fail-on", gate]);
        let message = refused(&output);
        let named = gate.split(',').next_back().expect("a name");
        let expected = format!("--fail-on {named}: expected a network to compare with, got no config.json");
        assert!(message.contains(&expected) && message.contains("--config"), "{message}");
    }
    let output = run(&["inspect", of(&folder), "-q", "--max-deviation", "5%"]);
    assert!(refused(&output).contains("--max-deviation: expected a network"), "{}", stderr(&output));
    assert_eq!(status(&folder, "not-finite,copies"), Some(0));
    rewritten(&folder, Dtype::F32, |name, entries| {
        if name.ends_with("1.mlp.down_proj.weight") {
            entries[5] = f32::NAN;
        }
    });
    assert_eq!(status(&folder, "not-finite,copies"), Some(1));
}

/// A checkpoint with Mamba's names. Its decay rates are ln 1 to ln 4 in all rows and blocks, as they should be.
#[test]
fn networks_that_are_not_computed_are_measured() {
    let folder = folder();
    written(&folder, "config.json", br#"{"model_type": "rwkv", "hidden_size": 32, "num_hidden_layers": 2}"#);
    let mut generator = ChaCha8Rng::seed_from_u64(1);
    let mut all = Tensors::new();
    for block in 0..2 {
        let rates: Vec<f32> = [1.0, 2.0, 3.0, 4.0f32].map(f32::ln).repeat(64);
        let weights: Vec<f32> = (0..32 * 128).map(|_| StandardNormal.sample(&mut generator)).collect();
        all.insert(format!("backbone.layers.{block}.mixer.A_log"), Stored::floats(&[64, 4], &rates));
        all.insert(format!("backbone.layers.{block}.mixer.in_proj.weight"), Stored::floats(&[128, 32], &weights));
    }
    save(&folder, "model.safetensors", &all);
    let report = inspected(&folder, &[]);
    assert_eq!((&report["findings"], &report["grade"]), (&json!([]), &Value::Null));
    assert!(report["headline"].as_str().expect("text").starts_with("not judged as a network: all entries are finite"));
    let lines = told(&folder);
    assert!(lines.contains("Nothing is predicted: "), "{lines}");
    assert!(lines.contains("model_type rwkv is not supported: its mean over earlier tokens"), "{lines}");
    assert_eq!(status(&folder, "not-finite,copies"), Some(0));
    let output = run(&["inspect", of(&folder), "-q", "--fail-on", "deviation"]);
    assert!(
        refused(&output).contains("--fail-on deviation: expected a network to compare with"),
        "{}",
        stderr(&output)
    );
    let config = path(&folder, "config.json");
    stdout(&run(&["inspect", of(&folder), "--config", &config]));

    let mut rates = all["backbone.layers.1.mixer.A_log"].entries();
    rates[0] = f32::NAN;
    all.insert("backbone.layers.1.mixer.A_log".to_owned(), Stored::floats(&[64, 4], &rates));
    save(&folder, "model.safetensors", &all);
    assert_eq!(status(&folder, "not-finite"), Some(1));
    let report = inspected(&folder, &[]);
    assert_eq!(report["headline"], "not trainable: entries of 1 tensor are not finite");
    assert!(told(&folder).contains("A_log in block 1 of 2: 1 of 256 entries are not finite"));
}

/// The value of a byte in E4M3, by the definition of the format.
fn e4m3(byte: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(byte >> 3 & 15), f32::from(byte & 7) / 8.0);
    let size = if exponent == 0 { mantissa * 2f32.powi(-6) } else { (1.0 + mantissa) * 2f32.powi(exponent - 7) };
    if byte < 0x80 { size } else { -size }
}

/// Quantises the matrices of the network's blocks to eight bits, with one scale per `block` of rows × columns. The
/// scales are stored under the name of the matrix and `end`.
fn quantised(tensors: &Tensors, end: &str, block: impl Fn([usize; 2]) -> [usize; 2]) -> Tensors {
    let codes: Vec<u8> = (0..0x7f).chain(0x81..0xff).collect();
    let mut quantised = Tensors::new();
    for (name, stored) in tensors {
        let &[rows, columns] = stored.shape.as_slice() else {
            quantised.insert(name.clone(), stored.clone());
            continue;
        };
        if !name.contains("layers") {
            quantised.insert(name.clone(), stored.clone());
            continue;
        }
        let entries = stored.entries();
        let [height, width] = block([rows, columns]);
        let across = columns.div_ceil(width);
        let place = |index: usize| index / columns / height * across + index % columns / width;
        let mut scales = vec![0.0f32; rows.div_ceil(height) * across];
        for (index, x) in entries.iter().enumerate() {
            scales[place(index)] = scales[place(index)].max(x.abs() / 448.0);
        }
        let nearest = |x: f32| {
            let distance = |code: &&u8| (e4m3(**code) - x).abs();
            *codes.iter().min_by(|a, b| distance(a).total_cmp(&distance(b))).expect("codes")
        };
        let bytes = entries.iter().enumerate().map(|(index, x)| nearest(x / scales[place(index)])).collect();
        let shape = vec![rows.div_ceil(height), across];
        quantised.insert(name.clone(), Stored { dtype: Dtype::F8_E4M3, shape: stored.shape.clone(), bytes });
        quantised.insert(format!("{name}{end}"), Stored::floats(&shape, &scales));
    }
    quantised
}

/// Scales per block of 128, the last one cut; per row; per tensor.
#[test]
fn floats_of_eight_bits_are_read_times_their_scales() {
    type Block = fn([usize; 2]) -> [usize; 2];
    let wide = LLAMA.replace("\"num_hidden_layers\": 4", "\"num_hidden_layers\": 1");
    let original = drawn(&wide, "hf");
    let whole = inspected(&original, &[]);
    let tensors = tensors(&original);
    let variants: [(&str, Block); 3] =
        [("_scale_inv", |_| [128, 128]), ("_scale", |[_, columns]| [1, columns]), ("_scale", |shape| shape)];
    for (end, block) in variants {
        let folder = folder();
        written(&folder, "config.json", wide.as_bytes());
        let mut quantised = quantised(&tensors, end, block);
        quantised.insert("model.layers.0.mlp.down_proj.input_scale".to_owned(), Stored::floats(&[1], &[3.0]));
        save(&folder, "model.safetensors", &quantised);
        let report = inspected(&folder, &[]);
        for field in ["unknown", "missing", "unread"] {
            assert_eq!(report[field], json!([]), "{field}");
        }
        let rows = |report: &Value| report["tensors"].as_array().expect("a list").clone();
        for row in rows(&report) {
            let same = |other: &&Value| other["tensor"] == row["tensor"];
            let all = rows(&whole);
            let other = all.iter().find(same).expect("the same tensor");
            let [got, expected] = [&row, other].map(|row| row["std"].as_f64().expect("a number"));
            // Rounding to three bits adds at most 2⁻⁶/12 of the square.
            assert!((got - expected).abs() <= 2e-3 * expected, "{row} {other}");
            if row["tensor"].as_str().is_some_and(|name| name.contains("_proj")) {
                assert_eq!(row["dtype"], "F8_E4M3");
            }
        }
        assert!(told(&folder).contains("7 tensors of eight bits are multiplied by their scales."));
    }
}

#[test]
fn scales_that_fit_no_block_are_refused() {
    let folder = folder();
    let codes = Stored { dtype: Dtype::F8_E4M3, shape: vec![10, 6], bytes: vec![0x38; 60] };
    let all = [("w".to_owned(), codes), ("w_scale".to_owned(), Stored::floats(&[3, 1], &[1.0; 3]))];
    save(&folder, "model.safetensors", &all.into());
    let output = run(&["inspect", of(&folder)]);
    let expected =
        "tensor \"w_scale\": expected one scale, one per row or one per block of equal size for \"w\" [10, 6]";
    assert!(refused(&output).contains(expected), "{}", stderr(&output));
}

#[test]
fn packed_weights_are_named_by_their_method() {
    let cases = [
        (&["a.qweight", "a.qzeros", "a.scales", "a.g_idx"][..], "GPTQ"),
        (&["a.qweight", "a.qzeros", "a.scales"], "AWQ"),
        (&["a.weight", "a.weight.absmax", "a.weight.quant_state.bitsandbytes__nf4"], "bitsandbytes (4 bits)"),
        (&["a.weight", "a.SCB"], "bitsandbytes (8 bits)"),
        (&["a.weight_packed", "a.weight_scale"], "compressed-tensors"),
    ];
    for (names, method) in cases {
        let folder = folder();
        let byte = |name: &&str| ((*name).to_owned(), Stored { dtype: Dtype::U8, shape: vec![1], bytes: vec![1] });
        save(&folder, "model.safetensors", &names.iter().map(byte).collect());
        written(&folder, "config.json", LLAMA.as_bytes());
        let output = run(&["inspect", of(&folder)]);
        let message = refused(&output);
        assert!(message.contains(&format!("weights quantised by {method}")), "{message}");
        assert!(message.contains("safe_serialization=True"), "{message}");
    }
}

#[test]
fn files_of_other_formats_are_named() {
    let cases: [(&str, &[u8], &str, &str); 5] = [
        ("model.gguf", b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "a GGUF file", "gguf_file="),
        ("pytorch_model.bin", b"PK\x03\x04\0\0\0\0\0\0\0\0\0\0\0\0", "a pickle of PyTorch", "save_file"),
        ("model.pth", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80", "a pickle of PyTorch", "torch.load"),
        ("tf_model.h5", b"\x89HDF\r\n\x1a\n\0\0\0\0\0\0\0\0", "an HDF5 file", "save_pretrained"),
        ("model.safetensors", b"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS", "git lfs pull"),
    ];
    for (name, bytes, format, advice) in cases {
        let folder = folder();
        let file = written(&folder, name, bytes);
        for place in [file.as_str(), of(&folder)] {
            let output = run(&["inspect", place]);
            let message = refused(&output);
            assert!(message.contains(format) && message.contains(advice), "{name}: {message}");
        }
    }
    let folder = folder();
    written(&folder, "consolidated.safetensors", b"");
    let output = run(&["inspect", of(&folder)]);
    assert!(refused(&output).contains("got consolidated.safetensors; name that file"), "{}", stderr(&output));
}

/// An adapter of the query and value maps of all blocks, of rank 4 and alpha 8, whose B has this size.
fn adapter(size: f32) -> (TempDir, Tensors) {
    let folder = folder();
    let mut generator = ChaCha8Rng::seed_from_u64(2);
    let mut all = Tensors::new();
    for block in 0..4 {
        for map in ["q_proj", "v_proj"] {
            let stem = format!("base_model.model.model.layers.{block}.self_attn.{map}");
            let a = rand_distr::Uniform::new(-0.125f32, 0.125).expect("a range");
            let a: Vec<f32> = a.sample_iter(&mut generator).take(4 * 64).collect();
            let b: Vec<f32> = (0..64 * 4).map(|_| StandardNormal.sample(&mut generator)).collect();
            let b: Vec<f32> = b.into_iter().map(|x: f32| size * x).collect();
            all.insert(format!("{stem}.lora_A.weight"), Stored::floats(&[4, 64], &a));
            all.insert(format!("{stem}.lora_B.weight"), Stored::floats(&[64, 4], &b));
        }
    }
    save(&folder, "adapter_model.safetensors", &all);
    let config = br#"{"peft_type": "LORA", "base_model_name_or_path": "me/base", "r": 4, "lora_alpha": 8,
        "use_rslora": false, "fan_in_fan_out": false, "init_lora_weights": true}"#;
    written(&folder, "adapter_config.json", config);
    (folder, all)
}

#[test]
fn adapters_are_named_and_their_b_is_zero_or_a_finding() {
    let (fresh, _) = adapter(0.0);
    let lines = told(&fresh);
    let description = "This is a LoRA adapter of me/base: 8 modules, rank 4, scaling 2 (lora_alpha/r).";
    assert!(lines.contains(description), "{lines}");
    assert!(lines.contains("lora_B is zero in all modules, as it must be"), "{lines}");
    assert_eq!(inspected(&fresh, &[])["findings"], json!([]));
    assert_eq!(status(&fresh, "not-finite,copies,deviation,tails"), Some(0));
    let output = run(&["inspect", of(&fresh), "-q", "--fail-on", "missing"]);
    assert!(refused(&output).contains("expected a network, got an adapter"), "{}", stderr(&output));

    let (trained, _) = adapter(0.01);
    let report = inspected(&trained, &[]);
    let found = texts(&report, "deviation");
    assert!(found.len() == 1 && found[0].starts_with("lora_B is not zero in 8 of 8 modules"), "{found:?}");
    assert_eq!(status(&trained, "deviation"), Some(1));
    assert_eq!(status(&trained, "not-finite,copies"), Some(0));
}

/// `inspect` reads the sum W + 2 B A, entry by entry.
#[test]
fn an_adapter_is_added_to_its_base_model() {
    let (folder, halves) = adapter(0.3);
    let base = drawn(LLAMA, "hf");
    let config = path(&base, "config.json");
    let sum = inspected(&folder, &["--config", &config]);
    let mut merged = tensors(&base);
    for (name, a) in halves.iter().filter(|(name, _)| name.ends_with("lora_A.weight")) {
        let (a, b) = (a.entries(), halves[&name.replace("lora_A", "lora_B")].entries());
        let name = name.replace("base_model.model.", "").replace(".lora_A", "");
        let mut entries = merged[&name].entries();
        for (index, x) in entries.iter_mut().enumerate() {
            let (row, column) = (index / 64, index % 64);
            *x += 2.0 * (0..4).map(|k| b[row * 4 + k] * a[k * 64 + column]).sum::<f32>();
        }
        merged.insert(name, Stored::floats(&[64, 64], &entries));
    }
    save(&base, "model.safetensors", &merged);
    let expected = inspected(&base, &[]);
    let stds = |report: &Value| -> BTreeMap<String, f64> {
        let rows = report["tensors"].as_array().expect("a list").iter();
        let std = |row: &Value| (row["tensor"].to_string(), row["std"].as_f64().expect("a number"));
        rows.map(std).collect()
    };
    assert_eq!(stds(&sum).len(), 4 * 9 + 3);
    for ((name, got), (other, expected)) in stds(&sum).into_iter().zip(stds(&expected)) {
        assert_eq!(name, other);
        assert!((got - expected).abs() <= 1e-5 * expected, "{name}: {got} {expected}");
    }
    assert!(sum["notes"][1].as_str().expect("text").starts_with("Inspected is the sum W + scaling · B A"));
    let output = run(&["inspect", of(&folder), "--config", "gpt2"]);
    assert!(refused(&output).contains("in the folder of its base model"), "{}", stderr(&output));
}

/// Changes weights as training does: heavy tails, and gains that differ from 1.
fn trained(name: &str, entries: &mut [f32], generator: &mut ChaCha8Rng) {
    for x in entries.iter_mut() {
        let normal: f32 = StandardNormal.sample(generator);
        *x *= if name.contains("norm") { 1.0 + 0.2 * normal } else { 1.0 + normal.abs() };
    }
}

#[test]
fn parts_of_a_trained_checkpoint_that_were_drawn_anew_are_named() {
    let report = |is_fresh: fn(&str) -> bool| {
        let folder = drawn(LLAMA, "hf");
        let generator = std::cell::RefCell::new(ChaCha8Rng::seed_from_u64(3));
        rewritten(&folder, Dtype::F32, |name, entries| {
            if !is_fresh(name) {
                trained(name, entries, &mut generator.borrow_mut());
            }
        });
        let lines = told(&folder);
        (inspected(&folder, &[]), lines, status(&folder, "fresh"))
    };
    let (block, lines, status) = report(|name| name.contains("layers.2."));
    let expected = "block 2 of 4: all 9 tensors are as scheme hf draws them, those of the other blocks are not: was it drawn \
                    anew?";
    assert_eq!((texts(&block, "fresh"), status), (vec![expected], Some(1)));
    assert!(lines.contains("This is not an initialisation by scheme hf but a trained checkpoint"), "{lines}");
    assert!(lines.contains("more findings about sizes and tails (--format json lists all)"), "{lines}");

    let (head, ..) = report(|name| name.contains("lm_head"));
    let expected = "lm_head.weight is as scheme hf draws it, while 29 of the other 29 weight matrices are not: was it drawn \
                    anew?";
    assert_eq!(texts(&head, "fresh"), [expected]);
    let (map, ..) = report(|name| name.contains("up_proj"));
    assert!(texts(&map, "fresh")[0].starts_with("model.layers.*.mlp.up_proj.weight in all 4 blocks are as scheme hf"));

    let (all, lines, status) = report(|_| false);
    assert_eq!((texts(&all, "fresh"), status), (Vec::new(), Some(0)));
    let first = "This is not an initialisation by scheme hf: every one of its 30 weight matrices deviates, and";
    assert!(lines.contains(first) && lines.contains("It is a trained checkpoint."), "{lines}");
    let (fresh, _, status) = report(|_| true);
    assert_eq!((&fresh["findings"], &fresh["notes"], status), (&json!([]), &json!([]), Some(0)));
}

/// An initialisation by another scheme is no trained network, although its embeddings match this scheme.
#[test]
fn another_scheme_is_not_taken_for_training() {
    let report = inspected(&drawn(GPT2, "xavier"), &[]);
    assert_eq!(texts(&report, "fresh"), Vec::<&str>::new());
    let notes = report["notes"].to_string();
    assert!(!notes.contains("a trained checkpoint,"), "{notes}");
}

#[test]
fn blocks_that_are_missing_are_named_as_blocks() {
    let folder = drawn(LLAMA, "hf");
    let mut all = tensors(&folder);
    all.retain(|name, _| !name.contains("layers.2.") && !name.contains("layers.3.") && name != "model.norm.weight");
    save(&folder, "model.safetensors", &all);
    let report = inspected(&folder, &[]);
    let blocks = "blocks 2–3 of 4: all tensors are missing, taken as the scheme draws them";
    let rest = "not in the checkpoint, taken as the scheme draws them: norm.weight";
    assert_eq!(texts(&report, "missing"), [blocks, rest]);
    assert_eq!(report["grade"], Value::Null);
    let headline = report["headline"].as_str().expect("text");
    assert!(headline.starts_with("cannot be trusted: the checkpoint is without blocks 2–3 of 4,"), "{headline}");

    all.retain(|name, _| !name.contains("layers.1."));
    save(&folder, "model.safetensors", &all);
    let output = run(&["inspect", of(&folder)]);
    let expected = "all tensors of blocks 1–3 of 4 are missing; is the checkpoint whole?";
    assert!(refused(&output).contains(expected), "{}", stderr(&output));
}

#[test]
fn an_index_says_which_of_its_files_are_missing() {
    let folder = drawn(LLAMA, "hf");
    let all = tensors(&folder);
    let shard = |name: &str| if name.contains("layers.3.") { "two.safetensors" } else { "one.safetensors" };
    let map: BTreeMap<&str, &str> = all.keys().map(|name| (name.as_str(), shard(name))).collect();
    written(&folder, "model.safetensors.index.json", json!({ "weight_map": map }).to_string().as_bytes());
    // As in transformers, the single file takes precedence.
    let stray = told(&folder);
    let expected = "Read is model.safetensors, as transformers does; model.safetensors.index.json next to it is not.";
    assert!(stray.contains(expected), "{stray}");
    fs::rename(path(&folder, "model.safetensors"), path(&folder, "one.safetensors")).expect("renamed");
    let output = run(&["inspect", of(&folder)]);
    let expected = "expected two.safetensors next to the index, which lists 2 files with 39 tensors, got no two.safetensors: 1 \
                    of 2 files with 9 of 39 tensors are missing";
    assert!(refused(&output).contains(expected), "{}", stderr(&output));
}
