//! Unit: the output of every linear map in a block has variance 1.
//!
//! # Formula
//!
//! Maps are solved for one after the other, in the order of the forward pass:
//!
//! ```text
//! y = W x     W_ij ~ N(0, σ²)     σ² = 1/(fan_in E x²)     so that E y² = 1
//! ```
//!
//! where x is the input of the map and E is the average over random networks of infinite width, over inputs, tokens and
//! features. E y is 0, so that E y² is the variance of y. The input follows from the maps before it, which are solved
//! for. Dropout and stochastic depth are off, and of several given sequences of ids the first is followed. A weight
//! that is used several times is solved for at its first use. The output of a mixture has a smaller variance than its
//! experts, the sum of their squared weights.
//!
//! # Source
//!
//! Mishkin & Matas 2016, *All you need is a good init* (layer-sequential unit variance, LSUV). The authors divide
//! orthonormal weights by the std of the output for one batch; here the weights are Gaussian, and the std is predicted.
//! Embeddings and the head, which the paper does not treat, keep variances too.

use std::collections::HashMap;
use std::slice::from_ref;

use sigprop_stack::{Component, Init, Node, Op, Stack, Tensor};

use super::embeddings::Summed;
use super::{About, Outer, SchemeError, Table};
use crate::ForwardPass;
use crate::architecture::Resolved;
use crate::recipe::{Entrance, Fans, Projection, Projections, Recipe, normal};

pub(super) const ABOUT: About = About {
    name: "unit",
    parameters: &[],
    rule: "weights N(0, σ²), where σ is such that the output of the map has variance 1, which is predicted for one map \
           after the other in the order of the forward pass; each of m summed embeddings std 1/√m; head N(0, 1/fan_in)",
    source: "Mishkin & Matas 2016 (LSUV), with Gaussian weights, and with predicted variances in place of those of a \
             batch",
    touches: "embeddings, all linear weights",
    build: |_| Box::new(Unit),
};

#[derive(Debug)]
struct Unit;

impl Recipe for Unit {
    fn embedding(&self, architecture: &Resolved, table: Table) -> Init {
        Summed(1.0).embedding(architecture, table)
    }

    fn outer(&self, architecture: &Resolved, place: Outer, fans: Fans) -> Projection {
        Summed(1.0).outer(architecture, place, fans)
    }

    fn sinusoid(&self, architecture: &Resolved) -> f64 {
        Summed(1.0).sinusoid(architecture)
    }

    /// The distributions for inputs of variance 1, from which [`Recipe::solved`] starts.
    fn projections<'a>(&'a self, _: &'a Resolved, _: &Entrance) -> Result<Projections<'a>, SchemeError> {
        Ok(Box::new(|slot| normal(slot.fans.lecun_std()).into()))
    }

    fn solved(&self, stack: &Stack, in_block: &dyn Fn(&str) -> bool) -> Result<HashMap<String, Init>, SchemeError> {
        let mut solution = Solution { in_block, weights: HashMap::new() };
        let mut pass = ForwardPass::infinitely_wide(stack);
        for (index, stream) in stack.streams.iter().enumerate() {
            if index > 0 {
                pass.enter(stream);
            }
            solution.through(&mut stream.body.clone(), &mut pass)?;
        }
        Ok(solution.weights)
    }
}

/// The solution so far.
struct Solution<'a> {
    /// Returns true for the names of the weights of maps in blocks.
    in_block: &'a dyn Fn(&str) -> bool,
    /// The distributions of weights, by name.
    weights: HashMap<String, Init>,
}

impl Solution<'_> {
    /// Solves for the maps of a chain and writes their distributions into it. The pass continues to the end of the chain.
    fn through(&mut self, body: &mut [Node], pass: &mut ForwardPass) -> Result<(), SchemeError> {
        for node in body {
            match &mut node.op {
                Op::Apply(component) => self.component(component, pass)?,
                Op::Chain(body) => {
                    self.through(body, pass)?;
                    continue;
                }
                Op::Read(_) => {
                    return Err(SchemeError::Undefined {
                        scheme: ABOUT.name,
                        expected: "parts that read their common input".to_owned(),
                        got: node.name.clone(),
                    });
                }
                Op::Sum(sum) => {
                    for branch in &mut sum.branches {
                        branch.drop_rate = 0.0;
                        self.through(&mut branch.body, &mut pass.clone())?;
                    }
                }
                Op::Product(product) => {
                    product.factors.iter_mut().try_for_each(|factor| self.through(factor, &mut pass.clone()))?;
                }
                Op::Concat(concat) => {
                    concat.parts.iter_mut().try_for_each(|part| self.through(&mut part.body, &mut pass.clone()))?;
                }
                Op::Attention(attention) => {
                    attention.dropout_rate = 0.0;
                    let memory = attention.memory.map_or_else(|| pass.clone(), |stream| pass.at_end_of(stream));
                    self.through(&mut attention.query, &mut pass.clone())?;
                    self.through(&mut attention.key, &mut memory.clone())?;
                    self.through(&mut attention.value, &mut memory.clone())?;
                }
                Op::Recurrence(recurrence) => {
                    recurrence.parts_mut().try_for_each(|part| self.through(part, &mut pass.clone()))?;
                }
                Op::Mixture(mixture) => {
                    // With a variance of 1/fan_in, scores have the second moment of the input.
                    self.solve(&mut mixture.router, pass.second_moment())?;
                    self.through(&mut mixture.expert, &mut pass.clone())?;
                }
            }
            pass.through(from_ref(node))?;
        }
        Ok(())
    }

    fn component(&mut self, component: &mut Component, pass: &ForwardPass) -> Result<(), SchemeError> {
        let node = Node::apply("", component.clone());
        let output = || {
            let mut after = pass.clone();
            after.through(from_ref(&node)).map(|()| after.second_moment())
        };
        match component {
            Component::Linear(linear) if linear.standardised.is_some() => Err(SchemeError::Undefined {
                scheme: ABOUT.name,
                expected: "weights that are not standardised".to_owned(),
                got: linear.weight.name.clone(),
            }),
            Component::Linear(linear) => self.solve(&mut linear.weight, output()?),
            Component::Convolution(convolution) => self.solve(&mut convolution.weight, output()?),
            Component::Dropout(dropout) => {
                dropout.rate = 0.0;
                Ok(())
            }
            Component::Norm(_)
            | Component::Activation(_)
            | Component::Scale(_)
            | Component::Embedding(_)
            | Component::Rotary(_)
            | Component::Prepend(_)
            | Component::Pool(_)
            | Component::Select(_) => Ok(()),
        }
    }

    /// Solves for a weight in a block whose map has an output with this second moment.
    fn solve(&mut self, weight: &mut Tensor, second_moment: f64) -> Result<(), SchemeError> {
        if !(self.in_block)(&weight.name) {
            return Ok(());
        }
        if let Some(known) = self.weights.get(&weight.name) {
            weight.init = *known;
            return Ok(());
        }
        let std = weight.init.std() / second_moment.sqrt();
        if !std.is_normal() {
            return Err(SchemeError::Undefined {
                scheme: ABOUT.name,
                expected: "a signal at every map".to_owned(),
                got: format!("second moment {second_moment} at the output of {}", weight.name),
            });
        }
        weight.init = normal(std);
        self.weights.insert(weight.name.clone(), weight.init);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
