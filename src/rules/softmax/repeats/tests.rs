use approx::assert_relative_eq;
use rand::{SeedableRng, rngs::Xoshiro256PlusPlus};
use rand_distr::{Distribution, StandardNormal};

use super::*;
use crate::rules::softmax::integrals::row_overlaps;
use crate::rules::softmax::over_two_keys;

fn repeats(ids: &[(f64, f64)]) -> Repeats {
    Repeats { ids: ids.to_vec(), key: 0 }
}

/// Σ N = V − the ids that are not there, Σ N m = L, and Σ N m (m − 1) …, whose expectations are L (L − 1) … Σ p^k.
#[test]
fn ids_are_as_many_as_expected() {
    for (vocab_size, exponent, length) in [(1000, 1.0, 64.0), (30_000, 1.0, 256.0), (50, 0.0, 512.0), (1, 1.0, 8.0)] {
        let law = PowerLaw { vocab_size, exponent };
        let got = Repeats::of(law, length as usize);
        assert_relative_eq!(got.length(), length, max_relative = 1e-6);
        let pairs = got.ids.iter().map(|(ids, m)| ids * m * (m - 1.0)).sum::<f64>();
        let expected = length * (length - 1.0) * law.repeat_probability(2);
        // Ranks and numbers of tokens are taken together.
        assert_relative_eq!(pairs, expected, max_relative = 4e-3);
    }
}

/// With likeness 0 keys are by themselves, with 1 whole ids are.
#[test]
fn ends_are_rows_of_keys_and_of_groups() {
    for w in [0.3, 1.0, 4.0] {
        let [s2, s3, _, s22, ..] = row_overlaps(32.0, w);
        let got = Repeated::of(integrated(&[(8.0, 2.0), (4.0, 4.0)], w, 0.0));
        let ([_, q], [_, mean], [.., passed]) = (got.own, got.mean, got.passed());
        assert_relative_eq!(q, s2, max_relative = 1e-4);
        assert_relative_eq!(mean, 1.0 / 32.0, max_relative = 1e-4);
        assert_relative_eq!(passed, s2 - 2.0 * s3 + s22, max_relative = 1e-4);

        // Two ids with three quarters and one quarter of the keys.
        let expect = |f: &dyn Fn(f64) -> f64| over_two_keys(w, f);
        let squares = |a: f64| a * a + (1.0 - a).powi(2);
        let got = Repeated::of(integrated(&[(1.0, 24.0), (1.0, 8.0)], w, 1.0));
        let ([g, _], [mean, _], [passed, ..]) = (got.own, got.mean, got.passed());
        let third = expect(&|a| a.powi(3) + (1.0 - a).powi(3));
        assert_relative_eq!(g, expect(&squares), max_relative = 1e-4);
        assert_relative_eq!(mean, squares(expect(&|a| a)), max_relative = 1e-4);
        assert_relative_eq!(passed, g - 2.0 * third + expect(&|a| squares(a).powi(2)), max_relative = 1e-3);
    }
}

/// K of 2, 2, 1 and 3 equal keys as a matrix: its spread, its traces, and what is left of all numbers for w → 0.
#[test]
fn flat_attention_is_a_matrix() {
    use nalgebra::DMatrix;
    let ids = repeats(&[(2.0, 2.0), (1.0, 1.0), (1.0, 3.0)]);
    let of_key = [0, 0, 1, 1, 2, 3, 3, 3];
    let matrix = |likeness: f64| {
        let entry = |i: usize, j: usize| {
            if i == j {
                1.0
            } else if of_key[i] == of_key[j] {
                likeness
            } else {
                0.0
            }
        };
        let centre = DMatrix::from_fn(8, 8, |i, j| f64::from(u8::from(i == j)) - 0.125);
        &centre * DMatrix::from_fn(8, 8, entry) * &centre / 8.0
    };
    let (key, value) = (matrix(0.6), matrix(0.3));
    assert_relative_eq!(ids.spread(0.6, 0.3), (&key * &value).trace(), max_relative = 1e-12);
    let cube = &key * &key * &key;
    let expected = [cube.trace() / key.trace().powi(3), (&cube * &key).trace() / key.trace().powi(4)];
    let got = ids.traces(0.6, 0.0, &[]);
    assert_relative_eq!(got[0], expected[0], max_relative = 1e-12);
    assert_relative_eq!(got[1], expected[1], max_relative = 1e-12);
    // Segments alone, cut at every place: E e^k over E e to the k, e = (1 − x²)/2, x uniform in [−1, 1].
    let cuts: Vec<f64> = (0..8000).map(|cut| (f64::from(cut) + 0.5) / 8000.0).collect();
    let alone = repeats(&[(8000.0, 1.0)]).traces(0.0, 1e9, &cuts);
    assert_relative_eq!(alone[0], 2.0 / 35.0 * 27.0, max_relative = 1e-6);
    assert_relative_eq!(alone[1], 8.0 / 315.0 * 81.0, max_relative = 1e-6);
    let w = 0.01;
    let got = Repeated::of(integrated(&ids.ids, w, 0.6));
    for (place, likeness) in [(0, 1.0), (1, 0.0)] {
        assert_relative_eq!((got.own[place] - got.mean[place]) / w, ids.spread(0.6, likeness), max_relative = 0.02);
    }
    for (place, (key, value)) in [(1.0, 1.0), (1.0, 0.0), (0.0, 0.0)].into_iter().enumerate() {
        assert_relative_eq!(got.passed()[place], ids.spread(key, value), max_relative = 0.02);
        assert_relative_eq!(got.apart[place], ids.spread(key, value), max_relative = 0.02);
    }
}

/// All numbers by Monte-Carlo at w = 2: 4 ids of 3, 2, 1 and 1 tokens, 100 000 pairs of rows; α = 1e-4 each.
#[test]
fn samples_agree() {
    const ROWS: usize = 100_000;
    let (w, likeness) = (2.0_f64, 0.7_f64);
    let of_key = [0, 0, 0, 1, 1, 2, 3];
    let mut generator = Xoshiro256PlusPlus::seed_from_u64(5);
    let mut row = || -> [f64; 7] {
        let mut normal = || -> f64 { StandardNormal.sample(&mut generator) };
        let common: [f64; 4] = std::array::from_fn(|_| normal());
        let scores = of_key.map(|id| w.sqrt() * (likeness.sqrt() * common[id] + (1.0 - likeness).sqrt() * normal()));
        let total: f64 = scores.iter().map(|s| s.exp()).sum();
        scores.map(|s| s.exp() / total)
    };
    // AᵀKC of two rows, K of equal ids with this likeness.
    let times = |part: f64, a: &[f64; 7]| -> [f64; 7] {
        let same = |id: usize| (0..7).filter(|&b| of_key[b] == id).map(|b| a[b]).sum::<f64>();
        std::array::from_fn(|b| (1.0 - part) * a[b] + part * same(of_key[b]))
    };
    let dot = |a: &[f64; 7], b: &[f64; 7]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let passed = |key: f64, value: f64, a: &[f64; 7], c: &[f64; 7]| {
        // tr K J_a V J_c, J = diag A − A Aᵀ.
        let column = |x: &[f64; 7], part: f64, b: usize| {
            let unit: [f64; 7] = std::array::from_fn(|i| f64::from(u8::from(i == b)));
            let shared = times(part, &unit);
            let mean = dot(x, &shared);
            std::array::from_fn::<f64, 7, _>(|i| x[i] * (shared[i] - mean))
        };
        let (first, second): (Vec<_>, Vec<_>) = (0..7).map(|b| (column(a, value, b), column(c, key, b))).unzip();
        (0..7).flat_map(|i| (0..7).map(move |j| (i, j))).map(|(i, j)| first[i][j] * second[j][i]).sum::<f64>()
    };
    let mut sums = [(0.0, 0.0); 10];
    for _ in 0..ROWS {
        let (a, c) = (row(), row());
        let told = [
            dot(&a, &times(1.0, &a)),
            dot(&a, &a),
            dot(&a, &times(1.0, &c)),
            dot(&a, &c),
            passed(1.0, 1.0, &a, &a),
            passed(1.0, 0.0, &a, &a),
            passed(0.0, 0.0, &a, &a),
            passed(1.0, 1.0, &a, &c),
            passed(1.0, 0.0, &a, &c),
            passed(0.0, 0.0, &a, &c),
        ];
        for (sum, value) in sums.iter_mut().zip(told) {
            *sum = (sum.0 + value, sum.1 + value * value);
        }
    }
    let got = Repeated::of(integrated(&[(1.0, 3.0), (1.0, 2.0), (2.0, 1.0)], w, likeness));
    let got = [&got.own[..], &got.mean, &got.passed(), &got.apart].concat();
    for (place, ((sum, squares), got)) in sums.into_iter().zip(got).enumerate() {
        let mean = sum / ROWS as f64;
        let error = ((squares / ROWS as f64 - mean * mean) / ROWS as f64).sqrt();
        assert!((got - mean).abs() < 3.9 * error, "{place}: {got}, sampled {mean} ± {error}");
    }
}

/// Between nodes, of Zipf's law.
#[test]
fn interpolation_is_close() {
    let repeats = Repeats::of(PowerLaw { vocab_size: 30_000, exponent: 1.0 }, 256);
    for (w, likeness) in [(0.05, 0.1), (0.7, 0.4), (1.2, 0.9), (9.0, 0.62)] {
        let told = |of: Repeated| [&of.own[..], &of.mean, &of.passed(), &of.apart].concat();
        let exact = told(Repeated::of(integrated(&repeats.ids, w, likeness)));
        for (got, exact) in told(repeats.overlaps(w, likeness)).into_iter().zip(exact) {
            assert_relative_eq!(got, exact, max_relative = 1e-3);
        }
    }
}
