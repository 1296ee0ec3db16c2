//! Product y = Π_i f_i(x), entry by entry, of factors with independent weights, as in gated feed-forward networks.
//! G^y and G^i are the kernels E g_a g_b of the gradients at the output y and at the factor f_i.
//!
//! ```text
//! forward    E y_a y_b = E f_a f_b · E h_a h_b          E y_a = E f_a · E h_a
//! backward   G^f_ab = G^y_ab E h_a h_b      at the factor f; at h likewise
//! ```
//!
//! Source: independence; Shazeer 2020 for the networks.

use sigprop_stack::Product;
use std::sync::Arc;

use super::component::MeanFieldFan;
use super::few::Few;
use super::gradient::Gradient;
use super::signal::Signal;

impl MeanFieldFan for Product {
    fn merge(&self, _: &Signal, parts: &[Arc<Signal>]) -> Signal {
        let (first, rest) = parts.split_first().expect("a product has factors");
        let kernel = rest.iter().fold(first.kernel.clone(), |product, part| product.times(&part.kernel));
        let ln_units: f64 = parts.iter().map(|part| part.kernel.ln_unit).sum();
        let unit = (0.5 * (ln_units - kernel.ln_unit)).exp();
        let factors: Option<Vec<&Few<f64>>> = parts.iter().map(|part| part.means.as_ref()).collect();
        let means = factors.map(|factors| {
            let mean = |node: usize| factors.iter().fold(unit, |product, means| product * means[node]);
            (0..kernel.own.len()).map(mean).collect()
        });
        Signal { means, ..Signal::centred(first.width, kernel) }
    }

    fn split(&self, _: &Signal, parts: &[Arc<Signal>], gradient: &Gradient) -> Vec<Gradient> {
        let others = |own: usize| parts.iter().enumerate().filter(move |(other, _)| *other != own);
        let part = |own| others(own).fold(gradient.kernel.clone(), |kernel, (_, other)| kernel.times(&other.kernel));
        (0..parts.len()).map(|own| Gradient::independent(part(own))).collect()
    }
}
