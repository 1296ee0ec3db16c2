//! Random commands and random stack files, and the properties that every prediction has. The fuzz target `commands` and
//! the tests of this folder share this file.

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use serde_json::{Number, Value};
use sigprop::architecture::{Activation, NormChoice, NormPlacement, Parallel, Positions, QkNorm};
use sigprop::cli::Caller;
use sigprop::schemes::SCHEMES;

/// The rounding error by which a correlation may exceed 1.
const ROUNDING: f64 = 1e-6;

/// Models that bring their own shape; some are small ones written as JSON.
const MODELS: &[&str] = &[
    "gpt2",
    "bert-base",
    "t5-small",
    "vit-base",
    r#"{"causal": true, "positions": "rotary", "n_kv_heads": 1, "head": "tied"}"#,
    r#"{"positions": "relative", "head": "tied", "decoder": {"causal": true, "positions": "relative", "head": "tied"}}"#,
    r#"{"stem": {"patches": {"patch_width": 48, "class_token": true, "bias": true, "norm": false}}}"#,
    r#"{"experts": {"n_experts": 4, "top_k": 2, "d_ff": 16, "shared_d_ff": 8, "shared_gate": true,
        "weighting": "softmax", "normalised": true, "scale": 1.0, "first_dense": 1, "every": 1}}"#,
    r#"{"causal": true, "attention_sinks": [true, false], "head": "tied"}"#,
    r#"{"shared_blocks": true, "head": "tied"}"#,
    r#"{"causal": true, "mixers": ["convolution", "attention"]}"#,
    r#"{"causal": true, "mixers": ["recurrence", "attention"], "recurrence": {"form": "gated_delta", "n_heads": 4,
        "n_key_heads": 2, "d_key": 8, "d_value": 4, "taps": 4, "tap_biases": false, "biases": false,
        "rates": {"uniform": {"low": 0.01, "high": 16.0}}, "step_bias": {"value": 1.0}, "strength": 2.0,
        "norm_groups": 4, "step_rank": 0, "latent_norms": false}}"#,
    r#"{"causal": true, "mixers": ["recurrence"], "recurrence": {"form": "mamba2", "n_heads": 4, "n_key_heads": 1,
        "d_key": 8, "d_value": 4, "taps": 4, "tap_biases": true, "biases": false, "rates": "counted",
        "step_bias": {"log_uniform": {"low": 0.001, "high": 0.1}}, "strength": 1.0, "norm_groups": 2,
        "step_rank": 0, "latent_norms": false}}"#,
    r#"{"causal": true, "mixers": ["recurrence"], "recurrence": {"form": "mamba1", "n_heads": 32, "n_key_heads": 1,
        "d_key": 8, "d_value": 1, "taps": 4, "tap_biases": true, "biases": false, "rates": "counted",
        "step_bias": {"log_uniform": {"low": 0.001, "high": 0.1}}, "strength": 1.0, "norm_groups": 0,
        "step_rank": 4, "latent_norms": true}}"#,
    r#"{"causal": false, "disentangled": {"span": 8, "max_distance": 20}}"#,
];

/// Values of flags that accept any number.
const NUMBERS: &[&str] = &["0", "1e-160", "1e-12", "0.001", "0.5", "1", "2", "30", "1e6", "1e100", "1e300", "-1"];
const SHARES: &[&str] = &["0", "1e-9", "0.1", "0.5", "0.999999", "1"];
const RATES: &[&str] = &["0", "0.1", "0.5", "0.999"];
const SIZES: &[&str] = &["1", "2", "3", "8", "16", "64"];

/// Picks an index below a given number.
pub(crate) type Choose<'a> = &'a mut dyn FnMut(usize) -> usize;

/// The words of a random `predict`, without its format. Some of these commands are refused because their flags do not
/// fit.
pub(crate) fn prediction(choose: Choose) -> Vec<String> {
    let mut command = Command { words: vec!["predict".to_owned()], choose };
    command.network();
    command.weights();
    command.input();
    command.gradient();
    command.training();
    command.told();
    command.words
}

struct Command<'a> {
    words: Vec<String>,
    choose: Choose<'a>,
}

impl Command<'_> {
    fn one_of<'v>(&mut self, values: &[&'v str]) -> &'v str {
        values[(self.choose)(values.len())]
    }

    fn in_one_of(&mut self, many: usize) -> bool {
        (self.choose)(many) == 0
    }

    /// Adds a flag to one in `many` commands, with one of these values.
    fn flag(&mut self, many: usize, flag: &str, values: &[&str]) {
        if self.in_one_of(many) {
            let value = self.one_of(values);
            self.words.push(format!("--{flag}={value}"));
        }
    }

    fn switch(&mut self, many: usize, flag: &str) {
        if self.in_one_of(many) {
            self.words.push(format!("--{flag}"));
        }
    }

    fn network(&mut self) {
        let model = match (self.choose)(3) {
            0 => None,
            1 => Some("mlp"),
            _ => Some(self.one_of(MODELS)),
        };
        self.words.extend(model.map(str::to_owned));
        self.flag(1, "seq-len", &["1", "2", "3", "8", "17"]);
        let [width, heads] =
            [["1", "1"], ["2", "2"], ["8", "1"], ["8", "4"], ["64", "2"], ["96", "4"]][(self.choose)(6)];
        self.words.push(format!("--width={width}"));
        self.flag(4, "vocab", &["1", "2", "7", "1000"]);
        self.flag(3, "activation", Activation::WORDS);
        match (self.choose)(12) {
            0 => {
                self.flag(1, "norm", &["dyt", "derf"]);
                self.flag(1, "dyt-alpha", NUMBERS);
            }
            1..4 => self.flag(1, "norm", NormChoice::WORDS),
            _ => {}
        }
        self.flag(8, "skip-scale", NUMBERS);
        self.flag(8, "branch-scale", NUMBERS);
        if model == Some("mlp") {
            // Deep stacks of plain layers reach numbers beyond f64.
            self.flag(1, "layers", &["1", "2", "9", "60"]);
            self.flag(2, "residual", &["true", "false"]);
            self.flag(2, "norm-placement", &["pre", "post"]);
        } else {
            self.flag(1, "layers", &["1", "2", "3"]);
            self.words.push(format!("--heads={heads}"));
            self.blocks();
        }
    }

    /// Adds flags of blocks with attention.
    fn blocks(&mut self) {
        self.flag(8, "kv-heads", &["1", "2"]);
        self.flag(6, "ffn", SIZES);
        self.flag(4, "norm-placement", NormPlacement::WORDS);
        self.flag(6, "final-norm", &["true", "false"]);
        self.flag(4, "positions", Positions::WORDS);
        self.switch(4, "causal");
        self.flag(8, "window", &["1", "2", "5"]);
        self.flag(6, "qk-norm", QkNorm::WORDS);
        self.flag(6, "parallel", Parallel::WORDS);
    }

    fn weights(&mut self) {
        if self.in_one_of(4) {
            return;
        }
        let about = SCHEMES[(self.choose)(SCHEMES.len())];
        let arguments = about.parameters.iter().filter_map(|parameter| {
            let given = parameter.default.is_none() || self.in_one_of(4);
            given.then(|| format!("{}={}", parameter.name, self.one_of(NUMBERS)))
        });
        let arguments: Vec<String> = arguments.collect();
        let separator = if arguments.is_empty() { "" } else { ":" };
        self.words.push(format!("--scheme={}{separator}{}", about.name, arguments.join(",")));
    }

    fn input(&mut self) {
        let reads_vectors = self.words.iter().any(|word| word == "mlp" || word.contains("stem") || word == "vit-base");
        match (self.choose)(5) {
            _ if reads_vectors => self.flag(1, "input-correlation", SHARES),
            0 => self.switch(1, "uniform"),
            1 => self.flag(1, "token-repeat", SHARES),
            2 => self.flag(1, "input-correlation", SHARES),
            _ => {}
        }
    }

    fn gradient(&mut self) {
        match (self.choose)(6) {
            0 => self.flag(1, "grad-correlation", SHARES),
            1 | 2 => self.flag(1, "head", &["own", "tied", "untied"]),
            _ => {}
        }
        self.flag(16, "loss-at", &["encoder", "decoder"]);
    }

    fn training(&mut self) {
        if self.in_one_of(4) {
            self.switch(1, "train");
            self.flag(2, "dropout", RATES);
            self.flag(4, "attention-dropout", RATES);
            self.flag(4, "drop-path", RATES);
        }
    }

    fn told(&mut self) {
        self.flag(4, "theory", &["mean-field", "finite-width"]);
        self.flag(6, "grading", &["coarse", "fine", "finest", "all"]);
        match (self.choose)(4) {
            0 => self.switch(1, "weights"),
            1 => {
                self.flag(1, "first-update", &["sgd", "adam"]);
                self.flag(1, "lr", &["1e-3", "1e300"]);
            }
            _ => {}
        }
    }
}

/// Writes the stack of a random command to a file in `folder`, with some numbers replaced, and returns the words that
/// predict it; `None` if the command is refused.
pub(crate) fn mutated(choose: Choose, folder: &Path) -> Option<Vec<String>> {
    let mut words = prediction(choose);
    words.push("--dump-stack=-".to_owned());
    let mut stack: Value = serde_json::from_slice(&output(&words)?).expect("a dumped stack is JSON");
    let mut places = Vec::new();
    numbers(&mut stack, &mut places);
    // A changed count rarely fits the other counts.
    let has_counts = choose(8) == 0;
    places.retain(|place| has_counts || !place.is_u64());
    if places.is_empty() {
        return None;
    }
    for _ in 0..=choose(3) {
        let place = choose(places.len());
        *places[place] = other(places[place], choose);
    }
    let file = folder.join("stack.json");
    std::fs::write(&file, stack.to_string()).expect("the folder for temporary files can be written");
    let mut words = vec!["predict".to_owned(), format!("--stack={}", file.display())];
    if choose(2) == 0 {
        words.push("--head".to_owned());
    }
    Some(words)
}

fn numbers<'v>(value: &'v mut Value, found: &mut Vec<&'v mut Value>) {
    match value {
        Value::Number(_) => found.push(value),
        Value::Array(values) => values.iter_mut().for_each(|value| numbers(value, found)),
        Value::Object(values) => values.values_mut().for_each(|value| numbers(value, found)),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Another value for a number. Counts stay small, so that networks stay small.
fn other(number: &Value, choose: Choose) -> Value {
    if let Some(count) = number.as_u64() {
        let counts = [0, 1, 2, count.saturating_sub(1), count + 1];
        return counts[choose(counts.len())].into();
    }
    let value = number.as_f64().unwrap_or_default();
    let values = [0.0, -value, value * 1e3, value * 1e-3, 1.0, 2.0, 1e-12, 1e-160, 1e12, 1e100, 1e300];
    Number::from_f64(values[choose(values.len())]).map_or(Value::Null, Value::Number)
}

/// Runs a prediction and asserts the properties of its numbers. Returns true if the command was accepted.
pub(crate) fn demand(words: &[String], choose: Choose) -> bool {
    let format = ["csv", "csv", "json", "table"][choose(4)];
    let words = [words, &[format!("--format={format}"), "--sites=all".to_owned()]].concat();
    let Some(text) = output(&words) else { return false };
    let text = String::from_utf8(text).expect("data are text");
    assert!(!text.contains("NaN"), "a number that is none, of {}:\n{text}", quoted(&words));
    match format {
        "csv" => rows(&words, &text),
        "json" => {
            let document: Value = serde_json::from_str(&text).expect("the document is JSON");
            for quantity in ["logit_variance", "cross_entropy", "grad_norm"] {
                let Some(loss) = document.get("loss") else { break };
                let told = loss[quantity].is_number() || loss[format!("ln_{quantity}")].is_number();
                assert!(told, "{quantity} of {}: {loss}", quoted(&words));
            }
        }
        _ => {}
    }
    true
}

/// Asserts that variances are not negative and correlations at most 1.
fn rows(words: &[String], text: &str) {
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let columns = lines.next().expect("a header");
    for (line, (column, cell)) in lines.flat_map(|line| {
        let cells: Vec<_> = columns.iter().copied().zip(line.iter().copied()).collect();
        cells.into_iter().map(move |cell| (line.clone(), cell))
    }) {
        let is_logarithm = column.starts_with("ln_") && !column.ends_with("_std");
        let is_positive = !is_logarithm
            && ["variance", "second_moment", "_std", "_first", "_last", "_rms"]
                .iter()
                .any(|part| column.contains(part));
        let fits = if column.ends_with("correlation") {
            cell.is_empty() || cell.parse::<f64>().is_ok_and(|value| value.abs() <= 1.0 + ROUNDING)
        } else {
            !is_positive || !cell.starts_with('-')
        };
        assert!(fits, "{column} = {cell} in {line:?} of {}", quoted(words));
    }
}

/// The standard output of a command; `None` if it is refused. A panic is reported with the words.
fn output(words: &[String]) -> Option<Vec<u8>> {
    let run = || Caller::default().run(words.iter().map(OsString::from));
    let reply = catch_unwind(AssertUnwindSafe(run));
    let Ok(reply) = reply else { panic!("a panic, shown above, of {}", quoted(words)) };
    reply.ok().map(|reply| reply.output)
}

/// The command in the syntax of a shell.
fn quoted(words: &[String]) -> String {
    words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ")
}
