//! Ordered pairs of components between a linear map and a norm, measured at widths 24, 48 and 96. The expansion in
//! 1/width leaves out terms of second order, which decrease by a factor of four when the width doubles.
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

/// An error is significant if it is larger than this and larger than [`LARGEST_Z`] standard errors.
const SIGNIFICANT: f64 = 0.01;
const LARGEST_Z: f64 = 8.0;
/// The smallest factor by which an error of second order decreases when the width doubles: four, but for terms of third
/// order.
const DECREASE: f64 = 3.0;
/// Errors below this number of standard errors at the double width count as noise.
const NOISE: f64 = 3.0;

/// Pairs with errors that do not decrease, and the number of these errors. The list may only shrink.
const KNOWN: &[(&str, usize)] = &[
    ("ln-relu", 9),
    ("ln-gelu", 8),
    ("ln-drop", 3),
    ("rms-relu", 5),
    ("rms-gelu", 2),
    ("rms-drop", 3),
    ("rmseps-std", 1),
    ("rmseps-relu", 4),
    ("rmseps-gelu", 2),
    ("rmseps-drop", 2),
    ("map-relu", 2),
    ("bias-relu", 3),
    ("std-rmseps", 1),
    ("std-bias", 1),
    ("std-relu", 3),
    ("relu-rms", 6),
    ("relu-rmseps", 9),
    ("relu-std", 1),
    ("relu-relu", 30),
    ("relu-gelu", 26),
    ("relu-drop", 2),
    ("relu-sum", 1),
    ("gelu-rmseps", 2),
    ("gelu-std", 1),
    ("gelu-relu", 28),
    ("gelu-gelu", 32),
    ("drop-rmseps", 1),
    ("drop-relu", 17),
    ("drop-gelu", 11),
    ("sum-relu", 2),
    ("ln-std", 2),
    ("rms-std", 1),
    ("map-std", 1),
    ("std-ln", 1),
    ("std-rms", 1),
    ("std-map", 1),
    ("std-std", 2),
    ("std-drop", 1),
    ("std-sum", 1),
    ("relu-ln", 2),
    ("gelu-ln", 2),
    ("gelu-rms", 2),
    ("drop-ln", 1),
    ("drop-rms", 1),
    ("drop-std", 1),
    ("drop-drop", 1),
    ("sum-std", 1),
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

/// A linear map, optionally with a bias of this standard deviation or with standardised rows of this length.
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

/// Compares all cells of a pair at one width, by site and quantity.
fn compared(kinds: [Kind; 2], width: usize, measured: &Network) -> HashMap<(String, Compared), Comparison> {
    let predicted = predict(&stack(kinds, width), Sites::All).expect("the stack is valid").table;
    let cells = compare_observations(&predicted, &measured.observations()).expect("the same sites");
    cells.into_iter().map(|cell| ((cell.site.clone(), cell.quantity), cell)).collect()
}

/// Returns true if an error is significant at one width and too large for second order at the double width.
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
