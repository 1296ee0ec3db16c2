//! Maps of the variables to second order, and the factors that go with them on gradients.
//!
//! A component maps the variables of one network as it maps second moments at infinite width: its rule, applied to jets of two tagged
//! tokens, has all derivatives.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::jet::Jet;
use super::quadratic::{Place, Quadratic};
use super::variables::{About, Matrix, Moments, PAIR, R, R_A, R_AB, R_B, U, U_A, U_B, VARIABLES, Vector};
use crate::mean_field::component::{MeanField, MeanFieldFan};
use crate::mean_field::gradient::Gradient;
use crate::mean_field::kernel::Kernel;
use crate::mean_field::positions::Positions;
use crate::mean_field::scalar::Scalar;
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

/// u_a and r_ab of a pair; zero of a signal that is.
fn variables<S: Scalar>(y: &Kernel<S>) -> [S; 2] {
    if y.own[0].value() <= 0.0 {
        return [S::from(0.0); 2];
    }
    [y.own[0].ln(), y.pairs[0] / (y.own[0] * y.own[1]).sqrt()]
}

impl Map {
    /// From a pair at the means and one at infinite width; `leading` is the correlation at infinite width over all positions, not of this pair.
    fn new<const N: usize>(y: &Kernel<Jet<N>>, bare: &Kernel<f64>, leading: f64) -> Self {
        let [level, correlation] = variables(y);
        let [bare_level, bare_correlation] = variables(bare);
        let moved = [level.value - bare_level + y.ln_unit - bare.ln_unit, correlation.value - bare_correlation];
        let mut jacobians: SmallVec<[Matrix; 1]> = smallvec![Matrix::zeros(); N / PAIR];
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
        for (row, (jet, tokens)) in rows.into_iter().enumerate() {
            for i in 0..N {
                let a = place(i, tokens);
                jacobians[a.0][(row, a.1)] += jet.gradient[i];
                for j in 0..=i {
                    let b = place(j, tokens);
                    // Two tokens that stand for all are one variable.
                    let twice = if a == b && i != j { 2.0 } else { 1.0 };
                    hessians.add(row, [a, b], twice * jet.hessian[i][j]);
                }
            }
        }
        Self { moved, leading, jacobians, hessians }
    }

    /// A map whose output has these variables, as functions of those of its input.
    pub(crate) fn of_variables(moved: [f64; 2], leading: f64, variables: &[Jet<VARIABLES>; VARIABLES]) -> Self {
        let jacobian = Matrix::from_fn(|row, column| variables[row].gradient[column]);
        let mut hessians = Hessians::default();
        for (row, jet) in variables.iter().enumerate() {
            for i in 0..VARIABLES {
                (0..=i).for_each(|j| hessians.add(row, [(0, i), (0, j)], jet.hessian[i][j]));
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

/// A jet by the variables of tagged pairs as a function of the streams' variables.
fn of_pairs<const N: usize>(jet: &Jet<N>) -> Quadratic {
    of_jet(jet, N / PAIR, |variable| place(variable, A_B))
}

/// A jet as a function of the variables of several streams, of which its own are at these places.
pub(crate) fn of_jet<const N: usize>(jet: &Jet<N>, streams: usize, place: impl Fn(usize) -> Place) -> Quadratic {
    let mut quadratic = Quadratic::constant(jet.value, streams);
    for i in 0..N {
        let (stream, variable) = place(i);
        quadratic.gradient[stream][variable] = jet.gradient[i];
        (0..=i).for_each(|j| quadratic.hessian.add_entry((stream, variable), place(j), jet.hessian[i][j]));
    }
    quadratic
}

impl Gain {
    /// From what a component makes of gradients of 1, and makes at infinite width.
    fn new<const N: usize>(gradient: &Kernel<Jet<N>>, bare: &Kernel<f64>) -> Self {
        let Kernel { own, pairs, ln_unit, .. } = gradient;
        if bare.own[0] <= 0.0 || own[0].value <= 0.0 {
            return Self::of_nothing(N / PAIR);
        }
        let ln_own = of_pairs(&(own[0].ln() + (*ln_unit - bare.ln_unit - bare.own[0].ln())));
        Self { ln_own, cosine: of_pairs(&(pairs[0] / own[0])), leading: bare.pairs[0] / bare.own[0] }
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

fn ones<S: Scalar>(positions: &Arc<Positions>) -> Gradient<S> {
    Gradient::independent(Kernel::new(positions, |_| S::from(1.0), |_| S::from(1.0)))
}

/// What a component makes of the variables of `x`, and of gradients; `y` at infinite width.
pub(crate) fn component<C>(rule: &C, x: About<'_>, y: &Moments) -> (Map, Gain)
where
    C: MeanField<Jet<PAIR>> + MeanField<f64> + ?Sized,
{
    let positions = Arc::new(Positions::pair());
    let (tagged, bare) = (x.tagged(0, &positions), x.leading(&positions));
    let (of_tagged, of_bare) = (rule.forward(&tagged), rule.forward(&bare));
    let map = Map::new(&of_tagged.kernel, &of_bare.kernel, y.correlation);
    let back = rule.backward(&tagged, &of_tagged, &ones(&positions));
    let bare = rule.backward(&bare, &of_bare, &ones(&positions));
    (map, Gain::new(&back.kernel, &bare.kernel))
}

/// What a fan makes of the variables of its parts, and of gradients of each; `y` at infinite width.
pub(crate) fn fan<const N: usize, F>(rule: &F, parts: &[About<'_>], y: &Moments) -> (Map, Vec<Gain>)
where
    F: MeanFieldFan<Jet<N>> + MeanFieldFan<f64>,
{
    let positions = Arc::new(Positions::pair());
    let tagged: Vec<Arc<Signal<Jet<N>>>> =
        parts.iter().enumerate().map(|(index, part)| Arc::new(part.tagged(index, &positions))).collect();
    let bare: Vec<Arc<Signal<f64>>> = parts.iter().map(|part| Arc::new(part.leading(&positions))).collect();
    let (of_tagged, of_bare) = (rule.merge(&tagged[0], &tagged), rule.merge(&bare[0], &bare));
    let map = Map::new(&of_tagged.kernel, &of_bare.kernel, y.correlation);
    let back = rule.split(&tagged[0], &tagged, &ones(&positions));
    let bare = rule.split(&bare[0], &bare, &ones(&positions));
    (map, back.iter().zip(&bare).map(|(gradient, bare)| Gain::new(&gradient.kernel, &bare.kernel)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

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
