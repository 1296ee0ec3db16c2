//! The output head and its loss.

use std::io::{self, Write};

use crate::{
    architecture,
    head::{self, Loss},
    numerals::short,
};
use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use sigprop_stack::Number;

use super::model::Network;

/// The output head and its loss.
#[derive(Args, Debug)]
#[command(next_help_heading = "Loss")]
pub(crate) struct HeadArguments {
    /// Add the output head: gradients are then of the mean loss over the tokens of a sequence. It is the model's own
    /// head, with its distribution, scale, soft cap and the map and norm before it; or the same tied to the token
    /// embedding, or untied. The head of --stack is the key "head" of the file.
    #[arg(long, value_enum, value_name = "WHICH", num_args = 0..=1, require_equals = true, default_missing_value = "own", conflicts_with = "grad_correlation")]
    head: Option<HeadChoice>,

    /// Loss to minimise; its targets have the distribution of the input.
    #[arg(long, value_enum, value_name = "LOSS", default_value_t = LossChoice::CrossEntropy, requires = "head")]
    loss: LossChoice,
}

/// The kind of the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum HeadChoice {
    /// The head of the model or of the stack file; untied if a model has none.
    Own,
    /// The table of token embeddings.
    Tied,
    /// Weights of its own.
    Untied,
}

/// The loss that is minimised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LossChoice {
    /// −ln softmax(logits) at the target.
    CrossEntropy,
}

impl HeadArguments {
    /// Adds the head that is asked for to the network. Returns false if none is asked for.
    pub(crate) fn attach(&self, network: &mut Network) -> anyhow::Result<bool> {
        let Self { head, loss: LossChoice::CrossEntropy } = self;
        let Some(choice) = head else { return Ok(false) };
        match choice {
            HeadChoice::Own => own(network)?,
            HeadChoice::Tied => tied(network)?,
            HeadChoice::Untied => untied(network)?,
        }
        match network.stack.head.as_ref().map(|head| head.vocab_size) {
            Some(2..) => Ok(true),
            Some(got) => bail!("--head: expected a vocabulary of 2 ids or more, got {got}"),
            None => {
                bail!("--head: expected the gradient at the end of the last stream, got another; leave --loss-at out")
            }
        }
    }
}

/// Adds the head of the model.
fn own(network: &mut Network) -> anyhow::Result<()> {
    match network.own_head() {
        _ if network.stack.head.is_some() => Ok(()),
        Some(architecture::Head::Tied) => tied(network),
        Some(architecture::Head::Untied | architecture::Head::None) => untied(network),
        Some(architecture::Head::Pooler) => {
            bail!("--head: expected a head over the vocabulary, got a pooler; say --head=tied or --head=untied")
        }
        None => bail!("--head: expected the key \"head\" in the stack file, got none; add it or say --head=tied"),
    }
}

fn tied(network: &mut Network) -> anyhow::Result<()> {
    let plain = head::tied(&network.stack).context("--head=tied: expected a stream that embeds ids, got another")?;
    if !network.set_head(architecture::Head::Tied)? {
        network.stack.head = Some(plain);
    }
    Ok(())
}

fn untied(network: &mut Network) -> anyhow::Result<()> {
    if !network.set_head(architecture::Head::Untied)? {
        bail!("--head=untied: expected a model, got a stack file; add the key \"head\" to the file");
    }
    Ok(())
}

/// Writes the loss lines of a prediction.
pub(crate) fn write_loss(loss: &Loss, sequences: usize, out: &mut dyn Write) -> io::Result<()> {
    let Loss { logit_variance, cross_entropy, uniform, grad_norm } = loss;
    writeln!(out, "Logits:             std {}", short(logit_variance.sqrt()))?;
    writeln!(out, "Initial loss:       {} nats, {} of equal logits", short(*cross_entropy), short(*uniform))?;
    writeln!(out, "Global grad norm:   {} for one sequence", short(*grad_norm))?;
    if sequences > 1 {
        let apart = short(Number::scaled((sequences as f64).sqrt().recip(), grad_norm.ln_abs()));
        writeln!(out, "                    {apart} or more for {sequences}, by the common part of their gradients")?;
    }
    Ok(())
}
