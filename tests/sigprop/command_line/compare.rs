//! Comparisons of schemes.

use super::{json, refused, run, small, stderr, stdout};

#[test]
fn compare_csv_has_a_row_per_scheme() {
    let output = small("compare", &["--schemes", "normal:0.02,dslm:k=2,alpha=0.5,hf", "--format", "csv"]);
    let lines: Vec<&str> = stdout(&output).lines().collect();
    let header = "scheme,forward_per_block,forward,forward_std,backward_per_block,backward,backward_std,token_correlation,score_std,\
                  attended_tokens,gradient_ratio,worst_tensor,worst_tensor_ratio,fp16_margin,bf16_margin,e4m3_margin,\
                  e5m2_margin,grade,verdict,rule,caveat";
    assert_eq!(lines[0], header);
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(lines[1].starts_with("normal:std=0.02,") && lines[2].starts_with("\"dslm:k=2,alpha=0.5\","), "{lines:?}");
    assert!(lines[3].starts_with("hf,,,") && lines[3].contains("not defined: scheme hf needs"), "{lines:?}");
}

#[test]
fn compare_sorts_and_writes_json() {
    let sorted = json(&small("compare", &["--schemes", "all", "--sort", "forward", "--format", "json"]));
    let schemes = sorted["schemes"].as_array().expect("a list");
    let growth: Vec<f64> = schemes.iter().filter_map(|scheme| scheme["ln_forward"].as_f64()).collect();
    assert!(growth.len() > 5 && growth.is_sorted(), "{growth:?}");
    assert!(schemes[0]["findings"]["findings"][0]["rule"].is_string());
    assert!(schemes.iter().any(|scheme| scheme["caveat"].as_str().is_some_and(|text| text.contains("DeepNorm"))));
}

#[test]
fn compare_tables_fit_a_terminal() {
    let output = small("compare", &["--schemes", "all"]);
    let table = stdout(&output);
    for scheme in ["xavier ", "deepnorm ", "dslm ", "hf: not defined"] {
        assert!(table.contains(scheme), "{scheme}: {table}");
    }
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
}

#[test]
fn compare_shows_what_is_meant_for_the_network() {
    let output = small("compare", &[]);
    let table = stdout(&output);
    assert!(table.contains("dslm ") && !table.contains("caveat") && !table.contains("not defined"), "{table}");
}

#[test]
fn compare_refuses_what_it_does_not_know() {
    let message = run(&["compare", "--schemes", "xavier,gtp2"]);
    assert!(refused(&message).contains("did you mean gpt2?"), "{}", stderr(&message));
    assert!(refused(&run(&["compare", "--sort", "backwards"])).contains("backward"));
    refused(&run(&["compare", "--heads", "7"]));
}
