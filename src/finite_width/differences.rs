//! First and second derivatives of functions of a few variables, by central differences.
//!
//! ```text
//! f_i = (f(+i) − f(−i))/2h      f_ii = (f(+i) + f(−i) − 2f)/h²
//! f_ij = (f(+i+j) + f(−i−j) − f(+i) − f(−i) − f(+j) − f(−j) + 2f)/2h²
//! ```
//!
//! where f is a function of a few variables; i, j are indices of variables; f_i, f_ii, f_ij are the derivatives of f
//! with respect to variable i, to i twice, and to i and j; f(+i), f(−i) are f with variable i larger and smaller by h;
//! f(+j), f(−j) are f with variable j larger and smaller by h; f(+i+j), f(−i−j) are f with variables i and j both
//! larger and both smaller by h; h is the step of a variable.
//!
//! Steps of a correlation r are h (1 − r²), which stay in (−1, 1) and shrink with 1 − r. Errors are of order h² times
//! derivatives two orders higher. Source: Abramowitz & Stegun 1972, 25.3.

use super::quadratic::{Quadratic, StreamVariable};

/// The step h.
const STEP: f64 = 2e-3;

/// The points at which a function of `variables` variables is evaluated.
#[derive(Debug)]
pub(crate) struct Stencil {
    variables: usize,
    /// The moves of all variables, point by point: first no move, then each variable up and down, then each pair of
    /// variables up and down together.
    moves: Vec<Vec<f64>>,
}

/// The value of a function at one point, with its derivatives.
#[derive(Clone, Debug)]
pub(crate) struct Derivatives {
    pub(crate) value: f64,
    pub(crate) first: Vec<f64>,
    /// The second derivatives with respect to variables i and j ≤ i, row by row.
    second: Vec<f64>,
}

/// Returns the index of the second derivative with respect to variables i and j ≤ i.
fn lower(i: usize, j: usize) -> usize {
    i * (i + 1) / 2 + j
}

/// Returns the step of a correlation in units of the step of other variables.
pub(crate) fn unit(correlation: f64) -> f64 {
    1.0 - correlation * correlation
}

impl Stencil {
    pub(crate) fn new(variables: usize) -> Self {
        let moved =
            |ends: &[usize], by: f64| (0..variables).map(|i| if ends.contains(&i) { by } else { 0.0 }).collect();
        let mut moves = vec![moved(&[], 0.0)];
        let pairs = (0..variables).flat_map(|i| (0..i).map(move |j| [i, j]));
        let singles = (0..variables).map(|i| [i, i]);
        for ends in singles.chain(pairs) {
            moves.extend([STEP, -STEP].map(|by| moved(&ends, by)));
        }
        Self { variables, moves }
    }

    /// Returns the moves of all variables, point by point.
    pub(crate) fn moves(&self) -> &[Vec<f64>] {
        &self.moves
    }

    /// Returns the derivatives of a function that has the values `f` at the points. `unit` is the unit in which a
    /// variable was moved. Differences within the rounding error of numbers of this `size` count as zero.
    pub(crate) fn derivatives(&self, f: impl Fn(usize) -> f64, unit: impl Fn(usize) -> f64, size: f64) -> Derivatives {
        let rounding = 8.0 * f64::EPSILON * size;
        let known = |difference: f64| if difference.abs() > rounding { difference } else { 0.0 };
        let value = f(0);
        let ends: Vec<[f64; 2]> = (0..self.moves.len() / 2).map(|pair| [f(1 + 2 * pair), f(2 + 2 * pair)]).collect();
        let bends: Vec<f64> =
            ends.iter().map(|[up, down]| known(up - value + (down - value)) / (STEP * STEP)).collect();
        let (alone, both) = bends.split_at(self.variables);
        let mut both = both.iter();
        let mut first = Vec::with_capacity(self.variables);
        let mut second = Vec::with_capacity(lower(self.variables, 0));
        for i in 0..self.variables {
            let [up, down] = ends[i];
            first.push(known(up - down) / (2.0 * STEP * unit(i)));
            for (j, bend) in (0..i).zip(both.by_ref()) {
                second.push(0.5 * (bend - alone[i] - alone[j]) / (unit(i) * unit(j)));
            }
            second.push(alone[i] / (unit(i) * unit(i)));
        }
        Derivatives { value, first, second }
    }
}

impl Derivatives {
    /// Returns the second derivative with respect to two variables.
    pub(crate) fn second(&self, i: usize, j: usize) -> f64 {
        self.second[lower(i.max(j), i.min(j))]
    }

    /// Returns the function as a function of the variables of `streams` streams. `place` maps the index of each
    /// variable to a stream and a variable of that stream.
    pub(crate) fn among(&self, streams: usize, place: impl Fn(usize) -> StreamVariable) -> Quadratic {
        let mut quadratic = Quadratic::constant(self.value, streams);
        for (i, &slope) in self.first.iter().enumerate() {
            let (stream, variable) = place(i);
            quadratic.gradient[stream][variable] = slope;
            (0..=i).for_each(|j| quadratic.hessian.add_entry((stream, variable), place(j), self.second(i, j)));
        }
        quadratic
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Differences of f = x² y + e^(x z) agree with its derivatives. The third variable z is a correlation.
    #[test]
    fn derivatives_are_those_of_a_known_function() {
        for r in [-0.4, 0.0, 0.7, 1.0 - 1e-6] {
            let (x, y) = (0.7f64, -1.3);
            let stencil = Stencil::new(3);
            let values: Vec<f64> = stencil
                .moves()
                .iter()
                .map(|moves| {
                    let (x, y, z) = (x + moves[0], y + moves[1], r + unit(r) * moves[2]);
                    x * x * y + (x * z).exp()
                })
                .collect();
            let found =
                stencil.derivatives(|point| values[point], |variable| if variable == 2 { unit(r) } else { 1.0 }, 1.0);
            let power = (x * r).exp();
            let first = [2.0 * x * y + r * power, x * x, x * power];
            let second = [2.0 * y + r * r * power, 2.0 * x, 0.0, power * (1.0 + x * r), 0.0, x * x * power];
            for i in 0..3 {
                assert!((found.first[i] - first[i]).abs() < 1e-5, "{r} {i}: {} {}", found.first[i], first[i]);
                for j in 0..=i {
                    // Rounding errors grow by 1/(1 − r²) with every derivative with respect to the correlation.
                    let scale = [i, j].iter().filter(|&&by| by == 2).map(|_| 1.0 - r * r).product::<f64>();
                    let (got, expected) = (found.second(i, j), second[lower(i, j)]);
                    assert!((got - expected).abs() * scale < 1e-5, "{r} {i} {j}: {got} {expected}");
                }
            }
        }
    }
}
