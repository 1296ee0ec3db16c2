//! An attention at infinite width at one point of the variables, with its derivatives.

use std::sync::Arc;

use sigprop_stack::{Attention, Component, Node, Op};

use crate::finite_width::jet::Jet;
use crate::finite_width::variables::{About, R, R_A, R_AB, R_B, U, U_A, U_B, VARIABLES};
use crate::mean_field::attention::{Attended, View};
use crate::mean_field::component::{MeanField, MeanFieldFan as _};
use crate::mean_field::gradient::Gradient;
use crate::mean_field::kernel::Kernel;
use crate::mean_field::positions::Positions;
use crate::mean_field::scalar::Scalar;
use crate::mean_field::signal::Signal;

/// A number with its derivatives by the variables of one stream.
pub(super) type Number = Jet<VARIABLES>;

/// Whose queries and whose keys an attention has.
#[derive(Clone, Copy)]
pub(crate) struct Between<'x> {
    pub(crate) queries: About<'x>,
    pub(crate) keys: About<'x>,
}

/// An attention at one point.
#[derive(Clone, Debug)]
pub(super) struct Point {
    /// E z² of both tagged tokens and of others, and E z z' of both, of each with others and of others, over e^`ln_unit`.
    products: [Number; VARIABLES],
    pub(super) ln_unit: f64,
    /// Factors from |g_a|² and g_a·g_b to |g_x|², then to g_x·g_x', for queries, keys and values x.
    pub(super) factors: [[Number; 4]; 3],
}

/// The two tagged tokens and all others of a signal.
fn tagged(about: About<'_>, positions: &Arc<Positions>) -> Signal<Number> {
    let (x, (own, ln_unit), correlation) = (about.x, about.level(), about.correlation());
    let roots = [U_A, U_B, U].map(|level| (Number::variable(level, 0.0) * 0.5).exp());
    // By the order of pairs of groups; a token and itself is no pair.
    let cosines = [R, R_AB, R, R_A, R_B, R].map(|variable| Number::variable(variable, correlation));
    let product = |point: usize| {
        let (first, nodes) = positions.nodes_of(point);
        cosines[point] * roots[first] * roots[nodes[0].0 as usize] * own
    };
    let kernel = Kernel::new(positions, |node| roots[node] * roots[node] * own, product);
    Signal::centred(x.width, Kernel { ln_unit, ..kernel })
}

/// The output of a chain of linear maps, norms, rotations and parts side by side of these; none of others.
pub(super) fn chain<S: Scalar>(body: &[Node], x: &Signal<S>) -> Option<Signal<S>> {
    body.iter().try_fold(x.clone(), |x, node| match &node.op {
        Op::Apply(Component::Linear(linear)) => Some(MeanField::forward(linear, &x)),
        Op::Apply(Component::Norm(norm)) if norm.steps().is_none() => Some(MeanField::forward(norm, &x)),
        // Products within a token stay as they are.
        Op::Apply(Component::Rotary(_)) => Some(x),
        Op::Concat(concat) => {
            let parts: Option<Vec<_>> = concat.parts.iter().map(|part| chain(&part.body, &x).map(Arc::new)).collect();
            Some(concat.merge(&x, &parts?))
        }
        _ => None,
    })
}

/// The point of both tagged tokens among the pairs of three groups, those of each with all others, and that of two others.
const PAIR: usize = 1;
const WITH_OTHERS: [usize; 2] = [3, 4];
const OTHERS: usize = 5;

/// Returns true of a chain that multiplies its input and does nothing else.
pub(super) fn multiplies(body: &[Node]) -> bool {
    body.iter().all(|node| match &node.op {
        Op::Apply(Component::Linear(linear)) => linear.bias.as_ref().is_none_or(|bias| bias.init.variance() <= 0.0),
        Op::Apply(Component::Rotary(_)) => true,
        Op::Apply(_)
        | Op::Chain(_)
        | Op::Concat(_)
        | Op::Sum(_)
        | Op::Product(_)
        | Op::Attention(_)
        | Op::Mixture(_) => false,
    })
}

impl Point {
    fn numbers_mut(&mut self) -> impl Iterator<Item = &mut Number> {
        self.products.iter_mut().chain(self.factors.iter_mut().flatten())
    }

    fn numbers(&self) -> impl Iterator<Item = &Number> {
        self.products.iter().chain(self.factors.iter().flatten())
    }

    /// The variables of the output, u less `ln_unit`.
    pub(super) fn variables(&self) -> [Number; VARIABLES] {
        let [a, b, all, ab, a_all, b_all, pair] = self.products;
        let cosine = |product: Number, ends: Number| product / ends.sqrt();
        let mut variables = self.products;
        (variables[U_A], variables[U_B], variables[U]) = (a.ln(), b.ln(), all.ln());
        (variables[R_AB], variables[R]) = (cosine(ab, a * b), cosine(pair, all * all));
        (variables[R_A], variables[R_B]) = (cosine(a_all, a * all), cosine(b_all, b * all));
        variables
    }

    /// A point whose numbers are all zero.
    pub(super) fn zero() -> Self {
        let zero = Number::from(0.0);
        Self { products: [zero; VARIABLES], ln_unit: 0.0, factors: [[zero; 4]; 3] }
    }

    pub(super) fn add_multiple(&mut self, other: &Self, factor: f64) {
        self.numbers_mut().zip(other.numbers()).for_each(|(sum, number)| sum.add_multiple(number, factor));
    }

    /// The rule of infinite width for two tagged tokens among all others.
    pub(super) fn exact(attention: &Attention, x: Between<'_>, keys: f64) -> Option<Self> {
        let positions = Arc::new(Positions::groups(&[1.0, 1.0, keys - 2.0], None));
        let [queries, others] = [x.queries, x.keys].map(|x| tagged(x, &positions));
        let bodies = [(&attention.query, &queries), (&attention.key, &others), (&attention.value, &others)];
        let parts = bodies.map(|(body, x)| chain(body, x).map(Arc::new));
        let [Some(query), Some(key), Some(value)] = parts else { return None };
        let attended = Attended::new(attention, &[(1.0, View::Everywhere)], [query, key, value]);
        let y = attended.output();
        let (own, pairs) = (&y.kernel.own, &y.kernel.pairs);
        let [with_a, with_b] = WITH_OTHERS;
        let products = [own[0], own[1], own[2], pairs[PAIR], pairs[with_a], pairs[with_b], pairs[OTHERS]];
        // Of gradients of 1 that are independent, and that are the same for all tokens.
        let of = |pair: f64| {
            let kernel = Kernel::new(&positions, |_| Number::from(1.0), |_| Number::from(pair));
            attended.split(attention, &Gradient::independent(kernel))
        };
        let (independent, same) = (of(0.0), of(1.0));
        let factors = [0, 1, 2].map(|path: usize| {
            let [own, all] = [&independent[path], &same[path]].map(|Gradient { kernel, .. }| {
                let unit = kernel.ln_unit.exp();
                [kernel.own[0] * unit, kernel.pairs[PAIR] * unit]
            });
            [own[0], all[0] - own[0], own[1], all[1] - own[1]]
        });
        Some(Self { products, ln_unit: y.kernel.ln_unit, factors })
    }
}
