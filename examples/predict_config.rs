//! Predicts the signal of a Hugging Face model at initialisation.
//!
//! `cargo run --example predict_config -- config.json`; without a file the model is GPT-2.
#![expect(clippy::print_stdout, reason = "examples print")]

use std::{env, error::Error, fs};

use sigprop::{
    Sites,
    assemble::{Input, Run, assemble},
    huggingface::{Options, import},
    numerals::short,
    predict,
    schemes::Scheme,
    verdict::{Shape, Verdict},
};
use sigprop_stack::Quantity;

fn main() -> Result<(), Box<dyn Error>> {
    let text = match env::args().nth(1) {
        Some(path) => fs::read_to_string(path)?,
        None => include_str!("../data/models/gpt2.json").to_owned(),
    };
    let mut architecture = import(&text, &Options::default())?.architecture;
    architecture.seq_len = architecture.seq_len.min(64);
    // The scheme `hf` draws every weight as transformers does.
    let stack = assemble(&architecture, &Scheme::parse("hf")?, &Input::Zipf, &Run::default())?.stack;
    let prediction = predict(&stack, Sites::Stream)?;
    for row in prediction.table.stream_sites() {
        let [signal, gradient] =
            [Quantity::Variance, Quantity::GradVariance].map(|quantity| row.value(quantity).map(short));
        println!(
            "{}: variance {}, of gradients {}",
            row.site,
            signal.unwrap_or_default(),
            gradient.unwrap_or_default()
        );
    }
    println!("{}", Verdict::of(&prediction, Shape::of(&stack), None).headline);
    Ok(())
}
