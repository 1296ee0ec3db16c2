//! Networks that users have reported. Their numbers were measured with PyTorch 2.15 and transformers 5.24, over a few
//! initialisations each.

use serde_json::Value;

use super::{folder, json, run, written};

fn predicted(config: &str, arguments: &[&str]) -> Value {
    let folder = folder();
    let file = written(&folder, "config.json", config.as_bytes());
    json(&run(&[&["predict", &file, "--json", "-q"], arguments].concat()))
}

fn described(keys: &str, arguments: &[&str]) -> Value {
    let folder = folder();
    let file = written(&folder, "model.toml", format!("n_layers = 4\nd_model = 256\n{keys}").as_bytes());
    json(&run(&[&["predict", &file, "--uniform", "--json", "-q"], arguments].concat()))
}

fn of(report: &Value, site: &str, quantity: &str) -> f64 {
    let sites = report["sites"].as_array().expect("a list");
    let row = sites.iter().find(|row| row["site"] == site).unwrap_or_else(|| panic!("no {site}"));
    row[quantity].as_f64().expect("a number")
}

fn assert_near(got: f64, measured: f64, tolerance: f64) {
    assert!((got / measured - 1.0).abs() < tolerance, "predicted {got}, measured {measured}");
}

/// OLMo 2 has its norms at the ends of branches: the stream grows by two units per block.
#[test]
fn reordered_norms_add_two_units_per_block() {
    let config = r#"{"model_type": "olmo2", "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 16,
        "num_attention_heads": 8, "vocab_size": 8192, "initializer_range": 0.02, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": false, "rope_theta": 500000}"#;
    let report = predicted(config, &["--seq-len", "64", "--uniform"]);
    assert_near(of(&report, "blocks.15", "variance"), 31.84, 0.02);
}

/// `scale_attn_by_inverse_layer_idx` halves the gradient at the embeddings.
#[test]
fn scores_that_are_divided_by_the_layer_pass_smaller_gradients() {
    for (divided, measured) in [("true", 92.0), ("false", 183.0)] {
        let config = format!(
            r#"{{"model_type": "gpt2", "n_embd": 128, "n_layer": 12, "n_head": 4, "vocab_size": 1000, "n_positions": 128,
            "initializer_range": 0.15, "scale_attn_by_inverse_layer_idx": {divided}}}"#
        );
        // The gradient of one initialisation varies by a fifth.
        assert_near(of(&predicted(&config, &[]), "embeddings", "grad_variance"), measured, 0.15);
    }
}

/// A tied table of N(0, 1), PyTorch's default: the loss is 45 times that of equal logits.
#[test]
fn a_tied_table_of_unit_variance_has_a_loss_of_hundreds_of_nats() {
    let config = r#"{"model_type": "llama", "hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 8,
        "num_attention_heads": 8, "vocab_size": 8192, "tie_word_embeddings": true, "max_position_embeddings": 256}"#;
    let report = predicted(config, &["--scheme", "pytorch", "--head", "--seq-len", "256", "--uniform"]);
    assert_near(report["loss"]["cross_entropy"].as_f64().expect("a number"), 476.0, 0.03);
}

/// The coordinate check of muP: E |x| = √(2/π) σ of the embeddings and of the maps' outputs is equal at both widths.
#[test]
fn coordinates_of_mup_do_not_depend_on_the_width() {
    for width in [64, 256] {
        let config = format!(
            r#"{{"model_type": "llama", "hidden_size": {width}, "intermediate_size": {}, "num_hidden_layers": 2,
            "num_attention_heads": 4, "vocab_size": 256, "tie_word_embeddings": false, "max_position_embeddings": 256}}"#,
            4 * width
        );
        let report = predicted(&config, &["--scheme", "mup:sigma=0.02,width=64", "--sites", "all"]);
        let size = |site| (2.0 / std::f64::consts::PI * of(&report, site, "variance")).sqrt();
        assert_near(size("embeddings"), 0.016, 0.01);
        for site in ["blocks.0.attention.heads.query", "blocks.0.ffn.gated.gate", "blocks.0.ffn.gated.up"] {
            assert_near(size(site), 0.130, 0.03);
        }
    }
}

/// A table by Xavier's rule with sinusoidal positions, multiplied by 1 or by √width as in Vaswani et al. (2017): the
/// correlation of tokens after the last block.
#[test]
fn scaled_embeddings_keep_tokens_distinct() {
    for (placement, scale, measured) in [("pre", 1, 0.926), ("pre", 16, 0.537), ("post", 1, 0.960), ("post", 16, 0.831)]
    {
        let keys = format!(
            r#"n_heads = 4
            vocab_size = 1000
            seq_len = 64
            norm_placement = "{placement}"
            positions = "sinusoidal"
            activation = "relu"
            embedding_scale = {scale}"#
        );
        let report = described(&keys, &["--scheme", "xavier-uniform"]);
        assert_near(of(&report, "blocks.3", "token_correlation"), measured, 0.005);
    }
}

/// Scores divided by √(d_head), by d_head / 2 or not at all: the number of tokens, of 64, that a query of the first
/// block attends to.
#[test]
fn factors_of_scores_decide_how_many_tokens_are_attended_to() {
    for (scale, measured) in [("0.0625", 56.67), ("0.17677669529663687", 25.97), ("1", 1.699)] {
        let keys = format!(
            r#"n_heads = 8
            vocab_size = 1000
            seq_len = 64
            positions = "none"
            biases = false
            attention_scale = {scale}"#
        );
        let report = described(&keys, &["--scheme", "normal:0.0625"]);
        let findings = report["verdict"]["findings"].as_array().expect("a list");
        let attended =
            format!("a query attends to {measured} tokens (64 if all scores were equal) at blocks.0.attention.heads");
        assert!(findings.iter().any(|of| of["text"].as_str().expect("a text").contains(&attended)), "{findings:?}");
    }
}
