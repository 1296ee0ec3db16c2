//! The signals in the branches of a DSLM network, compared with the paper's special case.

use sigprop_stack::{Component, Node, Op, Quantity, Stack};

use crate::architecture::{Activation, Architecture, NormChoice, NormPlacement};
use crate::assemble::{Input, Run, assemble, assemble_in};
use crate::schemes::Scheme;
use crate::{Sites, Theory, predict};

fn plain() -> Architecture {
    let shape = Architecture { n_layers: 6, d_model: 256, seq_len: 64, ..Architecture::default() };
    Architecture { dropout: 0.1, attention_dropout: 0.1, ..shape }
}

fn training(architecture: &Architecture, input: &Input) -> Stack {
    let run = Run { train: true, ..Run::default() };
    assemble(architecture, &Scheme::parse("dslm").unwrap(), input, &run).unwrap().stack
}

/// The second moments of all sites whose path ends with `end`.
fn second_moments(stack: &Stack, end: &str) -> Vec<f64> {
    let table = predict(stack, Sites::All).unwrap().table;
    let sites = table.sites.iter().filter(|row| row.site.ends_with(end));
    sites
        .map(|row| {
            let [mean, variance] =
                [Quantity::Mean, Quantity::Variance].map(|quantity| row.value(quantity).unwrap().value());
            variance + mean * mean
        })
        .collect()
}

#[test]
fn every_branch_leaves_with_second_moment_one() {
    for norm in ["layernorm", "rmsnorm", "none"] {
        for placement in ["pre", "post"] {
            // Without norms the lengths of tokens differ between networks, and with them the second moment after every
            // activation but ReLU: no weight makes it 1 everywhere.
            let activations = ["relu", "gelu", "sigmoid", "relu2", "swiglu"];
            let count = if norm == "none" { 1 } else { activations.len() };
            for activation in &activations[..count] {
                let architecture = Architecture {
                    norm: Some(norm.parse::<NormChoice>().unwrap()),
                    norm_placement: placement.parse::<NormPlacement>().unwrap(),
                    activation: activation.parse::<Activation>().unwrap(),
                    ..plain()
                };
                let stack = training(&architecture, &Input::Zipf);
                let branches = second_moments(&stack, ".dropout");
                assert_eq!(branches.len(), 1 + 2 * 6);
                for second in branches {
                    assert!((second - 1.0).abs() < 1e-4, "{norm} {placement} {activation}: {second}");
                }
            }
        }
    }
}

/// In causal attention positions differ; then the average of the second moment over positions is 1.
#[test]
fn causal_streams_keep_their_variance_on_average() {
    let architecture = Architecture { causal: true, n_layers: 3, d_model: 64, seq_len: 64, ..Architecture::default() };
    let stack = assemble(&architecture, &Scheme::parse("dslm").unwrap(), &Input::Zipf, &Run::default()).unwrap().stack;
    let [first, second, third] = [0, 1, 2].map(|block| written(&stack, block).0);
    // Attention passes on more of tokens that have become correlated.
    assert!(first > 1.1 * second && second > 1.1 * third, "{first} {second} {third}");
    let table = predict(&stack, Sites::Stream).unwrap().table;
    for row in table.stream_sites() {
        let variance = row.value(Quantity::Variance).unwrap().value();
        // The weights follow one sampled sequence, the prediction averages over sixteen.
        approx::assert_relative_eq!(variance, 1.0, max_relative = 0.01);
    }
}

#[test]
fn evaluation_has_the_weights_of_training() {
    let scheme = Scheme::parse("dslm").unwrap();
    let evaluation = assemble(&plain(), &scheme, &Input::Zipf, &Run::default()).unwrap().stack;
    let weights = |stack: &Stack| {
        let table = predict(stack, Sites::Stream).unwrap().table;
        table.weights.into_iter().map(|row| (row.tensor, row.variance)).collect::<Vec<_>>()
    };
    assert_eq!(weights(&evaluation), weights(&training(&plain(), &Input::Zipf)));
}

/// ReLU, d_ff = 4 d, r0 = 0.221 and long sequences, where attention is flat. The remaining difference is of order
/// 1/width.
#[test]
fn the_special_case_is_that_of_the_paper() {
    let architecture = Architecture {
        n_layers: 192,
        d_model: 1024,
        seq_len: 1 << 17,
        activation: Activation::Relu,
        dropout: 0.1,
        ..Architecture::default()
    };
    let run = Run { train: true, ..Run::default() };
    let stack = |scheme: &str| {
        let scheme = Scheme::parse(scheme).unwrap();
        assemble_in(Theory::MeanField, &architecture, &scheme, &Input::Correlation(0.221 * 0.9), &run).unwrap().stack
    };
    // k/n = 0.005.
    let (ours, paper) = (stack("dslm:k=1.92"), stack("dslm-paper"));
    for block in [0, 1, 10, 50, 191] {
        let [(output, ffn), (paper_output, paper_ffn)] = [&ours, &paper].map(|stack| written(stack, block));
        approx::assert_relative_eq!(output, paper_output, max_relative = 5e-4);
        // The ε of the norm.
        approx::assert_relative_eq!(ffn, paper_ffn, max_relative = 3e-6);
    }
}

/// The standard deviations of the maps that write to the stream in a block: attention output, feed-forward output.
fn written(stack: &Stack, block: usize) -> (f64, f64) {
    let Op::Chain(block) = &stack.streams[0].body[1 + block].op else { unreachable!("a block is a chain") };
    let std = |sum: &Node| {
        let Op::Sum(sum) = &sum.op else { unreachable!("a branch is part of a sum") };
        let linear = sum.branches[1].body.iter().rev().find_map(|node| match &node.op {
            Op::Apply(Component::Linear(linear)) => Some(linear.weight.init.std()),
            _ => None,
        });
        linear.expect("a branch has a linear map")
    };
    (std(&block[0]), std(&block[1]))
}
