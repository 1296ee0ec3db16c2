//! The parameters of a stack: the arrays that a checkpoint of it holds.

use crate::{
    Attention, Component, EmbeddingTerm, Init, LearningRates, Node, Norm, Op, PositionBias, Rates, Source, Stack,
    StepBias, Sum, Tensor,
};

/// A trainable array.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Name of the tensor. Parameters without a tensor in the stack are called after the first site that uses them: the
    /// gains of a norm `<site>.gain`, the factor on a branch `<site>.scale`, parameters of a recurrence
    /// `<site>.log_rate`, `<site>.step_bias` and `<site>.skip`.
    pub name: String,
    /// Rows and columns.
    pub shape: [usize; 2],
    /// Number of copies: one per expert of a mixture, else 1.
    pub copies: usize,
    /// Its values at initialisation.
    pub values: Values,
    /// Factors on its learning rate.
    pub learning_rates: LearningRates,
}

/// The values of a parameter at initialisation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Values {
    /// Independent samples of a distribution.
    Drawn(Init),
    /// The gain of a norm, the same in every entry.
    Gains(Norm),
    /// The factor on the branch of a residual connection; models with LayerScale hold one per feature.
    Scale(f64),
    /// Logarithms of the rates of a recurrence.
    LogRates(Rates),
    /// Biases of the steps of a recurrence.
    StepBiases(StepBias),
    /// The skip of a recurrence, the same for every head.
    Skip(f64),
}

/// A part of a stack whose numbers [`Stack::change`] may change.
#[derive(Debug)]
pub enum Named<'s> {
    /// A tensor. A tensor that occurs several times is passed several times.
    Tensor(&'s mut Tensor),
    /// A norm, with the name of its gains.
    Norm(String, &'s mut Norm),
    /// A weighted sum, with the path of the site that owns the factor on its branch.
    Sum(String, &'s mut Sum),
    /// An attention.
    Attention(&'s mut Attention),
}

impl Stack {
    /// Calls `change` with every tensor, norm, weighted sum and attention.
    pub fn change(&mut self, mut change: impl FnMut(Named)) {
        let several = self.streams.len() > 1;
        for stream in &mut self.streams {
            if let Source::Embedding(embedding) = &mut stream.source {
                embedding.terms.iter_mut().for_each(|term| in_table(term, &mut change));
            }
            let path = if several { format!("{}.", stream.name) } else { String::new() };
            in_body(&mut stream.body, &path, &mut change);
        }
        if let Some(head) = &mut self.head {
            let path = if several { format!("{}.", self.streams[self.gradient.stream].name) } else { String::new() };
            in_body(&mut head.body, &path, &mut change);
            let tensors = [Some(&mut head.weight), head.bias.as_mut()];
            tensors.into_iter().flatten().for_each(|tensor| change(Named::Tensor(tensor)));
        }
    }
}

fn in_body(body: &mut [Node], path: &str, change: &mut dyn FnMut(Named)) {
    for node in body {
        let site = node.owner(&format!("{path}{}", node.name));
        let inner = format!("{site}.");
        let mut walk = |body: &mut [Node]| in_body(body, &inner, change);
        match &mut node.op {
            Op::Apply(component) => in_component(component, &site, change),
            Op::Read(_) => {}
            Op::Chain(body) => walk(body),
            Op::Sum(sum) => {
                sum.branches.iter_mut().for_each(|branch| walk(&mut branch.body));
                change(Named::Sum(site, sum));
            }
            Op::Product(product) => product.factors.iter_mut().for_each(|factor| walk(factor)),
            Op::Concat(concat) => concat.parts.iter_mut().for_each(|part| walk(&mut part.body)),
            Op::Attention(attention) => {
                for body in [&mut attention.query, &mut attention.key, &mut attention.value] {
                    walk(body);
                }
                in_bias(&mut attention.bias, change);
                attention.sink.iter_mut().for_each(|sink| change(Named::Tensor(sink)));
                change(Named::Attention(attention));
            }
            Op::Recurrence(recurrence) => recurrence.parts_mut().for_each(|body| walk(body)),
            Op::Mixture(mixture) => {
                walk(&mut mixture.expert);
                change(Named::Tensor(&mut mixture.router));
            }
        }
    }
}

fn in_bias(bias: &mut Option<PositionBias>, change: &mut dyn FnMut(Named)) {
    match bias {
        None | Some(PositionBias::Alibi { .. }) => {}
        Some(PositionBias::Relative { table, .. }) => change(Named::Tensor(table)),
        Some(PositionBias::Disentangled(positions)) => {
            change(Named::Tensor(&mut positions.table));
            for map in positions.key.iter_mut().chain(&mut positions.query) {
                [Some(&mut map.weight), map.bias.as_mut()]
                    .into_iter()
                    .flatten()
                    .for_each(|of| change(Named::Tensor(of)));
            }
            let gain = positions.gain();
            positions.norm.iter_mut().for_each(|norm| change(Named::Norm(gain.clone(), norm)));
        }
    }
}

fn in_component(component: &mut Component, site: &str, change: &mut dyn FnMut(Named)) {
    let tensors = match component {
        Component::Linear(linear) => [Some(&mut linear.weight), linear.bias.as_mut()],
        Component::Convolution(convolution) => [Some(&mut convolution.weight), convolution.bias.as_mut()],
        Component::Prepend(prepend) => [Some(&mut prepend.token), None],
        Component::Embedding(term) => return in_table(term, change),
        Component::Norm(norm) => return change(Named::Norm(format!("{site}.gain"), norm)),
        Component::Activation(_)
        | Component::Dropout(_)
        | Component::Scale(_)
        | Component::Rotary(_)
        | Component::Pool(_)
        | Component::Select(_) => return,
    };
    tensors.into_iter().flatten().for_each(|tensor| change(Named::Tensor(tensor)));
}

fn in_table(term: &mut EmbeddingTerm, change: &mut dyn FnMut(Named)) {
    match term {
        EmbeddingTerm::Token { table }
        | EmbeddingTerm::LearnedPosition { table }
        | EmbeddingTerm::Constant { table, .. }
        | EmbeddingTerm::Segment { table } => change(Named::Tensor(table)),
        EmbeddingTerm::SinusoidalPosition { .. } => {}
    }
}
