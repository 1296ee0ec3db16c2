//! Product y = Π_i f_i(x), entry by entry, of factors with independent weights, as in gated feed-forward networks.
//!
//! ```text
//! forward    E y_a y_b = Π_i E f_ia f_ib          E y_a = Π_i E f_ia
//! backward   G^i_ab = G^y_ab Π_j≠i E f_ja f_jb
//! ```
//!
//! where a, b are positions of tokens; E is the average over random weights and over features; i, j are factors; f_ia
//! is the output of factor i at token a; G^y is the kernel E g_a g_b of the gradients at the output y; G^i is the
//! kernel E g_a g_b of the gradients at the output of f_i.
//!
//! Example: two factors of the variances 2 and 3, both of correlation 0.5: y has variance 6 and correlation 0.25. A
//! gradient of variance 1 and correlation 0.5 at y becomes a gradient of correlation 0.25 at both factors, of variance
//! 3 at the first and 2 at the second.
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
        let heads = parts.iter().find_map(|part| part.heads);
        Signal { means, heads, ..Signal::centred(first.width, kernel) }
    }

    fn split(&self, _: &Signal, parts: &[Arc<Signal>], gradient: &Gradient) -> Vec<Gradient> {
        let others = |own: usize| parts.iter().enumerate().filter(move |(other, _)| *other != own);
        let part = |own| others(own).fold(gradient.kernel.clone(), |kernel, (_, other)| kernel.times(&other.kernel));
        (0..parts.len()).map(|own| Gradient::independent(part(own))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::kernel::Kernel;
    use super::*;

    #[test]
    fn example_of_the_header() {
        let product = Product { factors: vec![Vec::new(), Vec::new()] };
        let parts = [2.0, 3.0].map(|variance| Arc::new(Signal::centred(64.0, Kernel::of_tokens(2.0, [variance, 0.5]))));
        product.merge(&parts[0], &parts).kernel.assert_is([6.0, 0.25]);
        let gradient = Gradient::independent(Kernel::of_tokens(2.0, [1.0, 0.5]));
        let gradients = product.split(&parts[0], &parts, &gradient);
        gradients[0].kernel.assert_is([3.0, 0.25]);
        gradients[1].kernel.assert_is([2.0, 0.25]);
    }
}
