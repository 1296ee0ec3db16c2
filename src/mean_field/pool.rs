//! Pooling of windows of pixels, for every feature separately: y_a is the mean of x_b, or the largest φ(x_b), over the
//! pixels b of window a.
//!
//! ```text
//! average   E y_a²    = (E x_b² + (n_taps − 1) E x_b x_d)/n_taps      E y_a y_c = E x_b x_d
//!           Σ_b G^x_bb = Σ_a G^y_aa/n_taps         Σ_bd G^x_bd = Σ_ac G^y_ac
//! maximum   E y_a²    = E φ(m)²      E y_a y_c = E_z[E[φ(m) | z]²]     m = √p z + √(q − p) largest
//!           Σ_b G^x_bb = Σ_a G^y_aa E φ'(m)²       Σ_b≠d G^x_bd = Σ_a≠c G^y_ac E_z[E[φ'(m) | z]²]
//! ```
//!
//! where a, c are positions of tokens at the output; b, d are two pixels at the input; E is the average over random
//! weights and over features; n_taps is the number of pixels of a window; G^y is the kernel E g_a g_b of the gradients
//! at the output y; G^x is the kernel E g_a g_b of the gradients at the input x; φ is the activation; φ' is the
//! derivative of φ; m is the largest pixel of a window; q is E x_b² of a pixel; p is E x_b x_d of two pixels; z is a
//! standard Gaussian variable that all pixels share; largest is the largest of n_taps independent standard Gaussian
//! variables.
//!
//! Pixels within three positions of an edge are classes of their own (`positions/pixels.rs`), and a window has its
//! pixels inside the image alone.
//!
//! Example: the average over images of 4 pixels of variance 1 and correlation 0.5 has variance (1 + 3/2)/4 = 0.625. A
//! gradient of variance 1 there becomes 1/16 at the pixels. The largest of 2 independent pixels has E y² = 1.
//!
//! Assumptions: pixels of one image are correlated like pixels of two images, and windows of a maximum that share
//! pixels like windows that share none: with windows of 3 × 3 pixels and stride 2, gradients of correlation 0.25 at y
//! give gradients that are 17 % too small at x. Pixels of a maximum are Gaussian of mean zero.
//! Source: sums over pairs; for the maximum, the distribution of the largest of equally correlated Gaussian variables
//! (Owen and Steck 1962).

use std::f64::consts::FRAC_1_SQRT_2;
use std::sync::Arc;

use nalgebra::DMatrix;
use sigprop_stack::{Activation, Pool, PoolKind};

use super::component::{MeanField, Parameter};
use super::dual::function::value_and_derivative;
use super::few::Few;
use super::gradient::Gradient;
use super::kernel::Kernel;
use super::positions::{Positions, pixels::composition};
use super::signal::Signal;

/// A pooling that is prepared for a number of images.
#[derive(Debug)]
pub(crate) struct Rule {
    kind: PoolKind,
    outputs: Arc<Positions>,
    /// The share of the pixels of each class (columns) in a window of each class (rows).
    shares: DMatrix<f64>,
    /// The number of pixels of a window of each class.
    counts: Vec<f64>,
}

impl Rule {
    /// Prepares the pooling for inputs at these positions.
    pub(crate) fn new(pool: &Pool, inputs: &Positions) -> Self {
        let sliding = pool.sliding();
        let images = inputs.length / pool.image.pixels() as f64;
        let mut shares = composition(sliding);
        let counts: Vec<f64> = shares.row_iter().map(|row| row.sum()).collect();
        shares.row_iter_mut().zip(&counts).for_each(|(mut row, &count)| row /= count);
        Self { kind: pool.kind, outputs: Arc::new(Positions::pixels(sliding.output(), images)), shares, counts }
    }

    /// Returns the mean of E x_b x_d over two different pixels of two windows, per pair of classes of windows.
    fn between(&self, x: &Kernel) -> DMatrix<f64> {
        &self.shares * x.positions.matrix(&x.pairs) * self.shares.transpose()
    }

    /// Returns the mean over the pixels of a window, per class of windows.
    fn within(&self, own: &[f64]) -> Vec<f64> {
        let mean = |row| own.iter().enumerate().map(|(column, own)| self.shares[(row, column)] * own).sum();
        (0..self.counts.len()).map(mean).collect()
    }

    /// Returns the windows of a maximum, per class.
    fn windows(&self, x: &Kernel, between: &DMatrix<f64>) -> Vec<Window> {
        let window = |class: usize| {
            let count = |node: usize| self.shares[(class, node)] * self.counts[class];
            let pixels = x.own.iter().enumerate().map(|(node, &own)| (count(node), own)).collect::<Vec<_>>();
            Window::new(&pixels, between[(class, class)])
        };
        (0..self.counts.len()).map(window).collect()
    }

    /// Returns the kernel at the pixels: `own` is its sum over windows, per class of windows, and `pairs` its sum over
    /// pairs of windows. `shares` are the shares of the classes of pixels (columns) in a window (rows). `same` is the
    /// part of `pairs` that belongs to equal pixels, relative to `own`.
    fn spread(inputs: &Arc<Positions>, shares: &DMatrix<f64>, own: &[f64], pairs: &DMatrix<f64>, same: f64) -> Kernel {
        let own: Vec<f64> =
            shares.column_iter().map(|column| column.iter().zip(own).map(|(a, b)| a * b).sum()).collect();
        let pairs = shares.transpose() * pairs * shares;
        let pair = |point: usize| {
            let (b, nodes) = inputs.nodes_of(point);
            let d = nodes[0].0 as usize;
            let count = inputs.count_pairs(b, d);
            let of_same = if b == d { own[b] * same } else { 0.0 };
            if count > 0.0 { (pairs[(b, d)] - of_same) / count } else { 0.0 }
        };
        Kernel::new(inputs, |node| own[node] / inputs.tokens[node], pair)
    }

    /// Returns E y_a⁴, E y_a³ y_b, E y_a² y_b², E y_a² y_b y_c and E y_a y_b y_c y_d of the largest pixels of different
    /// windows inside the image, relative to (E y²)², for y minus the share `centre` of its mean.
    pub(crate) fn four_point(&self, x: &Signal, activation: Activation, centre: f64) -> [f64; 5] {
        let inside = (0..self.counts.len()).max_by(|&a, &b| self.outputs.tokens[a].total_cmp(&self.outputs.tokens[b]));
        let window = &self.windows(&x.kernel, &self.between(&x.kernel))[inside.expect("an image has pixels")];
        let value = |m: f64| value_and_derivative(activation, m).0;
        let mean = centre * window.mean(value);
        let mut products = [0.0; 5];
        for (z, probability) in shared() {
            let [one, two, three, four] =
                [1, 2, 3, 4].map(|power| window.given(z, window.pair, |m| (value(m) - mean).powi(power)));
            let given = [four, three * one, two * two, two * one * one, one.powi(4)];
            products.iter_mut().zip(given).for_each(|(sum, product)| *sum += product * probability);
        }
        let square = window.mean(|m| (value(m) - mean).powi(2));
        products.map(|product| product / (square * square))
    }

    /// Returns the sums of the gradient's kernel over tokens and over pairs of different tokens, per class of windows.
    fn sums(&self, gradient: &Kernel) -> (Vec<f64>, DMatrix<f64>) {
        let own = gradient.own.iter().zip(&self.outputs.tokens).map(|(own, tokens)| own * tokens).collect();
        let pairs = self.outputs.matrix(&gradient.pairs);
        (own, pairs.map_with_location(|a, c, pair| pair * self.outputs.count_pairs(a, c)))
    }
}

impl MeanField for Rule {
    fn forward(&self, x: &Signal) -> Signal {
        let between = self.between(&x.kernel);
        let at = |point: usize| {
            let (a, nodes) = self.outputs.nodes_of(point);
            (a, nodes[0].0 as usize)
        };
        let (kernel, means) = match self.kind {
            PoolKind::Average => {
                let pixels = &x.kernel.positions;
                let same: Vec<f64> =
                    (0..pixels.nodes()).map(|node| pixels.matrix(&x.kernel.pairs)[(node, node)]).collect();
                let (own, same) = (self.within(&x.kernel.own), self.within(same.as_slice()));
                let own = |node: usize| (own[node] - same[node]) / self.counts[node] + between[(node, node)];
                let means = x.means.as_ref().map(|means| self.within(means).into());
                (Kernel::new(&self.outputs, own, |point| between[at(point)]), means)
            }
            PoolKind::Max { activation } => {
                let windows = self.windows(&x.kernel, &between);
                let value = |m: f64| value_and_derivative(activation, m).0;
                let own = |node: usize| windows[node].mean(|m| value(m).powi(2));
                let pair = |point: usize| product(&windows, at(point), between[at(point)], value);
                let means = windows.iter().map(|window| window.mean(value)).collect();
                (Kernel::new(&self.outputs, own, pair), Some(means))
            }
        };
        let kernel = Kernel { ln_unit: x.kernel.ln_unit, ..kernel };
        Signal { means, ..Signal::centred(x.width, kernel) }
    }

    fn backward(&self, x: &Signal, _: &Signal, gradient: &Gradient) -> Gradient {
        let (mut own, mut pairs) = self.sums(&gradient.kernel);
        let inputs = &x.kernel.positions;
        let kernel = match self.kind {
            PoolKind::Average => {
                own.iter().enumerate().for_each(|(class, own)| pairs[(class, class)] += own);
                own.iter_mut().zip(&self.counts).for_each(|(own, count)| *own /= count);
                Self::spread(inputs, &self.shares, &own, &pairs, 1.0)
            }
            PoolKind::Max { activation } => {
                let between = self.between(&x.kernel);
                let windows = self.windows(&x.kernel, &between);
                let slope = |m: f64| value_and_derivative(activation, m).1;
                let squares: Vec<f64> = windows.iter().map(|window| window.mean(|m| slope(m).powi(2))).collect();
                let share = |a: usize, b: usize| windows[a].mean_in(b, |m| slope(m).powi(2)) / squares[a];
                let shares = DMatrix::from_fn(windows.len(), inputs.nodes(), share);
                own.iter_mut().zip(&squares).for_each(|(own, square)| *own *= square);
                let product = |a, c, sum: f64| sum * product(&windows, (a, c), between[(a, c)], slope);
                Self::spread(inputs, &shares, &own, &pairs.map_with_location(product), 0.0)
            }
        };
        Gradient::independent(Kernel { ln_unit: gradient.kernel.ln_unit, ..kernel })
    }

    fn weights<'a>(&'a self, _: &Signal, _: &Signal, _: &Gradient) -> Few<(Parameter<'a>, f64)> {
        Few::new()
    }
}

/// A window of a maximum: Gaussian pixels.
struct Window {
    /// E x_b x_d of two pixels, the variance of the part that all share through z.
    pair: f64,
    /// The largest of the remainders of the pixels: values, with the probability that it is this one and in each class.
    largest: Vec<(f64, Vec<f64>)>,
}

impl Window {
    /// Builds the window from the number of its pixels and E x_b² of each class.
    fn new(pixels: &[(f64, f64)], pair: f64) -> Self {
        /// Values beyond this number of standard deviations are left out.
        const END: f64 = 6.0;
        const STEPS: usize = 192;
        let pair = pair.max(0.0);
        let stds: Vec<[f64; 2]> = pixels.iter().map(|&(count, own)| [count, (own - pair).max(0.0).sqrt()]).collect();
        let largest = stds.iter().filter(|[count, _]| *count > 0.0).fold(0.0f64, |largest, [_, std]| largest.max(*std));
        let edge = |index: usize| END * (2.0 * index as f64 / STEPS as f64 - 1.0) * largest;
        // ln of the probability that all pixels of a class are below a value.
        let ln_below = |[count, std]: [f64; 2], value: f64| {
            if count > 0.0 {
                count * (0.5 * libm::erfc(-value / std * FRAC_1_SQRT_2)).max(f64::MIN_POSITIVE).ln()
            } else {
                0.0
            }
        };
        let at = |value: f64| -> Vec<f64> { stds.iter().map(|&class| ln_below(class, value)).collect() };
        let mut low = at(edge(0));
        let step = |index: usize| {
            let high = at(edge(index + 1));
            let rises: Vec<f64> = low.iter().zip(&high).map(|(low, high)| high - low).collect();
            let probability = high.iter().sum::<f64>().exp() - low.iter().sum::<f64>().exp();
            let total: f64 = rises.iter().sum();
            let share = |rise: &f64| if total > 0.0 { rise / total * probability } else { 0.0 };
            let shares = rises.iter().map(share).collect();
            low = high;
            (0.5 * (edge(index) + edge(index + 1)), shares)
        };
        Self { pair, largest: (0..STEPS).map(step).collect() }
    }

    /// Returns the mean of a function of the largest pixel, given z, if `shared` is the variance of the part of the
    /// pixels through z.
    fn given(&self, z: f64, shared: f64, of: impl Fn(f64) -> f64) -> f64 {
        let part = shared.max(0.0).sqrt() * z;
        self.largest.iter().map(|(value, classes)| of(part + value) * classes.iter().sum::<f64>()).sum()
    }

    /// Returns the mean of a function of the largest pixel.
    fn mean(&self, of: impl Fn(f64) -> f64) -> f64 {
        shared().map(|(z, probability)| self.given(z, self.pair, &of) * probability).sum()
    }

    /// Returns the mean of a function of the largest pixel where this is in a class of pixels.
    fn mean_in(&self, class: usize, of: impl Fn(f64) -> f64) -> f64 {
        let given = |z: f64| {
            let part = self.pair.sqrt() * z;
            self.largest.iter().map(|(value, classes)| of(part + value) * classes[class]).sum::<f64>()
        };
        shared().map(|(z, probability)| given(z) * probability).sum()
    }
}

/// Returns the mean product of a function of the largest pixels of windows of the classes a and c, between whose pixels
/// E x_b x_d is `pair`.
fn product(windows: &[Window], (a, c): (usize, usize), pair: f64, of: impl Fn(f64) -> f64) -> f64 {
    let at = |(z, probability)| windows[a].given(z, pair, &of) * windows[c].given(z, pair, &of) * probability;
    shared().map(at).sum()
}

/// Returns the values of z and their probabilities.
fn shared() -> impl Iterator<Item = (f64, f64)> {
    const END: f64 = 4.5;
    const STEPS: usize = 10;
    let at = |index: usize| END * ((2 * index + 1) as f64 / STEPS as f64 - 1.0);
    let density = |z: f64| (-0.5 * z * z).exp();
    let total: f64 = (0..STEPS).map(at).map(density).sum();
    (0..STEPS).map(move |index| (at(index), density(at(index)) / total))
}

#[cfg(test)]
mod tests {
    use approx::assert_relative_eq;
    use sigprop_stack::Image;

    use super::*;

    fn rule(kind: PoolKind, images: f64) -> (Rule, Arc<Positions>) {
        let image = Image { height: 1, width: 2 };
        let inputs = Arc::new(Positions::pixels(Image { height: 2, width: 2 }, images));
        let pool = Pool { kind, kernel: 2, stride: 2, padding: 0, image: Image { height: 2, ..image } };
        (Rule::new(&pool, &inputs), inputs)
    }

    #[test]
    fn example_of_the_header() {
        let (rule, inputs) = rule(PoolKind::Average, 3.0);
        let x = Signal::centred(8.0, Kernel::new(&inputs, |_| 1.0, |_| 0.5));
        let y = rule.forward(&x);
        y.kernel.assert_is([0.625, 0.8]);
        let gradient = Gradient::independent(Kernel::new(&y.kernel.positions, |_| 1.0, |_| 0.0));
        // Gradients of the 4 pixels of an image are equal: 3 of 11 other pixels.
        rule.backward(&x, &y, &gradient).kernel.assert_is([1.0 / 16.0, 3.0 / 11.0]);
    }

    /// E y² of the largest of 4 independent pixels is 1 + √3/π, and its mean is 1.02938 (Jones 1948). Nearly all are
    /// positive.
    #[test]
    fn largest_of_four() {
        let (rule, inputs) = rule(PoolKind::Max { activation: Activation::Identity }, 3.0);
        let x = Signal::centred(8.0, Kernel::new(&inputs, |_| 1.0, |_| 0.0));
        let y = rule.forward(&x);
        assert_relative_eq!(y.kernel.own[0], 1.0 + 3f64.sqrt() / std::f64::consts::PI, max_relative = 1e-3);
        assert_relative_eq!(y.mean(0), 1.029_38, max_relative = 1e-4);
        let gradient = Gradient::independent(Kernel::new(&y.kernel.positions, |_| 1.0, |_| 0.0));
        rule.backward(&x, &y, &gradient).kernel.assert_is([0.25, 0.0]);
    }
}
