//! `--first-update`: how large the first step of an optimiser is.

use crate::{
    Prediction,
    first_step::{FirstUpdate, Optimizer},
    head::Head,
};
use clap::{Args, ValueEnum};
use sigprop_stack::Stack;

use super::parse;

/// The first step of an optimiser.
#[derive(Args, Debug)]
#[command(next_help_heading = "First update")]
pub(crate) struct UpdateArguments {
    /// Report, from one sequence, the first step of every tensor, how far it moves the output of its linear map on that
    /// sequence (not for keys, nor by adam near activations), and how much lower the loss gets to first order: in a
    /// second table; in rows, instead of the sites.
    #[arg(long, value_enum, value_name = "OPTIMIZER", requires = "lr", conflicts_with = "weights")]
    first_update: Option<OptimizerChoice>,

    /// Learning rate, which schemes like mup multiply by a factor per tensor; every scheme takes layer-decay=D.
    #[arg(long, value_name = "RATE", requires = "first_update", value_parser = parse::positive, allow_negative_numbers = true)]
    lr: Option<f64>,
}

/// The optimiser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OptimizerChoice {
    /// lr · gradient.
    Sgd,
    /// lr · sign of the gradient: Adam's first step without ε.
    Adam,
}

impl From<OptimizerChoice> for Optimizer {
    fn from(choice: OptimizerChoice) -> Self {
        match choice {
            OptimizerChoice::Sgd => Self::Sgd,
            OptimizerChoice::Adam => Self::Adam,
        }
    }
}

impl UpdateArguments {
    /// Returns true if the step is to be reported, so that the changes of the outputs of linear maps must be predicted.
    pub(crate) fn moves_outputs(&self) -> bool {
        self.first_update.is_some()
    }

    /// Returns the step that is asked for.
    pub(crate) fn update(&self, prediction: &Prediction, network: (&Stack, Option<&Head>)) -> Option<FirstUpdate> {
        let (optimizer, rate) = self.first_update.zip(self.lr)?;
        Some(FirstUpdate::of(prediction, network, optimizer.into(), rate))
    }
}
