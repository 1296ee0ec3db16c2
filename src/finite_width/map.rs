//! Maps of the variables to second order, and the factors on gradients that go with them.
//!
//! A component maps the variables of one network as it maps second moments at infinite width. Its rule, applied to many
//! pairs of tokens that differ a little, gives all derivatives ([`super::differences`]).

use std::sync::{Arc, OnceLock};

use smallvec::{SmallVec, smallvec};

use super::differences::{Derivatives, Stencil, unit};
use super::quadratic::{Quadratic, StreamVariable};
use super::variables::{ExpansionPoint, Matrix, PAIR, PairMoments, R, R_A, R_AB, R_B, U, U_A, U_B, VARIABLES, Vector};
use crate::mean_field::component::{MeanField, MeanFieldFan};
use crate::mean_field::few::Few;
use crate::mean_field::gradient::Gradient;
use crate::mean_field::kernel::Kernel;
use crate::mean_field::positions::Positions;
use crate::mean_field::signal::Signal;

/// The variables of one stream as functions of the variables of its input streams, about their means.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    /// The shifts of u and r of the output from their values at infinite width, with the inputs at their means.
    pub(crate) moved: [f64; 2],
    /// The correlation r of the output at infinite width.
    pub(crate) leading: f64,
    /// First derivatives with respect to the variables of every input stream.
    pub(crate) jacobians: SmallVec<[Matrix; 1]>,
    pub(crate) hessians: Hessians,
}

/// A second derivative of one output variable with respect to two input variables.
#[derive(Clone, Copy, Debug)]
struct Second {
    /// The output variable.
    row: u8,
    /// The two input variables: the index of a stream among the inputs, and a variable of it.
    by: [(u8, u8); 2],
    value: f64,
}

/// The non-zero second derivatives of the variables of a stream. Each pair of input variables is stored once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hessians(Vec<Second>);

impl Hessians {
    /// Adds a second derivative of a variable. If the two input variables differ, `value` counts for both orders.
    fn add(&mut self, row: usize, [a, b]: [StreamVariable; 2], value: f64) {
        if value != 0.0 {
            let by = [a, b].map(|(stream, variable)| (stream as u8, variable as u8));
            self.0.push(Second { row: row as u8, by, value });
        }
    }

    /// Iterates over all second derivatives: the output variable, the two input variables and the value.
    pub(crate) fn each(&self) -> impl Iterator<Item = (usize, [StreamVariable; 2], f64)> {
        let place = |(stream, variable): (u8, u8)| (usize::from(stream), usize::from(variable));
        self.0.iter().map(move |second| (usize::from(second.row), second.by.map(place), second.value))
    }

    /// Returns ½ ∇∇f:S for every output variable. `covariance` returns the covariance S of two input variables.
    pub(crate) fn bent(&self, covariance: impl Fn(StreamVariable, StreamVariable) -> f64) -> Vector {
        let mut bent = Vector::zeros();
        for (row, [a, b], value) in self.each() {
            let both = if a == b { 0.5 } else { 1.0 };
            bent[row] += both * value * covariance(a, b);
        }
        bent
    }
}

/// The factors of a component on gradients.
#[derive(Clone, Debug)]
pub(crate) struct Gain {
    /// ln of the factor on E g_a² over its value at infinite width.
    pub(crate) ln_own: Quadratic,
    /// The factor on E g_a g_b over the factor on E g_a².
    pub(crate) cosine: Quadratic,
    /// The value of `cosine` at infinite width.
    pub(crate) leading: f64,
}

/// Returns the stream and the variable of that stream for entry `variable` of a list of (u, u, r) per stream. `of` has
/// the variables of the pair of tokens: `A_B`, `A_ALL`, `B_ALL` or `ALL`.
fn place(variable: usize, of: [usize; PAIR]) -> StreamVariable {
    (variable / PAIR, of[variable % PAIR])
}

/// The indices of (u, u, r) for the pair of tokens a and b.
const A_B: [usize; PAIR] = [U_A, U_B, R_AB];
/// The indices of (u, u, r) for the pair of token a and the average over all tokens.
const A_ALL: [usize; PAIR] = [U_A, U, R_A];
/// The indices of (u, u, r) for the pair of token b and the average over all tokens.
const B_ALL: [usize; PAIR] = [U_B, U, R_B];
/// The indices of (u, u, r) if both tokens are averages over all tokens.
const ALL: [usize; PAIR] = [U, U, R];

/// Pairs of tokens at which a map of several streams is evaluated: first the pair at the means of the variables, then
/// the pairs around it for finite differences, last the pair at infinite width.
struct Tagged {
    streams: usize,
    stencil: Stencil,
    positions: Arc<Positions>,
    /// e^move for every pair (outer index) and every variable (inner index).
    factors: Vec<Vec<f64>>,
}

impl Tagged {
    /// Returns the pairs of this number of streams. Those of one and of two streams, the usual cases, are built once
    /// per process.
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

    /// The index of the pair at infinite width.
    fn infinite(&self) -> usize {
        self.stencil.moves().len()
    }

    /// Returns the signal of the input stream `index`. Its tokens are the tokens of all pairs, two per pair.
    fn signal(&self, index: usize, about: ExpansionPoint<'_>) -> Signal {
        let ExpansionPoint { x, means } = about;
        // Pairs about the means have factors; the pair at infinite width has none.
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
        // Means scale with the length of their token.
        let mean = |mean: f64| squares.iter().map(|square| mean * square.sqrt()).collect();
        Signal { means: x.mean.map(mean), ..Signal::centred(x.width, Kernel { ln_unit: x.ln_unit, ..kernel }) }
    }

    /// Returns the derivatives of a function with respect to the variables of the streams, at the points `about`. `of`
    /// returns the value of the function for the pair with this index.
    fn derivatives(&self, about: &[ExpansionPoint<'_>], of: impl Fn(usize) -> f64) -> Derivatives {
        let unit_of = |variable: usize| match variable % PAIR {
            R_AB => unit(correlation(about[variable / PAIR])),
            _ => 1.0,
        };
        // Logarithms and correlations come from numbers near 1, so rounding errors are relative to 1.
        self.stencil.derivatives(of, unit_of, 1.0)
    }
}

/// Returns the correlation about which a map is expanded.
fn correlation(about: ExpansionPoint<'_>) -> f64 {
    /// The largest correlation. Second derivatives do not exist at 1, where both tokens are copies of one.
    const COPIES: f64 = 1.0 - 1e-9;
    about.correlation().clamp(-COPIES, COPIES)
}

/// Returns u_a and r_ab of a pair, or zeros if the signal is zero.
fn variables(y: &Kernel, pair: usize) -> [f64; 2] {
    let [a, b] = [0, 1].map(|token| y.own[2 * pair + token]);
    if a <= 0.0 { [0.0; 2] } else { [a.ln(), y.pairs[pair] / (a * b).sqrt()] }
}

impl Map {
    /// Builds the map of a component from the pairs `y` at its output. `leading` is the correlation of the output at
    /// infinite width over all positions, not that of the pair.
    fn new(tagged: &Tagged, about: &[ExpansionPoint<'_>], y: &Kernel, leading: f64) -> Self {
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
                    // If both tokens are the average over all, i and j are one variable.
                    let twice = if a == b && i != j { 2.0 } else { 1.0 };
                    hessians.add(row, [a, b], twice * of.second(i, j));
                }
            }
        }
        Self { moved, leading, jacobians, hessians }
    }

    /// Builds the map whose output has these variables, as functions of the variables of its input.
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

    /// The map to an output that depends on none of the input variables.
    pub(crate) fn nothing(leading: f64) -> Self {
        Self { jacobians: smallvec![Matrix::zeros()], ..Self::same(leading, [0.0; 2]) }
    }

    /// The map to a sum in which the input is `share` of E y² and the rest does not vary. `means` are the shifts of the
    /// input.
    pub(crate) fn diluted(leading: f64, means: [f64; 2], share: f64) -> Self {
        let same = Self::same(leading, means.map(|mean| mean * share));
        Self { jacobians: smallvec![Matrix::identity() * share], ..same }
    }

    /// The map to means over windows of `count` tokens. The deviations of their correlations from the mean of all tokens
    /// are independent. `share` and `means` are those of `diluted`.
    pub(crate) fn of_windows(leading: f64, means: [f64; 2], share: f64, count: f64) -> Self {
        let mut windows = Self::diluted(leading, means, share);
        let kept = count.sqrt().recip();
        for (one, all) in [(R_A, R), (R_B, R), (R_AB, R)] {
            windows.jacobians[0][(one, one)] = share * kept;
            windows.jacobians[0][(one, all)] = share * (1.0 - kept);
        }
        windows
    }

    /// The map to x − E x: u' = u + ln (1 − m) and r' = (r − m)/(1 − m) with m = (E x)²/E x² = `mean`. Here m is
    /// constant, because means scale with lengths.
    pub(crate) fn centred(leading: f64, [level, correlation]: [f64; 2], mean: f64) -> Self {
        let rest = 1.0 - mean;
        let mut centred = Self::same(leading, [level, correlation / rest]);
        for correlation in [R_AB, R_A, R_B, R] {
            centred.jacobians[0][(correlation, correlation)] = rest.recip();
        }
        centred
    }

    /// The map of a BatchNorm over `length` tokens whose input has the correlation `r`. y_a·y_b changes like z_a·z_b
    /// with z = x − mean_a x, but the length of all tokens together stays fixed. Σ_a y_a = 0.
    pub(crate) fn batch_norm(leading: f64, r: f64, length: f64) -> Self {
        let rest = length - 1.0;
        // The derivatives of all output variables with respect to one input variable.
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

    /// The identity map of variables with these shifts from infinite width.
    pub(crate) fn same(leading: f64, means: [f64; 2]) -> Self {
        let jacobians = smallvec![Matrix::identity()];
        Self { moved: means, leading, jacobians, hessians: Hessians::default() }
    }
}

impl Gain {
    /// Builds the factors of a component from the gradient at its input, for gradients of 1 at its output.
    fn new(tagged: &Tagged, about: &[ExpansionPoint<'_>], gradient: &Kernel) -> Self {
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

    /// The factors of a component that lets no gradient through.
    fn of_nothing(streams: usize) -> Self {
        Self { ln_own: Quadratic::constant(0.0, streams), cosine: Quadratic::constant(0.0, streams), leading: 0.0 }
    }

    /// The factors of a BatchNorm. Gradients at its input sum to zero over all tokens, whatever they are at its output.
    pub(crate) fn batch_norm() -> Self {
        Self::of_nothing(1)
    }

    /// The factors of a component that leaves gradients unchanged.
    pub(crate) fn same() -> Self {
        let [ln_own, cosine] = [0.0, 1.0].map(|value| Quadratic::constant(value, 1));
        Self { ln_own, cosine, leading: 1.0 }
    }
}

/// Returns the map of a component, expanded about `x`, and its factors on gradients. `y` is the output at infinite
/// width.
pub(crate) fn component<C: MeanField + ?Sized>(rule: &C, x: ExpansionPoint<'_>, y: &PairMoments) -> (Map, Gain) {
    let tagged = Tagged::of(1);
    let input = tagged.signal(0, x);
    let output = rule.forward(&input);
    let back = rule.backward(&input, &output, &ones(&tagged.positions));
    (Map::new(&tagged, &[x], &output.kernel, y.correlation), Gain::new(&tagged, &[x], &back.kernel))
}

/// Returns the map of a rule that merges several branches, expanded about the branches `parts`, and its factors on the
/// gradient of each branch. `y` is the output at infinite width.
pub(crate) fn fan(rule: &dyn MeanFieldFan, parts: &[ExpansionPoint<'_>], y: &PairMoments) -> (Map, Vec<Gain>) {
    let tagged = Tagged::of(parts.len());
    let signal = |(index, part): (usize, &ExpansionPoint<'_>)| Arc::new(tagged.signal(index, *part));
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

    /// u' = ln E x²/(E x² + ε): if s is the share of ε in E x² + ε, ∂u' = s and ∂²u' = −s (1 − s). The gain on
    /// gradients is −ln (E x² + ε).
    #[test]
    fn norms_have_the_derivatives_of_their_formula() {
        let eps = 0.25;
        let x = PairMoments::unit(0.3);
        let share = eps / (1.0 + eps);
        let (map, gain) =
            component(&Norm::plain(NormKind::RmsNorm, eps), ExpansionPoint { x: &x, means: [0.0; 2] }, &x);
        assert_relative_eq!(map.jacobians[0][(U_A, U_A)], share, max_relative = 1e-6);
        assert_relative_eq!(map.jacobians[0][(R_AB, R_AB)], 1.0, max_relative = 1e-6);
        assert_relative_eq!(gain.ln_own.gradient[0][U_A], share - 1.0, max_relative = 1e-6);
        let bent = map.hessians.bent(|a, b| f64::from(u8::from(a == (0, U_A) && b == (0, U_A))));
        assert_relative_eq!(bent[U_A], -0.5 * share * (1.0 - share), max_relative = 1e-5);
    }

    /// ReLU has ∂r'/∂r = E φ'φ'/E φ² = 1 − arccos r/π and ∂²r'/∂r² = 1/(π √(1 − r²)) (Cho & Saul 2009). The factor on
    /// the cosine of gradients is ∂r'/∂r.
    #[test]
    fn ramps_have_the_derivatives_of_their_kernel() {
        for r in [-0.8f64, 0.0, 0.6, 0.99] {
            let x = PairMoments::unit(r);
            let (map, gain) = component(&Dual::new(Activation::Relu), ExpansionPoint { x: &x, means: [0.0; 2] }, &x);
            let (slope, bend) = (1.0 - r.acos() / PI, (PI * (1.0 - r * r).sqrt()).recip());
            assert_relative_eq!(map.jacobians[0][(R_AB, R_AB)], slope, max_relative = 1e-5);
            assert_relative_eq!(gain.cosine.value, slope, max_relative = 1e-9);
            assert_relative_eq!(gain.cosine.gradient[0][R_AB], bend, max_relative = 1e-5);
            let bent = map.hessians.bent(|a, b| f64::from(u8::from(a == (0, R_AB) && b == (0, R_AB))));
            assert_relative_eq!(bent[R_AB], 0.5 * bend, max_relative = 1e-4);
        }
    }

    /// In a sum of six parts, the derivatives of u and r of the sum with respect to u and r of a part are the share of
    /// the part.
    #[test]
    fn sums_of_any_number_of_parts_have_shares() {
        let scales = [0.3, 0.5, 0.7, 0.2, 0.4, 0.6];
        let sum = Sum { branches: scales.map(|scale| Branch::constant(scale, Vec::new())).into() };
        let x = PairMoments::unit(0.2);
        let (map, _) = fan(&sum, &[ExpansionPoint { x: &x, means: [0.0; 2] }; 6], &x);
        let total: f64 = scales.iter().map(|scale| scale * scale).sum();
        for (jacobian, scale) in map.jacobians.iter().zip(scales) {
            assert_relative_eq!(jacobian[(U_A, U_A)], scale * scale / total, max_relative = 1e-6);
            assert_relative_eq!(jacobian[(R_AB, R_AB)], scale * scale / total, max_relative = 1e-6);
        }
    }

    /// A BatchNorm ignores a common factor on all tokens and their common part. Its outputs sum to zero over the batch.
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
