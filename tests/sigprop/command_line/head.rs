//! Heads of language models in `predict --head`, stack files and checkpoints.

use std::fs;

use safetensors::{SafeTensors, tensor::serialize};
use serde_json::{Value, json as value};
use tempfile::TempDir;

use super::{folder, json, path, refused, run, stderr, stdout, written};

/// T5 with gated feed-forward networks, as reported.
fn t5(tied: bool) -> String {
    value!({
        "model_type": "t5", "d_model": 512, "d_kv": 64, "d_ff": 1024, "num_layers": 8, "num_decoder_layers": 8,
        "num_heads": 6, "feed_forward_proj": "gated-gelu", "vocab_size": 32128, "tie_word_embeddings": tied
    })
    .to_string()
}

const LLAMA: &str = r#"{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
    "intermediate_size": 96, "vocab_size": 100, "max_position_embeddings": 32}"#;

const BERT: &str = r#"{"model_type": "bert", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
    "intermediate_size": 96, "vocab_size": 100, "max_position_embeddings": 32}"#;

fn predicted(folder: &TempDir, config: &str, arguments: &[&str]) -> Value {
    let file = written(folder, "config.json", config.as_bytes());
    json(&run(&[&["predict", &file, "--head", "--json", "-q"], arguments].concat()))
}

/// Measured with transformers 5.24. An untied head with weights N(0, 1), 12 sequences of 6 networks: 93.0 ± 1.1 nats,
/// gradient norm 812 ± 12 of one sequence. The tied and scaled head, 24 of 8: 10.94 ± 0.036 nats, 25.3 ± 0.3.
#[test]
fn t5_has_the_loss_of_the_library() {
    let folder = folder();
    let arguments = ["--seq-len", "64", "--decoder-seq-len", "32", "--batch", "2", "--uniform"];
    for (tied, loss, norm) in [(false, [93.0, 2.2], 812.0), (true, [10.94, 0.072], 25.3)] {
        let told = predicted(&folder, &t5(tied), &arguments)["loss"].clone();
        let told = |key: &str| told[key].as_f64().expect("a number");
        assert!((told("cross_entropy") - loss[0]).abs() < loss[1], "{tied}: {}", told("cross_entropy"));
        assert!((told("grad_norm") / norm - 1.0).abs() < 0.05, "{tied}: {}", told("grad_norm"));
    }
}

/// A stack file contains the head of its model.
#[test]
fn stacks_bring_their_head() {
    let folder = folder();
    let stack = path(&folder, "stack.json");
    for config in [LLAMA, BERT] {
        let file = written(&folder, "config.json", config.as_bytes());
        stdout(&run(&["predict", &file, "--dump-stack", &stack]));
        let of_stack = json(&run(&["predict", "--stack", &stack, "--head", "--json", "-q"]));
        assert_eq!(of_stack["loss"], predicted(&folder, config, &[])["loss"]);
    }
    let mut plain: Value = serde_json::from_slice(&fs::read(&stack).expect("readable")).expect("JSON");
    plain.as_object_mut().expect("an object").remove("head");
    let plain = written(&folder, "plain.json", plain.to_string().as_bytes());
    let output = run(&["predict", "--stack", &plain, "--head"]);
    assert!(refused(&output).contains("expected the key \"head\""), "{}", stderr(&output));
    stdout(&run(&["predict", "--stack", &plain, "--head=tied", "-q"]));
}

/// An initialised checkpoint of a config, with some tensors renamed or left out, and its inspection.
fn checkpoint(folder: &TempDir, config: &str, change: impl Fn(&str) -> Option<String>) -> Value {
    let file = written(folder, "config.json", config.as_bytes());
    let target = path(folder, "model.safetensors");
    stdout(&run(&["predict", &file, "--export", &target, "-q"]));
    let bytes = fs::read(&target).expect("readable");
    let tensors = SafeTensors::deserialize(&bytes).expect("a checkpoint");
    let kept = tensors.iter().filter_map(|(name, view)| Some((change(name)?, view)));
    fs::write(&target, serialize(kept, None).expect("serializable")).expect("writable");
    json(&run(&["inspect", folder.path().to_str().expect("text"), "--format", "json", "-q"]))
}

fn reading<'r>(report: &'r Value, tensor: &str) -> &'r Value {
    let tensors = report["tensors"].as_array().expect("a list");
    tensors.iter().find(|reading| reading["tensor"] == tensor).unwrap_or_else(|| panic!("no {tensor} in {report}"))
}

#[test]
fn checkpoints_have_their_head() {
    let folder = folder();
    let whole = |name: &str| Some(name.to_owned());
    let report = checkpoint(&folder, LLAMA, whole);
    let head = reading(&report, "lm_head.weight");
    assert_eq!((&head["parameter"], &head["deviates"]), (&value!("head.weight"), &value!(false)));
    assert_eq!((&report["missing"], &report["unknown"]), (&value!([]), &value!([])));
    // A base model, whose names have no prefix, has no head.
    let without = |name: &str| (name != "lm_head.weight").then(|| name.to_owned());
    assert_eq!(checkpoint(&folder, LLAMA, without)["missing"], value!(["lm_head.weight"]));
    let base = |name: &str| name.strip_prefix("model.").map(str::to_owned);
    assert_eq!(checkpoint(&folder, LLAMA, base)["missing"], value!([]));

    let masked = checkpoint(&folder, BERT, whole);
    assert_eq!(reading(&masked, "cls.predictions.transform.dense.weight")["parameter"], "head.dense.weight");
    assert_eq!((&masked["missing"], &masked["unknown"]), (&value!([]), &value!([])));
}

/// The table under the name of a tied head is known, and may be absent.
#[test]
fn tied_heads_are_neither_foreign_nor_missing() {
    let folder = folder();
    let tied = LLAMA.replace("\"vocab_size\"", "\"tie_word_embeddings\": true, \"vocab_size\"");
    let report = checkpoint(&folder, &tied, |name| Some(format!("model.{name}")));
    assert_eq!((&report["missing"], &report["unknown"]), (&value!([]), &value!([])));
    let renamed = |name: &str| {
        Some(if name == "embed_tokens.weight" { "lm_head.weight".to_owned() } else { format!("model.{name}") })
    };
    let report = checkpoint(&folder, &tied, renamed);
    assert_eq!((&report["missing"], &report["unknown"]), (&value!([]), &value!([])));
    assert_eq!(reading(&report, "lm_head.weight")["parameter"], "embeddings.token");
}

#[test]
fn plans_have_the_head() {
    let folder = folder();
    let file = written(&folder, "config.json", LLAMA.as_bytes());
    let (plan, function) = (path(&folder, "plan.json"), path(&folder, "init.py"));
    stdout(&run(&["predict", &file, "--scheme", "gpt2", "--export", &plan, "--export", &function, "-q"]));
    let told: Value = serde_json::from_slice(&fs::read(plan).expect("readable")).expect("JSON");
    let parameters = told["parameters"].as_array().expect("a list");
    let head = parameters.iter().find(|planned| planned["name"] == "lm_head.weight").expect("the head");
    assert_eq!(head["parts"][0]["std"], 0.02);
    assert!(fs::read_to_string(function).expect("readable").contains("\"lm_head.weight\""));
}

/// The weight of the only chosen expert is 1 for all outputs of its router.
#[test]
fn routers_without_gradient_are_found() {
    let config = r#"{"model_type": "qwen3_moe", "hidden_size": 64, "moe_intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100, "num_experts": 4,
        "num_experts_per_tok": 1, "norm_topk_prob": true, "max_position_embeddings": 32}"#;
    let folder = folder();
    let found = |config: &str| {
        let document = predicted(&folder, config, &[]);
        let findings = document["verdict"]["findings"].as_array().expect("a list").clone();
        findings.into_iter().find(|finding| finding["kind"] == "no_gradient")
    };
    let router = found(config).expect("a finding");
    let text = router["text"].as_str().expect("text");
    assert!(text.ends_with("tensors: blocks.*.ffn.experts.router.weight (2)"), "{text}");
    assert_eq!(router["severity"], "warning");
    assert_eq!(found(LLAMA), None);
}

/// The loss of logits that explode is predicted, even beyond the range of f64.
#[test]
fn logits_that_explode_are_predicted() {
    let predicted = |layers| {
        let network = ["mlp", "--width=64", "--activation=relu", "--scheme=uniform:1", "--head=untied", "--vocab=8"];
        run(&[&["predict", layers], &network[..]].concat())
    };
    let output = predicted("--layers=100");
    assert!(stdout(&output).contains("e52 nats"), "{}", stdout(&output));
    let output = predicted("--layers=800");
    assert!(stdout(&output).contains("e412 nats"), "{}", stdout(&output));
}

/// Squares double the exponent in every layer. The loss is that of the largest of V = 32000 logits of variance w,
/// between their standard deviation √w and √(2 w ln V).
#[test]
fn losses_beyond_f64_are_logarithms() {
    let network = ["predict", "mlp", "--layers=60", "--width=8", "--activation=relu2", "--head", "--json"];
    let document = json(&run(&network));
    let loss = &document["loss"];
    assert!(loss["logit_variance"].is_null() && loss["cross_entropy"].is_null(), "{loss}");
    let ln = |quantity: &str| loss[quantity].as_f64().expect("a logarithm");
    assert!((ln("ln_cross_entropy") / ln("ln_logit_variance") - 0.5).abs() < 1e-9, "{loss}");
    assert_eq!(document["verdict"]["grade"], "not_trainable");
}

/// The loss of logits that explode grows with their standard deviation, within the range of f64 and beyond it.
#[test]
fn losses_are_the_largest_logits() {
    let of = |layers: &str| {
        let network = ["--width=64", "--activation=relu", "--scheme=uniform:1", "--head=untied", "--vocab=8", "--json"];
        let loss = json(&run(&[&["predict", "mlp", layers], &network[..]].concat()))["loss"].clone();
        let ln = |quantity: &str| loss[quantity].as_f64().expect("a logarithm");
        ln("ln_cross_entropy") - 0.5 * ln("ln_logit_variance")
    };
    let [near, far] = ["--layers=400", "--layers=800"].map(of);
    assert!((near - far).abs() < 1e-6 && near > 0.0, "{near} and {far}");
}

/// A tied head whose table is zero has equal logits.
#[test]
fn tables_of_zeros_have_the_loss_of_guessing() {
    for model in ["bert-base", "t5-small"] {
        let document = json(&run(&["predict", model, "--seq-len=8", "--scheme=normal:0", "--head", "--json"]));
        let loss = &document["loss"];
        assert_eq!(loss["logit_variance"], 0.0, "{model}");
        let number = |quantity: &str| loss[quantity].as_f64().expect("a number");
        assert!((number("cross_entropy") - number("uniform")).abs() < 1e-6, "{model}: {loss}");
    }
}

/// A stream of zero contains no part of the token's own embedding: neither skip connection nor branch passes anything
/// here.
#[test]
fn tied_heads_read_streams_of_zero() {
    let network = ["--layers=1", "--seq-len=4", "--scheme=skipinit", "--skip-scale=0", "--head=tied"];
    let output = run(&[&["predict", "bert-base"], &network[..]].concat());
    assert!(stdout(&output).contains("Initial loss:       10.33 nats"), "{}", stdout(&output));
}
