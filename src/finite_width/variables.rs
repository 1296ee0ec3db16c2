//! The variables in which one network differs from the infinitely wide one, and maps of them to second order.
//!
//! ```text
//! y = (u_a, u_b, r_ab, r_a, r_b, U, R)      u_a = ln |x_a|²/n      r_ab = x_a·x_b/(|x_a||x_b|)      of two tagged tokens a, b
//!                                           r_a = mean_b x_a·x_b/(|x_a| √(mean_b |x_b|²))          of a and all others
//!                                           U = ln mean_a |x_a|²/n      R = mean_{a≠b} x_a·x_b/mean_a |x_a|²      of all
//! ```
//!
//! They are functions of one network. What a component makes of them is what it makes of second moments at infinite width, of which
//! [`Jet`] takes the derivatives. Source: van Kampen 2007, chapter X (expansion in the size of a system).

use std::sync::Arc;

use nalgebra::{DMatrix, DVector, SMatrix, SVector};
use smallvec::{SmallVec, smallvec};

use super::jet::Jet;
use crate::mean_field::component::{MeanField, MeanFieldFan};
use crate::mean_field::gradient::Gradient;
use crate::mean_field::kernel::Kernel;
use crate::mean_field::positions::Positions;
use crate::mean_field::scalar::Scalar;
use crate::mean_field::signal::Signal;

/// How many variables a stream has.
pub(crate) const VARIABLES: usize = 7;
/// u_a.
pub(crate) const U_A: usize = 0;
/// u_b.
pub(crate) const U_B: usize = 1;
/// r_ab.
pub(crate) const R_AB: usize = 2;
/// r_a.
pub(crate) const R_A: usize = 3;
/// r_b.
pub(crate) const R_B: usize = 4;
/// U.
pub(crate) const U: usize = 5;
/// R.
pub(crate) const R: usize = 6;
/// Of a pair of tokens: u_a, u_b and r_ab.
const PAIR: usize = 3;

/// One number per variable of a stream.
pub(crate) type Vector = SVector<f64, VARIABLES>;
/// One number per pair of variables.
pub(crate) type Matrix = SMatrix<f64, VARIABLES, VARIABLES>;

/// A function of some variables about one point, to second order.
#[derive(Clone, Debug)]
pub(crate) struct Quadratic {
    pub(crate) value: f64,
    pub(crate) gradient: DVector<f64>,
    pub(crate) hessian: DMatrix<f64>,
}

/// The variables of one stream as functions of those of the streams that it is made of, about their means.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    /// What u and r are there, less what they are at infinite width.
    pub(crate) moved: [f64; 2],
    /// r at infinite width.
    pub(crate) leading: f64,
    /// First derivatives by the variables of every stream that it is made of.
    pub(crate) jacobians: SmallVec<[Matrix; 2]>,
    pub(crate) hessians: Hessians,
}

/// Second derivatives of the variables of a stream by those of the streams that it is made of.
#[derive(Clone, Debug)]
pub(crate) struct Hessians {
    /// The number of variables of those streams.
    count: usize,
    /// One matrix of `count` × `count` per variable of the output; empty where all are zero.
    entries: Vec<f64>,
}

impl Hessians {
    /// Second derivatives of a linear map.
    pub(crate) fn none(count: usize) -> Self {
        Self { count, entries: Vec::new() }
    }

    /// The second derivatives of every variable, column by column; nothing where all are zero.
    pub(crate) fn each(&self) -> impl Iterator<Item = &[f64]> {
        self.entries.chunks_exact(self.count * self.count)
    }

    /// ½ H:S of every variable, for the covariances S of two variables.
    pub(crate) fn bent(&self, covariance: impl Fn(usize, usize) -> f64) -> Vector {
        let mut bent = Vector::zeros();
        for (bent, hessian) in bent.iter_mut().zip(self.each()) {
            for (column, of_column) in hessian.chunks_exact(self.count).enumerate() {
                *bent += of_column.iter().enumerate().map(|(row, of)| 0.5 * of * covariance(row, column)).sum::<f64>();
            }
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

impl Quadratic {
    /// A jet as a function of `count` variables, of which its own have these indices.
    pub(crate) fn of<const N: usize>(jet: &Jet<N>, count: usize, index: impl Fn(usize) -> usize) -> Self {
        let (mut gradient, mut hessian) = (DVector::zeros(count), DMatrix::zeros(count, count));
        for i in 0..N {
            gradient[index(i)] += jet.gradient[i];
            for j in 0..=i {
                hessian[(index(i), index(j))] += jet.hessian[i][j];
                if i != j {
                    hessian[(index(j), index(i))] += jet.hessian[i][j];
                }
            }
        }
        Self { value: jet.value, gradient, hessian }
    }

    /// A number.
    pub(crate) fn constant(value: f64, count: usize) -> Self {
        Self { value, gradient: DVector::zeros(count), hessian: DMatrix::zeros(count, count) }
    }

    /// The same function of more variables, these standing at `indices`.
    pub(crate) fn among(&self, indices: &[usize], count: usize) -> Self {
        let mut among = Self::constant(self.value, count);
        for (i, &row) in indices.iter().enumerate() {
            among.gradient[row] = self.gradient[i];
            for (j, &column) in indices.iter().enumerate() {
                among.hessian[(row, column)] = self.hessian[(i, j)];
            }
        }
        among
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.value += other.value;
        self.gradient += &other.gradient;
        self.hessian += &other.hessian;
    }

    pub(crate) fn less(&self, other: &Self) -> Self {
        Self {
            value: self.value - other.value,
            gradient: &self.gradient - &other.gradient,
            hessian: &self.hessian - &other.hessian,
        }
    }

    pub(crate) fn times(&self, other: &Self) -> Self {
        let crossed = &self.gradient * other.gradient.transpose();
        Self {
            value: self.value * other.value,
            gradient: &self.gradient * other.value + &other.gradient * self.value,
            hessian: &self.hessian * other.value + &other.hessian * self.value + &crossed + crossed.transpose(),
        }
    }

    pub(crate) fn scale(&mut self, factor: f64) {
        self.value *= factor;
        self.gradient *= factor;
        self.hessian *= factor;
    }

    pub(crate) fn negative(mut self) -> Self {
        self.value = -self.value;
        self.gradient.neg_mut();
        self.hessian.neg_mut();
        self
    }

    /// 1/x of the function.
    pub(crate) fn inverse(&self) -> Self {
        let ln = self.ln();
        ln.negative().exp(self.value.recip())
    }

    /// ln of the function.
    pub(crate) fn ln(&self) -> Self {
        let gradient = &self.gradient / self.value;
        let hessian = &self.hessian / self.value - &gradient * gradient.transpose();
        Self { value: self.value.ln(), gradient, hessian }
    }

    /// e to the function, which is `value` here.
    pub(crate) fn exp(&self, value: f64) -> Self {
        Self {
            value,
            gradient: &self.gradient * value,
            hessian: (&self.hessian + &self.gradient * self.gradient.transpose()) * value,
        }
    }
}

/// Where a variable of the pair (u, u, r) stands if its tokens are a and b, b and a, one of them and all, or all.
fn index(variable: usize, of: [usize; PAIR]) -> usize {
    variable / PAIR * VARIABLES + of[variable % PAIR]
}

/// Tokens a and b.
const A_B: [usize; PAIR] = [U_A, U_B, R_AB];
/// Token a and all.
const A_ALL: [usize; PAIR] = [U_A, U, R_A];
/// Token b and all.
const B_ALL: [usize; PAIR] = [U_B, U, R_B];
/// All and all.
const ALL: [usize; PAIR] = [U, U, R];

/// Second moments of two tokens of a stream at infinite width, averaged over its sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moments {
    pub(crate) width: f64,
    /// E x², times e^`ln_unit`.
    own: f64,
    ln_unit: f64,
    pub(crate) correlation: f64,
    /// E x, in units of the root of that of E x².
    mean: Option<f64>,
}

impl Moments {
    pub(crate) fn of(x: &Signal<f64>) -> Self {
        let positions = &x.kernel.positions;
        let (own, correlation) = averages(&x.kernel);
        let mean = x.means.as_ref().map(|means| positions.sum(|node| means[node]) / positions.length);
        Self { width: x.width, own, ln_unit: x.kernel.ln_unit, correlation, mean }
    }

    /// Features without mean, of variance 1, of tokens with this correlation.
    pub(crate) fn unit(correlation: f64) -> Self {
        Self { width: 1.0, own: 1.0, ln_unit: 0.0, correlation, mean: None }
    }

    /// ln E x².
    pub(crate) fn ln_level(&self) -> f64 {
        self.own.ln() + self.ln_unit
    }

    /// Whether all of it is exactly zero.
    pub(crate) fn is_zero(&self) -> bool {
        self.own <= 0.0
    }

    /// (E x)² over E x².
    pub(crate) fn mean_share(&self) -> f64 {
        if self.own > 0.0 { self.mean.map_or(0.0, |mean| mean * mean / self.own) } else { 0.0 }
    }
}

/// E x_a² without its unit, and the correlation of two tokens, averaged over a sequence.
fn averages(kernel: &Kernel<f64>) -> (f64, f64) {
    let positions = &kernel.positions;
    let count = positions.length;
    let own = positions.sum(|node| kernel.own[node]) / count;
    if own <= 0.0 || count <= 1.0 {
        return (own, 0.0);
    }
    let pair = positions.sum_pairs(|point| kernel.pairs[point]) / (count * (count - 1.0));
    (own, (pair / own).clamp(-1.0, 1.0))
}

/// ln E g_a² and the correlation of two tokens, averaged over a sequence.
pub(crate) fn levels(kernel: &Kernel<f64>) -> (f64, f64) {
    let (own, correlation) = averages(kernel);
    (own.ln() + kernel.ln_unit, correlation)
}

/// A stream at infinite width, and the means of u and r less what they are there.
#[derive(Clone, Copy)]
pub(crate) struct About<'x> {
    pub(crate) x: &'x Moments,
    pub(crate) means: [f64; 2],
}

impl About<'_> {
    /// E x² and its unit, and r, at the means.
    pub(crate) fn level(&self) -> (f64, f64) {
        (self.x.own * self.means[0].exp(), self.x.ln_unit)
    }

    pub(crate) fn correlation(&self) -> f64 {
        (self.x.correlation + self.means[1]).clamp(-1.0, 1.0)
    }

    /// Two tokens with these logarithms of lengths beyond the means, and this correlation.
    fn pair<S: Scalar>(&self, lengths: [S; 2], correlation: S, positions: &Arc<Positions>) -> Signal<S> {
        let (own, ln_unit) = self.level();
        let roots = lengths.map(|length| (length * 0.5).exp());
        let squares = roots.map(|root| root * root * own);
        let product = roots[0] * roots[1] * correlation * own;
        let kernel = Kernel::new(positions, |node| squares[node], |_| product);
        // Means keep their share of the length.
        let root = (0.5 * self.means[0]).exp();
        let means = self.x.mean.map(|mean| roots.iter().map(|&of| of * (root * mean)).collect());
        Signal { means, ..Signal::centred(self.x.width, Kernel { ln_unit, ..kernel }) }
    }

    /// The two tagged tokens of the stream `index` among those that variables stand for.
    fn tagged<const N: usize>(&self, index: usize, positions: &Arc<Positions>) -> Signal<Jet<N>> {
        /// Copies of one token have no second derivatives.
        const COPIES: f64 = 1.0 - 1e-9;
        let variable = |of: usize, value: f64| Jet::<N>::variable(PAIR * index + of, value);
        let correlation = variable(R_AB, self.correlation().clamp(-COPIES, COPIES));
        self.pair([variable(U_A, 0.0), variable(U_B, 0.0)], correlation, positions)
    }

    /// Two tokens at infinite width.
    fn leading(&self, positions: &Arc<Positions>) -> Signal<f64> {
        let Self { x, .. } = self;
        About { x, means: [0.0; 2] }.pair([0.0; 2], x.correlation, positions)
    }
}

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
        let count = N / PAIR * VARIABLES;
        let [level, correlation] = variables(y);
        let [bare_level, bare_correlation] = variables(bare);
        let moved = [level.value - bare_level + y.ln_unit - bare.ln_unit, correlation.value - bare_correlation];
        let mut jacobians: SmallVec<[Matrix; 2]> = smallvec![Matrix::zeros(); N / PAIR];
        let mut entries = vec![0.0; VARIABLES * count * count];
        let rows = [
            (&level, A_B),
            (&level, B_ALL),
            (&correlation, A_B),
            (&correlation, A_ALL),
            (&correlation, B_ALL),
            (&level, ALL),
            (&correlation, ALL),
        ];
        for (row, ((jet, tokens), hessian)) in rows.into_iter().zip(entries.chunks_exact_mut(count * count)).enumerate()
        {
            for i in 0..N {
                let at = index(i, tokens);
                jacobians[at / VARIABLES][(row, at % VARIABLES)] += jet.gradient[i];
                for j in 0..=i {
                    let other = index(j, tokens);
                    hessian[at * count + other] += jet.hessian[i][j];
                    if i != j {
                        hessian[other * count + at] += jet.hessian[i][j];
                    }
                }
            }
        }
        Self { moved, leading, jacobians, hessians: Hessians { count, entries } }
    }

    /// A map whose output has these variables, as functions of those of its input.
    pub(crate) fn of_variables(moved: [f64; 2], leading: f64, variables: &[Jet<VARIABLES>; VARIABLES]) -> Self {
        let jacobian = Matrix::from_fn(|row, column| variables[row].gradient[column]);
        let second = |jet: &Jet<VARIABLES>, i: usize, j: usize| jet.hessian[i.max(j)][i.min(j)];
        let square = || (0..VARIABLES).flat_map(|i| (0..VARIABLES).map(move |j| (i, j)));
        let entries = variables.iter().flat_map(|jet| square().map(move |(i, j)| second(jet, i, j))).collect();
        Self { moved, leading, jacobians: smallvec![jacobian], hessians: Hessians { count: VARIABLES, entries } }
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
        Self { moved: means, leading, jacobians, hessians: Hessians::none(VARIABLES) }
    }
}

impl Gain {
    /// From what a component makes of gradients of 1, and makes at infinite width.
    fn new<const N: usize>(gradient: &Kernel<Jet<N>>, bare: &Kernel<f64>) -> Self {
        let count = N / PAIR * VARIABLES;
        let of_pair = |variable| index(variable, A_B);
        let Kernel { own, pairs, ln_unit, .. } = gradient;
        if bare.own[0] <= 0.0 || own[0].value <= 0.0 {
            return Self::of_nothing(count);
        }
        let ln_own = Quadratic::of(&(own[0].ln() + (*ln_unit - bare.ln_unit - bare.own[0].ln())), count, of_pair);
        let cosine = Quadratic::of(&(pairs[0] / own[0]), count, of_pair);
        Self { ln_own, cosine, leading: bare.pairs[0] / bare.own[0] }
    }

    /// Of what lets no gradient through.
    fn of_nothing(count: usize) -> Self {
        Self { ln_own: Quadratic::constant(0.0, count), cosine: Quadratic::constant(0.0, count), leading: 0.0 }
    }

    /// Of a BatchNorm: gradients of all tokens sum to zero, whatever they were.
    pub(crate) fn batch_norm() -> Self {
        Self::of_nothing(VARIABLES)
    }

    /// Of what changes nothing of a gradient.
    pub(crate) fn same() -> Self {
        let [ln_own, cosine] = [0.0, 1.0].map(|value| Quadratic::constant(value, VARIABLES));
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
