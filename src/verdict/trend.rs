//! Growth and decay from block to block.
//!
//! # Rule
//!
//! A variance that grows or falls by a large factor over the deeper half of the blocks explodes or vanishes. Signals
//! are judged by their own growth, gradients by their growth compared with that of the signal: a small relative change
//! of the signal grows by the ratio of both, and beyond a factor a step changes the whole output (chaos). Signals and
//! gradients that grow equally are merely large, and an optimiser copes with that. `docs/concepts.md` lists the
//! factors, which are the constants below.
//!
//! # Source
//!
//! Poole et al. 2016 (arXiv 1606.05340), Schoenholz et al. 2017 (arXiv 1611.01232): order and chaos. The factors are
//! those that separate networks that trained from others: `docs/training.md`.

use sigprop_stack::Quantity;

use super::{Finding, Kind, Profile, Severity, factor};

/// A trend is exponential if the deeper half of the blocks alone multiplies or divides the variance by more than this.
/// An exponential function that does so spans at least the square of it, 10⁴, over the whole stack. A power law would
/// need an exponent above 6, and a jump at the input does not count.
const EXPONENTIAL_FACTOR: f64 = 100.0;

/// An exploding signal fails if it grows by more than this over the deeper half; otherwise it gets a warning. Gradients
/// may grow with the signal up to this factor.
const LARGEST_FACTOR: f64 = 1e4;

/// An adaptive optimiser absorbs the decay of a vanishing gradient that falls by less than this over the deeper half.
/// Its norms then stay within 10⁴, so that entries of the usual size, 10⁻⁴, do not fall to the usual ε of Adam, 10⁻⁸.
const ABSORBED_FACTOR: f64 = 1e8;

/// The factor over the whole stack above which growth or decay is worth a notice.
const NOTABLE_FACTOR: f64 = 100.0;

/// The factor over the whole stack above which growth or decay is worth a warning: norms differ by more than ×100.
const CARE_FACTOR: f64 = 1e4;

/// The factor over the whole stack below which a variance counts as constant.
const FLAT_FACTOR: f64 = 1.1;

/// A variance changes linearly if its value at half depth is the average of both ends, within this share of their
/// difference.
const LINEAR_TOLERANCE: f64 = 0.1;

/// The behaviour of a variance over the depth of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trend {
    /// Grows exponentially.
    Explodes,
    /// Decays exponentially, or is exactly zero.
    Vanishes,
    /// Grows by more than a factor of 100, but is no explosion.
    Grows,
    /// Decays by more than a factor of 100, but does not vanish.
    Decays,
    /// Keeps its size.
    Healthy,
}

impl Trend {
    /// All trends.
    pub(super) const ALL: [Self; 5] = [Self::Explodes, Self::Vanishes, Self::Grows, Self::Decays, Self::Healthy];

    /// Name in JSON.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Explodes => "explodes",
            Self::Vanishes => "vanishes",
            Self::Grows => "grows",
            Self::Decays => "decays",
            Self::Healthy => "healthy",
        }
    }

    /// The verb that follows the name of a direction: "forward explodes".
    pub(super) fn verb(self) -> &'static str {
        match self {
            Self::Healthy => "is healthy",
            Self::Explodes | Self::Vanishes | Self::Grows | Self::Decays => self.name(),
        }
    }

    /// Returns the rule for this trend, in words.
    fn rule(self, quantity: Quantity, severity: Severity) -> String {
        let name = name(quantity);
        let notable = if severity == Severity::Warning { CARE_FACTOR } else { NOTABLE_FACTOR };
        let far = if severity == Severity::Failure { ABSORBED_FACTOR } else { EXPONENTIAL_FACTOR };
        let over = "over the deeper half of the blocks";
        match self {
            Self::Explodes if severity < Severity::Failure => {
                format!("{name} grows by more than ×{EXPONENTIAL_FACTOR} {over}")
            }
            Self::Explodes if quantity == Quantity::Variance => {
                format!("{name} grows by more than ×{LARGEST_FACTOR} {over}")
            }
            Self::Explodes => {
                format!(
                    "{name} grows by ×{EXPONENTIAL_FACTOR} more than the variance, or than ×{LARGEST_FACTOR}, {over}"
                )
            }
            Self::Vanishes => format!("{name} falls by more than ×{far} {over}"),
            Self::Grows => format!("{name} grows by more than ×{notable} over all blocks"),
            Self::Decays => format!("{name} falls by more than ×{notable} over all blocks"),
            Self::Healthy => format!("{name} changes by at most ×{NOTABLE_FACTOR} over all blocks"),
        }
    }

    /// Returns the severity of this trend of a variance without exact zeros. If `course` is the course of gradients, it
    /// is compared with `signal`, the course of the signal.
    fn severity(self, course: &Course, signal: Option<&Course>) -> Severity {
        let (growth, largest) = match signal {
            Some(signal) => (course.deeper() - signal.deeper().min(LARGEST_FACTOR.ln()), EXPONENTIAL_FACTOR),
            None => (course.deeper(), LARGEST_FACTOR),
        };
        match self {
            Self::Explodes if growth > largest.ln() => Severity::Failure,
            Self::Vanishes if course.deeper() < -ABSORBED_FACTOR.ln() => Severity::Failure,
            Self::Explodes | Self::Vanishes => Severity::Warning,
            Self::Grows | Self::Decays if course.change().abs() > CARE_FACTOR.ln() => Severity::Warning,
            Self::Grows | Self::Decays => Severity::Notice,
            Self::Healthy => Severity::Fine,
        }
    }
}

/// The course of a variance over depth: its logarithm at three depths. A gradient variance travels backward.
struct Course {
    /// ln of the variance at the input, half-way and at the last block.
    by_depth: [f64; 3],
    n_blocks: usize,
    backward: bool,
}

impl Course {
    fn of(profile: &Profile, quantity: Quantity) -> Option<Self> {
        Self::new(&levels(profile, quantity)?, quantity == Quantity::GradVariance)
    }

    fn new(levels: &[f64], backward: bool) -> Option<Self> {
        let n_blocks = levels.len().checked_sub(1).filter(|&blocks| blocks > 0)?;
        Some(Self { by_depth: [levels[0], levels[n_blocks / 2], levels[n_blocks]], n_blocks, backward })
    }

    /// ln of the factor over the whole stack.
    fn change(&self) -> f64 {
        let [input, _, last] = self.by_depth;
        if self.backward { input - last } else { last - input }
    }

    /// ln of the factor over the deeper half of the blocks.
    fn deeper(&self) -> f64 {
        let [_, middle, last] = self.by_depth;
        if self.backward { middle - last } else { last - middle }
    }

    /// ln of the factor per block over the deeper half.
    fn rate(&self) -> f64 {
        self.deeper() / self.n_blocks.div_ceil(2) as f64
    }

    fn trend(&self) -> Trend {
        let (change, deeper) = (self.change(), self.deeper());
        let (exponential, notable) = (EXPONENTIAL_FACTOR.ln(), NOTABLE_FACTOR.ln());
        if deeper > exponential {
            Trend::Explodes
        } else if deeper < -exponential {
            Trend::Vanishes
        } else if change > notable {
            Trend::Grows
        } else if change < -notable {
            Trend::Decays
        } else {
            Trend::Healthy
        }
    }

    /// Returns the shape of the course between both ends, in words; empty for fewer than four blocks.
    fn shape(&self) -> &'static str {
        let [input, middle, last] = self.by_depth;
        let largest = input.max(last);
        let [input_share, middle_share, last_share] = [input, middle, last].map(|ln| (ln - largest).exp());
        let bend = (middle_share - f64::midpoint(input_share, last_share)).abs();
        let (deeper, shallower) = (self.deeper().abs(), self.change().abs() - self.deeper().abs());
        if self.n_blocks < 4 {
            ""
        } else if bend < LINEAR_TOLERANCE * (input_share - last_share).abs() {
            ", linearly"
        } else if deeper < shallower / 2.0 {
            ", mostly near the input"
        } else if deeper > shallower * 2.0 {
            ", mostly in the deeper half"
        } else {
            ", exponentially"
        }
    }
}

/// Returns ln of the factor per block on the variance of exploding activations; `None` if they do not explode.
pub(super) fn exploding_rate(profile: &Profile) -> Option<f64> {
    let course = Course::of(profile, Quantity::Variance)?;
    (course.trend() == Trend::Explodes).then(|| course.rate())
}

/// Returns ln of the factor per block over the deeper half of the blocks, in the direction in which the quantity
/// travels. It is ±∞ to and from exact zeros; `None` if all values are zero or unknown.
pub(crate) fn rate(profile: &Profile, quantity: Quantity) -> Option<f64> {
    Course::of(profile, quantity).map(|course| course.rate()).filter(|rate| !rate.is_nan())
}

/// Judges one variance over depth; `None` if it is unknown or there are no blocks.
pub(super) fn judge(profile: &Profile, quantity: Quantity) -> Option<Finding> {
    let backward = quantity == Quantity::GradVariance;
    let (direction, name) = (if backward { "backward" } else { "forward" }, name(quantity));
    let levels = levels(profile, quantity)?;
    let course = Course::new(&levels, backward)?;
    let is_zero = |ln: &f64| *ln == f64::NEG_INFINITY;
    let zero = if backward { levels.iter().rposition(is_zero) } else { levels.iter().position(is_zero) };
    let (trend, value, block) = match zero {
        Some(index) => (Trend::Vanishes, f64::NEG_INFINITY, Some(profile.rows[index].layer)),
        None => (course.trend(), course.change(), None),
    };
    if backward && zero == Some(levels.len() - 1) {
        return Some(waiting(block));
    }
    let signal = Course::of(profile, Quantity::Variance).filter(|_| backward);
    let severity = if zero.is_some() { Severity::Failure } else { trend.severity(&course, signal.as_ref()) };
    let n_blocks = course.n_blocks;
    let blocks = if n_blocks == 1 { "1 block".to_owned() } else { format!("{n_blocks} blocks") };
    let what = match zero {
        Some(index) => format!("is exactly zero at {}", profile.rows[index].site),
        None if value.abs() < FLAT_FACTOR.ln() => format!("flat, ×{} over {blocks}", factor(value)),
        // The trend is that of the deeper half, where all blocks together do the opposite.
        None if trend != Trend::Healthy && course.deeper() * value < 0.0 => {
            format!("×{} over the deeper half, ×{} over {blocks}", factor(course.deeper()), factor(value))
        }
        None => {
            let rate = factor(value / n_blocks as f64);
            format!("×{rate} per block, ×{} over {blocks}{}", factor(value), course.shape())
        }
    };
    Some(Finding {
        kind: if backward { Kind::Backward(trend) } else { Kind::Forward(trend) },
        severity,
        text: format!("{direction} {}: {name} {what}", trend.verb()),
        rule: zero.map_or_else(|| trend.rule(quantity, severity), |_| format!("{name} exactly zero")),
        block,
        value,
    })
}

/// The finding for gradients that are zero after the head: a head that starts at zero learns in the first step and then
/// lets them through.
fn waiting(block: Option<i64>) -> Finding {
    Finding {
        kind: Kind::Backward(Trend::Vanishes),
        severity: Severity::Notice,
        text: "backward waits: the head starts at zero and lets gradients through from the second step on".to_owned(),
        rule: "gradient variance exactly zero after the last block".to_owned(),
        block,
        value: f64::NEG_INFINITY,
    }
}

fn name(quantity: Quantity) -> &'static str {
    if quantity == Quantity::GradVariance { "gradient variance" } else { "variance" }
}

fn levels(profile: &Profile, quantity: Quantity) -> Option<Vec<f64>> {
    profile.rows.iter().map(|row| Some(row.value(quantity)?.ln_abs())).collect()
}
