//! The page: all parts of it that scripts do not draw.

use std::io::{self, Write};

use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::{Compression, write::GzEncoder};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::Serialize;

use super::Origin;
use super::data::{Data, Table};
use super::formulas::Rule;
use crate::caveat::Caveat;
use crate::report::chart::Chart;
use crate::schemes::{About, Scheme};
use crate::verdict::{Finding, Severity, Verdict};

const STYLES: &str = include_str!("report.css");
/// The scripts, in the order in which they need each other.
const SCRIPTS: [&str; 5] = [
    include_str!("axis.js"),
    include_str!("chart.js"),
    include_str!("cursor.js"),
    include_str!("table.js"),
    include_str!("report.js"),
];
/// The content security policy: nothing is loaded from anywhere.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; \
                      form-action 'none'";

/// The verdict on one network.
pub(super) struct Judgement<'a> {
    /// The name of the network, if there are several.
    pub(super) name: Option<String>,
    /// The verdict, or the reason why there is none.
    pub(super) verdict: Result<&'a Verdict, String>,
    pub(super) caveats: Vec<&'a Caveat>,
}

/// A JSON document that a reader can save. It is compressed, because the JSON of a network is repetitive: this makes a
/// page several times smaller.
pub(super) struct Download {
    name: &'static str,
    packed: String,
}

impl Download {
    /// Returns the JSON document called `name` whose content `write` writes.
    pub(super) fn new(name: &'static str, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<Self> {
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        write(&mut packed)?;
        Ok(Self { name, packed: STANDARD.encode(packed.finish()?) })
    }

    /// Returns a value as a JSON document called `name`.
    pub(super) fn of(name: &'static str, value: &impl Serialize) -> io::Result<Self> {
        Self::new(name, |out| Ok(serde_json::to_writer(out, value)?))
    }

    fn element(&self) -> Markup {
        html! { script type="application/gzip" id=(self.name) { (self.packed) } }
    }
}

/// Returns JSON inside HTML. A `<`, which occurs only in strings, is escaped because it could end the element.
fn script(id: &str, json: &str) -> Markup {
    html! { script type="application/json" id=(id) { (PreEscaped(json.replace('<', "\\u003c"))) } }
}

pub(super) struct Page<'a> {
    pub(super) origin: &'a Origin<'a>,
    pub(super) judgements: Vec<Judgement<'a>>,
    pub(super) chart: Chart,
    pub(super) tables: Vec<Table>,
    pub(super) downloads: Vec<Download>,
}

impl Page<'_> {
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let data = serde_json::to_string(&Data::new(&self.chart, &self.tables))?;
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta http-equiv="Content-Security-Policy" content=(POLICY);
                    meta name="generator" content={ "sigprop " (env!("CARGO_PKG_VERSION")) };
                    title { (self.origin.title) }
                    style { (PreEscaped(STYLES)) }
                }
                body {
                    h1 { (self.origin.title) }
                    main {
                        (self.verdicts())
                        (self.curves())
                        section aria-label="Summary" { h2 { "Summary" } pre tabindex="0" { (self.origin.summary) } }
                        section aria-label="Tables" { h2 { "Tables" } div #tables {} }
                        (self.run())
                        (self.formulas())
                    }
                    (script("data", &data))
                    @for download in &self.downloads { (download.element()) }
                    script { (PreEscaped("\"use strict\";\n")) @for text in SCRIPTS { (PreEscaped(text)) } }
                }
            }
        };
        out.write_all(page.into_string().as_bytes())?;
        writeln!(out)
    }

    fn verdicts(&self) -> Markup {
        html! {
            section aria-label="Verdict" {
                h2 { "Verdict" }
                @for judgement in &self.judgements {
                    @match &judgement.name {
                        Some(name) => details { summary { (name) ": " (judgement.headline()) } (judgement.findings()) },
                        None => { p { strong { (judgement.headline()) } } (judgement.findings()) },
                    }
                }
            }
        }
    }

    fn curves(&self) -> Markup {
        html! {
            section aria-label="Curves" {
                h2 { "Curves" }
                noscript { p { "Curves and tables need JavaScript, which is inside this file." } }
                @if self.chart.panels.is_empty() {
                    p { "There is nothing to draw." }
                } @else {
                    div .bar {
                        button #zoom-in { "Zoom in" }
                        button #zoom-out { "Zoom out" }
                        button #whole { "Whole depth" }
                        span .hint { "Drag over a curve to zoom, double-click for the whole depth; keys: arrows, +, −, 0" }
                    }
                    div #legend {}
                }
                div #charts {}
            }
        }
    }

    fn run(&self) -> Markup {
        let Origin { command_line, settings, seed, .. } = self.origin;
        html! {
            section aria-label="Run" {
                h2 { "Run" }
                pre #command tabindex="0" { (command_line) }
                dl {
                    dt { "sigprop" } dd { (env!("CARGO_PKG_VERSION")) }
                    dt { "seed" } dd { (seed) }
                    @for setting in *settings {
                        dt { "settings" } dd { "from " (setting) }
                    }
                    dt { "downloads" }
                    dd {
                        @for Download { name, .. } in &self.downloads {
                            a download={ (name) ".json" } data-from=(name) { (name) ".json" } " "
                        }
                    }
                }
            }
        }
    }

    fn formulas(&self) -> Markup {
        let networks = self.origin.networks;
        let mut schemes: Vec<&About> = Vec::new();
        for about in networks.iter().filter_map(|network| network.scheme.as_ref()).map(Scheme::about) {
            if !schemes.iter().any(|known| known.name == about.name) {
                schemes.push(about);
            }
        }
        html! {
            section aria-label="Formulas" {
                h2 { "Formulas and sources" }
                @for about in schemes {
                    details {
                        summary { "scheme " (about.name) }
                        @for (title, text) in [("Rule", about.rule), ("Tensors", about.touches), ("Source", about.source)] {
                            h4 { (title) }
                            pre .prose { (text) }
                        }
                    }
                }
                @for rule in Rule::of(networks.iter().map(|network| &network.stack)) {
                    details { summary { (rule.name) } (PreEscaped(rule.html())) }
                }
            }
        }
    }
}

impl Judgement<'_> {
    fn headline(&self) -> String {
        match &self.verdict {
            Ok(verdict) => verdict.headline.clone(),
            Err(error) => format!("not defined: {error}"),
        }
    }

    fn findings(&self) -> Markup {
        let findings = self.verdict.as_ref().map_or(&[][..], |verdict| &verdict.findings);
        html! {
            ul .findings {
                @for Finding { severity, text, rule, .. } in findings {
                    @let (class, word) = words(*severity);
                    li class=(class) { span .severity { (word) ": " } (text) br; span .rule-text { "rule: " (rule) } }
                }
                @for caveat @ Caveat { site, sites, .. } in self.caveats.iter().copied() {
                    li .caveat {
                        span .severity { "caveat: " } (site)
                        @if *sites > 1 { " and " (sites - 1) " more" }
                        ": " (caveat.text()) ". " (caveat.kind().advice)
                    }
                }
            }
        }
    }
}

/// Returns the CSS class of a finding, and the word for its severity.
fn words(severity: Severity) -> (&'static str, &'static str) {
    match severity {
        Severity::Fine => ("fine", "ok"),
        Severity::Notice => ("fine", "notice"),
        Severity::Warning => ("warning", "warning"),
        Severity::Failure => ("failure", "failure"),
    }
}
