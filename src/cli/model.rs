//! The network: MODEL, the flags that override it, and the stack that they become.

use std::path::{Path, PathBuf};

use crate::{
    Caveat,
    architecture::{Architecture, Head},
    assemble::{Assembled, initialise, set_head},
    cost::Cost,
    huggingface::Names,
    predict::Theory,
    schemes::Scheme,
    stack_file::{read_stack, stack_json},
    verdict::Shape,
};
use anyhow::{Context, bail};
use clap::{Arg, Args};
use sigprop_stack::{BlockName, Stack};

use super::{
    console::Console,
    description::DescriptionArguments,
    hint::did_you_mean,
    parse,
    title::{norm_placement, title},
};

/// MODEL, the flags that override it, its scheme and its input.
#[derive(Args, Debug)]
#[command(mut_args(apart_from_stack))]
pub(crate) struct ModelArguments {
    #[command(flatten)]
    description: DescriptionArguments,

    #[command(flatten)]
    scheme: SchemeArguments,

    /// Read the whole network from a dumped stack; `-` is standard input. With --scheme it is initialised anew, if the
    /// file has the roles of its maps.
    #[arg(long, value_name = "FILE", help_heading = "Stack files")]
    stack: Option<PathBuf>,

    /// Also write the network as JSON, every number resolved; `-` writes it to standard output
    /// instead of everything else.
    #[arg(long, value_name = "FILE", help_heading = "Stack files")]
    dump_stack: Option<PathBuf>,
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

/// How the weights are drawn.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Initialisation")]
pub(crate) struct SchemeArguments {
    /// A scheme, with its arguments: `normal:0.02`, `dslm:k=2,alpha=1` (see `sigprop schemes`); `hf@5.0` draws a config
    /// as that release of transformers does [default: the model's own, else xavier].
    #[arg(long, value_name = "NAME[:ARGUMENTS]")]
    scheme: Option<String>,

    /// The k of the scheme dslm: its branches have a factor of √(k/n^alpha) [default: 2].
    #[arg(long, value_name = "K", value_parser = parse::not_negative, allow_negative_numbers = true)]
    dslm_k: Option<f64>,

    /// The alpha of the scheme dslm [default: 1].
    #[arg(long, value_name = "ALPHA", value_parser = parse::finite, allow_negative_numbers = true)]
    dslm_alpha: Option<f64>,
}

/// A network that is ready to run.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) stack: Stack,
    /// Where the network is not exactly as asked for.
    pub(crate) caveats: Vec<Caveat>,
    pub(crate) cost: Cost,
    /// The names of its parameters in a checkpoint.
    pub(crate) names: Names,
    /// The architecture and scheme that it was assembled from; `None` if it was read from a stack file.
    described: Option<(Architecture, Scheme)>,
    /// The scheme as the user named it, with the release of a library; `None` for a stack file without one.
    scheme: Option<String>,
}

impl Network {
    /// Returns the width and length of the stream that the gradient goes through, on which float ranges depend.
    pub(crate) fn shape(&self) -> Shape {
        Shape::of(&self.stack)
    }

    /// Returns the architecture and scheme that it was assembled from; `None` if it was read from a stack file.
    pub(crate) fn described(&self) -> Option<(&Architecture, &Scheme)> {
        self.described.as_ref().map(|(architecture, scheme)| (architecture, scheme))
    }

    /// Returns the head of its last stream; `None` if it was read from a stack file.
    pub(crate) fn own_head(&self) -> Option<Head> {
        let (architecture, _) = self.described.as_ref()?;
        Some(architecture.decoder.as_deref().unwrap_or(architecture).head)
    }

    /// Replaces its head. Returns false if it was read from a stack file, which does not say how.
    pub(crate) fn set_head(&mut self, kind: Head) -> anyhow::Result<bool> {
        let Some((architecture, scheme)) = &self.described else { return Ok(false) };
        set_head(&mut self.stack, architecture, scheme, kind)?;
        Ok(true)
    }

    /// Returns a line that describes the network.
    pub(crate) fn title(&self) -> String {
        let scheme = self.scheme.as_ref().map_or(String::new(), |scheme| format!(", scheme {scheme}"));
        let architecture = self.described.as_ref().map(|(architecture, _)| architecture);
        let body = &self.stack.streams[self.stack.gradient.stream].body;
        let n_blocks = body.iter().filter(|node| BlockName::is_block(&node.name)).count();
        title(&self.stack.name, n_blocks, architecture.and_then(norm_placement), self.shape()) + &scheme
    }
}

impl ModelArguments {
    /// Returns the network that the arguments describe. A scheme that depends on the signal follows it in this theory.
    pub(crate) fn network(&self, theory: Theory) -> anyhow::Result<Network> {
        if let Some(path) = &self.stack {
            let mut stack = read_stack(path)?;
            if let Some(stream) = self.description.loss_at {
                stack.gradient.stream = stream_named(&stack, stream.name())?;
            }
            if let Some(correlation) = self.description.grad_correlation {
                stack.gradient.correlation = correlation;
            }
            let scheme = self.scheme.given().map(|flag| self.scheme.for_stack(flag, &stack)).transpose()?;
            let caveats = match &scheme {
                Some(scheme) => initialise(&mut stack, scheme, theory)?,
                None => Vec::new(),
            };
            let cost = Cost::of(&stack, None)?;
            let names = Names::own(&Architecture::default());
            let scheme = scheme.as_ref().map(Scheme::to_string);
            return Ok(Network { stack, caveats, cost, names, described: None, scheme });
        }
        let mut described = self.description.setting(self.scheme.text())?;
        described.setting.options.theory = theory;
        let names = described.names;
        let mut warnings = described.caveats;
        let scheme = self.scheme.scheme(described.setting.architecture.scheme.as_deref())?;
        let Assembled { stack, caveats } = described.setting.assemble(&scheme)?;
        let architecture = described.setting.architecture;
        warnings.extend(caveats);
        let cost = Cost::of(&stack, Some(&architecture))?.with_names(&stack, &names)?;
        let named = match self.scheme.text() {
            Some(text) if text.starts_with("hf@") => text.to_owned(),
            Some(_) | None => scheme.to_string(),
        };
        let described = Some((architecture, scheme));
        Ok(Network { stack, caveats: warnings, cost, names, described, scheme: Some(named) })
    }

    /// Reports how a config is read, if that is asked for. Returns true if it was.
    pub(crate) fn explain(&self, console: Console) -> anyhow::Result<bool> {
        self.description.explain(self.scheme.text(), console)
    }

    /// Writes the stack, if that is asked for. Returns true if it went to standard output, where nothing else may
    /// follow.
    pub(crate) fn dump(&self, stack: &Stack, console: Console) -> anyhow::Result<bool> {
        let Some(path) = &self.dump_stack else { return Ok(false) };
        console.emit(Some(path), |out| stack_json(stack, out))?;
        Ok(path == Path::new("-"))
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

impl SchemeArguments {
    /// Returns the text of `--scheme`.
    pub(crate) fn text(&self) -> Option<&str> {
        self.scheme.as_deref()
    }

    /// Returns the scheme that initialises a stack file anew.
    pub(crate) fn for_stack(&self, flag: &str, stack: &Stack) -> anyhow::Result<Scheme> {
        if stack.roles.is_empty() {
            bail!(
                "{flag}: expected a stack file with the key \"roles\", got one without; leave the flag out for the \
                 distributions of the file, or add the roles of its maps (docs/formats.md)"
            );
        }
        self.scheme(None)
    }

    /// Returns the first of its flags that is given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let scheme = self.scheme.as_ref().map(|_| "--scheme");
        scheme.or(self.dslm_k.map(|_| "--dslm-k")).or(self.dslm_alpha.map(|_| "--dslm-alpha"))
    }

    /// Returns the scheme that is asked for, else the model's own, else xavier, with the arguments given as flags.
    pub(crate) fn scheme(&self, own: Option<&str>) -> anyhow::Result<Scheme> {
        let named = self.scheme.as_deref().or(own).unwrap_or("xavier");
        // The release was taken into account when the config was read.
        let mut text = if named.starts_with("hf@") { "hf" } else { named }.to_owned();
        for (flag, key, value) in [("--dslm-k", "k", self.dslm_k), ("--dslm-alpha", "alpha", self.dslm_alpha)] {
            let Some(value) = value else { continue };
            if text != "dslm" && !text.starts_with("dslm:") {
                bail!("{flag} {value} is an argument of the scheme dslm, got scheme {text}; add --scheme dslm");
            }
            let separator = if text.contains(':') { ',' } else { ':' };
            text = format!("{text}{separator}{key}={value}");
        }
        Ok(Scheme::parse(&text)?)
    }
}
