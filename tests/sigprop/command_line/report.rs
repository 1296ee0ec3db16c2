//! Reports for browsers (their scripts are tested in `tests/browser/`) and curves in the terminal.

use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::read::GzDecoder;

use super::*;

/// The document that a report contains under this id.
pub(super) fn document(report: &str, id: &str) -> Value {
    let text = fs::read_to_string(report).expect("the report is there");
    let (_, rest) = text.split_once(&format!("id=\"{id}\">")).expect("the document is there");
    let packed = STANDARD.decode(rest.split_once("</script>").expect("it ends").0).expect("it is base64");
    serde_json::from_reader(GzDecoder::new(&packed[..])).expect("it is JSON")
}

#[test]
fn a_report_holds_what_decided_the_result() {
    let folder = folder();
    let report = path(&folder, "report.html");
    let plain = small("predict", &["--seed", "7"]);
    assert_eq!(stdout(&small("predict", &["--seed", "7", "--report", &report])), stdout(&plain));
    let run = document(&report, "run");
    assert_eq!((&run["seed"], &run["command"][0]), (&Value::from(7), &Value::from("sigprop")));
    assert_eq!(run["command"].as_array().map(Vec::len), Some(1 + 1 + SMALL.len() + 4));
    let stack = written(&folder, "stack.json", document(&report, "stack").to_string().as_bytes());
    let again = json(&run_with_json(&["predict", "--stack", &stack]));
    assert_eq!(again, document(&report, "prediction"));

    stdout(&small("validate", &["--replicates", "2", "--report", &report]));
    assert_eq!(document(&report, "validation")["replicates"], 2);
    stdout(&small("compare", &["--schemes", "xavier,dslm", "--report", &report]));
    let networks = document(&report, "networks");
    assert_eq!(networks[1]["scheme"], "dslm:k=2,alpha=1");
    assert_eq!(networks[1]["plan"]["scheme"], "dslm:k=2,alpha=1");
}

fn run_with_json(arguments: &[&str]) -> Output {
    run(&[arguments, &["--format", "json"]].concat())
}

#[test]
fn reports_that_cannot_be_written_are_refused() {
    let folder = folder();
    let nowhere = path(&folder, "missing/report.html");
    for subcommand in ["predict", "validate", "compare"] {
        let output = small(subcommand, &["--report", &path(&folder, "report.pdf")]);
        assert!(refused(&output).contains("expected a file named *.html"), "{}", stderr(&output));
        let output = small(subcommand, &["--report", &nowhere]);
        assert!(refused(&output).contains(&format!("cannot write {nowhere}")), "{}", stderr(&output));
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
}

#[test]
fn curves_come_when_asked_for() {
    let plain = small("predict", &[]);
    assert_eq!(stdout(&small("predict", &["--curve", "never"])), stdout(&plain));
    for (how, sign) in [("braille", '│'), ("ascii", '*')] {
        let output = small("predict", &["--curve", how]);
        let (title, table) = stdout(&plain).split_once("\n\n").expect("a title");
        let curve = stdout(&output).strip_prefix(title).and_then(|rest| rest.strip_suffix(table));
        let curve = curve.expect("the curve stands between title and table");
        assert!(curve.contains("forward: variance") && curve.contains(sign), "{curve}");
        assert!(curve.lines().all(|line| line.chars().count() <= 80), "{curve}");
        assert_eq!(curve.is_ascii(), how == "ascii");
    }
    let sampled = small("validate", &["--replicates", "2", "--curve", "ascii"]);
    assert!(stdout(&sampled).contains("(o: observed)"), "{}", stdout(&sampled));
    for subcommand in ["predict", "validate"] {
        let output = small(subcommand, &["--curve", "braille", "--format", "csv"]);
        assert!(refused(&output).contains("--curve: expected --format table"), "{}", stderr(&output));
    }
}

#[test]
fn titles_tell_depth_and_norms() {
    let first = |arguments: &[&str]| stdout(&small("predict", arguments)).lines().next().map(str::to_owned);
    let expected = "encoder: 2 blocks, post-norm, width 64, 16 tokens, scheme xavier";
    assert_eq!(first(&["--norm-placement", "post"]).as_deref(), Some(expected));
    let expected = "encoder: 2 blocks, width 64, 16 tokens, scheme xavier";
    assert_eq!(first(&["--norm", "none"]).as_deref(), Some(expected));
}
