//! The data model of a network.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Attention, Component, Concat, Head, LearningRates, Mixture, Product, Source, Sum};

/// A network with every number resolved, its input and where its gradient starts: the complete
/// input of a prediction or a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stack {
    /// What the network is called.
    pub name: String,
    /// Run in order; attention may read the output of a stream before its own.
    pub streams: Vec<Stream>,
    /// Where the backward pass starts and with what.
    pub gradient: GradientSeed,
    /// What turns the end of that stream into logits, if anything does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<Head>,
    /// Of parameters, by name, that do not learn at the common rate. They decide nothing at the start.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub learning_rates: BTreeMap<String, LearningRates>,
    /// Rows of tables and of the head, by name, whose standard deviations differ. The spread of the tensor itself is that of all
    /// rows together; the loss of a head counts them apart.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub row_groups: BTreeMap<String, Vec<RowGroup>>,
}

/// Rows of a tensor with one standard deviation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowGroup {
    /// How many rows there are.
    pub rows: usize,
    /// Their standard deviation.
    pub std: f64,
}

impl Stack {
    /// A network without a head, all of whose parameters learn at one rate.
    pub fn new(name: impl Into<String>, streams: Vec<Stream>, gradient: GradientSeed) -> Self {
        Self {
            name: name.into(),
            streams,
            gradient,
            head: None,
            learning_rates: BTreeMap::new(),
            row_groups: BTreeMap::new(),
        }
    }

    /// Lengths of the rows of all standardised weights, by name.
    pub fn standardised(&self) -> BTreeMap<&str, f64> {
        let mut lengths = BTreeMap::new();
        for stream in &self.streams {
            collect_standardised(&stream.body, &mut lengths);
        }
        lengths
    }
}

fn collect_standardised<'s>(body: &'s [Node], lengths: &mut BTreeMap<&'s str, f64>) {
    for node in body {
        if let Op::Apply(Component::Linear(linear)) = &node.op {
            lengths.extend(linear.standardised.map(|length| (linear.weight.name.as_str(), length)));
        }
        node.op.bodies().for_each(|body| collect_standardised(body, lengths));
    }
}

/// A sequence of tokens on its way through the network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    /// Prefix of its sites when there is more than one stream.
    pub name: String,
    /// Tokens of a sequence at the source.
    pub seq_len: usize,
    /// What it starts with.
    pub source: Source,
    /// `embeddings`, `blocks.0` …, `final_norm`: one stream site each.
    pub body: Vec<Node>,
}

/// Independent N(0, 1) entries at the end of a stream, correlated between tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GradientSeed {
    /// Index of the stream.
    pub stream: usize,
    /// Correlation between the gradients of two tokens, in [0, 1].
    pub correlation: f64,
}

/// A named operation. The names on the way to a node, joined by dots, are its site's path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Last part of the site's path.
    pub name: String,
    /// What it does.
    pub op: Op,
}

impl Node {
    /// A named operation.
    pub fn new(name: impl Into<String>, op: Op) -> Self {
        Self { name: name.into(), op }
    }

    /// A named component that acts on every token alike.
    pub fn apply(name: impl Into<String>, component: Component) -> Self {
        Self::new(name, Op::Apply(component))
    }
}

/// What a node does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// One component.
    Apply(Component),
    /// One after the other; the unit that may be recomputed instead of kept.
    Chain(Vec<Node>),
    /// Weighted sum of chains on a common input.
    Sum(Sum),
    /// Elementwise product of chains on a common input.
    Product(Product),
    /// Chains on a common input, side by side.
    Concat(Concat),
    /// Softmax attention between the tokens of a sequence, or of two.
    Attention(Attention),
    /// Each token goes to a few of many experts.
    Mixture(Mixture),
}

impl Op {
    /// The bodies inside, in the order in which they run.
    pub fn bodies(&self) -> impl Iterator<Item = &[Node]> {
        (0..).map_while(|index| self.body(index)).map(Vec::as_slice)
    }

    fn body(&self, index: usize) -> Option<&Vec<Node>> {
        match self {
            Self::Apply(_) => None,
            Self::Chain(body) => [body].get(index).copied(),
            Self::Sum(sum) => sum.branches.get(index).map(|branch| &branch.body),
            Self::Product(product) => product.factors.get(index),
            Self::Concat(concat) => concat.parts.get(index).map(|part| &part.body),
            Self::Attention(Attention { query, key, value, .. }) => [query, key, value].get(index).copied(),
            Self::Mixture(mixture) => [&mixture.expert].get(index).copied(),
        }
    }
}
