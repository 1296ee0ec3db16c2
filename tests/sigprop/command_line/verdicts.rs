//! Verdicts on checkpoints and networks that users have reported: zeros that training opens, rows of tables, positions
//! that drown tokens, numbers beyond a format. Losses and norms were measured with PyTorch 2.15 and transformers 5.24.

use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use rand_distr::StandardNormal;
use safetensors::tensor::Dtype;
use serde_json::Value;

use super::inspect::{GPT2, drawn, inspected, rewritten};
use super::{folder, json, path, run, stderr, stdout, written};

/// A network with the vocabulary and width of the reported checkpoint.
const LLAMA: &str = r#"{"model_type": "llama", "hidden_size": 128, "intermediate_size": 344, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 2112, "max_position_embeddings": 128,
    "tie_word_embeddings": false}"#;

fn findings<'r>(verdict: &'r Value, kind: &str) -> Vec<(&'r str, &'r str)> {
    let all = verdict["findings"].as_array().expect("a list");
    let text = |finding: &'r Value, key: &str| finding[key].as_str().expect("a text");
    all.iter()
        .filter(|finding| finding["kind"] == kind)
        .map(|finding| (text(finding, "severity"), text(finding, "text")))
        .collect()
}

fn problems<'r>(report: &'r Value, problem: &str) -> Vec<&'r str> {
    let all = report["findings"].as_array().expect("a list");
    all.iter().filter(|of| of["problem"] == problem).map(|of| of["text"].as_str().expect("a text")).collect()
}

fn predicted(arguments: &[&str]) -> Value {
    json(&run(&[&["predict", "--json", "-q"], arguments].concat()))
}

/// PyTorch finds that 48 of 58 parameters of ReZero have no gradient at step 0, and all of them have one at step 1.
#[test]
fn zeros_that_training_opens_are_a_notice() {
    let small = ["--layers", "2", "--width", "64", "--seq-len", "8"];
    for network in [
        ["--norm", "none", "--scheme", "rezero"].as_slice(),
        &["--norm", "none", "--scheme", "skipinit"],
        &["--norm", "none", "--scheme", "fixup"],
        &["--norm-placement", "sandwich", "--scheme", "zero-gain"],
        &["--scheme", "layerscale:0"],
    ] {
        let report = predicted(&[&small, network].concat());
        assert_eq!(report["verdict"]["grade"], "healthy", "{network:?}: {}", report["verdict"]);
        let found = findings(&report["verdict"], "no_gradient");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].0 == "notice" && found[0].1.contains("in the first step") && found[0].1.contains("opens when")
        );
    }
    let closed = predicted(&[&small[..], &["--branch-scale", "0"]].concat());
    assert_eq!(findings(&closed["verdict"], "no_gradient")[0].0, "warning");
}

/// Sampled with NumPy: 20 000 networks x + α ReLU(W x + b) of width 64 with PyTorch's weights, α = 0, 8 tokens of
/// correlation 0.5, gradients of correlation 0.3. √E (dL/dα)² is 14.047 ± 0.074.
#[test]
fn first_steps_have_rows_of_factors_on_branches() {
    let network = ["mlp", "--residual", "--scheme", "rezero", "--activation", "relu", "--layers", "3", "--width", "64"];
    let input = ["--input-correlation", "0.5", "--seq-len", "8", "--grad-correlation", "0.3"];
    let steps = ["--first-update", "sgd", "--lr", "1"];
    let report = predicted(&[&network[..], &input, &steps].concat());
    let rows = report["first_update"]["tensors"].as_array().expect("a list");
    let row = rows.iter().find(|row| row["tensor"] == "blocks.1.layer.scale").expect("a row of the factor");
    let update = row["update_rms"].as_f64().expect("a number");
    assert!((update - 14.047).abs() < 3.0 * 0.074, "{update}");
}

/// A head in which 8 of 2112 rows have std 1. Over 12 networks in PyTorch (128 uniform ids) the loss is 15.95 ± 0.52,
/// and the norm of its gradient 920 ± 35; with rows of equal size they would be 7.9 and 16.
#[test]
fn rows_of_another_size_are_named_and_decide_the_loss() {
    let folder = drawn(LLAMA, "hf");
    rewritten(&folder, Dtype::F32, |name, entries| {
        let mut generator = ChaCha8Rng::seed_from_u64(11);
        let last = if name == "lm_head.weight" { entries.len() - 8 * 128 } else { entries.len() };
        entries[last..].iter_mut().for_each(|x| *x = generator.sample(StandardNormal));
    });
    let stack = path(&folder, "stack.json");
    let report = inspected(&folder, &["--dump-stack", &stack]);
    let named = problems(&report, "rows");
    assert!(named[0].starts_with("lm_head.weight: rows 2104 to 2111 have std "), "{named:?}");
    assert!(problems(&report, "copies").is_empty() && problems(&report, "deviation").is_empty(), "{report}");
    let again = predicted(&["--stack", &stack, "--head"]);
    for report in [&report["prediction"], &again] {
        let of = |key: &str| report["loss"][key].as_f64().expect("a number");
        assert!((13.5..18.5).contains(&of("cross_entropy")), "{}", report["loss"]);
        assert!((750.0..1000.0).contains(&of("grad_norm")), "{}", report["loss"]);
        assert_eq!(findings(&report["verdict"], "start")[0].0, "warning");
        let caveats = report["caveats"].as_array().expect("a list");
        assert!(caveats.iter().any(|caveat| caveat["kind"] == "uneven_rows"), "{caveats:?}");
    }
}

/// Rows five times as large, factors per row, rows of zeros: none of them is a copy.
#[test]
fn rows_of_other_sizes_are_no_copies() {
    type Factor = fn(usize) -> f32;
    let tied = LLAMA.replace("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
    let changes: [(&str, Factor); 3] = [
        ("rows 2048 to 2111 have std", |row| if row >= 2048 { 5.0 } else { 1.0 }),
        ("rows 2048 to 2111 are zeros", |row| if row >= 2048 { 0.0 } else { 1.0 }),
        ("", |row| (2.0 * ((row * 7919 % 2112) as f32 / 1056.0 - 1.0)).exp()),
    ];
    for (named, factor) in changes {
        let folder = drawn(&tied, "hf");
        rewritten(&folder, Dtype::F32, |name, entries| {
            if name.ends_with("embed_tokens.weight") {
                entries.iter_mut().enumerate().for_each(|(index, x)| *x *= factor(index / 128));
            }
        });
        let report = inspected(&folder, &[]);
        assert_eq!(problems(&report, "copies"), Vec::<&str>::new());
        let rows = problems(&report, "rows");
        assert_eq!(rows.iter().any(|text| text.contains(named)), !named.is_empty(), "{rows:?}");
        assert!(report["judgement"]["headline"].as_str().is_none_or(|text| !text.contains("depend on each other")));
    }
}

/// ReLU³: a fixed point of the variance map at 1/√15 = 0.2582 that repels. ReLU has none, and formulas with infinite
/// averages are refused.
#[test]
fn a_variance_that_no_layer_keeps_is_a_finding() {
    let mlp = |activation: &str| {
        run(&[
            "predict",
            "mlp",
            "--layers",
            "12",
            "--width",
            "64",
            "--seq-len",
            "4",
            "--scheme",
            "kaiming",
            "--json",
            "--activation",
            activation,
        ])
    };
    let report: Value = serde_json::from_str(stdout(&mlp("relu(x)^3"))).expect("JSON");
    let found = findings(&report["verdict"], "repels");
    assert!(found.len() == 1 && found[0].1.contains("0.2582") && found[0].1.contains("χ = 1.8"), "{found:?}");
    let report: Value = serde_json::from_str(stdout(&mlp("relu"))).expect("JSON");
    assert!(findings(&report["verdict"], "repels").is_empty());
    for (formula, reason) in
        [("exp(x^2)", "infinite"), ("1/x", "x = 0"), ("x/abs(x)", "number at x = 0"), ("x^9", "x^6")]
    {
        let output = mlp(formula);
        assert!(!output.status.success() && stderr(&output).contains(reason), "{}", stderr(&output));
    }
    assert!(stderr(&mlp("x*sigmod(x)")).contains("column 3 of `x*sigmod(x)`"));
}

/// A token table of std 0.0002 with positions of 0.02: tokens are 0.01 % of the variance, and outputs are equal for any
/// ids (0.9999).
#[test]
fn positions_that_drown_tokens_are_a_finding() {
    let folder = drawn(GPT2, "hf");
    rewritten(&folder, Dtype::F32, |name, entries| {
        let factor = if name.ends_with("wte.weight") { 0.01 } else { 1.0 };
        for x in entries.iter_mut() {
            *x *= factor;
        }
    });
    let report = inspected(&folder, &[]);
    let found = findings(&report["prediction"]["verdict"], "positions_drown_tokens");
    assert_eq!(found.len(), 1);
    assert!(found[0].0 == "warning" && found[0].1.contains("0.01 %"), "{found:?}");
    assert_eq!(report["prediction"]["verdict"]["grade"], "trainable_with_care");
}

/// A stream beyond 65 504 overflows in fp16. In f32 it does not, but the squares of a few rows of 10³⁷ do.
#[test]
fn numbers_beyond_the_format_of_the_checkpoint_are_not_trainable() {
    let grade = |dtype, change: fn(&str, &mut Vec<f32>)| {
        let folder = drawn(GPT2, "hf");
        rewritten(&folder, dtype, change);
        let report = inspected(&folder, &[]);
        let verdict = &report["prediction"]["verdict"];
        let overflows = findings(verdict, "overflow").iter().map(|(severity, _)| (*severity).to_owned()).collect();
        let grade: (Value, Vec<String>) = (verdict["grade"].clone(), overflows);
        (grade, folder)
    };
    let large = |name: &str, entries: &mut Vec<f32>| {
        let factor = match name {
            name if name.ends_with("mlp.c_fc.weight") => 50.0,
            name if name.ends_with("mlp.c_proj.weight") => 1e6,
            _ => 1.0,
        };
        for x in entries.iter_mut() {
            *x *= factor;
        }
    };
    let ((of_half, overflows), _) = grade(Dtype::F16, large);
    assert!(of_half == "not_trainable" && overflows[0] == "failure", "{of_half}, {overflows:?}");
    let ((_, overflows), _) = grade(Dtype::F32, large);
    assert_eq!(overflows[0], "warning");
    let ((of_rows, _), folder) = grade(Dtype::F32, |name, entries| {
        if name.ends_with("wte.weight") {
            entries[..256].iter_mut().for_each(|x| *x = 1e37_f32.copysign(*x));
        }
    });
    assert_eq!(of_rows, "not_trainable");
    let output = run(&["inspect", folder.path().to_str().expect("text")]);
    let table = stdout(&output);
    let rows = table.lines().take_while(|line| !line.starts_with("(n:"));
    assert!(rows.clone().all(|line| line.chars().count() <= 110), "{}", rows.collect::<Vec<_>>().join("\n"));
}

/// Causal blocks that share their tensors: the engine samples a larger variance than the prediction for independent
/// tensors.
#[test]
fn a_tensor_that_several_sites_use_is_a_caveat() {
    let folder = folder();
    let stack = path(&folder, "stack.json");
    let network = ["--layers", "4", "--width", "64", "--heads", "2", "--causal", "--scheme", "xavier"];
    stdout(&run(&[&["predict"], &network[..], &["--seq-len", "8", "--dump-stack", &stack, "-q"]].concat()));
    let mut value: Value = serde_json::from_str(&std::fs::read_to_string(&stack).expect("readable")).expect("JSON");
    let text = value.take().to_string();
    let shared = (1..4).fold(text, |text, block| text.replace(&format!("blocks.{block}."), "blocks.0."));
    let file = written(&folder, "shared.json", shared.as_bytes());
    let report = predicted(&["--stack", &file]);
    let caveats = report["caveats"].as_array().expect("a list");
    let found = caveats.iter().find(|caveat| caveat["kind"] == "shared_tensor").expect("a caveat");
    let share = found["size"].as_f64().expect("a number");
    let variance = |report: &Value| {
        let is_last = |site: &&Value| site["site"] == "blocks.3";
        report["sites"].as_array().and_then(|sites| sites.iter().find(is_last)?["variance"].as_f64()).expect("a number")
    };
    let sampled = json(&run(&["validate", "--stack", &file, "--replicates", "16", "--json", "-q"]));
    let rows = sampled["comparisons"].as_array().expect("a list");
    let last = rows.iter().find(|row| row["quantity"] == "variance" && row["site"] == "blocks.3").expect("a row");
    let excess = last["observed"].as_f64().expect("a number") / variance(&report) - 1.0;
    assert!(excess > 0.05 && excess < share, "sampled {excess} more, at most {share}");
}

/// A tied table of unit variance: 72 nats in PyTorch, compared with 7.6 of equal logits.
#[test]
fn inspect_says_the_loss_and_judges_it() {
    let config =
        r#"{"model_type": "gpt2", "n_layer": 4, "n_embd": 128, "n_head": 4, "n_positions": 128, "vocab_size": 2048}"#;
    let folder = drawn(config, "hf");
    rewritten(&folder, Dtype::F32, |name, entries| {
        let factor = if name.ends_with("wte.weight") { 50.0 } else { 1.0 };
        for x in entries.iter_mut() {
            *x *= factor;
        }
    });
    let report = inspected(&folder, &[]);
    let loss = report["prediction"]["loss"]["cross_entropy"].as_f64().expect("a number");
    assert!((60.0..140.0).contains(&loss), "{loss}");
    assert_eq!(findings(&report["prediction"]["verdict"], "start")[0].0, "warning");
    let output = run(&["inspect", folder.path().to_str().expect("text")]);
    let text = stdout(&output);
    for line in ["Logits: ", "Initial loss: ", "Global grad norm: "] {
        assert!(text.contains(line), "{text}");
    }
}
