use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::read::GzDecoder;
use sigprop_stack::{Cell, Number, Quantity, SiteRow, parameters};

use super::formulas::{ALL, Rule};
use super::*;
use crate::architecture::Architecture;
use crate::assemble::{Input, assemble};
use crate::cost::Cost;
use crate::huggingface::Names;
use crate::report::{Field, Rows};
use crate::verdict::Verdict;
use crate::{Prediction, Sites, predict};

const HOSTILE: &str = "</script><img src=x onerror=alert(1)>";

fn network(architecture: &Architecture) -> Drawn {
    let scheme = Scheme::parse("dslm").expect("a scheme");
    let stack = assemble(architecture, &scheme, &Input::default(), &crate::assemble::Run::default());
    let stack = stack.expect("a network").stack;
    let held = Names::own(architecture).held(&parameters(&stack).expect("a checked stack"));
    let plan = Plan::new(&stack, Some(scheme.to_string()), &held);
    Drawn { scheme: Some(scheme), stack, plan }
}

fn small() -> Architecture {
    Architecture { name: Some(HOSTILE.to_owned()), n_layers: 2, d_model: 64, seq_len: 8, ..Architecture::default() }
}

/// Returns the report of a prediction.
fn page(drawn: Drawn, prediction: &Prediction) -> String {
    let networks = [drawn];
    let stack = &networks[0].stack;
    let command = ["sigprop".to_owned(), HOSTILE.to_owned()];
    let origin = Origin {
        title: HOSTILE,
        command: &command,
        command_line: HOSTILE,
        settings: &[],
        seed: u64::MAX,
        summary: HOSTILE,
        networks: &networks,
    };
    let verdict = Verdict::of(prediction, Shape::of(stack), None);
    let cost = Cost::of(stack, None).expect("a checked stack");
    let document = PredictionDocument {
        stack,
        prediction,
        weights: true,
        verdict: &verdict,
        cost: &cost,
        loss: None,
        update: None,
    };
    let mut out = Vec::new();
    prediction_html(&origin, &document, &mut out).expect("a vector takes everything");
    String::from_utf8(out).expect("HTML is text")
}

/// Returns the content of an element that a page holds for its scripts.
fn element<'a>(page: &'a str, kind: &str, id: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("<script type=\"application/{kind}\" id=\"{id}\">")).expect("it is there");
    rest.split_once("</script>").expect("it ends").0
}

/// Returns the data that the scripts draw.
fn data(page: &str) -> serde_json::Value {
    serde_json::from_str(element(page, "json", "data")).expect("it is JSON")
}

/// Returns a document that a page offers as a download.
fn document(page: &str, id: &str) -> serde_json::Value {
    let packed = STANDARD.decode(element(page, "gzip", id)).expect("it is base64");
    serde_json::from_reader(GzDecoder::new(&packed[..])).expect("it is JSON")
}

#[test]
fn names_cannot_end_what_they_stand_in() {
    let drawn = network(&small());
    let prediction = predict(&drawn.stack, Sites::Stream).expect("a prediction");
    let page = page(drawn, &prediction);
    assert!(!page.contains("<img"), "{page}");
    assert_eq!(page.matches("</script>").count(), 6, "data, four downloads and the program");
    assert_eq!(document(&page, "stack")["name"], HOSTILE);
    assert_eq!(document(&page, "prediction")["stack"], HOSTILE);
    assert_eq!(document(&page, "run")["command"][1], HOSTILE);
    assert_eq!(document(&page, "run")["seed"], u64::MAX);
    assert_eq!(document(&page, "plan")["scheme"], "dslm:k=2,alpha=1");
    assert_eq!(data(&page)["tables"][1]["title"], "Weights");
}

/// 10^-20000 and 10^40000 are −20000 and 40000 on their axis, and decimal text in the table.
#[test]
fn numbers_beyond_f64_are_drawn() {
    let row = |layer: i64, exponent: f64| {
        let mut cells = [None; Quantity::ALL.len()];
        cells[Quantity::Variance as usize] = Some(Cell::exact(Number::from_ln(exponent * std::f64::consts::LN_10)));
        SiteRow { layer, site: format!("site.{layer}"), is_stream_site: true, cells }
    };
    let table = SiteTable { sites: vec![row(-1, -20_000.0), row(0, 40_000.0)], weights: Vec::new() };
    let prediction = Prediction { table, ..Prediction::default() };
    let data = data(&page(network(&small()), &prediction));
    let panel = &data["chart"]["panels"][0];
    assert_eq!(panel["log"], true);
    for (vertex, expected) in [(0, [0.0, -20_000.0]), (1, [1.0, 40_000.0])] {
        for (place, expected) in expected.into_iter().enumerate() {
            let found = panel["curves"][0]["vertices"][vertex][place].as_f64().expect("a number");
            assert!((found - expected).abs() < 1e-6, "{panel}");
        }
    }
    assert_eq!(data["tables"][0]["columns"], serde_json::json!(["layer", "site", "variance", "ln_variance"]));
    assert_eq!(data["tables"][0]["rows"][1][2], "1e40000");
}

#[test]
fn tables_of_different_columns_are_joined() {
    let table = |row: [Field; 3]| Table::new("Sites", &Rows::new(["a", "b", "c"], [row]));
    let wide = table([1_i64.into(), 2_i64.into(), 3_i64.into()]);
    let narrow = table([4_i64.into(), Field::Blank, 6_i64.into()]);
    let joined = Table::joined(&[narrow.labelled("scheme", "x"), wide.labelled("scheme", "y")]).expect("tables");
    let expected = serde_json::json!({
        "title": "Sites",
        "columns": ["scheme", "a", "b", "c"],
        "rows": [["x", "4", "", "6"], ["y", "1", "2", "3"]],
    });
    assert_eq!(serde_json::to_value(joined).expect("JSON"), expected);
}

#[test]
fn rules_are_those_of_the_network() {
    let names = |architecture: &Architecture| {
        let Drawn { stack, .. } = network(architecture);
        Rule::of(std::iter::once(&stack)).into_iter().map(|rule| rule.name).collect::<Vec<_>>()
    };
    let expected = ["activation", "attention", "embedding", "finite width", "linear", "norm", "softmax", "sum"];
    assert_eq!(names(&small()), expected);
}

#[test]
fn every_rule_has_a_header() {
    for rule in ALL {
        let html = rule.html();
        assert!(html.starts_with("<p>") && !html.contains("//!") && !html.contains("[<code>"), "{}: {html}", rule.name);
    }
    let linear = ALL.iter().find(|rule| rule.name == "linear").expect("a rule").html();
    for part in ["E y_a y_b = n_in s² E x_a x_b + s_bias²", "Source: Kedia et al. 2024"] {
        assert!(linear.contains(part), "{linear}");
    }
}
