//! First and second derivatives of functions of a few variables, by central differences.
//!
//! ```text
//! f_i = (f(+i) − f(−i))/2h      f_ii = (f(+i) + f(−i) − 2f)/h²
//! f_ij = (f(+i+j) + f(−i−j) − f(+i) − f(−i) − f(+j) − f(−j) + 2f)/2h²
//! ```
//!
//! where f(+i) is f with variable i larger by h. A correlation r is moved in artanh r, so that it stays in (−1, 1) and that steps shrink with
//! 1 − r. Errors are of the order h² of derivatives two orders higher. Source: Abramowitz & Stegun 1972, 25.3.

use super::quadratic::{Place, Quadratic};

/// h.
const STEP: f64 = 2e-3;

/// The points at which a function of so many variables is evaluated.
#[derive(Debug)]
pub(crate) struct Stencil {
    variables: usize,
    /// By how much every variable is moved, point by point: none first, one up and one down, two up and two down.
    moves: Vec<Vec<f64>>,
}

/// A function at one point, with its derivatives.
#[derive(Clone, Debug)]
pub(crate) struct Derivatives {
    pub(crate) value: f64,
    pub(crate) first: Vec<f64>,
    /// The second derivatives by variables i and j ≤ i, row by row.
    second: Vec<f64>,
}

/// The index of the second derivative by variables i and j ≤ i.
fn lower(i: usize, j: usize) -> usize {
    i * (i + 1) / 2 + j
}

/// The correlation that is `moved` in artanh.
pub(crate) fn turned(correlation: f64, moved: f64) -> f64 {
    let tangent = moved.tanh();
    (correlation + tangent) / (1.0 + correlation * tangent)
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

    /// The moves of all variables, point by point.
    pub(crate) fn moves(&self) -> &[Vec<f64>] {
        &self.moves
    }

    /// The derivatives of a function that has these values at the points, of whose variables some are correlations: this one at the first
    /// point.
    pub(crate) fn derivatives(
        &self,
        f: impl Fn(usize) -> f64,
        correlation: impl Fn(usize) -> Option<f64>,
    ) -> Derivatives {
        let value = f(0);
        let ends = |pair: usize| [f(1 + 2 * pair), f(2 + 2 * pair)];
        let bend = |pair: usize| ends(pair).iter().map(|end| end - value).sum::<f64>() / (STEP * STEP);
        let mut first = Vec::with_capacity(self.variables);
        let mut second = Vec::with_capacity(lower(self.variables, 0));
        let mut pair = self.variables;
        for i in 0..self.variables {
            let [up, down] = ends(i);
            first.push((up - down) / (2.0 * STEP));
            for j in 0..i {
                second.push(0.5 * (bend(pair) - bend(i) - bend(j)));
                pair += 1;
            }
            second.push(bend(i));
        }
        let mut derivatives = Derivatives { value, first, second };
        (0..self.variables).for_each(|i| correlation(i).into_iter().for_each(|r| derivatives.turn(i, r)));
        derivatives
    }
}

impl Derivatives {
    /// The second derivative by two variables.
    pub(crate) fn second(&self, i: usize, j: usize) -> f64 {
        self.second[lower(i.max(j), i.min(j))]
    }

    /// Takes derivatives by r in place of those by artanh r.
    fn turn(&mut self, variable: usize, r: f64) {
        let slope = (1.0 - r * r).recip();
        for other in 0..self.first.len() {
            let twice = if other == variable { slope * slope } else { slope };
            self.second[lower(variable.max(other), variable.min(other))] *= twice;
        }
        self.second[lower(variable, variable)] += 2.0 * r * slope * slope * self.first[variable];
        self.first[variable] *= slope;
    }

    /// The function of the variables of several streams, of which its own are at these places.
    pub(crate) fn among(&self, streams: usize, place: impl Fn(usize) -> Place) -> Quadratic {
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

    /// Of f = x² y + e^(x z), whose third variable is a correlation.
    #[test]
    fn derivatives_are_those_of_a_known_function() {
        for r in [-0.4, 0.0, 0.7, 1.0 - 1e-6] {
            let (x, y) = (0.7f64, -1.3);
            let stencil = Stencil::new(3);
            let values: Vec<f64> = stencil
                .moves()
                .iter()
                .map(|moves| {
                    let (x, y, z) = (x + moves[0], y + moves[1], turned(r, moves[2]));
                    x * x * y + (x * z).exp()
                })
                .collect();
            let found = stencil.derivatives(|point| values[point], |variable| (variable == 2).then_some(r));
            let power = (x * r).exp();
            let first = [2.0 * x * y + r * power, x * x, x * power];
            let second = [2.0 * y + r * r * power, 2.0 * x, 0.0, power * (1.0 + x * r), 0.0, x * x * power];
            for i in 0..3 {
                assert!((found.first[i] - first[i]).abs() < 1e-5, "{r} {i}: {} {}", found.first[i], first[i]);
                for j in 0..=i {
                    // Rounding of second derivatives, in units of 1 − r.
                    let scale = [i, j].iter().filter(|&&by| by == 2).map(|_| 1.0 - r * r).product::<f64>();
                    let (got, expected) = (found.second(i, j), second[lower(i, j)]);
                    assert!((got - expected).abs() * scale < 1e-5, "{r} {i} {j}: {got} {expected}");
                }
            }
        }
    }

    #[test]
    fn correlations_are_moved_in_artanh() {
        approx::assert_relative_eq!(turned(0.3, 0.2), (0.3f64.atanh() + 0.2).tanh(), max_relative = 1e-14);
        assert!(turned(1.0 - 1e-9, STEP) < 1.0);
    }
}
