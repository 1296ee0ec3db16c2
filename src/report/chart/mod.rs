//! The curves of pictures, reports and terminals: forward and backward variance and token correlation over depth.
//!
//! Curves show the sites that the verdict is on: a stream from its input to its last block, without a final norm, which
//! hides its size.
//!
//! ```text
//! depth    blocks passed: layer + 1
//! band     value · e^(−σ²/2 ± σ), σ the standard deviation of its ln: where one initialisation lies, lognormal about
//!          its middle
//! bar      95 % interval of the average over networks, by Student's t
//! mark     the first block whose largest entry to expect exceeds a float format
//! ```

mod axis;
mod curve;
mod style;

use std::collections::HashMap;

use sigprop_stack::{Number, Quantity, SiteRow};

use crate::{
    Prediction,
    agreement::{Compared, Comparison},
    compare::Candidate,
    verdict::{FORMATS, Profile, Shape, overflow},
};
pub(super) use axis::{Axis, Sense};
pub(super) use curve::{Curve, Mark, Point};
pub(super) use style::Style;

/// The largest number of bands in a panel; more would hide each other.
pub(super) const MAX_BANDS: usize = 3;

/// The panels: title, quantity, the standard deviation of its logarithm between initialisations (`None` without a
/// band), and the kind of axis.
const PANELS: [(&str, Quantity, Option<Quantity>, Sense); 4] = [
    ("forward: variance", Quantity::Variance, Some(Quantity::LnVarianceStd), Sense::Size),
    ("backward: variance of the gradient", Quantity::GradVariance, Some(Quantity::LnGradVarianceStd), Sense::Size),
    ("forward: token correlation", Quantity::TokenCorrelation, None, Sense::Correlation),
    ("backward: token correlation of the gradient", Quantity::GradTokenCorrelation, None, Sense::Correlation),
];

/// Panels of curves over the same depth.
pub(super) struct Chart {
    /// The names of the curves, in their order in every panel.
    pub(super) names: Vec<String>,
    pub(super) panels: Vec<Panel>,
}

/// The curves of one quantity.
pub(super) struct Panel {
    pub(super) title: &'static str,
    pub(super) sense: Sense,
    pub(super) curves: Vec<Curve>,
}

impl Chart {
    /// Returns the chart of a prediction, one curve per stream.
    pub(super) fn of_prediction(prediction: &Prediction, shape: Shape) -> Self {
        Self::new(&streams(prediction, shape), &HashMap::new())
    }

    /// Returns the chart of a prediction and the observed numbers.
    pub(super) fn of_validation(prediction: &Prediction, comparisons: &[Comparison], shape: Shape) -> Self {
        let observed = comparisons.iter().map(|row| ((row.site.as_str(), row.quantity), row)).collect();
        Self::new(&streams(prediction, shape), &observed)
    }

    /// Returns the chart of the schemes that are defined for a network. Each scheme has one curve, for the stream that
    /// the gradient goes through.
    pub(super) fn of_comparison(candidates: &[Candidate]) -> Self {
        let defined = candidates.iter().filter_map(|candidate| Some((candidate, candidate.outcome.as_ref().ok()?)));
        let streams: Vec<Stream> = defined
            .map(|(candidate, summary)| {
                let profile = Profile { stream: None, rows: summary.stream.iter().collect() };
                Stream::new(candidate.scheme.label(), profile, summary.shape)
            })
            .collect();
        Self::new(&streams, &HashMap::new())
    }

    fn new(streams: &[Stream], observed: &Observed) -> Self {
        let panels = PANELS.into_iter().map(|(title, quantity, spread, sense)| {
            let curves = streams.iter().enumerate().map(|(index, stream)| Curve {
                style: Style(index),
                name: stream.name.clone(),
                vertices: stream.vertices(quantity).collect(),
                band: spread.map_or(Vec::new(), |spread| stream.band(quantity, spread)),
                points: stream.points(quantity, sense, observed),
                marks: if quantity == Quantity::Variance { stream.marks() } else { Vec::new() },
            });
            Panel { title, sense, curves: curves.collect() }
        });
        let has_curves = |panel: &Panel| panel.curves.iter().any(|curve| !curve.vertices.is_empty());
        let names = streams.iter().map(|stream| stream.name.clone()).collect();
        Self { names, panels: panels.filter(has_curves).collect() }
    }

    /// Returns all curves of all panels.
    pub(super) fn curves(&self) -> impl Iterator<Item = &Curve> {
        self.panels.iter().flat_map(|panel| &panel.curves)
    }

    /// Returns the largest depth of any curve, in blocks.
    pub(super) fn blocks(&self) -> f64 {
        self.curves().flat_map(|curve| &curve.vertices).map(|(depth, _)| *depth).fold(0.0, f64::max)
    }
}

impl Panel {
    /// Returns true if the panel has so few curves that their bands do not hide each other.
    pub(super) fn shows_bands(&self) -> bool {
        self.curves.len() <= MAX_BANDS
    }

    /// Returns the axis that holds all curves and points, and bands if they are shown.
    pub(super) fn axis(&self) -> Axis {
        Axis::of(self.sense, self.curves.iter().flat_map(|curve| curve.numbers(self.sense, self.shows_bands())))
    }
}

/// The observed numbers, by site and quantity.
type Observed<'c> = HashMap<(&'c str, Compared), &'c Comparison>;

/// A stream that has a curve in every panel.
struct Stream<'t> {
    name: String,
    rows: Vec<&'t SiteRow>,
    /// Names of float formats that the stream overflows, each with the first layer where it does.
    overflows: Vec<(String, i64)>,
}

fn streams(prediction: &Prediction, shape: Shape) -> Vec<Stream<'_>> {
    let profiles = Profile::all(&prediction.table);
    let several = profiles.len() > 1;
    let name = |profile: &Profile| profile.stream.filter(|_| several).unwrap_or("predicted").to_owned();
    profiles.into_iter().map(|profile| Stream::new(name(&profile), profile, shape)).collect()
}

fn depth(layer: i64) -> f64 {
    (layer + 1) as f64
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

    fn vertices(&self, quantity: Quantity) -> impl Iterator<Item = (f64, Number)> {
        self.rows.iter().filter_map(move |row| Some((depth(row.layer), row.value(quantity)?)))
    }

    fn band(&self, quantity: Quantity, spread: Quantity) -> Vec<(f64, [Number; 2])> {
        let ends = self.rows.iter().filter_map(|row| {
            let (value, std) = (row.value(quantity)?, row.value(spread)?.value());
            let middle = value.ln_abs() - 0.5 * std * std;
            Some((depth(row.layer), [-std, std].map(|shift| Number::from_ln(middle + shift))))
        });
        ends.collect()
    }

    fn points(&self, quantity: Quantity, sense: Sense, observed: &Observed) -> Vec<Point> {
        let seen = self.rows.iter().filter_map(|row| observed.get(&(row.site.as_str(), Compared::Site(quantity))));
        let finite = seen.filter(|seen| seen.observed.is_finite());
        finite.map(|seen| Point::of(seen, depth(seen.layer), sense)).collect()
    }

    fn marks(&self) -> Vec<Mark> {
        let mark = |(label, layer): &(String, i64)| {
            let (depth, value) = self.vertices(Quantity::Variance).find(|(found, _)| *found >= depth(*layer))?;
            Some(Mark { depth, value, label: label.clone() })
        };
        self.overflows.iter().filter_map(mark).collect()
    }
}
