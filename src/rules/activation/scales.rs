//! An activation at any scale: profiles on a grid of ln σ², between which it is interpolated, and averages over scales.
//!
//! Of networks and tokens whose s = ln σ² ~ N(ln E σ² − V/2, V), with F = ln E φ² and G = ln E φ'² at σ² = e^s, χ = F' and
//! e = −G', and of a gradient that knows the scale of y as E g² ∝ e^(−S F),
//!
//! ```text
//! E y² = E e^F      V' = 2 (E F e^F/E e^F − ln E e^F)      E g'²/E g² = E e^(G − S F)/E e^(−S F)
//! S' = E (e + χ S) e^(G − S F)/E e^(G − S F)
//! ```
//!
//! χ and κ are weighed as e^F, and what gradients need as e^(G − S F): of the networks that make up the average. V' is chosen
//! for them too: in the networks that E y² is made of, ln E φ² is V'/2 above ln E y², as it is where s is Gaussian; the
//! variance of ln φ² itself is another where most networks have died out. Homogeneous activations have V' = χ² V and S' = e +
//! χ S. Levels, of single networks, have χ and e on average over networks, in each of which sums weigh long tokens more.
//!
//! Against the chain s' = F(s) + ln 2 + noise, integrated on a grid, and sampled MLPs without norms under Kaiming (20000
//! networks of width 64; 256 in brackets): E y² within 8 % after 12 layers (3 %), 25 % after 24 (GELU 45 % too large). Gradients
//! at the input are 27 % too large (2 %) after 12 layers of GELU and 60 % too small (13 %) of SiLU: of that 31 % is the chain
//! itself, to first order in 1/width; the rest that ln E g² bends with s, by which S would grow faster. After 24 layers GELU
//! has 55 to 75 % too little, SiLU has gradients that are not known.
//!
//! Neglected: what s is beyond Gaussian, and what the gradient is beyond a power.
//! Source: ours.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use sigprop_stack::Activation;
use smallvec::SmallVec;

use super::entries::Entries;
use super::profile::Profile;
use super::table::Table;
use crate::domain::Entry;
use crate::interpolation::lagrange;
use crate::mean_field::dual::function::{Words, homogeneous, words};
use crate::moments::{ln_sum, ratio};
use crate::quadrature::{few_hermite_nodes, hermite_nodes};

/// Distance in ln σ².
const STEP: f64 = 0.125;
/// Places beyond which φ is homogeneous.
const ENDS: [i32; 2] = [-300, 230];
/// Places on either side that interpolation asks for.
const MARGIN: i32 = 2;
/// Variance of ln σ² below which few nodes tell averages.
const NARROW: f64 = 0.1;

/// At one scale, or on average over some.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AtScale {
    /// ln E φ² and ln E φ'².
    pub(super) ln_second: f64,
    pub(super) ln_derivative_second: f64,
    /// χ and e.
    pub(super) sensitivity: f64,
    pub(super) exponent: f64,
    /// E φ²φ'²/(E φ² E φ'²) − 1.
    pub(super) shared: f64,
    /// (E uφφ')²/(σ² E φ² E φ'²).
    pub(super) radial_kept: f64,
    /// E (φ − E φ)²φ'²/(E (φ − E φ)² E φ'²) − 1.
    shared_centred: f64,
    /// (E φ)²/E φ² and E φ E uφ'/E uφφ'.
    averages: [f64; 2],
    /// E φ⁴/(E φ²)² − 1.
    pub(super) kurtosis: f64,
    /// E φ'⁴/(E φ'²)² − 1.
    pub(super) derivative_kurtosis: f64,
}

impl AtScale {
    fn of(profile: &Profile) -> Self {
        let [values, both, derivatives] = profile.squares;
        Self {
            ln_second: profile.ln_second(),
            ln_derivative_second: profile.ln_derivative_second(),
            sensitivity: profile.sensitivity,
            exponent: profile.exponent,
            shared: both.own,
            radial_kept: profile.radial_kept,
            shared_centred: profile.centred.own,
            averages: [profile.mean * profile.mean, profile.of_average],
            kurtosis: values.own,
            derivative_kurtosis: derivatives.own,
        }
    }

    /// `shared` and `radial_kept` of a gradient that knows φ, entries `single` times as much of themselves, and to the part `centred`
    /// φ − E φ in its place: behind a mask m, E m = 1, mφ − E φ has 1/(1 − p) E φ² − (E φ)².
    pub(super) fn known(&self, centred: f64, single: f64) -> [f64; 2] {
        let [average, of_average] = self.averages;
        let apart = 1.0 - average / single;
        let shared = ratio(self.shared * (single - 1.0) + self.shared_centred * (1.0 - average), apart);
        let radial_kept = ratio(self.radial_kept * (1.0 - of_average / single).powi(2), apart);
        let between = |all: f64, apart: f64| all + centred * (apart - all);
        [between(self.shared * single, shared), between(self.radial_kept, radial_kept)]
    }

    fn weighted<'a>(parts: impl Iterator<Item = (f64, &'a Self)>) -> Self {
        parts.fold(Self::default(), |sum, (weight, part)| Self {
            ln_second: sum.ln_second + weight * part.ln_second,
            ln_derivative_second: sum.ln_derivative_second + weight * part.ln_derivative_second,
            sensitivity: sum.sensitivity + weight * part.sensitivity,
            exponent: sum.exponent + weight * part.exponent,
            shared: sum.shared + weight * part.shared,
            radial_kept: sum.radial_kept + weight * part.radial_kept,
            shared_centred: sum.shared_centred + weight * part.shared_centred,
            averages: [0, 1].map(|which| sum.averages[which] + weight * part.averages[which]),
            kurtosis: sum.kurtosis + weight * part.kurtosis,
            derivative_kurtosis: sum.derivative_kurtosis + weight * part.derivative_kurtosis,
        })
    }
}

/// What is averaged over scales that stray.
pub(super) struct Average {
    /// ln of it over what it is at σ² = E σ².
    pub(super) ln_gain: f64,
    /// Weighed with it.
    pub(super) mean: AtScale,
}

/// The nodes that were asked for.
pub(super) struct Scales {
    activation: Activation,
    ends: [i32; 2],
    nodes: Vec<OnceLock<Box<Node>>>,
}

struct Node {
    profile: Profile,
    at: AtScale,
    entries: Entries,
    table: OnceLock<Table>,
}

/// Of every activation that was met: each node depends on its place alone, and searches predict hundreds of times.
static MET: LazyLock<Mutex<HashMap<Words, Arc<Scales>>>> = LazyLock::new(Mutex::default);

impl Scales {
    /// Kept for the whole process.
    pub(super) fn of(activation: Activation) -> Arc<Self> {
        let mut met = MET.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(met.entry(words(activation)).or_insert_with(|| Arc::new(Self::new(activation))))
    }

    fn new(activation: Activation) -> Self {
        // Of a homogeneous activation one scale tells all.
        let ends = if homogeneous(activation).is_some() { [0, 0] } else { ENDS };
        let nodes = (ends[0] - MARGIN..=ends[1] + MARGIN).map(|_| OnceLock::new()).collect();
        Self { activation, ends, nodes }
    }

    fn node(&self, place: i32) -> &Node {
        self.nodes[(place - self.ends[0] + MARGIN) as usize].get_or_init(|| {
            let profile = Profile::new(self.activation, STEP * f64::from(place));
            let entries = Entries::new(self.activation, profile.q.sqrt());
            Box::new(Node { at: AtScale::of(&profile), profile, entries, table: OnceLock::new() })
        })
    }

    /// The place of a scale on the grid.
    fn place(&self, ln_scale: f64) -> f64 {
        let [lowest, highest] = self.ends.map(f64::from);
        (ln_scale / STEP).clamp(lowest, highest)
    }

    /// `of` the nodes on both sides, and how far it is to the second.
    fn between<T>(&self, ln_scale: f64, of: impl Fn(&Node) -> T) -> (T, T, f64) {
        let place = self.place(ln_scale);
        let below = place.floor();
        let above = place.ceil();
        (of(self.node(below as i32)), of(self.node(above as i32)), place - below)
    }

    /// What tables say at a scale.
    pub(super) fn tabled(&self, ln_scale: f64, of: impl Fn(&Table) -> f64) -> f64 {
        let at = |node: &Node| of(node.table.get_or_init(|| Table::new(&node.profile)));
        let (lower, upper, part) = self.between(ln_scale, at);
        lower + part * (upper - lower)
    }

    /// How φ and φ' stray at one entry, over tokens with the correlation `c`.
    pub(super) fn entries(&self, ln_scale: f64, c: f64) -> [Entry; 2] {
        let (lower, upper, part) = self.between(ln_scale, |node| node.entries.at(c));
        [0, 1].map(|which| lower[which].towards(&upper[which], part))
    }

    /// Near σ² = e^`ln_scale`.
    pub(super) fn near(&self, ln_scale: f64) -> &Profile {
        &self.node(self.place(ln_scale).round() as i32).profile
    }

    /// At σ² = e^`ln_scale`.
    pub(super) fn at(&self, ln_scale: f64) -> AtScale {
        let place = self.place(ln_scale);
        let (first, weights) = lagrange::<4>(place);
        let met = (first..).zip(weights).filter(|(_, weight)| weight.abs() > 0.0);
        let at = AtScale::weighted(met.map(|(place, weight)| (weight, &self.node(place).at)));
        let beyond = ln_scale - STEP * place;
        AtScale {
            ln_second: at.ln_second + at.sensitivity * beyond,
            ln_derivative_second: at.ln_derivative_second - at.exponent * beyond,
            ..at
        }
    }

    /// Scales around `ln_mean` + `tilt` · `variance`, and their ln probabilities where they stray about `ln_mean`.
    fn around(&self, ln_mean: f64, variance: f64, tilt: f64) -> SmallVec<[(f64, AtScale); 6]> {
        /// Of functions that are linear in s, as are all of homogeneous activations.
        const ONE: [(f64, f64); 1] = [(0.0, 1.0)];
        let nodes = if self.ends[0] == self.ends[1] {
            &ONE
        } else if variance < NARROW {
            few_hermite_nodes()
        } else {
            hermite_nodes()
        };
        let std = variance.sqrt();
        let scale = |&(z, weight): &(f64, f64)| {
            let ln_weight = weight.ln() - tilt * std * (z + 0.5 * tilt * std);
            (ln_weight, self.at(ln_mean + std * (tilt * std + z)))
        };
        nodes.iter().map(scale).collect()
    }

    /// E φ², where ln σ² strays with `variance` and E σ² is e^`ln_scale`; and V'.
    pub(super) fn behind(&self, ln_scale: f64, variance: f64) -> (Average, f64) {
        let here = self.at(ln_scale);
        let scales = self.around(ln_scale - 0.5 * variance, variance, here.sensitivity);
        let (ln_after, mean) = averaged(&scales, |at| at.ln_second);
        // Rounding does not stray.
        let strays = (2.0 * (mean.ln_second - ln_after)).max(0.0);
        (Average { ln_gain: ln_after - here.ln_second, mean }, strays)
    }

    /// E g'²/E g² of a gradient of this `steepness` S at y.
    pub(super) fn before(&self, ln_scale: f64, variance: f64, steepness: f64) -> Average {
        let here = self.at(ln_scale);
        let around = |tilt: f64| self.around(ln_scale - 0.5 * variance, variance, tilt);
        let tilt = -steepness * here.sensitivity;
        let (ln_known, _) = averaged(&around(tilt), |at| -steepness * at.ln_second);
        let (ln_after, mean) =
            averaged(&around(tilt - here.exponent), |at| at.ln_derivative_second - steepness * at.ln_second);
        Average { ln_gain: ln_after - ln_known - here.ln_derivative_second, mean }
    }

    /// On average over networks, whose tokens' scales stray by `within` of this variance and are weighed as e^(`tilt` s).
    pub(super) fn levels(&self, ln_scale: f64, variance: f64, within: f64, tilt: f64) -> AtScale {
        averaged(&self.around(ln_scale - 0.5 * variance + tilt * within, variance, 0.0), |_| 0.0).1
    }
}

/// ln E e^`ln_value`, and the average of `scales`, of these ln probabilities, that it makes.
fn averaged(scales: &[(f64, AtScale)], ln_value: impl Fn(&AtScale) -> f64) -> (f64, AtScale) {
    let ln_part = |(ln_weight, at): &(f64, AtScale)| ln_weight + ln_value(at);
    let ln_all = ln_sum(scales.iter().map(ln_part));
    (ln_all, AtScale::weighted(scales.iter().map(|scale| ((ln_part(scale) - ln_all).exp(), &scale.1))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where few nodes give way to many, nothing jumps by more than two millionths.
    #[test]
    fn few_nodes_tell_narrow_averages() {
        for activation in [Activation::Gelu, Activation::Silu, Activation::Tanh] {
            let scales = Scales::new(activation);
            for ln_scale in [-6.0, -1.0, 0.0, 2.5] {
                let at = |variance: f64| {
                    let (behind, strays) = scales.behind(ln_scale, variance);
                    let before = scales.before(ln_scale, variance, 0.5);
                    [behind.ln_gain, behind.mean.kurtosis, strays, before.ln_gain, before.mean.exponent]
                };
                let both = at(NARROW * (1.0 - 1e-12)).into_iter().zip(at(NARROW));
                for (few, many) in both {
                    approx::assert_relative_eq!(few, many, epsilon = 1e-6, max_relative = 2e-6);
                }
            }
        }
    }

    /// Of homogeneous activations one node is exact: χ = 1 leaves E y² as it is, and V.
    #[test]
    fn homogeneous_activations_keep_what_scales_stray_by() {
        let scales = Scales::new(Activation::Relu);
        let (behind, strays) = scales.behind(3.0, 0.7);
        let before = scales.before(3.0, 0.7, 0.5);
        approx::assert_abs_diff_eq!(behind.ln_gain, 0.0, epsilon = 1e-12);
        approx::assert_relative_eq!(strays, 0.7, max_relative = 1e-12);
        approx::assert_abs_diff_eq!(before.ln_gain, 0.0, epsilon = 1e-12);
    }
}
