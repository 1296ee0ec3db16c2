//! The description of a network, apart from its weights: MODEL, the flags that override it, its input and its gradient.

use std::path::PathBuf;

use crate::{
    Caveat, Options, Positions, Sites, Theory,
    architecture::Architecture,
    assemble::Run,
    compare::{Setting, Subject},
    huggingface::Names,
    stack_file::{fingerprint, read_stack, stack_hash},
    verdict::Shape,
};
use anyhow::Context;
use clap::{Arg, Args, ValueEnum};
use sigprop_stack::Stack;
use sigprop_validate::Identity;

use super::{
    console::Console,
    hint::did_you_mean,
    input::{InputArguments, LossAt},
    parse,
    shape::ShapeArguments,
    source::ConfigArguments,
    title::{norm_placement, stack_title, title},
};

/// MODEL, the flags that override it, its input and its gradient; or a stack file in place of MODEL and its input.
#[derive(Args, Debug)]
#[command(mut_args(apart_from_stack))]
pub(crate) struct DescriptionArguments {
    /// A Hugging Face config.json (`-` reads it from standard input), a preset (see `sigprop models`), a TOML or JSON
    /// model file (docs/model-files.md lists its keys), JSON itself ('{"n_layers": 24}'), or `mlp`; without MODEL the
    /// flags describe a plain encoder.
    #[arg(value_name = "MODEL")]
    model: Option<String>,

    #[command(flatten)]
    config: ConfigArguments,

    #[command(flatten)]
    pub(crate) shape: ShapeArguments,

    #[command(flatten)]
    input: InputArguments,

    /// Correlation between the gradients of two tokens where the backward pass starts [default: 0].
    #[arg(long, value_name = "R", help_heading = "Gradient", value_parser = parse::share, allow_negative_numbers = true)]
    pub(crate) grad_correlation: Option<f64>,

    /// Stream of an encoder–decoder at whose end the gradient starts [default: decoder].
    #[arg(long, value_enum, value_name = "STREAM", help_heading = "Gradient")]
    pub(crate) loss_at: Option<LossAt>,

    /// Read the whole network from a dumped stack; `-` is standard input. A scheme initialises it anew, if the file has
    /// the roles of its maps (docs/formats.md).
    #[arg(long, value_name = "FILE", help_heading = "Stack files")]
    stack: Option<PathBuf>,
}

/// Makes the arguments that describe a network conflict with --stack: a stack file holds the whole network. A scheme
/// can initialise it anew.
fn apart_from_stack(argument: Arg) -> Arg {
    let heading = argument.get_help_heading();
    if argument.get_id() == "model" || matches!(heading, Some("Shape" | "Input")) {
        argument.conflicts_with("stack")
    } else {
        argument
    }
}

/// The averages that a prediction takes, and the terms that it includes.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Averages")]
pub(crate) struct AverageArguments {
    /// Sequences over which the loss is averaged [default: 16].
    #[arg(long, value_name = "N", value_parser = parse::count, allow_negative_numbers = true)]
    pub(crate) batch: Option<usize>,

    /// Seed of the exported parameters: the same seed gives the same parameters.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) seed: u64,

    /// Which terms to include.
    #[arg(long, value_enum, value_name = "THEORY", default_value_t = TheoryChoice::FiniteWidth)]
    pub(crate) theory: TheoryChoice,

    /// How many positions to follow, where they differ [default: so many that more would change little; -v reports the
    /// number].
    #[arg(long, value_enum, value_name = "GRADING")]
    pub(crate) grading: Option<GradingChoice>,
}

/// How many positions of a sequence are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GradingChoice {
    /// Three positions per factor of two.
    Coarse,
    /// Four positions per factor of two.
    Fine,
    /// Eight positions per factor of two.
    Finest,
    /// Every position.
    All,
}

impl From<GradingChoice> for Positions {
    fn from(choice: GradingChoice) -> Self {
        match choice {
            GradingChoice::Coarse => Self::Coarse,
            GradingChoice::Fine => Self::Fine,
            GradingChoice::Finest => Self::Finest,
            GradingChoice::All => Self::All,
        }
    }
}

/// The terms that a prediction includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TheoryChoice {
    /// The network of infinite width and the corrections of finite width, including the ± of one network.
    FiniteWidth,
    /// The network of infinite width alone; any length takes milliseconds to seconds.
    MeanField,
}

impl From<TheoryChoice> for Theory {
    fn from(choice: TheoryChoice) -> Self {
        match choice {
            TheoryChoice::FiniteWidth => Self::FiniteWidth,
            TheoryChoice::MeanField => Self::MeanField,
        }
    }
}

impl AverageArguments {
    /// Returns the number of sequences over which the loss is averaged.
    pub(crate) fn loss_batch(self) -> usize {
        const SEQUENCES: usize = 16;
        self.batch.unwrap_or(SEQUENCES)
    }

    /// Returns the options of the predictor.
    pub(crate) fn options(self, sites: Sites) -> Options {
        Options { sites, steps: false, theory: self.theory.into(), positions: self.grading.map(Into::into) }
    }
}

/// A network without weights.
pub(crate) struct Described {
    pub(crate) setting: Setting,
    /// The ways in which the network differs from the one that was asked for.
    pub(crate) caveats: Vec<Caveat>,
    /// The names of the parameters of the network in a checkpoint.
    pub(crate) names: Names,
}

impl Described {
    /// Returns a line that describes the network.
    pub(crate) fn title(&self) -> String {
        match &self.setting.subject {
            Subject::Described { architecture, .. } => {
                let name = architecture.name.as_deref().unwrap_or(architecture.kind.name());
                let stream = architecture.decoder.as_deref().unwrap_or(architecture);
                let shape = Shape { width: stream.d_model, seq_len: stream.seq_len };
                title(name, stream.n_layers, norm_placement(architecture), shape)
            }
            Subject::Stack(stack) => stack_title(stack, None),
        }
    }
}

/// Returns the settings that determine the predictions of a network, apart from its scheme.
pub(super) fn identity(setting: &Setting) -> Identity {
    let Options { sites, steps, theory, positions } = setting.options;
    let mut identity = match &setting.subject {
        Subject::Described { architecture, input, run } => {
            let Run { train, grad_correlation, decoder_input, loss_at } = run;
            vec![
                ("architecture", fingerprint(architecture)),
                ("input", fingerprint(input)),
                ("train", train.to_string()),
                ("grad-correlation", grad_correlation.to_string()),
                ("decoder-input", fingerprint(decoder_input)),
                ("loss-at", format!("{loss_at:?}")),
            ]
        }
        Subject::Stack(stack) => vec![("stack", stack_hash(stack))],
    };
    identity.extend([
        ("sites", format!("{sites:?}")),
        ("steps", steps.to_string()),
        ("theory", format!("{theory:?}")),
        ("grading", format!("{positions:?}")),
    ]);
    identity
}

impl DescriptionArguments {
    /// Returns the network that the arguments describe. `scheme` may name the release of a library that draws its
    /// weights.
    pub(crate) fn setting(&self, scheme: Option<&str>) -> anyhow::Result<Described> {
        if let Some(path) = &self.stack {
            let setting = Setting::from(self.with_gradient(read_stack(path)?)?);
            return Ok(Described { setting, caveats: Vec::new(), names: Names::own(&Architecture::default()) });
        }
        let described = self.config.described(self.model.as_deref(), scheme, self.shape.seq_len())?;
        let (mut caveats, names) = (described.caveats(), described.names());
        let mut architecture = described.architecture.clone();
        self.shape.override_fields(&mut architecture)?;
        described.check_effects(&architecture, scheme)?;
        let (input, sampled) = self.input.input(&architecture)?;
        caveats.extend(sampled);
        let run = Run {
            train: self.shape.train,
            grad_correlation: self.grad_correlation.unwrap_or(0.0),
            decoder_input: self.input.decoder_input(&architecture)?,
            loss_at: self.loss_at.map(Into::into),
        };
        Ok(Described { setting: Setting::described(architecture, input, run), caveats, names })
    }

    /// Returns a stack with the gradient of the flags, where they set it.
    fn with_gradient(&self, mut stack: Stack) -> anyhow::Result<Stack> {
        if let Some(stream) = self.loss_at {
            stack.gradient.stream = stream_named(&stack, stream.name())?;
        }
        if let Some(correlation) = self.grad_correlation {
            stack.gradient.correlation = correlation;
        }
        Ok(stack)
    }

    /// Returns the network, with the options for predictions on its stream. Returns `None` if the command was asked how
    /// it reads a config: the answer has then been written.
    pub(crate) fn begin(
        &self,
        averages: AverageArguments,
        scheme: Option<&str>,
        console: Console,
    ) -> anyhow::Result<Option<Described>> {
        if self.explain(scheme, console)? {
            return Ok(None);
        }
        let mut described = self.setting(scheme)?;
        described.setting.options = averages.options(Sites::Stream);
        Ok(Some(described))
    }

    /// Reports how a config is read, if that is asked for. Returns true if it was.
    pub(crate) fn explain(&self, scheme: Option<&str>, console: Console) -> anyhow::Result<bool> {
        self.config.explain(self.model.as_deref(), scheme, self.shape.seq_len(), console)
    }
}

/// Returns the index of a stream.
fn stream_named(stack: &Stack, name: &str) -> anyhow::Result<usize> {
    stack.streams.iter().position(|stream| stream.name == name).with_context(|| {
        let known = stack.streams.iter().map(|stream| stream.name.as_str()).collect::<Vec<_>>().join(", ");
        let hint = did_you_mean(name, stack.streams.iter().map(|stream| stream.name.as_str()));
        format!("--loss-at {name}: expected a stream of the stack, {known}{hint}")
    })
}
