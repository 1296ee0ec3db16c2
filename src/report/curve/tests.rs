use sigprop_stack::{Cell, Number, Quantity, SiteRow, SiteTable};

use super::*;

const SHAPE: Shape = Shape { width: 64, seq_len: 16 };

fn prediction(variances: &[Number]) -> Prediction {
    let sites = (-1..).zip(variances).map(|(layer, variance)| {
        let mut cells = [None; Quantity::ALL.len()];
        cells[Quantity::Variance as usize] = Some(Cell::exact(*variance));
        cells[Quantity::GradVariance as usize] = Some(Cell::exact(1.0));
        let site = if layer < 0 { "embeddings".to_owned() } else { format!("blocks.{layer}") };
        SiteRow { layer, site, is_stream_site: true, cells }
    });
    let table = SiteTable { sites: sites.collect(), weights: Vec::new() };
    Prediction { table, ..Prediction::default() }
}

fn drawn(prediction: &Prediction, ink: Ink, width: usize) -> String {
    let mut out = Vec::new();
    prediction_curve(prediction, SHAPE, (ink, width), &mut out).expect("a vector takes everything");
    String::from_utf8(out).expect("text")
}

/// 10⁰ … 10⁷ in eight rows, 3 % of padding at both ends: one star per row, from the lower left to the upper right.
#[test]
fn an_exponential_is_a_straight_line() {
    let powers: Vec<Number> = (0..8).map(|power| Number::from(10f64.powi(power))).collect();
    let text = drawn(&prediction(&powers), Ink::Ascii, 40);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "forward: variance, log");
    let stars: Vec<usize> = lines[1..=ROWS].iter().map(|line| line.find('*').expect("a star in every row")).collect();
    assert!(stars.windows(2).all(|rows| rows[0] > rows[1]), "{text}");
    assert!(text.is_ascii(), "{text}");
}

#[test]
fn every_width_is_kept() {
    let far: Vec<Number> = (0..200).map(|block| Number::from_ln(-500.0 * f64::from(block))).collect();
    for ink in [Ink::Braille, Ink::Ascii] {
        for width in [NARROWEST, 40, 2 * BESIDE + GAP - 1, 2 * BESIDE + GAP, 120] {
            let text = drawn(&prediction(&far), ink, width);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest.is_some_and(|widest| widest <= width), "{width}:\n{text}");
            let panels = if width < 2 * BESIDE + GAP { 2 } else { 1 };
            assert_eq!(text.lines().count(), panels * (ROWS + 2), "{width}:\n{text}");
        }
    }
}

#[test]
fn braille_has_eight_dots() {
    let mut canvas = Canvas::new(Ink::Braille, 2, 1);
    canvas.curve(&[(0.0, 0.0), (1.0, 1.0)]);
    // From the lowest dot of the left edge to the highest of the right one: (0, 3), (1, 2), (2, 1), (3, 0).
    assert_eq!(canvas.rows().collect::<Vec<_>>(), ["⡠⠊"]);
    canvas.point((0.0, 0.0));
    assert_eq!(canvas.rows().collect::<Vec<_>>(), ["o⠊"]);
}

#[test]
fn labels_are_ascii_where_asked_for() {
    for (label, plain) in
        [("10⁻²⁰⁰⁰⁰", "1e-20000"), ("2·10⁻¹²", "2e-12"), ("10⁵", "1e5"), ("0.05", "0.05"), ("-0.1", "-0.1")]
    {
        assert_eq!(ascii(label), plain);
    }
}
