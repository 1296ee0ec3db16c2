//! Maps, as scripts read them.

use super::*;

const AXES: [&str; 4] = ["--x", "skip-scale=0.002..2:3", "--y", "branch-scale=0..1:2"];

fn map(arguments: &[&str]) -> Output {
    small("phase", &[AXES.as_slice(), arguments].concat())
}

#[test]
fn phase_csv_has_a_row_per_cell_or_per_vertex() {
    let output = map(&["--format", "csv"]);
    let lines: Vec<&str> = stdout(&output).lines().collect();
    let header = "x,y,forward_depth,backward_depth,correlation_depth,ln_forward,ln_backward,\
                  token_correlation,attended_tokens,failures,grade,verdict,rule,caveat";
    assert_eq!(lines[0], header);
    assert_eq!(lines.len(), 7, "{lines:?}");
    // Two skips of √0.004 per block give 1/ln 0.004².
    assert!(lines[2].starts_with("0.0632455") && lines[2].contains(",0,-0.09055"), "{lines:?}");
    assert!(lines[1].contains(",vanishing,"), "{lines:?}");
    let output = map(&["--format", "csv", "--edges"]);
    let lines: Vec<&str> = stdout(&output).lines().collect();
    assert_eq!(lines[0], "edge,line,x,y");
    assert!(lines[1..].iter().any(|line| line.starts_with("vanishing,0,")), "{lines:?}");
}

#[test]
fn phase_json_has_cells_and_edges() {
    let document = json(&map(&["--format", "json", "--scheme", "gpt2"]));
    assert_eq!((&document["scheme"], &document["y"]["log"]), (&"gpt2".into(), &false.into()));
    assert_eq!(document["cells"].as_array().map(Vec::len), Some(6));
    assert!(document["cells"][0]["findings"]["headline"].is_string(), "{document}");
    assert_eq!(document["edges"][0]["failure"], "vanishing");
    assert!(document["edges"][0]["lines"][0][0][0].is_number());
}

#[test]
fn phase_tables_and_pictures_show_the_edges() {
    let folder = folder();
    let picture = path(&folder, "map.svg");
    let output = map(&["--plot", &picture]);
    let table = stdout(&output);
    assert!(table.contains("V: vanishes") && table.contains("found by bisection"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    let text = fs::read_to_string(&picture).expect("the picture is there");
    let document = roxmltree::Document::parse(&text).expect("SVG is XML");
    let count = |class| document.descendants().filter(|node| node.attribute("class") == Some(class)).count();
    assert!(count("area") >= 1 && count("edge") >= count("area"), "{text}");
    assert!(text.contains("url(#hatch-1)") && text.contains("id=\"hatch-1\""), "{text}");
}

#[test]
fn phase_refuses_what_it_cannot_vary() {
    let message = |arguments: &[&str]| refused(&small("phase", arguments)).to_owned();
    let y = ["--y", "branch-scale=0.1..1"];
    let with = |x: &str| message(&[["--x", x].as_slice(), &y].concat());
    assert!(with("weight-gian=1..2").contains("did you mean weight-gain?"));
    assert!(with("weight-gain=2..1").contains("LOW below HIGH"));
    assert!(with("branch-scale=1..2").contains("two different axes"));
    assert!(with("bias-std=-1..2").contains("must be not negative"));
    assert!(message(&[AXES.as_slice(), &["--skip-scale", "1"]].concat()).contains("given and varied"));
    assert!(message(&[AXES.as_slice(), &["--edges"]].concat()).contains("expected --format csv, jsonl or md"));
    assert!(
        refused(&run(&["phase", "mlp", "--x", "score-gain=1..2", "--y", "weight-gain=1..2"]))
            .contains("changes nothing")
    );
    refused(&small("phase", &y));
}
