//! Tables of committed numbers.

use std::{collections::BTreeMap, env, path::PathBuf};

/// The tolerance: relative for variances, and for their logarithms if these are larger than 1; absolute for
/// correlations. Processors differ in the last bits of their elementary functions.
const TOLERANCE: f64 = 1e-10;
/// Numbers are written in multiples of 1/`STEPS`: finer than the tolerance, coarser than the differences between
/// processors.
const STEPS: f64 = 1e12;
const ADVICE: &str = "if they are meant to change, `SIGPROP_GOLDEN=write cargo test --test sigprop golden` writes them \
                      anew, and CHANGELOG explains it under *Numbers changed*";

/// A file in `golden/`: columns of names, which identify rows, and of numbers.
pub(super) struct Table {
    pub(super) file: &'static str,
    pub(super) names: &'static [&'static str],
    pub(super) numbers: &'static [&'static str],
}

/// The names of a row and its numbers; `None` if a number does not exist.
pub(super) type Row = (Vec<String>, Vec<Option<f64>>);

type Rows = BTreeMap<Vec<String>, Vec<Option<f64>>>;

impl Table {
    /// Fails if rows differ from the committed ones, or writes them with `SIGPROP_GOLDEN=write`.
    pub(super) fn check(&self, got: Vec<Row>) {
        match env::var("SIGPROP_GOLDEN").as_deref() {
            Ok("write") => self.write(got),
            Ok(other) => panic!("SIGPROP_GOLDEN is `write` or not there, got {other:?}"),
            Err(_) => {
                let changes = self.changes(&self.read(), &got.into_iter().collect());
                assert!(changes.is_empty(), "{} numbers changed; {ADVICE}\n{}", changes.len(), changes.join("\n"));
            }
        }
    }

    /// One line for every number that differs from the committed one.
    fn changes(&self, committed: &Rows, got: &Rows) -> Vec<String> {
        let tell = |number: Option<f64>| number.map_or("none".to_owned(), |value| value.to_string());
        let keys = committed.keys().chain(got.keys().filter(|key| !committed.contains_key(*key)));
        let changed = keys.flat_map(|key| {
            let number = |rows: &Rows, column: usize| rows.get(key).and_then(|row| row[column]);
            let cells = self.numbers.iter().enumerate();
            let cells = cells.map(move |(column, name)| (name, number(committed, column), number(got, column)));
            cells.filter(|(_, before, now)| !agree(*before, *now)).map(move |(name, before, now)| {
                format!("{}, {name}: committed {}, got {}", key.join(", "), tell(before), tell(now))
            })
        });
        changed.collect()
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/sigprop/golden").join(self.file)
    }

    fn read(&self) -> Rows {
        let number = |text: &str| (!text.is_empty()).then(|| text.parse().expect(ADVICE));
        let lines = csv::Reader::from_path(self.path()).expect(ADVICE).into_records();
        let row = |record: csv::StringRecord| {
            let fields: Vec<&str> = record.iter().collect();
            let (names, numbers) = fields.split_at(self.names.len());
            assert_eq!(numbers.len(), self.numbers.len(), "{}: {ADVICE}", self.file);
            (names.iter().map(|&name| name.to_owned()).collect(), numbers.iter().map(|text| number(text)).collect())
        };
        lines.map(|record| row(record.expect(ADVICE))).collect()
    }

    fn write(&self, got: Vec<Row>) {
        // Adding zero turns −0 into 0.
        let rounded = |value: f64| (value * STEPS).round() / STEPS + 0.0;
        let mut writer = csv::Writer::from_path(self.path()).expect("the file can be written");
        writer.write_record(self.names.iter().chain(self.numbers)).expect("the file can be written");
        for (names, numbers) in got {
            let numbers =
                numbers.into_iter().map(|number| number.map_or(String::new(), |value| rounded(value).to_string()));
            writer.write_record(names.into_iter().chain(numbers)).expect("the file can be written");
        }
        writer.flush().expect("the file can be written");
    }
}

/// Returns true if both are equal within [`TOLERANCE`].
fn agree(committed: Option<f64>, got: Option<f64>) -> bool {
    match (committed, got) {
        // Equal infinities are logarithms of zero.
        (Some(committed), Some(got)) => {
            let close = (got - committed).abs() <= TOLERANCE * committed.abs().max(1.0);
            (committed.is_finite() && close) || committed.total_cmp(&got).is_eq()
        }
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

#[test]
fn a_change_is_told_by_its_place() {
    let table = Table { file: "", names: &["network", "scheme", "site"], numbers: &["a", "b", "c", "d"] };
    let key = |site: &str| ["gpt2", "hf", site].map(str::to_owned).to_vec();
    let committed = vec![Some(30.0), Some(0.5), Some(f64::NEG_INFINITY), None];
    let within = vec![Some(30.0 + 2e-9), Some(0.5 - 5e-11), Some(f64::NEG_INFINITY), None];
    let beyond = vec![Some(30.0 + 4e-9), Some(0.5 - 2e-10), Some(-1e9), Some(0.0)];
    let told = |got| table.changes(&BTreeMap::from([(key("a"), committed.clone())]), &BTreeMap::from([got]));
    assert_eq!(told((key("a"), within.clone())), [""; 0]);
    let lines = told((key("a"), beyond));
    assert_eq!(lines.len(), 4);
    assert_eq!(lines[2], "gpt2, hf, a, c: committed -inf, got -1000000000");
    let elsewhere = told((key("b"), within));
    assert_eq!(elsewhere.len(), 6);
    assert_eq!(elsewhere[3], "gpt2, hf, b, a: committed none, got 30.000000002");
}
