//! The infinitely wide encoder from scratch: the code of *The theory in an hour*, docs/theory.md.
//!
//! `cargo run --example theory` compares it with the predictions of the library.
#![expect(clippy::print_stdout, reason = "examples print")]

use std::error::Error;
use std::f64::consts::{FRAC_1_PI, PI};
use std::ops::Range;

use sigprop::architecture::{Activation as Activations, Architecture, NormPlacement};
use sigprop::assemble::{Input, Run, assemble};
use sigprop::{Options, Sites, Theory, predict, schemes::Scheme};
use sigprop_stack::{Quantity, SiteRow, SiteTable, WeightRow};

/// E x_a² of every token and E x_a x_b of every two, in a sequence of `length` tokens that are all alike.
#[derive(Clone, Copy, Debug)]
struct Kernel {
    length: f64,
    own: f64,
    pair: f64,
}

trait MeanField {
    /// The output from the input.
    fn forward(&self, x: Kernel) -> Kernel;
    /// The gradient at the input x from that at the output; E dW² of weights is added to a list.
    fn backward(&self, x: Kernel, gradient: Kernel, weights: &mut Weights) -> Kernel;
}

impl Kernel {
    fn correlation(self) -> f64 {
        self.pair / self.own
    }

    fn scaled(self, gain: f64) -> Self {
        Self { own: gain * self.own, pair: gain * self.pair, ..self }
    }

    fn plus(self, other: Self) -> Self {
        Self { own: self.own + other.own, pair: self.pair + other.pair, ..self }
    }

    fn times(self, other: Self) -> Self {
        Self { own: self.own * other.own, pair: self.pair * other.pair, ..self }
    }

    /// The sum Σ_ab over all tokens a, b.
    fn total(self) -> f64 {
        self.length * (self.own + (self.length - 1.0) * self.pair)
    }
}

type Weights = Vec<(&'static str, f64)>;

#[derive(Clone, Copy)]
struct Linear {
    name: &'static str,
    fan_in: f64,
    fan_out: f64,
    std: f64,
}

impl MeanField for Linear {
    fn forward(&self, x: Kernel) -> Kernel {
        x.scaled(self.fan_in * self.std.powi(2))
    }

    fn backward(&self, x: Kernel, gradient: Kernel, weights: &mut Weights) -> Kernel {
        weights.push((self.name, gradient.times(x).total()));
        gradient.scaled(self.fan_out * self.std.powi(2))
    }
}

fn linear_by_hand() {
    let third = (1.0f64 / 3.0).sqrt();
    let linear = Linear { name: "weight", fan_in: 256.0, fan_out: 128.0, std: third };
    let x = Kernel { length: 2.0, own: 1.0, pair: 0.5 };
    let gradient = Kernel { length: 2.0, own: 1.0, pair: 0.25 };
    let mut weights = Vec::new();
    let back = linear.backward(x, gradient, &mut weights);
    assert_near(linear.forward(x).own, 256.0 / 3.0);
    assert_near(back.own, 128.0 / 3.0);
    assert_near(weights[0].1, 2.0 * (1.0 + 0.25 * 0.5));
}

struct Chain(Vec<Box<dyn MeanField>>);

impl MeanField for Chain {
    fn forward(&self, x: Kernel) -> Kernel {
        self.0.iter().fold(x, |x, part| part.forward(x))
    }

    fn backward(&self, x: Kernel, gradient: Kernel, weights: &mut Weights) -> Kernel {
        let mut inputs = vec![x];
        for part in &self.0 {
            inputs.push(part.forward(inputs[inputs.len() - 1]));
        }
        let parts = self.0.iter().zip(inputs).rev();
        parts.fold(gradient, |gradient, (part, x)| part.backward(x, gradient, weights))
    }
}

/// The residual sum y = λ x + β f(x).
struct Residual {
    skip_scale: f64,
    branch_scale: f64,
    body: Chain,
}

impl MeanField for Residual {
    fn forward(&self, x: Kernel) -> Kernel {
        x.scaled(self.skip_scale.powi(2)).plus(self.body.forward(x).scaled(self.branch_scale.powi(2)))
    }

    fn backward(&self, x: Kernel, gradient: Kernel, weights: &mut Weights) -> Kernel {
        let branch = gradient.scaled(self.branch_scale.powi(2));
        gradient.scaled(self.skip_scale.powi(2)).plus(self.body.backward(x, branch, weights))
    }
}

#[derive(Clone, Copy)]
struct Relu;

impl MeanField for Relu {
    fn forward(&self, x: Kernel) -> Kernel {
        let angle = x.correlation().acos();
        let pair = x.own * (angle.sin() + (PI - angle) * angle.cos()) / (2.0 * PI);
        Kernel { own: 0.5 * x.own, pair, ..x }
    }

    fn backward(&self, x: Kernel, gradient: Kernel, _: &mut Weights) -> Kernel {
        let pair = (PI - x.correlation().acos()) / (2.0 * PI);
        gradient.times(Kernel { own: 0.5, pair, ..x })
    }
}

fn relu_by_hand() {
    let x = Kernel { length: 2.0, own: 1.0, pair: 0.0 };
    assert_near(Relu.forward(x).correlation(), FRAC_1_PI);
    let x = Kernel { pair: 0.5, ..x };
    assert_near(Relu.forward(x).correlation(), 0.5 * 3f64.sqrt() / PI + 1.0 / 3.0);
    let gradient = Relu.backward(x, Kernel { length: 2.0, own: 1.0, pair: 1.0 }, &mut Vec::new());
    assert_near(gradient.correlation(), 2.0 / 3.0);
}

/// A smooth activation: φ and its derivative φ'.
#[derive(Clone, Copy)]
struct Activation {
    value: fn(f64) -> f64,
    slope: fn(f64) -> f64,
}

/// Nodes z and weights of a quadrature of E f(z), z ~ N(0, 1).
fn normal() -> impl Iterator<Item = (f64, f64)> + Clone {
    const STEP: f64 = 0.2;
    let node = |i: i32| STEP * f64::from(i);
    (-42..=42).map(node).map(|z| (z, STEP * (-0.5 * z * z).exp() / (2.0 * PI).sqrt()))
}

/// E f(u)² and E f(u) f(v), u and v Gaussian with the moments of x.
fn expectation(f: impl Fn(f64) -> f64, x: Kernel) -> Kernel {
    let (std, rho) = (x.own.sqrt(), x.correlation());
    let rest = (1.0 - rho * rho).max(0.0).sqrt();
    let mean = |z: f64| normal().map(|(y, weight)| weight * f(std * (rho * z + rest * y))).sum::<f64>();
    let own = normal().map(|(z, weight)| weight * f(std * z).powi(2)).sum();
    let pair = normal().map(|(z, weight)| weight * f(std * z) * mean(z)).sum();
    Kernel { own, pair, ..x }
}

impl MeanField for Activation {
    fn forward(&self, x: Kernel) -> Kernel {
        expectation(self.value, x)
    }

    fn backward(&self, x: Kernel, gradient: Kernel, _: &mut Weights) -> Kernel {
        gradient.times(expectation(self.slope, x))
    }
}

fn price_by_differences() {
    const STEP: f64 = 1e-4;
    let x = |pair: f64| Kernel { length: 2.0, own: 2.0, pair };
    let difference = expectation(f64::tanh, x(1.0 + STEP)).pair - expectation(f64::tanh, x(1.0 - STEP)).pair;
    let slope = expectation(|u| 1.0 - u.tanh().powi(2), x(1.0)).pair;
    assert_near(difference / (2.0 * STEP), slope);
}

struct Norm {
    eps: f64,
}

impl MeanField for Norm {
    fn forward(&self, x: Kernel) -> Kernel {
        x.scaled(1.0 / (x.own + self.eps))
    }

    fn backward(&self, x: Kernel, gradient: Kernel, _: &mut Weights) -> Kernel {
        gradient.scaled(1.0 / (x.own + self.eps))
    }
}

/// E Σ_b A_ab A_cb of two rows of n scores of variance w, with the correlation ρ between the rows.
fn overlap(n: f64, w: f64, rho: f64) -> f64 {
    (1.0 + (1.0 - 1.0 / n) * ((w * rho).exp() - 1.0)) / n
}

/// The derivative of `overlap` with respect to wρ.
fn passed(n: f64, w: f64, rho: f64) -> f64 {
    (1.0 - 1.0 / n) * (w * rho).exp() / n
}

/// The exact S2 = E Σ_b A_b² of one row of n scores of variance w.
fn squares(n: f64, w: f64) -> f64 {
    const STEP: f64 = 0.2;
    let moment = |k: f64, ln_t: f64| -> f64 {
        normal()
            .map(|(z, weight)| (ln_t + w.sqrt() * z, weight))
            .map(|(y, weight)| weight * (k * y - y.exp()).exp())
            .sum()
    };
    let at = |ln_t: f64| n * moment(2.0, ln_t) * moment(0.0, ln_t).powf(n - 1.0);
    (-200..=200).map(|i| STEP * at(STEP * f64::from(i))).sum()
}

/// Heads of softmax attention with scores q·k/√d_head.
struct Attention {
    query: Linear,
    key: Linear,
    value: Linear,
}

impl Attention {
    /// Kernels of queries, keys and values, and the variance of scores less the part that all keys share.
    fn parts(&self, x: Kernel) -> ([Kernel; 3], f64) {
        let [q, k, v] = [self.query, self.key, self.value].map(|map| map.forward(x));
        ([q, k, v], q.own * (k.own - k.pair))
    }
}

impl MeanField for Attention {
    fn forward(&self, x: Kernel) -> Kernel {
        let ([q, _, v], w) = self.parts(x);
        let mixed = |rho: f64| v.pair + (v.own - v.pair) * overlap(x.length, w, rho);
        Kernel { own: mixed(1.0), pair: mixed(q.correlation()), ..x }
    }

    fn backward(&self, x: Kernel, gradient: Kernel, weights: &mut Weights) -> Kernel {
        let ([q, k, v], w) = self.parts(x);
        let (n, rho) = (x.length, q.correlation());
        let overlaps = Kernel { own: overlap(n, w, 1.0), pair: overlap(n, w, rho), ..x };
        let passed = Kernel { own: passed(n, w, 1.0), pair: passed(n, w, rho), ..x };
        let own = gradient.times(overlaps).total() / n;
        let at_values = Kernel { own, pair: (gradient.total() / n - own) / (n - 1.0), ..x };
        let own = (v.own - v.pair) * gradient.times(q).times(passed).total() / n;
        let at_keys = Kernel { own, pair: -own / (n - 1.0), ..x };
        let at_queries = gradient.times(passed).scaled((v.own - v.pair) * (k.own - k.pair));
        let parts = [(self.query, at_queries), (self.key, at_keys), (self.value, at_values)];
        let at_x = parts.map(|(map, gradient)| map.backward(x, gradient, weights));
        at_x[0].plus(at_x[1]).plus(at_x[2])
    }
}

/// Attention with scores near zero and values of the size of the input.
fn flat_attention() -> Attention {
    let linear = |name, std| Linear { name, fan_in: 64.0, fan_out: 64.0, std };
    Attention { query: linear("query", 1e-4), key: linear("key", 1e-4), value: linear("value", 0.125) }
}

fn attention_by_hand() {
    let attention = flat_attention();
    let x = Kernel { length: 4.0, own: 1.0, pair: 0.2 };
    let z = attention.forward(x);
    assert_near(z.own, 0.2 + 0.8 / 4.0);
    assert_near(z.correlation(), 1.0);
    let gradient = Kernel { length: 4.0, own: 1.0, pair: 0.0 };
    let back = attention.backward(x, gradient, &mut Vec::new());
    assert_near(back.own, 0.25);
    assert_near(back.correlation(), 1.0);
}

fn residual_by_hand() {
    // Two tokens of variance 1 and correlation 0.2 have an average of variance 0.6.
    let body = Chain(vec![part(flat_attention())]);
    let residual = Residual { skip_scale: 1.0, branch_scale: 0.6f64.sqrt().recip(), body };
    let y = residual.forward(Kernel { length: 2.0, own: 1.0, pair: 0.2 });
    assert_near(y.own, 2.0);
    assert_near(y.correlation(), 0.6);
}

fn norm_by_hand() {
    let x = Kernel { length: 2.0, own: 0.0008, pair: 0.0 };
    let gradient = Norm { eps: 1e-5 }.backward(x, Kernel { length: 2.0, own: 1.0, pair: 0.0 }, &mut Vec::new());
    assert!((gradient.own - 1235.0).abs() < 0.5);
}

fn rows_by_hand() {
    // For two scores A_1 = 1/(1 + e^(s_2 − s_1)), and s_2 − s_1 ~ N(0, 2w).
    let sigmoid = |z: f64| 1.0 / (1.0 + (2f64.sqrt() * z).exp());
    let two: f64 = normal().map(|(z, weight)| weight * (sigmoid(z).powi(2) + sigmoid(-z).powi(2))).sum();
    assert_near(squares(2.0, 1.0), two);
    assert!((1.0 / squares(256.0, 1.0) - 96.8).abs() < 0.05 && (1.0 / overlap(256.0, 1.0, 1.0) - 94.4).abs() < 0.05);
}

/// Nodes: the first `dense` positions one by one, then `per_octave` per factor of two, and the last of `length`
/// positions.
fn graded(length: usize, dense: usize, per_octave: f64) -> Vec<usize> {
    let growth = (1.0 / per_octave).exp2();
    let mut nodes: Vec<usize> = (0..dense.min(length)).collect();
    let mut count = dense as f64 * growth;
    while count * growth.sqrt() < length as f64 {
        nodes.push(count.round() as usize - 1);
        count *= growth;
    }
    if nodes[nodes.len() - 1] < length - 1 {
        nodes.push(length - 1);
    }
    nodes
}

/// The value at b of the polynomial in ln (b + 1) through the nodes in `of`.
fn between(nodes: &[usize], of: Range<usize>, values: &[f64], b: usize) -> f64 {
    let x = |position: usize| (position as f64 + 1.0).ln();
    let factor = |i: usize, j: usize| (x(b) - x(nodes[j])) / (x(nodes[i]) - x(nodes[j]));
    let term = |i: usize| values[i] * of.clone().filter(|&j| j != i).map(|j| factor(i, j)).product::<f64>();
    of.clone().map(term).sum()
}

/// Σ_b≤t of a row at every node t, by cubics that do not reach across node k.
fn sums(nodes: &[usize], k: usize, row: &[f64]) -> Vec<f64> {
    let mut sums = vec![row[0]];
    for l in 1..nodes.len() {
        let side = if l <= k { 0..k + 1 } else { k..nodes.len() };
        let last = side.end.saturating_sub(4).max(side.start);
        let start = l.saturating_sub(2).clamp(side.start, last);
        let of = start..side.end.min(start + 4);
        let cell: f64 = (nodes[l - 1] + 1..=nodes[l]).map(|b| between(nodes, of.clone(), row, b)).sum();
        sums.push(sums[l - 1] + cell);
    }
    sums
}

type Rows = Vec<Vec<f64>>;

/// Computes W V Wᵀ of flat causal attention at the nodes: `own` and `pairs` of the outputs.
fn causal(nodes: &[usize], own: &[f64], pairs: &Rows) -> (Vec<f64>, Rows) {
    let all = 0..nodes.len();
    let sum = |rows: &Rows| -> Rows { all.clone().map(|k| sums(nodes, k, &rows[k])).collect() };
    let turn = |rows: &Rows| -> Rows { all.clone().map(|k| all.clone().map(|l| rows[l][k]).collect()).collect() };
    let smooth = sum(&turn(&sum(pairs)));
    let beyond: Vec<f64> = all.clone().map(|k| own[k] - pairs[k][k]).collect();
    let beyond = sums(nodes, nodes.len() - 1, &beyond);
    let seen = |k: usize| nodes[k] as f64 + 1.0;
    let average = |k: usize, l: usize| (smooth[k][l] + beyond[k.min(l)]) / (seen(k) * seen(l));
    let pairs: Rows = all.clone().map(|k| all.clone().map(|l| average(k, l)).collect()).collect();
    (all.map(|k| pairs[k][k]).collect(), pairs)
}

fn causal_by_hand() {
    let harmonic: f64 = (1..=1024).map(|n| 1.0 / f64::from(n)).sum();
    let nodes = graded(1024, 8, 4.0);
    let ones = vec![1.0; nodes.len()];
    let (own, pairs) = causal(&nodes, &ones, &vec![vec![0.0; nodes.len()]; nodes.len()]);
    let (own_of_second, _) = causal(&nodes, &own, &pairs);
    let exact = (2.0 * 1024.0 - harmonic) / 1024f64.powi(2);
    assert_eq!([nodes.len(), graded(131_072, 8, 4.0).len()], [36, 64]);
    assert!((exact - 0.001_946).abs() < 1e-6 && (own_of_second[35] / exact - 1.0).abs() < 4e-5);
}

fn assert_near(value: f64, expected: f64) {
    assert!((value - expected).abs() < 1e-8 * expected.abs().max(1.0), "expected {expected}, got {value}");
}

const WIDTH: f64 = 256.0;

fn part(part: impl MeanField + 'static) -> Box<dyn MeanField> {
    Box::new(part)
}

/// A block whose weights all have this standard deviation.
fn block(is_pre: bool, std: f64, activation: impl MeanField + 'static) -> Chain {
    let linear = |name, fan_in, fan_out| Linear { name, fan_in, fan_out, std };
    let square = |name| linear(name, WIDTH, WIDTH);
    let [query, key, value] = ["heads.query", "heads.key", "heads.value"].map(square);
    let attention = vec![part(Attention { query, key, value }), part(square("output"))];
    let [first, last] = [linear("in", WIDTH, 4.0 * WIDTH), linear("out", 4.0 * WIDTH, WIDTH)];
    let feed_forward = vec![part(first), part(activation), part(last)];
    let norm = || part(Norm { eps: 1e-5 });
    let residual = |body| part(Residual { skip_scale: 1.0, branch_scale: 1.0, body: Chain(body) });
    let sublayer = |body| {
        if is_pre { vec![residual(vec![norm(), part(Chain(body))])] } else { vec![residual(body), norm()] }
    };
    Chain([attention, feed_forward].into_iter().flat_map(sublayer).collect())
}

/// The kernels of a network by the theory: signals, gradients and gradients of weights.
struct Walk {
    /// The signal at the input of every part and after the last.
    signals: Vec<Kernel>,
    gradients: Vec<Kernel>,
    /// E dW² of the weights of every part.
    weights: Vec<Weights>,
}

impl Walk {
    fn new(parts: &[Chain], x: Kernel, gradient: Kernel) -> Self {
        let (mut signals, mut gradients, mut weights) = (vec![x], vec![gradient], Vec::new());
        for part in parts {
            signals.push(part.forward(signals[signals.len() - 1]));
        }
        for (part, &x) in parts.iter().zip(&signals).rev() {
            let mut of_part = Vec::new();
            gradients.push(part.backward(x, gradients[gradients.len() - 1], &mut of_part));
            weights.push(of_part);
        }
        gradients.reverse();
        weights.reverse();
        Self { signals, gradients, weights }
    }
}

/// The prediction of the library for the same network.
fn library(is_pre: bool, length: usize, std: f64, activation: Activations) -> Result<SiteTable, Box<dyn Error>> {
    let architecture = Architecture {
        d_model: WIDTH as usize,
        seq_len: length,
        norm_placement: if is_pre { NormPlacement::Pre } else { NormPlacement::Post },
        activation,
        ..Architecture::default()
    };
    let scheme = Scheme::parse(&format!("normal:{std}"))?;
    let stack = assemble(&architecture, &scheme, &Input::Correlation(0.1), &Run::default())?.stack;
    Ok(predict(&stack, Options { theory: Theory::MeanField, ..Options::from(Sites::Stream) })?.table)
}

/// The largest difference between a [`Walk`] through `parts` and the library, from the same input: absolute for
/// correlations, relative for the other numbers.
fn difference(parts: &[Chain], length: f64, library: &SiteTable) -> f64 {
    let of_site = |row: &SiteRow| {
        [Quantity::Variance, Quantity::TokenCorrelation, Quantity::GradVariance, Quantity::GradTokenCorrelation]
            .map(|quantity| row.value(quantity).expect("a site on the stream has it").value())
    };
    let sites: Vec<[f64; 4]> = library.stream_sites().map(of_site).collect();
    let x = Kernel { length, own: sites[0][0], pair: sites[0][0] * sites[0][1] };
    let walk = Walk::new(parts, x, Kernel { length, own: 1.0, pair: 0.0 });
    assert_eq!(walk.signals.len(), sites.len());
    let mut differences = Vec::new();
    for ((x, gradient), [variance, correlation, grad_variance, grad_correlation]) in
        walk.signals.iter().zip(&walk.gradients).zip(sites)
    {
        differences.extend([x.own / variance - 1.0, gradient.own / grad_variance - 1.0]);
        differences.extend([x.correlation() - correlation, gradient.correlation() - grad_correlation]);
    }
    for (index, weights) in walk.weights.iter().enumerate() {
        for (name, square) in weights {
            let is_it = |row: &&WeightRow| {
                row.tensor.starts_with(&format!("blocks.{index}.")) && row.tensor.ends_with(&format!("{name}.weight"))
            };
            let row = library.weights.iter().find(is_it).expect("the library has the same weights");
            differences.push(square / row.grad_second_moment.value.value() - 1.0);
        }
    }
    differences.into_iter().map(f64::abs).fold(0.0, f64::max)
}

fn compare(name: Activations, activation: impl MeanField + Copy + 'static) -> Result<(), Box<dyn Error>> {
    for (length, std) in [(16, 0.01), (65_536, 0.05)] {
        for is_pre in [true, false] {
            let library = library(is_pre, length, std, name)?;
            let mut parts: Vec<Chain> = (0..12).map(|_| block(is_pre, std, activation)).collect();
            if is_pre {
                parts.push(Chain(vec![Box::new(Norm { eps: 1e-5 })]));
            }
            let difference = difference(&parts, length as f64, &library);
            println!("{name:?}, {length} tokens, std {std}, Pre-LN {is_pre}: {difference:.0e}");
            assert!(difference < 1e-3, "{difference}");
        }
    }
    Ok(())
}

/// Checks everything that the page says.
pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    linear_by_hand();
    relu_by_hand();
    residual_by_hand();
    norm_by_hand();
    price_by_differences();
    attention_by_hand();
    rows_by_hand();
    causal_by_hand();
    compare(Activations::Relu, Relu)?;
    compare(Activations::Tanh, Activation { value: f64::tanh, slope: |x| 1.0 - x.tanh().powi(2) })
}
