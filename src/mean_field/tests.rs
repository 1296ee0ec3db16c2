//! That every rule is a function of numbers: its derivatives, carried along by dual numbers, beside finite differences.

use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};
use std::sync::Arc;

use sigprop_stack::{
    Activation, Attention, Branch, Dropout, Init, Linear, Norm, NormKind, PowerLaw, Product, Scale, Tensor,
};

use super::attention::{Attended, Operators, Sums, View};
use super::component::{MeanField, MeanFieldFan};
use super::dual;
use super::gradient::Gradient;
use super::kernel::Kernel;
use super::positions::{Chart, Grading, Positions, Repetition};
use super::scalar::Scalar;
use super::signal::Signal;

/// A number and its derivative by one variable.
#[derive(Clone, Copy, Debug)]
struct Dual {
    value: f64,
    slope: f64,
}

fn dual(value: f64, slope: f64) -> Dual {
    Dual { value, slope }
}

impl From<f64> for Dual {
    fn from(value: f64) -> Self {
        dual(value, 0.0)
    }
}

impl Add for Dual {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        dual(self.value + other.value, self.slope + other.slope)
    }
}

impl Sub for Dual {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        dual(self.value - other.value, self.slope - other.slope)
    }
}

impl Mul for Dual {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        dual(self.value * other.value, self.slope * other.value + self.value * other.slope)
    }
}

impl Div for Dual {
    type Output = Self;
    fn div(self, other: Self) -> Self {
        let quotient = self.value / other.value;
        dual(quotient, (self.slope - quotient * other.slope) / other.value)
    }
}

impl Neg for Dual {
    type Output = Self;
    fn neg(self) -> Self {
        dual(-self.value, -self.slope)
    }
}

impl Add<f64> for Dual {
    type Output = Self;
    fn add(self, other: f64) -> Self {
        self + Self::from(other)
    }
}

impl Sub<f64> for Dual {
    type Output = Self;
    fn sub(self, other: f64) -> Self {
        self - Self::from(other)
    }
}

impl Mul<f64> for Dual {
    type Output = Self;
    fn mul(self, other: f64) -> Self {
        self * Self::from(other)
    }
}

impl Div<f64> for Dual {
    type Output = Self;
    fn div(self, other: f64) -> Self {
        self / Self::from(other)
    }
}

impl AddAssign for Dual {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Dual {
    fn sum<I: Iterator<Item = Self>>(numbers: I) -> Self {
        numbers.fold(Self::from(0.0), Add::add)
    }
}

impl Scalar for Dual {
    fn value(self) -> f64 {
        self.value
    }

    fn chain(self, derivatives: impl FnOnce(f64) -> [f64; 3]) -> Self {
        let [value, slope, _] = derivatives(self.value);
        dual(value, slope * self.slope)
    }
}

/// Two groups with two classes of pairs, and a signal whose moments all move with one variable at different rates.
fn signal<S: Scalar>(positions: &Arc<Positions>, variable: S) -> Signal<S> {
    let own = |node: usize| variable * (0.3 + 0.2 * node as f64) + 0.8;
    let pair = |point: usize| variable * (0.1 + 0.05 * (point % 7) as f64) + 0.2 + 0.02 * (point % 5) as f64;
    Signal::centred(64.0, Kernel::new(positions, own, pair))
}

/// Everything that two kernels have, in one unit.
fn numbers<S: Scalar>(kernels: &[&Kernel<S>]) -> Vec<S> {
    let all = |kernel: &&Kernel<S>| -> Vec<S> {
        let unit = kernel.ln_unit.exp();
        kernel.own.iter().chain(&kernel.pairs).map(|&number| number * unit).collect()
    };
    kernels.iter().flat_map(all).collect()
}

const AT: f64 = 0.4;

/// Compares the derivatives of `of` at [`AT`].
fn check(name: &str, duals: &[Dual], above: &[f64], below: &[f64], step: f64) {
    let largest = duals.iter().map(|number| number.slope.abs()).fold(0.0, f64::max);
    assert!(largest > 0.0, "{name}: nothing moves");
    for ((number, above), below) in duals.iter().zip(above).zip(below) {
        let slope = (above - below) / (2.0 * step);
        let error = (number.slope - slope).abs() / largest;
        assert!(error < 1e-5, "{name}: expected {slope}, got {}", number.slope);
    }
}

/// Output and gradient of a component.
fn both<S: Scalar>(component: &dyn MeanField<S>, positions: &Arc<Positions>, variable: S) -> Vec<S> {
    let x = signal(positions, variable);
    let y = component.forward(&x);
    let gradient = Gradient::independent(Kernel::new(positions, |_| S::from(1.0), |_| S::from(0.3)));
    let back = component.backward(&x, &y, &gradient);
    numbers(&[&y.kernel, &back.kernel])
}

macro_rules! derivatives {
    ($name:expr, $of:expr) => {{
        const STEP: f64 = 1e-5;
        let of = $of;
        let duals: Vec<Dual> = of.of_dual(dual(AT, 1.0));
        let [above, below] = [AT + STEP, AT - STEP].map(|at| of.of_float(at));
        check($name, &duals, &above, &below, STEP);
    }};
}

/// A function for both kinds of numbers.
struct Both<D: Fn(Dual) -> Vec<Dual>, F: Fn(f64) -> Vec<f64>>(D, F);

impl<D: Fn(Dual) -> Vec<Dual>, F: Fn(f64) -> Vec<f64>> Both<D, F> {
    fn of_dual(&self, at: Dual) -> Vec<Dual> {
        (self.0)(at)
    }

    fn of_float(&self, at: f64) -> Vec<f64> {
        (self.1)(at)
    }
}

fn tensor(std: f64) -> Tensor {
    Tensor { name: "weight".to_owned(), init: Init::Normal { std } }
}

fn groups() -> Arc<Positions> {
    let repetition = Repetition::new(PowerLaw { vocab_size: 30, exponent: 1.0 });
    Arc::new(Positions::groups(&[3.0, 5.0], Some(Arc::new(repetition))))
}

#[test]
fn components_have_the_derivatives_of_finite_differences() {
    let linear = Linear { fan_in: 64, fan_out: 32, weight: tensor(0.1), bias: Some(tensor(0.3)), standardised: None };
    let norm = Norm::plain(NormKind::RmsNorm, 0.1);
    let (dropout, scale) = (Dropout { rate: 0.2 }, Scale { factor: 1.5 });
    let positions = groups();
    derivatives!("linear", Both(|at| both(&linear, &positions, at), |at| both(&linear, &positions, at)));
    derivatives!("norm", Both(|at| both(&norm, &positions, at), |at| both(&norm, &positions, at)));
    let batch_norm = Norm { gain: 1.3, ..Norm::plain(NormKind::BatchNorm { training: true }, 0.1) };
    derivatives!("batch norm", Both(|at| both(&batch_norm, &positions, at), |at| both(&batch_norm, &positions, at)));
    derivatives!("dropout", Both(|at| both(&dropout, &positions, at), |at| both(&dropout, &positions, at)));
    derivatives!("scale", Both(|at| both(&scale, &positions, at), |at| both(&scale, &positions, at)));
    for activation in [Activation::Relu, Activation::Gelu, Activation::Silu, Activation::Tanh, Activation::Selu] {
        let rule = dual::Dual::new(activation);
        let name = format!("{activation:?}");
        derivatives!(&name, Both(|at| both(&rule, &positions, at), |at| both(&rule, &positions, at)));
    }
}

fn fan<S: Scalar>(fan: &dyn MeanFieldFan<S>, variable: S) -> Vec<S> {
    let positions = groups();
    let x = signal(&positions, variable);
    let parts = [Arc::new(x.clone()), Arc::new(signal(&positions, variable * variable))];
    let y = fan.merge(&x, &parts);
    let gradient = Gradient::independent(Kernel::new(&positions, |_| S::from(1.0), |_| S::from(0.3)));
    let back = fan.split(&x, &parts, &gradient);
    numbers(&[&y.kernel, &back[0].kernel, &back[1].kernel])
}

#[test]
fn fans_have_the_derivatives_of_finite_differences() {
    let branch = |scale| Branch { drop_rate: 0.1, ..Branch::constant(scale, Vec::new()) };
    let sum = sigprop_stack::Sum { branches: vec![branch(0.7), branch(0.5)] };
    let product = Product { factors: vec![Vec::new(), Vec::new()] };
    derivatives!("sum", Both(|at| fan(&sum, at), |at| fan(&sum, at)));
    derivatives!("product", Both(|at| fan(&product, at), |at| fan(&product, at)));
}

fn attended<S: Scalar>(view: &View, positions: &Arc<Positions>, variable: S) -> Vec<S> {
    let attention = Attention { dropout_rate: 0.1, ..Attention::plain(2, 2, 32, [Vec::new(), Vec::new(), Vec::new()]) };
    let part = |factor: f64| Arc::new(signal(positions, variable * factor));
    let attended = Attended::new(&attention, &[(1.0, view.clone())], [part(1.0), part(0.9), part(1.2)]);
    let gradient = Gradient::independent(Kernel::new(positions, |_| S::from(1.0), |_| S::from(0.3)));
    let back = attended.split(&attention, &gradient);
    let output = attended.output();
    let kernels: Vec<&Kernel<S>> = back.iter().map(|gradient| &gradient.kernel).collect();
    numbers(&[&[&output.kernel], kernels.as_slice()].concat())
}

#[test]
fn attention_has_the_derivatives_of_finite_differences() {
    let positions = groups();
    let view = View::Everywhere;
    derivatives!("everywhere", Both(|at| attended(&view, &positions, at), |at| attended(&view, &positions, at)));
    let chart = Chart::new(12, Grading::all(12), &[]);
    let positions = Arc::new(Positions::on(chart, None));
    let chart = positions.chart.as_ref().expect("it is on one");
    let sums = Arc::new(Sums::new(chart, sigprop_stack::Mask::CAUSAL, 0.0));
    let view = View::Masked(Operators { sums, rotated: None });
    let alibi =
        View::Masked(Operators { sums: Arc::new(Sums::new(chart, sigprop_stack::Mask::CAUSAL, 0.1)), rotated: None });
    derivatives!("ALiBi", Both(|at| attended(&alibi, &positions, at), |at| attended(&alibi, &positions, at)));
    derivatives!("masked", Both(|at| attended(&view, &positions, at), |at| attended(&view, &positions, at)));
}
