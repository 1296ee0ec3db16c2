//! Mean rows of attention beside averages over drawn scores.

use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use sigprop_stack::Mask;

use super::*;
use crate::domain::Concentration;

/// α of 6e-5 per number.
const LARGEST_Z: f64 = 4.0;
const DRAWS: usize = 100_000;
const SCORE_VARIANCES: [f64; 3] = [1.0, 4.0, 14.5];

/// The group of every key.
fn group_of_keys(sizes: &[usize]) -> Vec<usize> {
    sizes.iter().enumerate().flat_map(|(group, &size)| std::iter::repeat_n(group, size)).collect()
}

fn keys(groups: &[usize], cosine: f64) -> Matrix {
    let entry = |i: usize, j: usize| match groups[i] == groups[j] {
        true if i == j => 1.0,
        true => cosine,
        false => 0.0,
    };
    Matrix::symmetric(groups.len(), entry)
}

/// Predicted E A_a·V A_c − P_V, V = K, of two rows that see all keys with queries of correlation 0.
fn predicted(k: &Matrix, score_variance: f64) -> f64 {
    let n = k.rows;
    let signal = Signal::new(vec![Token::gaussian(1e9, 0.0); n].into(), vec![1.0; n * n].into());
    let queries = Queries::of(&signal);
    let head = Head::new(
        Averages::new(Mask::FULL, n, n, 0.0),
        &mut Overlaps::new(n as f64),
        ([1e9, 1e-9], Unequal::of(&signal), Concentration::NONE),
        score_variance,
        &queries,
        (k, None),
        k,
    );
    let moved = head.moved(k).map_or(0.0, |moved| moved.row(0)[1]);
    head.first_order(score_variance, &queries, (0.0, &head.shift), 0, 1) + moved
}

/// Attention weights of drawn scores: every group of keys has the part `cosine` of its score variance in common.
fn draw(groups: &[usize], cosine: f64, score_variance: f64, rng: &mut ChaCha8Rng) -> Vec<f64> {
    let mut normal = || -> f64 { StandardNormal.sample(rng) };
    let common: Vec<f64> = (0..=groups[groups.len() - 1]).map(|_| normal()).collect();
    let score = |&group: &usize| cosine.sqrt() * common[group] + (1.0 - cosine).sqrt() * normal();
    let weights: Vec<f64> = groups.iter().map(score).map(|score| (score_variance.sqrt() * score).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / total).collect()
}

/// One pair of 32 keys with the cosine c, to first order in c: E A_b of the pair, from the same draws without the cosine.
#[test]
fn an_alike_pair_is_chosen_less_often() {
    const N: usize = 32;
    const COSINE: f64 = 0.1;
    let groups: Vec<usize> =
        (0..N - 1).flat_map(|group| std::iter::repeat_n(group, if group == 0 { 2 } else { 1 })).collect();
    let k = keys(&groups, COSINE);
    // (V W)_b of the pair less that of the others: P_V is linear in it.
    let apart = COSINE / N as f64;
    for score_variance in SCORE_VARIANCES {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..DRAWS {
            let mut scores: [f64; N] = std::array::from_fn(|_| StandardNormal.sample(&mut rng));
            let pair = |scores: &[f64; N]| {
                let weights = scores.map(|score| (score_variance.sqrt() * score).exp());
                (weights[0] + weights[1]) / weights.iter().sum::<f64>()
            };
            let unlike = pair(&scores);
            scores[1] = COSINE * scores[0] + (1.0 - COSINE * COSINE).sqrt() * scores[1];
            let moved = 2.0 * apart * (pair(&scores) - unlike);
            sum += moved;
            squares += moved * moved;
        }
        let mean = sum / DRAWS as f64;
        let error = ((squares / DRAWS as f64 - mean * mean) / DRAWS as f64).sqrt();
        let told = predicted(&k, score_variance);
        assert!((told - mean).abs() < LARGEST_Z * error, "{score_variance}: {told}, sampled {mean} ± {error}");
    }
}

/// 14 ids with 58 of 128 tokens, the other tokens alone; equal ids are copies or have a cosine of ½.
#[test]
fn mean_rows_of_repeated_keys() {
    /// Part of what scores move that is neglected: nodes, and response to pairs beyond the first order.
    const NEGLECTED: f64 = 0.15;
    const PARTS: usize = 20;
    let mut sizes = vec![13, 8, 6, 5, 4, 4, 3, 3, 2, 2, 2, 2, 2, 2];
    sizes.resize(sizes.len() + 70, 1);
    let groups = group_of_keys(&sizes);
    let n = groups.len();
    for cosine in [0.5, 1.0] {
        let k = keys(&groups, cosine);
        let flat = k.entries.iter().sum::<f64>() / (n * n) as f64;
        for score_variance in SCORE_VARIANCES {
            let mut rng = ChaCha8Rng::seed_from_u64(11);
            let mut mean_row = || {
                let mut mean = vec![0.0; n];
                for _ in 0..DRAWS / (2 * PARTS) {
                    let weights = draw(&groups, cosine, score_variance, &mut rng);
                    mean.iter_mut().zip(weights).for_each(|(mean, weight)| *mean += weight);
                }
                mean.into_iter().map(|sum| sum * (2 * PARTS) as f64 / DRAWS as f64).collect::<Vec<f64>>()
            };
            // Means of independent draws: their product has no bias.
            let products: Vec<f64> = (0..PARTS)
                .map(|_| [mean_row(), mean_row()])
                .map(|[one, other]| k.met(|i, j| one[i] * other[j]) - flat)
                .collect();
            let mean = products.iter().sum::<f64>() / PARTS as f64;
            let variance = products.iter().map(|product| (product - mean).powi(2)).sum::<f64>() / (PARTS - 1) as f64;
            let error = (variance / PARTS as f64).sqrt();
            let told = predicted(&k, score_variance);
            assert!(
                (told - mean).abs() < NEGLECTED * mean.abs() + LARGEST_Z * error,
                "{cosine}, {score_variance}: {told}, sampled {mean} ± {error}"
            );
        }
    }
}
