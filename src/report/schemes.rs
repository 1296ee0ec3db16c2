//! The initialisation schemes: rows and JSON.

use std::io::{self, Write};

use serde::Serialize;

use super::{Rows, SCHEMA_VERSION};
use crate::schemes::{About, Parameter, SCHEMES};

/// Returns the form in which `--scheme` takes a scheme and its arguments, such as `normal:STD` or `dslm:k=2,alpha=1`.
pub fn scheme_usage(about: &About) -> String {
    let arguments = about.parameters.iter().map(|parameter| match parameter.default {
        Some(default) => format!("{}={default}", parameter.name),
        None => parameter.name.to_uppercase(),
    });
    let arguments: Vec<String> = arguments.collect();
    if arguments.is_empty() { about.name.to_owned() } else { format!("{}:{}", about.name, arguments.join(",")) }
}

/// Returns one row per scheme.
pub fn schemes_rows() -> Rows {
    let rows = SCHEMES.iter().map(|about| {
        let SchemeJson { name, usage, rule, touches, source, .. } = SchemeJson::of(about);
        [name.into(), usage.into(), rule.into(), touches.into(), source.into()]
    });
    Rows::new(["name", "usage", "rule", "touches", "source"], rows)
}

/// Writes all schemes as one JSON document.
pub fn schemes_json(out: &mut dyn Write) -> io::Result<()> {
    let document = SchemesJson {
        schema_version: SCHEMA_VERSION,
        version: env!("CARGO_PKG_VERSION"),
        schemes: SCHEMES.iter().map(|about| SchemeJson::of(about)).collect(),
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

#[derive(Serialize)]
struct SchemesJson {
    schema_version: u32,
    version: &'static str,
    schemes: Vec<SchemeJson>,
}

#[derive(Serialize)]
struct SchemeJson {
    name: &'static str,
    usage: String,
    parameters: Vec<ParameterJson>,
    rule: String,
    touches: String,
    source: String,
}

#[derive(Serialize)]
struct ParameterJson {
    name: &'static str,
    default: Option<f64>,
    expected: &'static str,
}

impl SchemeJson {
    fn of(about: &About) -> Self {
        // Texts are indented in their source files.
        let text = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
        let parameter =
            |Parameter { name, default, expected, .. }: &Parameter| ParameterJson { name, default: *default, expected };
        Self {
            name: about.name,
            usage: scheme_usage(about),
            parameters: about.parameters.iter().map(parameter).collect(),
            rule: text(about.rule),
            touches: text(about.touches),
            source: text(about.source),
        }
    }
}
