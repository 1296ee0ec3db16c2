//! What every replicate of a run has in common: a walk with widths alone lists the sites and the
//! tensors, and adds up the memory a replicate needs.

use std::{collections::HashMap, convert::Infallible};

use sigprop_stack::{Component, EmbeddingTerm, Fan, GradientSeed, Interpreter, Site, Source, Stack, Tensor, forward};

use crate::{Settings, array::Shape};

/// Bytes of an f32.
const ENTRY: f64 = 4.0;

/// The rows of a run and what its replicates share.
pub(crate) struct Plan {
    /// Tokens of a replicate.
    pub shape: Shape,
    /// The sites that get a row, in forward order.
    pub rows: Vec<Row>,
    /// Index of the stream where the gradient starts.
    pub seeded: usize,
    /// Number of rows at the end of that stream.
    pub gradient_end: usize,
    /// The tensors that get a gradient, in order of depth.
    pub tensors: Vec<PlannedTensor>,
    /// Where a tensor is among them, by name.
    pub tensor_index: HashMap<String, usize>,
    /// Distribution function of the ids of each stream; empty without ids.
    pub cumulative: Vec<Vec<f64>>,
    /// Largest memory of one replicate.
    pub bytes: f64,
}

/// A site that is told.
pub(crate) struct Row {
    pub layer: i64,
    pub site: String,
    pub is_stream_site: bool,
}

/// A tensor that is told.
pub(crate) struct PlannedTensor {
    pub layer: i64,
    pub tensor: Tensor,
    pub entries: f64,
    /// How often the stream uses it.
    pub uses: usize,
}

impl Plan {
    pub(crate) fn new(stack: &Stack, settings: &Settings) -> Self {
        let mut planner = Planner {
            shape: Shape { batch: settings.batch, seq_len: stack.seq_len },
            settings,
            seeded: stack.gradient.stream,
            rows: Vec::new(),
            ends: Vec::new(),
            tensors: Vec::new(),
            tensor_index: HashMap::new(),
            cumulative: Vec::new(),
            kept: 0.0,
            largest: 0.0,
        };
        let Ok(()) = forward(stack, &mut planner);
        planner.ends.push(planner.rows.len());
        let shared: f64 = planner.tensors.iter().filter(|t| t.uses > 1).map(|t| t.entries).sum();
        Plan {
            shape: planner.shape,
            seeded: stack.gradient.stream,
            gradient_end: planner.ends[stack.gradient.stream + 1],
            bytes: planner.kept + planner.largest + ENTRY * shared * settings.batch as f64,
            rows: planner.rows,
            tensors: planner.tensors,
            tensor_index: planner.tensor_index,
            cumulative: planner.cumulative,
        }
    }
}

/// Carries the width of a token.
struct Planner<'a> {
    shape: Shape,
    settings: &'a Settings,
    /// Index of the stream where the gradient starts.
    seeded: usize,
    rows: Vec<Row>,
    /// Number of rows at the start of each stream, then of all.
    ends: Vec<usize>,
    tensors: Vec<PlannedTensor>,
    tensor_index: HashMap<String, usize>,
    cumulative: Vec<Vec<f64>>,
    /// Bytes that stay until the backward pass.
    kept: f64,
    /// Bytes that the hungriest node needs besides.
    largest: f64,
}

impl Planner<'_> {
    fn tensor(&mut self, at: &Site, tensor: &Tensor, shape: [usize; 2]) {
        // Only the stream where the gradient starts is walked backward.
        let stream = self.ends.len() - 1;
        if !self.settings.weights || stream != self.seeded {
            return;
        }
        let index = *self.tensor_index.entry(tensor.name.clone()).or_insert(self.tensors.len());
        if index == self.tensors.len() {
            let entries = shape[0] as f64 * shape[1] as f64;
            self.tensors.push(PlannedTensor { layer: at.layer(), tensor: tensor.clone(), entries, uses: 0 });
        }
        self.tensors[index].uses += 1;
    }

    /// An array that stays until the backward pass.
    fn keep(&mut self, width: usize) {
        self.kept += self.array(width);
    }

    /// Entries that a node needs while it works.
    fn need(&mut self, bytes: f64) {
        self.largest = self.largest.max(bytes);
    }

    fn array(&self, width: usize) -> f64 {
        ENTRY * self.shape.tokens() as f64 * width as f64
    }

    fn row(&mut self, at: &Site, site: String, is_stream_site: bool) {
        self.rows.push(Row { layer: at.layer(), site, is_stream_site });
    }
}

impl Interpreter for Planner<'_> {
    type Signal = usize;
    type Gradient = ();
    type Kept = ();
    type Error = Infallible;

    fn source(&mut self, at: &Site, source: &Source) -> Result<usize, Infallible> {
        self.ends.push(self.rows.len());
        let width = source.width();
        self.keep(width);
        match source {
            Source::Gaussian(_) => self.cumulative.push(Vec::new()),
            Source::Embedding(embedding) => {
                let probabilities = embedding.ids.probabilities();
                let sums = probabilities.iter().scan(0.0, |sum, probability| {
                    *sum += probability;
                    Some(*sum)
                });
                self.cumulative.push(sums.collect());
                for term in &embedding.terms {
                    match term {
                        EmbeddingTerm::Token { table } => self.tensor(at, table, [probabilities.len(), width]),
                        EmbeddingTerm::LearnedPosition { table } => {
                            self.tensor(at, table, [self.shape.seq_len, width]);
                        }
                        EmbeddingTerm::Segment { table } => self.tensor(at, table, [2, width]),
                        EmbeddingTerm::SinusoidalPosition { .. } => {}
                    }
                }
            }
        }
        Ok(width)
    }

    fn source_backward(&mut self, _: &Site, _: &Source, (): ()) -> Result<(), Infallible> {
        Ok(())
    }

    fn seed(&mut self, _: &Site, _: &GradientSeed, _: &usize) -> Result<(), Infallible> {
        Ok(())
    }

    fn apply(&mut self, at: &Site, component: &Component, width: usize) -> Result<(usize, ()), Infallible> {
        let output = match component {
            Component::Linear(linear) => {
                self.tensor(at, &linear.weight, [linear.fan_out, linear.fan_in]);
                if let Some(bias) = &linear.bias {
                    self.tensor(at, bias, [linear.fan_out, 1]);
                }
                // The weight, and its gradient.
                let matrices = if self.settings.weights { 2.0 } else { 1.0 };
                let gradients = self.array(linear.fan_in) + self.array(linear.fan_out);
                self.need(ENTRY * matrices * linear.fan_in as f64 * linear.fan_out as f64 + gradients);
                linear.fan_out
            }
            Component::Norm(_) | Component::Activation(_) | Component::Dropout(_) => {
                self.need(2.0 * self.array(width));
                width
            }
        };
        self.keep(output);
        Ok((output, ()))
    }

    fn apply_backward(&mut self, _: &Site, _: &Component, (): (), (): ()) -> Result<(), Infallible> {
        Ok(())
    }

    fn fork(&mut self, _: &Site, input: &usize) -> usize {
        *input
    }

    fn merge(&mut self, at: &Site, fan: Fan, _: usize, parts: Vec<usize>) -> Result<(usize, ()), Infallible> {
        let gradients: f64 = parts.iter().map(|&width| self.array(width)).sum();
        // The output is as wide as the first part: a branch, a factor, the queries.
        let width = parts[0];
        let matrices = match fan {
            Fan::Sum(_) | Fan::Product(_) => 0.0,
            Fan::Attention(_) => {
                if self.settings.all_sites {
                    self.row(at, at.sibling("softmax"), false);
                }
                3.0 * ENTRY * (self.shape.seq_len as f64).powi(2)
            }
        };
        self.need(gradients + self.array(width) + matrices);
        self.keep(width);
        Ok((width, ()))
    }

    fn split(&mut self, _: &Site, _: Fan, (): &mut (), (): ()) -> Result<Vec<()>, Infallible> {
        Ok(Vec::new())
    }

    fn join(&mut self, _: &Site, _: Fan, (): (), _: Vec<()>) -> Result<(), Infallible> {
        Ok(())
    }

    fn observe(&mut self, at: &Site, _: &usize) {
        if self.settings.all_sites || at.is_stream_site() {
            self.row(at, at.to_string(), at.is_stream_site());
        }
    }

    fn observe_gradient(&mut self, _: &Site, (): &()) {}
}
