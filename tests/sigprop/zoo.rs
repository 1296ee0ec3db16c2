//! Published models: their sizes, and their predictions at initialisation.
//!
//! `data/models/zoo/` has their configs, and `origins.csv` their published numbers of parameters. The table of
//! `docs/zoo.md` is written anew by `SIGPROP_ZOO=write cargo test --release --test sigprop zoo -- --ignored`.

use std::{env, fs, path::PathBuf};

use serde::Deserialize;
use sigprop::{
    Sites,
    architecture::Architecture,
    assemble::{Input, Run, assemble},
    compare::Summary,
    cost::Cost,
    huggingface::{self, Imported},
    predict,
    schemes::Scheme,
};
use sigprop_stack::{Number, Stack};

/// The number of tokens of a sequence in the table. Images have as many as there are patches.
const TOKENS: usize = 64;
/// Keys of published configs that the prediction ignores.
const LEFT_OUT: [(&str, &str); 2] = [("deepseek-v3", "n_group"), ("mpt-7b", "init_config")];
const PAGE: &str = "docs/zoo.md";
const HEADER: &str = "| model | blocks × width | variance | gradient | correlation | score std | verdict |\n|---|---|---|---|---|---|---|\n";

#[derive(Deserialize)]
struct Published {
    name: String,
    model: String,
    parameters: u64,
}

fn models() -> Vec<Published> {
    let reader = csv::Reader::from_path(path("data/models/zoo/origins.csv")).expect("the list of models");
    reader.into_deserialize().collect::<Result<_, _>>().expect("rows of models")
}

fn path(below: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(below)
}

fn import(name: &str) -> Imported {
    let text = fs::read_to_string(path(&format!("data/models/zoo/{name}.json"))).expect("a config");
    huggingface::import(&text, &huggingface::Options::default()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn stack(architecture: &Architecture) -> Stack {
    let scheme = Scheme::parse(architecture.scheme.as_deref().expect("the scheme of the library")).expect("a scheme");
    assemble(architecture, &scheme, &Input::Zipf, &Run::default()).expect("a stack").stack
}

#[test]
fn models_have_their_published_number_of_parameters() {
    const TOLERANCE: f64 = 1e-3;
    let mut wrong = Vec::new();
    for Published { name, parameters, .. } in models() {
        let Imported { architecture, names, warnings, .. } = import(&name);
        let stack = stack(&architecture);
        let got = Cost::of(&stack, Some(&architecture)).unwrap().with_names(&stack, &names).unwrap().parameters;
        if (got as f64 / parameters as f64 - 1.0).abs() > TOLERANCE {
            wrong.push(format!("{name}: {got} parameters, published {parameters}"));
        }
        let expected: Vec<&str> = LEFT_OUT.iter().filter(|(model, _)| *model == name).map(|(_, key)| *key).collect();
        if warnings.len() != expected.len() || !expected.iter().zip(&warnings).all(|(key, text)| text.contains(key)) {
            wrong.push(format!("{name}: {warnings:?}, expected {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[ignore = "minutes: predicts every published model"]
fn the_table_is_as_predicted() {
    let table = models().iter().map(row).fold(HEADER.to_owned(), |table, row| table + &row);
    let page = fs::read_to_string(path(PAGE)).expect("the page");
    let start = page.find("| model |").expect("the table");
    let end = page[start..].find("\n\n").map_or(page.len(), |end| start + end + 1);
    if env::var("SIGPROP_ZOO").is_ok_and(|what| what == "write") {
        fs::write(path(PAGE), [&page[..start], &table, &page[end..]].concat()).expect("the page can be written");
    } else {
        assert_eq!(&page[start..end], table);
    }
}

/// A row of the table.
fn row(Published { name, model, .. }: &Published) -> String {
    let mut architecture = import(name).architecture;
    if architecture.stem.is_none() {
        architecture.seq_len = architecture.seq_len.min(TOKENS);
    }
    if let Some(decoder) = &mut architecture.decoder {
        decoder.seq_len = decoder.seq_len.min(TOKENS);
    }
    let stack = stack(&architecture);
    let options = Sites::Stream;
    let summary = Summary::of(&stack, &predict(&stack, options).unwrap_or_else(|error| panic!("{name}: {error}")));
    let layers = architecture.decoder.as_ref().map_or(architecture.n_layers, |decoder| decoder.n_layers);
    let size = format!("{layers} × {}", architecture.d_model);
    let score = summary.score_variance.map_or(String::new(), |score| digits(score.value().sqrt()));
    let correlation = summary.token_correlation.map_or(String::new(), digits);
    let growth = |number: Number| format!("×{}", digits(number.value()));
    let [forward, backward] = [summary.forward.total(), summary.backward.total()].map(growth);
    format!(
        "| {model} | {size} | {forward} | {backward} | {correlation} | {score} | {} |\n",
        summary.verdict.grade.words()
    )
}

/// A number with three digits.
fn digits(value: f64) -> String {
    match value.abs() {
        size if (1e-3..1e4).contains(&size) => {
            let decimals = (2 - size.log10().floor() as i32).max(0) as usize;
            format!("{value:.decimals$}")
        }
        _ => format!("{value:.2e}"),
    }
}
