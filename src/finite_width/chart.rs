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

use nalgebra::{DMatrix, DVector};

use super::jet::Jet;
use crate::mean_field::component::{Fan, MeanField};
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

/// A function of some variables about one place, to second order.
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
    pub(crate) jacobian: DMatrix<f64>,
    pub(crate) hessians: Vec<DMatrix<f64>>,
}

/// What a component multiplies gradients by.
#[derive(Clone, Debug)]
pub(crate) struct Gain {
    /// ln of the factor on E g_a²; −∞ where nothing is left.
    pub(crate) ln_own: Quadratic,
    /// The factor on E g_a g_b over that on E g_a².
    pub(crate) cosine: Quadratic,
}

impl Quadratic {
    /// That of a jet by variables that stand at these places among `count`.
    pub(crate) fn of<const N: usize>(jet: &Jet<N>, count: usize, place: impl Fn(usize) -> usize) -> Self {
        let (mut gradient, mut hessian) = (DVector::zeros(count), DMatrix::zeros(count, count));
        for i in 0..N {
            gradient[place(i)] += jet.gradient[i];
            for j in 0..=i {
                hessian[(place(i), place(j))] += jet.hessian[i][j];
                if i != j {
                    hessian[(place(j), place(i))] += jet.hessian[i][j];
                }
            }
        }
        Self { value: jet.value, gradient, hessian }
    }

    /// A number.
    pub(crate) fn constant(value: f64, count: usize) -> Self {
        Self { value, gradient: DVector::zeros(count), hessian: DMatrix::zeros(count, count) }
    }

    /// The same function of more variables, these standing at `places`.
    pub(crate) fn among(&self, places: &[usize], count: usize) -> Self {
        let mut among = Self::constant(self.value, count);
        for (i, &row) in places.iter().enumerate() {
            among.gradient[row] = self.gradient[i];
            for (j, &column) in places.iter().enumerate() {
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
fn place(variable: usize, of: [usize; PAIR]) -> usize {
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

/// A stream: its signal at infinite width, and the means of u and r less what they are there.
#[derive(Clone, Copy)]
pub(crate) struct About<'x> {
    pub(crate) x: &'x Signal<f64>,
    pub(crate) means: [f64; 2],
}

impl About<'_> {
    /// E x² and its unit, and r, at the means.
    pub(crate) fn level(&self) -> (f64, f64) {
        (self.x.kernel.own[0] * self.means[0].exp(), self.x.kernel.ln_unit)
    }

    pub(crate) fn correlation(&self) -> f64 {
        (correlation(&self.x.kernel) + self.means[1]).clamp(-1.0, 1.0)
    }
}

/// The correlation of two tokens.
pub(crate) fn correlation(kernel: &Kernel<f64>) -> f64 {
    if kernel.own[0] > 0.0 { (kernel.pairs[0] / kernel.own[0]).clamp(-1.0, 1.0) } else { 0.0 }
}

/// The two tagged tokens of a signal with all tokens alike, which is the stream `index` among those that variables stand for.
fn pair<const N: usize>(about: About<'_>, index: usize, positions: &Arc<Positions>) -> Signal<Jet<N>> {
    /// Copies of one token have no second derivatives.
    const COPIES: f64 = 1.0 - 1e-9;
    let variable = |place: usize, value: f64| Jet::<N>::variable(PAIR * index + place, value);
    let (x, (own, ln_unit)) = (about.x, about.level());
    let correlation = about.correlation().clamp(-COPIES, COPIES);
    let roots = [U_A, U_B].map(|token| (variable(token, 0.0) * 0.5).exp());
    let squares = roots.map(|root| root * root * own);
    let product = roots[0] * roots[1] * variable(R_AB, correlation) * own;
    let kernel = Kernel::new(positions, |node| squares[node], |_| product);
    // Means keep their share of the length.
    let root = (0.5 * about.means[0]).exp();
    let means = x.means.as_ref().map(|means| roots.iter().map(|&of| of * (root * means[0])).collect());
    Signal { means, ..Signal::centred(x.width, Kernel { ln_unit, ..kernel }) }
}

/// u_a and r_ab of a pair.
fn variables<const N: usize>(y: &Kernel<Jet<N>>) -> [Jet<N>; 2] {
    if y.own[0].value <= 0.0 {
        return [Jet::from(0.0); 2];
    }
    [y.own[0].ln(), y.pairs[0] / (y.own[0] * y.own[1]).sqrt()]
}

impl Map {
    fn of_pair<const N: usize>(y: &Signal<Jet<N>>, leading: &Kernel<f64>) -> Self {
        let count = N / PAIR * VARIABLES;
        let [level, correlation] = variables(&y.kernel);
        let is_zero = leading.own[0] <= 0.0;
        let ln_level = if is_zero { 0.0 } else { leading.own[0].ln() + leading.ln_unit - y.kernel.ln_unit };
        let moved = [level.value - ln_level, correlation.value - self::correlation(leading)];
        let of = |jet: &Jet<N>, tokens: [usize; PAIR]| Quadratic::of(jet, count, |variable| place(variable, tokens));
        let rows = [
            of(&level, A_B),
            of(&level, B_ALL),
            of(&correlation, A_B),
            of(&correlation, A_ALL),
            of(&correlation, B_ALL),
            of(&level, ALL),
            of(&correlation, ALL),
        ];
        let jacobian = DMatrix::from_fn(VARIABLES, count, |row, column| rows[row].gradient[column]);
        Self { moved, leading: self::correlation(leading), jacobian, hessians: rows.map(|row| row.hessian).into() }
    }
}

impl Gain {
    /// From what a component makes of gradients of 1.
    fn new<const N: usize>(gradient: &Gradient<Jet<N>>) -> Self {
        let count = N / PAIR * VARIABLES;
        let of_pair = |variable| place(variable, A_B);
        let Kernel { own, pairs, ln_unit, .. } = &gradient.kernel;
        if own[0].value <= 0.0 {
            return Self {
                ln_own: Quadratic::constant(f64::NEG_INFINITY, count),
                cosine: Quadratic::constant(0.0, count),
            };
        }
        let ln_own = Quadratic::of(&(own[0].ln() + *ln_unit), count, of_pair);
        Self { ln_own, cosine: Quadratic::of(&(pairs[0] / own[0]), count, of_pair) }
    }
}

fn ones<const N: usize>(positions: &Arc<Positions>) -> Gradient<Jet<N>> {
    Gradient::independent(Kernel::new(positions, |_| Jet::from(1.0), |_| Jet::from(1.0)))
}

/// What a component makes of the variables of `x`, and of gradients; `y` at infinite width.
pub(crate) fn component<C: MeanField<Jet<PAIR>> + ?Sized>(rule: &C, x: About<'_>, y: &Signal<f64>) -> (Map, Gain) {
    let positions = Arc::new(Positions::pair());
    let x = pair(x, 0, &positions);
    let jets = rule.forward(&x);
    let gradient = rule.backward(&x, &jets, &ones(&positions));
    (Map::of_pair(&jets, &y.kernel), Gain::new(&gradient))
}

/// What a fan makes of the variables of its parts, and of gradients of each; `y` at infinite width.
pub(crate) fn fan<const N: usize, F: Fan<Jet<N>>>(rule: &F, parts: &[About<'_>], y: &Signal<f64>) -> (Map, Vec<Gain>) {
    let positions = Arc::new(Positions::pair());
    let parts: Vec<Arc<Signal<Jet<N>>>> =
        parts.iter().enumerate().map(|(index, &part)| Arc::new(pair(part, index, &positions))).collect();
    let jets = rule.merge(&parts[0], &parts);
    let gradients = rule.split(&parts[0], &parts, &ones(&positions));
    (Map::of_pair(&jets, &y.kernel), gradients.iter().map(Gain::new).collect())
}
