//! The input of the network.

use std::path::{Path, PathBuf};

use crate::Caveat;
use crate::architecture::Architecture;
use crate::assemble::{Input, StreamName};
use crate::caveat::Condition;
use crate::tokens::{read_text, read_tokens};
use anyhow::bail;
use clap::{Args, ValueEnum};

use super::parse::{self, Sequences};

/// The input of the network.
#[derive(Args, Debug)]
#[command(next_help_heading = "Input")]
pub(crate) struct InputArguments {
    #[command(flatten)]
    kind: InputKind,

    /// A tokenizer.json for --text; without one, ids are bytes.
    #[arg(long, value_name = "FILE", requires = "text")]
    tokenizer: Option<PathBuf>,

    /// Number of sequences to read from --text, evenly spaced; `all` reads every one.
    #[arg(long, value_name = "N", value_parser = parse::sequences, default_value = "16", allow_negative_numbers = true, requires = "text")]
    sequences: Sequences,

    /// Token ids of a decoder (npy, csv, json); by default they have the distribution of the encoder's input.
    #[arg(long, value_name = "FILE")]
    decoder_tokens: Option<PathBuf>,
}

/// The kind of the input, at most one; --zipf if there is none.
#[derive(Args, Debug)]
#[command(next_help_heading = "Input")]
#[group(multiple = false)]
struct InputKind {
    /// Token ids from Zipf's law over the vocabulary: the default.
    #[arg(long)]
    zipf: bool,

    /// Token ids that are all equally likely.
    #[arg(long)]
    uniform: bool,

    /// Random token ids; two positions have the same id with probability P.
    #[arg(long, value_name = "P", value_parser = parse::repeat_probability, allow_negative_numbers = true)]
    token_repeat: Option<f64>,

    /// No ids: Gaussian tokens with correlation R at the site `embeddings`.
    #[arg(long, value_name = "R", value_parser = parse::share, allow_negative_numbers = true)]
    input_correlation: Option<f64>,

    /// Given token ids: a .npy of any shape whose last axis is the sequence; a .csv, one sequence per line; a .json.
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,

    /// A text, cut into sequences; its bytes are the ids unless there is a --tokenizer.
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
}

/// The stream at whose end the gradient starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LossAt {
    /// At the end of the encoder.
    Encoder,
    /// At the end of the decoder.
    Decoder,
}

impl LossAt {
    /// Returns the name of the stream.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Encoder => "encoder",
            Self::Decoder => "decoder",
        }
    }
}

impl From<LossAt> for StreamName {
    fn from(choice: LossAt) -> Self {
        match choice {
            LossAt::Encoder => Self::Encoder,
            LossAt::Decoder => Self::Decoder,
        }
    }
}

impl InputArguments {
    /// Returns the input that is asked for. A text is cut into sequences of the architecture's length; a caveat reports
    /// how many of them are read, if not all.
    pub(crate) fn input(&self, architecture: &Architecture) -> anyhow::Result<(Input, Option<Caveat>)> {
        let InputKind { zipf: _, uniform, token_repeat, input_correlation, tokens, text } = &self.kind;
        if let Some(path) = text {
            return self.text(path, architecture.seq_len);
        }
        let input = match (tokens, token_repeat, input_correlation) {
            (Some(path), _, _) => given(path)?,
            (_, Some(probability), _) => Input::TokenRepeat(*probability),
            (_, _, Some(correlation)) => Input::Correlation(*correlation),
            (None, None, None) if *uniform => Input::Uniform,
            (None, None, None) => Input::Zipf,
        };
        Ok((input, None))
    }

    /// Returns sequences of a text, evenly spaced.
    fn text(&self, path: &Path, seq_len: usize) -> anyhow::Result<(Input, Option<Caveat>)> {
        let all = read_text(path, self.tokenizer.as_deref(), seq_len)?;
        let of = all.len();
        let Some(read) = self.sequences.0.filter(|&read| read < of) else {
            return Ok((Input::Tokens { sequences: all }, None));
        };
        let sequences = (0..read).map(|index| all[(2 * index + 1) * of / (2 * read)].clone()).collect();
        let caveat = Caveat::at(path.display().to_string(), Condition::SampledText(read, of));
        Ok((Input::Tokens { sequences }, Some(caveat)))
    }

    /// Returns the input of the decoder, if it is given.
    pub(crate) fn decoder_input(&self, architecture: &Architecture) -> anyhow::Result<Option<Input>> {
        let Some(path) = &self.decoder_tokens else { return Ok(None) };
        if architecture.decoder.is_none() {
            bail!("--decoder-tokens {}: expected a model with a decoder, got one without", path.display());
        }
        given(path).map(Some)
    }
}

fn given(path: &Path) -> anyhow::Result<Input> {
    Ok(Input::Tokens { sequences: read_tokens(path)? })
}
