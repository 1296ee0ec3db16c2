//! What a prediction means, in plain words.
//!
//! Everything is judged on the stream, from what enters block 0 to the output of the last block; a
//! final norm, which hides the size of the stream, is left out.

mod collapse;
mod floats;
mod trend;

use serde::{Serialize, Serializer};
use sigprop_stack::{Number, Quantity, SiteRow, SiteTable};

use crate::numerals::short;
pub use floats::{FORMATS, Format};
pub use trend::Trend;

/// What the float ranges depend on beside the moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Features of a token.
    pub width: usize,
    /// Tokens of a sequence.
    pub seq_len: usize,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// As it should be.
    Fine,
    /// Worth knowing before training.
    Warning,
    /// The network cannot be trained like this.
    Failure,
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Size of the activations from block to block.
    Forward(Trend),
    /// Size of the gradients from block to block, on their way back.
    Backward(Trend),
    /// Tokens have become copies, or nearly.
    Collapse,
    /// Tokens stay distinct.
    Distinct,
    /// Activations leave a float format's range, or would beyond the last block.
    Overflow,
    /// Activations are too small for a float format.
    Underflow,
    /// f32 sums of squares over the features of a token leave the range.
    SquaresOverflow,
    /// Activations fit.
    InRange,
}

/// One statement about the network.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// What it is about.
    pub kind: Kind,
    /// How bad it is.
    pub severity: Severity,
    /// The statement as a sentence.
    pub text: String,
    /// Index of the block where it happens, extrapolated beyond the last one; −1 is the input.
    pub block: Option<i64>,
    /// The number behind it: ln of the total factor for trends (−∞ for exact zeros), the token
    /// correlation for collapse, ln of the largest entry or sum of squares at `block` for ranges.
    pub value: f64,
}

/// A failure mode that a run can be failed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Activations or gradients explode.
    Explosion,
    /// Activations or gradients vanish.
    Vanishing,
    /// Tokens become copies.
    Collapse,
}

/// Everything there is to say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The failures in a few words, or that there are none.
    pub headline: String,
    /// All findings.
    pub findings: Vec<Finding>,
}

impl Verdict {
    /// Judges what was predicted for a stack.
    pub fn of(table: &SiteTable, shape: Shape) -> Self {
        let profiles = Profile::all(table);
        let mut findings = Vec::new();
        for profile in &profiles {
            let mut found: Vec<Finding> = Vec::new();
            found.extend(trend::judge(profile, Quantity::Variance));
            found.extend(trend::judge(profile, Quantity::GradVariance));
            found.extend(collapse::judge(profile));
            found.extend(floats::judge(profile, shape));
            if let (true, Some(stream)) = (profiles.len() > 1, profile.stream) {
                for finding in &mut found {
                    finding.text = format!("{stream}: {}", finding.text);
                }
            }
            findings.append(&mut found);
        }
        Self { headline: headline(&findings), findings }
    }

    /// The failure modes found, each with the finding that says so.
    pub fn failures(&self) -> Vec<(Failure, &Finding)> {
        let failing = self.findings.iter().filter(|finding| finding.severity == Severity::Failure);
        failing.filter_map(|finding| Some((finding.kind.failure()?, finding))).collect()
    }
}

/// Its name in JSON: `forward_explodes`, `collapse` …
impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Forward(trend) => serializer.collect_str(&format_args!("forward_{}", trend.name())),
            Self::Backward(trend) => serializer.collect_str(&format_args!("backward_{}", trend.name())),
            Self::Collapse => serializer.serialize_str("collapse"),
            Self::Distinct => serializer.serialize_str("distinct"),
            Self::Overflow => serializer.serialize_str("overflow"),
            Self::Underflow => serializer.serialize_str("underflow"),
            Self::SquaresOverflow => serializer.serialize_str("squares_overflow"),
            Self::InRange => serializer.serialize_str("in_range"),
        }
    }
}

impl Kind {
    fn failure(self) -> Option<Failure> {
        match self {
            Self::Forward(Trend::Explodes) | Self::Backward(Trend::Explodes) => Some(Failure::Explosion),
            Self::Forward(Trend::Vanishes) | Self::Backward(Trend::Vanishes) => Some(Failure::Vanishing),
            Self::Collapse => Some(Failure::Collapse),
            Self::Forward(Trend::Grows | Trend::Decays | Trend::Healthy)
            | Self::Backward(Trend::Grows | Trend::Decays | Trend::Healthy)
            | Self::Distinct
            | Self::Overflow
            | Self::Underflow
            | Self::SquaresOverflow
            | Self::InRange => None,
        }
    }
}

fn headline(findings: &[Finding]) -> String {
    let mut parts: Vec<String> = Vec::new();
    for finding in findings.iter().filter(|finding| finding.severity == Severity::Failure) {
        let part = match finding.kind {
            Kind::Forward(trend) => format!("forward {}", trend.verb()),
            Kind::Backward(trend) => format!("backward {}", trend.verb()),
            Kind::Collapse => "tokens collapse".to_owned(),
            Kind::Distinct | Kind::Overflow | Kind::Underflow | Kind::SquaresOverflow | Kind::InRange => continue,
        };
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    if parts.is_empty() { "healthy: nothing explodes, vanishes or collapses".to_owned() } else { parts.join(", ") }
}

/// The sites of one stream from what enters block 0 to the output of the last block.
struct Profile<'t> {
    stream: Option<&'t str>,
    rows: Vec<&'t SiteRow>,
}

impl<'t> Profile<'t> {
    /// One per stream: layers start again where a stream does.
    fn all(table: &'t SiteTable) -> Vec<Self> {
        let rows: Vec<&SiteRow> = table.stream_sites().collect();
        rows.chunk_by(|before, after| before.layer < after.layer).map(Self::of).collect()
    }

    fn of(rows: &[&'t SiteRow]) -> Self {
        let is_block = |row: &SiteRow| row.site.contains("blocks.");
        let named = rows.iter().any(|row| is_block(row));
        let kept = rows.iter().filter(|row| !named || row.layer < 0 || is_block(row)).copied().collect();
        let stream = rows.first().and_then(|row| row.site.split_once('.')).map(|(stream, _)| stream);
        Self { stream, rows: kept }
    }
}

/// Where something starts, in words.
fn from_block(block: i64) -> String {
    if block < 0 { "from the input on".to_owned() } else { format!("from block {block} on") }
}

/// ln(e^a + e^b).
fn ln_sum(a: f64, b: f64) -> f64 {
    let (large, small) = if a > b { (a, b) } else { (b, a) };
    if small == f64::NEG_INFINITY { large } else { large + (small - large).exp().ln_1p() }
}

/// e^`ln` for people.
fn factor(ln: f64) -> String {
    short(Number::from_ln(ln))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sigprop_stack::Cell;

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
        let verdict = Verdict::of(&table(30, |depth| (depth * TEXTBOOK.ln(), 0.0, 0.2)), SHAPE);
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
        let verdict = Verdict::of(&table(10_000, |depth| (depth * TEXTBOOK.ln(), -depth, 0.2)), SHAPE);
        assert_eq!(verdict.headline, "forward explodes, backward explodes");
        assert!(verdict.findings.iter().all(|finding| finding.value.is_finite()));
        assert!(verdict.findings[0].text.contains("e16300"), "{}", verdict.findings[0].text);
    }

    #[test]
    fn a_flat_stack_is_healthy() {
        let verdict = Verdict::of(&table(192, |_| (0.0, 0.0, 0.3)), SHAPE);
        assert!(verdict.headline.starts_with("healthy"));
        assert!(verdict.findings.iter().all(|finding| finding.severity == Severity::Fine), "{verdict:?}");
        assert!(verdict.failures().is_empty());
    }

    #[test]
    fn linear_growth_is_no_explosion() {
        let verdict = Verdict::of(&table(768, |depth| ((1.0 + 40.0 * depth).ln(), 0.0, 0.3)), SHAPE);
        let finding = find(&verdict, Kind::Forward(Trend::Grows))[0];
        assert!(finding.text.contains("linearly"), "{}", finding.text);
        assert!(verdict.failures().is_empty());
    }

    #[test]
    fn gradients_are_judged_on_their_way_back() {
        let vanishing = Verdict::of(&table(24, |depth| (0.0, depth, 0.3)), SHAPE);
        assert_eq!(vanishing.headline, "backward vanishes");
        // A jump at the embedding, as a small embedding before a norm makes, is no explosion.
        let jump = Verdict::of(&table(24, |depth| (0.0, if depth < 0.5 { 12.0 } else { 0.0 }, 0.3)), SHAPE);
        assert_eq!(find(&jump, Kind::Backward(Trend::Grows)).len(), 1);
        assert!(jump.failures().is_empty());
    }

    #[test]
    fn collapse_and_near_collapse() {
        let collapsed = Verdict::of(&table(10, |depth| (0.0, 0.0, 1.0 - 0.5 * (-depth).exp())), SHAPE);
        assert_eq!(collapsed.headline, "tokens collapse");
        // 0.5 e^−4 = 0.0092: the fourth row after the input.
        assert_eq!(find(&collapsed, Kind::Collapse)[0].block, Some(3));
        let nearly = Verdict::of(&table(10, |_| (0.0, 0.0, 0.95)), SHAPE);
        assert_eq!(find(&nearly, Kind::Collapse)[0].severity, Severity::Warning);
        assert!(nearly.failures().is_empty());
    }

    #[test]
    fn small_activations_underflow_in_half_precision_only() {
        let verdict = Verdict::of(&table(30, |depth| (-depth * 2.0, 0.0, 0.2)), SHAPE);
        assert_eq!(verdict.headline, "forward vanishes");
        let underflows = find(&verdict, Kind::Underflow);
        // std = e^−depth falls below 6.1e-5 after 10 blocks (e^−10 = 4.5e-5).
        assert_eq!(underflows.len(), 1, "{underflows:?}");
        assert_eq!(underflows[0].block, Some(9));
    }

    #[test]
    fn exact_zeros_vanish() {
        let ln = |depth: f64| if depth > 4.5 { f64::NEG_INFINITY } else { 0.0 };
        let verdict = Verdict::of(&table(10, |depth| (ln(depth), 0.0, 0.0)), SHAPE);
        let finding = find(&verdict, Kind::Forward(Trend::Vanishes))[0];
        assert_eq!(finding.block, Some(4));
    }

    #[test]
    fn an_empty_table_says_nothing() {
        assert!(Verdict::of(&SiteTable::default(), SHAPE).findings.is_empty());
    }
}
