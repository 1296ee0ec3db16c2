//! Image encoders, as configs describe them.

use super::{folder, json, run, stdout, written};

/// A class token and one or two patches, which attend one by one through a causal mask.
#[test]
fn class_tokens_precede_few_patches() {
    for tokens in ["2", "3"] {
        let output = run(&["predict", "vit-base", "--layers=1", "--causal", "--seq-len", tokens]);
        assert!(stdout(&output).contains("Verdict: "));
    }
}

/// DeiT and BEiT start with a class token of zero before a LayerNorm of ε = 1e-12, whose slope there is 10⁶. Gradients
/// at the embeddings were measured over 40 models of transformers 5.24 each and have heavy tails: 1.34e10 ± 0.13e10 and
/// 4.1e9 ± 0.5e9.
#[test]
fn class_tokens_of_zero_are_predicted() {
    /// The tolerance as a factor: the error of 40 networks, whose ln |g|² has a standard deviation of 0.65, and of
    /// second order.
    const WITHIN: f64 = 1.6;
    let folder = folder();
    for (family, sampled) in [("deit", 1.34e10), ("beit", 4.1e9)] {
        let config = format!(
            r#"{{"model_type": "{family}", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                "intermediate_size": 256, "image_size": 32, "patch_size": 8, "use_mean_pooling": false}}"#
        );
        let config = written(&folder, "config.json", config.as_bytes());
        let document = json(&run(&["predict", &config, "--json"]));
        let embeddings = &document["sites"][0];
        assert_eq!(embeddings["site"], "embeddings");
        let gradient = embeddings["grad_variance"].as_f64().expect("a number");
        assert!((sampled / WITHIN..sampled * WITHIN).contains(&gradient), "{family}: {gradient}");
    }
}
