//! Attention with its queries, keys and values as one component of finite width.
//!
//! The map and the gains come from the rule of infinite width for two tagged tokens among all others, by
//! differentiation. Their corrections for heads and inputs of finite width are in [`gains`], averages over random rows
//! are in [`averages`].

mod averages;
mod gains;
mod grid;
mod point;
mod rows;

use nalgebra::Matrix2;
use sigprop_stack::Attention;

use self::averages::Averages;
use self::gains::{Inputs, Path, RowCovariances};
pub(crate) use self::point::Between;
use super::backward::Conditional;
use super::forward::{average, concentration};
use super::gradients::Cosines;
use super::map::{Hessians, Map};
use super::mixed::Mixed;
use super::noise::{Noise, shift};
use super::quadratic::Quadratic;
use super::variables::{ExpansionPoint, Matrix, PairMoments, R, R_A, R_AB, R_B, U, U_A, U_B, Vector};

/// Factors on gradients along one path: from |g_a|² and from g_a·g_b to |g_x|² and to g_x·g_x' of a query, key or
/// value.
#[derive(Clone, Debug)]
pub(crate) struct Factors {
    own_own: Quadratic,
    pair_own: Quadratic,
    own_pair: Quadratic,
    pair_pair: Quadratic,
    /// The factors at infinite width.
    leading: Path,
    /// The ratio of these factors to those of `gains.rs`, which are in units of scores and values.
    unit: f64,
    /// The additions to |g_x|² and to g_x·g_x' that come from products of two different keys.
    of_products: [f64; 2],
}

/// An attention at infinite width as a function of the variables of its input.
pub(crate) struct Leading {
    pub(crate) map: Map,
    pub(crate) paths: [Factors; 3],
}

/// Gradients along one path (queries, keys or values) at infinite width: the cosines of the gradients of two tokens at
/// both ends of the path, and ln of the factor of the path on E |g_a|².
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtPath {
    pub(crate) cosines: Cosines,
    pub(crate) ln_gain: f64,
}

/// Moments of the scores of contents with contents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScoreMoments {
    /// The variance of a score.
    pub(crate) variance: f64,
    /// The number of keys.
    pub(crate) keys: f64,
    /// The share of products of keys that remains after rotations.
    pub(crate) turned: f64,
    /// The shares of these scores in the gradients at queries and at keys; 1 without scores with positions.
    pub(crate) contents: [f64; 2],
}

/// An attention at finite width.
#[derive(Clone, Debug)]
pub(crate) struct Attending {
    inputs: Inputs,
    averages: Averages,
    paths: [Factors; 3],
    /// The noise that is added to the output of the map, because attention weights fluctuate from row to row: some rows
    /// are sharp by chance.
    pub(crate) noise: Noise,
    heads: f64,
    /// (1 − R)/E z², where R is the correlation of two tokens of the input and E z² is the second moment of the output
    /// in units of the values.
    apart: f64,
    /// The correlation of two tokens of the output.
    correlation: f64,
    /// The width of the input.
    width: f64,
    /// The index of the stream of the input among the live streams.
    stream: usize,
}

impl Leading {
    /// The attention to `keys` tokens with the output `y`. `None` if a map of queries, keys or values is not supported.
    pub(crate) fn new(attention: &Attention, x: Between<'_>, y: &PairMoments, keys: f64) -> Option<Self> {
        let here = grid::point(attention, x, keys)?;
        let infinite = |x| ExpansionPoint { means: [0.0; 2], ..x };
        let bare = grid::point(attention, Between { queries: infinite(x.queries), keys: infinite(x.keys) }, keys)?;
        let (variables, at_infinity) = (here.variables(), bare.variables());
        let moved = |variable: usize| variables[variable].value - at_infinity[variable].value;
        let moved = [moved(U_A) + here.ln_unit - bare.ln_unit, moved(R_AB)];
        let map = Map::of_variables(moved, y.correlation, &variables);
        let [query, key, value] = here.factors;
        let factors = [query, key, value].into_iter().zip(&bare.factors).map(|(here, bare)| Factors::new(here, bare));
        let mut paths: [Factors; 3] = factors.collect::<Vec<_>>().try_into().expect("there are three paths");
        paths[1..].iter_mut().for_each(Factors::of_all_keys);
        Some(Self { map, paths })
    }

    /// Makes the attention independent of the stream of its queries.
    pub(crate) fn constant(mut self) -> Self {
        self.map.jacobians[0].fill(0.0);
        self.map.hessians = Hessians::default();
        for path in &mut self.paths {
            for factor in [&mut path.own_own, &mut path.pair_own, &mut path.own_pair, &mut path.pair_pair] {
                *factor = Quadratic::constant(factor.value, 1);
            }
        }
        self
    }
}

/// Returns the parameters of an attention. `x` the covariance of the variables of the input, and `r` the correlation of two
/// tokens of the input.
fn inputs(attention: &Attention, scores: ScoreMoments, x: &Matrix, r: f64) -> Inputs {
    /// The largest γ; beyond it an expansion does not hold.
    const LARGEST: f64 = 0.3;
    let ScoreMoments { variance: score, keys, turned, .. } = scores;
    let d = 1.0 - r;
    let pairs = (x[(R_AB, R_AB)] - x[(R, R)]).max(0.0);
    let squares = (x[(U_A, U_A)] - x[(U, U)]).max(0.0);
    let common = (x[(R_A, R_A)] - x[(R, R)]).max(0.0);
    // Rotations change the product of two inputs in keys, not in values.
    let gamma = (concentration(x, r) * turned).min(LARGEST);
    let common = common / (d * d);
    // 1 for Gaussian tokens, 0 for normalised ones, whose lengths are fixed.
    let gaussian = if gamma > 0.0 { (squares / (2.0 * gamma)).min(1.0) } else { 0.0 };
    Inputs {
        score,
        correlation: r,
        keys,
        d_head: attention.d_head as f64,
        dropped: attention.dropout_rate / (1.0 - attention.dropout_rate),
        gamma,
        eta: gaussian * 2.0 * gamma + (1.0 - gaussian) * 4.0 * common,
        common,
        common_square: -2.0 * (1.0 - gaussian) * common,
        pairs,
        squares,
    }
}

impl Attending {
    /// Computes the terms of finite width; `x` is the covariance of the variables of the input; `r` and
    /// `correlation` are the correlations of two tokens at the input and at the output.
    pub(crate) fn new(
        (attention, scores): (&Attention, ScoreMoments),
        mut paths: [Factors; 3],
        width: f64,
        (stream, x): (usize, &Matrix),
        [r, correlation]: [f64; 2],
    ) -> Self {
        let inputs = inputs(attention, scores, x, r);
        let averages = Averages::at(inputs.score * (1.0 - r), r, inputs.keys);
        let bare = inputs.bare(&averages);
        let [own, gathered] = [false, true].map(|gathered| inputs.corrected_by(&averages, gathered));
        for (index, path) in paths.iter_mut().enumerate() {
            let by = if index == 0 { &own } else { &gathered };
            // Scores with positions have no correction.
            let share = scores.contents.get(index).copied().unwrap_or(1.0);
            path.correct(&bare.paths[index], &bare.paths[index].towards(&by.paths[index], share));
        }
        // Dropout masks increase squares of weights, not their products.
        let unmasked = scores.contents[0] * paths[0].unit / (1.0 + inputs.dropped);
        paths[0].of_products = own.of_products.map(|of| unmasked * of);
        let heads = attention.n_heads as f64;
        let apart = (1.0 - r) / own.output[0];
        let mut noise = inputs.scatter(&averages).noise(heads / (apart * apart), inputs.keys, correlation);
        let level = (own.output[0] / bare.output[0]).ln();
        let turned = own.output[1] / own.output[0] - bare.output[1] / bare.output[0];
        noise.drift += shift([level, turned]);
        Self { inputs, averages, paths, noise, heads, apart, correlation, width, stream }
    }

    /// Returns the largest derivatives of two cosines with respect to the overlap of two keys: of the cosine between
    /// the gradients of the two keys, and of the cosine between the gradients of their values.
    pub(crate) fn largest_slopes(&self) -> [f64; 2] {
        [(1.0 - self.inputs.correlation).recip(), self.inputs.score]
    }

    /// Adds to the map the response of output correlations to input correlations at finite width: rows of similar
    /// queries are correlated because they prefer similar keys.
    pub(crate) fn correlate_rows(&self, map: &mut Map) {
        let slope = self.apart * self.inputs.row_slope(&self.averages);
        for correlation in [R_AB, R_A, R_B, R] {
            map.jacobians[0][(correlation, correlation)] += slope;
        }
    }

    /// Returns the gradients at queries, keys and values as functions of the variables of the input. `output` is the
    /// gradient at the output, and `gathered` is its average over all tokens. `responses` are the derivatives of H and
    /// κ of `output` with respect to the variables of the output (see `Conditional::responses`).
    pub(crate) fn split(
        &self,
        [output, gathered]: [&Conditional; 2],
        responses: [Vector; 2],
        mixed: Mixed,
        leading: [AtPath; 3],
    ) -> [Conditional; 3] {
        let RowCovariances { ss, st, sx, s_tt, s_key, xx, xt, x_key } = self.inputs.row_covariances(&self.averages);
        let along = self.averages.along;
        let Inputs { score, correlation: r, keys, .. } = self.inputs;
        let (d, others) = (1.0 - r, keys - 1.0);
        let w = score * d;
        // Rows that are sharp by chance have gains that differ from the average ones.
        let of_row = self.apart / self.heads;
        let [own, cosine] = responses.map(|of| of * of_row);
        let radial = (mixed.radial - 1.0) * of_row;
        let slope = own[U_A];
        let pair = own * output.cosine.value + cosine;
        let each = pair[U_A] + pair[U_B] - self.correlation * pair[R_AB];
        let together = pair[R_AB];
        let met = [
            Path {
                own_own: w * d * (slope * st + radial * along),
                pair_pair: w * d * (each * s_tt + together * xt),
                ..Path::default()
            },
            Path {
                own_own: w * (slope * st + radial * along),
                pair_own: others * w * (each * s_key + together * x_key),
                ..Path::default()
            },
            Path { own_own: slope * ss, pair_own: others * (each * sx + together * xx), ..Path::default() },
        ];
        let path = |index: usize| {
            let of = if index == 0 { output } else { gathered };
            let others = (index > 0).then_some(others);
            self.paths[index].gradient(self.stream, (of, leading[index]), &met[index], others)
        };
        [0, 1, 2].map(path)
    }

    /// Returns the gradient at the input, from the gradients along the paths of queries, keys and values. Also returns
    /// the numbers ρ, α and k of this gradient (see `mixed.rs`), and the matrix that maps |g|² and g_a·g_b of a
    /// sequence from the output to the input.
    pub(crate) fn join(
        &self,
        (paths, levels): ([&Conditional; 3], [f64; 3]),
        output: &Conditional,
        gathered: (f64, Mixed),
    ) -> (Conditional, Mixed, Matrix2<f64>) {
        let (cosine, mixed) = gathered;
        let (mut given, shares) = Conditional::sum(&paths, &levels);
        let others = self.inputs.keys - 1.0;
        let r = self.inputs.correlation;
        // The units are those in which the value path is S.
        let value = &self.paths[2];
        let of_value = self.of_value(cosine);
        let unit = if of_value > 0.0 { shares[2] / of_value } else { 0.0 };
        let [excess, query] = self.excess(cosine);
        let (added, n) = (unit * (excess + query) / self.width, self.width);
        // W_V is correlated with gathered gradients along the common part of all tokens.
        let along = (2.0 - r) * (mixed.cross - 1.0) / n;
        let common = unit * cosine * value.pair_own.value * along;
        let off = given.cosine.value;
        given.ln_own.value += added + common;
        given.cosine.value += off * (along - added - common) - unit * excess / (n * others);
        let [own, own_pair, cross, cross_pair] = self.inputs.products(&self.averages);
        let radial = unit * (own + cosine * others * own_pair);
        let cross = if off.abs() > 1e-12 { unit * (cross / others + cosine * cross_pair) / off } else { 1.0 };
        let mixed = Mixed { radial, cross, squares: 2.0 * (radial - 1.0), ..Mixed::ISOTROPIC };
        let levels = self.levels(&shares, paths, output, cosine);
        (given, mixed, levels)
    }

    /// Returns the factor of the value path on E |g|², averaged over all tokens, for gradients at the output with this
    /// cosine between two tokens.
    fn of_value(&self, cosine: f64) -> f64 {
        let value = &self.paths[2];
        value.own_own.value + cosine * value.pair_own.value
    }

    /// Returns n times two parts of |g|² along the input, in units of the value path: the common part of keys and
    /// values, and the part of queries (see [`Inputs::excess`]).
    fn excess(&self, cosine: f64) -> [f64; 2] {
        let [own, pair, query] = self.inputs.excess(&self.averages);
        [own + cosine * (self.inputs.keys - 1.0) * pair, query]
    }

    /// Returns the relative addition to E |g_b|² of the value path that keys and values cause together, if both read
    /// another stream than the queries. This part is along the input of keys and values: the gradient of W_V depends on
    /// W_K through the weights A_ab, and the gradient of W_K depends on W_V through the values in ∂L/∂s_ab.
    pub(crate) fn shared_by_keys(&self, cosine: f64) -> f64 {
        let of_value = self.of_value(cosine);
        if of_value > 0.0 { self.excess(cosine)[0] / (of_value * self.width) } else { 0.0 }
    }

    /// Returns the matrix that maps the levels |g|² and g_a·g_b of a sequence from the output to the input.
    fn levels(&self, shares: &[f64], paths: [&Conditional; 3], output: &Conditional, cosine: f64) -> Matrix2<f64> {
        let mut levels = Matrix2::zeros();
        for (index, ((share, factors), path)) in shares.iter().zip(&self.paths).zip(paths).enumerate() {
            let cosine = if index == 0 { output.cosine.value } else { cosine };
            let all = factors.own_own.value + cosine * factors.pair_own.value;
            if all > 0.0 {
                let Factors { own_own, pair_own, own_pair, pair_pair, .. } = factors;
                let pair = shrunk((own_pair.value + cosine * pair_pair.value) / all, path.cosine.value);
                let [own_pair, pair_pair] = [own_pair, pair_pair].map(|factor| factor.value * pair);
                levels += Matrix2::new(own_own.value, pair_own.value, own_pair, pair_pair) * (share / all);
            }
        }
        levels
    }
}

/// Returns `cosine` over `exchangeable`, its value for exchangeable tokens, limited to the range from 0 to 1. It is
/// below 1 if gradients are not summed equally over all tokens.
fn shrunk(exchangeable: f64, cosine: f64) -> f64 {
    if cosine.abs() < exchangeable.abs() { (cosine / exchangeable).max(0.0) } else { 1.0 }
}

impl Factors {
    /// Builds the factors from `here`, the factors at the means of the variables, and `bare`, the factors at infinite
    /// width.
    fn new(here: [Quadratic; 4], bare: &[Quadratic; 4]) -> Self {
        let [own_own, pair_own, own_pair, pair_pair] = bare.each_ref().map(|factor| factor.value);
        let leading = Path { own_own, pair_own, own_pair, pair_pair };
        let [own_own, pair_own, own_pair, pair_pair] = here;
        Self { own_own, pair_own, own_pair, pair_pair, leading, unit: 1.0, of_products: [0.0; 2] }
    }

    /// Replaces derivatives with respect to single keys by those with respect to averages over all keys. The response
    /// of single keys to their overlaps follows from the gradients of weights.
    fn of_all_keys(&mut self) {
        for factor in [&mut self.own_own, &mut self.pair_own, &mut self.own_pair, &mut self.pair_pair] {
            factor.pull(&[0], &[average()]);
        }
    }

    /// Corrects the factors from `bare` at infinite width to `by` at finite width, both in units of scores and values.
    fn correct(&mut self, bare: &Path, by: &Path) {
        /// A factor counts as rounding if it is at most this fraction of the factor from |g_a|² to |g_x|².
        const NOTHING: f64 = 1e-9;
        self.unit = if bare.own_own > 0.0 { self.own_own.value / bare.own_own } else { 0.0 };
        let (unit, own) = (self.unit, bare.own_own);
        let correct = |factor: &mut Quadratic, bare: f64, by: f64| {
            if bare.abs() <= NOTHING * own {
                factor.value += unit * by;
            } else {
                factor.scale(by / bare);
            }
        };
        correct(&mut self.own_own, bare.own_own, by.own_own);
        correct(&mut self.pair_own, bare.pair_own, by.pair_own);
        correct(&mut self.own_pair, bare.own_pair, by.own_pair);
        correct(&mut self.pair_pair, bare.pair_pair, by.pair_pair);
    }

    /// Returns the gradient at queries, keys or values along this path. `met` are additions to the factors, caused by
    /// the noise of rows. If `others` is the number of other tokens, products of the gradients of two tokens lose in
    /// total as much as |g|² of single tokens gains; if it is `None`, they lose nothing.
    fn gradient(
        &self,
        stream: usize,
        (of, AtPath { cosines, ln_gain }): (&Conditional, AtPath),
        met: &Path,
        others: Option<f64>,
    ) -> Conditional {
        let streams = of.ln_own.streams();
        let placed = |factor: &Quadratic| factor.placed(&[stream], streams);
        let mut own = of.cosine.times(&placed(&self.pair_own));
        own.add_placed(&self.own_own, &[stream]);
        let [products, of_pair] = self.of_products;
        let mut pair_pair = placed(&self.pair_pair);
        pair_pair.value += of_pair;
        let mut pair = of.cosine.times(&pair_pair);
        pair.add_placed(&self.own_pair, &[stream]);
        let added = self.unit * (met.own_own + met.pair_own);
        own.value += added;
        pair.value += self.unit * met.pair_pair - others.map_or(0.0, |others| added / others);
        let Path { own_own, pair_own, own_pair, pair_pair } = self.leading;
        let leading = own_own + cosines.output * pair_own;
        if own.value + products.min(0.0) <= 0.0 || leading <= 0.0 {
            let [ln_own, cosine] = [0.0, cosines.input].map(|value| Quadratic::constant(value, streams));
            return Conditional { ln_own, cosine };
        }
        let mut ln_own = own.ln();
        // Keys that are more similar than these have a larger gain; the correction of finite width is the same.
        let gain = ln_gain.exp();
        let of_products = if gain > 0.0 { products / gain } else { 0.0 };
        ln_own.value = ((own.value - leading) / leading.max(gain) + of_products).ln_1p();
        ln_own.add(&of.ln_own, 1.0);
        own.scale(1.0 + products / own.value);
        let mut cosine = pair.times(&own.inverse());
        let here = (own_pair + cosines.output * pair_pair) / leading;
        cosine.scale(shrunk(here, cosines.input));
        cosine.value += cosines.input - shrunk(here, cosines.input) * here;
        Conditional { ln_own, cosine }
    }
}
