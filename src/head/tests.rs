use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};
use rand_distr::{Distribution, StandardNormal};

use super::*;

const VOCABULARY: usize = 24;

/// Softmax of logits less one-hot.
fn residual(logits: &[f64; VOCABULARY], target: usize) -> [f64; VOCABULARY] {
    let total: f64 = logits.iter().map(|logit| logit.exp()).sum();
    std::array::from_fn(|v| logits[v].exp() / total - f64::from(u8::from(v == target)))
}

/// 100 000 pairs of tokens with logits of variance 1.5 and correlation 0.4, every third pair with one target;
/// |z| < 4 (α = 1e-4).
#[test]
fn moments_of_softmax_less_one_hot() {
    const PAIRS: usize = 100_000;
    let (variance, cosine, repeat) = (1.5_f64, 0.4_f64, 1.0 / 3.0 + 2.0 / 3.0 / VOCABULARY as f64);
    let expected = Residual::new(VOCABULARY as f64, variance, cosine, repeat);
    let mut generator = Xoshiro256PlusPlus::seed_from_u64(11);
    let mut sums = [[0.0; 2]; 2];
    for pair in 0..PAIRS {
        let mut normal = || -> f64 { StandardNormal.sample(&mut generator) };
        let common: [f64; VOCABULARY] = std::array::from_fn(|_| normal() * cosine.sqrt());
        let logits =
            [(); 2].map(|()| common.map(|shared| variance.sqrt() * (shared + (1.0 - cosine).sqrt() * normal())));
        let first = generator.random_range(0..VOCABULARY);
        let second = if pair % 3 == 0 { first } else { generator.random_range(0..VOCABULARY) };
        let [a, b] = [residual(&logits[0], first), residual(&logits[1], second)];
        let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
        for (sum, value) in sums.iter_mut().zip([dot(&a, &a), dot(&a, &b)]) {
            *sum = [sum[0] + value, sum[1] + value * value];
        }
    }
    for ([sum, squares], expected) in sums.into_iter().zip([expected.own, expected.between]) {
        let mean = sum / PAIRS as f64;
        let std_error = ((squares / PAIRS as f64 - mean * mean) / PAIRS as f64).sqrt();
        let z = (mean - expected) / std_error;
        assert!(z.abs() < 4.0, "expected {expected}, got {mean} ± {std_error}");
    }
}
