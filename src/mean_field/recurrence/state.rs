//! The second moments of one entry of a state, S_t = α_t S_(t−1) + η_t u_t, and of the gradient that comes back through
//! it.
//!
//! ```text
//! forward    F_ts = G_ts + a^(t−s) E_s, s ≤ t       G = p W B Wᵀ without the own parts of B, W_tb = a^(t−b) for b ≤ t
//!            E_t = a₂ E_(t−1) + e B_tt − p lim B_tt + (a₂ − a²) G_(t−1)(t−1) + 2 (j − a p) Σ_b<t a^(t−1−b) B_tb
//! backward   H_t = a₂ H_(t+1) + A_tt + 2 a Σ_s>t a^(s−t−1) A_ts
//!            B'_tt = e H_t       B'_ts = p H°_ts + a^(t−s−1) (j H_t − a p H°_tt), s < t       H° = Wᵀ A W without the own parts of A
//! ```
//!
//! where t, s, b are positions; B is the kernel of u; F is the kernel of S; A is the kernel of the gradient at S; B' is
//! the kernel of the gradient at u; G is the part of F from mean decays and writes; E is the rest of F_tt; H is the
//! second moment of the gradient at S_t through all later positions; W is the sum over positions with the mean decay;
//! lim B_tt is the limit of B_ts for s near t; a is E α; a₂ is E α²; e is E η²; p is E η_t η_s of two positions; j is
//! E η_s η_t α_t.
//!
//! Decays and writes of different positions are independent, given the part that all positions of a head share.
//!
//! Source: ours; the recurrences are those of Mamba-2 (Dao & Gu 2024) and of gated DeltaNet (Yang et al. 2024).

use super::ladder::{Ladder, Side, rate};
use super::laws::Law;
use crate::mean_field::few::Few;
use crate::mean_field::kernel::Kernel;

/// A state whose decay and writes have a given law.
#[derive(Clone, Copy)]
pub(super) struct State<'s> {
    pub(super) ladder: &'s Ladder,
    pub(super) law: &'s Law,
}

/// The moments of a state.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// F.
    pub(super) kernel: Kernel,
    /// Σ_b<t a^(t−1−b) B_tb at every node, in the unit of the kernel.
    pub(super) earlier: Vec<f64>,
}

/// The moments of the gradient that comes back through a state.
pub(super) struct Returned {
    /// B'.
    pub(super) kernel: Kernel,
    /// H at every node, in the unit of the kernel.
    pub(super) through: Vec<f64>,
}

impl State<'_> {
    fn decay(&self) -> f64 {
        rate(self.law.rung)
    }

    /// Returns the sums of a symmetric function over both positions, without the factor p, at the lower points; and
    /// the sums over one position, which exclude the position itself, at the nodes.
    fn summed(&self, side: Side, lower: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let chart = &self.ladder.chart;
        let once = |f: &[f64]| {
            let others = self.ladder.sum(side, self.law.rung, f);
            let all: Vec<f64> = f.iter().zip(&others).map(|(own, others)| own + self.decay() * others).collect();
            (all, others)
        };
        let (rows, others) = once(&chart.all(lower));
        let (both, _) = once(&chart.transposed(&rows));
        (chart.lower.iter().map(|&place| both[place]).collect(), chart.diagonals().map(|at| others[at]).collect())
    }

    /// Returns the moments of the state for writes u with the kernel `writes`.
    pub(super) fn forward(&self, writes: &Kernel) -> Held {
        let (Law { square_decay, own_write, pair_write, joint, .. }, decay) = (self.law, self.decay());
        let (chart, positions) = (&self.ladder.chart, &writes.positions);
        let smooth = positions.class_mean(|point| writes.pairs[point]);
        let (mut mean, earlier) = self.summed(Side::Earlier, &smooth);
        for number in &mut mean {
            *number *= pair_write;
        }
        let diagonals: Vec<usize> = chart.lower_diagonals().collect();
        let excess = square_decay - decay * decay;
        let sources: Vec<f64> = (0..positions.nodes())
            .map(|node| {
                let own = own_write * writes.own[node] - pair_write * smooth[diagonals[node]];
                own + 2.0 * (joint - decay * pair_write) * earlier[node]
            })
            .collect();
        let of_nodes = |node: usize| square_decay * sources[node] + excess * mean[diagonals[node]];
        let of_nodes: Vec<f64> = (0..positions.nodes()).map(of_nodes).collect();
        let rest = self.ladder.over_nodes(Side::Earlier, *square_decay, &of_nodes);
        let rest: Vec<f64> = rest.iter().zip(&sources).map(|(rest, source)| rest + source).collect();
        let (at_second, decays) = (chart.at_second(&rest), self.ladder.powers(decay, 0));
        let pairs = (0..writes.pairs.len()).map(|point| {
            let lower = point % smooth.len();
            let of_class = pair_write * (writes.pairs[point] - smooth[lower]);
            mean[lower] + decays[lower] * at_second[chart.lower[lower]] + of_class
        });
        let own = diagonals.iter().zip(&rest).map(|(&at, rest)| mean[at] + rest).collect();
        Held { kernel: writes.with(writes.ln_unit, own, pairs.collect()), earlier }
    }

    /// Returns the moments of the gradient at the writes u for a gradient at the states with the kernel `gradient`.
    pub(super) fn backward(&self, gradient: &Kernel) -> Returned {
        let (Law { square_decay, own_write, pair_write, joint, .. }, decay) = (self.law, self.decay());
        let (chart, positions) = (&self.ladder.chart, &gradient.positions);
        let smooth = positions.class_mean(|point| gradient.pairs[point]);
        let (mean, later) = self.summed(Side::Later, &smooth);
        let diagonals: Vec<usize> = chart.lower_diagonals().collect();
        let sources: Vec<f64> = gradient.own.iter().zip(&later).map(|(own, later)| own + 2.0 * decay * later).collect();
        let through = self.ladder.over_nodes(Side::Later, *square_decay, &sources);
        let through: Vec<f64> =
            through.iter().zip(&sources).map(|(later, source)| square_decay * later + source).collect();
        let own: Few<f64> = through.iter().map(|through| own_write * through).collect();
        let decays = self.ladder.powers(decay, 1);
        let pairs = (0..gradient.pairs.len()).map(|point| {
            let lower = point % smooth.len();
            let node = positions.first[lower] as usize;
            let later = joint * through[node] - decay * pair_write * mean[diagonals[node]];
            pair_write * (mean[lower] + gradient.pairs[point] - smooth[lower]) + decays[lower] * later
        });
        Returned { kernel: gradient.with(gradient.ln_unit, own, pairs.collect()), through }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::mean_field::positions::{Chart, Grading, Positions};

    fn law() -> Law {
        Law {
            share: 1.0,
            rung: 20,
            square_decay: 0.68,
            mean_write: 0.5,
            pair_write: 0.25,
            own_write: 0.4,
            joint: 0.2,
            slopes: [0.0; 3],
        }
    }

    fn kernel(positions: &Arc<Positions>, seed: usize) -> Kernel {
        let own = |node: usize| 1.0 + 0.1 * ((node * 7 + seed) % 5) as f64;
        Kernel::new(positions, own, |point| 0.3 + 0.02 * ((point * 3 + seed) % 7) as f64)
    }

    /// F by the recursion over positions: S_t S_s for s < t from S_(t−1) S_s, and S_t² from S_(t−1)² and u_t S_(t−1).
    #[test]
    fn the_sums_are_the_recursion() {
        let length = 12;
        let chart = Arc::new(Chart::new(length, Grading::all(length), &[]));
        let (ladder, law) = (Ladder::new(&chart), law());
        let positions = Arc::new(Positions::on(Arc::clone(&chart), None));
        let writes = kernel(&positions, 1);
        let at = |t: usize, s: usize| {
            let (high, low) = (t.max(s), t.min(s));
            let place = |&place: &usize| (chart.nodes()[chart.points[place].0], chart.points[place].1) == (high, low);
            chart.lower.iter().position(place).expect("all pairs are points")
        };
        let of = |kernel: &Kernel, t: usize, s: usize| if t == s { kernel.own[t] } else { kernel.pairs[at(t, s)] };
        let held = State { ladder: &ladder, law: &law }.forward(&writes).kernel;
        let decay = rate(law.rung);
        // E η_s u_s S_t and E S_t² without means of η: sums over writes with the mean decay.
        let seen = |t: usize, s: usize| -> f64 {
            (0..=t).map(|b| decay.powi((t - b) as i32) * of(&writes, b, s)).sum::<f64>()
        };
        let mut square = 0.0;
        for t in 0..length {
            let before = if t > 0 { seen(t - 1, t) } else { 0.0 };
            square = law.square_decay * square + law.own_write * writes.own[t] + 2.0 * law.joint * before;
            approx::assert_relative_eq!(held.own[t], square, max_relative = 1e-10);
            for s in 0..t {
                let previous = if t - 1 == s { held.own[s] } else { held.pairs[at(t - 1, s)] };
                let expected = decay * previous + law.pair_write * seen(s, t);
                approx::assert_relative_eq!(held.pairs[at(t, s)], expected, max_relative = 1e-10);
            }
        }
    }

    /// Σ_ts F[B]_ts A_ts = Σ_bd B_bd Fᵀ[A]_bd.
    #[test]
    fn backward_is_the_adjoint() {
        let length = 12;
        let chart = Arc::new(Chart::new(length, Grading::all(length), &[]));
        let (ladder, law) = (Ladder::new(&chart), law());
        let positions = Arc::new(Positions::on(chart, None));
        let (writes, gradient) = (kernel(&positions, 1), kernel(&positions, 4));
        let state = State { ladder: &ladder, law: &law };
        let forward = state.forward(&writes).kernel.contracted(&gradient);
        let backward = writes.contracted(&state.backward(&gradient).kernel);
        approx::assert_relative_eq!(forward, backward, max_relative = 1e-10);
    }
}
