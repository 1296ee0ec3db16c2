//! First updates: predicted, and taken by sampled networks.

use std::f64::consts::FRAC_PI_2;

use sigprop::architecture::Architecture;
use sigprop::assemble::{Input, Run, assemble};
use sigprop::cost::tensor_entries;
use sigprop::schemes::Scheme;
use sigprop::update::{FirstUpdate, Optimizer, UpdateRow};
use sigprop::{Options, Sites, predict};
use sigprop_stack::{Activation, Cell, NormKind, Stack};
use sigprop_validate::{StepRow, measure_steps};

use super::support::{activation, gaussian_stack, linear, norm, residual};

/// Gradients of queries and keys know which tokens are alike, which averages over pairs do not follow: what they do is
/// told by so much too large.
const PAIRS: f64 = 0.25;

fn predicted(stack: &Stack, optimizer: Optimizer) -> Vec<UpdateRow> {
    let prediction = predict(stack, Options { steps: true, ..Sites::Stream.into() }).expect("the stack is valid");
    FirstUpdate::of(&prediction, (stack, None), optimizer, 1.0).rows
}

/// E Δy² of every linear map under SGD, and E |G| behind Adam's loss drop, beside sampled ones: the first within
/// `tolerance`, the second between that of one product of Gaussians and that of many, all beyond four standard errors.
fn assert_steps(stack: &Stack, replicates: usize, tolerance: f64) {
    let entries = tensor_entries(stack);
    let [sgd, adam] = [Optimizer::Sgd, Optimizer::Adam].map(|optimizer| predicted(stack, optimizer));
    let mut failures = Vec::new();
    for StepRow { tensor, change, size } in measure_steps(stack, replicates, 1).expect("the stack is valid and small") {
        let [by_sgd, by_adam] =
            [&sgd, &adam].map(|rows| rows.iter().find(|row| row.tensor == tensor).expect("a weight"));
        assert_eq!(by_adam.update.value().to_bits(), 1f64.to_bits());
        let ln_change = 2.0 * by_sgd.output_change.expect("a linear map").ln_abs();
        let ln_size = by_adam.loss_drop.ln_abs() - (entries[&tensor] as f64).ln();
        let product = FRAC_PI_2.sqrt() - 1.0;
        let knows_pairs = ["query.weight", "key.weight"].iter().any(|name| tensor.ends_with(name));
        let above = if knows_pairs { tolerance.max(PAIRS) } else { tolerance };
        for (name, ln, cell, [low, high]) in [
            ("output change", ln_change, change, [-tolerance, above]),
            ("gradient size", ln_size, size, [-tolerance, product + tolerance]),
        ] {
            let Cell { value, std_error } = cell;
            let error = (ln - value.ln_abs()).exp_m1();
            let noise = 4.0 * std_error.value() / value.value();
            let text = format!("{tensor}, {name}: off by {error:+.3}, four standard errors {noise:.3}");
            if error < low - noise || error > high + noise {
                failures.push(text);
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Terms of order 1/width are neglected.
#[test]
fn steps_of_feed_forward_blocks_are_predicted() {
    for width in [64, 256] {
        let branch = vec![
            norm("norm", NormKind::RmsNorm),
            linear("up", width, 2 * width, 1.0),
            activation("relu", Activation::Relu),
            linear("down", 2 * width, width, 2.0),
        ];
        let body = vec![residual("block", [1.0, 1.0], 0.0, branch), linear("end", width, width, 1.0)];
        assert_steps(&gaussian_stack(width, 1.0, 32, body), 100, 4.0 / width as f64);
    }
}

#[test]
fn steps_of_encoders_are_predicted() {
    for width in [64, 128] {
        for causal in [false, true] {
            let architecture = Architecture {
                n_layers: 2,
                d_model: width,
                n_heads: Some(4),
                seq_len: 48,
                vocab_size: 1000,
                dropout: 0.0,
                causal,
                ..Architecture::default()
            };
            let scheme = Scheme::parse("xavier").expect("known");
            let stack = assemble(&architecture, &scheme, &Input::Zipf, &Run::default()).expect("valid").stack;
            assert_steps(&stack, 60, 8.0 / width as f64);
        }
    }
}
