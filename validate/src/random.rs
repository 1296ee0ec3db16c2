//! Random numbers that can be drawn again: one stream per (seed, replicate, purpose, name, index).
//!
//! Weights and masks are not kept for the backward pass but drawn a second time, and a table with
//! 10⁵ rows is drawn only where it is looked up; so every row of a tensor has its own stream. The
//! four words that name a stream are hashed into the 256 bits of state of xoshiro256++ by four
//! chains of the finaliser of SplitMix64 (Steele, Lea, Flood 2014), which also seeds the xoshiro
//! family in its authors' code. xoshiro256++ is fixed by its definition, unlike `StdRng`, and draws
//! normals 2.5 times as fast as ChaCha8.

use rand::{Rng, RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};
use rand_distr::{Distribution, StandardNormal};
use sigprop_stack::{Init, Tensor};

use crate::scalar::Scalar;

/// One stream of random numbers.
pub(crate) type Generator = Xoshiro256PlusPlus;

/// What a stream is for: the same name may be used once for each.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    /// Entries of a tensor; the index is its row.
    Weight,
    /// Token ids or Gaussian input.
    Input,
    /// Dropout and stochastic depth.
    Mask,
    /// The gradient that starts the backward pass.
    Gradient,
}

/// All streams of one replicate.
#[derive(Clone, Copy)]
pub(crate) struct Random {
    lanes: [u64; 4],
}

/// The streams of one name.
pub(crate) struct Streams {
    lanes: [u64; 4],
}

impl Random {
    /// The streams of replicate `replicate` of a run.
    pub(crate) fn new(seed: u64, replicate: usize) -> Self {
        Self { lanes: absorb(absorb([1, 2, 3, 4], seed), replicate as u64) }
    }

    /// The streams of one expert of a mixture, whose tensors stand for one per expert.
    pub(crate) fn of_expert(&self, expert: Option<usize>) -> Self {
        match expert {
            Some(expert) => Self { lanes: absorb(self.lanes, expert as u64 + 1) },
            None => *self,
        }
    }

    /// The streams of one name.
    pub(crate) fn streams(&self, purpose: Purpose, name: &str) -> Streams {
        Streams { lanes: absorb(absorb(self.lanes, purpose as u64), fnv1a(name)) }
    }

    /// Row `row` of a tensor.
    pub(crate) fn tensor_row<T: Scalar>(&self, tensor: &Tensor, row: usize, out: &mut [T]) {
        fill(tensor.init, &mut self.streams(Purpose::Weight, &tensor.name).stream(row), out);
    }

    /// A whole tensor with rows of length `width`.
    pub(crate) fn tensor<T: Scalar>(&self, tensor: &Tensor, width: usize, out: &mut [T]) {
        let streams = self.streams(Purpose::Weight, &tensor.name);
        for (row, out) in out.chunks_exact_mut(width).enumerate() {
            fill(tensor.init, &mut streams.stream(row), out);
        }
    }
}

impl Streams {
    /// One stream.
    pub(crate) fn stream(&self, index: usize) -> Generator {
        let mut state = [0; 32];
        for (bytes, lane) in state.chunks_exact_mut(8).zip(absorb(self.lanes, index as u64)) {
            bytes.copy_from_slice(&lane.to_le_bytes());
        }
        Generator::from_seed(state)
    }
}

/// Appends a word to four hash chains.
fn absorb(lanes: [u64; 4], word: u64) -> [u64; 4] {
    lanes.map(|lane| {
        let mut mixed = (lane ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}

/// FNV-1a hash of a name, 64 bits.
fn fnv1a(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Fills `out` with independent draws.
fn fill<T: Scalar>(init: Init, generator: &mut Generator, out: &mut [T]) {
    match init {
        Init::Zero => out.fill(T::default()),
        Init::Normal { std } => out.fill_with(|| T::from_f64(std * normal(generator))),
        Init::Uniform { bound } => out.fill_with(|| T::from_f64(bound * (2.0 * generator.random::<f64>() - 1.0))),
        Init::TruncatedNormal { std, cutoff } => {
            out.fill_with(|| T::from_f64(std * truncated_normal(cutoff, generator)));
        }
    }
}

/// N(0, 1).
pub(crate) fn normal(generator: &mut Generator) -> f64 {
    StandardNormal.sample(generator)
}

/// N(0, 1) conditioned on |z| ≤ `cutoff`, by rejection from whichever proposal is kept more often.
fn truncated_normal(cutoff: f64, generator: &mut Generator) -> f64 {
    loop {
        if cutoff > 1.0 {
            let z = normal(generator);
            if z.abs() <= cutoff {
                return z;
            }
        } else {
            let z = cutoff * (2.0 * generator.random::<f64>() - 1.0);
            if generator.random::<f64>() <= (-0.5 * z * z).exp() {
                return z;
            }
        }
    }
}

/// Multiplies every entry by 1/(1 − `rate`), or by zero with probability `rate`.
pub(crate) fn mask<T: Scalar>(rate: f64, generator: &mut Generator, entries: &mut [T]) {
    // The probability is met to 2^−32.
    let threshold = (rate * 2f64.powi(32)) as u32;
    let survivor = T::from_f64(1.0 / (1.0 - rate));
    for x in entries {
        *x *= if generator.next_u32() < threshold { T::default() } else { survivor };
    }
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
        random.tensor(&weight, 4, &mut whole);
        random.tensor_row(&weight, 2, &mut row);
        assert_eq!(whole[8..].iter().map(|x| x.to_bits()).collect::<Vec<_>>(), row.map(f32::to_bits));
    }

    #[test]
    fn streams_differ_in_every_part_of_their_key() {
        let first = |seed, replicate, purpose, name, index| {
            Random::new(seed, replicate).streams(purpose, name).stream(index).next_u64()
        };
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
            Random::new(1, 0).tensor(&tensor("w", init), 100, &mut draws);
            let mean = draws.iter().sum::<f64>() / ENTRIES as f64;
            let variance = draws.iter().map(|x| x * x).sum::<f64>() / ENTRIES as f64;
            let fourth = draws.iter().map(|x| x.powi(4)).sum::<f64>() / ENTRIES as f64;
            let mean_error = (init.variance() / ENTRIES as f64).sqrt();
            let variance_error = ((fourth - variance * variance) / ENTRIES as f64).sqrt();
            assert!(mean.abs() <= 4.4 * mean_error, "{init:?}: mean {mean}");
            assert!((variance - init.variance()).abs() <= 4.4 * variance_error, "{init:?}: variance {variance}");
        }
    }

    #[test]
    fn masks_zero_with_their_rate_and_keep_the_mean() {
        let mut entries = vec![1f64; 100_000];
        mask(0.2, &mut Random::new(0, 0).streams(Purpose::Mask, "m").stream(0), &mut entries);
        let zeros = entries.iter().filter(|x| x.abs() < 0.5).count() as f64;
        let z = (zeros - 20_000.0) / (100_000.0f64 * 0.2 * 0.8).sqrt();
        // α = 1e-5.
        assert!(z.abs() < 4.4, "z = {z}");
        assert!(entries.iter().all(|x| x.abs() < 0.5 || (x - 1.25).abs() < 1e-12));
    }
}
