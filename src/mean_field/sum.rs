//! Weighted sum y = Σ_i β_i mask_i/(1 − p_i) f_i(x), such as a residual connection. For a whole sequence, mask_i is 0
//! with probability p_i and otherwise 1.
//!
//! ```text
//! forward    E y_a y_b = Σ_i β_i²/(1 − p_i) E f_ia f_ib + Σ_i≠j β_i β_j E f_ia E f_jb
//! backward   G^i_ab = β_i²/(1 − p_i) G^y_ab          at x the gradients of all branches add up
//! ```
//!
//! where a, b are positions of tokens; E is the average over random weights and over features; i, j are branches; β_i
//! is the factor on branch i; p_i is the probability that branch i is dropped; f_ia is the output of branch i at token
//! a; G^y is the kernel E g_a g_b of the gradients at the output y; G^i is the kernel E g_a g_b of the gradients at the
//! output of f_i.
//!
//! Example: a skip connection of variance 1 and correlation 0.2, and a branch of variance 4 and correlation 1 with the
//! factor 0.5: y has variance 1 + 1 = 2 and correlation (0.2 + 1)/2 = 0.6. A gradient of variance 1 at y becomes 1 at
//! the skip connection and 0.25 at the end of the branch.
//!
//! Assumption: branches are uncorrelated except for their means, and so are their gradients (fresh weights in all but
//! one).
//! Source: Kedia et al. 2024, appendix on residuals; stochastic depth: Huang et al. 2016.

use sigprop_stack::{Branch, Sum};
use std::sync::Arc;

use super::component::MeanFieldFan;
use super::few::Few;
use super::gradient::Gradient;
use super::kernel::Kernel;
use super::signal::Signal;

/// Returns β_i²/(1 − p_i) of a branch.
fn gain(branch: &Branch) -> f64 {
    branch.scale * branch.scale / (1.0 - branch.drop_rate)
}

/// Returns E y at every node, and β_i E f_i at every node for each branch with non-zero means; `None` if there is no
/// such branch. `merge` adds the products of means of different branches to the kernel.
fn means(sum: &Sum, parts: &[Arc<Signal>], ln_unit: f64) -> Option<(Few<f64>, Vec<Few<f64>>)> {
    let scaled = |(branch, part): (&Branch, &Arc<Signal>)| {
        let unit = branch.scale * (0.5 * (part.kernel.ln_unit - ln_unit)).exp();
        part.scaled_means(|_| unit)
    };
    let all: Vec<Few<f64>> = sum.branches.iter().zip(parts).filter_map(scaled).collect();
    let nodes = all.first()?.len();
    let total = (0..nodes).map(|node| all.iter().map(|means| means[node]).sum()).collect();
    Some((total, all))
}

impl MeanFieldFan for Sum {
    fn merge(&self, x: &Signal, parts: &[Arc<Signal>]) -> Signal {
        let kernels = self.branches.iter().zip(parts).map(|(branch, part)| (gain(branch), &part.kernel));
        let mut kernel = Kernel::sum(kernels);
        let means = means(self, parts, kernel.ln_unit).map(|(total, all)| {
            if all.len() > 1 {
                let crossed = |of: &dyn Fn(&Few<f64>) -> f64| of(&total) - all.iter().map(of).sum::<f64>();
                for (node, own) in kernel.own.iter_mut().enumerate() {
                    *own += crossed(&|means| means[node] * means[node]);
                }
                for (point, pair) in kernel.pairs.iter_mut().enumerate() {
                    *pair += crossed(&|means| {
                        let [a, b] = x.kernel.positions.ends(point, means);
                        a * b
                    });
                }
            }
            total
        });
        Signal { means, ..Signal::centred(parts[0].width, kernel) }
    }

    fn split(&self, _: &Signal, _: &[Arc<Signal>], gradient: &Gradient) -> Vec<Gradient> {
        let part = |branch| Gradient::independent(gradient.kernel.scaled(gain(branch)));
        self.branches.iter().map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn example_of_the_header() {
        let sum = Sum { branches: [1.0, 0.5].map(|scale| Branch::constant(scale, Vec::new())).into() };
        let parts = [[1.0, 0.2], [4.0, 1.0]].map(|part| Arc::new(Signal::centred(64.0, Kernel::of_tokens(2.0, part))));
        sum.merge(&parts[0], &parts).kernel.assert_is([2.0, 0.6]);
        let gradient = Gradient::independent(Kernel::of_tokens(2.0, [1.0, 0.0]));
        let gradients = sum.split(&parts[0], &parts, &gradient);
        gradients[0].kernel.assert_is([1.0, 0.0]);
        gradients[1].kernel.assert_is([0.25, 0.0]);
    }
}
