//! The data model of a network.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    Attention, Component, Concat, Head, Image, LearningRates, MapRole, Mixture, Product, Read, Recurrence, Source, Sum,
};

/// A network with every number resolved, its input and where its gradient starts: the complete
/// input of a prediction or a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stack {
    /// Name of the network.
    pub name: String,
    /// Streams, run in order; attention and parts of fans may read the output of an earlier stream.
    pub streams: Vec<Stream>,
    /// The gradient that starts the backward pass: its stream and the correlation of its tokens.
    pub gradient: GradientSeed,
    /// The head, which turns the end of that stream into logits; `None` if the network has no head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<Head>,
    /// Learning rates, by name, of parameters that do not learn at the common rate. They have no effect at
    /// initialisation.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub learning_rates: BTreeMap<String, LearningRates>,
    /// Groups of rows with different standard deviations in tables and in the head, by the name of the tensor. The
    /// standard deviation of the tensor itself is that of all rows together; the loss of a head treats the groups
    /// separately.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub row_groups: BTreeMap<String, Vec<RowGroup>>,
    /// The roles of maps, by the name of the weight, for schemes that initialise the stack anew. They have no effect on
    /// predictions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub roles: BTreeMap<String, MapRole>,
}

/// Rows of a tensor with one standard deviation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowGroup {
    /// Number of rows.
    pub rows: usize,
    /// Standard deviation of the entries of these rows.
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
            roles: BTreeMap::new(),
        }
    }

    /// Returns the row lengths of all standardised weights, by the name of the weight.
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
    /// Number of tokens of a sequence at the source.
    pub seq_len: usize,
    /// The input of the stream.
    pub source: Source,
    /// Nodes such as `embeddings`, `blocks.0` … and `final_norm`; each is a stream site.
    pub body: Vec<Node>,
}

impl Stream {
    /// Returns the size of the images at the source: that of the first component for images; `None` if no component is
    /// for images.
    pub fn image(&self) -> Option<Image> {
        first_image(&self.body)
    }
}

fn first_image(body: &[Node]) -> Option<Image> {
    body.iter().find_map(|node| match &node.op {
        Op::Apply(Component::Convolution(convolution)) => convolution.image,
        Op::Apply(Component::Pool(pool)) => Some(pool.image),
        op => op.bodies().find_map(first_image),
    })
}

/// The gradient at the end of a stream: independent N(0, 1) entries, correlated between tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GradientSeed {
    /// Index of the stream.
    pub stream: usize,
    /// Correlation between the gradients of two tokens, in [0, 1].
    pub correlation: f64,
}

/// A named operation. The path of its site consists of the names of the nodes around it and its own, joined by dots.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Last part of the site's path.
    pub name: String,
    /// Path of an earlier site with the same operation, whose parameters without names of their own (gains and biases
    /// of norms, factors on branches) this node uses too; `None` if it has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_with: Option<String>,
    /// The operation.
    pub op: Op,
}

impl Node {
    /// Creates a node with this name and operation.
    pub fn new(name: impl Into<String>, op: Op) -> Self {
        Self { name: name.into(), shared_with: None, op }
    }

    /// Returns the path of the site that owns the parameters of this node, which is at `path` itself.
    pub fn owner(&self, path: &str) -> String {
        self.shared_with.as_deref().unwrap_or(path).to_owned()
    }

    /// Creates a node that applies one component.
    pub fn apply(name: impl Into<String>, component: Component) -> Self {
        Self::new(name, Op::Apply(component))
    }
}

/// The operation of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// One component.
    Apply(Component),
    /// Nodes that run one after the other, such as a block; a chain may be recomputed instead of kept.
    Chain(Vec<Node>),
    /// Weighted sum of chains on a common input.
    Sum(Sum),
    /// Elementwise product of chains on a common input.
    Product(Product),
    /// Chains on a common input, whose outputs are concatenated.
    Concat(Concat),
    /// Softmax attention between the tokens of one or two sequences.
    Attention(Attention),
    /// A mixture of experts, in which each token goes to a few of many.
    Mixture(Mixture),
    /// A recurrence over positions, such as a state-space model or linear attention.
    Recurrence(Recurrence),
    /// Another signal in place of the input; the first node of a part of a sum, a product or a concatenation.
    Read(Read),
}

impl Op {
    /// Returns the chains inside the operation, in the order in which they run.
    pub fn bodies(&self) -> impl Iterator<Item = &[Node]> {
        (0..).map_while(|index| self.body(index)).map(Vec::as_slice)
    }

    /// Returns every signal that parts inside the operation read in place of their common input.
    pub fn reads(&self) -> Box<dyn Iterator<Item = &Read> + '_> {
        let itself = if let Self::Read(read) = self { Some(read) } else { None };
        Box::new(itself.into_iter().chain(self.bodies().flatten().flat_map(|node| node.op.reads())))
    }

    fn body(&self, index: usize) -> Option<&Vec<Node>> {
        match self {
            Self::Apply(_) | Self::Read(_) => None,
            Self::Chain(body) => [body].get(index).copied(),
            Self::Sum(sum) => sum.branches.get(index).map(|branch| &branch.body),
            Self::Product(product) => product.factors.get(index),
            Self::Concat(concat) => concat.parts.get(index).map(|part| &part.body),
            Self::Attention(Attention { query, key, value, .. }) => [query, key, value].get(index).copied(),
            Self::Mixture(mixture) => [&mixture.expert].get(index).copied(),
            Self::Recurrence(recurrence) => recurrence.parts().nth(index),
        }
    }
}
