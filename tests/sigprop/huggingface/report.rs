//! What the comparison found: results.csv cell by cell, summary.csv run by run and group by group, families.csv.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::Path,
};

use csv::Writer;

use super::{
    case::{Case, Key},
    gate::{Cell, Verdict},
    names::Group,
};

pub(super) struct Report {
    files: Option<Files>,
    /// Cells and cells near, by family and group.
    families: BTreeMap<(String, Group), [usize; 2]>,
    failures: Vec<String>,
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
const SUMMARY: [&str; 11] =
    ["family", "case", "mode", "input", "group", "cells", "near", "worst_site", "worst_quantity", "worst_error", "ok"];

impl Report {
    /// Writes into a folder, if there is one.
    pub(super) fn new(folder: Option<&Path>) -> Self {
        let files = folder.map(|folder| {
            fs::create_dir_all(folder).expect("the folder of the report can be made");
            let file = |name, header: &[&str]| {
                let mut file = Writer::from_path(folder.join(name)).expect("the report can be written");
                file.write_record(header).expect("the report can be written");
                file
            };
            Files {
                results: file("results.csv", &RESULTS),
                summary: file("summary.csv", &SUMMARY),
                families: file("families.csv", &["family", "group", "cells", "near", "share"]),
            }
        });
        Self { files, families: BTreeMap::new(), failures: Vec::new() }
    }

    /// Takes down one run.
    pub(super) fn add(&mut self, key: &Key, case: &Case, run: Result<Vec<Cell>, String>) {
        let Key { case: name, mode, input } = key;
        let cells = match run {
            Ok(cells) => cells,
            Err(message) => {
                self.failures.push(format!("{name} {mode} {input}: {message}"));
                self.summary(&[&case.family, name, mode, input, "none", "0", "0", &message, "", "", "false"]);
                return;
            }
        };
        self.results(key, &cells);
        for group in Group::ALL {
            let Verdict { count, near, worst, passes } = Verdict::of(&cells, group);
            let Some((site, quantity, error)) = worst else { continue };
            let (count_text, near_text, ok) = (count.to_string(), near.to_string(), passes.to_string());
            let fields = [&case.family, name, mode, input, group.name(), &count_text, &near_text, &site, quantity];
            self.summary(&[fields.as_slice(), &[&format!("{error:.5}"), &ok]].concat());
            let [all, fine] = self.families.entry((case.family.clone(), group)).or_default();
            *all += count;
            *fine += near;
            if !passes {
                let group = group.name();
                self.failures.push(format!(
                    "{name} {mode} {input}: {group}: {near} of {count} within bounds, worst {quantity} at {site}: {:.2} %",
                    100.0 * error
                ));
            }
        }
    }

    fn results(&mut self, key: &Key, cells: &[Cell]) {
        let Some(files) = &mut self.files else { return };
        for cell in cells {
            let numbers = [cell.predicted, cell.observed, cell.std_error, cell.error(), cell.bound()];
            let numbers = numbers.map(|number| format!("{number:.6e}"));
            let layer = cell.layer.to_string();
            let words =
                [key.case.as_str(), &key.mode, &key.input, cell.group.name(), cell.quantity, &layer, &cell.site];
            let record = words.into_iter().chain(numbers.iter().map(String::as_str)).map(str::to_owned);
            let record = record.chain([cell.is_near().to_string()]);
            files.results.write_record(record).expect("the report can be written");
        }
        files.results.flush().expect("the report can be written");
    }

    fn summary(&mut self, record: &[&str]) {
        let Some(files) = &mut self.files else { return };
        files.summary.write_record(record).expect("the report can be written");
        files.summary.flush().expect("the report can be written");
    }

    /// Writes the families and fails if any run did.
    pub(super) fn finish(mut self) {
        if let Some(files) = &mut self.files {
            for ((family, group), [all, near]) in &self.families {
                let share = format!("{:.4}", *near as f64 / *all as f64);
                let record = [family, group.name(), &all.to_string(), &near.to_string(), &share];
                files.families.write_record(record).expect("the report can be written");
            }
            files.families.flush().expect("the report can be written");
        }
        assert!(!self.families.is_empty(), "no run was compared: {}", self.failures.join("\n"));
        assert!(self.failures.is_empty(), "{} deviations:\n{}", self.failures.len(), self.failures.join("\n"));
    }
}
