//! Recommendations and losses, as scripts read them.

use serde_json::Value;

use super::{folder, json, path, refused, run, small, stderr, stdout};

#[test]
fn a_recommendation_can_be_used() {
    let folder = folder();
    let stack = path(&folder, "stack.json");
    let document = json(&small("recommend", &["--max-correlation", "0.5", "--format", "json", "--dump-stack", &stack]));
    assert_eq!(document["feasible"], true);
    assert_eq!(document["demands"].as_array().map(Vec::len), Some(5));
    assert!(document["nearest"]["scheme"].is_string() && document["stds"]["embeddings.token"].is_number());
    let scheme = document["scheme"].as_str().expect("a scheme");
    assert!(scheme.starts_with("gains:qk="), "{scheme}");
    let by_scheme = small("predict", &["--scheme", scheme, "--format", "csv"]);
    assert_eq!(stdout(&by_scheme), stdout(&run(&["predict", "--stack", &stack, "--format", "csv"])));
    assert_eq!(run(&["validate", "--stack", &stack, "--replicates", "2"]).status.code(), Some(0));
}

#[test]
fn either_theory_judges() {
    let recommended = |theory: &str| {
        let document = json(&small("recommend", &["--causal", "--theory", theory, "--format", "json"]));
        assert_eq!(document["feasible"], true, "{theory}");
        document["demands"].clone()
    };
    // Width 64 is narrow enough for the theories to differ.
    assert_ne!(recommended("mean-field"), recommended("finite-width"));
}

#[test]
fn recommendations_in_words() {
    let output = small("recommend", &[]);
    let text = stdout(&output);
    for part in ["--scheme gains:", "max-gradient-ratio", "Nearest named scheme:", "Verdict:"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let torn = small("recommend", &["--token-repeat", "1", "--positions", "none"]);
    assert_eq!(torn.status.code(), Some(1));
    assert!(stderr(&torn).contains("--max-correlation 0.9 gives way"), "{}", stderr(&torn));
    for arguments in [["--max-forward-growth", "1"], ["--max-correlation", "1"], ["--dtype", "fp4"]] {
        assert!(refused(&small("recommend", &arguments)).contains(arguments[1]));
    }
}

#[test]
fn a_head_gives_loss_and_gradient_norm() {
    let loss = |scheme: &str, arguments: &[&str]| -> Value {
        json(&small("predict", &[arguments, &["--scheme", scheme, "--format", "json"]].concat()))["loss"].clone()
    };
    let untied = loss("normal:0.05", &["--head", "--loss", "cross-entropy"]);
    // ln 100; logits of variance 64 · 0.05², less the effect of the norm's ε; ln 100 + w/2 − (e^w − 1)/200.
    let number = |name: &str| untied[name].as_f64().expect("a number");
    assert!((number("uniform") - 100_f64.ln()).abs() < 1e-9);
    let w = number("logit_variance");
    assert!((w / 0.16 - 1.0).abs() < 5e-3, "{untied}");
    assert!((number("cross_entropy") - number("uniform") - 0.5 * w + w.exp_m1() / 200.0).abs() < 1e-4, "{untied}");
    assert!(number("grad_norm") > 0.0);
    // With a tied head the logit of the current token is the largest: right if ids repeat, wrong if all are equally
    // likely.
    let tied = |law| loss("normal:0.05", &["--head=tied", law])["cross_entropy"].as_f64().expect("a number");
    let [repeated, alike] = ["--zipf", "--uniform"].map(tied);
    assert!(repeated < number("cross_entropy") && number("cross_entropy") < alike, "{repeated}, {alike}");
    let wide =
        ["--head", "--head=tied"].map(|head| loss("pytorch", &[head])["logit_variance"].as_f64().expect("a number"));
    assert!(wide[1] > 10.0 * wide[0], "{wide:?}");
    assert!(stdout(&small("predict", &["--head"])).contains("Global grad norm:"));
    refused(&run(&["predict", "--loss", "cross-entropy"]));
    assert!(refused(&run(&["predict", "vit-base", "--head=tied"])).contains("embeds ids"));
    assert!(refused(&run(&["predict", "vit-base", "--head=untied"])).contains("2 ids or more"));
    refused(&run(&["predict", "--head", "--grad-correlation", "0.5"]));
}
