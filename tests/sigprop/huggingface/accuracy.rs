//! The tables of real models in `docs/accuracy.md`, from the measurements in `data/measured/huggingface/`.

use std::{collections::BTreeMap, path::Path};

use sigprop::Theory;

use super::{
    case::{Key, Reference},
    gate::Cell,
    names::Group,
    run::run,
};
use crate::accuracy::{page::Table, percent, percentile};

/// The lines of the first table with their groups.
const GROUPS: [(&str, Group); 5] = [
    ("second moments of signals and gradients on the stream", Group::Stream),
    ("products of two tokens, relative to the second moment", Group::Cross),
    ("the same at the first position", Group::First),
    ("outputs of branches", Group::Branch),
    ("gradients of weights", Group::WeightGradient),
];

/// The cells of the chosen runs, by family.
fn cells(chosen: impl Fn(&Key) -> bool) -> BTreeMap<String, Vec<Cell>> {
    let reference = Reference::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("data/measured/huggingface"));
    let mut families: BTreeMap<String, Vec<Cell>> = BTreeMap::new();
    for key in reference.runs.keys().filter(|key| chosen(key)) {
        let family = reference.cases[&(key.case.clone(), key.input.clone())].family.clone();
        let cells = run(&reference, key, Theory::FiniteWidth).unwrap_or_else(|message| panic!("{key:?}: {message}"));
        families.entry(family).or_default().extend(cells);
    }
    families
}

fn errors<'a>(cells: impl Iterator<Item = &'a Cell>, group: Group) -> Vec<f64> {
    cells.filter(|cell| cell.group == group).map(Cell::error).collect()
}

fn overall(families: &BTreeMap<String, Vec<Cell>>) -> Table {
    let mut table = Table::new(&["quantity", "numbers", "median error", "90 %", "99 %"]);
    for (name, group) in GROUPS {
        let errors = errors(families.values().flatten(), group);
        let shares = [(0.5, 2), (0.9, 1), (0.99, 1)];
        let figures = shares.map(|(share, decimals)| percent(percentile(errors.iter().copied(), share), decimals));
        table.row(&[name.to_owned(), errors.len().to_string()].into_iter().chain(figures).collect::<Vec<_>>());
    }
    table
}

fn by_family(families: &BTreeMap<String, Vec<Cell>>) -> Table {
    let mut table = Table::new(&[
        "family",
        "stream: median",
        "within 2 se",
        "cross: median",
        "branches: median",
        "weight gradients: median",
        "within 2 se",
    ]);
    for (family, cells) in families {
        let median = |group| percent(percentile(errors(cells.iter(), group).into_iter(), 0.5), 2);
        let within = |group| {
            let chosen: Vec<&Cell> = cells.iter().filter(|cell| cell.group == group).collect();
            let close = |cell: &&&Cell| (cell.predicted - cell.observed).abs() < 2.0 * cell.std_error;
            format!("{:.2}", chosen.iter().filter(close).count() as f64 / chosen.len() as f64)
        };
        table.row(&[
            family.clone(),
            median(Group::Stream),
            within(Group::Stream),
            median(Group::Cross),
            median(Group::Branch),
            median(Group::WeightGradient),
            within(Group::WeightGradient),
        ]);
    }
    table
}

#[test]
#[ignore = "minutes: 125 runs of 26 models"]
fn accuracy_of_real_models() {
    let families = cells(|_| true);
    overall(&families).check("real models");
    by_family(&families).check("families");
}

/// The runs on texts, whose ids are given, in evaluation mode.
#[test]
#[cfg_attr(debug_assertions, ignore = "a minute of CPU time: 26 models")]
fn accuracy_of_real_models_with_texts() {
    overall(&cells(|key| key.input == "t" && key.mode == "eval")).check("real models, texts");
}
