use roxmltree::{Document, Node};
use sigprop_stack::{Cell, Number, Quantity, SiteRow, SiteTable};

use super::*;
use crate::architecture::Architecture;
use crate::compare::{Setting, compare};
use crate::schemes::Scheme;

pub(super) const SHAPE: Shape = Shape { width: 64, seq_len: 16 };

/// A stream of these variances, with twice their inverses as gradient variances, each ± 0.5, and a final norm.
fn table(variances: &[Number], std_error: f64) -> SiteTable {
    let row = |layer: i64, site: String, variance: Number| {
        let mut cells = [None; Quantity::ALL.len()];
        let mut set = |quantity: Quantity, value: Number| {
            let std_error = Number::scaled(std_error, value.ln_abs());
            cells[quantity as usize] = Some(Cell { value, std_error });
        };
        set(Quantity::Variance, variance);
        set(Quantity::GradVariance, Number::scaled(2.0, -variance.ln_abs()));
        set(Quantity::TokenCorrelation, 0.25.into());
        set(Quantity::LnVarianceStd, 0.5.into());
        set(Quantity::LnGradVarianceStd, 0.5.into());
        SiteRow { layer, site, is_stream_site: true, cells }
    };
    let site = |layer: i64| if layer < 0 { "embeddings".to_owned() } else { format!("blocks.{layer}") };
    let layers = (-1..).zip(variances);
    let mut sites: Vec<SiteRow> = layers.map(|(layer, variance)| row(layer, site(layer), *variance)).collect();
    sites.push(row(variances.len() as i64 - 1, "final_norm".to_owned(), 1.0.into()));
    SiteTable { sites, weights: Vec::new() }
}

pub(super) fn prediction(variances: &[f64]) -> Prediction {
    let variances: Vec<Number> = variances.iter().copied().map(Number::from).collect();
    Prediction { table: table(&variances, 0.0), ..Prediction::default() }
}

fn drawn(picture: &Picture) -> String {
    let mut out = Vec::new();
    picture.write_svg(&mut out).expect("a vector takes everything");
    String::from_utf8(out).expect("SVG is text")
}

fn parsed(text: &str) -> Document<'_> {
    Document::parse(text).expect("SVG is XML")
}

fn of_class<'d>(document: &'d Document, class: &str) -> Vec<Node<'d, 'd>> {
    document.descendants().filter(|node| node.attribute("class") == Some(class)).collect()
}

fn texts<'d>(document: &'d Document) -> Vec<&'d str> {
    document.descendants().filter_map(|node| node.text()).map(|text| text.trim_matches('\n')).collect()
}

#[test]
fn an_exponential_is_a_straight_line_with_its_band() {
    let text = drawn(&Picture::of_prediction("a network", &prediction(&[1.0, 10.0, 100.0]), SHAPE));
    let document = parsed(&text);
    // Gradients have no token correlation here.
    let [counts, scales] = [["curve", "band", "point", "mark"], ["panel", "log", "linear", "marker"]]
        .map(|classes| classes.map(|class| of_class(&document, class).len()));
    assert_eq!((counts, scales), ([3, 2, 0, 0], [3, 2, 1, 0]));
    // From e^−0.625 to 100 e^0.375 and 3 % more at both ends: 1 is at (0.625 + 0.03 s)/(1.06 s) of 220, s = 1 + ln 100.
    let curves: Vec<_> = of_class(&document, "curve").iter().filter_map(|curve| curve.attribute("d")).collect();
    assert_eq!(curves[..2], ["M0.0 190.6L390.0 20.1", "M0.0 20.1L390.0 190.6"]);
}

#[test]
fn observations_have_bars() {
    let predicted = prediction(&[1.0, 10.0, 100.0]);
    let observed = table(&[1.1, 9.0, 110.0].map(Number::from), 0.1);
    let counts = |replicates| {
        let comparisons = crate::agreement::compare(&predicted.table, &observed, replicates);
        let text = drawn(&Picture::of_validation("a network", &predicted, &comparisons, SHAPE));
        let counts = ["curve", "point", "bar"].map(|class| of_class(&parsed(&text), class).len());
        (counts, text.contains("95 % interval"))
    };
    assert_eq!(counts(16), ([3, 9, 9], true));
    // One network has no standard error.
    assert_eq!(counts(1), ([3, 9, 0], false));
}

#[test]
fn many_points_are_thinned_and_the_legend_says_so() {
    let variances = [1.0; 100].map(Number::from);
    let predicted = prediction(&[1.0; 100]);
    let comparisons = crate::agreement::compare(&predicted.table, &table(&variances, 0.1), 16);
    let text = drawn(&Picture::of_validation("a network", &predicted, &comparisons, SHAPE));
    assert_eq!(of_class(&parsed(&text), "point").len(), 3 * 34);
    assert!(text.contains("observed, 95 % interval, one of 3 shown"), "{text}");
}

/// 1024 entries: the largest expected one is 3.7 standard deviations, beyond 65504 at 1e9 = (31623)² and beyond bf16
/// and f32 at 1e80.
#[test]
fn formats_are_marked_where_they_overflow() {
    let text = drawn(&Picture::of_prediction("a network", &prediction(&[1.0, 1e8, 1e9, 1e80]), SHAPE));
    let document = parsed(&text);
    assert_eq!(of_class(&document, "mark").len(), 2);
    let labels = texts(&document);
    assert!(labels.contains(&"fp16") && labels.contains(&"bf16, f32"), "{labels:?}");
}

#[test]
fn schemes_have_curves_of_their_own() {
    let setting = Setting::from(Architecture { n_layers: 6, ..Architecture::default() });
    let curves = |schemes: &str| {
        let schemes = Scheme::parse_list(schemes).expect("schemes");
        let candidates = compare(&setting, &schemes).expect("a network");
        let text = drawn(&Picture::of_comparison("networks", &candidates));
        let document = parsed(&text);
        for scheme in &schemes {
            let label = scheme.label();
            assert!(texts(&document).contains(&label.as_str()), "{label}");
        }
        ["curve", "band"].map(|class| of_class(&document, class).len())
    };
    assert_eq!(curves("xavier,dslm"), [8, 4]);
    assert_eq!(curves("xavier,gpt2,dslm,normal:0.02"), [16, 0]);
}

#[test]
fn any_name_and_nothing_at_all_is_xml() {
    let text = drawn(&Picture::of_prediction("a<b> & \"c\"\u{1}", &prediction(&[1.0]), SHAPE));
    assert!(texts(&parsed(&text)).contains(&"a<b> & \"c\" "), "{text}");
    let nothing = Prediction::default();
    let text = drawn(&Picture::of_prediction("", &nothing, SHAPE));
    assert!(of_class(&parsed(&text), "panel").is_empty());
}
