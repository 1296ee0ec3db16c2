//! `sigprop explain`: one scheme in full.

use std::io::{self, Write};

use crate::{
    report::scheme_usage,
    schemes::{About, LAYER_DECAY, SCHEMES, Scheme},
};
use clap::Args;

use super::{Outcome, console::Console, prose::write_indented};

/// Explain an initialisation scheme: its rule, its source and the tensors it touches.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  sigprop explain dslm\n  sigprop explain deepnorm")]
pub(crate) struct Arguments {
    /// Name of a scheme.
    #[arg(value_name = "NAME")]
    name: String,
}

impl Arguments {
    pub(crate) fn run(self, console: Console) -> anyhow::Result<Outcome> {
        let name = self.name.split(':').next().unwrap_or_default();
        let about = match SCHEMES.iter().find(|about| about.name == name) {
            Some(about) => about,
            None => Scheme::parse(name)?.about(),
        };
        console.emit(None, |out| explain(about, out))?;
        Ok(Outcome::Done)
    }
}

fn explain(about: &About, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}\n\nRule", scheme_usage(about))?;
    paragraphs(about.rule, out)?;
    writeln!(out, "\nArguments")?;
    for parameter in about.parameters.iter().chain([&LAYER_DECAY]) {
        let default = parameter.default.map_or(String::new(), |default| format!(", default {default}"));
        writeln!(out, "  {}: {}{default}", parameter.name, parameter.expected)?;
    }
    paragraphs("(layer-decay, of every scheme: learning rates × layer-decay^n, n blocks and more below the end)", out)?;
    writeln!(out, "\nTensors")?;
    paragraphs(about.touches, out)?;
    writeln!(out, "\nSource")?;
    paragraphs(about.source, out)
}

fn paragraphs(text: &str, out: &mut dyn Write) -> io::Result<()> {
    text.lines().try_for_each(|line| write_indented("  ", 2, line.trim(), out))
}
