//! The output head and its loss.

use std::io::{self, Write};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use sigprop::{
    Caveat, architecture,
    head::{Head, Loss},
    numerals::short,
};

use super::model::Network;

/// What follows the stream.
#[derive(Args, Debug)]
#[command(next_help_heading = "Loss")]
pub(crate) struct HeadArguments {
    /// Add the output head, so that gradients are those of the mean loss over the tokens of a sequence: the model's
    /// own, one tied to the token embedding, or an untied one.
    #[arg(long, value_enum, value_name = "WHICH", num_args = 0..=1, require_equals = true, default_missing_value = "own", conflicts_with = "grad_correlation")]
    head: Option<HeadChoice>,

    /// What is minimised, the targets having the law of the input.
    #[arg(long, value_enum, value_name = "LOSS", default_value_t = LossChoice::CrossEntropy, requires = "head")]
    loss: LossChoice,
}

/// Which head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum HeadChoice {
    /// The model's; untied where it has none.
    Own,
    /// The table of token embeddings.
    Tied,
    /// Weights of its own.
    Untied,
}

/// What is minimised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LossChoice {
    /// −ln softmax(logits) at the target.
    CrossEntropy,
}

impl HeadArguments {
    /// The head asked for.
    pub(crate) fn head(&self, network: &Network) -> anyhow::Result<Option<Head>> {
        let Self { head, loss: LossChoice::CrossEntropy } = self;
        let tied = || Head::tied(&network.stack).context("--head=tied: expected a stream that embeds ids, got another");
        let head = match head {
            None => return Ok(None),
            Some(HeadChoice::Tied) => tied()?,
            Some(HeadChoice::Untied) => untied(network)?,
            Some(HeadChoice::Own) => match network.own_head() {
                Some(architecture::Head::Tied) => tied()?,
                Some(architecture::Head::Untied | architecture::Head::None) => untied(network)?,
                Some(architecture::Head::Pooler) => {
                    bail!("--head: expected a head over the vocabulary, got a pooler; say --head=tied or --head=untied")
                }
                None => bail!("--head: a stack file says nothing of its head; say --head=tied"),
            },
        };
        if head.vocab_size < 2 {
            bail!("--head: expected a vocabulary of 2 ids or more, got {}", head.vocab_size);
        }
        Ok(Some(head))
    }
}

/// What a model of a library does with its logits and nobody here has heard of, if it is one.
pub(crate) fn caveat(network: &Network) -> Option<Caveat> {
    let (architecture, _) = network.described()?;
    let text = "factors and caps that a model puts on its logits are not known here".to_owned();
    architecture.init.map(|_| Caveat { site: "head".to_owned(), sites: 1, text })
}

fn untied(network: &Network) -> anyhow::Result<Head> {
    let (architecture, scheme) = network.described().context("--head=untied: expected a model, got a stack file")?;
    Ok(Head::untied(architecture, scheme)?)
}

/// The loss lines of a prediction.
pub(crate) fn write_loss(loss: &Loss, sequences: usize, out: &mut dyn Write) -> io::Result<()> {
    let Loss { logit_variance, cross_entropy, uniform, grad_norm } = loss;
    writeln!(out, "Logits:             std {}", short(logit_variance.sqrt()))?;
    writeln!(out, "Initial loss:       {} nats, {} of equal logits", short(*cross_entropy), short(*uniform))?;
    writeln!(out, "Global grad norm:   {} for one sequence", short(*grad_norm))?;
    if sequences > 1 {
        let apart = short(grad_norm.value() / (sequences as f64).sqrt());
        writeln!(out, "                    {apart} or more for {sequences}, by what their gradients share")?;
    }
    Ok(())
}
