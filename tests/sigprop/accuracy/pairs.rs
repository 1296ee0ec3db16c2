//! Ordered pairs of components between a linear map and a norm, measured at widths 24, 48 and 96. The expansion in
//! 1/width leaves out terms of second order, which decrease by four where the width doubles.
//!
//! `data/measured/pairs.py` measures the same stacks.

use std::collections::HashMap;

use sigprop::agreement::{Compared, Comparison, compare_observations};
use sigprop::{Sites, predict};
use sigprop_stack::{
    Activation, Component, Gaussian, GradientSeed, Linear, Node, Norm, NormKind, Op, Source, Stack, Stream,
};

use super::measured::Network;
use crate::support::{activation, dropout, norm, residual, tensor};

const WIDTHS: [usize; 3] = [24, 48, 96];
const TOKENS: usize = 6;
const INPUT_CORRELATION: f64 = 0.3;
const GRADIENT_CORRELATION: f64 = 0.5;

/// An error is significant where it is larger than this and than so many standard errors.
const SIGNIFICANT: f64 = 0.01;
const LARGEST_Z: f64 = 8.0;
/// The factor by which an error of second order decreases from a width to the double one, at least: four but for terms of
/// third order.
const DECREASE: f64 = 3.0;
/// Standard errors of the error at the double width that count as noise.
const NOISE: f64 = 3.0;

/// Pairs with errors that do not decrease, and how many of their numbers have one. The list may only shrink.
const KNOWN: &[(&str, usize)] = &[
    ("ln-bias", 2),
    ("ln-relu", 16),
    ("ln-gelu", 17),
    ("ln-drop", 1),
    ("rms-bias", 2),
    ("rms-relu", 15),
    ("rms-gelu", 16),
    ("rms-drop", 1),
    ("rmseps-ln", 3),
    ("rmseps-rms", 3),
    ("rmseps-rmseps", 3),
    ("rmseps-map", 3),
    ("rmseps-bias", 3),
    ("rmseps-std", 3),
    ("rmseps-relu", 14),
    ("rmseps-gelu", 13),
    ("rmseps-drop", 4),
    ("rmseps-sum", 2),
    ("map-rmseps", 7),
    ("map-bias", 5),
    ("map-relu", 7),
    ("bias-ln", 3),
    ("bias-rms", 3),
    ("bias-rmseps", 2),
    ("bias-map", 1),
    ("bias-bias", 5),
    ("bias-std", 1),
    ("bias-relu", 6),
    ("bias-gelu", 2),
    ("bias-drop", 2),
    ("bias-sum", 2),
    ("std-rmseps", 7),
    ("std-bias", 5),
    ("std-relu", 8),
    ("relu-rms", 6),
    ("relu-rmseps", 8),
    ("relu-map", 2),
    ("relu-bias", 2),
    ("relu-std", 2),
    ("relu-relu", 30),
    ("relu-gelu", 29),
    ("relu-drop", 4),
    ("relu-sum", 2),
    ("gelu-rmseps", 9),
    ("gelu-bias", 2),
    ("gelu-std", 1),
    ("gelu-relu", 30),
    ("gelu-gelu", 32),
    ("gelu-drop", 1),
    ("drop-rmseps", 4),
    ("drop-bias", 2),
    ("drop-relu", 18),
    ("drop-gelu", 22),
    ("sum-rmseps", 4),
    ("sum-bias", 2),
    ("sum-relu", 8),
    ("sum-gelu", 3),
];

type Kind = (&'static str, fn(&str, usize) -> Node);

const KINDS: [Kind; 10] = [
    ("ln", |name, _| norm(name, NormKind::LayerNorm)),
    ("rms", |name, _| norm(name, NormKind::RmsNorm)),
    // A norm whose ε is not small.
    ("rmseps", |name, _| Node::apply(name, Component::Norm(Norm::plain(NormKind::RmsNorm, 0.5)))),
    ("map", |name, width| map(name, width, [None, None])),
    // A bias as large as the output of its map.
    ("bias", |name, width| map(name, width, [Some(1.0), None])),
    ("std", |name, width| map(name, width, [None, Some(1.0)])),
    ("relu", |name, _| activation(name, Activation::Relu)),
    ("gelu", |name, _| activation(name, Activation::Gelu)),
    ("drop", |name, _| dropout(name, 0.2)),
    ("sum", |name, width| residual(name, [1.0, 1.0], 0.0, vec![map(&format!("{name}m"), width, [None, None])])),
];

/// A linear map with a bias of a standard deviation, or with standardised rows of a length.
fn map(name: &str, width: usize, [bias, standardised]: [Option<f64>; 2]) -> Node {
    let weight = tensor(&format!("{name}.weight"), (width as f64).powf(-0.5));
    let bias = bias.map(|std| tensor(&format!("{name}.bias"), std));
    Node::apply(name, Component::Linear(Linear { fan_in: width, fan_out: width, weight, bias, standardised }))
}

fn stack([first, second]: [Kind; 2], width: usize) -> Stack {
    let body = vec![
        Node::new("embeddings", Op::Chain(Vec::new())),
        map("first", width, [None, None]),
        first.1("a", width),
        second.1("b", width),
        norm("last", NormKind::RmsNorm),
    ];
    let source = Source::Gaussian(Gaussian { width, mean: 0.0, variance: 1.0, correlation: INPUT_CORRELATION });
    let stream = Stream { name: "mlp".to_owned(), seq_len: TOKENS, source, body };
    Stack::new("pair", vec![stream], GradientSeed { stream: 0, correlation: GRADIENT_CORRELATION })
}

/// All cells of a pair at one width.
fn compared(kinds: [Kind; 2], width: usize, measured: &Network) -> HashMap<(String, Compared), Comparison> {
    let predicted = predict(&stack(kinds, width), Sites::All).expect("the stack is valid").table;
    let cells = compare_observations(&predicted, &measured.observations()).expect("the same sites");
    cells.into_iter().map(|cell| ((cell.site.clone(), cell.quantity), cell)).collect()
}

/// Whether an error is significant at one width and too large at the double one for second order.
fn stays([narrow, wide]: [&Comparison; 2]) -> bool {
    let (Some(error), Some(z), Some(next)) = (narrow.relative_error, narrow.z, wide.relative_error) else {
        return false;
    };
    let noise = NOISE * wide.relative_std_error;
    error.abs() > SIGNIFICANT && z.abs() > LARGEST_Z && next.abs() > error.abs() / DECREASE + noise
}

#[test]
fn errors_decrease_with_the_width() {
    let measured = WIDTHS.map(|width| Network::all(&format!("pairs/{width}.csv")));
    let mut wrong = Vec::new();
    for first in KINDS {
        for second in KINDS {
            let name = format!("{}-{}", first.0, second.0);
            let cells: Vec<_> = WIDTHS
                .iter()
                .zip(&measured)
                .map(|(&width, networks)| {
                    let network = networks.iter().find(|network| network.case == name).expect("all pairs are measured");
                    compared([first, second], width, network)
                })
                .collect();
            let mut left: Vec<String> = cells
                .windows(2)
                .flat_map(|pair| pair[0].iter().map(|(key, narrow)| (key, [narrow, &pair[1][key]])))
                .filter(|(_, both)| stays(*both))
                .map(|((site, quantity), [narrow, wide])| {
                    let [error, next] = [narrow, wide].map(|cell| 100.0 * cell.relative_error.unwrap_or(f64::NAN));
                    format!("{site} {}: {error:.1} %, {next:.1} % at the double width", quantity.name())
                })
                .collect();
            left.sort();
            let known = KNOWN.iter().find(|(pair, _)| *pair == name).map_or(0, |(_, count)| *count);
            if left.len() != known {
                wrong.push(format!(
                    "{name}: {} errors that do not decrease, {known} known\n  {}",
                    left.len(),
                    left.join("\n  ")
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}\n(where errors are gone, KNOWN shrinks)", wrong.join("\n"));
}
