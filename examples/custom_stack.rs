//! A network that no flag describes: forty residual blocks of one linear map and a ReLU each, with branches of 1/√40.
//!
//! `cargo run --example custom_stack` predicts it. With `-- FILE` it writes the stack, and `sigprop validate --stack
//! FILE` samples it.
#![expect(clippy::print_stdout, reason = "examples print")]

use std::{env, error::Error, path::Path};

use sigprop::{Sites, numerals::short, predict, report::write_file, stack_file::stack_json};
use sigprop_stack::{
    Activation, Branch, Component, Gaussian, GradientSeed, Init, Linear, Node, Op, Quantity, Source, Stack, Stream,
    Sum, Tensor, check,
};

const WIDTH: usize = 128;
const N_BLOCKS: usize = 40;

/// x + 1/√N · relu(W x), with weights of variance 2/width.
fn block(index: usize) -> Node {
    let name = format!("blocks.{index}");
    let weight = Tensor { name: format!("{name}.weight"), init: Init::Normal { std: (2.0 / WIDTH as f64).sqrt() } };
    let linear = Linear { fan_in: WIDTH, fan_out: WIDTH, weight, bias: None, standardised: None };
    let body = vec![
        Node::apply("linear", Component::Linear(linear)),
        Node::apply("relu", Component::Activation(Activation::Relu)),
    ];
    let branches = vec![Branch::constant(1.0, Vec::new()), Branch::constant((1.0 / N_BLOCKS as f64).sqrt(), body)];
    Node::new(name, Op::Sum(Sum { branches }))
}

fn main() -> Result<(), Box<dyn Error>> {
    let stream = Stream {
        name: "main".to_owned(),
        seq_len: 16,
        source: Source::Gaussian(Gaussian { width: WIDTH, mean: 0.0, variance: 1.0, correlation: 0.1 }),
        body: (0..N_BLOCKS).map(block).collect(),
    };
    let stack = Stack::new("residual", vec![stream], GradientSeed { stream: 0, correlation: 0.0 });
    check(&stack)?;
    if let Some(path) = env::args().nth(1) {
        write_file(Path::new(&path), |out| stack_json(&stack, out))?;
    }
    let prediction = predict(&stack, Sites::Stream)?;
    for row in prediction.table.stream_sites() {
        let variance = row.value(Quantity::Variance).map(short).unwrap_or_default();
        println!("{}: variance {variance}", row.site);
    }
    Ok(())
}
