//! How φ and φ' stray at one entry, at one scale.

use std::sync::OnceLock;

use sigprop_stack::Activation;

use crate::domain::Entry;
use crate::mean_field::dual::function::value_and_derivative;
use crate::mean_field::dual::nodes::{Nodes, Precision};

/// Intervals of the correlation of two tokens.
const CELLS: usize = 16;

/// At correlations k/[`CELLS`], as they are asked for.
pub(super) struct Entries {
    activation: Activation,
    scale: f64,
    cells: [OnceLock<[Entry; 2]>; CELLS + 1],
}

impl Entries {
    pub(super) fn new(activation: Activation, scale: f64) -> Self {
        Self { activation, scale, cells: [const { OnceLock::new() }; CELLS + 1] }
    }

    /// Of φ and of φ', over tokens with the correlation `c`.
    pub(super) fn at(&self, c: f64) -> [Entry; 2] {
        let place = c.clamp(0.0, 1.0) * CELLS as f64;
        let below = (place as usize).min(CELLS - 1);
        let (lower, upper) = (self.cell(below), self.cell(below + 1));
        [0, 1].map(|which| lower[which].towards(&upper[which], place - below as f64))
    }

    fn cell(&self, cell: usize) -> &[Entry; 2] {
        /// Beside the ends, where what is asked for is a limit.
        const EDGE: f64 = 1e-3;
        self.cells[cell].get_or_init(|| {
            let c = (cell as f64 / CELLS as f64).clamp(EDGE, 1.0 - EDGE);
            let [common, own] = [c, 1.0 - c].map(|share| self.scale * share.sqrt());
            self.entries(common, own)
        })
    }

    /// Of arguments u + z, u ~ N(0, `common`²) what tokens share, z ~ N(0, `own`²).
    fn entries(&self, common: f64, own: f64) -> [Entry; 2] {
        let [shared, apart] = [common, own].map(|scale| Nodes::new(self.activation, scale, Precision::Coarse));
        let given = |&(u, probability): &(f64, f64)| {
            let nodes = apart.around(common * u);
            let values: Vec<[f64; 2]> = nodes
                .iter()
                .map(|&(z, _)| value_and_derivative(self.activation, common * u + own * z).into())
                .collect();
            [0, 1].map(|which| {
                let values = values.iter().map(|both| both[which]);
                (probability, moments(values.zip(nodes.iter())))
            })
        };
        let all: Vec<_> = shared.around(0.0).iter().map(given).collect();
        [0, 1].map(|which| Entry::of(all.iter().map(|both| both[which])))
    }
}

/// E y, then of d = y − E y: E d², E d³, E d⁴ and E d² (z² − 1), from values y at nodes z.
fn moments<'a>(values: impl Iterator<Item = (f64, &'a (f64, f64))> + Clone) -> [f64; 5] {
    let mean = values.clone().map(|(y, (_, weight))| weight * y).sum();
    values.fold([mean, 0.0, 0.0, 0.0, 0.0], |[_, second, third, fourth, hermite], (y, (z, weight))| {
        let d = y - mean;
        let square = weight * d * d;
        [mean, second + square, third + square * d, fourth + square * d * d, hermite + square * (z * z - 1.0)]
    })
}
