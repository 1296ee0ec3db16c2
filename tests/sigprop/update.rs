//! First updates: predicted, and taken by sampled networks.
//!
//! Steps are of fourth order in signals and neglect that sizes stray together: a relative term of order 1/width at each
//! linear map that a signal passes. A chain of n maps is given n/width for it, and four standard errors for sampling.
//! Output changes of queries and keys are not told, so not compared.

use std::f64::consts::FRAC_PI_2;

use sigprop::architecture::Architecture;
use sigprop::assemble::{Input, Run, assemble};
use sigprop::cost::tensor_entries;
use sigprop::schemes::Scheme;
use sigprop::update::{FirstUpdate, Optimizer, UpdateRow};
use sigprop::{Options, Sites, predict};
use sigprop_stack::{Activation, Cell, NormKind, Stack};
use sigprop_validate::{MeasureError, StepRow, measure_steps};

use super::support::{activation, gaussian_stack, linear, norm, residual};

fn predicted(stack: &Stack, optimizer: Optimizer) -> Vec<UpdateRow> {
    let prediction = predict(stack, Options { steps: true, ..Sites::Stream.into() }).expect("the stack is valid");
    FirstUpdate::of(&prediction, (stack, None), optimizer, 1.0).rows
}

/// E Δy² of every linear map under SGD that tells it, and E |G| behind Adam's loss drop, beside sampled ones: the first
/// within a term `maps`/width, the second between that of one product of Gaussians and that of many.
fn assert_steps(stack: &Stack, replicates: usize, maps: usize, width: usize) {
    let term = maps as f64 / width as f64;
    let product = FRAC_PI_2.sqrt() - 1.0;
    let entries = tensor_entries(stack);
    let [sgd, adam] = [Optimizer::Sgd, Optimizer::Adam].map(|optimizer| predicted(stack, optimizer));
    let mut failures = Vec::new();
    for StepRow { tensor, change, size } in measure_steps(stack, replicates, 1).expect("the stack is valid and small") {
        let [by_sgd, by_adam] =
            [&sgd, &adam].map(|rows| rows.iter().find(|row| row.tensor == tensor).expect("a weight"));
        assert_eq!(by_adam.update.value().to_bits(), 1f64.to_bits());
        let is_scored = ["query.weight", "key.weight"].iter().any(|name| tensor.ends_with(name));
        assert_eq!(by_sgd.output_change.is_none(), is_scored, "{tensor}");
        let ln_change = by_sgd.output_change.map(|change| 2.0 * change.ln_abs());
        let ln_size = by_adam.loss_drop.ln_abs() - (entries[&tensor] as f64).ln();
        let compared = [
            ("output change", ln_change, change, [-term, term]),
            ("gradient size", Some(ln_size), size, [-term, product + term]),
        ];
        for (name, ln, Cell { value, std_error }, [low, high]) in compared {
            let Some(ln) = ln else { continue };
            let error = (ln - value.ln_abs()).exp_m1();
            let noise = 4.0 * std_error.value() / value.value();
            if error < low - noise || error > high + noise {
                failures.push(format!("{tensor}, {name}: off by {error:+.3}, four standard errors {noise:.3}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Three maps: up, down, end.
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
        assert_steps(&gaussian_stack(width, 1.0, 32, body), 100, 3, width);
    }
}

/// Eight maps: value, attention output, feed-forward in and out, of two blocks.
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
            assert_steps(&stack, 60, 8, width);
        }
    }
}

#[test]
fn steps_beyond_f32_are_told() {
    let body = vec![linear("huge", 16, 16, 1e80), linear("end", 16, 16, 1.0)];
    let error = measure_steps(&gaussian_stack(16, 1.0, 2, body), 1, 1).expect_err("no f32");
    assert!(matches!(&error, MeasureError::Overflow { site } if site == "huge"), "{error}");
}
