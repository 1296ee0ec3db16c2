//! The places of maps, tables, norms and residual connections in a stack.

use std::collections::{BTreeMap, HashMap};

use sigprop_stack::{
    Component, Disentangled, EmbeddingTerm, Init, MapRole, Node, Op, PositionBias, Source, Stack, Sum, Tensor,
};

use crate::recipe::{BlockNorm, Fans, Projection, Table};

/// A map with a role.
pub(super) struct Map {
    pub(super) role: MapRole,
    pub(super) weight: String,
    pub(super) bias: Option<String>,
    pub(super) fans: Fans,
    /// True if it is part of cross-attention.
    pub(super) is_cross: bool,
    /// True if it is part of an expert.
    pub(super) is_expert: bool,
    /// Number of the map among all maps with a role.
    pub(super) index: usize,
}

impl Map {
    /// Adds its distributions, by the names of its tensors.
    pub(super) fn write(&self, projection: Projection, inits: &mut HashMap<String, Init>) {
        inits.insert(self.weight.clone(), projection.weight);
        inits.extend(self.bias.clone().map(|bias| (bias, projection.bias)));
    }
}

/// The places of everything that a scheme writes.
#[derive(Default)]
pub(super) struct Places {
    pub(super) maps: Vec<Map>,
    /// Tables, by the name of the tensor.
    pub(super) tables: Vec<(String, Table)>,
    /// Norms in blocks, by the name of their gains, with the index of the block.
    pub(super) norms: HashMap<String, (BlockNorm, usize)>,
    /// The sites of residual connections, in the order of the stream.
    pub(super) sums: Vec<String>,
}

/// The surroundings of a node.
#[derive(Clone, Copy)]
struct Around {
    /// The width of the stream.
    width: usize,
    block: Option<usize>,
    is_branch: bool,
    is_cross: bool,
    is_expert: bool,
}

impl Around {
    /// The surroundings of nodes outside the blocks of a stream.
    fn outside(width: usize) -> Self {
        Self { width, block: None, is_branch: false, is_cross: false, is_expert: false }
    }
}

impl Places {
    pub(super) fn of(stack: &Stack) -> Self {
        let mut places = Self::default();
        for stream in &stack.streams {
            if let Source::Embedding(embedding) = &stream.source {
                embedding.terms.iter().for_each(|term| places.in_term(term));
            }
            let path = if stack.streams.len() > 1 { format!("{}.", stream.name) } else { String::new() };
            let outside = Around::outside(stream.source.width());
            for node in &stream.body {
                let around = Around { block: block_of(node, &stack.roles), ..outside };
                places.in_body(std::slice::from_ref(node), &path, around, &stack.roles);
            }
        }
        if let Some(head) = &stack.head {
            let fans = Fans::new(head.width, head.vocab_size);
            let outside = Around::outside(stack.streams[stack.gradient.stream].source.width());
            places.add(&stack.roles, &head.weight, head.bias.as_ref(), fans, outside);
        }
        places
    }

    fn in_body(&mut self, body: &[Node], path: &str, around: Around, roles: &BTreeMap<String, MapRole>) {
        for (index, node) in body.iter().enumerate() {
            let site = node.owner(&format!("{path}{}", node.name));
            let mut within = around;
            match &node.op {
                Op::Apply(Component::Norm(_)) => {
                    let place = norm_place(body, index, around.is_branch);
                    if let Some(block) = around.block {
                        self.norms.entry(format!("{site}.gain")).or_insert((place, block));
                    }
                }
                Op::Apply(component) => self.in_component(component, around, roles),
                Op::Sum(sum) => {
                    within.is_branch = true;
                    self.sums.extend(is_residual(sum).then(|| site.clone()));
                }
                Op::Attention(attention) => {
                    (within.is_branch, within.is_cross) = (false, attention.memory.is_some());
                    if let Some(PositionBias::Relative { table, .. }) = &attention.bias {
                        self.tables.push((table.name.clone(), Table::RelativeBias));
                    }
                    if let Some(PositionBias::Disentangled(positions)) = &attention.bias {
                        self.in_positions(positions, around, roles);
                    }
                }
                Op::Mixture(mixture) => {
                    let fans = Fans::new(around.width, mixture.n_experts);
                    self.add(roles, &mixture.router, None, fans, around);
                    within.is_expert = true;
                }
                Op::Recurrence(_) => within.is_branch = false,
                Op::Chain(_) | Op::Product(_) | Op::Concat(_) | Op::Read(_) => {}
            }
            node.op.bodies().for_each(|body| self.in_body(body, &format!("{site}."), within, roles));
        }
    }

    fn in_positions(&mut self, positions: &Disentangled, around: Around, roles: &BTreeMap<String, MapRole>) {
        self.tables.push((positions.table.name.clone(), Table::RelativeEmbedding));
        // A map of contents that positions share has its place already.
        for map in positions.maps() {
            if self.maps.iter().all(|known| known.weight != map.weight.name) {
                self.add(roles, &map.weight, map.bias.as_ref(), Fans::new(map.fan_in, map.fan_out), around);
            }
        }
    }

    fn in_component(&mut self, component: &Component, around: Around, roles: &BTreeMap<String, MapRole>) {
        match component {
            Component::Linear(map) => {
                let fans = Fans::new(map.fan_in, map.fan_out);
                self.add(roles, &map.weight, map.bias.as_ref(), fans, around);
            }
            Component::Convolution(map) => {
                let fans = Fans::new(map.window(), map.fan_out);
                self.add(roles, &map.weight, map.bias.as_ref(), fans, around);
            }
            Component::Prepend(prepend) => self.tables.push((prepend.token.name.clone(), Table::ClassToken)),
            Component::Embedding(term) => self.in_term(term),
            Component::Norm(_)
            | Component::Activation(_)
            | Component::Dropout(_)
            | Component::Scale(_)
            | Component::Rotary(_)
            | Component::Pool(_)
            | Component::Select(_) => {}
        }
    }

    fn in_term(&mut self, term: &EmbeddingTerm) {
        let (table, kind) = match term {
            EmbeddingTerm::Token { table } => (table, Table::Token),
            EmbeddingTerm::LearnedPosition { table } => (table, Table::Position),
            EmbeddingTerm::Constant { table, .. } => (table, Table::TokenType),
            EmbeddingTerm::Segment { table } => (table, Table::Segment),
            EmbeddingTerm::SinusoidalPosition { .. } => return,
        };
        self.tables.push((table.name.clone(), kind));
    }

    fn add(
        &mut self,
        roles: &BTreeMap<String, MapRole>,
        weight: &Tensor,
        bias: Option<&Tensor>,
        fans: Fans,
        around: Around,
    ) {
        let Some(&role) = roles.get(&weight.name) else { return };
        let (weight, bias) = (weight.name.clone(), bias.map(|bias| bias.name.clone()));
        let Around { is_cross, is_expert, .. } = around;
        self.maps.push(Map { role, weight, bias, fans, is_cross, is_expert, index: self.maps.len() });
    }
}

/// Returns the place of the norm with this index in a chain.
fn norm_place(body: &[Node], index: usize, is_branch: bool) -> BlockNorm {
    let follows_sum = index > 0 && matches!(body[index - 1].op, Op::Sum(_));
    match (is_branch, index) {
        _ if follows_sum => BlockNorm::Sum,
        (_, 0) => BlockNorm::Input,
        (true, _) if index + 1 == body.len() => BlockNorm::Output,
        (true | false, _) => BlockNorm::Inner,
    }
}

/// Returns true if a sum has a branch that passes its input on.
fn is_residual(sum: &Sum) -> bool {
    sum.branches.iter().any(|branch| branch.body.is_empty())
}

/// Returns the index of the block that a node of a stream is, from the roles of its maps.
pub(super) fn block_of(node: &Node, roles: &BTreeMap<String, MapRole>) -> Option<usize> {
    let of = |weight: &Tensor| roles.get(&weight.name).and_then(|role| role.block);
    match &node.op {
        Op::Apply(Component::Linear(map)) => of(&map.weight),
        Op::Apply(Component::Convolution(map)) => of(&map.weight),
        op => op.bodies().flatten().find_map(|node| block_of(node, roles)),
    }
}
