//! The map of the variance from layer to layer of a chain of equal layers.
//!
//! # Formula
//!
//! ```text
//! q_(l+1) = σ_w² E φ(√q_l z)² + σ_b²      χ = σ_w² E φ'(√q z)²
//! ```
//!
//! where q_l is the variance of the argument of φ in layer l; q is a fixed point of the map; φ is the activation; σ_w²
//! is the variance of a weight times the fan-in; σ_b² is the variance of a bias; E is the average over z; z is a number
//! with law N(0, 1); χ is the factor by which a layer multiplies the variance of a gradient at the fixed point.
//!
//! A fixed point with d ln q_(l+1)/d ln q_l > 1 repels: a variance below it falls, and a variance above it grows.
//!
//! # Source
//!
//! Poole et al. 2016 (arXiv 1606.05340), equations 3 and 5; Schoenholz et al. 2017 (arXiv 1611.01232).

use sigprop_stack::{Activation, Component, Linear, Node, Op, Stack};

use super::tables::Tables;

/// A repelling fixed point of the map, where no other fixed point attracts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Repeller {
    /// ln of q at the fixed point.
    pub ln_variance: f64,
    /// ln of χ at the fixed point.
    pub ln_susceptibility: f64,
    /// d ln q_(l+1)/d ln q_l at the fixed point.
    pub slope: f64,
}

/// One layer, as the map sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Layer {
    activation: Activation,
    /// σ_w².
    weight: f64,
    /// σ_b².
    bias: f64,
}

/// Returns the repelling fixed point of the variance map of a stack; `None` if the stack is no chain of equal layers, or
/// if the map has no such point or another one that attracts.
pub(super) fn repeller(stack: &Stack) -> Option<Repeller> {
    let mut components = Vec::new();
    flatten(&stack.streams[stack.gradient.stream].body, &mut components)?;
    // Layers are pairs of a linear map and an activation; maps before and after them do not repeat.
    let mut layers = components.windows(2).filter_map(|pair| match pair {
        [Component::Linear(linear), Component::Activation(activation)] => Layer::new(linear, *activation),
        _ => None,
    });
    let first = layers.next()?;
    let is_chain = layers.clone().count() > 0 && layers.all(|layer| layer == first);
    if is_chain { first.repeller() } else { None }
}

/// Collects the components of a chain; `None` if there are others than linear maps and activations.
fn flatten<'s>(body: &'s [Node], found: &mut Vec<&'s Component>) -> Option<()> {
    body.iter().try_for_each(|node| match &node.op {
        Op::Chain(inner) => flatten(inner, found),
        Op::Apply(component) => {
            found.push(component);
            matches!(component, Component::Linear(_) | Component::Activation(_)).then_some(())
        }
        Op::Sum(_)
        | Op::Product(_)
        | Op::Concat(_)
        | Op::Attention(_)
        | Op::Mixture(_)
        | Op::Recurrence(_)
        | Op::Read(_) => None,
    })
}

impl Layer {
    /// Returns the layer of a map and its activation; `None` if the weight is standardised.
    fn new(linear: &Linear, activation: Activation) -> Option<Self> {
        let bias = linear.bias.as_ref().map_or(0.0, |bias| bias.init.variance());
        let weight = linear.fan_in as f64 * linear.weight.init.variance();
        linear.standardised.is_none().then_some(Self { activation, weight, bias })
    }

    /// Returns ln q_(l+1) − ln q_l and ln χ at ln q_l.
    fn step(self, ln_variance: f64) -> [f64; 2] {
        let [second, slopes] = Tables::dual(self.activation).second_moments(ln_variance.exp());
        [(self.weight * second + self.bias).ln() - ln_variance, (self.weight * slopes).ln()]
    }

    fn repeller(self) -> Option<Repeller> {
        /// The range of ln q in which fixed points are searched, and the distance of two trials.
        const RANGE: [f64; 2] = [-25.0, 20.0];
        const STEP: f64 = 0.5;
        /// Half the distance of the points of the slope.
        const APART: f64 = 0.05;
        let trials = ((RANGE[1] - RANGE[0]) / STEP) as usize;
        let at = |trial: usize| RANGE[0] + trial as f64 * STEP;
        let change: Vec<f64> = (0..=trials).map(|trial| self.step(at(trial))[0]).collect();
        let attracts = change.windows(2).any(|pair| pair[0] > 0.0 && pair[1] <= 0.0);
        let repels = change.windows(2).position(|pair| pair[0] < 0.0 && pair[1] >= 0.0)?;
        let (mut below, mut above) = (at(repels), at(repels + 1));
        while above - below > 1e-9 {
            let middle = 0.5 * (below + above);
            if self.step(middle)[0] < 0.0 { below = middle } else { above = middle }
        }
        let slope = 1.0 + (self.step(below + APART)[0] - self.step(below - APART)[0]) / (2.0 * APART);
        // A slope of one is that of a map which is linear up to rounding errors.
        let is_repeller = !attracts && slope > 1.0 + 1e-3;
        is_repeller.then(|| Repeller { ln_variance: below, ln_susceptibility: self.step(below)[1], slope })
    }
}

#[cfg(test)]
mod tests {
    use approx::assert_relative_eq;

    use super::*;

    fn found(activation: Activation, weight: f64) -> Option<Repeller> {
        Layer { activation, weight, bias: 0.0 }.repeller()
    }

    /// ReLU³: q = 15/2 σ_w² q³, and χ = 27/2 σ_w² q².
    #[test]
    fn powers_repel() {
        let cube = Activation::Expression("relu(x)^3".parse().expect("a formula"));
        let point = found(cube, 2.0).expect("repels");
        assert_relative_eq!(point.ln_variance, -0.5 * 15f64.ln(), epsilon = 1e-5);
        assert_relative_eq!(point.ln_susceptibility, 1.8f64.ln(), epsilon = 1e-5);
        assert_relative_eq!(point.slope, 3.0, epsilon = 1e-5);
        let square = found(Activation::Relu2, 2.0).expect("repels");
        assert_relative_eq!(square.ln_variance, (1.0f64 / 3.0).ln(), epsilon = 1e-8);
        assert_relative_eq!(square.slope, 2.0, epsilon = 1e-8);
    }

    #[test]
    fn other_maps_attract_or_are_linear() {
        assert_eq!(found(Activation::Tanh, 4.0), None);
        assert_eq!(found(Activation::Relu, 2.0), None);
        assert_eq!(found(Activation::Relu, 3.0), None);
        assert_eq!(found(Activation::Expression("sin(30*x)".parse().expect("a formula")), 2.0), None);
    }
}
