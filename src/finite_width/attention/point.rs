//! An attention at infinite width at one point of the variables, with its derivatives.

use std::sync::{Arc, LazyLock};

use sigprop_stack::{Attention, Component, Node, Op};

use crate::finite_width::differences::{Stencil, unit};
use crate::finite_width::quadratic::Quadratic;
use crate::finite_width::variables::{ExpansionPoint, R, R_A, R_AB, R_B, U, U_A, U_B, VARIABLES};
use crate::mean_field::attention::{Attended, View};
use crate::mean_field::batch_norm::BatchNorm;
use crate::mean_field::component::{MeanField, MeanFieldFan as _};
use crate::mean_field::gradient::Gradient;
use crate::mean_field::kernel::Kernel;
use crate::mean_field::positions::Positions;
use crate::mean_field::signal::Signal;

/// The inputs of an attention: the stream of its queries, and that of its keys and values.
#[derive(Clone, Copy)]
pub(crate) struct Between<'x> {
    pub(crate) queries: ExpansionPoint<'x>,
    pub(crate) keys: ExpansionPoint<'x>,
}

/// An attention near one expansion point: its second moments and its factors on gradients, as quadratic functions of
/// the variables of its input.
#[derive(Clone, Debug)]
pub(super) struct Point {
    /// For the output z: E z² of token a, of token b and of other tokens, then E z z' of a with b, of a with others, of
    /// b with others and of two others. All are in units of e^`ln_unit`.
    products: [Quadratic; VARIABLES],
    pub(super) ln_unit: f64,
    /// Factors from |g_a|² and g_a·g_b to |g_x|², then to g_x·g_x', for queries, keys and values x.
    pub(super) factors: [[Quadratic; 4]; 3],
}

/// The values of the functions of a [`Point`] after small changes of the variables.
#[derive(Clone)]
struct Values {
    products: [f64; VARIABLES],
    ln_unit: f64,
    /// Gradients along the paths of queries, keys and values.
    paths: [Received; 3],
}

/// Gradients at queries, keys or values x, for gradients of 1 at the output: |g_x|² of each of the two tagged tokens,
/// then their product g_x·g_x'.
#[derive(Clone, Copy)]
struct Received {
    /// The response to gradients that are independent between tokens.
    independent: [f64; 3],
    /// The response to gradients that are the same for all tokens.
    same: [f64; 3],
}

impl Received {
    /// Returns the gradients with both tagged tokens exchanged.
    fn mirrored(self) -> Self {
        let Self { independent: [a, b, pair], same: [of_a, of_b, of_pair] } = self;
        Self { independent: [b, a, pair], same: [of_b, of_a, of_pair] }
    }

    /// Returns the factors from |g_a|² and g_a·g_b to |g_x|², then to g_x·g_x'.
    fn factors(&self) -> [f64; 4] {
        let Self { independent: [own, _, pair], same: [of_own, _, of_pair] } = self;
        [*own, of_own - own, *pair, of_pair - pair]
    }
}

/// The points at which an attention is evaluated for finite differences.
struct Places {
    stencil: Stencil,
    /// For each point, the earlier point that it equals if both tagged tokens are exchanged; `None` if it has to be
    /// evaluated.
    exchanged: Vec<Option<usize>>,
}

static PLACES: LazyLock<Places> = LazyLock::new(|| {
    let stencil = Stencil::new(VARIABLES);
    let is_same = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits());
    let earlier = |(point, moves): (usize, &Vec<f64>)| {
        let mut exchanged = moves.clone();
        exchanged.swap(U_A, U_B);
        exchanged.swap(R_A, R_B);
        stencil.moves()[..point].iter().position(|known| is_same(known, &exchanged))
    };
    let exchanged = stencil.moves().iter().enumerate().map(earlier).collect();
    Places { stencil, exchanged }
});

/// Returns the signal of the two tagged tokens and of all others, with every variable changed by its entry of `moves`.
fn tagged(about: ExpansionPoint<'_>, moves: &[f64], positions: &Arc<Positions>) -> Signal {
    let (x, (own, ln_unit), correlation) = (about.x, about.level(), about.correlation());
    let roots = [U_A, U_B, U].map(|level| (0.5 * moves[level]).exp());
    // The order is that of pairs of groups. A token has no pair with itself.
    let cosines = [R, R_AB, R, R_A, R_B, R].map(|variable| correlation + unit(correlation) * moves[variable]);
    let product = |point: usize| {
        let (first, nodes) = positions.nodes_of(point);
        cosines[point] * roots[first] * roots[nodes[0].0 as usize] * own
    };
    let kernel = Kernel::new(positions, |node| roots[node] * roots[node] * own, product);
    Signal::centred(x.width, Kernel { ln_unit, ..kernel })
}

/// Returns the output of a chain of linear maps, norms, rotations and concatenations of such chains; `None` for other
/// components.
pub(super) fn chain(body: &[Node], x: &Signal) -> Option<Signal> {
    body.iter().try_fold(x.clone(), |x, node| match &node.op {
        Op::Apply(Component::Linear(linear)) => Some(linear.forward(&x)),
        Op::Apply(Component::Norm(norm)) if norm.steps().is_none() => match BatchNorm::of(norm) {
            Some(batch_norm) => Some(batch_norm.forward(&x)),
            None => Some(norm.forward(&x)),
        },
        // Products within a token stay the same.
        Op::Apply(Component::Rotary(_)) => Some(x),
        Op::Concat(concat) => {
            let parts: Option<Vec<_>> = concat.parts.iter().map(|part| chain(&part.body, &x).map(Arc::new)).collect();
            Some(concat.merge(&x, &parts?))
        }
        _ => None,
    })
}

/// The index of the pair of both tagged tokens, among the pairs of three groups: each tagged token alone, and all other
/// tokens.
const PAIR: usize = 1;
/// The indices of the pairs of each tagged token with the other tokens, among the pairs of the three groups.
const WITH_OTHERS: [usize; 2] = [3, 4];
/// The index of the pairs of two tokens that are not tagged, among the pairs of the three groups.
const OTHERS: usize = 5;

/// Returns true if a chain consists only of linear maps without random bias and of rotations, so that it is linear in
/// its input.
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
        | Op::Recurrence(_)
        | Op::Mixture(_)
        | Op::Read(_) => false,
    })
}

impl Values {
    /// Applies the rule of infinite width to two tagged tokens among all others; `None` if a map is not supported.
    fn new(attention: &Attention, x: Between<'_>, moves: &[f64], positions: &Arc<Positions>) -> Option<Self> {
        let [queries, others] = [x.queries, x.keys].map(|x| tagged(x, moves, positions));
        let bodies = [(&attention.query, &queries), (&attention.key, &others), (&attention.value, &others)];
        let parts = bodies.map(|(body, x)| chain(body, x).map(Arc::new));
        let [Some(query), Some(key), Some(value)] = parts else { return None };
        let attended = Attended::new(attention, &[(1.0, View::Everywhere)], [query, key, value]);
        let y = attended.output();
        let (own, pairs) = (&y.kernel.own, &y.kernel.pairs);
        let [with_a, with_b] = WITH_OTHERS;
        let products = [own[0], own[1], own[2], pairs[PAIR], pairs[with_a], pairs[with_b], pairs[OTHERS]];
        // Responses to gradients of 1 that are independent, and that are equal for all tokens.
        let of = |pair: f64| {
            let kernel = Kernel::new(positions, |_| 1.0, |_| pair);
            attended.split(attention, &Gradient::independent(kernel))
        };
        let (independent, same) = (of(0.0), of(1.0));
        let received = |gradient: &Gradient| {
            let unit = gradient.kernel.ln_unit.exp();
            [gradient.kernel.own[0], gradient.kernel.own[1], gradient.kernel.pairs[PAIR]].map(|number| number * unit)
        };
        let paths =
            [0, 1, 2].map(|path| Received { independent: received(&independent[path]), same: received(&same[path]) });
        Some(Self { products, ln_unit: y.kernel.ln_unit, paths })
    }

    /// Returns the numbers with both tagged tokens exchanged.
    fn mirrored(&self) -> Self {
        let [a, b, all, pair, with_a, with_b, others] = self.products;
        let paths = self.paths.map(Received::mirrored);
        Self { products: [b, a, all, pair, with_b, with_a, others], ln_unit: self.ln_unit, paths }
    }
}

impl Point {
    fn numbers_mut(&mut self) -> impl Iterator<Item = &mut Quadratic> {
        self.products.iter_mut().chain(self.factors.iter_mut().flatten())
    }

    fn numbers(&self) -> impl Iterator<Item = &Quadratic> {
        self.products.iter().chain(self.factors.iter().flatten())
    }

    /// Returns the variables of the output. The logarithms u_a, u_b and U have `ln_unit` subtracted.
    pub(super) fn variables(&self) -> [Quadratic; VARIABLES] {
        let [a, b, all, ab, a_all, b_all, pair] = &self.products;
        let [ln_a, ln_b, ln_all] = [a, b, all].map(Quadratic::ln);
        let cosine = |product: &Quadratic, [x, y]: [&Quadratic; 2]| {
            let mut ends = x.clone();
            ends.add(y, 1.0);
            ends.scale(-0.5);
            let value = ends.value.exp();
            product.times(&ends.exp(value))
        };
        let mut variables = self.products.clone();
        (variables[R_AB], variables[R]) = (cosine(ab, [&ln_a, &ln_b]), cosine(pair, [&ln_all, &ln_all]));
        (variables[R_A], variables[R_B]) = (cosine(a_all, [&ln_a, &ln_all]), cosine(b_all, [&ln_b, &ln_all]));
        (variables[U_A], variables[U_B], variables[U]) = (ln_a, ln_b, ln_all);
        variables
    }

    /// A point whose numbers are all zero.
    pub(super) fn zero() -> Self {
        let zero = || Quadratic::constant(0.0, 1);
        let factors = [(); 3].map(|()| [(); 4].map(|()| zero()));
        Self { products: [(); VARIABLES].map(|()| zero()), ln_unit: 0.0, factors }
    }

    pub(super) fn add_multiple(&mut self, other: &Self, factor: f64) {
        self.numbers_mut().zip(other.numbers()).for_each(|(sum, number)| sum.add(number, factor));
    }

    /// Evaluates the rule of infinite width for two tagged tokens among `keys` tokens, with first and second
    /// derivatives; `None` if a map of queries, keys or values is not supported.
    pub(super) fn exact(attention: &Attention, x: Between<'_>, keys: f64) -> Option<Self> {
        let Places { stencil, exchanged } = &*PLACES;
        let positions = Arc::new(Positions::groups(&[1.0, 1.0, keys - 2.0], None));
        let mut values: Vec<Values> = Vec::with_capacity(exchanged.len());
        for (moves, earlier) in stencil.moves().iter().zip(exchanged) {
            values.push(match earlier {
                Some(earlier) => values[*earlier].mirrored(),
                None => Values::new(attention, x, moves, &positions)?,
            });
        }
        let is_level = |variable: usize| [U_A, U_B, U].contains(&variable);
        let unit = |variable: usize| if is_level(variable) { 1.0 } else { unit(x.queries.correlation()) };
        let function = |of: &dyn Fn(&Values) -> f64| {
            stencil
                .derivatives(|point| of(&values[point]), unit, of(&values[0]).abs())
                .among(1, |variable| (0, variable))
        };
        let ln_unit = values[0].ln_unit;
        let in_unit = |values: &Values| (values.ln_unit - ln_unit).exp();
        let products = std::array::from_fn(|index| function(&|values| values.products[index] * in_unit(values)));
        let factors = std::array::from_fn(|path| {
            std::array::from_fn(|index| function(&|values| values.paths[path].factors()[index]))
        });
        Some(Self { products, ln_unit, factors })
    }
}
