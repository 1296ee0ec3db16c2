//! The output of the command, compared field by field with docs/formats.md.

use std::{collections::BTreeMap, fs};

use serde_json::Value;
use tempfile::TempDir;

use crate::book::anchor;

use super::{SMALL, command, folder, json, path, refused, run, small, stderr, stdout, written};

/// The document: the fields of each section in their order, and whether they may be null. Keys are the anchors of
/// sections.
struct Documented(BTreeMap<String, Vec<(String, bool)>>);

impl Documented {
    fn read() -> Self {
        let text = include_str!("../../../docs/formats.md");
        let mut sections = BTreeMap::new();
        for section in text.split("\n## ").skip(1) {
            let (heading, rest) = section.split_once('\n').expect("a section has text");
            let rows = rest.lines().filter_map(|line| line.strip_prefix("| `"));
            sections.insert(anchor(heading), rows.map(str::to_owned).collect::<Vec<_>>());
        }
        let expanded = sections.keys().map(|section| (section.clone(), expand(section, &sections)));
        Self(expanded.collect())
    }

    fn fields(&self, section: &str) -> &[(String, bool)] {
        &self.0[section]
    }

    fn columns(&self, section: &str) -> Vec<&str> {
        self.fields(section).iter().map(|(field, _)| field.as_str()).collect()
    }
}

/// The fields of a section. `x.**` includes the fields of the linked section.
fn expand(section: &str, sections: &BTreeMap<String, Vec<String>>) -> Vec<(String, bool)> {
    let mut fields = Vec::new();
    for row in &sections[section] {
        let (field, rest) = row.split_once('`').expect("a field is quoted");
        if let Some(prefix) = field.strip_suffix("**") {
            let (_, link) = rest.split_once("(#").unwrap_or_else(|| panic!("{section}: {field} links to its fields"));
            let (link, _) = link.split_once(')').expect("a link ends");
            fields.extend(expand(link, sections).into_iter().map(|(inner, null)| (format!("{prefix}{inner}"), null)));
        } else {
            let null = rest.trim_end().trim_end_matches('|').rsplit('|').next().expect("a last column").trim();
            fields.push((field.to_owned(), null != "–"));
        }
    }
    fields
}

/// Collects every field of a document and whether it is null. A list of scalars is one field.
fn found(value: &Value, place: &str, fields: &mut Vec<(String, bool)>) {
    match value {
        Value::Object(object) => {
            for (key, inner) in object {
                found(inner, &if place.is_empty() { key.clone() } else { format!("{place}.{key}") }, fields);
            }
        }
        Value::Array(list) => {
            for inner in list {
                let in_list = if inner.is_object() { format!("{place}[]") } else { place.to_owned() };
                found(inner, &in_list, fields);
            }
        }
        Value::Null => fields.push((place.to_owned(), true)),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => fields.push((place.to_owned(), false)),
    }
}

/// Returns true if a documented field covers a found one: `<…>` is any name, `…` everything below.
fn is_of(documented: &str, found: &str) -> bool {
    if let Some(prefix) = documented.strip_suffix('…') {
        return found.starts_with(prefix);
    }
    match (documented.split_once('<'), documented.split_once('>')) {
        (Some((before, _)), Some((_, after))) => {
            found.len() > before.len() + after.len() && found.starts_with(before) && found.ends_with(after)
        }
        _ => documented == found,
    }
}

/// Asserts that all found fields are documented, and that all documented fields occur in one of the documents.
fn assert_documented(section: &str, documents: &[Value]) {
    let documented = Documented::read();
    let documented = documented.fields(section);
    let mut fields = Vec::new();
    for document in documents {
        found(document, "", &mut fields);
    }
    for (field, is_null) in &fields {
        let row = documented.iter().find(|(documented, _)| is_of(documented, field));
        let (_, may_be_null) = row.unwrap_or_else(|| panic!("{section}: {field} is not documented"));
        assert!(*may_be_null || !is_null, "{section}: {field} is null");
    }
    for (row, _) in documented {
        let is_there = fields.iter().any(|(field, _)| is_of(row, field) || field.starts_with(&format!("{row}.")));
        assert!(is_there, "{section}: {row} is documented and not there");
    }
}

/// Asserts that CSV, JSON lines and Markdown have the documented columns and the same number of rows.
fn assert_rows(section: &str, arguments: &[&str]) {
    let documented = Documented::read();
    let columns = documented.columns(section);
    let output = |format| run(&[arguments, &["-q", "--format", format]].concat());
    let (csv, lines, markdown) = (output("csv"), output("jsonl"), output("md"));
    let mut reader = csv::Reader::from_reader(stdout(&csv).as_bytes());
    assert_eq!(reader.headers().expect("a header").iter().collect::<Vec<_>>(), columns, "{section}");
    let records: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().expect("CSV");
    assert!(!records.is_empty(), "{section}");
    assert_eq!(stdout(&lines).lines().count(), records.len(), "{section}");
    for (line, record) in stdout(&lines).lines().zip(&records) {
        let object: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(object["schema_version"], 1);
        assert_eq!(object.as_object().expect("an object").len(), 1 + columns.len(), "{section}: {line}");
        for ((column, may_be_null), text) in documented.fields(section).iter().zip(record) {
            let value = object.get(column).unwrap_or_else(|| panic!("{section}: no {column} in {line}"));
            assert!(*may_be_null || !value.is_null(), "{section}: {column} is null in {line}");
            match value {
                Value::String(words) => assert_eq!(words, text, "{section}: {column}"),
                Value::Null => assert!(text.is_empty() || text == "inf", "{section}: {column} is {text}"),
                Value::Number(number) => {
                    let [number, text] =
                        [number.as_f64(), text.parse().ok()].map(|x: Option<f64>| x.expect("a number"));
                    assert!((number - text).abs() <= READ * text.abs(), "{section}: {column}: {number}, {text}");
                }
                Value::Bool(truth) => assert_eq!(text.parse(), Ok(*truth), "{section}: {column}"),
                Value::Array(_) | Value::Object(_) => panic!("{section}: {column} is no scalar"),
            }
        }
    }
    let table: Vec<&str> = stdout(&markdown).lines().collect();
    assert_eq!(table[0], format!("| {} |", columns.join(" | ")));
    assert_eq!(table.len(), 2 + records.len(), "{section}");
}

fn of_small(subcommand: &str, arguments: &[&str]) -> Value {
    json(&small(subcommand, &[arguments, &["-q", "--json"]].concat()))
}

fn document(folder: &TempDir, name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(folder.path().join(name)).expect("readable")).expect("JSON")
}

/// The relative error of this JSON reader: some last bits.
const READ: f64 = 1e-15;

/// The config of a mixture.
const MIXTRAL: &str = r#"{"model_type": "mixtral", "num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2,
    "num_key_value_heads": 1, "intermediate_size": 48, "num_local_experts": 2, "vocab_size": 50, "max_position_embeddings": 16}"#;

/// The axes of a map with an edge.
const MAP: [&str; 4] = ["--x", "skip-scale=0.002..2:3", "--y", "branch-scale=0..1:2"];

/// Writes a small model and exports a checkpoint, a plan and its stack. Returns the paths of model and checkpoint.
fn exported(folder: &TempDir) -> [String; 2] {
    let model = b"n_layers = 2\nd_model = 64\nseq_len = 16\nvocab_size = 100\n";
    let config = written(folder, "model.toml", model);
    let checkpoint = path(folder, "model.safetensors");
    let (stack, plan) = (path(folder, "stack.json"), path(folder, "plan.json"));
    stdout(&run(&["predict", &config, "--export", &checkpoint, "--export", &plan, "--dump-stack", &stack]));
    [config, checkpoint]
}

#[test]
fn rows_have_the_documented_columns() {
    let small = |arguments: &[&'static str]| [&arguments[..1], &SMALL, &arguments[1..]].concat();
    assert_rows("sites", &small(&["predict"]));
    assert_rows("sites", &["predict", "mlp", "--layers", "1000", "--width", "64", "--scheme", "uniform:1"]);
    assert_rows("weights", &small(&["predict", "--weights"]));
    assert_rows("first-updates", &small(&["predict", "--first-update", "sgd", "--lr", "0.1"]));
    assert_rows("first-updates", &small(&["predict", "--first-update", "adam", "--lr", "0.1"]));
    assert_rows("cells", &small(&[["phase"].as_slice(), &MAP].concat()));
    assert_rows("edges", &small(&[["phase"].as_slice(), &MAP, &["--edges"]].concat()));
    assert_rows("comparisons", &small(&["validate", "--replicates", "2", "--weights"]));
    assert_rows("schemes-side-by-side", &small(&["compare", "--schemes", "dslm,gpt2,hf"]));
    assert_rows("stds", &small(&["recommend", "--max-score-std", "none"]));
    assert_rows("presets", &["models"]);
    assert_rows("schemes", &["schemes"]);
    let folder = folder();
    let [config, checkpoint] = exported(&folder);
    assert_rows("tensors", &["inspect", &checkpoint, "--config", &config]);
    assert_rows("tensors", &["inspect", &checkpoint]);
    let (first, second) = (path(&folder, "a.json"), path(&folder, "b.json"));
    stdout(&run(&["predict", &config, "--json", "-o", &first]));
    stdout(&run(&["predict", &config, "--json", "-o", &second, "--scheme", "gpt2"]));
    assert_rows("differences", &["diff", &first, &second]);
}

#[test]
fn documents_have_the_documented_fields() {
    let deep = ["predict", "mlp", "--layers", "1000", "--width", "64", "--scheme", "uniform:1", "--json", "--weights"];
    let full = of_small("predict", &["--weights", "--head", "--scheme", "deepnorm"]);
    let update = of_small("predict", &["--first-update", "sgd", "--lr", "0.1"]);
    let of_documents = folder();
    let ids =
        written(&of_documents, "ids.json", format!("[{:?}, {:?}]", (0..16).collect::<Vec<_>>(), [5; 16]).as_bytes());
    let given = of_small("predict", &["--tokens", &ids]);
    assert_documented("predict---json", &[full, update, given, json(&run(&deep))]);
    assert_documented("phase---json", &[of_small("phase", &[MAP.as_slice(), &["--scheme", "normal:1"]].concat())]);
    let sampled = ["--replicates", "2", "--weights"];
    let folder = folder();
    let mine = written(&folder, "mine.csv", b"site,quantity,observed,std_error\nblocks.0,variance,1e-3,\n");
    let observed = ["--observed", mine.as_str()];
    // A scheme that is not designed for the network has a caveat.
    let uncertain = [sampled.as_slice(), &["--scheme", "deepnorm"]].concat();
    let both = [of_small("validate", &uncertain), of_small("validate", &observed)];
    assert_documented("validate---json", &both);
    let report = path(&folder, "report");
    let summaries = [sampled.as_slice(), &observed].map(|arguments| {
        stdout(&small("validate", &[arguments, &["-o", &report]].concat()));
        document(&folder, "report/summary.json")
    });
    assert_documented("summaryjson", &summaries);
    let compared = ["--schemes", "normal:2,hf"];
    assert_documented("compare---json", &[of_small("compare", &compared)]);
    assert_documented("recommend---json", &[of_small("recommend", &[])]);
    assert_documented("models---json", &[json(&run(&["models", "--json"]))]);
    assert_documented("schemes---json", &[json(&run(&["schemes", "--json"]))]);
}

#[test]
fn files_have_the_documented_fields() {
    let folder = folder();
    let [config, checkpoint] = exported(&folder);
    stdout(&small("predict", &["--scheme", "mup", "--dump-stack", &path(&folder, "mup.json")]));
    let model =
        b"n_layers = 2\nd_model = 64\nseq_len = 16\nvocab_size = 100\nhead = 'untied'\nhead_activation = 'gelu'\n\
                  head_bias = true\nlogit_softcap = 30.0\n";
    let model = written(&folder, "head.toml", model);
    stdout(&run(&["predict", &model, "--dump-stack", &path(&folder, "head.json")]));
    let mut rows = document(&folder, "head.json");
    rows["row_groups"] = serde_json::json!({"head.weight": [{"rows": 92, "std": 0.02}, {"rows": 8, "std": 1.0}]});
    rows["roles"] = serde_json::json!({
        "head.weight": {"kind": "head"},
        "blocks.0.attention.heads.query.weight": {"kind": "query", "block": 0},
    });
    let rows = written(&folder, "rows.json", rows.to_string().as_bytes());
    stdout(&run(&["predict", "--stack", &rows, "--dump-stack", &path(&folder, "groups.json")]));
    let stacks = ["stack.json", "mup.json", "head.json", "groups.json"].map(|name| document(&folder, name));
    assert_documented("stack", &stacks);
    let report = path(&folder, "report.html");
    let mut reported = command(&["predict", &config, "--report", &report]);
    assert!(reported.env("SIGPROP_SEED", "1").output().expect("the command starts").status.success());
    assert_documented("runjson", &[super::report::document(&report, "run")]);
    let plan = |arguments: &[&str]| {
        stdout(&small("predict", &[arguments, &["-q", "--export", &path(&folder, "plan.json")]].concat()));
        document(&folder, "plan.json")
    };
    let olmo = plan(&["--scheme", "olmo-core-llama"]);
    let standardised = plan(&["--scheme", "standardised"]);
    // Plans of traced modules have places in place of groups.
    let mut traced = plan(&["--scheme", "dslm"]);
    traced["parameters"][0]["parts"][0]["indices"] = serde_json::json!([0, 1]);
    assert_documented("plan", &[plan(&["--scheme", "uniform:1"]), traced, olmo, standardised]);

    let other = written(&folder, "other.toml", b"n_layers = 3\nd_model = 64\nseq_len = 16\nvocab_size = 100\n");
    let (first, second) = (path(&folder, "a.json"), path(&folder, "b.json"));
    stdout(&run(&["predict", &config, "--json", "-o", &first]));
    stdout(&run(&["predict", &other, "--json", "-o", &second, "--norm", "none", "--scheme", "normal:3"]));
    let difference = |first: &str, second: &str| json(&run(&["diff", first, second, "--json"]));
    assert_documented("diff---json", &[difference(&first, &second), difference(&second, &first)]);

    let suite = ["validate", "--suite", "components", "--group", "dropout", "--max-replicates", "2", "-q"];
    let report = path(&folder, "report");
    let lines = json(&run(&[suite.as_slice(), &["--json", "-o", &report]].concat()));
    let runs = path(&folder, "runs");
    let models = ["validate", "--suite", "models", "--group", "peri", "-q", "--json"];
    let of_seeds = json(&run(&[&models[..], &["--max-replicates", "2", "--seeds", "3..4", "-o", &runs]].concat()));
    let observed = json(&run(&[&models[..], &["--observed", &runs]].concat()));
    assert_eq!(of_seeds["lines"], observed["lines"]);
    assert_eq!(document(&folder, "runs/4/summary.json")["seed"], 4);
    let one = path(&folder, "runs/3");
    let twice = run(&[&models[..], &["--observed", &runs, "--observed", &one]].concat());
    assert!(refused(&twice).contains("with different seeds"), "{}", stderr(&twice));
    let none = run(&["validate", "--suite", "models", "--group", "post", "--observed", &runs]);
    assert!(refused(&none).contains("got none"), "{}", stderr(&none));
    let documents = [lines, document(&folder, "report/summary.json"), of_seeds, observed];
    assert_documented("validate---suite---json", &documents);
    for (section, file) in [("suite-lines", "report.csv"), ("suite-cells", "cells.csv")] {
        let mut reader = csv::Reader::from_path(format!("{report}/{file}")).expect("readable");
        let header: Vec<String> = reader.headers().expect("a header").iter().map(str::to_owned).collect();
        assert_eq!(header, Documented::read().columns(section));
    }

    let inspected = |arguments: &[&str]| json(&run(&[&["inspect"], arguments, &["-q", "--json"]].concat()));
    let longer = path(&folder, "longer.safetensors");
    stdout(&run(&["predict", &other, "--export", &longer]));
    let experts = written(&folder, "experts.json", MIXTRAL.as_bytes());
    let mixture = path(&folder, "experts.safetensors");
    stdout(&run(&["predict", &experts, "--batch", "1", "--export", &mixture]));
    let header = r#"{"steps": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}}"#;
    let unread = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &[0; 8]].concat();
    let unread = written(&folder, "unread.safetensors", &unread);
    let documents = [
        inspected(&[&checkpoint, "--config", &other]),
        inspected(&[&longer, "--config", &config]),
        inspected(&[&mixture, "--config", &experts]),
        inspected(&[&mixture, "--config", &experts, "--scheme", "xavier"]),
        inspected(&[&unread]),
    ];
    assert_documented("inspect---json", &documents);
}

#[test]
fn one_format_at_a_time() {
    assert_eq!(small("predict", &["--json", "-q"]).stdout, small("predict", &["--format", "json", "-q"]).stdout);
    let both = small("predict", &["--json", "--format", "csv"]);
    assert!(refused(&both).contains("cannot be used with"), "{}", stderr(&both));
    let unknown = run(&["models", "--format", "jsonlines"]);
    assert!(refused(&unknown).contains("'jsonl'"), "{}", stderr(&unknown));
}
