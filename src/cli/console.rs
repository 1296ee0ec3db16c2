//! Messages next to the data: on standard error, in colour if wanted.

use std::{
    env,
    io::{self, BufWriter, IsTerminal, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    report::write_file,
    verdict::{Severity, Verdict},
};
use anyhow::Context;
use clap::{
    ValueEnum,
    builder::styling::{AnsiColor, Style},
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{Caller, Invocation, prose::write_indented};

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    /// Colour on a terminal only.
    Auto,
    Always,
    Never,
}

/// The amount of text that a command writes to standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Loudness {
    /// Only data and errors.
    Quiet,
    Normal,
    /// Also the details of the run.
    Verbose,
}

/// Writes data, messages and progress to the user who runs the command, or to the program that runs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Console<'a> {
    loudness: Loudness,
    color: ColorChoice,
    invocation: &'a Invocation,
    /// The program that runs the command and receives its output; `None` if a user runs it.
    caller: Option<&'a Caller>,
}

impl<'a> Console<'a> {
    pub(crate) fn new(color: ColorChoice, loudness: Loudness, invocation: &'a Invocation) -> Self {
        Self { loudness, color, invocation, caller: None }
    }

    /// A console for errors that occur before the flags are known.
    pub(crate) fn before(invocation: &'a Invocation) -> Self {
        Self::new(ColorChoice::Auto, Loudness::Normal, invocation)
    }

    /// Returns this console, which remembers the program that runs the command.
    pub(crate) fn called_by(self, caller: &'a Caller) -> Self {
        Self { caller: Some(caller), ..self }
    }

    /// Returns the program that runs the command; `None` if a user runs it.
    pub(crate) fn caller(self) -> Option<&'a Caller> {
        self.caller
    }

    /// Writes data to the file `path`, or to standard output if `path` is `None` or `-`.
    pub(crate) fn emit(
        self,
        path: Option<&PathBuf>,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        if let Some(path) = path.filter(|path| path.as_path() != Path::new("-")) {
            return write_file(path, write).with_context(|| format!("cannot write {}", path.display()));
        }
        if let Some(caller) = self.caller {
            let mut output = Vec::new();
            write(&mut output)?;
            caller.take(&output);
            return Ok(());
        }
        let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
        write(&mut out).and_then(|()| out.flush()).context("cannot write to standard output")
    }

    /// The command line with its settings.
    pub(crate) fn invocation(self) -> &'a Invocation {
        self.invocation
    }

    /// Reports the settings that come from the environment or a settings file, and the settings that were ignored.
    pub(crate) fn tell_settings(self) {
        let Invocation { settings, notes, details, .. } = self.invocation;
        for text in settings {
            self.note(&format!("from {text}"));
        }
        for text in notes {
            self.note(text);
        }
        for text in details {
            self.detail(text);
        }
    }

    /// Writes an error message, even with -q.
    pub(crate) fn error(self, text: &str) {
        self.say(AnsiColor::Red.on_default().bold(), "error", text);
    }

    /// Reports why a gate failed, even with -q. A gate is a limit that sets the exit status.
    pub(crate) fn failed(self, text: &str) {
        self.say(AnsiColor::Red.on_default().bold(), "failed", text);
    }

    /// Writes a note for the user, except with -q.
    pub(crate) fn note(self, text: &str) {
        if !self.is_quiet() {
            self.say(AnsiColor::Cyan.on_default(), "note", text);
        }
    }

    /// Returns true if everything is shown (-v).
    pub(crate) fn is_verbose(self) -> bool {
        self.loudness == Loudness::Verbose
    }

    /// Writes a detail of the run if -v is given.
    pub(crate) fn detail(self, text: &str) {
        if self.is_verbose() {
            self.say(AnsiColor::BrightBlack.on_default(), "info", text);
        }
    }

    /// Calls `write` with standard error and its colours, except with -q.
    pub(crate) fn tell(self, write: impl FnOnce(&mut dyn Write, Paint) -> io::Result<()>) {
        if !self.is_quiet() {
            // Nobody is left to hear that stderr is closed.
            let _ = write(&mut io::stderr().lock(), self.paint(&io::stderr()));
        }
    }

    /// Returns a progress bar for `length` pieces of work, of which `done` were finished earlier. It is hidden with -q.
    pub(crate) fn progress(self, template: &str, length: usize, done: usize) -> ProgressBar {
        let bar = self.bar(template, ProgressBar::new(length as u64)).with_position(done as u64);
        bar.reset_eta();
        bar
    }

    /// A progress bar for work of unknown length.
    pub(crate) fn waiting(self, template: &str) -> ProgressBar {
        self.bar(template, ProgressBar::no_length())
    }

    fn bar(self, template: &str, bar: ProgressBar) -> ProgressBar {
        if let Some(caller) = self.caller {
            bar.set_draw_target(ProgressDrawTarget::hidden());
            caller.watch(&bar);
            return bar;
        }
        if self.is_quiet() {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template(template).expect("the template is ours").progress_chars("=> ");
        bar.set_style(style);
        bar.enable_steady_tick(Duration::from_secs(1));
        bar
    }

    /// Returns true, as a [`Paint`], if text that is written to `stream` is coloured.
    pub(crate) fn paint(self, stream: &impl IsTerminal) -> Paint {
        Paint(match self.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => {
                let wanted = env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
                wanted && stream.is_terminal() && env::var_os("TERM").is_none_or(|term| term != "dumb")
            }
        })
    }

    fn is_quiet(self) -> bool {
        self.loudness == Loudness::Quiet
    }

    fn say(self, style: Style, kind: &str, text: &str) {
        let kind = self.paint(&io::stderr()).text(style, kind);
        let _ = writeln!(io::stderr().lock(), "{kind}: {text}");
    }
}

/// True if text is coloured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint(pub(crate) bool);

impl Paint {
    pub(crate) fn text(self, style: Style, text: &str) -> String {
        if self.0 { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }
}

/// Writes the verdict in plain words, one sentence per line.
pub(crate) fn write_verdict(verdict: &Verdict, paint: Paint, out: &mut dyn Write) -> io::Result<()> {
    let worst = verdict.findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Fine);
    let headline = paint.text(style(worst).bold(), &verdict.headline);
    writeln!(out, "Verdict: {headline}")?;
    for finding in &verdict.findings {
        let mark = match finding.severity {
            Severity::Fine => "ok",
            Severity::Notice => "·",
            Severity::Warning => "!",
            Severity::Failure => "!!",
        };
        let mark = paint.text(style(finding.severity), &format!("{mark:>2}"));
        write_indented(&format!("  {mark} "), 5, &finding.text, out)?;
    }
    writeln!(out, "(This describes the initialisation. The effect of a step: --first-update)")
}

fn style(severity: Severity) -> Style {
    match severity {
        Severity::Fine | Severity::Notice => AnsiColor::Green.on_default(),
        Severity::Warning => AnsiColor::Yellow.on_default(),
        Severity::Failure => AnsiColor::Red.on_default(),
    }
}
