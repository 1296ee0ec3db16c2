//! The alignment of gradients and signals of one sequence, over triples of tokens.
//!
//! ```text
//! aligned = E_s Σ_tu Γ_tu K_ts K_us
//! ```
//!
//! where t, u, s are positions of tokens; E_s is the average over all tokens s; K is the kernel E x_a x_b of a signal;
//! Γ is the kernel E g_a g_b of the gradients at the output.
//!
//! Triples with two equal tokens reduce to sums over pairs. Three different tokens all have equal ids with the
//! probability π₃, and only a given two of them with π₂ − π₃. Every such pattern has its kernels for every pair. Where
//! positions differ, Σ over different tokens is Σ over all tokens minus coincidences, for functions that are continued
//! to the diagonal: Σ_u is exact at the nodes t and s, and interpolated between them for Σ_s K_ts. Source: ours.

use nalgebra::{DMatrix, DVector};

use crate::mean_field::kernel::Kernel;
use crate::mean_field::positions::{Grid, Shares};

/// E_s Σ_tu Γ_tu K_ts K_us, without the units of K and Γ, as a function of how often ids repeat.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aligned {
    length: f64,
    /// The sum over triples in which all three tokens are the same.
    own: f64,
    /// Sums over triples of two different tokens, for each class of pairs.
    pairs: [f64; 2],
    /// Sums over three different tokens: with equal ids, with exactly two equal ids, with different ids.
    triples: [f64; 3],
}

impl Aligned {
    pub(super) fn new(x: &Matrices<'_>, gradient: &Matrices<'_>) -> Self {
        let (k, g) = (x.kernel, gradient.kernel);
        let positions = &k.positions;
        let own = positions.sum(|node| g.own[node] * k.own[node] * k.own[node]);
        let pair = |start: usize, point: usize| {
            let [k_own, g_own] = [k, g].map(|kernel| positions.ends(point, &kernel.own).iter().sum::<f64>());
            (0.5 * g_own * k.pairs[start + point] + k_own * g.pairs[start + point]) * k.pairs[start + point]
        };
        let of_class = |class: usize| positions.sum_points(|point| pair(positions.class(class).start, point));
        let classes = positions.classes.len();
        let pairs = [0, 1].map(|class| if class < classes { of_class(class) } else { 0.0 });
        let grid = positions.grid();
        let sum = |[tu, us, ts]: [&Rows; 3]| {
            let all = tu.contracted(us, grid);
            positions.sum(|node| ts.operator.row(node).dot(&all.row(node)))
        };
        let triples = match (x.classes.as_slice(), gradient.classes.as_slice()) {
            ([k, k_same], [g, g_same]) => {
                let one_pair = sum([g_same, k, k]) + 2.0 * sum([g, k_same, k]);
                [sum([g_same, k_same, k_same]), one_pair, sum([g, k, k])]
            }
            (k, g) => [0.0, 0.0, sum([&g[0], &k[0], &k[0]])],
        };
        Self { length: positions.length, own, pairs, triples }
    }

    /// Returns E_s Σ_tu Γ_tu K_ts K_us for ids that repeat with these probabilities.
    pub(super) fn at(&self, ids: Shares) -> f64 {
        let [others, same] = ids.classes();
        let weights = [ids.triple, ids.one_pair(), others - 2.0 * ids.one_pair()];
        let triples: f64 = self.triples.iter().zip(weights).map(|(sum, weight)| sum * weight).sum();
        ((self.own + others * self.pairs[0] + same * self.pairs[1] + triples) / self.length).max(0.0)
    }
}

/// A kernel, and for every class of pairs its matrices over nodes.
pub(super) struct Matrices<'k> {
    pub(super) kernel: &'k Kernel,
    /// The products of two different tokens, for every class of pairs.
    classes: Vec<Rows>,
}

impl<'k> Matrices<'k> {
    pub(super) fn new(kernel: &'k Kernel) -> Self {
        let positions = &kernel.positions;
        let of_class = |class| Rows::new(positions.grid(), &kernel.pairs[positions.class(class)]);
        Self { kernel, classes: (0..positions.classes.len()).map(of_class).collect() }
    }

    /// Returns the matrix of Σ_t K_st h_t over all tokens t, acting on h at nodes, averaged over ids.
    pub(super) fn operator(&self, ids: Shares) -> DMatrix<f64> {
        let mut operator = DMatrix::from_diagonal(&DVector::from_column_slice(&self.kernel.own));
        for (rows, share) in self.classes.iter().zip(ids.classes()) {
            operator += &rows.operator * share;
        }
        operator
    }

    /// Returns Σ_s (Σ_t K_ts h_t)², from h at nodes.
    pub(super) fn squares(&self, h: &DVector<f64>, ids: Shares) -> f64 {
        let (k, positions) = (self.kernel, &self.kernel.positions);
        let others: Vec<DVector<f64>> = self.classes.iter().map(|rows| &rows.operator * h).collect();
        let share = ids.classes();
        // Weights for two other tokens t and u: both have different ids from s, exactly t has the same, both have the
        // same.
        let weights = [share[0] - ids.one_pair(), ids.one_pair(), ids.triple];
        let product =
            |[one, same]: [f64; 2]| weights[0] * one * one + (2.0 * weights[1] * one + weights[2] * same) * same;
        let of_classes = |of: &dyn Fn(usize) -> f64| [of(0), if others.len() > 1 { of(1) } else { 0.0 }];
        let of_token = |node: usize| {
            let sums = of_classes(&|class| others[class][node]);
            let own = k.own[node] * h[node];
            own * (own + 2.0 * (share[0] * sums[0] + share[1] * sums[1])) + product(sums)
        };
        let squared = h.map(|h| h * h);
        let coincidence = |point: usize| {
            let [a, b] = positions.ends(point, squared.as_slice());
            let pair = of_classes(&|class| k.pairs[positions.class(class).start + point]);
            0.5 * (a + b) * (share[0] * pair[0] * pair[0] + share[1] * pair[1] * pair[1] - product(pair))
        };
        positions.sum(of_token) + positions.sum_points(coincidence)
    }
}

/// The kernel of two different tokens of one class, as matrices.
struct Rows {
    /// Values at every node (rows) and at every second position of the grid (columns).
    columns: DMatrix<f64>,
    /// Values at all pairs of nodes.
    nodes: DMatrix<f64>,
    /// The matrix of Σ_t K_st h_t over the tokens t other than s, acting on h at nodes.
    operator: DMatrix<f64>,
}

impl Rows {
    fn new(grid: &Grid, pairs: &[f64]) -> Self {
        let columns = grid.rows(pairs);
        let nodes = grid.at_nodes(&columns);
        let mut operator = grid.operator(columns.clone());
        let others = operator.diagonal() - nodes.diagonal();
        operator.set_diagonal(&others);
        Self { columns, nodes, operator }
    }

    /// Returns Σ_u of this kernel at (t, u) times `other` at (s, u), over the tokens u other than t and s, for all
    /// pairs of nodes t and s.
    fn contracted(&self, other: &Self, grid: &Grid) -> DMatrix<f64> {
        let mut sum = grid.times_tokens(self.columns.clone()) * other.columns.transpose();
        let count = sum.nrows();
        for s in 0..count {
            for t in 0..count {
                sum[(t, s)] -= self.nodes[(t, t)] * other.nodes[(s, t)] + self.nodes[(t, s)] * other.nodes[(s, s)];
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sigprop_stack::PowerLaw;

    use super::*;
    use crate::mean_field::few::Few;
    use crate::mean_field::positions::{Chart, Grading, Positions, Repetition};

    fn aligned(x: &Kernel, gradient: &Kernel) -> f64 {
        let [x, gradient] = [x, gradient].map(Matrices::new);
        Aligned::new(&x, &gradient).at(x.kernel.positions.shares().0)
    }

    /// Returns a kernel with these moments of two tokens in a class of pairs.
    fn kernel(positions: &Arc<Positions>, own: &[f64], pair: &dyn Fn(usize, [usize; 2]) -> f64) -> Kernel {
        let places = positions.points() / positions.classes.len();
        let of_point = |point: usize| {
            let (first, nodes) = positions.nodes_of(point);
            pair(point / places, [first, nodes[0].0 as usize])
        };
        Kernel::new(positions, |node| own[node], of_point)
    }

    /// Every sum over triples equals that of loops over tokens and over all possible ids: five tokens at positions of
    /// their own, each with one of three equally likely ids.
    #[test]
    fn sums_over_triples_are_those_of_loops() {
        const LENGTH: usize = 5;
        let own = [1.0, 1.35, 0.6, 1.1, 2.7];
        let of_x = |class: usize, [a, b]: [usize; 2]| [0.2, 0.7][class] * f64::from(1 + (a * b % 3) as u8);
        let of_g = |class: usize, [a, b]: [usize; 2]| [-0.1, 0.3][class] * f64::from(1 + ((a + b) % 2) as u8);
        let repetition = Arc::new(Repetition::new(PowerLaw { vocab_size: 3, exponent: 0.0 }));
        let chart = Chart::new(LENGTH, Grading::all(LENGTH), &[]);
        let positions = Arc::new(Positions::on(chart, Some(repetition)));
        let x = kernel(&positions, &own, &of_x);
        let got = aligned(&x, &kernel(&positions, &own, &of_g));
        let h = DVector::from_column_slice(&[0.3, -0.2, 0.5, 1.0, 0.1]);
        let squares = Matrices::new(&x).squares(&h, positions.shares().0);
        let draws = 3usize.pow(LENGTH as u32);
        let (mut sum, mut of_squares) = (0.0, 0.0);
        for draw in 0..draws {
            let id = |token: usize| draw / 3usize.pow(token as u32) % 3;
            let at = |pair: &dyn Fn(usize, [usize; 2]) -> f64, a: usize, b: usize| {
                if a == b { own[a] } else { pair(usize::from(id(a) == id(b)), [a.max(b), a.min(b)]) }
            };
            let tokens = 0..LENGTH * LENGTH * LENGTH;
            for (s, t, u) in tokens.map(|n| (n / (LENGTH * LENGTH), n / LENGTH % LENGTH, n % LENGTH)) {
                let both = at(&of_x, t, s) * at(&of_x, u, s);
                sum += at(&of_g, t, u) * both;
                of_squares += h[t] * h[u] * both;
            }
        }
        approx::assert_relative_eq!(got, sum / (draws * LENGTH) as f64, max_relative = 1e-12);
        approx::assert_relative_eq!(squares, of_squares / draws as f64, max_relative = 1e-12);
    }

    /// Groups have the same sums as their single tokens.
    #[test]
    fn groups_are_their_tokens() {
        let group = |token: usize| usize::from(token > 0);
        let pair = |_: usize, [a, b]: [usize; 2]| [[0.9, 0.3], [0.3, 0.5]][a][b];
        let gradients = |_: usize, [a, b]: [usize; 2]| [[0.4, -0.2], [-0.2, 0.1]][a][b];
        let groups = Arc::new(Positions::groups(&[1.0, 6.0], None));
        let all = Arc::new(Positions::on(Chart::new(7, Grading::all(7), &[]), None));
        let of = |positions: &Arc<Positions>, node: &dyn Fn(usize) -> usize| {
            let own: Vec<f64> = (0..positions.nodes()).map(|token| [1.2, 0.8][node(token)]).collect();
            let mapped = |of: &dyn Fn(usize, [usize; 2]) -> f64| {
                kernel(positions, &own, &|class, ends| of(class, ends.map(node)))
            };
            aligned(&mapped(&pair), &mapped(&gradients))
        };
        approx::assert_relative_eq!(of(&groups, &|node| node), of(&all, &group), max_relative = 1e-12);
    }

    /// Graded positions give the same sums as all positions, for kernels like those after causal attention and for one
    /// that is large for near tokens.
    #[test]
    fn graded_positions_are_all_positions() {
        const LENGTH: usize = 300;
        let smooth = |[a, b]: [f64; 2]| 0.2 + 0.5 * (a.min(b) / a.max(b)).sqrt();
        let near = |[a, b]: [f64; 2]| 0.05 + 0.6 * (-(a - b).abs() / 6.0).exp();
        let of = |grading, x: &dyn Fn([f64; 2]) -> f64, g: &dyn Fn([f64; 2]) -> f64| {
            let positions = Arc::new(Positions::on(Chart::new(LENGTH, grading, &[]), None));
            let chart = positions.chart.as_ref().expect("a chart");
            let place = |position: usize| position as f64 + 1.0;
            let places: Few<f64> = chart.nodes().iter().map(|&node| place(node)).collect();
            let points: Vec<[f64; 2]> =
                chart.lower.iter().map(|&at| chart.points[at]).map(|(k, b)| [places[k], place(b)]).collect();
            let kernel = |pair: &dyn Fn([f64; 2]) -> f64| {
                Kernel::new(&positions, |node| 1.0 + 0.1 * places[node].ln(), |point| pair(points[point]))
            };
            aligned(&kernel(x), &kernel(g))
        };
        for (x, g, tolerance) in [
            (&smooth as &dyn Fn([f64; 2]) -> f64, &smooth as &dyn Fn([f64; 2]) -> f64, 1e-3),
            (&smooth, &near, 2e-3),
            (&near, &smooth, 1e-2),
            (&near, &near, 0.1),
        ] {
            let [graded, all] = [Grading::FINE, Grading::all(LENGTH)].map(|grading| of(grading, x, g));
            approx::assert_relative_eq!(graded, all, max_relative = tolerance);
        }
    }
}
