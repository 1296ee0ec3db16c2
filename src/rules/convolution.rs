//! A convolution over positions: y_a = Σ_k W_k x_(a·stride + k − padding) + b.
//!
//! # Formula
//!
//! ```text
//! E y_a·y_c = n_in s² Σ_k E x_(a,k)·x_(c,k) + s_b²      (a, k) the position that tap k of output a reads
//! ```
//!
//! # Backward
//!
//! ```text
//! E g_b·g_b' = n_out s² Σ over (a, c, k) with (a, k) = b, (c, k) = b' of E g_a·g_c
//! E dW² = Σ_ac E g_a·g_c Σ_k E x_(a,k)·x_(c,k)/kernel      E db² = Σ_ac E g_a·g_c
//! ```
//!
//! # Assumptions
//!
//! Independent zero-mean weights; the gradient depends on them only through the output. Terms of order 1/width
//! are those of Gaussian entries.
//!
//! # Source
//!
//! The linear map's rule, tap by tap.

use nalgebra::Matrix2;
use sigprop_stack::Convolution;

use crate::domain::{Concentration, Domain, Gradient, Signal, part_map, symmetric};
use crate::moments::{Token, TokenGradient, ratio, share};

pub(crate) fn forward(convolution: &Convolution, x: &Signal) -> Signal {
    let taps = Taps::new(convolution, x.tokens.len());
    let ln_unit = largest(x.tokens.iter().map(|token| token.ln_second));
    let gain = convolution.fan_in as f64 * convolution.weight.init.variance();
    let bias = convolution.bias.as_ref().map_or(0.0, |bias| bias.init.variance() * (-ln_unit).exp());
    let roots = roots(&x.tokens, ln_unit);
    let cross = |a, c| gain * taps.sum(&x.cosines, &roots, a, c) + bias;
    let own: Vec<f64> = (0..taps.outputs).map(|a| cross(a, a)).collect();
    let cosines = symmetric(taps.outputs, |a, c| ratio(cross(a, c), (own[a] * own[c]).sqrt()));
    let width = convolution.fan_out as f64;
    let token = |(a, own): (usize, &f64)| {
        let read: Vec<f64> = taps.read(a).map(|b| x.tokens[b].norm_variance()).collect();
        let scale_variance = read.iter().sum::<f64>() / (read.len() * read.len()).max(1) as f64;
        Token { scale_variance, sensitivity: 0.0, ..Token::gaussian(width, ln_unit + own.ln()) }
    };
    let y = Signal::new(own.iter().enumerate().map(token).collect(), cosines);
    let concentration = x.concentration.total / convolution.kernel as f64;
    let alike = Domain::GRAM.alike(&y, concentration);
    // What is not bias.
    let product = 1.0 - bias * own.len() as f64 / own.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let map = part_map(product.max(0.0), Domain::GRAM.shared(x), alike.parts());
    Signal { fluctuation: x.fluctuation.redrawn(map, alike.drawn(2.0 / width)), ..y }
}

pub(crate) fn backward(convolution: &Convolution, x: &Signal, y: &Signal, gradient: &Gradient) -> Gradient {
    let count = x.tokens.len();
    let taps = Taps::new(convolution, count);
    let ln_unit = largest(gradient.tokens.iter().map(|token| token.ln_second));
    let roots: Vec<f64> = gradient.tokens.iter().map(|token| share(0.5 * token.ln_second, 0.5 * ln_unit)).collect();
    let gain = convolution.fan_out as f64 * convolution.weight.init.variance();
    let cross = |b: usize, other: usize| {
        let pairs = (0..convolution.kernel).filter_map(|k| Some((taps.reader(b, k)?, taps.reader(other, k)?)));
        gain * pairs.map(|(a, c)| gradient.cosines[a * taps.outputs + c] * roots[a] * roots[c]).sum::<f64>()
    };
    let own: Vec<f64> = (0..count).map(|b| cross(b, b)).collect();
    let cosines = symmetric(count, |i, j| ratio(cross(i, j), (own[i] * own[j]).sqrt()));
    let tokens = own.iter().map(|own| TokenGradient::isotropic(ln_unit + own.ln())).collect();
    let back = Gradient::new(tokens, cosines);
    let concentration = gradient.concentration.total / convolution.kernel as f64;
    let drawn = Domain::GRAM.alike(&back, concentration).drawn(2.0 / x.token().width);
    let fluctuation = gradient.fluctuation.redrawn(Matrix2::identity(), drawn);
    Gradient {
        concentration: Concentration::fresh(x.token().width),
        fluctuation: fluctuation.met(y.fluctuation.fresh, gradient.squares()),
        response: y.fluctuation.map.transpose() * gradient.response,
        ..back
    }
}

/// ln E dW².
pub(crate) fn ln_weight_gradient(convolution: &Convolution, x: &Signal, gradient: &Gradient) -> f64 {
    let taps = Taps::new(convolution, x.tokens.len());
    let ln_x = largest(x.tokens.iter().map(|token| token.ln_second));
    let ln_g = largest(gradient.tokens.iter().map(|token| token.ln_second));
    let x_roots = roots(&x.tokens, ln_x);
    let roots: Vec<f64> = gradient.tokens.iter().map(|token| share(0.5 * token.ln_second, 0.5 * ln_g)).collect();
    let mut sum = 0.0;
    for a in 0..taps.outputs {
        for c in 0..taps.outputs {
            let met = gradient.cosines[a * taps.outputs + c] * roots[a] * roots[c];
            sum += met * taps.sum(&x.cosines, &x_roots, a, c);
        }
    }
    ln_x + ln_g + (sum / convolution.kernel as f64).ln()
}

/// Which positions taps read.
struct Taps<'a> {
    convolution: &'a Convolution,
    inputs: usize,
    outputs: usize,
}

impl<'a> Taps<'a> {
    fn new(convolution: &'a Convolution, inputs: usize) -> Self {
        Self { convolution, inputs, outputs: convolution.output_len(inputs) }
    }

    /// The position that tap `k` of output `a` reads.
    fn input(&self, a: usize, k: usize) -> Option<usize> {
        (a * self.convolution.stride + k).checked_sub(self.convolution.padding).filter(|&b| b < self.inputs)
    }

    /// The output whose tap `k` reads position `b`.
    fn reader(&self, b: usize, k: usize) -> Option<usize> {
        let shifted = (b + self.convolution.padding).checked_sub(k)?;
        let a = shifted / self.convolution.stride;
        (shifted % self.convolution.stride == 0 && a < self.outputs).then_some(a)
    }

    fn read(&self, a: usize) -> impl Iterator<Item = usize> {
        (0..self.convolution.kernel).filter_map(move |k| self.input(a, k))
    }

    /// Σ_k E x_(a,k)·x_(c,k).
    fn sum(&self, cosines: &[f64], roots: &[f64], a: usize, c: usize) -> f64 {
        let pairs = (0..self.convolution.kernel).filter_map(|k| Some((self.input(a, k)?, self.input(c, k)?)));
        pairs.map(|(b, other)| cosines[b * self.inputs + other] * roots[b] * roots[other]).sum()
    }
}

fn roots(tokens: &[Token], ln_unit: f64) -> Vec<f64> {
    tokens.iter().map(|token| share(0.5 * token.ln_second, 0.5 * ln_unit)).collect()
}

fn largest(ln_seconds: impl Iterator<Item = f64>) -> f64 {
    let largest = ln_seconds.fold(f64::NEG_INFINITY, f64::max);
    if largest == f64::NEG_INFINITY { 0.0 } else { largest }
}
