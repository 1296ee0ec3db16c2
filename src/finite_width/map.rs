//! Maps of the variables to second order, and the factors that go with them on gradients.
//!
//! A component maps the variables of one network as it maps second moments at infinite width: its rule, applied to many pairs of tokens that
//! differ a little, has all derivatives ([`super::differences`]).

use std::sync::{Arc, OnceLock};

use smallvec::{SmallVec, smallvec};

use super::differences::{Derivatives, Stencil, unit};
use super::quadratic::{Place, Quadratic};
use super::variables::{About, Matrix, Moments, PAIR, R, R_A, R_AB, R_B, U, U_A, U_B, VARIABLES, Vector};
use crate::mean_field::component::{MeanField, MeanFieldFan};
use crate::mean_field::few::Few;
use crate::mean_field::gradient::Gradient;
use crate::mean_field::kernel::Kernel;
use crate::mean_field::positions::Positions;
use crate::mean_field::signal::Signal;

/// The variables of one stream as functions of those of the streams that it is made of, about their means.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    /// What u and r are there, less what they are at infinite width.
    pub(crate) moved: [f64; 2],
    /// r at infinite width.
    pub(crate) leading: f64,
    /// First derivatives by the variables of every stream that it is made of.
    pub(crate) jacobians: SmallVec<[Matrix; 1]>,
    pub(crate) hessians: Hessians,
}

/// A second derivative of a variable of a stream by two variables of the streams that it is made of.
#[derive(Clone, Copy, Debug)]
struct Second {
    /// The variable.
    row: u8,
    /// The two variables: a stream among the parts, and a variable of it.
    by: [(u8, u8); 2],
    value: f64,
}

/// The second derivatives of the variables of a stream that are not zero, each pair of variables once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hessians(Vec<Second>);

impl Hessians {
    /// Adds ∂² of a variable, where `value` is that of both orders of the pair if the two differ.
    fn add(&mut self, row: usize, [a, b]: [Place; 2], value: f64) {
        if value != 0.0 {
            let by = [a, b].map(|(stream, variable)| (stream as u8, variable as u8));
            self.0.push(Second { row: row as u8, by, value });
        }
    }

    /// All of them: the variable, by which two, and the value.
    pub(crate) fn each(&self) -> impl Iterator<Item = (usize, [Place; 2], f64)> {
        let place = |(stream, variable): (u8, u8)| (usize::from(stream), usize::from(variable));
        self.0.iter().map(move |second| (usize::from(second.row), second.by.map(place), second.value))
    }

    /// ½ H:S of every variable, for the covariances S of two variables.
    pub(crate) fn bent(&self, covariance: impl Fn(Place, Place) -> f64) -> Vector {
        let mut bent = Vector::zeros();
        for (row, [a, b], value) in self.each() {
            let both = if a == b { 0.5 } else { 1.0 };
            bent[row] += both * value * covariance(a, b);
        }
        bent
    }
}

/// What a component multiplies gradients by.
#[derive(Clone, Debug)]
pub(crate) struct Gain {
    /// ln of the factor on E g_a² over that at infinite width.
    pub(crate) ln_own: Quadratic,
    /// The factor on E g_a g_b over that on E g_a², and at infinite width.
    pub(crate) cosine: Quadratic,
    pub(crate) leading: f64,
}

/// Where a variable of the pair (u, u, r) stands if its tokens are a and b, b and a, one of them and all, or all.
fn place(variable: usize, of: [usize; PAIR]) -> Place {
    (variable / PAIR, of[variable % PAIR])
}

/// Tokens a and b.
const A_B: [usize; PAIR] = [U_A, U_B, R_AB];
/// Token a and all.
const A_ALL: [usize; PAIR] = [U_A, U, R_A];
/// Token b and all.
const B_ALL: [usize; PAIR] = [U_B, U, R_B];
/// All and all.
const ALL: [usize; PAIR] = [U, U, R];

/// Pairs of tokens of several streams: one at the means and those around it, then one at infinite width.
struct Tagged {
    streams: usize,
    stencil: Stencil,
    positions: Arc<Positions>,
    /// e^move of every variable at every pair.
    factors: Vec<Vec<f64>>,
}

impl Tagged {
    /// Pairs of so many streams, made once in a process for the usual one and two.
    fn of(streams: usize) -> Arc<Self> {
        static USUAL: [OnceLock<Arc<Tagged>>; 2] = [const { OnceLock::new() }; 2];
        let new = || {
            let stencil = Stencil::new(PAIR * streams);
            let positions = Arc::new(Positions::pairs(stencil.moves().len() + 1));
            let factors = stencil.moves().iter().map(|moves| moves.iter().map(|by| by.exp()).collect()).collect();
            Arc::new(Self { streams, stencil, positions, factors })
        };
        USUAL.get(streams - 1).map_or_else(new, |known| Arc::clone(known.get_or_init(new)))
    }

    /// The pair at infinite width.
    fn infinite(&self) -> usize {
        self.stencil.moves().len()
    }

    /// All pairs of the stream `index` among those that variables stand for.
    fn signal(&self, index: usize, about: About<'_>) -> Signal {
        let About { x, means } = about;
        // Two tokens at the means, and at infinite width.
        let at = |pair: usize| self.factors.get(pair).map(|factors| &factors[PAIR * index..]);
        let level = means[0].exp();
        let square = |node: usize| at(node / 2).map_or(1.0, |factors| level * factors[node % 2]);
        let center = correlation(about);
        let cosine = |pair: usize| match self.stencil.moves().get(pair) {
            Some(moves) => center + unit(center) * moves[PAIR * index + R_AB],
            None => x.correlation,
        };
        let squares: Few<f64> = (0..self.positions.nodes()).map(square).collect();
        let product = |pair: usize| (squares[2 * pair] * squares[2 * pair + 1]).sqrt() * cosine(pair) * x.own;
        let kernel = Kernel::new(&self.positions, |node| squares[node] * x.own, product);
        // Means keep their share of the length.
        let mean = |mean: f64| squares.iter().map(|square| mean * square.sqrt()).collect();
        Signal { means: x.mean.map(mean), ..Signal::centred(x.width, Kernel { ln_unit: x.ln_unit, ..kernel }) }
    }

    /// The derivatives of a function of every pair, by the variables of streams about these points.
    fn derivatives(&self, about: &[About<'_>], of: impl Fn(usize) -> f64) -> Derivatives {
        let unit_of = |variable: usize| match variable % PAIR {
            R_AB => unit(correlation(about[variable / PAIR])),
            _ => 1.0,
        };
        // Logarithms and correlations are of numbers near 1.
        self.stencil.derivatives(of, unit_of, 1.0)
    }
}

/// The correlation about which a map is expanded.
fn correlation(about: About<'_>) -> f64 {
    /// Copies of one token have no second derivatives.
    const COPIES: f64 = 1.0 - 1e-9;
    about.correlation().clamp(-COPIES, COPIES)
}

/// u_a and r_ab of a pair; zero of a signal that is.
fn variables(y: &Kernel, pair: usize) -> [f64; 2] {
    let [a, b] = [0, 1].map(|token| y.own[2 * pair + token]);
    if a <= 0.0 { [0.0; 2] } else { [a.ln(), y.pairs[pair] / (a * b).sqrt()] }
}

impl Map {
    /// The map that takes the pairs to those after a component; `leading` is the correlation at infinite width over all positions, not of this pair.
    fn new(tagged: &Tagged, about: &[About<'_>], y: &Kernel, leading: f64) -> Self {
        let [level, correlation] = [0, 1].map(|of| tagged.derivatives(about, |pair| variables(y, pair)[of]));
        let [infinite_level, infinite_correlation] = variables(y, tagged.infinite());
        let moved = [level.value - infinite_level, correlation.value - infinite_correlation];
        let mut jacobians: SmallVec<[Matrix; 1]> = smallvec![Matrix::zeros(); tagged.streams];
        let mut hessians = Hessians::default();
        let rows = [
            (&level, A_B),
            (&level, B_ALL),
            (&correlation, A_B),
            (&correlation, A_ALL),
            (&correlation, B_ALL),
            (&level, ALL),
            (&correlation, ALL),
        ];
        for (row, (of, tokens)) in rows.into_iter().enumerate() {
            for (i, slope) in of.first.iter().enumerate() {
                let a = place(i, tokens);
                jacobians[a.0][(row, a.1)] += slope;
                for j in 0..=i {
                    let b = place(j, tokens);
                    // Two tokens that stand for all are one variable.
                    let twice = if a == b && i != j { 2.0 } else { 1.0 };
                    hessians.add(row, [a, b], twice * of.second(i, j));
                }
            }
        }
        Self { moved, leading, jacobians, hessians }
    }

    /// A map whose output has these variables, as functions of those of its input.
    pub(crate) fn of_variables(moved: [f64; 2], leading: f64, variables: &[Quadratic; VARIABLES]) -> Self {
        let jacobian = Matrix::from_fn(|row, column| variables[row].gradient[0][column]);
        let mut hessians = Hessians::default();
        for (row, variable) in variables.iter().enumerate() {
            for i in 0..VARIABLES {
                (0..=i).for_each(|j| hessians.add(row, [(0, i), (0, j)], variable.hessian.entry((0, i), (0, j))));
            }
        }
        Self { moved, leading, jacobians: smallvec![jacobian], hessians }
    }

    /// Of what depends on nothing.
    pub(crate) fn nothing(leading: f64) -> Self {
        Self { jacobians: smallvec![Matrix::zeros()], ..Self::same(leading, [0.0; 2]) }
    }

    /// Of a sum of which this share varies as it did before, about these means.
    pub(crate) fn diluted(leading: f64, means: [f64; 2], share: f64) -> Self {
        let same = Self::same(leading, means.map(|mean| mean * share));
        Self { jacobians: smallvec![Matrix::identity() * share], ..same }
    }

    /// Of x − E x, u' = u + ln (1 − m) and r' = (r − m)/(1 − m), m = (E x)²/E x² = `mean`: means go with lengths.
    pub(crate) fn centred(leading: f64, [level, correlation]: [f64; 2], mean: f64) -> Self {
        let rest = 1.0 - mean;
        let mut centred = Self::same(leading, [level, correlation / rest]);
        for correlation in [R_AB, R_A, R_B, R] {
            centred.jacobians[0][(correlation, correlation)] = rest.recip();
        }
        centred
    }

    /// Of a BatchNorm over `length` tokens whose input has the correlation `r`: y_a·y_b follows z_a·z_b, z = x − mean_a x, less what
    /// changes the lengths of all; Σ_a y_a = 0.
    pub(crate) fn batch_norm(leading: f64, r: f64, length: f64) -> Self {
        let rest = length - 1.0;
        // Row by row, what one of the variables moves those of the output by.
        let moves = |by: usize| {
            let x: [f64; VARIABLES] = std::array::from_fn(|of| f64::from(u8::from(of == by)));
            let with_others = |own: f64, row: f64| 0.5 * r * (own + x[U]) + row;
            let row = |own: f64, row: f64| (own + rest * with_others(own, row)) / length;
            let [row_a, row_b, all] = [row(x[U_A], x[R_A]), row(x[U_B], x[R_B]), row(x[U], x[R])];
            let factor = length / ((length + 1.0) * (1.0 - r));
            let level = |own: f64, row: f64| factor * (own - 2.0 * row + 2.0 * all - x[U]);
            let (u_a, u_b) = (level(x[U_A], row_a), level(x[U_B], row_b));
            let pair = 0.5 * r * (x[U_A] + x[U_B]) + x[R_AB];
            let product = factor * (pair - row_a - row_b + all + (x[U] - all) / rest);
            let of_row = |own: f64| -0.5 * own / rest;
            [u_a, u_b, product + 0.5 * (u_a + u_b) / rest, of_row(u_a), of_row(u_b), 0.0, 0.0]
        };
        let columns: [[f64; VARIABLES]; VARIABLES] = std::array::from_fn(moves);
        let jacobian = Matrix::from_fn(|row, column| columns[column][row]);
        Self { jacobians: smallvec![jacobian], ..Self::same(leading, [0.0; 2]) }
    }

    /// Of what changes nothing of the variables, which have these means.
    pub(crate) fn same(leading: f64, means: [f64; 2]) -> Self {
        let jacobians = smallvec![Matrix::identity()];
        Self { moved: means, leading, jacobians, hessians: Hessians::default() }
    }
}

impl Gain {
    /// The factors on gradients of 1 by a component.
    fn new(tagged: &Tagged, about: &[About<'_>], gradient: &Kernel) -> Self {
        let own = |pair: usize| gradient.own[2 * pair];
        let infinite = tagged.infinite();
        if own(infinite) <= 0.0 || own(0) <= 0.0 {
            return Self::of_nothing(tagged.streams);
        }
        let among = |of: &dyn Fn(usize) -> f64| {
            tagged.derivatives(about, of).among(tagged.streams, |variable| place(variable, A_B))
        };
        let cosine = |pair: usize| gradient.pairs[pair] / own(pair);
        let ln_own = among(&|pair| (own(pair) / own(infinite)).ln());
        Self { ln_own, cosine: among(&cosine), leading: cosine(infinite) }
    }

    /// Of what lets no gradient through.
    fn of_nothing(streams: usize) -> Self {
        Self { ln_own: Quadratic::constant(0.0, streams), cosine: Quadratic::constant(0.0, streams), leading: 0.0 }
    }

    /// Of a BatchNorm: gradients of all tokens sum to zero, whatever they were.
    pub(crate) fn batch_norm() -> Self {
        Self::of_nothing(1)
    }

    /// Of what changes nothing of a gradient.
    pub(crate) fn same() -> Self {
        let [ln_own, cosine] = [0.0, 1.0].map(|value| Quadratic::constant(value, 1));
        Self { ln_own, cosine, leading: 1.0 }
    }
}

/// The map of a component about `x`, and its factors on gradients; `y` is the output at infinite width.
pub(crate) fn component<C: MeanField + ?Sized>(rule: &C, x: About<'_>, y: &Moments) -> (Map, Gain) {
    let tagged = Tagged::of(1);
    let input = tagged.signal(0, x);
    let output = rule.forward(&input);
    let back = rule.backward(&input, &output, &ones(&tagged.positions));
    (Map::new(&tagged, &[x], &output.kernel, y.correlation), Gain::new(&tagged, &[x], &back.kernel))
}

/// The map of a fan about its parts, and its factors on the gradients of each; `y` is the output at infinite width.
pub(crate) fn fan(rule: &dyn MeanFieldFan, parts: &[About<'_>], y: &Moments) -> (Map, Vec<Gain>) {
    let tagged = Tagged::of(parts.len());
    let signal = |(index, part): (usize, &About<'_>)| Arc::new(tagged.signal(index, *part));
    let inputs: Vec<Arc<Signal>> = parts.iter().enumerate().map(signal).collect();
    let output = rule.merge(&inputs[0], &inputs);
    let back = rule.split(&inputs[0], &inputs, &ones(&tagged.positions));
    let gains = back.iter().map(|gradient| Gain::new(&tagged, parts, &gradient.kernel)).collect();
    (Map::new(&tagged, parts, &output.kernel, y.correlation), gains)
}

fn ones(positions: &Arc<Positions>) -> Gradient {
    Gradient::independent(Kernel::new(positions, |_| 1.0, |_| 1.0))
}

#[cfg(test)]
mod tests {
    use std::f64::consts::PI;

    use approx::assert_relative_eq;
    use sigprop_stack::{Activation, Branch, Norm, NormKind, Sum};

    use super::*;
    use crate::mean_field::dual::Dual;

    /// u' = ln E x²/(E x² + ε): with a share s of ε in it ∂u' = s, ∂²u' = −s (1 − s); so is the gain on gradients, −ln (E x² + ε).
    #[test]
    fn norms_have_the_derivatives_of_their_formula() {
        let eps = 0.25;
        let x = Moments::unit(0.3);
        let share = eps / (1.0 + eps);
        let (map, gain) = component(&Norm::plain(NormKind::RmsNorm, eps), About { x: &x, means: [0.0; 2] }, &x);
        assert_relative_eq!(map.jacobians[0][(U_A, U_A)], share, max_relative = 1e-6);
        assert_relative_eq!(map.jacobians[0][(R_AB, R_AB)], 1.0, max_relative = 1e-6);
        assert_relative_eq!(gain.ln_own.gradient[0][U_A], share - 1.0, max_relative = 1e-6);
        let bent = map.hessians.bent(|a, b| f64::from(u8::from(a == (0, U_A) && b == (0, U_A))));
        assert_relative_eq!(bent[U_A], -0.5 * share * (1.0 - share), max_relative = 1e-5);
    }

    /// ReLU: ∂r'/∂r = E φ'φ'/E φ² = 1 − arccos r/π, ∂²r'/∂r² = 1/(π √(1 − r²)) (Cho & Saul 2009), and the cosine of gradients the same.
    #[test]
    fn ramps_have_the_derivatives_of_their_kernel() {
        for r in [-0.8f64, 0.0, 0.6, 0.99] {
            let x = Moments::unit(r);
            let (map, gain) = component(&Dual::new(Activation::Relu), About { x: &x, means: [0.0; 2] }, &x);
            let (slope, bend) = (1.0 - r.acos() / PI, (PI * (1.0 - r * r).sqrt()).recip());
            assert_relative_eq!(map.jacobians[0][(R_AB, R_AB)], slope, max_relative = 1e-5);
            assert_relative_eq!(gain.cosine.value, slope, max_relative = 1e-9);
            assert_relative_eq!(gain.cosine.gradient[0][R_AB], bend, max_relative = 1e-5);
            let bent = map.hessians.bent(|a, b| f64::from(u8::from(a == (0, R_AB) && b == (0, R_AB))));
            assert_relative_eq!(bent[R_AB], 0.5 * bend, max_relative = 1e-4);
        }
    }

    /// A sum of six parts: ∂u of the sum by that of a part is its share, and ∂r that of the correlations.
    #[test]
    fn sums_of_any_number_of_parts_have_shares() {
        let scales = [0.3, 0.5, 0.7, 0.2, 0.4, 0.6];
        let sum = Sum { branches: scales.map(|scale| Branch::constant(scale, Vec::new())).into() };
        let x = Moments::unit(0.2);
        let (map, _) = fan(&sum, &[About { x: &x, means: [0.0; 2] }; 6], &x);
        let total: f64 = scales.iter().map(|scale| scale * scale).sum();
        for (jacobian, scale) in map.jacobians.iter().zip(scales) {
            assert_relative_eq!(jacobian[(U_A, U_A)], scale * scale / total, max_relative = 1e-6);
            assert_relative_eq!(jacobian[(R_AB, R_AB)], scale * scale / total, max_relative = 1e-6);
        }
    }

    /// Longer tokens, and what all have in common, change nothing behind a BatchNorm; what is behind it sums to zero over the batch.
    #[test]
    fn batch_norms_see_neither_lengths_nor_what_is_common() {
        let (r, length) = (0.3, 9.0);
        let map = Map::batch_norm(-1.0 / (length - 1.0), r, length);
        let apart = 1.0 - r;
        for moves in [[1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0], [1.0, 1.0, apart, apart, apart, 1.0, apart]] {
            let moved = map.jacobians[0] * Vector::from_row_slice(&moves);
            assert!(moved.abs().max() < 1e-12, "{moved}");
        }
        for all in [U, R] {
            assert!(map.jacobians[0].row(all).abs().max() < 1e-12);
        }
    }
}
