//! How φ and φ' stray at one entry, at one scale.

use std::sync::OnceLock;

use sigprop_stack::Activation;

use super::function::value_and_derivative;
use crate::domain::Entry;
use crate::quadrature::coarse_nodes;

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
            let both = |x: f64| <[f64; 2]>::from(value_and_derivative(self.activation, x));
            [0, 1].map(|which| entry(|x| both(x)[which], self.scale * c.sqrt(), self.scale * (1.0 - c).sqrt()))
        })
    }
}

/// Of `f` of u + z, u ~ N(0, `common`²) what tokens share, z ~ N(0, `own`²).
fn entry(f: impl Fn(f64) -> f64, common: f64, own: f64) -> Entry {
    Entry::of(coarse_nodes(0.0, common).into_iter().map(|(u, probability)| {
        let nodes = coarse_nodes(common * u, own);
        let values: Vec<(f64, f64)> = nodes.iter().map(|&(z, weight)| (f(common * u + own * z), weight)).collect();
        let moment = |k: i32, about: f64| values.iter().map(|(y, weight)| weight * (y - about).powi(k)).sum::<f64>();
        let mean = moment(1, 0.0);
        let hermite =
            values.iter().zip(&nodes).map(|((y, weight), (z, _))| weight * (y - mean).powi(2) * (z * z - 1.0));
        (probability, [mean, moment(2, mean), moment(3, mean), moment(4, mean), hermite.sum()])
    }))
}
