//! The classic cases as curves; whole networks are judged in `tests/sigprop/compare.rs`.

use super::*;
use sigprop_stack::{Cell, SiteRow, SiteTable};

const SHAPE: Shape = Shape { width: 256, seq_len: 128 };

/// A stack whose rows have the given ln variance, ln gradient variance and token correlation.
fn table(n_blocks: i64, at: impl Fn(f64) -> (f64, f64, f64)) -> SiteTable {
    let row = |layer: i64| {
        let (variance, grad, correlation) = at((layer + 1) as f64);
        SiteRow {
            layer,
            site: if layer < 0 { "embeddings".to_owned() } else { format!("blocks.{layer}") },
            is_stream_site: true,
            cells: cells([
                Cell::exact(0.0),
                Cell::exact(Number::from_ln(variance)),
                Cell::exact(correlation),
                Cell::exact(Number::from_ln(grad)),
                Cell::exact(0.0),
            ]),
        }
    };
    SiteTable { sites: (-1..n_blocks).map(row).collect(), weights: Vec::new() }
}

fn judged(table: SiteTable) -> Verdict {
    Verdict::of(&Prediction { table, attentions: Vec::new(), caveats: Vec::new() }, SHAPE)
}

fn cells(averages: [Cell; 5]) -> [Option<Cell>; Quantity::ALL.len()] {
    let mut cells = [None; Quantity::ALL.len()];
    for (cell, average) in cells.iter_mut().zip(averages) {
        *cell = Some(average);
    }
    cells
}

fn find(verdict: &Verdict, kind: Kind) -> Vec<&Finding> {
    verdict.findings.iter().filter(|finding| finding.kind == kind).collect()
}

/// ReLU, U(−1, 1), width 256: 256/3 · 1/2 per layer.
const TEXTBOOK: f64 = 256.0 / 6.0;

#[test]
fn the_textbook_explosion() {
    let verdict = judged(table(30, |depth| (depth * TEXTBOOK.ln(), 0.0, 0.2)));
    assert_eq!(verdict.headline, "forward explodes");
    assert_eq!(verdict.failures().iter().map(|(failure, _)| *failure).collect::<Vec<_>>(), [Failure::Explosion]);
    let overflows = find(&verdict, Kind::Overflow);
    let blocks: Vec<_> = overflows.iter().map(|finding| finding.block.expect("a block")).collect();
    // The 6th layer, and the 47th for the formats with eight exponent bits.
    assert_eq!(blocks, [5, 46], "{overflows:?}");
    assert!(overflows[0].text.starts_with("fp16 overflows"), "{}", overflows[0].text);
    assert!(overflows[1].text.starts_with("bf16 and f32 hold"), "{}", overflows[1].text);
    let squares = find(&verdict, Kind::SquaresOverflow)[0].block.expect("a block");
    assert!((21..=24).contains(&squares), "{squares}");
}

#[test]
fn ten_thousand_exploding_layers() {
    let verdict = judged(table(10_000, |depth| (depth * TEXTBOOK.ln(), -depth, 0.2)));
    assert_eq!(verdict.headline, "forward explodes, backward explodes");
    assert!(verdict.findings.iter().all(|finding| finding.value.is_finite()));
    assert!(verdict.findings[0].text.contains("e16300"), "{}", verdict.findings[0].text);
}

#[test]
fn a_flat_stack_is_healthy() {
    let verdict = judged(table(192, |_| (0.0, 0.0, 0.3)));
    assert!(verdict.headline.starts_with("healthy"));
    assert!(verdict.findings.iter().all(|finding| finding.severity == Severity::Fine), "{verdict:?}");
    assert!(verdict.failures().is_empty());
}

#[test]
fn linear_growth_is_no_explosion() {
    let verdict = judged(table(768, |depth| ((1.0 + 40.0 * depth).ln(), 0.0, 0.3)));
    let finding = find(&verdict, Kind::Forward(Trend::Grows))[0];
    assert!(finding.text.contains("linearly"), "{}", finding.text);
    assert!(verdict.failures().is_empty());
}

#[test]
fn gradients_are_judged_on_their_way_back() {
    let vanishing = judged(table(24, |depth| (0.0, depth, 0.3)));
    assert_eq!(vanishing.headline, "backward vanishes");
    // A jump at the embedding, as a small embedding before a norm makes, is no explosion.
    let jump = judged(table(24, |depth| (0.0, if depth < 0.5 { 12.0 } else { 0.0 }, 0.3)));
    assert_eq!(find(&jump, Kind::Backward(Trend::Grows)).len(), 1);
    assert!(jump.failures().is_empty());
}

#[test]
fn collapse_and_near_collapse() {
    let collapsed = judged(table(10, |depth| (0.0, 0.0, 1.0 - 0.5 * (-depth).exp())));
    assert_eq!(collapsed.headline, "tokens collapse");
    // 0.5 e^−4 = 0.0092: the fourth row after the input.
    assert_eq!(find(&collapsed, Kind::Collapse)[0].block, Some(3));
    let nearly = judged(table(10, |_| (0.0, 0.0, 0.95)));
    assert_eq!(find(&nearly, Kind::Collapse)[0].severity, Severity::Warning);
    assert!(nearly.failures().is_empty());
}

#[test]
fn small_activations_underflow_in_half_precision_only() {
    let verdict = judged(table(30, |depth| (-depth * 2.0, 0.0, 0.2)));
    assert_eq!(verdict.headline, "forward vanishes");
    let underflows = find(&verdict, Kind::Underflow);
    // std = e^−depth falls below 6.1e-5 after 10 blocks (e^−10 = 4.5e-5).
    assert_eq!(underflows.len(), 1, "{underflows:?}");
    assert_eq!(underflows[0].block, Some(9));
}

#[test]
fn exact_zeros_vanish() {
    let ln = |depth: f64| if depth > 4.5 { f64::NEG_INFINITY } else { 0.0 };
    let verdict = judged(table(10, |depth| (ln(depth), 0.0, 0.0)));
    let finding = find(&verdict, Kind::Forward(Trend::Vanishes))[0];
    assert_eq!(finding.block, Some(4));
}

#[test]
fn an_empty_table_says_nothing() {
    assert!(judged(SiteTable::default()).findings.is_empty());
}
