//! Blocks: attention and feed-forward branches around residual connections, and layers of MLPs.

mod attention;
mod convolution;
mod feed_forward;
mod positions;
mod recurrence;

use sigprop_stack::{
    Branch, Component, Dropout, Init, Linear, Node, Norm, NormKind, Op, Scale, ScaleParameter, Sum, Tensor,
};

use super::{BlockNorm, Fans, Projection, Recipe, Residual, Role, Slot};
use crate::architecture::{Kind, Mixer, NormPlacement, Parallel, Resolved};

/// The name of the branch of a decoder that attends to the output of the encoder.
const CROSS_ATTENTION: &str = "cross_attention";
/// The name of the branch of a short convolution.
const CONVOLUTION: &str = "convolution";
/// The name of the branch of a recurrence.
const RECURRENCE: &str = "recurrence";

/// The name of the branch of attention and a recurrence.
const MIXER: &str = "mixer";

/// The blocks of one stream.
pub(crate) struct Blocks<'a> {
    architecture: &'a Resolved,
    recipe: &'a dyn Recipe,
    residuals: &'a (dyn Fn(usize) -> Residual + 'a),
    train: bool,
    /// The prefix of the names of all tensors in these blocks.
    prefix: &'a str,
}

/// One of these blocks.
pub(crate) struct Block<'a> {
    blocks: &'a Blocks<'a>,
    index: usize,
    /// The index of the block that owns the parameters of this block.
    owner: usize,
    /// The prefix of the names of the tensors in this block.
    path: String,
    projections: &'a (dyn Fn(&Slot) -> Projection + 'a),
}

/// A branch of a residual connection.
struct SubLayer {
    name: &'static str,
    /// The nodes of the branch, without the norm of its input.
    body: Vec<Node>,
}

impl<'a> Blocks<'a> {
    /// Creates the blocks of `architecture`. Residual scales of the architecture, if it sets any, replace `residuals`.
    pub(crate) fn new(
        architecture: &'a Resolved,
        recipe: &'a dyn Recipe,
        residuals: &'a (dyn Fn(usize) -> Residual + 'a),
        train: bool,
        prefix: &'a str,
    ) -> Self {
        Self { architecture, recipe, residuals, train, prefix }
    }

    /// Returns block `index`, with the distributions of linear maps that `projections` returns.
    pub(crate) fn block<'b>(&'b self, index: usize, projections: &'b (dyn Fn(&Slot) -> Projection + 'b)) -> Block<'b> {
        let owner = if self.architecture.shared_blocks { 0 } else { index };
        Block { blocks: self, index, owner, path: format!("{}blocks.{owner}.", self.prefix), projections }
    }

    /// Returns the dropout rate `rate` in training, and 0 in evaluation.
    fn rate(&self, rate: f64) -> f64 {
        if self.train { rate } else { 0.0 }
    }
}

impl Block<'_> {
    /// The whole block as one node.
    pub(crate) fn node(&self) -> Node {
        let architecture = self.blocks.architecture;
        let op = match (architecture.kind, architecture.parallel) {
            (Kind::Encoder, Parallel::None) => Op::Chain(self.sequential()),
            (Kind::Encoder, Parallel::SharedNorm | Parallel::OwnNorms) => self.parallel(),
            (Kind::Mlp, _) => Op::Chain(self.layer()),
        };
        let shared_with = (self.owner != self.index).then(|| format!("{}blocks.{}", self.blocks.prefix, self.owner));
        Node { shared_with, ..Node::new(format!("blocks.{}", self.index), op) }
    }

    /// The branch of the mixer, up to the last linear map.
    pub(crate) fn attend(&self) -> Vec<Node> {
        match self.mixer() {
            Mixer::Attention => self.normalised("attention", vec![self.gated_heads()]),
            Mixer::Convolution => self.normalised(CONVOLUTION, vec![self.short_convolution()]),
            Mixer::Recurrence => self.normalised(RECURRENCE, self.gated_recurrence()),
            Mixer::AttentionAndRecurrence => self.normalised(MIXER, vec![self.attention_and_recurrence()]),
            Mixer::None => Vec::new(),
        }
    }

    fn mixer(&self) -> Mixer {
        self.blocks.architecture.mixer_of(self.index)
    }

    /// The feed-forward branch.
    pub(crate) fn feed_forward(&self) -> Vec<Node> {
        if self.blocks.architecture.d_ff_of(self.index) == 0 {
            return Vec::new();
        }
        self.normalised("ffn", self.ffn())
    }

    /// The branches of a block, as far as it has them: attention or another mixer, cross-attention, and the feed-forward
    /// network.
    fn sub_layers(&self) -> Vec<SubLayer> {
        let mixer = match self.mixer() {
            Mixer::Attention => Some(SubLayer { name: "attention", body: self.attention() }),
            Mixer::Convolution => Some(SubLayer { name: CONVOLUTION, body: self.convolution() }),
            Mixer::Recurrence => Some(SubLayer { name: RECURRENCE, body: self.recurrence() }),
            Mixer::AttentionAndRecurrence => {
                Some(SubLayer { name: MIXER, body: vec![self.attention_and_recurrence()] })
            }
            Mixer::None => None,
        };
        let cross = self.blocks.architecture.memory_width.map(|width| self.cross_attention(width));
        let cross = cross.map(|body| SubLayer { name: CROSS_ATTENTION, body });
        let has_ffn = self.blocks.architecture.has_feed_forward(self.index);
        let ffn = has_ffn.then(|| SubLayer { name: "ffn", body: self.ffn() });
        [mixer, cross, ffn].into_iter().flatten().collect()
    }

    /// The sum of the outputs of attention and of the recurrence.
    fn attention_and_recurrence(&self) -> Node {
        let parts = [("attention", self.attention()), (RECURRENCE, self.recurrence())];
        let parts = parts.map(|(name, body)| Branch::constant(1.0, vec![Node::new(name, Op::Chain(body))]));
        Node::new("parts", Op::Sum(Sum { branches: parts.into() }))
    }

    /// The branches one after the other, each with a residual connection of its own.
    fn sequential(&self) -> Vec<Node> {
        let architecture = self.blocks.architecture;
        let mut nodes = Vec::new();
        for (place, SubLayer { name, body }) in self.sub_layers().into_iter().enumerate() {
            let norm = format!("{name}_norm");
            if architecture.skip_from_norm {
                nodes.extend(self.input_norm(name, &norm));
                nodes.push(Node::new(name, self.residual(place, vec![body])));
            } else {
                nodes.push(Node::new(name, self.residual(place, vec![self.normalised(name, body)])));
                nodes.extend(
                    self.norm(&norm, BlockNorm::Sum).filter(|_| architecture.norm_placement == NormPlacement::Post),
                );
            }
        }
        nodes
    }

    /// The branches side by side: each reads the input of the block, and all share one residual connection. Norms start
    /// without random weights, so that one norm for all branches is equivalent to a norm for each.
    fn parallel(&self) -> Op {
        let branch = |SubLayer { name, body }| vec![Node::new(name, Op::Chain(self.normalised(name, body)))];
        self.residual(0, self.sub_layers().into_iter().map(branch).collect())
    }

    /// A layer of an MLP.
    fn layer(&self) -> Vec<Node> {
        let architecture = self.blocks.architecture;
        let (width, inside) = (architecture.d_model, architecture.d_ff);
        let activation = Node::apply("activation", Component::Activation(architecture.activation.function()));
        let mut body = if architecture.branch_depth > 1 {
            let mut body = self.normalised_map("layer.in", Role::FfnIn, Fans::new(width, inside), BlockNorm::Input);
            body.push(activation);
            body.extend(self.normalised_map("layer.out", Role::FfnOut, Fans::new(inside, width), BlockNorm::Output));
            body
        } else {
            let path = if architecture.residual { "layer.linear" } else { "linear" };
            let mut body = self.normalised_map(path, Role::Hidden, Fans::new(width, width), BlockNorm::Input);
            body.push(activation);
            body
        };
        body.extend(self.dropout("dropout", architecture.dropout));
        let starts_with_norm = self.batch_norm(BlockNorm::Input).is_none();
        let body = if starts_with_norm { self.normalised("layer", body) } else { body };
        let norm = self.norm("norm", BlockNorm::Sum).filter(|_| architecture.norm_placement == NormPlacement::Post);
        let layer = if architecture.residual { vec![Node::new("layer", self.residual(0, vec![body]))] } else { body };
        layer.into_iter().chain(norm).collect()
    }

    /// A linear map of an MLP and the batch norm after it, if there is one. With a batch norm the map has no bias,
    /// because the norm would subtract it.
    fn normalised_map(&self, path: &str, role: Role, fans: Fans, place: BlockNorm) -> Vec<Node> {
        let batch_norm = self.batch_norm(place);
        let has_biases = self.blocks.architecture.biases && batch_norm.is_none();
        [self.linear(path, role, fans, has_biases)].into_iter().chain(batch_norm).collect()
    }

    /// Residual connection number `place` of the block: the sum of a skip connection and the `branches`.
    fn residual(&self, place: usize, branches: Vec<Vec<Node>>) -> Op {
        let architecture = self.blocks.architecture;
        let before = architecture.residuals_before(self.index);
        let Residual { skip, branch, parameter } = (self.blocks.residuals)(before + place);
        let (skip, scale) = (architecture.skip_scale.unwrap_or(skip), architecture.branch_scale.unwrap_or(branch));
        let scale_parameter = if architecture.layer_scale { ScaleParameter::PerFeature } else { parameter };
        let skip = Branch::constant(skip, Vec::new());
        let drop_rate = self.blocks.rate(architecture.drop_path_of(self.index));
        let branches = branches.into_iter().map(|body| Branch { scale, scale_parameter, drop_rate, body });
        Op::Sum(Sum { branches: [skip].into_iter().chain(branches).collect() })
    }

    /// The nodes of a branch: the norm of its input, if there is one, and then `body`.
    fn normalised(&self, branch: &str, body: Vec<Node>) -> Vec<Node> {
        self.input_norm(branch, "norm").into_iter().chain(body).collect()
    }

    /// The places of the norms in this block.
    fn norm_placement(&self) -> NormPlacement {
        let architecture = self.blocks.architecture;
        let recurrence = architecture.recurrence.filter(|_| self.mixer().has_recurrence());
        recurrence.and_then(|mixer| mixer.block_norms).unwrap_or(architecture.norm_placement)
    }

    /// The norm at the start of `branch`, as a node called `name`; `None` if there is none.
    fn input_norm(&self, branch: &str, name: &str) -> Option<Node> {
        let architecture = self.blocks.architecture;
        let starts = match self.norm_placement() {
            NormPlacement::Pre | NormPlacement::Sandwich | NormPlacement::Sub => true,
            NormPlacement::Post | NormPlacement::Reordered => false,
        };
        let first = !architecture.first_norm && self.index == 0 && branch == "attention";
        let inside = branch == "ffn" && architecture.experts_of(self.index).is_some_and(|experts| experts.own_norms);
        let norm = if branch == "attention" { architecture.attention_norm } else { architecture.norm };
        (starts && !first && !inside).then(|| self.scaled_norm(name, BlockNorm::Input, norm)).flatten()
    }

    /// The batch norm after a linear map of an MLP; `None` if there is none. In training it uses the statistics of the
    /// batch.
    fn batch_norm(&self, place: BlockNorm) -> Option<Node> {
        let norm = self.blocks.architecture.norm.filter(|norm| matches!(norm.kind, NormKind::BatchNorm { .. }))?;
        let kind = NormKind::BatchNorm { training: self.blocks.train };
        let name = match place {
            BlockNorm::Input | BlockNorm::Inner | BlockNorm::Sum => "norm",
            BlockNorm::Output => "output_norm",
        };
        self.scaled_norm(name, place, Some(Norm { kind, ..norm }))
    }

    /// The norm before the last linear map of a branch; `None` if there is none.
    fn inner_norm(&self) -> Option<Node> {
        let has_one = self.norm_placement() == NormPlacement::Sub;
        has_one.then(|| self.norm("inner_norm", BlockNorm::Inner)).flatten()
    }

    /// The norm at the end of a branch; `None` if there is none.
    fn output_norm(&self) -> Option<Node> {
        let ends = match self.norm_placement() {
            NormPlacement::Sandwich | NormPlacement::Reordered => true,
            NormPlacement::Pre | NormPlacement::Post | NormPlacement::Sub => false,
        };
        ends.then(|| self.norm("output_norm", BlockNorm::Output)).flatten()
    }

    fn norm(&self, name: &str, place: BlockNorm) -> Option<Node> {
        self.scaled_norm(name, place, self.blocks.architecture.norm)
    }

    /// The node of `norm`, with the gain of the recipe for this `place`; `None` without a norm.
    fn scaled_norm(&self, name: &str, place: BlockNorm, norm: Option<Norm>) -> Option<Node> {
        let factor = self.blocks.recipe.norm_gain(place, self.owner);
        let scaled = |norm: Norm| Component::Norm(Norm { gain: factor * norm.gain, ..norm });
        norm.map(|norm| Node::apply(name, scaled(norm)))
    }

    /// A scale by `factor`; `None` for the factor 1.
    fn multiplier(name: &str, factor: f64) -> Option<Node> {
        ((factor - 1.0).abs() > 0.0).then(|| Node::apply(name, Component::Scale(Scale { factor })))
    }

    fn dropout(&self, name: &str, rate: f64) -> Option<Node> {
        let rate = self.blocks.rate(rate);
        (rate > 0.0).then(|| Node::apply(name, Component::Dropout(Dropout { rate })))
    }

    /// A linear map whose name is the last part of `path` and whose tensors are named after the whole `path`.
    fn linear(&self, path: &str, role: Role, fans: Fans, bias: bool) -> Node {
        let name = path.rsplit('.').next().unwrap_or(path);
        Node::apply(name, self.map(path, role, fans, bias))
    }

    /// A linear map whose tensors are named after the block and `path`.
    fn map(&self, path: &str, role: Role, fans: Fans, bias: bool) -> Component {
        Component::Linear(self.linear_map(path, role, fans, bias))
    }

    fn linear_map(&self, path: &str, role: Role, fans: Fans, bias: bool) -> Linear {
        let cross = path.starts_with(CROSS_ATTENTION);
        let slot = Slot { architecture: self.blocks.architecture, role, block: self.owner, fans, cross };
        let Projection { weight, bias: bias_init, standardised } = (self.projections)(&slot);
        Linear {
            fan_in: fans.fan_in,
            fan_out: fans.fan_out,
            weight: self.tensor(path, ".weight", weight),
            bias: bias.then(|| self.tensor(path, ".bias", bias_init)),
            standardised,
        }
    }

    fn tensor(&self, path: &str, what: &str, init: Init) -> Tensor {
        Tensor { name: [&self.path, path, what].concat(), init }
    }
}
