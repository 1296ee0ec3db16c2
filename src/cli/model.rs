//! The network: MODEL, the flags that override it, and the stack that they become.

use std::path::{Path, PathBuf};

use crate::{
    Caveat,
    architecture::{Architecture, Head},
    assemble::{Assembled, set_head},
    compare::Subject,
    cost::Cost,
    huggingface::Names,
    predict::Theory,
    schemes::Scheme,
    stack_file::stack_json,
    verdict::Shape,
};
use anyhow::bail;
use clap::Args;
use sigprop_stack::Stack;

use super::{
    console::Console,
    description::{Described, DescriptionArguments},
    parse,
    title::stack_title,
};

/// MODEL, the flags that override it, its scheme and its input.
#[derive(Args, Debug)]
pub(crate) struct ModelArguments {
    #[command(flatten)]
    description: DescriptionArguments,

    #[command(flatten)]
    scheme: SchemeArguments,

    /// Also write the network as JSON, every number resolved; `-` writes it to standard output
    /// instead of everything else.
    #[arg(long, value_name = "FILE", help_heading = "Stack files")]
    dump_stack: Option<PathBuf>,
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
        stack_title(&self.stack, self.described.as_ref().map(|(architecture, _)| architecture)) + &scheme
    }
}

impl ModelArguments {
    /// Returns the network that the arguments describe. A scheme that depends on the signal follows it in this theory.
    pub(crate) fn network(&self, theory: Theory) -> anyhow::Result<Network> {
        let mut described = self.description.setting(self.scheme.text())?;
        described.setting.options.theory = theory;
        match &described.setting.subject {
            Subject::Stack(stack) => self.of_stack(stack, &described),
            Subject::Described { architecture, .. } => self.assembled(architecture, &described),
        }
    }

    /// Returns the network of a stack file, initialised anew if a flag of the scheme is given.
    fn of_stack(&self, stack: &Stack, described: &Described) -> anyhow::Result<Network> {
        let scheme = self.scheme.given().map(|_| self.scheme.scheme(None)).transpose()?;
        let assembled = scheme.as_ref().map(|scheme| described.setting.assemble(scheme)).transpose()?;
        let own = || Assembled { stack: stack.clone(), caveats: Vec::new() };
        let Assembled { stack, caveats } = assembled.unwrap_or_else(own);
        let cost = Cost::of(&stack, None)?;
        let scheme = scheme.as_ref().map(Scheme::to_string);
        Ok(Network { stack, caveats, cost, names: described.names.clone(), described: None, scheme })
    }

    /// Returns the network that is assembled from an architecture.
    fn assembled(&self, architecture: &Architecture, described: &Described) -> anyhow::Result<Network> {
        let scheme = self.scheme.scheme(architecture.scheme.as_deref())?;
        let Assembled { stack, caveats } = described.setting.assemble(&scheme)?;
        let names = described.names.clone();
        let cost = Cost::of(&stack, Some(architecture))?.with_names(&stack, &names)?;
        let named = match self.scheme.text() {
            Some(text) if text.starts_with("hf@") => text.to_owned(),
            Some(_) | None => scheme.to_string(),
        };
        let caveats = described.caveats.iter().cloned().chain(caveats).collect();
        let described = Some((architecture.clone(), scheme));
        Ok(Network { stack, caveats, cost, names, described, scheme: Some(named) })
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

impl SchemeArguments {
    /// Returns the text of `--scheme`.
    pub(crate) fn text(&self) -> Option<&str> {
        self.scheme.as_deref()
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
