//! Random numbers that can be generated again: one stream per (seed, replicate, purpose, name, index).
//!
//! Weights and masks are not kept for the backward pass but sampled a second time, and a table with 10⁵ rows is sampled
//! only where it is looked up. Therefore every row of a tensor has its own stream. The words that name a stream are
//! hashed into its key, 256 bits, by four chains of SplitMix64. The output of a stream is defined in [`lanes`].

use std::sync::Arc;

use rand::{SeedableRng, rngs::Xoshiro256PlusPlus};
use sigprop_stack::{Init, Tensor};

use crate::{
    fill::fill_rows,
    lanes::{self, Key, split_mix},
    orthogonal::Orthogonal,
    scalar::Scalar,
    weights::ByTensor,
};

/// A stream for single numbers, such as token ids. xoshiro256++ is fixed by its definition, unlike `StdRng`.
pub(crate) type Generator = Xoshiro256PlusPlus;

/// The purpose of a stream: the same name may be used once for each.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    /// Entries of a tensor, with the row as the index. If only products of the tensor are sampled: coordinates of its
    /// rows, with the coordinate as the index.
    Weight,
    /// Token ids or Gaussian input.
    Input,
    /// Dropout and stochastic depth.
    Mask,
    /// The gradient that starts the backward pass.
    Gradient,
    /// The action of a weight on directions outside the span of its input.
    Rest,
}

/// All streams of one replicate.
#[derive(Clone)]
pub(crate) struct Random {
    key: Key,
    expert: Option<usize>,
    changes: Option<Changes>,
}

/// Changes of parameters, `factor` times `steps`, that are added after the parameters are sampled.
#[derive(Clone)]
pub(crate) struct Changes {
    pub(crate) steps: Arc<ByTensor<f32>>,
    pub(crate) factor: f64,
}

/// The streams of one name.
pub(crate) struct Streams {
    key: Key,
}

/// The rows of a tensor, or of another array with the same distribution.
pub(crate) struct Rows<'a> {
    random: &'a Random,
    tensor: &'a Tensor,
    samples: Samples,
}

/// The source of the entries of a tensor.
enum Samples {
    /// Independent entries, with one stream per row.
    Independent(Streams),
    /// Entries that were sampled together.
    Orthogonal(Orthogonal),
}

impl Rows<'_> {
    /// Samples row `row`.
    pub(crate) fn draw<T: Scalar>(&self, row: usize, out: &mut [T]) {
        match &self.samples {
            Samples::Independent(streams) => streams.fill(row, self.tensor.init, out),
            Samples::Orthogonal(matrix) => matrix.row(row, out),
        }
        self.random.change(&self.tensor.name, row, out);
    }
}

impl Random {
    /// The streams of replicate `replicate` of a run.
    pub(crate) fn new(seed: u64, replicate: usize) -> Self {
        Self { key: absorb(absorb([1, 2, 3, 4], seed), replicate as u64), expert: None, changes: None }
    }

    /// Returns the same streams with changed parameters. Weights must then be sampled directly, not conditionally.
    pub(crate) fn changed(&self, changes: Changes) -> Self {
        Self { key: self.key, expert: self.expert, changes: Some(changes) }
    }

    /// Returns the streams of one expert of a mixture, in which a tensor represents one tensor per expert; `None`
    /// returns the same streams.
    pub(crate) fn of_expert(&self, expert: Option<usize>) -> Self {
        match expert {
            Some(number) => Self { key: absorb(self.key, number as u64 + 1), expert, changes: self.changes.clone() },
            None => self.clone(),
        }
    }

    /// Returns true if a tensor is known to be zero.
    pub(crate) fn is_zero(&self, tensor: &Tensor) -> bool {
        tensor.init == Init::Zero && self.changes.is_none()
    }

    /// Returns the gains of a norm if parameters have been changed; `None` if not, so that all gains are `gain`.
    pub(crate) fn changed_gains<T: Scalar>(&self, name: &str, gain: f64, width: usize) -> Option<Vec<T>> {
        self.changes.as_ref()?;
        let mut gains = vec![T::from_f64(gain); width];
        self.change(name, 0, &mut gains);
        Some(gains)
    }

    /// Adds the change of row `row` of the parameter `name` to `out`, if there is one.
    pub(crate) fn change<T: Scalar>(&self, name: &str, row: usize, out: &mut [T]) {
        let Some(Changes { steps, factor }) = &self.changes else { return };
        let step = steps.get(&(name.to_owned(), self.expert)).and_then(|step| step.row(row, out.len()));
        for (entry, step) in out.iter_mut().zip(step.into_iter().flatten()) {
            *entry += T::from_f64(factor * f64::from(*step));
        }
    }

    /// The streams of one name.
    pub(crate) fn streams(&self, purpose: Purpose, name: &str) -> Streams {
        Streams { key: absorb(absorb(self.key, purpose as u64), fnv1a(name)) }
    }

    /// The rows of a tensor of independent entries, one by one.
    pub(crate) fn rows_of<'a>(&'a self, purpose: Purpose, tensor: &'a Tensor) -> Rows<'a> {
        Rows { random: self, tensor, samples: Samples::Independent(self.streams(purpose, &tensor.name)) }
    }

    /// The rows of the weight of a linear map, of this shape, one by one.
    pub(crate) fn rows_of_matrix<'a>(&'a self, tensor: &'a Tensor, shape: [usize; 2]) -> Rows<'a> {
        let streams = self.streams(Purpose::Weight, &tensor.name);
        let samples = match tensor.init {
            Init::Orthogonal { std } => Samples::Orthogonal(Orthogonal::sample(&streams, std, shape)),
            Init::Zero | Init::Normal { .. } | Init::Uniform { .. } | Init::TruncatedNormal { .. } => {
                Samples::Independent(streams)
            }
        };
        Rows { random: self, tensor, samples }
    }

    /// Samples row `row` of a tensor of independent entries.
    pub(crate) fn tensor_row<T: Scalar>(&self, tensor: &Tensor, row: usize, out: &mut [T]) {
        self.rows_of(Purpose::Weight, tensor).draw(row, out);
    }

    /// Fills `out` with the first rows, of length `width`, of a tensor or of another array with the same distribution.
    pub(crate) fn rows<T: Scalar>(&self, purpose: Purpose, tensor: &Tensor, width: usize, out: &mut [T]) {
        let rows = self.rows_of(purpose, tensor);
        fill_rows(width, out, |row, out| rows.draw(row, out));
    }
}

/// Samples row `row` of a weight with N(0, 1) entries from the seed `seed`. Only benchmarks use it.
#[doc(hidden)]
pub fn draw_normals(seed: u64, row: usize, out: &mut [f32]) {
    let tensor = Tensor { name: String::new(), init: Init::Normal { std: 1.0 } };
    Random::new(seed, 0).tensor_row(&tensor, row, out);
}

/// The tensors of the first replicate of a seed, row by row.
pub struct Draws {
    random: Random,
    /// The orthogonal weight whose rows were sampled last, by its name and expert.
    orthogonal: Option<((String, Option<usize>), Orthogonal)>,
}

impl Draws {
    /// The tensors of the first replicate of seed `seed`.
    pub fn new(seed: u64) -> Self {
        Self { random: Random::new(seed, 0), orthogonal: None }
    }

    /// Samples row `row` of a tensor with `rows` rows; `expert` is the index of its expert, or `None` outside mixtures.
    pub fn row(&mut self, tensor: &Tensor, expert: Option<usize>, rows: usize, row: usize, out: &mut [f32]) {
        let random = self.random.of_expert(expert);
        let Init::Orthogonal { std } = tensor.init else { return random.tensor_row(tensor, row, out) };
        let key = (tensor.name.clone(), expert);
        if self.orthogonal.as_ref().is_none_or(|(of, _)| *of != key) {
            let streams = random.streams(Purpose::Weight, &tensor.name);
            self.orthogonal = Some((key, Orthogonal::sample(&streams, std, [rows, out.len()])));
        }
        if let Some((_, matrix)) = &self.orthogonal {
            matrix.row(row, out);
        }
    }
}

impl Streams {
    /// The generator of stream `index`, for single numbers.
    pub(crate) fn stream(&self, index: usize) -> Generator {
        let mut state = [0; 32];
        for (bytes, word) in state.chunks_exact_mut(8).zip(self.key(index)) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Generator::from_seed(state)
    }

    /// Fills `out` with independent samples from stream `index`.
    pub(crate) fn fill<T: Scalar>(&self, index: usize, init: Init, out: &mut [T]) {
        let key = self.key(index);
        match init {
            Init::Zero => out.fill(T::default()),
            Init::Normal { std } => lanes::normal(key, std, out),
            Init::Uniform { bound } => lanes::uniform(key, bound, out),
            Init::TruncatedNormal { std, cutoff } => lanes::truncated_normal(key, std, cutoff, out),
            Init::Orthogonal { .. } => unreachable!("only weights of linear maps are orthogonal, in a checked stack"),
        }
    }

    /// Multiplies every entry by 1/(1 − `rate`), or by zero with probability `rate`, from stream `index`.
    pub(crate) fn mask<T: Scalar>(&self, index: usize, rate: f64, entries: &mut [T]) {
        lanes::mask(self.key(index), rate, entries);
    }

    fn key(&self, index: usize) -> Key {
        absorb(self.key, index as u64)
    }
}

/// Appends a word to four hash chains.
fn absorb(key: Key, word: u64) -> Key {
    key.map(|chain| split_mix(chain ^ word, 1))
}

/// FNV-1a hash of a name, 64 bits.
fn fnv1a(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, init: Init) -> Tensor {
        Tensor { name: name.to_owned(), init }
    }

    #[test]
    fn a_row_drawn_alone_equals_the_row_of_the_whole() {
        let random = Random::new(7, 3);
        let weight = tensor("w", Init::Normal { std: 0.5 });
        let (mut whole, mut row) = ([0f32; 12], [0f32; 4]);
        random.rows(Purpose::Weight, &weight, 4, &mut whole);
        random.tensor_row(&weight, 2, &mut row);
        assert_eq!(whole[8..].iter().map(|x| x.to_bits()).collect::<Vec<_>>(), row.map(f32::to_bits));
    }

    #[test]
    fn streams_differ_in_every_part_of_their_key() {
        let first =
            |seed, replicate, purpose, name, index| Random::new(seed, replicate).streams(purpose, name).key(index);
        let mut draws = vec![
            first(0, 0, Purpose::Weight, "a", 0),
            first(1, 0, Purpose::Weight, "a", 0),
            first(0, 1, Purpose::Weight, "a", 0),
            first(0, 0, Purpose::Mask, "a", 0),
            first(0, 0, Purpose::Weight, "b", 0),
            first(0, 0, Purpose::Weight, "a", 1),
        ];
        draws.sort_unstable();
        draws.dedup();
        assert_eq!(draws.len(), 6);
    }

    /// Mean and variance of every distribution by z-score; α = 1e-5 two-sided per check (|z| < 4.4).
    #[test]
    fn weights_have_the_variance_of_their_distribution() {
        const ENTRIES: usize = 100_000;
        for init in [
            Init::Zero,
            Init::Normal { std: 0.3 },
            Init::Uniform { bound: 0.7 },
            Init::TruncatedNormal { std: 0.3, cutoff: 2.0 },
            Init::TruncatedNormal { std: 0.3, cutoff: 0.5 },
        ] {
            let mut draws = vec![0f64; ENTRIES];
            Random::new(1, 0).rows(Purpose::Weight, &tensor("w", init), 100, &mut draws);
            let mean = draws.iter().sum::<f64>() / ENTRIES as f64;
            let variance = draws.iter().map(|x| x * x).sum::<f64>() / ENTRIES as f64;
            let fourth = draws.iter().map(|x| x.powi(4)).sum::<f64>() / ENTRIES as f64;
            let mean_error = (init.variance() / ENTRIES as f64).sqrt();
            let variance_error = ((fourth - variance * variance) / ENTRIES as f64).sqrt();
            assert!(mean.abs() <= 4.4 * mean_error, "{init:?}: mean {mean}");
            assert!((variance - init.variance()).abs() <= 4.4 * variance_error, "{init:?}: variance {variance}");
        }
    }
}
