//! Judges if activations fit the float formats of training.

use sigprop_stack::{Quantity, SiteRow};

use super::{Finding, Kind, Profile, Severity, Shape, factor, from_block, trend};
use crate::logarithms::ln_sum;

/// The range of a float format.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Format {
    /// The name of the format.
    pub name: &'static str,
    /// Largest finite number.
    pub max: f64,
    /// Smallest number with full precision.
    pub min_normal: f64,
    /// Smallest number above zero.
    pub min_subnormal: f64,
}

/// IEEE 754 half precision, bfloat16 and IEEE 754 single precision.
pub const FORMATS: [Format; 3] = [
    Format { name: "fp16", max: 65504.0, min_normal: 6.103_515_625e-5, min_subnormal: 5.960_464_477_539_063e-8 },
    Format {
        name: "bf16",
        max: 3.389_531_389_251_535_5e38,
        min_normal: 1.175_494_350_822_287_5e-38,
        min_subnormal: 9.183_549_615_799_121e-41,
    },
    Format {
        name: "f32",
        max: 3.402_823_466_385_288_6e38,
        min_normal: 1.175_494_350_822_287_5e-38,
        min_subnormal: 1.401_298_464_324_817e-45,
    },
];

/// The formats of eight bits for matrix products (OCP 8-bit floating point specification, 2023). Streams are not stored
/// in them.
pub const NARROW_FORMATS: [Format; 2] = [
    Format { name: "e4m3", max: 448.0, min_normal: 0.015_625, min_subnormal: 0.001_953_125 },
    Format { name: "e5m2", max: 57344.0, min_normal: 6.103_515_625e-5, min_subnormal: 1.525_878_906_25e-5 },
];

/// The sizes of activations at one site, as logarithms.
struct Level {
    layer: i64,
    /// Largest entry to expect among all tokens and features: |mean| + std·√(2 ln n).
    largest: f64,
    std: f64,
    /// Sum of squares over the features of a token.
    squares: f64,
}

impl Level {
    /// Returns the sizes at the site of this row; `None` if its variance is unknown or exactly zero.
    fn of(row: &SiteRow, shape: Shape) -> Option<Self> {
        let variance = row.value(Quantity::Variance).filter(|variance| !variance.is_zero())?.ln_abs();
        let mean = row.value(Quantity::Mean).map_or(f64::NEG_INFINITY, |mean| mean.ln_abs());
        let entries = (shape.width as f64 * shape.seq_len as f64).max(2.0);
        Some(Self {
            layer: row.layer,
            largest: ln_sum([mean, variance / 2.0 + (2.0 * entries.ln()).ln() / 2.0]),
            std: variance / 2.0,
            squares: ln_sum([2.0 * mean, variance]) + (shape.width as f64).ln(),
        })
    }
}

/// The effect of a float format on the activations of a stack.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    /// The largest entry exceeds the range of the format from this block on, which may be beyond the last block.
    Overflows(i64),
    /// Typical entries lose digits from block `digits` on, and are rounded to zero from block `zero` on (`None` if they
    /// never are).
    Underflows { digits: i64, zero: Option<i64> },
    /// All activations fit the format.
    Fits,
}

/// Returns how many times all activations may be doubled or halved before they leave the format: the largest entry to
/// expect exceeds its range, or a standard deviation falls below its smallest number of full precision. Negative if
/// they have already left it; `None` if the stream is exactly zero.
pub(crate) fn margin(profile: &Profile, shape: Shape, format: &Format) -> Option<f64> {
    let levels = profile.rows.iter().filter_map(|row| Level::of(row, shape));
    let room = levels.map(|level| (format.max.ln() - level.largest).min(level.std - format.min_normal.ln()));
    room.map(|ln| ln / std::f64::consts::LN_2).reduce(f64::min)
}

/// Returns the first layer where the largest entry to expect exceeds the range of the format; `None` if there is none.
#[cfg(feature = "plot")]
pub(crate) fn overflow(profile: &Profile, shape: Shape, format: &Format) -> Option<i64> {
    let levels: Vec<Level> = profile.rows.iter().filter_map(|row| Level::of(row, shape)).collect();
    crossing(&levels, |level| level.largest, format.max.ln(), None)
}

/// Judges the fit of all float formats, and of f32 sums of squares. Formats with the same effect have one finding. The
/// network is trained in the format `stored`.
pub(super) fn judge(profile: &Profile, shape: Shape, stored: &Format) -> Vec<Finding> {
    let levels: Vec<Level> = profile.rows.iter().filter_map(|row| Level::of(row, shape)).collect();
    let Some(last) = levels.last() else { return Vec::new() };
    let rate = trend::exploding_rate(profile);
    let mut fates: Vec<(Vec<&Format>, Fate)> = Vec::new();
    for format in &FORMATS {
        let fate = fate(format, &levels, rate);
        match fates.iter_mut().find(|(_, known)| *known == fate) {
            Some((formats, _)) => formats.push(format),
            None => fates.push((vec![format], fate)),
        }
    }
    let mut findings: Vec<Finding> =
        fates.iter().map(|(formats, fate)| describe(formats, *fate, &levels, stored)).collect();
    let limit = FORMATS[2].max.ln();
    if let Some(block) = crossing(&levels, |level| level.squares, limit, rate) {
        let beyond = block > last.layer;
        let verb = if beyond { "would overflow" } else { "overflow" };
        findings.push(Finding {
            kind: Kind::SquaresOverflow,
            severity: if beyond { Severity::Fine } else { Severity::Failure },
            text: format!("sums of squares over a token's features {verb} f32 {}", after(block)),
            rule: "sum of squares over the features of a token above the largest f32".to_owned(),
            block: Some(block),
            value: value_at(&levels, block, |level| level.squares),
        });
    }
    findings
}

fn fate(format: &Format, levels: &[Level], rate: Option<f64>) -> Fate {
    let below = |limit: f64| levels.iter().find(|level| level.std < limit.ln()).map(|level| level.layer);
    if let Some(block) = crossing(levels, |level| level.largest, format.max.ln(), rate.map(|rate| rate / 2.0)) {
        Fate::Overflows(block)
    } else if let Some(digits) = below(format.min_normal) {
        Fate::Underflows { digits, zero: below(format.min_subnormal) }
    } else {
        Fate::Fits
    }
}

/// Returns the first block whose `size` exceeds `limit`, extrapolated beyond the last block at `rate` per block; `None`
/// if no block does.
fn crossing(levels: &[Level], size: impl Fn(&Level) -> f64, limit: f64, rate: Option<f64>) -> Option<i64> {
    let inside = levels.iter().find(|level| size(level) > limit).map(|level| level.layer);
    inside.or_else(|| {
        let last = levels.last()?;
        Some(last.layer + ((limit - size(last)) / rate?).ceil() as i64)
    })
}

fn describe(formats: &[&Format], fate: Fate, levels: &[Level], stored: &Format) -> Finding {
    let last = &levels[levels.len() - 1];
    let names: Vec<&str> = formats.iter().map(|format| format.name).collect();
    let names_and = |one: &str, many: &str| format!("{} {}", listed(&names), if names.len() > 1 { many } else { one });
    let largest_at = |block| value_at(levels, block, |level| level.largest);
    match fate {
        Fate::Overflows(block) => {
            let beyond = block > last.layer;
            let text = if beyond {
                format!("{} to the last block, would overflow {}", names_and("holds", "hold"), after(block))
            } else {
                format!("{} {}", names_and("overflows", "overflow"), after(block))
            };
            let is_fatal = formats.iter().any(|format| format.max >= stored.max);
            let severity = match (beyond, is_fatal) {
                (true, _) => Severity::Fine,
                (false, true) => Severity::Failure,
                (false, false) => Severity::Warning,
            };
            let rule = "largest of n entries to expect, |mean| + std √(2 ln n), above the format's largest".to_owned();
            Finding { kind: Kind::Overflow, severity, text, rule, block: Some(block), value: largest_at(block) }
        }
        Fate::Underflows { digits, zero } => {
            let zero = zero.map_or(String::new(), |block| format!(" and become zero {}", from_block(block)));
            let digits_lost = format!("typical entries lose digits {}{zero}", from_block(digits));
            let text = format!("{}: {digits_lost}", names_and("underflows", "underflow"));
            let (kind, severity) = (Kind::Underflow, Severity::Warning);
            let rule = "std below the format's smallest number of full precision".to_owned();
            Finding { kind, severity, text, rule, block: Some(digits), value: largest_at(digits) }
        }
        Fate::Fits => {
            let value = levels.iter().map(|level| level.largest).fold(f64::NEG_INFINITY, f64::max);
            let text = format!("{}: largest entry to expect {}", names_and("holds", "hold"), factor(value));
            let rule = "largest of n entries to expect, |mean| + std √(2 ln n), within the format".to_owned();
            Finding { kind: Kind::InRange, severity: Severity::Fine, text, rule, block: None, value }
        }
    }
}

/// Returns the size at a block; for a block beyond the last one, the size at the last block.
fn value_at(levels: &[Level], block: i64, size: impl Fn(&Level) -> f64) -> f64 {
    levels.iter().find(|level| level.layer >= block).or(levels.last()).map_or(0.0, size)
}

/// Returns the number of blocks up to and including `block`, in words.
fn after(block: i64) -> String {
    match block + 1 {
        0 => "at the input already".to_owned(),
        1 => "after 1 block".to_owned(),
        blocks => format!("after {blocks} blocks"),
    }
}

/// Joins names: `a`, `a and b`, `a, b and c`.
fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [name] => (*name).to_owned(),
        [names @ .., last] => format!("{} and {last}", names.join(", ")),
    }
}
