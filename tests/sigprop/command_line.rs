//! The command as scripts see it: arguments, exit codes, streams and files.

mod checkpoints;
mod compare;
mod diff;
mod findings;
mod formats;
mod head;
mod input;
mod inspect;
mod inspect_model;
mod limits;
mod manual;
mod names;
mod phase;
mod plot;
mod recommend;
mod report;
mod reported;
mod reported_checkpoints;
mod resume;
mod settings;
mod stack;
mod verdicts;
mod vision;

use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

/// A network that is predicted and sampled quickly.
const SMALL: [&str; 8] = ["--layers", "2", "--width", "64", "--seq-len", "16", "--vocab", "100"];

fn command(arguments: &[&str]) -> Command {
    let mut command = undisturbed(env!("CARGO_BIN_EXE_sigprop"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// A program that does not inherit the settings of the person who runs the tests.
pub(crate) fn undisturbed(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env_remove("NO_COLOR");
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SIGPROP_")) {
        command.env_remove(name);
    }
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the command starts")
}

fn small(subcommand: &str, arguments: &[&str]) -> Output {
    run(&[&[subcommand], SMALL.as_slice(), arguments].concat())
}

/// The standard output of a run that must succeed.
fn stdout(output: &Output) -> &str {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    text(&output.stdout)
}

fn stderr(output: &Output) -> &str {
    text(&output.stderr)
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).expect("output is text")
}

fn json(output: &Output) -> Value {
    serde_json::from_str(stdout(output)).expect("output is JSON")
}

/// The message of a run that must be refused with nothing on standard output.
fn refused(output: &Output) -> &str {
    let message = stderr(output);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(!message.contains("panicked"), "{message}");
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    assert!(message.starts_with("error: "), "{message}");
    message
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn path(folder: &TempDir, name: &str) -> String {
    folder.path().join(name).to_str().expect("the path is text").to_owned()
}

fn written(folder: &TempDir, name: &str, contents: &[u8]) -> String {
    let path = path(folder, name);
    fs::write(&path, contents).expect("writable");
    path
}

/// The beginning of a stack file of nested chains.
fn nested(depth: usize) -> String {
    let source = r#"{"gaussian": {"width": 8, "variance": 1, "correlation": 0}}"#;
    let chain = r#"{"name": "deeper", "op": {"chain": ["#;
    format!(r#"{{"name": "deep", "streams": [{{"name": "main", "source": {source}, "body": [{}"#, chain.repeat(depth))
}

fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

const SITE_COLUMNS: &str = "layer,site,mean,variance,token_correlation,grad_variance,grad_token_correlation,\
                            ln_variance,ln_grad_variance,variance_first,variance_last,grad_variance_first,grad_variance_last,\
                            ln_variance_std,ln_grad_variance_std";

#[test]
fn predict_csv_has_the_columns_and_sites_of_the_contract() {
    let output = small("predict", &["--format", "csv"]);
    let lines: Vec<&str> = stdout(&output).lines().collect();
    assert_eq!(lines[0], SITE_COLUMNS);
    let sites: Vec<&str> = lines[1..].iter().map(|line| line.split(',').nth(1).expect("a site")).collect();
    assert_eq!(sites, ["embeddings", "blocks.0", "blocks.1", "final_norm"]);
    let layers: Vec<&str> = lines[1..].iter().map(|line| line.split(',').next().expect("a layer")).collect();
    assert_eq!(layers, ["-1", "0", "1", "2"]);
    assert!(stderr(&output).contains("Verdict: "), "{}", stderr(&output));
}

#[test]
fn predict_tells_first_updates() {
    let sgd = small("predict", &["--format", "csv", "--first-update", "sgd", "--lr", "0.1"]);
    let columns =
        "layer,tensor,learning_rate,update_rms,relative_update,output_change_rms,relative_output_change,loss_drop";
    assert_eq!(stdout(&sgd).lines().next(), Some(columns));
    let weight =
        |output| stdout(output).lines().find(|line| line.contains(",blocks.0.ffn.in.weight,")).map(str::to_owned);
    let weight = weight(&sgd).expect("a weight");
    assert!(weight.split(',').skip(2).all(|number| number.parse::<f64>().is_ok_and(|number| number > 0.0)), "{weight}");
    let key = stdout(&sgd).lines().find(|line| line.contains(",blocks.0.attention.heads.key.weight,"));
    assert!(key.is_some_and(|line| line.contains(",,,")), "{key:?}");
    let adam = json(&small("predict", &["--format", "json", "--head", "--first-update", "adam", "--lr", "1e-3"]));
    let tensors = adam["first_update"]["tensors"].as_array().expect("tensors");
    let row = |name: &str| tensors.iter().find(|row| row["tensor"] == name).expect("a weight");
    let (before, behind) = (row("blocks.0.ffn.in.weight"), row("blocks.0.ffn.out.weight"));
    assert!(before["update_rms"].as_f64().is_some_and(|update| (update / 1e-3 - 1.0).abs() < 1e-12), "{before}");
    assert!(before["output_change_rms"].is_f64() && behind["output_change_rms"].is_null(), "{before} {behind}");
    let decayed =
        small("predict", &["--scheme", "bert:layer-decay=0.5", "--first-update", "adam", "--lr", "1", "--json"]);
    let rate = json(&decayed)["first_update"]["tensors"][0]["learning_rate"].as_f64().expect("a number");
    assert!((rate / 0.125 - 1.0).abs() < 1e-12, "{rate}");
    let table = small("predict", &["--first-update", "sgd", "--lr", "0.1"]);
    let table = stdout(&table);
    assert!(table.contains("loss drop: to first order") && table.contains("unknown for keys"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    for (arguments, hint) in [
        (&["--first-update", "sgd"][..], "--lr"),
        (&["--lr", "0.1"], "--first-update"),
        (&["--first-update", "adam", "--lr", "0"], "expected a finite number above 0"),
        (&["--first-update", "adam", "--lr", "1", "--weights"], "cannot be used with"),
    ] {
        assert!(refused(&small("predict", arguments)).contains(hint), "{arguments:?}");
    }
}

#[test]
fn predict_csv_of_weights_and_of_all_sites() {
    let weights = small("predict", &["--format", "csv", "--weights"]);
    assert_eq!(stdout(&weights).lines().next(), Some("layer,tensor,weight_variance,weight_grad_second_moment"));
    let all = small("predict", &["--format", "csv", "--sites", "all"]);
    assert!(stdout(&all).lines().any(|line| line.contains("blocks.1.attention")), "{}", stdout(&all));
}

#[test]
fn predict_json_has_verdict_and_caveats() {
    let document = json(&small("predict", &["--format", "json", "--scheme", "deepnorm"]));
    assert_eq!(document["schema_version"], 1);
    assert_eq!(document["sites"][0]["site"], "embeddings");
    assert!(document["verdict"]["headline"].is_string());
    assert!(!document["caveats"].as_array().expect("a list").is_empty());
    assert!(document["cost"]["parameters"].is_number(), "{document}");
}

#[test]
fn predict_table_fits_a_terminal_and_ends_with_the_verdict() {
    let output = run(&["predict", "--layers", "768", "--scheme", "dslm"]);
    let table = stdout(&output);
    assert!(table.lines().any(|line| line.starts_with("blocks.767 ")), "{table}");
    assert!(table.contains("rows hidden; --format csv shows all"), "{table}");
    assert!(table.contains("Verdict: "), "{table}");
    assert!(!table.contains('\u{1b}'), "no colour where there is no terminal");
}

#[test]
fn ten_thousand_exploding_layers_are_numbers() {
    let mlp = |layers, format| {
        let shape = ["--layers", layers, "--width", "256", "--activation", "relu", "--scheme", "uniform:1"];
        run(&[["predict", "mlp"].as_slice(), &shape, &["--format", format]].concat())
    };
    let rows = mlp("10000", "csv");
    let last = stdout(&rows).lines().find(|line| line.starts_with("9999,")).expect("the last layer");
    let cells: Vec<&str> = last.split(',').collect();
    assert!(cells[3].contains("e16"), "{last}");
    assert!(cells[7].parse::<f64>().expect("a number").is_finite(), "{last}");
    let document = json(&mlp("1000", "json"));
    let last = document["sites"].as_array().expect("a list").last().expect("a site");
    assert!(last["variance"].is_null() && last["ln_variance"].is_number(), "{last}");
}

#[test]
fn the_textbook_explosion_in_words() {
    let shape = ["predict", "mlp", "--layers", "30", "--width", "256", "--activation", "relu", "--scheme", "uniform:1"];
    let output = run(&[shape.as_slice(), &["--fail-on", "vanishing"]].concat());
    let table = stdout(&output);
    assert!(table.contains("forward explodes"), "{table}");
    assert!(table.contains("fp16 overflows after"), "{table}");
    assert!(table.contains("bf16 and f32 hold to the last block"), "{table}");
    let gate = run(&[shape.as_slice(), &["--fail-on", "collapse,explosion"]].concat());
    assert_eq!(gate.status.code(), Some(1));
    assert!(stderr(&gate).contains("failed: forward explodes"), "{}", stderr(&gate));
}

#[test]
fn a_healthy_network_passes_all_gates() {
    let mlp = ["predict", "mlp", "--layers", "30", "--width", "256", "--norm", "rmsnorm", "--residual"];
    let rest = ["--scheme", "kaiming", "--fail-on", "explosion,vanishing,collapse"];
    let output = run(&[mlp.as_slice(), rest.as_slice()].concat());
    assert!(stdout(&output).contains("Verdict: healthy"), "{}", stdout(&output));
}

#[test]
fn validate_reports_and_writes() {
    let folder = folder();
    let target = path(&folder, "new/report");
    let output = small("validate", &["--replicates", "4", "--weights", "-o", &target]);
    assert!(stdout(&output).contains("variances, pooled"), "{}", stdout(&output));
    assert_eq!(files(Path::new(&target)), ["report.csv", "summary.json"]);
    let report = fs::read_to_string(format!("{target}/report.csv")).expect("readable");
    let header = "layer,site,quantity,predicted,observed,std_error,replicates,relative_error,z";
    assert_eq!(report.lines().next(), Some(header));
    for quantity in ["mean", "variance", "token_correlation", "grad_variance", "weight_grad_second_moment"] {
        assert!(report.contains(&format!(",{quantity},")), "{quantity}");
    }
    let summary = fs::read_to_string(format!("{target}/summary.json")).expect("readable");
    let summary: Value = serde_json::from_str(&summary).expect("JSON");
    assert_eq!((&summary["seed"], &summary["replicates"]), (&0.into(), &4.into()));
    for number in ["r2_log", "p50", "p90", "p99", "share_z_below_2"] {
        assert!(summary["pooled"][number].is_number(), "{number}: {summary}");
    }
    assert!(summary["quantities"]["grad_variance"]["r2_linear"].is_number());
    assert_eq!(summary["stack_hash"].as_str().map(str::len), Some(16));
}

#[test]
fn validate_gates_and_formats() {
    let output = small("validate", &["--replicates", "2", "--format", "csv", "--min-r2", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).starts_with("layer,site,quantity,"), "data comes out in spite of the gate");
    assert!(stderr(&output).contains("failed: R²"), "{}", stderr(&output));
    let output = small("validate", &["--replicates", "2", "--max-error", "1e-12"]);
    assert_eq!(output.status.code(), Some(1));
    let document = json(&small("validate", &["--replicates", "2", "--format", "json"]));
    assert!(document["comparisons"][0]["observed"].is_number());
}

#[test]
fn one_seed_gives_the_same_bytes_at_any_number_of_threads() {
    let validate = |threads| small("validate", &["--replicates", "3", "--format", "csv", "--threads", threads]).stdout;
    assert_eq!(validate("1"), validate("2"));
}

#[test]
fn a_dumped_stack_is_the_complete_input() {
    let folder = folder();
    let stack = path(&folder, "stack.json");
    let direct = small("predict", &["--format", "csv", "--dump-stack", &stack]);
    let again = run(&["predict", "--stack", &stack, "--format", "csv"]);
    assert_eq!(stdout(&direct), stdout(&again));
    let on_stdout = small("predict", &["--dump-stack", "-"]);
    assert_eq!(stdout(&on_stdout), fs::read_to_string(&stack).expect("readable"));

    let mut piped = command(&["predict", "--stack", "-", "--format", "csv"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command starts");
    piped.stdin.take().expect("a pipe").write_all(&on_stdout.stdout).expect("the command reads");
    assert_eq!(stdout(&piped.wait_with_output().expect("the command ends")), stdout(&direct));
}

#[test]
fn architecture_files_and_flags() {
    let folder = folder();
    let toml = written(&folder, "model.toml", b"n_layers = 3\nd_model = 64\nseq_len = 16\nvocab_size = 100\n");
    let json = written(&folder, "model.json", br#"{"n_layers": 3, "d_model": 64, "seq_len": 16, "vocab_size": 100}"#);
    let from_toml = run(&["predict", &toml, "--format", "csv"]);
    assert_eq!(stdout(&from_toml), stdout(&run(&["predict", &json, "--format", "csv"])));
    assert!(stdout(&from_toml).contains("blocks.2"));
    let overridden = run(&["predict", &toml, "--layers", "2", "--format", "csv"]);
    assert!(!stdout(&overridden).contains("blocks.2"));

    let misspelt = written(&folder, "misspelt.toml", b"n_layers = 3\nd_modle = 64\n");
    let message = refused(&run(&["predict", &misspelt])).to_owned();
    assert!(message.contains("line 2") && message.contains("d_model"), "{message}");
}

#[test]
fn lists_and_explanations() {
    let models = run(&["models"]);
    for preset in ["gpt2-xl", "llama-70b", "bert-large", "dslm-768"] {
        assert!(stdout(&models).contains(preset), "{preset}");
        stdout(&run(&["predict", preset, "--seq-len", "16", "--batch", "1", "--format", "csv"]));
    }
    let schemes = run(&["schemes"]);
    for scheme in [
        "xavier",
        "kaiming",
        "lecun",
        "orthogonal",
        "pytorch",
        "normal",
        "uniform",
        "gpt2",
        "bert",
        "megatron",
        "deepnorm",
        "dslm",
        "dslm-paper",
        "gains",
    ] {
        assert!(stdout(&schemes).contains(scheme), "{scheme}");
        let explained = run(&["explain", scheme]);
        assert!(stdout(&explained).contains("Source"), "{scheme}");
    }
    assert!(refused(&run(&["explain", "xaiver"])).contains("did you mean xavier?"));
}

#[test]
fn bad_names_get_the_nearest() {
    for (arguments, hint) in [
        (["predict", "gpt3"].as_slice(), "gpt2"),
        (&["predict", "--scheme", "xaver"], "xavier"),
        (&["predict", "--activation", "gleu"], "gelu"),
        (&["predict", "--norm", "layer"], "layernorm"),
        (&["predict", "--sheme", "xavier"], "--scheme"),
        (&["validate", "bert-bass"], "bert-base"),
    ] {
        let output = run(arguments);
        assert!(refused(&output).contains(hint), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn bad_numbers_are_refused_with_what_was_expected() {
    for arguments in [
        ["--layers", "0"],
        ["--layers", "-3"],
        ["--layers", "1e9"],
        ["--layers", "99999999999999999999999"],
        ["--width", "0"],
        ["--width", "nan"],
        ["--heads", "7"],
        ["--kv-heads", "5"],
        ["--seq-len", "0"],
        ["--vocab", "-1"],
        ["--ffn", "0"],
        ["--dropout", "1"],
        ["--dropout", "-0.1"],
        ["--dropout", "NaN"],
        ["--attention-dropout", "1.5"],
        ["--drop-path", "inf"],
        ["--window", "0"],
        ["--qk-norm", "maybe"],
        ["--parallel", "maybe"],
        ["--loss-at", "middle"],
        ["--batch", "0"],
        ["--seed", "-1"],
        ["--grad-correlation", "NaN"],
        ["--grad-correlation", "1.01"],
        ["--input-correlation", "-0.5"],
        ["--token-repeat", "0"],
        ["--token-repeat", "nan"],
        ["--skip-scale", "nan"],
        ["--scheme", "normal:nan"],
        ["--scheme", "normal"],
        ["--scheme", "uniform:-1"],
        ["--dslm-k", "2"],
        ["--format", "xml"],
        ["--final-norm", "maybe"],
        ["--fail-on", "fire"],
    ] {
        let output = run(&["predict", arguments[0], arguments[1]]);
        let message = refused(&output);
        let given = arguments[1].rsplit(':').next().expect("a last part");
        assert!(message.contains(given), "{arguments:?}: {message}");
    }
    for arguments in [
        ["--replicates", "0"],
        ["--replicates", "-1"],
        ["--batch", "0"],
        ["--threads", "0"],
        ["--threads", "many"],
        ["--seed", "-1"],
        ["--min-r2", "nan"],
        ["--max-error", "-1"],
    ] {
        refused(&run(&["validate", arguments[0], arguments[1]]));
    }
}

#[test]
fn contradictions_are_refused() {
    let output = run(&["predict", "--stack", "stack.json", "--layers", "2"]);
    let message = "error: the argument '--stack <FILE>' cannot be used with '--layers <N>'\n";
    assert!(refused(&output).starts_with(message), "{}", stderr(&output));
    for arguments in [
        ["--zipf", "--uniform"].as_slice(),
        &["--zipf", "--input-correlation", "0.2"],
        &["--token-repeat", "0.1", "--uniform"],
        &["--text", "book.txt", "--tokens", "ids.npy"],
        &["--tokenizer", "tokenizer.json"],
        &["--stack", "stack.json", "--uniform"],
        &["gpt2", "--stack", "stack.json"],
        &["--norm", "none", "--final-norm", "true"],
        &["mlp", "--activation", "swiglu"],
    ] {
        refused(&run(&[&["predict"], arguments].concat()));
    }
}

#[test]
fn bad_files_are_refused_with_the_place() {
    let folder = folder();
    let malformed = written(&folder, "malformed.json", b"{\n  \"name\": oops\n}");
    let binary = written(&folder, "binary.json", b"{\"name\": \"\xff\xfe\"}");
    let empty = written(&folder, "empty.json", b"");
    let list = written(&folder, "list.json", b"[1, 2]");
    let deep = written(&folder, "deep.json", nested(100_000).as_bytes());
    let missing = path(&folder, "missing.json");
    let directory = folder.path().to_str().expect("the path is text").to_owned();
    for (file, hint) in [
        (&malformed, "2:11"),
        (&binary, "UTF-8"),
        (&empty, "empty"),
        (&list, "1:"),
        (&deep, "recursion"),
        (&missing, "cannot read"),
        (&directory, "cannot read"),
    ] {
        let output = run(&["predict", "--stack", file]);
        assert!(refused(&output).contains(hint), "{}", stderr(&output));
        assert!(stderr(&output).contains(file.as_str()), "{}", stderr(&output));
    }
    let toml = written(&folder, "malformed.toml", b"n_layers = 3\nd_model = =\n");
    for (file, hint) in [
        (&toml, "line 2"),
        (&malformed, "line 2, column 11"),
        (&binary, "UTF-8"),
        (&empty, "empty"),
        (&missing, "cannot read"),
        (&directory, "*.toml or *.json"),
    ] {
        let output = run(&["predict", file]);
        assert!(refused(&output).contains(hint), "{}", stderr(&output));
        assert!(stderr(&output).contains(file.as_str()), "{}", stderr(&output));
    }
}

#[test]
fn unwritable_outputs_leave_nothing_behind() {
    let folder = folder();
    let nowhere = path(&folder, "missing/out.csv");
    let taken = written(&folder, "taken", b"a file, no folder");
    let directory = folder.path().to_str().expect("the path is text").to_owned();
    for arguments in [
        ["predict", "-o", &nowhere],
        ["predict", "-o", &directory],
        ["predict", "--dump-stack", &nowhere],
        ["validate", "-o", &taken],
    ] {
        let output = run(&[arguments.as_slice(), &SMALL].concat());
        assert!(refused(&output).contains("cannot write"), "{arguments:?}: {}", stderr(&output));
    }
    assert_eq!(files(folder.path()), ["taken"]);
}

#[test]
fn outputs_replace_files_whole() {
    let folder = folder();
    let target = written(&folder, "out.csv", b"old");
    let output = small("predict", &["--format", "csv", "-o", &target]);
    assert!(stdout(&output).is_empty());
    assert!(fs::read_to_string(&target).expect("readable").starts_with(SITE_COLUMNS));
    assert_eq!(files(folder.path()), ["out.csv"]);
}

#[test]
fn a_closed_pipe_is_no_error() {
    let long = ["predict", "mlp", "--layers", "2000", "--width", "64", "--format", "csv"];
    for arguments in [long.as_slice(), &["predict", "--layers", "768", "--dump-stack", "-"]] {
        let mut child =
            command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a first line");
        let output = child.wait_with_output().expect("the command ends");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(!stderr(&output).contains("error"), "{}", stderr(&output));
    }
}

#[test]
fn streams_colour_and_quiet() {
    let loud = small("predict", &["--format", "csv", "--color", "always"]);
    assert!(!stdout(&loud).contains('\u{1b}'), "data has no colour");
    assert!(stderr(&loud).contains('\u{1b}'));
    let quiet = small("predict", &["--format", "csv", "-q"]);
    assert_eq!(stdout(&quiet), stdout(&loud));
    assert!(stderr(&quiet).is_empty(), "{}", stderr(&quiet));
    let sampled = small("validate", &["--replicates", "2"]);
    assert!(!stderr(&sampled).contains("sampling"), "no progress bar without a terminal: {}", stderr(&sampled));
    assert!(stdout(&sampled).contains("Standard errors of 2 replicates are rough"), "{}", stdout(&sampled));
    let verbose = small("predict", &["--format", "csv", "-v"]);
    assert_eq!(stdout(&verbose), stdout(&loud));
    assert!(stderr(&verbose).contains("info: sigprop "), "{}", stderr(&verbose));
    refused(&small("predict", &["-q", "-v"]));
}

#[test]
fn a_target_error_is_reached() {
    let output =
        small("validate", &["--target-error", "5%", "--replicates", "4", "--max-replicates", "500", "--format", "csv"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let row = stdout(&output).lines().find(|line| line.starts_with("0,blocks.0,variance,")).expect("a row").to_owned();
    let fields: Vec<f64> = row.split(',').skip(3).filter_map(|field| field.parse().ok()).collect();
    let [_, observed, std_error, replicates, ..] = fields[..] else { panic!("{row}") };
    assert!(std_error <= 0.05 * observed && (4.0..=500.0).contains(&replicates), "{row}");
}

#[test]
fn the_conditional_sampler_is_told_and_refuses_other_weights() {
    let summary = json(&small("validate", &["--sampler", "conditional", "--replicates", "2", "--format", "json"]));
    assert_eq!(summary["sampler"], "conditional");
    let uniform = small("validate", &["--sampler", "conditional", "--scheme", "uniform:1"]);
    assert!(refused(&uniform).contains("its weights are not Gaussian"), "{}", stderr(&uniform));
}

#[test]
fn suites_refuse_what_does_not_go_with_them() {
    let unknown = run(&["validate", "--suite", "components", "--group", "lstm"]);
    assert!(refused(&unknown).contains("expected one of linear, relu"), "{}", stderr(&unknown));
    for extra in [
        &["gpt2"][..],
        &["--replicates", "4"],
        &["--layers", "3"],
        &["--scheme", "xavier"],
        &["--grad-correlation", "0.1"],
        &["--stack", "stack.json"],
        &["--dump-stack", "-"],
        &["--zipf"],
        &["--train"],
        &["--weights"],
        &["--sites", "all"],
        &["--min-r2", "0.9"],
        &["--resume", "folder", "--observed", "runs"],
    ] {
        let output = run(&[&["validate", "--suite", "models"], extra].concat());
        assert!(refused(&output).contains("cannot be used with"), "{}", stderr(&output));
    }
    let near = run(&["validate", "--suite", "components", "--group", "linaer"]);
    assert!(refused(&near).contains("did you mean linear?"), "{}", stderr(&near));
    for alone in [&["--group", "linear"][..], &["--seeds", "1,2"], &["--full"]] {
        for model in [&[][..], &["gpt2"]] {
            let output = run(&[&["validate"], model, alone].concat());
            assert!(refused(&output).contains("expected --suite"), "{}", stderr(&output));
        }
    }
    for (extra, expected) in [
        (&["--suite", "components", "--seeds", "1,2"][..], "expected --suite models"),
        (&["--suite", "random", "--seeds", "1,2"], "expected --suite models"),
        (&["--suite", "components", "--observed", "x.csv"], "cannot read x.csv"),
        (&["--suite", "attention", "--observed", "x.csv"], "cannot read x.csv"),
        (&["--suite", "models", "--observed", "x.csv"], "cannot read x.csv"),
        (&["--suite", "models", "--observed", "x.csv", "--seeds", "1,2"], "cannot be used with"),
        (&["--suite", "models", "--seeds", "1,2", "--seed", "3"], "cannot be used with"),
        (&["--suite", "models", "--seeds", "2..1"], "from the smaller"),
        (&["--observed", "x.csv", "--observed", "y.csv"], "expected one file"),
    ] {
        let output = run(&[&["validate"], extra].concat());
        assert!(refused(&output).contains(expected), "{}", stderr(&output));
    }
    assert!(refused(&run(&["validate", "--target-error", "0"])).contains("above 0"));
    assert!(refused(&run(&["validate", "--max-replicates", "9"])).contains("not provided"));
}

#[test]
fn random_networks_are_scored_again() {
    let folder = folder();
    let drawn = path(&folder, "drawn");
    let suite = ["validate", "--suite", "random", "--group", "vision", "--group", "mlp", "-q", "--json", "--seed"];
    let sampled = json(&run(&[&suite[..], &["3", "--max-replicates", "2", "-o", &drawn]].concat()));
    let again = json(&run(&[&suite[..], &["3", "--observed", &drawn]].concat()));
    assert_eq!(sampled["lines"], again["lines"]);
    assert!(sampled["lines"].as_array().is_some_and(|lines| lines.iter().any(|line| line["group"] == "vision")));
    let others = run(&[&suite[..], &["4", "--observed", &drawn]].concat());
    assert!(refused(&others).contains("has no case"), "{}", stderr(&others));
}

#[test]
fn help_teaches() {
    let output = run(&["--help"]);
    let (before, commands) = stdout(&output).split_once("Commands:\n").expect("commands are listed");
    assert!(!before.is_empty());
    let listed = commands.lines().take_while(|line| !line.is_empty());
    let names = listed.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    let listed: Vec<&str> = names.filter_map(|line| line.split_whitespace().next()).collect();
    for expected in [
        "predict",
        "validate",
        "compare",
        "recommend",
        "inspect",
        "diff",
        "models",
        "schemes",
        "explain",
        "completions",
        "man",
    ] {
        assert!(listed.contains(&expected), "{expected}: {listed:?}");
    }
    for command in listed.into_iter().filter(|command| *command != "help") {
        for flag in ["-h", "--help"] {
            let output = run(&[command, flag]);
            assert!(stdout(&output).contains("Examples:"), "{command} {flag}");
        }
    }
    assert!(stdout(&output).contains("Examples:"));
    assert_eq!(run(&["--version"]).status.code(), Some(0));
    assert_eq!(run(&[]).status.code(), Some(2));
}
