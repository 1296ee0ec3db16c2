//! Differences of two reports.

use super::{folder, json, path, refused, run, small, stderr, stdout, written};

#[test]
fn what_moved_is_told_the_largest_first() {
    let folder = folder();
    let report = |name: &str, arguments: &[&str]| {
        let target = path(&folder, name);
        stdout(&small("predict", &[&["--format", "json", "-q", "-o", &target], arguments].concat()));
        target
    };
    let xavier = report("a.json", &["--norm-placement", "post"]);
    let same = report("b.json", &["--norm-placement", "post"]);
    let large = report("c.json", &["--norm", "none", "--scheme", "normal:3"]);

    let nothing = run(&["diff", &xavier, &same, "--max-difference", "1e-12"]);
    assert!(stdout(&nothing).starts_with("0 of "), "{}", stdout(&nothing));
    assert!(stdout(&nothing).contains("Verdict: healthy: nothing explodes, vanishes or collapses, in both"));

    let moved = run(&["diff", &xavier, &large]);
    let sizes: Vec<f64> = {
        let document = json(&run(&["diff", &xavier, &large, "--format", "json"]));
        let rows = document["differences"].as_array().expect("a list").clone();
        rows.iter().map(|row| row["size"].as_f64().expect("a number")).collect()
    };
    assert!(sizes.is_sorted_by(|a, b| a >= b) && sizes[0] > 1.0, "{sizes:?}");
    assert!(stdout(&moved).contains("→ not trainable: forward explodes"), "{}", stdout(&moved));
    assert!(stdout(&moved).contains("  + forward explodes"), "{}", stdout(&moved));

    let failed = run(&["diff", &xavier, &large, "--max-difference", "1%", "--format", "csv"]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(stderr(&failed).contains("more than --max-difference 0.01"), "{}", stderr(&failed));
}

#[test]
fn what_is_no_report_is_refused() {
    let folder = folder();
    let other = written(&folder, "other.json", b"{\"schema_version\": 1}");
    assert!(refused(&run(&["diff", &other, &other])).contains("other.json: expected a report of predict"));
    let broken = written(&folder, "broken.json", b"{");
    assert!(refused(&run(&["diff", &broken, &other])).contains("broken.json"));
    assert!(refused(&run(&["diff", &path(&folder, "none.json"), &other])).contains("cannot read"));
}
