//! What flows into the network.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use sigprop::assemble::Input;

use super::parse;

/// At most one input; none is --zipf.
#[derive(Args, Debug)]
#[command(next_help_heading = "Input")]
#[group(multiple = false)]
pub(crate) struct InputArguments {
    /// Token ids from Zipf's law over the vocabulary: the default.
    #[arg(long)]
    zipf: bool,

    /// Token ids that are all equally likely.
    #[arg(long)]
    uniform: bool,

    /// Token ids of which two positions carry the same one with probability P.
    #[arg(long, value_name = "P", value_parser = parse::repeat_probability, allow_negative_numbers = true)]
    token_repeat: Option<f64>,

    /// No ids: Gaussian tokens with correlation R at the site `embeddings`.
    #[arg(long, value_name = "R", value_parser = parse::share, allow_negative_numbers = true)]
    input_correlation: Option<f64>,

    /// Given token ids (npy, csv, json); not available yet.
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,

    /// A text, as token ids; not available yet.
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
}

impl InputArguments {
    /// The input asked for.
    pub(crate) fn input(&self) -> anyhow::Result<Input> {
        let given = [("--tokens", &self.tokens), ("--text", &self.text)];
        if let Some((flag, _)) = given.into_iter().find(|(_, path)| path.is_some()) {
            bail!(
                "{flag} needs the Gram domain, not available yet: given ids make every pair of positions different; \
                 --token-repeat P is the nearest input with exchangeable tokens"
            );
        }
        Ok(match (self.token_repeat, self.input_correlation) {
            (Some(probability), _) => Input::TokenRepeat(probability),
            (None, Some(correlation)) => Input::Correlation(correlation),
            (None, None) if self.uniform => Input::Uniform,
            (None, None) => Input::Zipf,
        })
    }
}
