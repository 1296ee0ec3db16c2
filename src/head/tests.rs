use approx::assert_relative_eq;
use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};
use rand_distr::{Distribution, StandardNormal};

use super::*;
use crate::architecture::{Architecture, NormPlacement};
use crate::assemble::{Input, Run, assemble};
use crate::predict::predict;
use crate::schemes::Scheme;

const VOCABULARY: usize = 24;

/// Returns the softmax of logits minus the one-hot target.
fn residual(logits: &[f64; VOCABULARY], target: usize) -> [f64; VOCABULARY] {
    let total: f64 = logits.iter().map(|logit| logit.exp()).sum();
    std::array::from_fn(|v| logits[v].exp() / total - f64::from(u8::from(v == target)))
}

/// Returns the logits under a soft cap, and the slope of the cap at each.
fn capped(logits: [f64; VOCABULARY], softcap: Option<f64>) -> ([f64; VOCABULARY], [f64; VOCABULARY]) {
    let Some(cap) = softcap else { return (logits, [1.0; VOCABULARY]) };
    let logits = logits.map(|logit| cap * (logit / cap).tanh());
    (logits, logits.map(|logit| 1.0 - (logit / cap).powi(2)))
}

/// Samples 100 000 pairs of tokens with logits of variance 1.5 and correlation 0.4, without and with a cap of 1.5.
/// Every third pair has one target. |z| < 4 (α = 1e-4); products under the cap may be 2 % further off, since their
/// logits are taken to be Gaussian.
#[test]
fn moments_of_softmax_less_one_hot() {
    const PAIRS: usize = 100_000;
    let (variance, cosine, repeat) = (1.5_f64, 0.4_f64, 1.0 / 3.0 + 2.0 / 3.0 / VOCABULARY as f64);
    let (vocab_size, width) = (VOCABULARY as f64, f64::INFINITY);
    let repeats = Repeats { two: repeat, three: repeat, four: repeat };
    for softcap in [None, Some(1.5)] {
        let expected = Residual::untied(&Logits {
            vocab_size,
            rows: vec![RowGroup { count: vocab_size, weight: 1.0 }],
            width,
            variance,
            softcap,
            cosine,
            own: 0.0,
            repeats,
            seq_len: 1.0,
        });
        let mut generator = Xoshiro256PlusPlus::seed_from_u64(11);
        let mut sums = [[0.0; 2]; 2];
        for pair in 0..PAIRS {
            let mut normal = || -> f64 { StandardNormal.sample(&mut generator) };
            let common: [f64; VOCABULARY] = std::array::from_fn(|_| normal() * cosine.sqrt());
            let logits =
                [(); 2].map(|()| common.map(|shared| variance.sqrt() * (shared + (1.0 - cosine).sqrt() * normal())));
            let first = generator.random_range(0..VOCABULARY);
            let second = if pair % 3 == 0 { first } else { generator.random_range(0..VOCABULARY) };
            let [(a, a_slopes), (b, b_slopes)] = logits.map(|logits| capped(logits, softcap));
            let sloped = |residual: [f64; VOCABULARY], slopes: [f64; VOCABULARY]| -> [f64; VOCABULARY] {
                std::array::from_fn(|v| residual[v] * slopes[v])
            };
            let [a, b] = [sloped(residual(&a, first), a_slopes), sloped(residual(&b, second), b_slopes)];
            let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
            for (sum, value) in sums.iter_mut().zip([dot(&a, &a), dot(&a, &b)]) {
                *sum = [sum[0] + value, sum[1] + value * value];
            }
        }
        let tolerances = [0.0, if softcap.is_some() { 0.02 } else { 0.0 }];
        for (([sum, squares], expected), tolerance) in
            sums.into_iter().zip([expected.across, expected.between]).zip(tolerances)
        {
            let mean = sum / PAIRS as f64;
            let std_error = ((squares / PAIRS as f64 - mean * mean) / PAIRS as f64).sqrt();
            let bound = 4.0 * std_error + tolerance * expected;
            assert!((mean - expected).abs() < bound, "{softcap:?}: expected {expected}, got {mean} ± {std_error}");
        }
    }
}

/// Samples 200 000 tokens of a tied head of width 96, without and with a cap of 2. x of length √96 has the cosine 0.5
/// to its own embedding of variance 0.02, and every fifth token is its own target. |z| < 4 (α = 1e-4).
#[test]
fn tied_heads_meet_their_own_embedding() {
    const TOKENS: usize = 200_000;
    const WIDTH: usize = 96;
    let (variance, repeat, cosine) = (0.02_f64, 0.2 + 0.8 / VOCABULARY as f64, 0.5_f64);
    for softcap in [None, Some(2.0)] {
        let logits = Logits {
            vocab_size: VOCABULARY as f64,
            rows: vec![RowGroup { count: VOCABULARY as f64, weight: 1.0 }],
            width: WIDTH as f64,
            variance: WIDTH as f64 * variance,
            softcap,
            cosine: 0.0,
            own: 0.25,
            repeats: Repeats { two: repeat, three: repeat, four: repeat },
            seq_len: 1.0,
        };
        let expected = Residual::tied(&logits, &Own { cosine, kept: 0.0, radial: 0.0 });
        let mut generator = Xoshiro256PlusPlus::seed_from_u64(13);
        let mut sums = [[0.0; 2]; 2];
        for token in 0..TOKENS {
            let mut normal = || -> f64 { StandardNormal.sample(&mut generator) };
            // Only the component of a row along x counts. For rows of other tokens the logits are sampled directly.
            let (mut along, mut size) = (0.0, 0.0);
            for _ in 0..WIDTH {
                let own = variance.sqrt() * normal();
                let x = cosine * own / variance.sqrt() + (1.0 - cosine * cosine).sqrt() * normal();
                along += x * own;
                size += x * x;
            }
            let mut logits: [f64; VOCABULARY] = std::array::from_fn(|_| (WIDTH as f64 * variance).sqrt() * normal());
            logits[0] = along * (WIDTH as f64 / size).sqrt();
            let (logits, slopes) = capped(logits, softcap);
            let target = if token % 5 == 0 { 0 } else { generator.random_range(0..VOCABULARY) };
            let residual = residual(&logits, target);
            let loss = logits.iter().map(|logit| logit.exp()).sum::<f64>().ln() - logits[target];
            let square = residual.iter().zip(slopes).map(|(entry, slope)| (entry * slope).powi(2)).sum::<f64>();
            for (sum, value) in sums.iter_mut().zip([loss, square]) {
                *sum = [sum[0] + value, sum[1] + value * value];
            }
        }
        for ([sum, squares], expected) in sums.into_iter().zip([expected.cross_entropy, expected.table]) {
            let mean = sum / TOKENS as f64;
            let std_error = ((squares / TOKENS as f64 - mean * mean) / TOKENS as f64).sqrt();
            let z = (mean - expected) / std_error;
            assert!(z.abs() < 4.0, "{softcap:?}: expected {expected}, got {mean} ± {std_error}");
        }
    }
}

/// Returns the relation of embeddings to the end of a network of two blocks, and a function that returns the ratio of
/// their variance to E x² at a site.
fn embedded(norm_placement: NormPlacement) -> (Own, impl Fn(&str) -> f64) {
    let architecture = Architecture { n_layers: 2, d_model: 64, seq_len: 8, norm_placement, ..Architecture::default() };
    let scheme = Scheme::parse("xavier").expect("known");
    let stack = assemble(&architecture, &scheme, &Input::Zipf, &Run::default()).expect("valid").stack;
    let table = predict(&stack, Sites::All).expect("valid").table;
    let variance = tied(&stack).expect("ids are embedded").weight.init.variance();
    (Own::new(&stack, &table, variance), move |site| variance / ln_second(table.site(site).expect("a site")).exp())
}

/// In pre-norm networks, c² is the share of the embeddings in E x² before the last norm. In post-norm networks, each
/// sum multiplies c² by E x²/E y², and the gradient loses as much at the norm that follows.
#[test]
fn own_embeddings_are_followed_through_skips() {
    let (own, part) = embedded(NormPlacement::Pre);
    let square = own.cosine * own.cosine;
    assert_relative_eq!(square, part("blocks.1"), max_relative = 1e-9);
    assert_relative_eq!(own.kept, 1.0 - square, max_relative = 1e-9);
    assert_relative_eq!(own.radial, 0.0);
    let (own, part) = embedded(NormPlacement::Post);
    let sum = |before, after| part(after) / part(before);
    let first = part("embeddings") * sum("embeddings", "blocks.0.attention");
    let left = [
        sum("blocks.0.attention_norm", "blocks.0.ffn"),
        sum("blocks.0", "blocks.1.attention"),
        sum("blocks.1.attention_norm", "blocks.1.ffn"),
    ];
    assert_relative_eq!(own.cosine * own.cosine, first * left.iter().product::<f64>(), max_relative = 1e-9);
    assert_relative_eq!(own.kept, 1.0 - first, max_relative = 1e-9);
    assert_relative_eq!(own.radial, left.iter().map(|left| left - 1.0).sum::<f64>(), max_relative = 1e-9);
}

/// Tied tables of N(0, 1) have the caveat about the token's own id; tables of N(0, 0.02²) do not.
#[test]
fn tokens_that_find_themselves_are_told() {
    for (scheme, expected) in [("pytorch", true), ("gpt2", false)] {
        let architecture = Architecture { n_layers: 1, d_model: 64, seq_len: 8, ..Architecture::default() };
        let scheme = Scheme::parse(scheme).expect("known");
        let stack = assemble(&architecture, &scheme, &Input::Zipf, &Run::default()).expect("valid").stack;
        let head = tied(&stack).expect("ids are embedded");
        let prediction = predict_loss(&stack, &head, Sites::Stream).expect("valid").prediction;
        let told = prediction.caveats.iter().any(|caveat| caveat.kind().name == "token_just_read");
        assert_eq!(told, expected, "{scheme:?}: {:?}", prediction.caveats);
    }
}
