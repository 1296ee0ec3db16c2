//! The notes of one pass, and their average over the passes of several sequences.

use foldhash::{HashMap, HashMapExt};
use sigprop_stack::{Cell, Number, Quantity, Site, SiteRow, SiteTable, WeightRow};
use statrs::statistics::Statistics;

use super::pooled::Pooled;
use super::{AttentionRow, Followed, LinearRow, PredictError, Prediction, ScaleRow, Sequences};
use crate::caveat::{Caveat, Condition};
use crate::logarithms::ln_sum;
use crate::mean_field::steps::Steps;

/// The results that one pass records. Sites are in order of depth.
#[derive(Default)]
pub(crate) struct Rows {
    sites: Vec<Note>,
    /// Index of every site in `sites`, by path.
    places: HashMap<String, usize>,
    /// Weight tensors in the reverse order of depth, one note per use.
    weights: Vec<WeightNote>,
    /// Linear maps in the reverse order of depth, if first steps are asked for.
    linears: Vec<LinearNote>,
    /// Factors on branches in the reverse order of depth, if first steps are asked for.
    scales: Vec<ScaleNote>,
    /// Layer, site and sharpness of every attention, in order of depth.
    attentions: Vec<(i64, String, Sharpness)>,
    /// One caveat of each kind.
    caveats: Vec<Caveat>,
    /// The positions that were followed; `None` if all were.
    followed: Option<Followed>,
}

/// The recorded results of a site.
struct Note {
    layer: i64,
    site: String,
    is_stream_site: bool,
    signal: Pooled,
    gradient: Option<Pooled>,
}

/// The recorded results of one use of a weight tensor. `ln_second_moment` is ln E dW².
#[derive(Clone)]
pub(crate) struct WeightNote {
    pub(crate) layer: i64,
    pub(crate) tensor: String,
    pub(crate) variance: f64,
    pub(crate) ln_second_moment: f64,
}

/// The sharpness of an attention, averaged over queries and heads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sharpness {
    /// ln E s² of the scores of keys in view, without position biases.
    pub(crate) ln_score: f64,
    /// The effective number of keys that a query a attends to: 1/E Σ_b A_ab², with its attention weights A.
    pub(crate) attended: f64,
    /// The value of `attended` if all scores were equal.
    pub(crate) in_view: f64,
}

/// The effect of first steps of a linear map.
pub(crate) struct LinearNote {
    pub(crate) tensor: String,
    /// ln E y².
    pub(crate) ln_output: f64,
    pub(crate) steps: Steps,
}

/// A factor on a branch that is a parameter.
#[derive(Clone)]
pub(crate) struct ScaleNote {
    pub(crate) layer: i64,
    pub(crate) name: String,
    pub(crate) scale: f64,
    pub(crate) entries: usize,
    /// ln E f² of the branch's output.
    pub(crate) ln_output: f64,
    pub(crate) ln_second_moment: f64,
}

impl Rows {
    /// Begins the row of a site with the moments of its signal.
    pub(crate) fn signal(&mut self, at: (i64, String), is_stream_site: bool, signal: Pooled) {
        let (layer, site) = at;
        self.places.insert(site.clone(), self.sites.len());
        self.sites.push(Note { layer, site, is_stream_site, signal, gradient: None });
    }

    /// Completes the row of a site with the moments of its gradient.
    pub(crate) fn gradient(&mut self, site: &str, gradient: Pooled) {
        if let Some(&place) = self.places.get(site) {
            self.sites[place].gradient = Some(gradient);
        }
    }

    pub(crate) fn weight(&mut self, note: WeightNote) {
        self.weights.push(note);
    }

    /// Makes the latest note of a tensor the note of all uses so far, which have `more` · e^`ln_unit` in common. This
    /// number may be negative. A gradient that is exactly zero stays zero.
    pub(crate) fn add_to_weight(&mut self, tensor: &str, more: f64, ln_unit: f64) {
        let is_use = |note: &WeightNote| note.tensor == tensor;
        let mut uses: Vec<WeightNote> = self.weights.extract_if(.., |note| is_use(note)).collect();
        let latest = uses.pop().expect("the tensor has notes");
        let ln_uses = ln_sum(uses.iter().chain([&latest]).map(|note| note.ln_second_moment));
        let part = if ln_uses > f64::NEG_INFINITY { more * (ln_unit - ln_uses).exp() } else { 0.0 };
        self.weights.push(WeightNote { ln_second_moment: ln_uses + part.max(-1.0).ln_1p(), ..latest });
    }

    pub(crate) fn linear(&mut self, note: LinearNote) {
        self.linears.push(note);
    }

    pub(crate) fn scale(&mut self, note: ScaleNote) {
        self.scales.push(note);
    }

    pub(crate) fn attention(&mut self, at: &Site, sharpness: Sharpness) {
        if !at.recomputing() {
            self.attentions.push((at.layer(), at.path().to_owned(), sharpness));
        }
    }

    pub(crate) fn caveat(&mut self, at: &Site, caveat: Option<Condition>) {
        if !at.recomputing() {
            self.caveat_at(at.path(), caveat);
        }
    }

    /// Records that `positions` of the `seq_len` positions of a stream are followed, if no longer stream is recorded.
    pub(crate) fn graded(&mut self, positions: usize, seq_len: usize) {
        if self.followed.is_none_or(|known| known.seq_len < seq_len) {
            self.followed = Some(Followed { positions, seq_len, difference: None });
        }
    }

    /// Adds a caveat at the site with this path. If there is a caveat of its kind, the one of larger size is kept.
    pub(crate) fn caveat_at(&mut self, path: &str, condition: Option<Condition>) {
        let Some(condition) = condition else { return };
        let known = self.caveats.iter_mut().find(|known| known.kind() == condition.kind());
        match known {
            Some(caveat) => {
                caveat.sites += 1;
                if condition.size() > caveat.condition.size() {
                    caveat.condition = condition;
                }
            }
            None => self.caveats.push(Caveat::at(path, condition)),
        }
    }

    /// Returns the average over all passes of several sequences through one stack.
    pub(crate) fn average(sequences: Vec<Vec<Self>>) -> Result<Prediction, PredictError> {
        let differing = Self::differing(&sequences);
        let passes = sequences.into_iter().flatten().map(|pass| (1.0, pass)).collect();
        Ok(Prediction { sequences: differing, ..Self::mixed(passes, 1.0).told()? })
    }

    /// Returns how much E x² and E g² on the stream differ between sequences; `None` for one sequence. `sequences` has
    /// the passes of each.
    fn differing(sequences: &[Vec<Self>]) -> Option<Sequences> {
        let count = sequences.len();
        let first = sequences.first().filter(|_| count > 1)?.first()?;
        let deviation = |place: usize, level: &dyn Fn(&Note) -> Option<f64>| {
            let of_sequence = |passes: &Vec<Self>| {
                let levels = passes.iter().map(|pass| level(&pass.sites[place]));
                Some(ln_sum(levels.collect::<Option<Vec<f64>>>()?) - (passes.len() as f64).ln())
            };
            let levels = sequences.iter().map(of_sequence).collect::<Option<Vec<f64>>>()?;
            let deviation = levels.std_dev();
            deviation.is_finite().then_some(deviation)
        };
        let signal = |note: &Note| Some(note.signal.ln_unit + note.signal.second.ln());
        let gradient = |note: &Note| note.gradient.map(|gradient| gradient.ln_unit + gradient.second.ln());
        let stream = first.sites.iter().enumerate().filter(|(_, note)| note.is_stream_site);
        let deviations = stream.flat_map(|(place, _)| [deviation(place, &signal), deviation(place, &gradient)]);
        Some(Sequences { count, deviation: deviations.flatten().fold(0.0, f64::max) })
    }

    /// Returns the average over all `passes` of a sequence, each with its probability.
    pub(crate) fn of_all(passes: Vec<(f64, Self)>) -> Self {
        let rare = if passes.len() > 1 { rare(&passes) } else { None };
        let mut all = Self::mixed(passes, 0.0).with_zeros();
        all.caveats.extend(rare);
        all
    }

    /// Returns the average over passes with these weights; for `lost` see [`Pooled::average`].
    fn mixed(mut passes: Vec<(f64, Self)>, lost: f64) -> Self {
        if passes.len() == 1 {
            return passes.remove(0).1;
        }
        let count: f64 = passes.iter().map(|(weight, _)| weight).sum();
        let mean =
            |of: &dyn Fn(&Self) -> f64| passes.iter().map(|(weight, pass)| weight * of(pass)).sum::<f64>() / count;
        let ln_mean =
            |of: &dyn Fn(&Self) -> f64| ln_sum(passes.iter().map(|(weight, pass)| of(pass) + weight.ln())) - count.ln();
        let first = &passes[0].1;
        let site = |(place, note): (usize, &Note)| {
            let notes = || passes.iter().map(|(weight, pass)| (*weight, &pass.sites[place]));
            let signal = Pooled::average(&notes().map(|(weight, note)| (weight, note.signal)), lost);
            let gradients = notes().filter_map(|(weight, note)| Some((weight, note.gradient?)));
            let gradient = note.gradient.map(|_| Pooled::average(&gradients, lost));
            Note { site: note.site.clone(), signal, gradient, ..*note }
        };
        let weight = |(place, note): (usize, &WeightNote)| {
            let ln_second_moment = ln_mean(&|pass| pass.weights[place].ln_second_moment);
            WeightNote { tensor: note.tensor.clone(), ln_second_moment, ..*note }
        };
        let attention = |(place, (layer, site, _)): (usize, &(i64, String, Sharpness))| {
            let of = |pass: &Self| pass.attentions[place].2;
            let sharpness = Sharpness {
                ln_score: ln_mean(&|pass| of(pass).ln_score),
                attended: mean(&|pass| of(pass).attended),
                in_view: mean(&|pass| of(pass).in_view),
            };
            (*layer, site.clone(), sharpness)
        };
        let linear = |(place, note): (usize, &LinearNote)| {
            let of = |pass: &Self| pass.linears[place].steps;
            let steps = Steps {
                by_sgd: ln_mean(&|pass| of(pass).by_sgd),
                by_adam: ln_mean(&|pass| of(pass).by_adam),
                size: ln_mean(&|pass| of(pass).size),
            };
            LinearNote { tensor: note.tensor.clone(), ln_output: ln_mean(&|pass| pass.linears[place].ln_output), steps }
        };
        let scale = |(place, note): (usize, &ScaleNote)| ScaleNote {
            ln_output: ln_mean(&|pass| pass.scales[place].ln_output),
            ln_second_moment: ln_mean(&|pass| pass.scales[place].ln_second_moment),
            ..note.clone()
        };
        Self {
            sites: first.sites.iter().enumerate().map(site).collect(),
            weights: first.weights.iter().enumerate().map(weight).collect(),
            linears: first.linears.iter().enumerate().map(linear).collect(),
            scales: first.scales.iter().enumerate().map(scale).collect(),
            attentions: first.attentions.iter().enumerate().map(attention).collect(),
            caveats: common_caveats(&passes),
            followed: first.followed,
            places: HashMap::new(),
        }
    }

    /// Returns the rows with the spread of each site replaced by its spread in `other`, or by `None` if that exceeds
    /// `LARGEST_SPREAD`.
    pub(crate) fn with_spreads(mut self, other: &Self) -> Self {
        /// Beyond this variance, networks differ by more than the factor e², which the leading order does not describe.
        const LARGEST_SPREAD: f64 = 4.0;
        let spread = |of: &Pooled| of.spread.filter(|spread| (0.0..=LARGEST_SPREAD).contains(spread));
        for (note, other) in self.sites.iter_mut().zip(&other.sites) {
            note.signal.spread = spread(&other.signal);
            if let (Some(gradient), Some(other)) = (&mut note.gradient, &other.gradient) {
                gradient.spread = spread(other);
            }
        }
        self
    }

    /// Returns the first site or tensor whose moment is not finite.
    pub(crate) fn not_finite(&self) -> Option<&str> {
        let is_finite = |pooled: &Pooled| (pooled.ln_unit + pooled.second.ln()) < f64::INFINITY;
        let site =
            |note: &&Note| !is_finite(&note.signal) || note.gradient.is_some_and(|gradient| !is_finite(&gradient));
        let weight = |note: &&WeightNote| note.ln_second_moment.is_nan() || note.ln_second_moment == f64::INFINITY;
        let site = self.sites.iter().find(site).map(|note| note.site.as_str());
        site.or_else(|| Some(self.weights.iter().find(weight)?.tensor.as_str()))
    }

    /// Sets a negative second moment of a gradient to zero if it is negligible compared with the largest in its block.
    fn with_zeros(mut self) -> Self {
        /// Relative size of the remainder of terms that cancel where tokens are copies.
        const NOTHING: f64 = 1e-6;
        let levels = |note: &Note| Some((note.layer, note.gradient?.ln_unit + note.gradient?.second.abs().ln()));
        let all: Vec<(i64, f64)> = self.sites.iter().filter_map(levels).collect();
        let largest =
            |of: i64| all.iter().filter(|(layer, _)| *layer == of).map(|(_, ln)| *ln).fold(f64::MIN, f64::max);
        for note in &mut self.sites {
            let Some(gradient) = note.gradient.as_mut().filter(|gradient| gradient.second < 0.0) else { continue };
            if gradient.ln_unit + (-gradient.second).ln() < largest(note.layer) + NOTHING.ln() {
                (gradient.second, gradient.cross) = (0.0, None);
            }
        }
        self
    }

    /// Returns the recorded results as a prediction, or an error if a number is not finite.
    fn told(self) -> Result<Prediction, PredictError> {
        let mut table = SiteTable::default();
        table.sites.reserve(self.sites.len());
        table.weights.reserve(self.weights.len());
        for note in self.sites {
            let row = SiteRow {
                layer: note.layer,
                site: note.site,
                is_stream_site: note.is_stream_site,
                cells: cells(&note.signal, note.gradient.as_ref()),
            };
            for quantity in Quantity::ALL {
                let is_level = matches!(quantity, Quantity::Variance | Quantity::GradVariance);
                if row.value(quantity).is_some_and(|value| !value.is_finite() || is_level && value.is_negative()) {
                    return Err(PredictError::NotANumber { site: row.site, quantity: quantity.name() });
                }
            }
            table.sites.push(row);
        }
        for note in merged(self.weights).into_iter().rev() {
            let value = Number::from_ln(note.ln_second_moment);
            if !value.is_finite() {
                let quantity = "the second moment of the gradient";
                return Err(PredictError::NotANumber { site: note.tensor, quantity });
            }
            table.weights.push(WeightRow {
                layer: note.layer,
                tensor: note.tensor,
                variance: note.variance,
                grad_second_moment: Cell::exact(value),
            });
        }
        let attentions = self.attentions.into_iter().map(|(layer, site, sharpness)| AttentionRow {
            layer,
            site,
            score_variance: Number::from_ln(sharpness.ln_score),
            attended: sharpness.attended,
            in_view: sharpness.in_view,
        });
        let linears = self.linears.into_iter().rev().map(|LinearNote { tensor, ln_output, steps }| LinearRow {
            tensor,
            output: Number::from_ln(ln_output),
            moved_by_sgd: Number::from_ln(steps.by_sgd),
            moved_by_adam: Number::from_ln(steps.by_adam),
            gradient_size: Number::from_ln(steps.size),
        });
        let scales = self.scales.into_iter().rev().map(|note| ScaleRow {
            layer: note.layer,
            name: note.name,
            scale: note.scale,
            entries: note.entries,
            output: Number::from_ln(note.ln_output),
            grad_second_moment: Number::from_ln(note.ln_second_moment),
        });
        Ok(Prediction {
            table,
            attentions: attentions.collect(),
            linears: linears.collect(),
            scales: scales.collect(),
            blocked: Vec::new(),
            token_share: None,
            repeller: None,
            caveats: self.caveats,
            followed: self.followed,
            sequences: None,
        })
    }
}

/// Returns the caveats of all passes whose probability is at least 1 %, each kind once.
fn common_caveats(passes: &[(f64, Rows)]) -> Vec<Caveat> {
    const COMMON: f64 = 0.01;
    let mut caveats: Vec<Caveat> = Vec::new();
    for caveat in passes.iter().filter(|(weight, _)| *weight >= COMMON).flat_map(|(_, pass)| &pass.caveats) {
        if !caveats.iter().any(|known| known.kind() == caveat.kind()) {
            caveats.push(caveat.clone());
        }
    }
    caveats
}

/// Returns a caveat if rare sequences have most of E g² at some site. `passes` are pairs of a probability and the
/// results for the sequences with these masks.
fn rare(passes: &[(f64, Rows)]) -> Option<Caveat> {
    /// The largest E (g²)²/(E g²)² that has no caveat. An average over this number of networks has an error as large as
    /// itself.
    const FEW: f64 = 100.0;
    let networks = |place: usize| {
        let gradients = passes.iter().filter_map(|(weight, pass)| Some((*weight, pass.sites[place].gradient?)));
        let level = |gradient: Pooled| gradient.ln_unit + gradient.second.ln();
        let moment = |power| ln_sum(gradients.clone().map(|(weight, g)| weight.ln() + power * level(g)));
        (moment(2.0) - 2.0 * moment(1.0)).exp()
    };
    let sites = passes[0].1.sites.iter().enumerate().map(|(place, note)| (networks(place), note));
    let sites: Vec<(f64, &Note)> = sites.filter(|(networks, _)| *networks > FEW).collect();
    let (largest, note) = sites.iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(Caveat::of(&note.site, sites.len(), Condition::RareSequences(*largest)))
}

/// Returns one note per tensor. Gradients from several uses are uncorrelated, so that their second moments add up.
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
            known.ln_second_moment = ln_sum([known.ln_second_moment, note.ln_second_moment]);
            known.layer = known.layer.min(note.layer);
        } else {
            merged.push(note);
        }
    }
    merged
}

/// Returns the correlation, limited to ±1. It could exceed this range because of terms that are neglected (for tiny
/// widths and short sequences) or by rounding (if the mean is large).
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
        // Where gradients cancel, rounding may be below zero.
        set(quantity, Number::scaled(second.max(0.0), gradient.ln_unit));
    }
    if let Some(spread) = gradient.spread.filter(|_| gradient.second > 0.0) {
        set(Quantity::LnGradVarianceStd, spread.sqrt().into());
    }
    cells
}
