//! The classic cases as curves; whole networks are judged in `tests/sigprop/compare.rs`.

use super::*;
use crate::{AttentionRow, Blocked};
use sigprop_stack::{Cell, SiteRow, SiteTable, WeightRow};

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

/// Returns the verdict on a table. Weights whose gradient is zero are given no gates.
fn judged(table: SiteTable) -> Verdict {
    let without = table.weights.iter().filter(|row| row.grad_second_moment.value.is_zero());
    let blocked = without.map(|row| Blocked { tensor: row.tensor.clone(), gates: Vec::new() }).collect();
    Verdict::of(&Prediction { table, blocked, ..Prediction::default() }, SHAPE, None)
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

/// The growth of the variance per ReLU layer of width 256 with weights from U(−1, 1): 256/3 · 1/2.
const TEXTBOOK: f64 = 256.0 / 6.0;

#[test]
fn the_textbook_explosion() {
    let verdict = judged(table(30, |depth| (depth * TEXTBOOK.ln(), 0.0, 0.2)));
    assert_eq!(verdict.headline, "not trainable: forward explodes");
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
    assert_eq!(verdict.headline, "not trainable: forward explodes, backward explodes");
    assert!(verdict.findings.iter().all(|finding| finding.value.is_finite()));
    assert!(verdict.findings[0].text.contains("e16300"), "{}", verdict.findings[0].text);
}

#[test]
fn a_flat_stack_is_healthy() {
    let verdict = judged(table(192, |_| (0.0, 0.0, 0.3)));
    assert_eq!((verdict.grade, verdict.headline.starts_with("healthy: ")), (Grade::Healthy, true));
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

/// Gradients that grow ×411 629 over a stack, and tokens of correlation 0.95, are not healthy.
#[test]
fn the_grade_is_that_of_the_worst_finding() {
    // Mostly near the input, as small embeddings before a norm make it.
    let changed = |ln_total: f64| judged(table(8, |depth| (0.0, ln_total * (depth / 8.0).powf(0.25), 0.3)));
    assert_eq!(changed(-200f64.ln()).grade, Grade::Healthy);
    let (grown, shrunk) = (changed(-411_629f64.ln()), changed(411_629f64.ln()));
    assert_eq!((grown.grade, shrunk.grade), (Grade::TrainableWithCare, Grade::TrainableWithCare));
    assert_eq!(
        grown.headline,
        "trainable with care: gradients grow ×411629 towards the input, a warm-up and clipping help"
    );
    assert!(shrunk.headline.contains("gradients shrink ×411629 towards the input"), "{}", shrunk.headline);
    let alike = judged(table(8, |_| (0.0, 0.0, 0.95)));
    assert_eq!(
        (alike.grade, alike.headline.as_str()),
        (
            Grade::TrainableWithCare,
            "trainable with care: tokens nearly identical (correlation 0.95), their differences are learned slowly"
        )
    );
}

/// Factors per block and over the deeper half of 24 blocks: e^±0.4, ×121 or 1/121, needs care. e^0.8, ×15 000, fails,
/// and so does e^−1.6, ×5·10⁻⁹, which an adaptive optimiser does not absorb.
#[test]
fn vanishing_fails_further_than_exploding() {
    let along = |rate: f64| judged(table(24, |depth| (rate * depth, 0.0, 0.3)));
    let rates = [0.4, 0.8, -0.4, -1.6];
    let grades = [Grade::TrainableWithCare, Grade::NotTrainable, Grade::TrainableWithCare, Grade::NotTrainable];
    assert_eq!(rates.map(|rate| along(rate).grade), grades);
    let fading = along(-0.4);
    assert!(fading.headline.contains("activations shrink"), "{}", fading.headline);
    let rules = rates.map(|rate| along(rate).findings[0].rule.clone());
    let factors =
        ["grows by more than ×100 ", "by more than ×10000 ", "falls by more than ×100 ", "more than ×100000000 "];
    for (rule, factor) in rules.iter().zip(factors) {
        assert!(rule.contains(factor), "{rule}");
    }
}

/// Gradients that grow by e^0.4 per block, ×121 over the deeper half of 24 blocks, for signals that keep their size and
/// for signals that grow equally.
#[test]
fn gradients_that_grow_more_than_signals_are_chaos() {
    let beside = |rate: f64| judged(table(24, |depth| (rate * depth, -0.4 * depth, 0.3)));
    let chaos = beside(0.0);
    assert_eq!(chaos.headline, "not trainable: backward explodes");
    let finding = find(&chaos, Kind::Backward(Trend::Explodes))[0];
    assert!(finding.rule.contains("by ×100 more than the variance"), "{}", finding.rule);
    let large = beside(0.4);
    assert_eq!(large.grade, Grade::TrainableWithCare);
    assert!(large.headline.contains("activations grow ×14765, smaller branches"), "{}", large.headline);
    let both = judged(table(24, |depth| (1.2 * depth, -1.2 * depth, 0.3)));
    assert_eq!(both.headline, "not trainable: forward explodes, backward explodes");
}

#[test]
fn losses_start_near_that_of_guessing() {
    let prediction = Prediction { table: table(4, |_| (0.0, 0.0, 0.2)), ..Prediction::default() };
    let verdict = |cross_entropy: f64| {
        let one = Number::from(1.0);
        let loss = Loss { logit_variance: one, cross_entropy: cross_entropy.into(), uniform: 2.0, grad_norm: one };
        Verdict::of(&prediction, SHAPE, Some(&loss))
    };
    assert_eq!(verdict(9.9).grade, Grade::Healthy);
    let said = |loss: f64| find(&verdict(loss), Kind::Start)[0].text.clone();
    assert_eq!(said(2.2), "the loss starts near that of guessing: 2.2 nats, 2 of equal logits");
    assert_eq!(said(9.9), "the loss starts above that of guessing: 9.9 nats, 2 of equal logits");
    let far = verdict(22.0);
    assert_eq!(
        far.headline,
        "trainable with care: the loss starts ×11 above guessing, a smaller head or a norm before it helps"
    );
    assert_eq!(
        find(&far, Kind::Start)[0].text,
        "the loss starts far above that of guessing: 22 nats, 2 of equal logits"
    );
}

#[test]
fn gradients_are_judged_on_their_way_back() {
    let vanishing = judged(table(48, |depth| (0.0, depth, 0.3)));
    assert_eq!(vanishing.headline, "not trainable: backward vanishes");
    // A jump at the embedding, as a small embedding before a norm makes, is no explosion.
    let jump = judged(table(24, |depth| (0.0, if depth < 0.5 { 12.0 } else { 0.0 }, 0.3)));
    assert_eq!(find(&jump, Kind::Backward(Trend::Grows)).len(), 1);
    assert!(jump.failures().is_empty());
}

#[test]
fn collapse_and_near_collapse() {
    let along = |at: fn(f64) -> f64, attentions| {
        let table = table(10, |depth| (0.0, 0.0, at(depth)));
        let prediction = Prediction { table, attentions, ..Prediction::default() };
        Verdict::of(&prediction, SHAPE, None)
    };
    let copies = |depth: f64| 1.0 - 0.5 * (-depth).exp();
    let collapsed = along(copies, vec![attention(250.0, 256.0)]);
    assert_eq!(collapsed.headline, "not trainable: tokens collapse");
    // 0.5 e^−4 = 0.0092: the fourth row after the input.
    assert_eq!(find(&collapsed, Kind::Collapse)[0].block, Some(3));
    // Samples of a network where nothing attends.
    assert_eq!(along(copies, Vec::new()).grade, Grade::TrainableWithCare);
    let nearly = along(|_| 0.95, vec![attention(250.0, 256.0)]);
    assert_eq!(find(&nearly, Kind::Collapse)[0].severity, Severity::Warning);
    assert!(nearly.failures().is_empty());
}

#[test]
fn small_activations_underflow_in_half_precision_only() {
    let verdict = judged(table(30, |depth| (-depth * 2.0, 0.0, 0.2)));
    assert_eq!(verdict.headline, "not trainable: forward vanishes");
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

fn attention(attended: f64, in_view: f64) -> AttentionRow {
    let site = "blocks.0.attention.heads".to_owned();
    AttentionRow { layer: 0, site, score_variance: Number::from(1.0), attended, in_view }
}

fn attending(rows: Vec<AttentionRow>) -> Verdict {
    let table = table(4, |_| (0.0, 0.0, 0.2));
    Verdict::of(&Prediction { table, attentions: rows, ..Prediction::default() }, SHAPE, None)
}

/// The limit for 256 tokens in view is √256 = 16. The sharpest attention in proportion to its view is judged; one with
/// four tokens in view is not.
#[test]
fn attention_that_looks_at_few_tokens_is_sharp() {
    let severity = |attended, in_view| {
        let verdict = attending(vec![attention(250.0, 256.0), attention(attended, in_view), attention(1.0, 4.0)]);
        verdict.findings.iter().find(|finding| finding.text.starts_with("attention ")).map(|finding| finding.severity)
    };
    assert_eq!(severity(1.9, 256.0), Some(Severity::Warning));
    assert_eq!(severity(15.9, 256.0), Some(Severity::Warning));
    assert_eq!(severity(16.1, 256.0), Some(Severity::Fine));
}

/// A network fails if most attentions attend to fewer than two tokens.
#[test]
fn attention_collapses_where_most_do() {
    let collapsed =
        attending(vec![attention(1.9, 256.0), attention(1.5, 256.0), attention(9.0, 256.0), attention(3.0, 4.0)]);
    assert_eq!(collapsed.headline, "not trainable: attention entropy collapses");
    assert_eq!(collapsed.failures()[0].0, Failure::EntropyCollapse);
    assert_eq!(collapsed.worst().map(|finding| (finding.kind, finding.value)), Some((Kind::EntropyCollapse, 1.5)));
    assert_eq!(attending(vec![attention(2.1, 256.0), attention(1.5, 256.0)]).grade, Grade::TrainableWithCare);
}

/// Norms are roots of second moments: those of 1 and 1/400 differ by a factor of 20. Weights without any gradient are
/// left out.
#[test]
fn gradients_are_uneven_between_the_blocks_of_one_weight() {
    let weight = |tensor: &str, second: f64| WeightRow {
        layer: 0,
        tensor: tensor.to_owned(),
        variance: 1.0,
        grad_second_moment: Cell::exact(second),
    };
    let verdict = |deep: f64| {
        let mut table = table(4, |_| (0.0, 0.0, 0.2));
        table.weights = vec![
            weight("blocks.0.ffn.in.weight", 1.0),
            weight("blocks.1.ffn.in.weight", deep),
            weight("blocks.0.ffn.out.weight", 1e-9),
            weight("blocks.0.attention.key.weight", 0.0),
            weight("blocks.1.attention.key.weight", 0.0),
            weight("blocks.1.ffn.in.bias", 1e-20),
        ];
        judged(table)
    };
    let uneven = verdict(1.0 / 400.0);
    let finding = find(&uneven, Kind::Uneven)[0];
    approx::assert_relative_eq!(finding.value, 20_f64.ln(), max_relative = 1e-12);
    assert!(finding.text.ends_with("×20 between blocks, most in blocks.*.ffn.in.weight"), "{}", finding.text);
    assert_eq!(finding.severity, Severity::Notice);
    // A weight without any gradient is a finding of its own.
    assert!(uneven.headline.ends_with("with care: parameters that get no gradient and never change"), "{uneven:?}");
    assert_eq!(find(&verdict(1.0 / 99.0), Kind::Even).len(), 1);
    let far = verdict(1e-10).headline;
    assert!(far.contains("weight gradients differ ×100000 between blocks, a smaller ε of Adam helps"), "{far}");
}

/// Two routers and a gain without gradient are reported; a bias of keys without gradient is not.
#[test]
fn parameters_without_gradient_are_found() {
    let weight = |tensor: &str, gradient: f64| WeightRow {
        layer: 0,
        tensor: tensor.to_owned(),
        variance: 1.0,
        grad_second_moment: Cell::exact(gradient),
    };
    let mut table = table(2, |_| (0.0, 0.0, 0.2));
    table.weights = vec![
        weight("blocks.0.ffn.experts.router.weight", 0.0),
        weight("blocks.1.ffn.experts.router.weight", 0.0),
        weight("blocks.1.ffn.out.weight", 1e-300),
        weight("final_norm.gain", 0.0),
    ];
    let verdict = judged(table);
    let finding = find(&verdict, Kind::NoGradient)[0];
    let expected = "no gradient reaches 3 of 4 tensors: blocks.*.ffn.experts.router.weight (2), final_norm.gain";
    assert_eq!((finding.text.as_str(), finding.severity, finding.value as usize), (expected, Severity::Warning, 3));
    assert_eq!(serde_json::to_value(finding.kind).expect("a word"), "no_gradient");
    assert!(find(&judged(self::table(2, |_| (0.0, 0.0, 0.2))), Kind::NoGradient).is_empty());
}

/// A gradient that is blocked only until a zero has moved is a notice. A gradient that stays blocked is a warning, also
/// if others are opened.
#[test]
fn zeros_open_branch_by_branch() {
    let zero = |tensor: &str, gates: &[&str]| Blocked {
        tensor: tensor.to_owned(),
        gates: gates.iter().map(|&gate| gate.to_owned()).collect(),
    };
    let verdict = |blocked| {
        let table = table(2, |_| (0.0, 0.0, 0.2));
        Verdict::of(&Prediction { table, blocked, ..Prediction::default() }, SHAPE, None)
    };
    let opening = zero("blocks.0.ffn.in.weight", &["blocks.0.ffn.scale"]);
    let healthy = verdict(vec![opening.clone()]);
    assert_eq!(healthy.grade, Grade::Healthy);
    let expected = "no gradient in the first step for 1 of 0 tensors: blocks.*.ffn.in.weight (1); opens when \
                    blocks.*.ffn.scale (1) has moved";
    assert_eq!(find(&healthy, Kind::NoGradient)[0].text, expected);
    let closed = verdict(vec![opening, zero("blocks.1.ffn.in.weight", &[])]);
    assert_eq!(closed.grade, Grade::TrainableWithCare);
    let severities: Vec<Severity> =
        find(&closed, Kind::NoGradient).into_iter().map(|finding| finding.severity).collect();
    assert_eq!(severities, [Severity::Warning, Severity::Notice]);
    let lost = judged(table(2, |depth| (0.0, if depth < 1.5 { f64::NEG_INFINITY } else { 0.0 }, 0.2)));
    assert_eq!(lost.headline, "not trainable: backward vanishes");
}

/// A std of 2^−3 and entries up to 2^−3 √(2 ln 32768) = 0.57: the smallest number of full precision of E4M3 is three
/// halvings below, and its largest number, 448, is 9.6 doublings above.
#[test]
fn margins_are_doublings_or_halvings() {
    let narrow = table(2, |_| (-6.0 * std::f64::consts::LN_2, 0.0, 0.2));
    let profiles = Profile::all(&narrow);
    let of = |format: &Format| margin(&profiles[0], SHAPE, format).expect("a stream");
    approx::assert_relative_eq!(of(&NARROW_FORMATS[0]), 3.0, max_relative = 1e-12);
    let large = table(2, |_| (14.0 * std::f64::consts::LN_2, 0.0, 0.2));
    let expected = 448_f64.log2() - 7.0 - 0.5 * (2.0 * 32_768_f64.ln()).log2();
    approx::assert_relative_eq!(
        margin(&Profile::all(&large)[0], SHAPE, &NARROW_FORMATS[0]).expect("a stream"),
        expected,
        max_relative = 1e-12
    );
}
