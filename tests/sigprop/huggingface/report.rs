//! Writes the results of the comparison: results.csv with all cells, summary.csv by run and group, families.csv.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::Path,
};

use csv::Writer;

use super::{
    case::{Case, Key},
    gate::{AGREEMENT, Agreement, Cell},
    names::Group,
};

pub(super) struct Report {
    files: Option<Files>,
    /// The cells by family.
    families: BTreeMap<String, Vec<Cell>>,
    /// Failures: the run, or the group of its cells, and a message.
    failures: Vec<(String, String)>,
}

struct Files {
    results: Writer<File>,
    summary: Writer<File>,
    families: Writer<File>,
}

const RESULTS: [&str; 13] = [
    "case",
    "mode",
    "input",
    "group",
    "quantity",
    "layer",
    "site",
    "predicted",
    "observed",
    "std_error",
    "error",
    "bound",
    "ok",
];
const RUN: [&str; 5] = ["family", "case", "mode", "input", "group"];
const WORST: [&str; 4] = ["worst_site", "worst_quantity", "worst_error", "ok"];

impl Report {
    /// Prepares a report, written into a folder if there is one.
    pub(super) fn new(folder: Option<&Path>) -> Self {
        let files = folder.map(|folder| {
            fs::create_dir_all(folder).expect("the folder of the report can be made");
            let file = |name, header: &[&str]| {
                let mut file = Writer::from_path(folder.join(name)).expect("the report can be written");
                write(&mut file, header.iter().copied());
                file
            };
            Files {
                results: file("results.csv", &RESULTS),
                summary: file("summary.csv", &[RUN.as_slice(), &AGREEMENT, &WORST].concat()),
                families: file("families.csv", &[["family", "group"].as_slice(), &AGREEMENT].concat()),
            }
        });
        Self { files, families: BTreeMap::new(), failures: Vec::new() }
    }

    /// Adds one run, or its failure.
    pub(super) fn add(&mut self, key: &Key, case: &Case, run: Result<Vec<Cell>, String>) {
        let Key { case: name, mode, input } = key;
        let cells = match run {
            Ok(cells) => cells,
            Err(message) => {
                self.failures.push((format!("{name} {mode} {input}"), message));
                return;
            }
        };
        for group in Group::ALL {
            let Some(agreement) = agreement(&cells, group) else { continue };
            let (site, quantity, error) = &agreement.worst;
            if let Some(files) = &mut self.files {
                let run = [&case.family, name, mode, input, group.name()];
                let worst = [site.clone(), (*quantity).to_owned(), format!("{error:.5}"), agreement.passes.to_string()];
                let numbers = agreement.numbers();
                write(&mut files.summary, run.into_iter().chain(numbers.iter().chain(&worst).map(String::as_str)));
            }
            if !agreement.passes {
                let Agreement { count, near, .. } = agreement;
                let (group, error) = (group.name(), 100.0 * error);
                self.failures.push((
                    format!("{name} {mode} {input}: {group}"),
                    format!("{near} of {count} within bounds, worst {quantity} at {site}: {error:.2} %"),
                ));
            }
        }
        self.results(key, &cells);
        self.families.entry(case.family.clone()).or_default().extend(cells);
    }

    fn results(&mut self, key: &Key, cells: &[Cell]) {
        let Some(files) = &mut self.files else { return };
        for cell in cells {
            let numbers = [cell.predicted, cell.observed, cell.std_error, cell.error(), cell.bound()];
            let numbers = numbers.map(|number| format!("{number:.6e}"));
            let (layer, ok) = (cell.layer.to_string(), cell.is_near().to_string());
            let words =
                [key.case.as_str(), &key.mode, &key.input, cell.group.name(), cell.quantity, &layer, &cell.site];
            write(&mut files.results, words.into_iter().chain(numbers.iter().map(String::as_str)).chain([ok.as_str()]));
        }
    }

    /// Writes the families. Fails if a run failed that is not known to, or if a known one did not.
    pub(super) fn finish(mut self, known: &[&str]) {
        if let Some(files) = &mut self.files {
            for (family, cells) in &self.families {
                for group in Group::ALL {
                    let Some(agreement) = agreement(cells, group) else { continue };
                    let numbers = agreement.numbers();
                    let names = [family.as_str(), group.name()];
                    write(&mut files.families, names.into_iter().chain(numbers.iter().map(String::as_str)));
                }
            }
        }
        assert!(!self.families.is_empty(), "no run was chosen");
        let is_known = |run: &str| known.contains(&run);
        let new = self.failures.iter().filter(|(run, _)| !is_known(run));
        let new: Vec<String> = new.map(|(run, message)| format!("{run}: {message}")).collect();
        assert!(new.is_empty(), "{} deviations:\n{}", new.len(), new.join("\n"));
        let failed = |run: &&&str| self.failures.iter().any(|(failed, _)| failed == **run);
        let reached: Vec<&&str> = known.iter().filter(|run| !failed(run)).collect();
        assert!(reached.is_empty(), "within bounds now, and no longer among those not reached: {reached:?}");
    }
}

fn agreement(cells: &[Cell], group: Group) -> Option<Agreement> {
    Agreement::of(group, &cells.iter().filter(|cell| cell.group == group).collect::<Vec<_>>())
}

/// Writes a record immediately, so that a run can be watched.
fn write<'r>(file: &mut Writer<File>, record: impl Iterator<Item = &'r str>) {
    file.write_record(record.map(str::as_bytes)).expect("the report can be written");
    file.flush().expect("the report can be written");
}
