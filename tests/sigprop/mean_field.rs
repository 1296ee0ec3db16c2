//! The correction of finite width vanishes in wide networks. The choice of positions does not change the predictions of
//! one theory.

use std::f64::consts::PI;

use sigprop::architecture::{self, Activation, Architecture, NormChoice, NormPlacement};
use sigprop::assemble::{Input, Run, assemble};
use sigprop::presets::Preset;
use sigprop::schemes::Scheme;
use sigprop::{Options, Positions, Prediction, Sites, Theory, predict};
use sigprop_stack::{Component, ConcatPart, Linear, Node, Op, PositionBias, Quantity, Rotary, Source, Stack, Tensor};

use crate::support::sample_stream;

/// The factor on widths.
const WIDER: usize = 1 << 17;
/// The factor on the number of heads. Heads are wider by the rest of [`WIDER`].
const MORE_HEADS: usize = 1 << 8;

/// A network with `factor` times as many features and the same gains.
pub(crate) fn widened(stack: &Stack, factor: usize) -> Stack {
    let mut wide = stack.clone();
    wide.head = None;
    for stream in &mut wide.streams {
        match &mut stream.source {
            Source::Embedding(embedding) => embedding.width *= factor,
            Source::Gaussian(gaussian) => gaussian.width *= factor,
        }
        widen(&mut stream.body, factor);
    }
    wide
}

fn widen(body: &mut [Node], factor: usize) {
    let narrower = |tensor: &mut Tensor| tensor.init = tensor.init.scaled((factor as f64).sqrt().recip());
    for node in body {
        match &mut node.op {
            Op::Apply(Component::Linear(Linear { fan_in, fan_out, weight, .. })) => {
                *fan_in *= factor;
                *fan_out *= factor;
                narrower(weight);
            }
            Op::Apply(Component::Convolution(convolution)) => {
                convolution.fan_in *= factor;
                convolution.fan_out *= factor;
                narrower(&mut convolution.weight);
            }
            Op::Apply(Component::Rotary(Rotary { d_head, frequencies })) => {
                let wider = factor / MORE_HEADS;
                *d_head *= wider;
                *frequencies = frequencies.iter().flat_map(|&frequency| vec![frequency; wider]).collect();
            }
            Op::Apply(Component::Norm(norm)) if norm.groups > 1 => norm.groups *= MORE_HEADS,
            Op::Apply(_) | Op::Read(_) => {}
            Op::Chain(body) => widen(body, factor),
            Op::Sum(sum) => sum.branches.iter_mut().for_each(|branch| widen(&mut branch.body, factor)),
            Op::Product(product) => product.factors.iter_mut().for_each(|body| widen(body, factor)),
            Op::Concat(concat) => {
                concat.parts.iter_mut().for_each(|ConcatPart { body, .. }| widen(body, factor));
            }
            Op::Attention(attention) => {
                let wider = factor / MORE_HEADS;
                attention.n_heads *= MORE_HEADS;
                attention.n_kv_heads *= MORE_HEADS;
                attention.d_head *= wider;
                attention.d_value *= wider;
                attention.scale /= (wider as f64).sqrt();
                if let Some(PositionBias::Alibi { slopes }) = &mut attention.bias {
                    *slopes = slopes.iter().flat_map(|&slope| vec![slope; MORE_HEADS]).collect();
                }
                for body in [&mut attention.query, &mut attention.key, &mut attention.value] {
                    widen(body, factor);
                }
            }
            Op::Recurrence(recurrence) => {
                recurrence.n_heads *= MORE_HEADS;
                recurrence.n_key_heads *= MORE_HEADS;
                let wider = factor / MORE_HEADS;
                recurrence.d_key *= wider;
                recurrence.d_value *= wider;
                recurrence.scale /= (wider as f64).sqrt();
                recurrence.parts_mut().for_each(|body| widen(body, factor));
            }
            Op::Mixture(mixture) => {
                narrower(&mut mixture.router);
                widen(&mut mixture.expert, factor);
            }
        }
    }
}

/// The differences of two predictions: absolute for correlations and for means in units of the standard deviation,
/// relative for moments.
fn differences(a: &Prediction, b: &Prediction) -> Vec<(f64, String)> {
    let mut differences = Vec::new();
    for (row, other) in a.table.sites.iter().zip(&b.table.sites) {
        assert_eq!(row.site, other.site);
        if row.site.ends_with("softmax") {
            continue;
        }
        for quantity in Quantity::ALL {
            let (Some(value), Some(known)) = (row.value(quantity), other.value(quantity)) else { continue };
            let difference = match quantity {
                Quantity::TokenCorrelation | Quantity::GradTokenCorrelation => value.value() - known.value(),
                Quantity::Mean => {
                    let deviation = other.value(Quantity::Variance).map_or(1.0, |variance| variance.value().sqrt());
                    if deviation > 0.0 { (value.value() - known.value()) / deviation } else { 0.0 }
                }
                Quantity::LnVarianceStd | Quantity::LnGradVarianceStd => continue,
                _ if value.is_zero() && known.is_zero() => continue,
                _ => value.ratio(&known) - 1.0,
            };
            let text = format!("{} {}: {value} {known}", row.site, quantity.name());
            differences.push((difference.abs(), text));
        }
    }
    for (row, other) in a.table.weights.iter().zip(&b.table.weights) {
        assert_eq!(row.tensor, other.tensor);
        let [value, known] = [row, other].map(|row| row.grad_second_moment.value);
        if value.is_zero() && known.is_zero() {
            continue;
        }
        let text = format!("{} E dW²: {value} {known}", row.tensor);
        differences.push(((value.ratio(&known) - 1.0).abs(), text));
    }
    differences
}

fn stack(architecture: &Architecture, scheme: &str, input: &Input) -> Stack {
    let run = Run { grad_correlation: 0.2, ..Run::default() };
    let scheme = Scheme::parse(scheme).expect("a scheme");
    assemble(architecture, &scheme, input, &run).expect("it fits").stack
}

fn agree(name: &str, stack: &Stack, tolerance: f64) {
    let [infinite, finite] = both(name, stack);
    for (difference, text) in differences(&infinite, &finite) {
        assert!(difference < tolerance, "{name}: {text} differ by {difference:.1e}");
    }
}

fn both(name: &str, stack: &Stack) -> [Prediction; 2] {
    let wide = widened(stack, WIDER);
    let options = |theory| Options { theory, ..Options::from(Sites::All) };
    [Theory::MeanField, Theory::FiniteWidth]
        .map(|theory| predict(&wide, options(theory)).unwrap_or_else(|error| panic!("{name}: {error}")))
}

#[test]
fn mlps_are_those_of_infinite_width() {
    for word in Activation::WORDS {
        let activation: Activation = word.parse().expect("a word");
        // Activations that grow as x² fluctuate by a factor even at this width.
        if activation.is_gated() || matches!(activation, Activation::Relu2 | Activation::Xielu) {
            continue;
        }
        let mlp = Architecture { n_layers: 5, d_model: 64, seq_len: 8, activation, ..Architecture::mlp() };
        agree(word, &stack(&mlp, "kaiming", &Input::Correlation(0.3)), 1e-5);
    }
}

/// Without skip connections gradients grow by π/(π − 1) per layer of ReLU (Yang et al. 2019, section 4) for all
/// weights.
#[test]
fn batch_norms_explode_as_published() {
    for scheme in ["kaiming", "normal:0.3"] {
        let shape = Architecture { n_layers: 6, d_model: 64, seq_len: 1 << 17, ..Architecture::mlp() };
        let relu = Architecture { norm: Some(NormChoice::Batchnorm), activation: Activation::Relu, ..shape };
        let run = Run { train: true, ..Run::default() };
        let scheme = Scheme::parse(scheme).expect("a scheme");
        let stack = assemble(&relu, &scheme, &Input::Correlation(0.0), &run).expect("it fits").stack;
        let table = predict(&stack, Options { theory: Theory::MeanField, ..Options::from(Sites::Stream) });
        let table = table.expect("it predicts").table;
        let level = |site: usize| table.sites[site].value(Quantity::GradVariance).expect("it has gradients");
        let (growth, published) = (level(2).ratio(&level(3)), PI / (PI - 1.0));
        assert!((growth / published - 1.0).abs() < 1e-4, "{growth} {published}");
    }
}

/// Sites of attention weights are not compared: the part of their gradients along the values depends on the number of
/// heads.
#[test]
fn encoders_are_those_of_infinite_width() {
    let plain = || Architecture { n_layers: 6, d_model: 128, seq_len: 16, ..Architecture::default() };
    for placement in [NormPlacement::Pre, NormPlacement::Post, NormPlacement::Sandwich] {
        let schemes: &[&str] = match placement {
            // With small weights the tokens are copies after the first block, up to rounding errors.
            NormPlacement::Sandwich => &["pytorch"],
            _ => &["gpt2", "dslm", "pytorch"],
        };
        for scheme in schemes {
            for activation in [Activation::Gelu, Activation::Swiglu, Activation::Relu] {
                let architecture = Architecture { norm_placement: placement, activation, ..plain() };
                let name = format!("{placement} {scheme} {activation}");
                agree(&name, &stack(&architecture, scheme, &Input::Correlation(0.3)), 1e-3);
            }
        }
    }
    let unnormed = Architecture { norm: Some(NormChoice::None), ..plain() };
    agree("no norms", &stack(&unnormed, "pytorch", &Input::Correlation(0.3)), 1e-3);
}

#[test]
fn causal_encoders_are_those_of_infinite_width() {
    let causal = Architecture { n_layers: 6, d_model: 128, seq_len: 48, causal: true, ..Architecture::default() };
    for input in [Input::Correlation(0.3), Input::Uniform] {
        agree("gpt2", &stack(&causal, "gpt2", &input), 1e-3);
    }
}

/// ALiBi in both directions, also with windows, and a learned token in front of the sequence.
#[test]
fn what_tells_positions_apart_is_that_of_infinite_width() {
    let plain = || Architecture { n_layers: 4, d_model: 128, seq_len: 32, ..Architecture::default() };
    let (alibi, rotary) = (architecture::Positions::Alibi, architecture::Positions::Rotary);
    let input = Input::Correlation(0.3);
    for (causal, windows) in [(false, vec![]), (false, vec![12; 4]), (true, vec![12; 4])] {
        let name = format!("slopes, causal {causal}, windows {windows:?}");
        let architecture = Architecture { positions: alibi, causal, windows, ..plain() };
        agree(&name, &stack(&architecture, "gpt2", &input), 1e-3);
    }
    let vision = Architecture { seq_len: 33, ..Preset::find("vit-base").expect("a preset").architecture() };
    for positions in [alibi, rotary] {
        let architecture =
            Architecture { n_layers: 2, d_model: 128, n_heads: Some(4), d_ff: Some(512), positions, ..vision.clone() };
        // Gradients through scores contain a product of three factors, for which the theory of infinite width
        // approximates a covariance. Biases of rotated keys have almost no gradient.
        let [infinite, finite] = both("a class token", &stack(&architecture, "gpt2", &input));
        for (difference, text) in differences(&infinite, &finite) {
            let is_of_scores = text.contains("query") || text.contains("key");
            if text.contains("key.bias") {
                continue;
            }
            let tolerance = if is_of_scores { 0.02 } else { 1e-3 };
            assert!(difference < tolerance, "a class token: {text} differ by {difference:.1e}");
        }
    }
}

/// Encoders with dropout masks in attention, forward and backward.
#[test]
fn encoders_in_training_are_those_of_infinite_width() {
    let run = Run { grad_correlation: 0.2, train: true, ..Run::default() };
    for causal in [false, true] {
        let architecture = Architecture { n_layers: 4, d_model: 128, seq_len: 16, causal, ..Architecture::default() };
        let architecture = Architecture { dropout: 0.1, attention_dropout: 0.2, ..architecture };
        let scheme = Scheme::parse("gpt2").expect("a scheme");
        let stack = assemble(&architecture, &scheme, &Input::Correlation(0.3), &run).expect("it fits").stack;
        agree("dropout", &stack, 1e-3);
    }
}

/// Graded positions are compared with all positions.
#[test]
fn graded_positions_are_like_all() {
    let architecture =
        Architecture { n_layers: 6, d_model: 128, seq_len: 200, causal: true, ..Architecture::default() };
    let stack = stack(&architecture, "gpt2", &Input::Zipf);
    let options =
        |positions| Options { theory: Theory::MeanField, positions: Some(positions), ..Options::from(Sites::All) };
    let [all, fine] =
        [Positions::All, Positions::Fine].map(|positions| predict(&stack, options(positions)).expect("it predicts"));
    for (difference, text) in differences(&fine, &all) {
        assert!(difference < 3e-4, "{text} differ by {difference:.1e}");
    }
}

fn mean_field() -> Options {
    Options { theory: Theory::MeanField, ..Options::from(Sites::All) }
}

/// Rows of repeated ids, which occur only in the embeddings, at score variances up to 3: the sharp part of a row
/// saturates as groups of different size do. The last position is left out, because one query alone sees its key: with
/// given ids, its number comes from the 64 ids there.
#[test]
fn sharp_rows_of_repeated_ids_are_those_of_infinite_width() {
    let plain =
        Architecture { n_layers: 1, d_model: 64, n_heads: Some(1), vocab_size: 1000, ..Architecture::default() };
    let plain = Architecture { positions: architecture::Positions::None, seq_len: 64, ..plain };
    for causal in [false, true] {
        for std in ["0.08", "0.16"] {
            let stack = stack(&Architecture { causal, ..plain.clone() }, &format!("normal:{std}"), &Input::Zipf);
            let name = format!("causal {causal}, {std}");
            let [infinite, finite] = both(&name, &stack);
            let differences = differences(&infinite, &finite).into_iter().filter(|(_, text)| !text.contains("_last"));
            differences.for_each(|(difference, text)| assert!(difference < 0.04, "{name}: {text} {difference:.1e}"));
        }
    }
}

/// Gradients of queries and of keys are derivatives of the same product, the scores, so their weights have equal
/// gradients.
#[test]
fn weights_of_rotated_keys_have_the_gradients_of_those_of_queries() {
    let architecture = Architecture {
        n_layers: 2,
        seq_len: 256,
        windows: vec![32, 32],
        ..Preset::find("llama-7b").expect("a preset").architecture()
    };
    let stack = stack(&architecture, "gpt2", &Input::Zipf);
    let table = predict(&stack, mean_field()).expect("it predicts").table;
    let of = |tensor: &str| {
        let row = table.weights.iter().find(|row| row.tensor == tensor).expect("a weight");
        row.grad_second_moment.value
    };
    for block in 0..2 {
        let [query, key] = ["query", "key"].map(|part| of(&format!("blocks.{block}.attention.heads.{part}.weight")));
        approx::assert_relative_eq!(query.ratio(&key), 1.0, max_relative = 1e-9);
    }
}

/// Fourteen blocks without norms, with a causal mask: score variances from 10⁻⁵ to 10⁶, tokens from distinct to copies.
/// Levels of the stream are within 5 % of sampled ones and correlations within 0.005. Gradients, which few networks
/// dominate, are within a factor of e³.
#[test]
fn attention_that_explodes_is_as_sampled() {
    let plain = Architecture { n_layers: 14, d_model: 256, n_heads: Some(4), seq_len: 32, ..Architecture::default() };
    let plain = Architecture { vocab_size: 256, causal: true, norm: Some(NormChoice::None), ..plain };
    let stack = stack(&plain, "xavier", &Input::Uniform);
    let predicted = predict(&stack, mean_field()).expect("it predicts").table;
    let sampled = sample_stream(&stack, 100).table;
    for row in predicted.sites.iter().filter(|row| row.is_stream_site) {
        let observed = sampled.site(&row.site).expect("the same sites");
        let both = |quantity| [row, observed].map(|row| row.value(quantity).expect("told"));
        let [variance, gradient] = [Quantity::Variance, Quantity::GradVariance].map(|quantity| {
            let [predicted, observed] = both(quantity);
            predicted.ratio(&observed).ln()
        });
        let correlation = both(Quantity::TokenCorrelation).map(|value| value.value());
        assert!(variance.abs() < 0.05, "{}: variance off by e^{variance}", row.site);
        assert!(gradient.abs() < 3.0, "{}: gradient off by e^{gradient}", row.site);
        assert!((correlation[0] - correlation[1]).abs() < 0.005, "{}: {correlation:?}", row.site);
    }
}

/// Very short sequences, a single id, scores of any size.
#[test]
fn everything_is_a_number_at_the_ends() {
    for seq_len in [1, 2, 3, 16] {
        for vocab_size in [1, 2, 1000] {
            for (causal, scheme) in [(false, "gpt2"), (true, "gpt2"), (false, "normal:0.5"), (true, "normal:0.5")] {
                let architecture =
                    Architecture { n_layers: 4, d_model: 64, seq_len, vocab_size, causal, ..Architecture::default() };
                let stack = stack(&architecture, scheme, &Input::Zipf);
                let name = format!("{seq_len} tokens of {vocab_size} ids, causal {causal}, {scheme}");
                predict(&stack, mean_field()).unwrap_or_else(|error| panic!("{name}: {error}"));
            }
        }
    }
}
