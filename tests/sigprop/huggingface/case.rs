//! Measurements: the tables of a folder of reference measurements (see docs/huggingface.md).

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use csv::StringRecord;
use serde::Deserialize;

/// A row of cases.csv: one model and kind of input.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Case {
    #[serde(rename = "case_id")]
    pub(super) name: String,
    pub(super) family: String,
    pub(super) seq_len: usize,
    pub(super) seq_len_dec: Option<usize>,
    pub(super) batch: usize,
    pub(super) input_kind: String,
}

/// A row of truth.csv.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Measured {
    case_id: String,
    mode: String,
    input_kind: String,
    pub(super) seed_count: usize,
    pub(super) layer_index: i64,
    pub(super) site: String,
    pub(super) stat: String,
    #[serde(rename = "mean_over_seeds")]
    pub(super) value: f64,
    #[serde(rename = "stderr_over_seeds")]
    pub(super) std_error: f64,
}

/// One model in one mode with one kind of input.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) case: String,
    pub(super) mode: String,
    pub(super) input: String,
}

/// A folder of reference measurements.
pub(super) struct Reference {
    folder: PathBuf,
    /// The cases by name and kind of input.
    pub(super) cases: BTreeMap<(String, String), Case>,
    pub(super) runs: BTreeMap<Key, Vec<Measured>>,
}

impl Reference {
    pub(super) fn read(folder: &Path) -> Self {
        let cases = rows(folder.join("cases.csv"));
        let cases = cases.map(|case: Case| ((case.name.clone(), case.input_kind.clone()), case)).collect();
        let mut runs: BTreeMap<Key, Vec<Measured>> = BTreeMap::new();
        for row in repeated(&folder.join("truth.csv")) {
            let key = Key { case: row.case_id.clone(), mode: row.mode.clone(), input: row.input_kind.clone() };
            runs.entry(key).or_default().push(row);
        }
        Self { folder: folder.to_owned(), cases, runs }
    }

    /// The text of the config of a case.
    pub(super) fn config(&self, case: &str) -> String {
        let path = self.folder.join(format!("configs/{case}.json"));
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The path of the ids that a stream (`in`, `enc`, `dec`) read.
    pub(super) fn tokens(&self, case: &str, input: &str, stream: &str) -> PathBuf {
        self.folder.join(format!("tokens/{case}.{input}.{stream}.npy"))
    }
}

fn rows<T: for<'de> Deserialize<'de>>(path: PathBuf) -> impl Iterator<Item = T> {
    let reader = csv::Reader::from_path(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    reader.into_deserialize().map(move |row| row.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

/// Reads the measurements. A blank field repeats the line above; numbers are never blank.
fn repeated(path: &Path) -> Vec<Measured> {
    let mut reader = csv::Reader::from_path(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let header = reader.headers().expect("a header").clone();
    let mut above = StringRecord::new();
    let mut measured = Vec::new();
    for record in reader.records() {
        let record = record.expect("a row");
        let fields = record.iter().enumerate();
        let full =
            fields.map(|(place, field)| if field.is_empty() { above.get(place).unwrap_or_default() } else { field });
        above = full.collect();
        measured.push(above.deserialize(Some(&header)).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
    }
    measured
}
