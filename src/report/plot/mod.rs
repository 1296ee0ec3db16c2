//! Pictures (SVG): forward and backward variance and token correlation over depth.
//!
//! Curves are the judged ones: a stream from its input to its last block, without a final norm, which hides its size.
//!
//! ```text
//! depth    blocks passed: layer + 1
//! band     value · e^(± standard deviation of its ln): how far one initialisation strays
//! bar      observed ± 2 standard errors of the average over networks
//! mark     the first block whose largest entry to expect exceeds a float format
//! ```

mod axis;
mod figure;
mod map;
mod outline;
mod panel;
mod style;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io::{self, Write};

use sigprop_stack::{Number, Quantity, SiteRow};

use super::std_error;
use crate::{
    Prediction,
    agreement::{Compared, Comparison},
    compare::Candidate,
    verdict::{FORMATS, Profile, Shape, overflow},
};
use axis::Sense;
use figure::{Figure, Sign};
pub use map::phase_svg;
use panel::{Curve, Mark, Panel, Point};
use style::Style;

/// Observed points of a curve that still can be told from each other.
const MAX_POINTS: usize = 40;

/// More bands hide each other.
const MAX_BANDS: usize = 3;

/// What each panel shows, with the quantity that says how far one network strays.
const PANELS: [(&str, Quantity, Option<Quantity>, Sense); 4] = [
    ("forward: variance", Quantity::Variance, Some(Quantity::LnVarianceStd), Sense::Size),
    ("backward: variance of the gradient", Quantity::GradVariance, Some(Quantity::LnGradVarianceStd), Sense::Size),
    ("forward: token correlation", Quantity::TokenCorrelation, None, Sense::Correlation),
    ("backward: token correlation of the gradient", Quantity::GradTokenCorrelation, None, Sense::Correlation),
];

/// Draws a prediction, one curve per stream.
pub fn prediction_svg(title: &str, prediction: &Prediction, shape: Shape, out: &mut dyn Write) -> io::Result<()> {
    draw(title, &streams(prediction, shape), &HashMap::new(), out)
}

/// Draws a prediction and what was observed beside it.
pub fn validation_svg(
    title: &str,
    prediction: &Prediction,
    comparisons: &[Comparison],
    shape: Shape,
    out: &mut dyn Write,
) -> io::Result<()> {
    let observed = comparisons.iter().map(|row| ((row.site.as_str(), row.quantity), row)).collect();
    draw(title, &streams(prediction, shape), &observed, out)
}

/// Draws the schemes that are defined for the network: the stream that the gradient goes through.
pub fn comparison_svg(title: &str, candidates: &[Candidate], out: &mut dyn Write) -> io::Result<()> {
    let defined = candidates.iter().filter_map(|candidate| Some((candidate, candidate.outcome.as_ref().ok()?)));
    let streams: Vec<Stream> = defined
        .map(|(candidate, summary)| {
            let profile = Profile { stream: None, rows: summary.stream.iter().collect() };
            Stream::new(candidate.scheme.label(), profile, summary.shape)
        })
        .collect();
    draw(title, &streams, &HashMap::new(), out)
}

/// What was observed, by site and quantity.
type Observed<'c> = HashMap<(&'c str, Compared), &'c Comparison>;

/// What becomes a curve in every panel.
struct Stream<'t> {
    name: String,
    rows: Vec<&'t SiteRow>,
    /// Names of formats, and the layer at which they overflow.
    overflows: Vec<(String, i64)>,
}

impl<'t> Stream<'t> {
    fn new(name: String, profile: Profile<'t>, shape: Shape) -> Self {
        let mut overflows: Vec<(String, i64)> = Vec::new();
        for format in &FORMATS {
            let Some(layer) = overflow(&profile, shape, format) else { continue };
            match overflows.iter_mut().find(|(_, known)| *known == layer) {
                Some((names, _)) => *names = format!("{names}, {}", format.name),
                None => overflows.push((format.name.to_owned(), layer)),
            }
        }
        Self { name, rows: profile.rows, overflows }
    }

    /// Every how many blocks a point is shown.
    fn stride(&self) -> usize {
        self.rows.len().div_ceil(MAX_POINTS).max(1)
    }
}

fn streams(prediction: &Prediction, shape: Shape) -> Vec<Stream<'_>> {
    let profiles = Profile::all(&prediction.table);
    let several = profiles.len() > 1;
    let name = |profile: &Profile| profile.stream.filter(|_| several).unwrap_or("predicted").to_owned();
    profiles.into_iter().map(|profile| Stream::new(name(&profile), profile, shape)).collect()
}

fn draw(title: &str, streams: &[Stream], observed: &Observed, out: &mut dyn Write) -> io::Result<()> {
    let panels = PANELS.into_iter().map(|(title, quantity, spread, sense)| {
        let spread = spread.filter(|_| streams.len() <= MAX_BANDS);
        let curves = streams.iter().enumerate().map(|(index, stream)| Curve {
            style: Style(index),
            name: stream.name.clone(),
            vertices: vertices(stream, quantity).collect(),
            band: spread.map_or(Vec::new(), |spread| band(stream, quantity, spread)),
            points: points(stream, quantity, sense, observed),
            marks: if quantity == Quantity::Variance { marks(stream) } else { Vec::new() },
        });
        Panel { title, sense, curves: curves.collect() }
    });
    let has_curves = |panel: &Panel| panel.curves.iter().any(|curve| !curve.vertices.is_empty());
    let panels: Vec<Panel> = panels.filter(has_curves).collect();
    let legend = legend(streams, &panels);
    let document = Figure { title: title.to_owned(), panels, legend }.document();
    svg::write(&mut *out, &document)?;
    writeln!(out)
}

fn depth(layer: i64) -> f64 {
    (layer + 1) as f64
}

fn vertices(stream: &Stream, quantity: Quantity) -> impl Iterator<Item = (f64, Number)> {
    stream.rows.iter().filter_map(move |row| Some((depth(row.layer), row.value(quantity)?)))
}

fn band(stream: &Stream, quantity: Quantity, spread: Quantity) -> Vec<(f64, [Number; 2])> {
    let ends = stream.rows.iter().filter_map(|row| {
        let (value, std) = (row.value(quantity)?, row.value(spread)?.value());
        Some((depth(row.layer), [-std, std].map(|shift| Number::from_ln(value.ln_abs() + shift))))
    });
    ends.collect()
}

fn points(stream: &Stream, quantity: Quantity, sense: Sense, observed: &Observed) -> Vec<Point> {
    let rows = stream.rows.iter().step_by(stream.stride());
    let seen = rows.filter_map(|row| observed.get(&(row.site.as_str(), Compared::Site(quantity))));
    let finite = seen.filter(|seen| seen.observed.is_finite());
    finite.map(|seen| Point { depth: depth(seen.layer), value: seen.observed, bar: bar(seen, sense) }).collect()
}

/// Two standard errors to both sides, where they are known.
fn bar(seen: &Comparison, sense: Sense) -> Option<[Number; 2]> {
    let error = std_error(seen).filter(Number::is_finite)?;
    let value = seen.observed;
    match sense {
        Sense::Size => {
            let share = error.ratio(&value);
            share.is_finite().then(|| [-2.0, 2.0].map(|errors| Number::scaled(1.0 + errors * share, value.ln_abs())))
        }
        Sense::Correlation => Some([-2.0, 2.0].map(|errors| Number::from(value.value() + errors * error.value()))),
    }
}

fn marks(stream: &Stream) -> Vec<Mark> {
    let mark = |(label, layer): &(String, i64)| {
        let (depth, value) = vertices(stream, Quantity::Variance).find(|(found, _)| *found >= depth(*layer))?;
        Some(Mark { depth, value, label: label.clone() })
    };
    stream.overflows.iter().filter_map(mark).collect()
}

/// Curves by name, then what else is there to be seen.
fn legend(streams: &[Stream], panels: &[Panel]) -> Vec<(Sign, String)> {
    let curves = || panels.iter().flat_map(|panel| &panel.curves);
    let has_points = curves().any(|curve| !curve.points.is_empty());
    let marked = streams.len() > 1 && !has_points;
    let named = streams.iter().enumerate();
    let mut legend: Vec<(Sign, String)> =
        named.map(|(index, stream)| (Sign::Curve(Style(index), marked), stream.name.clone())).collect();
    if curves().any(|curve| !curve.band.is_empty()) {
        legend.push((Sign::Band(Style(0)), "one initialisation, ± one standard deviation".to_owned()));
    }
    if has_points {
        let stride = streams.iter().map(Stream::stride).max().unwrap_or(1);
        let every = if stride > 1 { format!(", every {stride} blocks") } else { String::new() };
        legend.push((Sign::Point(Style(0)), format!("observed, ± 2 standard errors{every}")));
    }
    if curves().any(|curve| !curve.marks.is_empty()) {
        legend.push((Sign::Mark, "largest entry exceeds the format".to_owned()));
    }
    legend
}
