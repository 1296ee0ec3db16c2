//! Cross-entropy at initialisation, compared with a small network computed by hand in f64.

use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};
use rand_distr::{Distribution, StandardNormal};
use sigprop::Sites;
use sigprop::head::{Head, LossPrediction, predict_loss};
use sigprop_stack::{NormKind, Stack};
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::support::{ALPHA, gaussian_stack, linear, norm, tensor};

const WIDTH: usize = 48;
const VOCABULARY: usize = 40;
const TOKENS: usize = 6;
const HEAD_STD: f64 = 0.15;

/// The network x ↦ norm(W norm(x)) ↦ logits, on tokens of correlation 0.3.
fn network() -> Stack {
    let [start, end] = ["start", "end"].map(|name| norm(name, NormKind::RmsNorm));
    gaussian_stack(WIDTH, 1.0, TOKENS, vec![start, linear("map", WIDTH, WIDTH, 1.0), end])
}

fn predicted() -> LossPrediction {
    let head = Head::new(tensor("head.weight", HEAD_STD), [VOCABULARY, WIDTH]);
    predict_loss(&network(), &head, Sites::Stream).expect("a small network")
}

type Vector = [f64; WIDTH];

fn normal(generator: &mut impl RngExt, std: f64) -> Vector {
    std::array::from_fn(|_| {
        let z: f64 = StandardNormal.sample(generator);
        std * z
    })
}

fn dot(a: &Vector, b: &Vector) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The RMSNorm of x, and its divisor.
fn normalised(x: &Vector) -> (Vector, f64) {
    let size = (dot(x, x) / WIDTH as f64 + 1e-5).sqrt();
    (x.map(|entry| entry / size), size)
}

/// Loss, |dL/d head|² and |dL/d map|² of one network, computed forward and backward by hand.
fn sample(generator: &mut Xoshiro256PlusPlus) -> [f64; 3] {
    let map: Vec<Vector> = (0..WIDTH).map(|_| normal(generator, (WIDTH as f64).powf(-0.5))).collect();
    let head: Vec<Vector> = (0..VOCABULARY).map(|_| normal(generator, HEAD_STD)).collect();
    let common = normal(generator, 0.3_f64.sqrt());
    let (mut loss, mut d_head, mut d_map) = (0.0, vec![[0.0; WIDTH]; VOCABULARY], vec![[0.0; WIDTH]; WIDTH]);
    for _ in 0..TOKENS {
        let own = normal(generator, 0.7_f64.sqrt());
        let (x, _) = normalised(&std::array::from_fn(|i| common[i] + own[i]));
        let (end, size) = normalised(&std::array::from_fn(|i| dot(&map[i], &x)));
        let logits: Vec<f64> = head.iter().map(|row| dot(row, &end)).collect();
        let total: f64 = logits.iter().map(|logit| logit.exp()).sum();
        let target = generator.random_range(0..VOCABULARY);
        loss += (total.ln() - logits[target]) / TOKENS as f64;
        let mut gradient = [0.0; WIDTH];
        for (v, logit) in logits.iter().enumerate() {
            let residual = (logit.exp() / total - f64::from(u8::from(v == target))) / TOKENS as f64;
            for i in 0..WIDTH {
                d_head[v][i] += residual * end[i];
                gradient[i] += residual * head[v][i];
            }
        }
        let along = dot(&gradient, &end) / WIDTH as f64;
        for i in 0..WIDTH {
            let inner = (gradient[i] - along * end[i]) / size;
            for j in 0..WIDTH {
                d_map[i][j] += inner * x[j];
            }
        }
    }
    let square = |rows: &[Vector]| rows.iter().map(|row| dot(row, row)).sum();
    [loss, square(&d_head), square(&d_map)]
}

/// A two-sided test at α = 1e-3 over the three numbers.
#[test]
fn loss_and_gradients_agree_with_a_network_by_hand() {
    const NETWORKS: usize = 4000;
    let LossPrediction { prediction, loss } = predicted();
    let moment = |tensor: &str| {
        let row = prediction.table.weights.iter().find(|row| row.tensor == tensor).expect("a weight");
        row.grad_second_moment.value.value()
    };
    let squares = [(VOCABULARY * WIDTH) as f64 * moment("head.weight"), (WIDTH * WIDTH) as f64 * moment("map.weight")];
    let expected = [loss.cross_entropy.value(), squares[0], squares[1]];
    let gains = WIDTH as f64 * (moment("start.gain") + moment("end.gain"));
    let norm = (squares[0] + squares[1] + gains).sqrt();
    assert!((loss.grad_norm.value() / norm - 1.0).abs() < 1e-12);

    let mut generator = Xoshiro256PlusPlus::seed_from_u64(7);
    let samples: Vec<[f64; 3]> = (0..NETWORKS).map(|_| sample(&mut generator)).collect();
    let student = StudentsT::new(0.0, 1.0, (NETWORKS - 1) as f64).expect("many networks");
    let bound = student.inverse_cdf(1.0 - ALPHA / 6.0);
    for (index, name) in ["loss", "head", "map"].into_iter().enumerate() {
        let mean = samples.iter().map(|sample| sample[index]).sum::<f64>() / NETWORKS as f64;
        let variance = samples.iter().map(|sample| (sample[index] - mean).powi(2)).sum::<f64>() / (NETWORKS - 1) as f64;
        let std_error = (variance / NETWORKS as f64).sqrt();
        let z = (mean - expected[index]) / std_error;
        assert!(z.abs() < bound, "{name}: predicted {}, sampled {mean} ± {std_error}, z {z:.2}", expected[index]);
    }
}
