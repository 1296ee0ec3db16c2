//! Which initialisation suits a network? Compares three schemes, then finds the nearest scheme that meets the demands.
//!
//! `cargo run --example choose_initialisation`
#![expect(clippy::print_stdout, reason = "examples print")]

use std::error::Error;

use sigprop::{
    architecture::{Architecture, NormPlacement},
    compare,
    compare::Setting,
    numerals::short,
    recommend,
    recommend::Demands,
    schemes::Scheme,
};

fn main() -> Result<(), Box<dyn Error>> {
    let architecture = Architecture {
        n_layers: 48,
        d_model: 256,
        seq_len: 64,
        norm_placement: NormPlacement::Post,
        ..Architecture::default()
    };
    let setting = Setting::from(architecture);
    for candidate in compare(&setting, &Scheme::parse_list("xavier,deepnorm,dslm")?)? {
        let summary = candidate.outcome?;
        let gradient = short(summary.backward.total());
        println!("{}: gradients ×{gradient} over all blocks; {}", candidate.scheme, summary.verdict.headline);
    }
    let recommendation = recommend(&setting, &Demands { max_correlation: Some(0.8), ..Demands::default() }, &|| {})?;
    println!("--scheme {}: {}", recommendation.scheme, recommendation.summary.verdict.headline);
    Ok(())
}
