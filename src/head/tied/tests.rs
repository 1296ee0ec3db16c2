//! Comparison with sampled networks whose blocks are Gaussian noise; both gradients of the table are computed by hand.

use rand::{SeedableRng, rngs::Xoshiro256PlusPlus};
use rand_distr::{Distribution, StandardNormal, weighted::WeightedIndex};
use sigprop_stack::PowerLaw;

use super::super::residual::RowGroup;
use super::*;

const VOCABULARY: usize = 64;
const WIDTH: usize = 128;
const TOKENS: usize = 8;

type Vector = [f64; WIDTH];

fn dot(a: &Vector, b: &Vector) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Returns the output of RMSNorm, and the divisor of its backward pass.
fn normed(x: &Vector) -> (Vector, f64) {
    let size = (dot(x, x) / WIDTH as f64).sqrt();
    (x.map(|entry| entry / size), size)
}

fn back(gradient: &Vector, (normed, size): &(Vector, f64)) -> Vector {
    let along = dot(gradient, normed) / WIDTH as f64;
    std::array::from_fn(|i| (gradient[i] - along * normed[i]) / size)
}

/// A tied network: embeddings of standard deviation `std`, with or without a norm after them, noise, and a last norm.
/// The noise is the share 1 − `square` of the variance of the sum, and half of it is the same for all tokens.
struct Network {
    std: f64,
    square: f64,
    norm_first: bool,
}

impl Network {
    fn predicted(&self, law: &PowerLaw) -> f64 {
        let [two, three, four] = [2, 3, 4].map(|count| law.repeat_probability(count));
        let logits = Logits {
            vocab_size: VOCABULARY as f64,
            rows: vec![RowGroup { count: VOCABULARY as f64, weight: 1.0 }],
            width: WIDTH as f64,
            variance: WIDTH as f64 * self.std * self.std,
            softcap: None,
            cosine: self.square * two + 0.5 * (1.0 - self.square),
            own: self.square,
            repeats: Repeats { two, three, four },
            seq_len: TOKENS as f64,
        };
        let (kept, radial) = if self.norm_first { (0.0, self.square - 1.0) } else { (1.0 - self.square, 0.0) };
        Residual::tied(&logits, &Own { cosine: self.square.sqrt(), kept, radial }).table
    }

    /// Returns (Σ_v |dW_v|² + 2 Σ_v dW_v·de_v) L/n of one sampled network.
    fn sample(&self, probabilities: &WeightedIndex<f64>, generator: &mut Xoshiro256PlusPlus) -> f64 {
        let ids: [usize; TOKENS + 1] = std::array::from_fn(|_| probabilities.sample(generator));
        let mut normal = |std: f64| -> Vector {
            std::array::from_fn(|_| {
                let z: f64 = StandardNormal.sample(generator);
                std * z
            })
        };
        let table: Vec<Vector> = (0..VOCABULARY).map(|_| normal(self.std)).collect();
        let level = if self.norm_first { 1.0 } else { self.std };
        let noise = level * (0.5 * (1.0 - self.square) / self.square).sqrt();
        let common = normal(noise);
        let [mut heads, mut embeddings] = [(); 2].map(|()| vec![[0.0; WIDTH]; VOCABULARY]);
        for token in 0..TOKENS {
            let (id, target, own) = (ids[token], ids[token + 1], normal(noise));
            let first = self.norm_first.then(|| normed(&table[id]));
            let start = first.map_or(table[id], |(start, _)| start);
            let end = normed(&std::array::from_fn(|i| start[i] + common[i] + own[i]));
            let logits: Vec<f64> = table.iter().map(|row| dot(row, &end.0)).collect();
            let total: f64 = logits.iter().map(|logit| logit.exp()).sum();
            let mut gradient = [0.0; WIDTH];
            for (v, row) in table.iter().enumerate() {
                let residual = logits[v].exp() / total - f64::from(u8::from(v == target));
                for i in 0..WIDTH {
                    heads[v][i] += residual * end.0[i];
                    gradient[i] += residual * row[i];
                }
            }
            gradient = back(&gradient, &end);
            gradient = first.map_or(gradient, |first| back(&gradient, &first));
            for i in 0..WIDTH {
                embeddings[id][i] += gradient[i];
            }
        }
        let rows = heads.iter().zip(&embeddings);
        let sum: f64 = rows.map(|(head, embedding)| dot(head, head) + 2.0 * dot(head, embedding)).sum();
        sum / (TOKENS * WIDTH) as f64
    }
}

/// Averages over 2000 networks each, within |z| < 4 (α = 6e-5).
#[test]
fn tables_gather_both_gradients() {
    const NETWORKS: usize = 2000;
    let law = PowerLaw { vocab_size: VOCABULARY, exponent: 1.0 };
    let probabilities = WeightedIndex::new(law.probabilities()).expect("positive");
    let mut generator = Xoshiro256PlusPlus::seed_from_u64(17);
    for (std, square, norm_first) in [(0.02, 0.9, false), (0.02, 0.5, true), (1.0, 0.5, false), (1.0, 0.5, true)] {
        let network = Network { std, square, norm_first };
        let expected = network.predicted(&law);
        let samples: Vec<f64> = (0..NETWORKS).map(|_| network.sample(&probabilities, &mut generator)).collect();
        let mean = samples.iter().sum::<f64>() / NETWORKS as f64;
        let variance = samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / (NETWORKS - 1) as f64;
        let std_error = (variance / NETWORKS as f64).sqrt();
        let z = (mean - expected) / std_error;
        assert!(z.abs() < 4.0, "std {std}, c² {square}: expected {expected}, got {mean} ± {std_error}");
    }
}
