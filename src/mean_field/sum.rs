//! Weighted sum y = Σ_i β_i m_i/(1 − p_i) f_i(x), such as a residual connection. With probability p_i, m_i is 0 for a
//! whole sequence, otherwise 1. G^y and G^i are the kernels E g_a g_b of the gradients at the output y and at f_i.
//!
//! ```text
//! forward    E y_a y_b = Σ_i β_i²/(1 − p_i) E f_ia f_ib + Σ_i≠j β_i β_j E f_ia E f_jb
//! backward   G^i_ab = β_i²/(1 − p_i) G^y_ab          at x the gradients of all branches add up
//! ```
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

/// Returns β²/(1 − p) of a branch.
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
