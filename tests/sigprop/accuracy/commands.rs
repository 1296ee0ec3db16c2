//! Tables of the networks in `data/measured/commands.csv`, which lists the flags of the command for each network.

use std::fs;

use rayon::prelude::*;
use serde::Deserialize;
use tempfile::tempdir;

use super::measured::Network;
use super::page::Table;
use super::{path, percentile};
use crate::command_line::undisturbed;

/// A row of `commands.csv`.
#[derive(Deserialize)]
struct Command {
    table: String,
    case: String,
    flags: String,
}

/// A row of the output of `validate --observed`.
#[derive(Clone, Deserialize)]
struct Row {
    site: String,
    quantity: String,
    predicted: f64,
    observed: f64,
    std_error: f64,
    relative_error: Option<f64>,
    z: Option<f64>,
}

impl Row {
    /// Returns true if the site is on the stream, not inside a block.
    fn is_on_stream(&self) -> bool {
        let inside = self.site.strip_prefix("blocks.").unwrap_or_default();
        !inside.contains('.')
    }
}

/// The measured cases of a table, each with the rows that compare it with the prediction.
fn compared(table: &str) -> Vec<(String, Vec<Row>)> {
    let mut commands = csv::Reader::from_path(path("commands.csv")).expect("the list of commands");
    let commands: Vec<Command> = commands.deserialize().collect::<Result<_, _>>().expect("rows of commands");
    let networks = Network::all(&format!("{table}.csv"));
    let chosen: Vec<(&Command, &Network)> = commands
        .iter()
        .filter(|command| command.table == table)
        .filter_map(|command| Some((command, networks.iter().find(|network| network.case == command.case)?)))
        .collect();
    assert_eq!(chosen.len(), networks.len(), "{table}: networks that are not in commands.csv");
    chosen.into_par_iter().map(|(command, network)| (command.case.clone(), beside(command, network))).collect()
}

fn beside(command: &Command, network: &Network) -> Vec<Row> {
    let folder = tempdir().expect("a folder");
    let file = folder.path().join("observed.csv");
    fs::write(&file, &network.text).expect("the file can be written");
    let output = undisturbed(env!("CARGO_BIN_EXE_sigprop"))
        .env("RAYON_NUM_THREADS", "1")
        .args(["validate", "--isolated", "-q", "--format", "csv", "--observed"])
        .arg(&file)
        .args(command.flags.split_whitespace())
        .output()
        .expect("the command starts");
    assert!(output.status.success(), "{}: {}", command.case, String::from_utf8_lossy(&output.stderr));
    csv::Reader::from_reader(&output.stdout[..]).deserialize().collect::<Result<_, _>>().expect("rows of comparisons")
}

/// Returns the line of the table of narrow encoders to which a row belongs; `None` if the row is not in the table.
fn kind(row: &Row) -> Option<&'static str> {
    Some(match (row.quantity.as_str(), row.is_on_stream()) {
        ("grad_variance", true) => "gradients of the stream",
        ("grad_token_correlation", true) => "their correlations",
        ("grad_variance", false) => "gradients inside blocks",
        ("grad_token_correlation", false) => "correlations inside blocks",
        ("weight_grad_second_moment", _) => match row.site.as_str() {
            site if site.rsplit('.').next() == Some("gain") => "gains of norms",
            site if site.contains("heads.value") => "weights of values",
            site if site.contains("heads.query") || site.contains("heads.key") => "weights of queries and keys",
            _ => "other weights",
        },
        _ => return None,
    })
}

/// Checks the table of fifteen narrow encoders: root mean squares of errors and z-scores.
#[test]
fn narrow() {
    let rows: Vec<Row> = compared("narrow").into_iter().flat_map(|(_, rows)| rows).collect();
    let kinds = [
        "gradients of the stream",
        "their correlations",
        "gradients inside blocks",
        "correlations inside blocks",
        "weights of values",
        "gains of norms",
        "other weights",
        "weights of queries and keys",
    ];
    let mut table = Table::new(&["quantity", "numbers", "median standard error", "error", "z"]);
    for name in kinds {
        let chosen: Vec<&Row> = rows.iter().filter(|row| row.z.is_some() && kind(row) == Some(name)).collect();
        // Errors of correlations are differences, all others are relative.
        let unit = |row: &Row| if name.contains("correlations") { 1.0 } else { row.observed };
        let square = |of: &dyn Fn(&Row) -> f64| chosen.iter().map(|row| of(row).powi(2)).sum::<f64>();
        let mean_square = |of: &dyn Fn(&Row) -> f64| (square(of) / chosen.len() as f64).sqrt();
        let error = mean_square(&|row| (row.predicted - row.observed) / unit(row));
        let z = mean_square(&|row| row.z.expect("it varies"));
        let noise = percentile(chosen.iter().map(|row| row.std_error / unit(row)), 0.5);
        table.row(&[
            name.to_owned(),
            chosen.len().to_string(),
            format!("{:.2}", 100.0 * noise),
            format!("{:.2}", 100.0 * error),
            format!("{z:.2}"),
        ]);
    }
    table.check("narrow");
}

/// Checks a table of standard deviations over initialisations: the largest error among the sites of every network.
fn spread(name: &str, networks: &[(String, Vec<Row>)]) {
    let mut table = Table::new(&["network", "forward: worst", "backward: worst"]);
    for (case, rows) in networks {
        let worst = |quantity: &str| {
            let chosen = rows.iter().filter(|row| row.quantity == quantity && row.z.is_some());
            let errors = chosen.filter_map(|row| row.relative_error);
            format!("{:.0} %", 100.0 * errors.map(f64::abs).fold(0.0, f64::max))
        };
        table.row(&[case.clone(), worst("ln_variance_std"), worst("ln_grad_variance_std")]);
    }
    table.check(name);
}

#[test]
fn spread_of_encoders() {
    spread("encoders-spread", &compared("encoders-spread"));
}

#[test]
fn spread_of_residual_mlps() {
    spread("residual-spread", &compared("residual-spread"));
}

/// The table has the larger error of the two input correlations.
#[test]
fn spread_of_mlps() {
    let mut networks: Vec<(String, Vec<Row>)> = Vec::new();
    for (case, rows) in compared("mlp-spread") {
        let name = case.split(", input correlation").next().unwrap_or_default();
        match networks.last_mut().filter(|(last, _)| last == name) {
            Some((_, both)) => both.extend(rows),
            None => networks.push((name.to_owned(), rows)),
        }
    }
    spread("mlp-spread", &networks);
}
