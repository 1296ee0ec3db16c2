//! What one walk writes down, and the average over the walks of several sequences.

use std::mem::take;

use foldhash::{HashMap, HashMapExt};
use nalgebra::{Matrix2, Vector2};
use sigprop_stack::{Cell, Number, Quantity, Site, SiteRow, SiteTable, WeightRow};

use super::{AttentionRow, Caveat, LinearRow, PredictError, Prediction};
use crate::domain::Pooled;
use crate::moments::ln_sum;
use crate::rules::attention::Sharpness;
use crate::rules::linear::steps::Steps;

/// Notes of a walk, in order of depth.
#[derive(Default)]
pub(crate) struct Rows {
    sites: Vec<Note>,
    /// Where a site is among them, by path.
    places: HashMap<String, usize>,
    /// In the reverse order of depth, one per place where a tensor is used.
    weights: Vec<WeightNote>,
    /// In the reverse order of depth, if asked for.
    linears: Vec<LinearNote>,
    /// Layer and site of every attention, in order.
    attentions: Vec<(i64, String, Sharpness)>,
    /// Kind, first site, how many, what was met.
    caveats: Vec<(&'static str, Caveat)>,
}

/// What is known of a site.
struct Note {
    layer: i64,
    site: String,
    is_stream_site: bool,
    signal: Pooled,
    levels: Matrix2<f64>,
    gradient: Option<Pooled>,
}

/// What is known of a weight tensor.
#[derive(Clone)]
pub(crate) struct WeightNote {
    pub(crate) layer: i64,
    pub(crate) tensor: String,
    pub(crate) variance: f64,
    pub(crate) ln_second_moment: f64,
}

/// What first steps of a linear map do.
pub(crate) struct LinearNote {
    pub(crate) tensor: String,
    /// ln E y².
    pub(crate) ln_output: f64,
    pub(crate) steps: Steps,
}

impl Rows {
    /// Begins the row of a site where one network's levels have the covariance `levels`.
    pub(crate) fn signal(&mut self, at: (i64, String), is_stream_site: bool, signal: Pooled, levels: Matrix2<f64>) {
        let (layer, site) = at;
        self.places.insert(site.clone(), self.sites.len());
        self.sites.push(Note { layer, site, is_stream_site, signal, levels, gradient: None });
    }

    /// Completes the row of a site, where the gradient responds to the levels of the signal.
    pub(crate) fn gradient(&mut self, site: &str, gradient: Pooled, response: Vector2<f64>) {
        if let Some(&place) = self.places.get(site) {
            let note = &mut self.sites[place];
            let met = response.dot(&(note.levels * response)).max(0.0);
            note.gradient = Some(Pooled { spread: gradient.spread.map(|own| own + met), ..gradient });
        }
    }

    pub(crate) fn weight(&mut self, note: WeightNote) {
        self.weights.push(note);
    }

    pub(crate) fn linear(&mut self, note: LinearNote) {
        self.linears.push(note);
    }

    pub(crate) fn attention(&mut self, at: &Site, sharpness: Sharpness) {
        if !at.recomputing() {
            self.attentions.push((at.layer(), at.path().to_owned(), sharpness));
        }
    }

    pub(crate) fn caveat(&mut self, at: &Site, caveat: Option<(&'static str, String)>) {
        if !at.recomputing() {
            self.caveat_at(at.path(), caveat);
        }
    }

    /// A caveat at the site with this path.
    pub(crate) fn caveat_at(&mut self, path: &str, caveat: Option<(&'static str, String)>) {
        let Some((kind, got)) = caveat else { return };
        if let Some((_, caveat)) = self.caveats.iter_mut().find(|(known, _)| *known == kind) {
            caveat.sites += 1;
        } else {
            let text = format!("{kind}: {got}");
            self.caveats.push((kind, Caveat { site: path.to_owned(), sites: 1, text }));
        }
    }

    /// The average over `walks` through one stack, caveats from the first.
    pub(crate) fn average(walks: Vec<Self>) -> Result<Prediction, PredictError> {
        let mut table = SiteTable::default();
        let mut walks: Vec<Self> =
            walks.into_iter().map(|walk| Self { weights: merged(walk.weights), ..walk }).collect();
        let first = &walks[0];
        table.sites.reserve(first.sites.len());
        table.weights.reserve(first.weights.len());
        for place in 0..first.sites.len() {
            let notes = || walks.iter().map(|walk| &walk.sites[place]);
            let signal = Pooled::average(&notes().map(|note| note.signal));
            let gradient = first.sites[place].gradient.is_some();
            let gradient = gradient.then(|| Pooled::average(&notes().filter_map(|note| note.gradient)));
            let note = &first.sites[place];
            let row = SiteRow {
                layer: note.layer,
                site: note.site.clone(),
                is_stream_site: note.is_stream_site,
                cells: cells(&signal, gradient.as_ref()),
            };
            for quantity in Quantity::ALL {
                if row.value(quantity).is_some_and(|value| !value.is_finite()) {
                    return Err(PredictError::NotANumber { site: row.site, quantity: quantity.name() });
                }
            }
            table.sites.push(row);
        }
        for place in (0..walks[0].weights.len()).rev() {
            let tensor = take(&mut walks[0].weights[place].tensor);
            let note = &walks[0].weights[place];
            let sum = ln_sum(walks.iter().map(|walk| walk.weights[place].ln_second_moment));
            let value = Number::from_ln(sum - (walks.len() as f64).ln());
            if !value.is_finite() {
                let quantity = "the second moment of the gradient";
                return Err(PredictError::NotANumber { site: tensor, quantity });
            }
            table.weights.push(WeightRow {
                layer: note.layer,
                tensor,
                variance: note.variance,
                grad_second_moment: Cell::exact(value),
            });
        }
        let first = &walks[0];
        let attentions = (0..first.attentions.len()).map(|place| {
            let (layer, site, _) = &first.attentions[place];
            let notes = || walks.iter().map(|walk| walk.attentions[place].2);
            let mean = |of: &dyn Fn(Sharpness) -> f64| notes().map(of).sum::<f64>() / walks.len() as f64;
            let score_variance = ln_sum(notes().map(|note| note.ln_score)) - (walks.len() as f64).ln();
            AttentionRow {
                layer: *layer,
                site: site.clone(),
                score_variance: Number::from_ln(score_variance),
                attended: mean(&|note| note.attended),
                in_view: mean(&|note| note.in_view),
            }
        });
        let attentions = attentions.collect();
        let linears = (0..first.linears.len()).rev().map(|place| {
            let mean = |ln: &dyn Fn(&LinearNote) -> f64| {
                let sum = ln_sum(walks.iter().map(|walk| ln(&walk.linears[place])));
                Number::from_ln(sum - (walks.len() as f64).ln())
            };
            let LinearNote { tensor, steps, .. } = &first.linears[place];
            LinearRow {
                tensor: tensor.clone(),
                output: mean(&|note| note.ln_output),
                moved_by_sgd: mean(&|note| note.steps.by_sgd),
                // What the laws of features are is the same in all sequences.
                moved_by_adam: steps.by_adam.map(|ln| mean(&|note| note.steps.by_adam.unwrap_or(ln))),
                gradient_size: mean(&|note| note.steps.size),
            }
        });
        let linears = linears.collect();
        let caveats = walks.into_iter().next().expect("there is a walk").caveats;
        Ok(Prediction { table, attentions, linears, caveats: caveats.into_iter().map(|(_, caveat)| caveat).collect() })
    }
}

/// One note per tensor: gradients from several places are uncorrelated.
fn merged(notes: Vec<WeightNote>) -> Vec<WeightNote> {
    let mut first: HashMap<&str, usize> = HashMap::with_capacity(notes.len());
    let mut place = |note| {
        let next = first.len();
        *first.entry(note).or_insert(next)
    };
    let places: Vec<usize> = notes.iter().map(|note| place(note.tensor.as_str())).collect();
    let mut merged: Vec<WeightNote> = Vec::with_capacity(notes.len());
    for (place, note) in places.into_iter().zip(notes) {
        if let Some(known) = merged.get_mut(place) {
            known.ln_second_moment = ln_sum([known.ln_second_moment, note.ln_second_moment].into_iter());
            known.layer = known.layer.min(note.layer);
        } else {
            merged.push(note);
        }
    }
    merged
}

/// Terms that are neglected where widths and sequences are tiny, and rounding beside a large mean, would take it beyond 1.
fn correlation(covariance: f64, variance: f64) -> Number {
    (covariance / variance).clamp(-1.0, 1.0).into()
}

fn cells(signal: &Pooled, gradient: Option<&Pooled>) -> [Option<Cell>; Quantity::ALL.len()] {
    let mut cells = [None; Quantity::ALL.len()];
    let mut set = |quantity: Quantity, value: Number| cells[quantity as usize] = Some(Cell::exact(value));
    let square = signal.mean * signal.mean;
    let variance = (signal.second - square).max(0.0);
    set(Quantity::Mean, Number::scaled(signal.mean, 0.5 * signal.ln_unit));
    set(Quantity::Variance, Number::scaled(variance, signal.ln_unit));
    if let Some(cross) = signal.cross.filter(|_| variance > 0.0) {
        set(Quantity::TokenCorrelation, correlation(cross - square, variance));
    }
    let ends = signal.ends.into_iter().flatten();
    for (quantity, (mean, second)) in [Quantity::VarianceFirst, Quantity::VarianceLast].into_iter().zip(ends) {
        set(quantity, Number::scaled((second - mean * mean).max(0.0), signal.ln_unit));
    }
    if let Some(spread) = signal.spread.filter(|_| variance > 0.0) {
        set(Quantity::LnVarianceStd, spread.sqrt().into());
    }
    let Some(gradient) = gradient else { return cells };
    let mut set = |quantity: Quantity, value: Number| cells[quantity as usize] = Some(Cell::exact(value));
    set(Quantity::GradVariance, Number::scaled(gradient.second, gradient.ln_unit));
    if let Some(cross) = gradient.cross.filter(|_| gradient.second > 0.0) {
        set(Quantity::GradTokenCorrelation, correlation(cross, gradient.second));
    }
    let ends = gradient.ends.into_iter().flatten();
    for (quantity, (_, second)) in [Quantity::GradVarianceFirst, Quantity::GradVarianceLast].into_iter().zip(ends) {
        set(quantity, Number::scaled(second, gradient.ln_unit));
    }
    if let Some(spread) = gradient.spread.filter(|_| gradient.second > 0.0) {
        set(Quantity::LnGradVarianceStd, spread.sqrt().into());
    }
    cells
}
