//! Checkpoints with the names of other libraries, and with names that the user defines. The other names were written by
//! hand from the modules of those libraries.

use std::{collections::BTreeMap, fs};

use safetensors::{
    SafeTensors,
    tensor::{Dtype, TensorView, serialize},
};
use serde_json::{Value, json as value};
use tempfile::TempDir;

use super::{folder, json, path, refused, run, stderr, stdout, written};

type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

const LLAMA: &str = r#"{"model_type": "llama", "tie_word_embeddings": true, "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 100, "max_position_embeddings": 32}"#;
const MIXTRAL: &str = r#"{"model_type": "mixtral", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 96, "num_local_experts": 3, "vocab_size": 100, "max_position_embeddings": 32}"#;
const GPT2: &str =
    r#"{"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "n_positions": 32, "vocab_size": 100}"#;
const DINOV2: &str = r#"{"model_type": "dinov2", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
    "image_size": 32, "patch_size": 8, "layerscale_value": 1e-5, "initializer_range": 0.1}"#;
/// `torch.nn.TransformerEncoder` after embeddings.
const POST: &[u8] = b"n_layers = 2\nd_model = 64\nn_heads = 4\nd_ff = 96\nvocab_size = 100\nseq_len = 16\n\
    activation = 'relu'\nnorm_placement = 'post'\n";

/// A folder with the description of a network, and the tensors initialised from it under their own names.
fn drawn(file: &str, model: &[u8], scheme: &str) -> (TempDir, Tensors) {
    let folder = folder();
    let model = written(&folder, file, model);
    let target = path(&folder, "model.safetensors");
    stdout(&run(&["predict", &model, "--scheme", scheme, "--batch", "1", "--export", &target, "-q"]));
    let bytes = fs::read(&target).expect("readable");
    let read = SafeTensors::deserialize(&bytes).expect("a checkpoint");
    let entries =
        |view: &TensorView| view.data().as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
    let tensors = read.iter().map(|(name, view)| (name.to_owned(), (view.shape().to_vec(), entries(&view)))).collect();
    (folder, tensors)
}

fn store(folder: &TempDir, tensors: &Tensors) {
    let bytes: BTreeMap<&String, (&Vec<usize>, Vec<u8>)> = tensors
        .iter()
        .map(|(name, (shape, entries))| (name, (shape, entries.iter().flat_map(|x| x.to_le_bytes()).collect())))
        .collect();
    let views = bytes
        .iter()
        .map(|(name, (shape, data))| (*name, TensorView::new(Dtype::F32, (*shape).clone(), data).expect("a view")));
    fs::write(path(folder, "model.safetensors"), serialize(views, None).expect("serializable")).expect("writable");
}

/// Replaces the first of each of the `pairs` by the second in all names, one pair after the other, and adds a prefix.
fn renamed(tensors: &Tensors, prefix: &str, pairs: &[(&str, &str)]) -> Tensors {
    let name = |name: &String| pairs.iter().fold(name.clone(), |name, (from, to)| name.replace(from, to));
    tensors.iter().map(|(old, tensor)| (format!("{prefix}{}", name(old)), tensor.clone())).collect()
}

/// Stacks the tensors whose names end in `parts` row by row, under the same name with another ending.
fn packed(tensors: &Tensors, parts: &[&str], end: &str) -> Tensors {
    let mut all = tensors.clone();
    let stems: Vec<String> = tensors.keys().filter_map(|name| name.strip_suffix(parts[0])).map(str::to_owned).collect();
    for stem in stems {
        let parts: Vec<_> =
            parts.iter().map(|part| all.remove(&format!("{stem}{part}")).expect("a part of every kind")).collect();
        let rows = parts.iter().map(|(shape, _)| shape[0]).sum();
        let shape = [&[rows], &parts[0].0[1..]].concat();
        all.insert(format!("{stem}{end}"), (shape, parts.into_iter().flat_map(|(_, entries)| entries).collect()));
    }
    all
}

fn scaled(tensors: &mut Tensors, end: &str, factor: f32) {
    let ended = tensors.iter_mut().filter(|(name, _)| name.ends_with(end));
    ended.for_each(|(_, (_, entries))| entries.iter_mut().for_each(|x| *x *= factor));
}

fn inspected(folder: &TempDir, arguments: &[&str]) -> Value {
    let folder = folder.path().to_str().expect("the path is text");
    json(&run(&[&["inspect", folder, "--format", "json", "-q"], arguments].concat()))
}

fn tensors(report: &Value) -> &[Value] {
    report["tensors"].as_array().expect("a list")
}

/// The names of the tensors that deviate.
fn deviating(report: &Value) -> Vec<&str> {
    let deviating = tensors(report).iter().filter(|tensor| tensor["deviates"] != false);
    deviating.map(|tensor| tensor["tensor"].as_str().expect("text")).collect()
}

fn assert_is(report: &Value, names: &str) {
    assert_eq!(report["names"].as_str().unwrap_or(""), names);
    assert_eq!(deviating(report), [""; 0]);
    assert_eq!((&report["unknown"], &report["missing"]), (&value!([]), &value!([])));
}

const META: &[(&str, &str)] = &[
    ("embed_tokens", "tok_embeddings"),
    ("self_attn.q_proj", "attention.wq"),
    ("self_attn.k_proj", "attention.wk"),
    ("self_attn.v_proj", "attention.wv"),
    ("self_attn.o_proj", "attention.wo"),
    ("mlp.gate_proj", "feed_forward.w1"),
    ("mlp.down_proj", "feed_forward.w2"),
    ("mlp.up_proj", "feed_forward.w3"),
    ("input_layernorm", "attention_norm"),
    ("post_attention_layernorm", "ffn_norm"),
];

#[test]
fn llama_is_known_by_the_names_of_meta_behind_any_prefix() {
    let (folder, plain) = drawn("config.json", LLAMA.as_bytes(), "gpt2");
    assert_eq!(inspected(&folder, &["--scheme", "gpt2"])["names"], Value::Null);
    for prefix in ["", "module._orig_mod.", "model."] {
        store(&folder, &renamed(&plain, prefix, META));
        assert_is(&inspected(&folder, &["--scheme", "gpt2"]), "Meta's Llama");
    }
    // The same with an untied head.
    let (folder, plain) = drawn("config.json", LLAMA.replace("true", "false").as_bytes(), "gpt2");
    store(&folder, &renamed(&plain, "", &[META, &[("model.", ""), ("lm_head", "output")]].concat()));
    assert_is(&inspected(&folder, &["--scheme", "gpt2"]), "Meta's Llama");
    let (folder, plain) = drawn("config.json", LLAMA.as_bytes(), "gpt2");
    // gpt-fast packs queries, keys and values.
    let parts = ["wq.weight", "wk.weight", "wv.weight"];
    store(&folder, &packed(&renamed(&plain, "", META), &parts, "wqkv.weight"));
    assert_is(&inspected(&folder, &["--scheme", "gpt2"]), "Meta's Llama");
    // The depth factor is on the wrong projection.
    let mut wrong = renamed(&plain, "", META);
    scaled(&mut wrong, "feed_forward.w3.weight", 0.5);
    store(&folder, &wrong);
    let report = inspected(&folder, &["--scheme", "gpt2"]);
    assert_eq!(deviating(&report), ["layers.0.feed_forward.w3.weight", "layers.1.feed_forward.w3.weight"]);
    let output = run(&["inspect", folder.path().to_str().expect("text"), "--scheme", "gpt2"]);
    assert!(stdout(&output).lines().next().expect("a title").ends_with(", names: Meta's Llama"), "{}", stdout(&output));
}

#[test]
fn mixtures_are_known_by_the_names_of_mistral() {
    let (folder, plain) = drawn("config.json", MIXTRAL.as_bytes(), "hf");
    let mistral = [META, &[("block_sparse_moe", "feed_forward")]].concat();
    store(&folder, &renamed(&plain, "", &mistral));
    assert_is(&inspected(&folder, &[]), "Meta's Llama");
}

const TORCH: &[(&str, &str)] = &[
    ("blocks.", "layers."),
    ("attention.heads", "self_attn"),
    ("attention.output", "self_attn.out_proj"),
    ("attention_norm.gain", "norm1.weight"),
    ("attention_norm.bias", "norm1.bias"),
    ("ffn.in", "linear1"),
    ("ffn.out", "linear2"),
    ("ffn_norm.gain", "norm2.weight"),
    ("ffn_norm.bias", "norm2.bias"),
];

fn torch(plain: &Tensors, prefix: &str) -> Tensors {
    let named = renamed(plain, prefix, TORCH);
    let parts = |what| ["query", "key", "value"].map(|part| format!("{part}.{what}"));
    let (weights, biases) = (parts("weight"), parts("bias"));
    let named = packed(&named, &weights.each_ref().map(String::as_str), "in_proj_weight");
    packed(&named, &biases.each_ref().map(String::as_str), "in_proj_bias")
}

/// `torch.nn.TransformerEncoder` alone, without embeddings.
#[test]
fn an_encoder_of_torch_is_known_and_its_embeddings_are_missing() {
    let (folder, mut plain) = drawn("model.toml", POST, "xavier-packed");
    plain.retain(|name, _| !name.starts_with("embeddings"));
    let model = path(&folder, "model.toml");
    let arguments = ["--config", &model, "--scheme", "xavier-packed"];
    for prefix in ["", "encoder.", "module.transformer.encoder."] {
        store(&folder, &torch(&plain, prefix));
        let report = inspected(&folder, &arguments);
        assert_eq!(report["names"], "torch.nn.TransformerEncoder");
        assert_eq!(deviating(&report), [""; 0]);
        assert_eq!(report["missing"], value!(["embeddings.token", "embeddings.position"]));
        assert_eq!(report["unknown"], value!([]));
    }
    let mut loud = torch(&plain, "");
    scaled(&mut loud, "in_proj_weight", 2.0);
    store(&folder, &loud);
    let report = inspected(&folder, &arguments);
    let of = |tensor: &Value| tensor["parameter"].as_str().expect("known").to_owned();
    let parts: Vec<String> = tensors(&report).iter().filter(|tensor| tensor["deviates"] == true).map(of).collect();
    assert_eq!(parts.len(), 6, "{parts:?}");
    assert!(parts.contains(&"blocks.1.attention.heads.value.weight".to_owned()), "{parts:?}");
}

/// nanoGPT uses the names of GPT-2, so only shapes distinguish the two.
#[test]
fn nanogpt_has_linear_maps_where_gpt2_has_columns() {
    let (folder, mut tensors) = drawn("config.json", GPT2.as_bytes(), "hf");
    for (name, (shape, entries)) in &mut tensors {
        if name.contains("c_") && shape.len() == 2 {
            let [rows, columns] = [shape[0], shape[1]];
            *entries = (0..rows * columns).map(|place| entries[place % rows * columns + place / rows]).collect();
            shape.reverse();
        }
    }
    store(&folder, &renamed(&tensors, "_orig_mod.transformer.", &[]));
    assert_is(&inspected(&folder, &[]), "nanoGPT");
    // The same without biases, as nanoGPT trains them.
    let model =
        b"n_layers = 2\nd_model = 64\nn_heads = 4\nvocab_size = 100\nseq_len = 32\ncausal = true\nbiases = false\n";
    let model = written(&folder, "model.toml", model);
    tensors.retain(|name, _| !name.ends_with("bias"));
    store(&folder, &tensors);
    assert_is(&inspected(&folder, &["--config", &model, "--scheme", "gpt2"]), "nanoGPT");
}

/// A network described by a file, whose tensors have the names of a family of transformers.
#[test]
fn an_architecture_file_may_have_the_names_of_a_family() {
    let (folder, tensors) = drawn("config.json", LLAMA.as_bytes(), "gpt2");
    store(&folder, &renamed(&tensors, "model.", &[]));
    let model = b"n_layers = 2\nd_model = 64\nn_heads = 4\nn_kv_heads = 2\nd_ff = 96\nvocab_size = 100\nseq_len = 32\n\
        activation = 'swiglu'\nnorm = 'rmsnorm'\nbiases = false\npositions = 'rotary'\n";
    let model = written(&folder, "model.toml", model);
    assert_is(&inspected(&folder, &["--config", &model, "--scheme", "gpt2"]), "transformers");
}

const TIMM: &[(&str, &str)] = &[
    ("embeddings.cls_token", "cls_token"),
    ("embeddings.position_embeddings", "pos_embed"),
    ("embeddings.patch_embeddings.projection", "patch_embed.proj"),
    ("encoder.layer.", "blocks."),
    ("attention.attention.", "attn."),
    ("attention.output.dense", "attn.proj"),
    ("layer_scale1.lambda1", "ls1.gamma"),
    ("layer_scale2.lambda1", "ls2.gamma"),
    ("layernorm.", "norm."),
];

/// LayerScale of 1 where 1e-5 is meant, in the names of transformers and of timm. The prediction uses that of the file.
#[test]
fn layer_scale_is_compared_and_predicted_with() {
    let (folder, plain) = drawn("config.json", DINOV2.as_bytes(), "hf");
    let timm = |tensors: &Tensors| {
        let named = renamed(tensors, "", TIMM);
        let named = packed(&named, &["query.weight", "key.weight", "value.weight"], "qkv.weight");
        packed(&named, &["query.bias", "key.bias", "value.bias"], "qkv.bias")
    };
    let growth = |report: &Value| {
        let sites = report["prediction"]["sites"].as_array().expect("a list");
        let of = |site: &str| sites.iter().find(|row| row["site"] == site).expect("the site")["variance"].as_f64();
        of("blocks.1").expect("a number") / of("embeddings").expect("a number")
    };
    let report = inspected(&folder, &[]);
    assert_is(&report, "");
    assert!((growth(&report) - 1.0).abs() < 1e-6);
    store(&folder, &timm(&plain));
    assert_is(&inspected(&folder, &[]), "timm's ViT");

    let mut ones = plain.clone();
    scaled(&mut ones, "lambda1", 1e5);
    store(&folder, &ones);
    let report = inspected(&folder, &[]);
    let expected: Vec<String> =
        [1, 2].iter().flat_map(|k| [0, 1].map(|n| format!("encoder.layer.{n}.layer_scale{k}.lambda1"))).collect();
    let mut got = deviating(&report);
    got.sort_by_key(|name| expected.iter().position(|expected| expected == name));
    assert_eq!(got, expected);
    assert!(growth(&report) > 1.5, "{}", growth(&report));
    let output = run(&["inspect", folder.path().to_str().expect("text")]);
    let sentence = "! encoder.layer.*.layer_scale1.lambda1 in all 2 blocks: mean 1, std 0, the model starts with 1e-5";
    assert!(stdout(&output).split_whitespace().collect::<Vec<_>>().join(" ").contains(sentence), "{}", stdout(&output));
    store(&folder, &timm(&ones));
    assert_eq!(deviating(&inspected(&folder, &[])).len(), 4);
}

/// The checkpoint of an unknown network: packed tensors, another numbering, one tensor per expert.
#[test]
fn names_of_ones_own_are_followed() {
    let (folder, plain) = drawn("model.toml", POST, "bert");
    let model = path(&folder, "model.toml");
    let own = renamed(&plain, "net.", &[("blocks.", "cells."), ("attention.heads", "mix"), ("ffn.in", "wide")]);
    let own = packed(&own, &["query.weight", "key.weight", "value.weight"], "qkv.weight");
    store(&folder, &own);
    let names = written(
        &folder,
        "my.names",
        b"# queries, keys and values are one matrix\n\
          net.cells.*.mix.qkv.weight = blocks.*.attention.heads.query.weight + blocks.*.attention.heads.key.weight \
          + blocks.*.attention.heads.value.weight\n\n\
          net.cells.*.mix.query.bias = blocks.*.attention.heads.query.bias\n\
          cells.*.mix.key.bias = blocks.*.attention.heads.key.bias # relative\n\
          cells.*.mix.value.bias = layers.*.self_attn.v_proj.bias # as Llama has it\n\
          net.cells.*.wide.weight = layers.*.linear1.weight # as torch.nn.TransformerEncoder has it\n\
          net.cells.*.wide.bias = layers.*.linear1.bias\n\
          net.cells.*.attention.output.weight = blocks.*.attention.output.weight\n\
          net.cells.*.attention.output.bias = blocks.*.attention.output.bias\n\
          net.cells.*.ffn.out.weight = blocks.*.ffn.out.weight\n\
          net.cells.*.ffn.out.bias = blocks.*.ffn.out.bias\n\
          net.cells.*.attention_norm.gain = blocks.*.attention_norm.gain\n\
          net.cells.*.attention_norm.bias = blocks.*.attention_norm.bias\n\
          net.cells.*.ffn_norm.gain = blocks.*.ffn_norm.gain\n\
          net.cells.*.ffn_norm.bias = blocks.*.ffn_norm.bias\n",
    );
    let report = inspected(&folder, &["--config", &model, "--scheme", "bert", "--names", &names]);
    assert_is(&report, "");
    let value = tensors(&report).iter().find(|tensor| tensor["parameter"] == "blocks.1.attention.heads.value.weight");
    assert_eq!(value.expect("a part")["tensor"], "net.cells.1.mix.qkv.weight");

    let (folder, plain) = drawn("config.json", MIXTRAL.as_bytes(), "hf");
    store(&folder, &renamed(&plain, "", &[("block_sparse_moe.experts.", "moe.e"), (".w1", ".gate")]));
    let names = written(
        &folder,
        "my.names",
        b"layers.*.moe.e*.gate.weight = blocks.*.ffn.experts.gated.gate.weight\n\
          layers.*.moe.e*.w3.weight = layers.*.block_sparse_moe.experts.*.w3.weight\n\
          layers.*.moe.e*.w2.weight = layers.*.block_sparse_moe.experts.*.w2.weight\n",
    );
    assert_is(&inspected(&folder, &["--names", &names]), "");
}

#[test]
fn lines_that_cannot_be_followed_are_refused_with_their_number() {
    let (folder, _) = drawn("config.json", GPT2.as_bytes(), "hf");
    let checkpoint = path(&folder, "model.safetensors");
    for (line, expected) in [
        ("h.*.attn.c_attn.weight", "line 2: expected name = parameter, got \"h.*.attn.c_attn.weight\""),
        (
            "x.* = blocks.*.attention.heads.quary.weight",
            "line 2: expected a parameter of the network, got \"blocks.*.attention.heads.quary.weight\"; did you mean \
             blocks.*.attention.heads.query.weight?",
        ),
        ("x = h.*.attn.c_attn.weight", "line 2: expected as many * on both sides"),
        ("x.* = h.*.mlp.c_fc.weight + h.*.ln_1.weight", "line 2: expected as many * on both sides, and whole matrices"),
        ("h.*.mlp.wide.bias = h.*.mlp.c_fc.bias", "line 2: expected the name of tensors in the checkpoint, got"),
        (
            "wte.weight = wte.weight\nwte.weight = wpe.weight",
            "line 3: expected every name once, got \"wte.weight of line 2 again\"",
        ),
    ] {
        let names = written(&folder, "my.names", format!("# mine\n{line}\n").as_bytes());
        let output = run(&["inspect", &checkpoint, "--names", &names]);
        assert!(refused(&output).contains(expected), "{}", stderr(&output));
        assert!(stderr(&output).contains("my.names: "), "{}", stderr(&output));
    }
    let nowhere = path(&folder, "nowhere.names");
    assert!(refused(&run(&["inspect", &checkpoint, "--names", &nowhere])).contains("cannot read"));
}

#[test]
fn where_nothing_matches_expected_and_found_names_are_told() {
    let (folder, plain) = drawn("config.json", LLAMA.as_bytes(), "hf");
    store(&folder, &renamed(&plain, "", &[("self_attn", "sa"), ("proj", "p"), ("norm", "n"), ("embed", "e")]));
    let output = run(&["inspect", folder.path().to_str().expect("text")]);
    let expected = "Expected names such as embed_tokens.weight, norm.weight, layers.*.input_layernorm.weight; found \
                    e_tokens.weight, layers.*.input_layern.weight, layers.*.mlp.down_p.weight; --names FILE maps others";
    assert!(refused(&output).contains(expected), "{}", stderr(&output));
}

/// A plan names the parameters of a user's module by the names that the user defines.
#[test]
fn plans_have_names_of_ones_own() {
    let folder = folder();
    let config = written(&folder, "config.json", GPT2.as_bytes());
    let names = written(&folder, "my.names", b"body.*.up.weight = h.*.mlp.c_fc.weight\n");
    let plan = path(&folder, "plan.json");
    stdout(&run(&["predict", &config, "--batch", "1", "-q", "--export", &plan, "--names", &names]));
    let plan: Value = serde_json::from_str(&fs::read_to_string(&plan).expect("readable")).expect("JSON");
    let planned = plan["parameters"].as_array().expect("a list").iter().map(|planned| planned["name"].as_str());
    let planned: Vec<&str> = planned.map(|name| name.expect("text")).collect();
    assert!(planned.contains(&"body.*.up.weight") && planned.contains(&"h.*.mlp.c_fc.bias"), "{planned:?}");
    assert!(!planned.contains(&"h.*.mlp.c_fc.weight"), "{planned:?}");
    let output = run(&["predict", &config, "--names", &names]);
    assert!(refused(&output).contains("--export"), "{}", stderr(&output));
}
