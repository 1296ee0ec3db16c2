//! The plan of a run, common to all replicates. A traversal with shapes instead of arrays lists the sites and the
//! tensors, adds up the memory that a replicate needs, and chooses the nodes that are computed again in the backward
//! pass ([`recomputation`]).

mod recomputation;

use std::{
    collections::{BTreeSet, HashMap},
    convert::Infallible,
    mem,
    ops::Range,
};

use sigprop_stack::{
    Component, Disentangled, EmbeddingTerm, Fan, GradientSeed, Ids, Init, Input, Interpreter, Linear, Multiplied,
    PositionBias, Site, Source, Stack, Stream, Tensor, forward,
};

use recomputation::{Block, Node, Recomputation};

use crate::{
    Sampling, Settings,
    array::Shape,
    components::{
        concat, convolution,
        linear::{self, conditional},
        recurrence,
    },
};

/// Bytes of an f32.
const ENTRY: f64 = 4.0;

/// The rows of a run and everything else that is common to its replicates.
pub(crate) struct Plan {
    /// Number of sequences per replicate.
    pub batch: usize,
    /// The streams.
    pub streams: Vec<PlannedStream>,
    /// The sites that get a row, in forward order.
    pub rows: Vec<Row>,
    /// Indices of the rows that get a gradient, in backward order.
    pub backward: Vec<usize>,
    /// The tensors that get a gradient, in order of depth.
    pub tensors: Vec<PlannedTensor>,
    /// Index of each tensor in `tensors`, by its name and the index of its expert (`None` outside mixtures).
    pub tensor_index: HashMap<(String, Option<usize>), usize>,
    /// Largest memory of one replicate, in bytes.
    pub bytes: f64,
    /// Paths of the nodes that keep only their input and are computed again in the backward pass.
    pub recomputed: BTreeSet<String>,
    /// The first site that the requested sampler cannot handle, and the reason.
    pub refusal: Option<(String, &'static str)>,
}

/// A stream of a run.
pub(crate) struct PlannedStream {
    /// Prefix of its sites.
    pub name: String,
    /// Numbers of sequences and tokens at its source.
    pub shape: Shape,
    /// The source of the token ids.
    pub ids: PlannedIds,
    /// Name of the stream whose random numbers give the ids.
    pub ids_of: String,
    /// Number of rows of the streams before this one.
    first_row: usize,
    /// Indices of the streams whose output it reads.
    memories: BTreeSet<usize>,
}

/// The source of token ids.
pub(crate) enum PlannedIds {
    /// There are no ids.
    None,
    /// Independent ids with this distribution function.
    Cumulative(Vec<f64>),
    /// Given sequences.
    Given(Vec<Vec<u32>>),
}

/// A site that is reported.
pub(crate) struct Row {
    pub layer: i64,
    pub site: String,
    pub is_stream_site: bool,
}

/// A tensor whose gradient is reported.
pub(crate) struct PlannedTensor {
    pub layer: i64,
    pub tensor: Tensor,
    /// Index of the expert it belongs to, inside a mixture.
    pub expert: Option<usize>,
    pub entries: f64,
    /// Number of uses in all streams.
    pub uses: usize,
    /// Index of the stream that uses it first.
    stream: usize,
}

impl PlannedTensor {
    /// Returns true if `other` is the same tensor of another expert.
    pub(crate) fn is_expert_beside(&self, other: &Self) -> bool {
        self.expert.is_some() && self.expert != other.expert && self.tensor.name == other.tensor.name
    }
}

impl Plan {
    /// Returns the plan of a replicate that may take `budget` bytes. The plan needs more if recomputing all blocks does
    /// not save enough.
    pub(crate) fn new(stack: &Stack, settings: &Settings, budget: f64) -> Self {
        let mut planner = Planner {
            settings,
            streams: Vec::new(),
            rows: Vec::new(),
            tensors: Vec::new(),
            blocks: Vec::new(),
            block: Block::default(),
            part: Node::default(),
            signals: 0,
            kept: BTreeSet::new(),
            read: BTreeSet::new(),
            besides: 0.0,
            largest: 0.0,
            refusal: None,
            undrawn: Vec::new(),
        };
        let Ok(_) = forward(stack, &mut planner);
        let reached = reached(&planner.streams, stack.gradient.stream);
        let ends = planner.streams.iter().skip(1).map(|stream| stream.first_row).chain([planner.rows.len()]);
        let spans: Vec<Range<usize>> =
            planner.streams.iter().zip(ends).map(|(stream, end)| stream.first_row..end).collect();
        let backward = reached.iter().rev().flat_map(|&stream| spans[stream].clone().rev()).collect();
        let shared = |name: &str| planner.tensors.iter().any(|known| known.tensor.name == name && known.uses > 1);
        let shared = planner.undrawn.iter().find(|(name, _)| shared(name));
        let shared = shared.map(|(_, site)| (site.clone(), "its weights are used more than once"));
        let refusal = planner.refusal.take().or(shared);
        planner.tensors.retain(|planned| settings.weights && reached.contains(&planned.stream));
        let index = |(index, planned): (usize, &PlannedTensor)| ((planned.tensor.name.clone(), planned.expert), index);
        let shared: f64 = planner.tensors.iter().filter(|t| t.uses > 1).map(|t| t.entries).sum();
        let besides = planner.largest + planner.besides + ENTRY * shared * settings.batch as f64;
        let Recomputation { paths: recomputed, bytes } = Recomputation::new(&planner.blocks, besides, budget);
        Plan {
            batch: settings.batch,
            backward,
            bytes,
            recomputed,
            refusal,
            tensor_index: planner.tensors.iter().enumerate().map(index).collect(),
            streams: planner.streams,
            rows: planner.rows,
            tensors: planner.tensors,
        }
    }

    /// The stream of a site.
    pub(crate) fn stream(&self, at: &Site) -> &PlannedStream {
        let stream = self.streams.iter().find(|stream| stream.name == at.stream());
        stream.expect("a walk stays in the streams of its plan")
    }
}

/// The streams that a gradient from the end of `seeded` reaches.
fn reached(streams: &[PlannedStream], seeded: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::from([seeded]);
    for index in (0..=seeded).rev() {
        if reached.contains(&index) {
            reached.extend(&streams[index].memories);
        }
    }
    reached
}

/// The shape of a signal, which the plan carries instead of the signal.
#[derive(Clone, Copy)]
struct Form {
    seq_len: usize,
    width: usize,
    /// Number of the signal, different for every signal.
    id: usize,
}

/// The interpreter that carries shapes.
struct Planner<'a> {
    settings: &'a Settings,
    streams: Vec<PlannedStream>,
    rows: Vec<Row>,
    tensors: Vec<PlannedTensor>,
    /// Finished nodes of the streams.
    blocks: Vec<Block>,
    /// The node of a stream that is being traversed.
    block: Block,
    /// The node directly inside `block` that is being traversed.
    part: Node,
    /// Number of signals created so far.
    signals: usize,
    /// The numbers of the signals that stay in memory until the backward pass.
    kept: BTreeSet<usize>,
    /// The numbers of the signals that parts read in place of their common input, and their bytes.
    read: BTreeSet<usize>,
    besides: f64,
    /// Largest number of bytes that a node needs temporarily.
    largest: f64,
    /// The first site that the conditional sampler cannot handle, and the reason, if that sampler is requested.
    refusal: Option<(String, &'static str)>,
    /// Names of the weights of which the conditional sampler samples only products, each with the path of its site.
    undrawn: Vec<(String, String)>,
}

impl Planner<'_> {
    fn tensor(&mut self, at: &Site, tensor: &Tensor, shape: [usize; 2]) {
        let stream = self.streams.len() - 1;
        let same = |known: &&mut PlannedTensor| known.tensor.name == tensor.name && known.expert == at.expert();
        if let Some(known) = self.tensors.iter_mut().rev().find(same) {
            known.uses += 1;
            return;
        }
        self.tensors.push(PlannedTensor {
            layer: at.layer(),
            tensor: tensor.clone(),
            expert: at.expert(),
            entries: shape[0] as f64 * shape[1] as f64,
            uses: 1,
            stream,
        });
    }

    /// Plans the tensors of relative positions.
    fn positions(&mut self, at: &Site, positions: &Disentangled) {
        let (rows, width) = (2 * positions.span, positions.width());
        self.tensor(at, &positions.table, [rows, width]);
        if positions.norm.is_some() {
            self.tensor(at, &Tensor { name: positions.gain(), init: Init::Zero }, [width, 1]);
        }
        for map in positions.maps() {
            self.tensor(at, &map.weight, [map.fan_out, map.fan_in]);
            map.bias.iter().for_each(|bias| self.tensor(at, bias, [map.fan_out, 1]));
            self.need(3.0 * self.array(Form { seq_len: rows, width: map.fan_in.max(map.fan_out), id: 0 }));
        }
    }

    /// Starts a node of a stream.
    fn enter(&mut self, input: Form) {
        let node = || Node { input: self.array(input), ..Node::default() };
        (self.block, self.part) = (Block { whole: node(), parts: Vec::new() }, node());
    }

    /// A new signal.
    fn signal(&mut self, seq_len: usize, width: usize) -> Form {
        self.signals += 1;
        Form { seq_len, width, id: self.signals }
    }

    /// Counts a signal that stays until the backward pass.
    fn keep(&mut self, form: Form) {
        if self.kept.insert(form.id) {
            let bytes = self.array(form);
            self.block.whole.kept += bytes;
            self.part.kept += bytes;
        }
    }

    /// Counts the bytes that a node needs while it works.
    fn need(&mut self, bytes: f64) {
        self.largest = self.largest.max(bytes);
    }

    fn array(&self, form: Form) -> f64 {
        ENTRY * self.settings.batch as f64 * form.seq_len as f64 * form.width as f64
    }

    fn linear(&mut self, at: &Site, linear: &Linear, x: Form) -> Form {
        self.tensor(at, &linear.weight, [linear.fan_out, linear.fan_in]);
        if let Some(bias) = &linear.bias {
            self.tensor(at, bias, [linear.fan_out, 1]);
        }
        // A tile of the weight, all of it twice in f64 if it is orthogonal, and the gradient of all of it.
        let whole = if matches!(linear.weight.init, Init::Orthogonal { .. }) { 4 * linear.fan_out } else { 0 };
        let rows = linear::tile_rows(linear) + whole + if self.settings.weights { linear.fan_out } else { 0 };
        let y = self.signal(x.seq_len, linear.fan_out);
        if self.settings.sampler == Sampling::Conditional {
            self.conditional(at, linear, x);
        }
        let arrays = self.array(Form { width: linear.fan_in, ..x }) + 2.0 * self.array(y);
        self.need(ENTRY * linear.fan_in as f64 * rows as f64 + arrays);
        if self.settings.weights {
            self.keep(x);
        }
        y
    }

    /// Counts the memory of a linear map whose weights are not sampled, and records the reason if that is impossible.
    fn conditional(&mut self, at: &Site, linear: &Linear, x: Form) {
        let reason = conditional::refusal(linear);
        self.refusal = self.refusal.take().or(reason.map(|reason| (at.to_string(), reason)));
        self.undrawn.push((linear.weight.name.clone(), at.to_string()));
        let basis = self.signal(x.seq_len, linear.fan_in);
        self.keep(basis);
        let tokens = (self.settings.batch * x.seq_len) as f64;
        // Matrices over pairs of tokens and arrays, in f64, with their copies.
        let squares = 5.0 * tokens * tokens;
        self.need(2.0 * ENTRY * (squares + 3.0 * tokens * linear.fan_in.max(linear.fan_out) as f64));
    }

    fn term(&mut self, at: &Site, term: &EmbeddingTerm, vocab_size: usize, x: Form) {
        let Some(table) = term.table() else { return };
        let rows = match term {
            EmbeddingTerm::Token { .. } => vocab_size,
            EmbeddingTerm::LearnedPosition { .. } => x.seq_len,
            EmbeddingTerm::Constant { rows, .. } => *rows,
            EmbeddingTerm::Segment { .. } => 2,
            EmbeddingTerm::SinusoidalPosition { .. } => return,
        };
        self.tensor(at, table, [rows, x.width]);
    }

    fn row(&mut self, at: &Site, site: String, is_stream_site: bool) {
        self.rows.push(Row { layer: at.layer(), site, is_stream_site });
    }
}

impl Interpreter<'_> for Planner<'_> {
    type Signal = Form;
    type Gradient = ();
    type Kept = ();
    type Error = Infallible;

    fn source(&mut self, at: &Site, stream: &Stream) -> Result<Form, Infallible> {
        let form = self.signal(stream.seq_len, stream.source.width());
        self.enter(form);
        let shape = Shape { batch: self.settings.batch, seq_len: stream.seq_len };
        let (first_row, memories) = (self.rows.len(), BTreeSet::new());
        let same_ids_as = match &stream.source {
            Source::Embedding(embedding) => embedding.same_ids_as,
            Source::Gaussian(_) => None,
        };
        let ids_of = same_ids_as.map_or(at.stream(), |stream| &self.streams[stream].ids_of).to_owned();
        let planned = |ids| PlannedStream { name: at.stream().to_owned(), shape, ids, ids_of, first_row, memories };
        match &stream.source {
            Source::Gaussian(_) => self.streams.push(planned(PlannedIds::None)),
            Source::Embedding(embedding) => {
                self.streams.push(planned(match &embedding.ids {
                    Ids::Given(given) => PlannedIds::Given(given.sequences.clone()),
                    Ids::PowerLaw(law) => {
                        let sums = law.probabilities().into_iter().scan(0.0, |sum, probability| {
                            *sum += probability;
                            Some(*sum)
                        });
                        PlannedIds::Cumulative(sums.collect())
                    }
                }));
                for term in &embedding.terms {
                    self.term(at, term, embedding.ids.vocab_size(), form);
                }
            }
        }
        Ok(form)
    }

    fn source_backward(&mut self, _: &Site, _: &Stream, (): ()) -> Result<(), Infallible> {
        Ok(())
    }

    fn seed(&mut self, _: &Site, _: &GradientSeed, _: &Form) -> Result<(), Infallible> {
        Ok(())
    }

    fn apply(&mut self, at: &Site, component: &Component, x: Form) -> Result<(Form, ()), Infallible> {
        let output = match component {
            Component::Linear(linear) => self.linear(at, linear, x),
            Component::Convolution(conv) => {
                if self.settings.sampler == Sampling::Conditional && self.refusal.is_none() {
                    self.refusal = Some((at.to_string(), "a convolution uses its weights at every position"));
                }
                self.keep(x);
                let windows = Form { seq_len: conv.output_len(x.seq_len), ..x };
                self.need(self.array(Form { width: conv.taps() * conv.fan_in, ..windows }));
                self.linear(at, &convolution::of_windows(conv), windows)
            }
            Component::Pool(pool) => {
                self.keep(x);
                self.need(3.0 * self.array(x));
                self.signal(pool.sliding().windows(x.seq_len), x.width)
            }
            Component::Prepend(prepend) => {
                self.tensor(at, &prepend.token, [1, x.width]);
                self.signal(x.seq_len + 1, x.width)
            }
            Component::Embedding(term) => {
                self.term(at, term, 0, x);
                self.signal(x.seq_len, x.width)
            }
            Component::Norm(_) | Component::Activation(_) => {
                if let Component::Norm(norm) = component
                    && norm.has_own_gains()
                {
                    self.tensor(at, &Tensor { name: at.gain(), init: Init::Zero }, [x.width, 1]);
                }
                self.keep(x);
                self.need(3.0 * self.array(x));
                self.signal(x.seq_len, x.width)
            }
            Component::Select(select) => {
                self.need(2.0 * self.array(x));
                self.signal(x.seq_len, select.width)
            }
            Component::Dropout(_) | Component::Scale(_) | Component::Rotary(_) => {
                self.need(2.0 * self.array(x));
                self.signal(x.seq_len, x.width)
            }
        };
        Ok((output, ()))
    }

    fn apply_backward(&mut self, _: &Site, _: &Component, (): (), (): ()) -> Result<(), Infallible> {
        Ok(())
    }

    fn fork(&mut self, at: &Site, fan: Fan, input: &Form, part: usize) -> Form {
        match fan.input(part) {
            Input::Common => {}
            Input::Stream(stream) => drop(self.streams.last_mut().expect("inside a stream").memories.insert(stream)),
            // It stays in memory until the backward pass of the site, in all plans.
            Input::Site(_) => {
                if self.read.insert(input.id) {
                    self.besides += self.array(*input);
                }
            }
        }
        if at.is_stream_site() {
            self.part.input = self.array(*input);
        }
        match fan {
            Fan::Mixture(mixture) if mixture.weights_multiply == Multiplied::Inputs => {
                self.signal(input.seq_len, input.width)
            }
            Fan::Sum(_)
            | Fan::Product(_)
            | Fan::Concat(_)
            | Fan::Attention(_)
            | Fan::Recurrence(_)
            | Fan::Mixture(_) => *input,
        }
    }

    fn merge(&mut self, at: &Site, fan: Fan, x: Form, parts: Vec<Form>) -> Result<(Form, ()), Infallible> {
        let gradients: f64 = parts.iter().map(|&part| self.array(part)).sum();
        let (width, besides) = match fan {
            Fan::Sum(_) | Fan::Product(_) => (parts[0].width, 0.0),
            Fan::Concat(concat) => {
                let widths: Vec<usize> = parts.iter().map(|part| part.width).collect();
                (concat::width(concat, &widths), 0.0)
            }
            Fan::Attention(attention) => {
                if let Some(PositionBias::Relative { table, buckets, .. }) = &attention.bias {
                    self.tensor(at, table, [*buckets, attention.n_heads]);
                }
                if let Some(PositionBias::Disentangled(positions)) = &attention.bias {
                    self.positions(at, positions);
                }
                if let Some(sink) = &attention.sink {
                    self.tensor(at, sink, [attention.n_heads, 1]);
                }
                if self.settings.all_sites && at.is_observed() {
                    self.row(at, at.sibling("softmax"), false);
                }
                let matrices = 4.0 * ENTRY * x.seq_len as f64 * parts[1].seq_len as f64;
                (attention.n_heads * attention.d_value, 2.0 * gradients + matrices)
            }
            Fan::Mixture(mixture) => {
                self.tensor(at, &mixture.router, [mixture.n_experts, x.width]);
                self.keep(x);
                (parts[0].width, self.array(Form { width: mixture.n_experts, ..x }))
            }
            Fan::Recurrence(recurrence) => {
                if recurrence.skip.is_some() {
                    let skip = Tensor { name: at.parameter(".skip"), init: Init::Zero };
                    self.tensor(at, &skip, [recurrence.n_heads, 1]);
                }
                let temporary = ENTRY * recurrence::temporary_entries(recurrence, x.seq_len) as f64;
                (recurrence.n_heads * recurrence.d_value, temporary)
            }
        };
        if !matches!(fan, Fan::Sum(_)) {
            for &part in &parts {
                self.keep(part);
            }
        }
        let output = self.signal(parts[0].seq_len, width);
        self.need(gradients + 2.0 * self.array(output) + besides);
        Ok((output, ()))
    }

    fn split(&mut self, _: &Site, _: Fan, (): &mut (), (): ()) -> Result<Vec<()>, Infallible> {
        Ok(Vec::new())
    }

    fn join(&mut self, _: &Site, _: Fan, (): (), _: Vec<()>) -> Result<(), Infallible> {
        Ok(())
    }

    fn arrive(&mut self, _: Option<()>, (): ()) -> Result<(), Infallible> {
        Ok(())
    }

    fn observe(&mut self, at: &Site, signal: &Form) {
        if at.is_stream_site() {
            self.block.whole.path = at.to_string();
            self.blocks.push(mem::take(&mut self.block));
            self.enter(*signal);
        } else if at.depth() == 2 {
            let next = Node { input: self.array(*signal), ..Node::default() };
            self.block.parts.push(Node { path: at.to_string(), ..mem::replace(&mut self.part, next) });
        }
        if self.settings.all_sites || at.is_stream_site() {
            self.row(at, at.to_string(), at.is_stream_site());
        }
    }

    fn observe_gradient(&mut self, _: &Site, (): &()) {}
}
