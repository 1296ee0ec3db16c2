//! The reference page of model files: its tables come from the code, its examples are assembled.
//!
//! Topics, the choice of keys and examples are written by hand in `docs/model-files.md`. The type and the comment of a
//! key are those of its field, and its default is its value in the default architecture. Tables of words are the
//! comments on the variants of their enum. `SIGPROP_BOOK=write` writes them anew. A key without a row fails.

mod effects;
mod examples;
mod source;

use std::collections::BTreeSet;
use std::{env, fs, path::Path};

use serde_json::Value;
use sigprop::architecture::Architecture;

use super::{Page, ROOT};
use source::{Field, Source};

const PATH: &str = "docs/model-files.md";

/// The header line of a table of keys.
const KEYS: &str = "| key | type | default | meaning | example |";

/// A key of a model file. The path of a key in a nested table includes the path of the table.
struct Key {
    path: String,
    field: Field,
    /// The value that is used if a file omits the key; `None` if the key is required.
    default: Option<Value>,
}

impl Key {
    /// Reads every key, in the order of the code.
    fn all(source: &Source, page: &str) -> Vec<Self> {
        let default = serde_json::to_value(Architecture::default()).expect("an architecture is plain data");
        let top = source.structure("pub struct Architecture");
        let nested = [
            ("experts", "pub struct Experts"),
            ("global_heads", "pub struct GlobalHeads"),
            ("disentangled", "pub struct Disentangled"),
            ("latent", "pub struct Latent"),
            ("recurrence", "pub struct RecurrentMixer"),
            ("multipliers", "pub struct Multipliers"),
            ("stem.patches", "    Patches"),
            ("stem.audio", "    Audio"),
            ("hf_init", "pub struct InitTable"),
            ("init.*", "pub struct TensorInit"),
        ];
        let below = nested.into_iter().flat_map(|(parent, start)| {
            let fields = source.structure(start).into_iter();
            fields.map(move |field| (parent, field)).map(|(parent, field)| {
                let path = format!("{parent}.{}", field.name);
                let default = match parent {
                    // The names in this table are free, and each of its keys may be omitted.
                    "init.*" => Some(Value::Null),
                    _ => examples::nested_default(page, parent, &field.name),
                };
                Self { path, field, default }
            })
        });
        let key = |field: Field| Self { path: field.name.clone(), default: Some(default[&field.name].clone()), field };
        top.into_iter().map(key).chain(below).collect()
    }

    /// The row of the key in a table, with this example.
    fn row(&self, example: &str) -> String {
        let default = match &self.default {
            None => "required".to_owned(),
            Some(Value::Null) => "–".to_owned(),
            Some(value) => format!("`{value}`"),
        };
        let Field { type_name, comment, .. } = &self.field;
        format!("| `{}` | {} | {default} | {comment} | {example} |", self.path, written_type(type_name))
    }
}

/// The words for a Rust type on the page.
fn written_type(name: &str) -> String {
    let inside = |outer: &str| name.strip_prefix(outer)?.strip_suffix('>');
    if let Some(name) = inside("Option<").or(inside("Box<")) {
        return written_type(name);
    }
    if let Some(name) = inside("Vec<") {
        return format!("list of {}", if name == "bool" { "`true` or `false`" } else { plural(name) });
    }
    match name {
        "String" => "text".to_owned(),
        "usize" => "integer".to_owned(),
        "f64" => "number".to_owned(),
        "bool" => "`true` or `false`".to_owned(),
        "Init" => "[distribution](#distributions)".to_owned(),
        "Architecture" => "table of these keys".to_owned(),
        "Experts"
        | "GlobalHeads"
        | "Disentangled"
        | "Latent"
        | "RecurrentMixer"
        | "Multipliers"
        | "Stem"
        | "InitTable"
        | "BTreeMap<String, TensorInit>" => "[table](#nested-tables)".to_owned(),
        "Rates" | "StepBias" => "[word or table](#nested-tables)".to_owned(),
        "Weighting" => "[word](#words)".to_owned(),
        word if source::WORDS.iter().any(|(_, name)| *name == word) => "[word](#words)".to_owned(),
        other => panic!("the page has no word for the type {other}: add it in tests/sigprop/book/model_files.rs"),
    }
}

fn plural(name: &str) -> &'static str {
    match name {
        "usize" => "integers",
        "f64" => "numbers",
        "Mixer" => "[words](#words)",
        other => panic!("the page has no word for lists of {other}: add it in tests/sigprop/book/model_files.rs"),
    }
}

/// The cells of a row of a table.
fn cells(line: &str) -> Vec<&str> {
    let inside = line.trim().trim_start_matches('|').trim_end_matches('|');
    inside.split('|').map(str::trim).collect()
}

/// The key in the first cell of a row.
fn key_of(line: &str) -> Option<&str> {
    cells(line).first()?.strip_prefix('`')?.strip_suffix('`')
}

/// The page with its tables as the code defines them, and the problems that a person has to fix.
fn renewed(text: &str, keys: &[Key], source: &Source) -> (String, Vec<String>) {
    let (mut lines, mut problems, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
    let mut rest = text.lines().peekable();
    while let Some(line) = rest.next() {
        lines.push(line.to_owned());
        let words = line.ends_with("` | meaning |").then(|| key_of(line)).flatten();
        if line != KEYS && words.is_none() {
            continue;
        }
        lines.extend(rest.next().map(str::to_owned));
        let rows: Vec<&str> = std::iter::from_fn(|| rest.next_if(|line| line.starts_with('|'))).collect();
        if let Some(key) = words {
            lines.extend(source.words(key).into_iter().map(|(word, comment)| format!("| `{word}` | {comment} |")));
            seen.insert(format!("words of {key}"));
            continue;
        }
        for row in rows {
            let key = key_of(row).and_then(|path| keys.iter().find(|key| key.path == path));
            let Some(key) = key else {
                problems.push(format!("{PATH}: no key of model files is meant by {row}"));
                continue;
            };
            let example = cells(row).get(4).copied().unwrap_or_default().to_owned();
            lines.push(key.row(&example));
            if !seen.insert(key.path.clone()) {
                problems.push(format!("{PATH}: `{}` has two rows", key.path));
            }
        }
    }
    let words = source::WORDS.iter().map(|(key, _)| format!("words of {key}"));
    let wanted = keys.iter().map(|key| key.path.clone()).chain(words);
    problems.extend(wanted.filter(|key| !seen.contains(key)).map(|key| {
        format!("{PATH} has no row for {key}: put it into the table of its topic, with an example in its last cell")
    }));
    (lines.into_iter().map(|line| line + "\n").collect(), problems)
}

#[test]
fn the_page_of_model_files_says_what_the_code_says() {
    let (page, source) = (Page::read(PATH.into()), Source::read());
    let keys = Key::all(&source, &page.text);
    let (expected, problems) = renewed(&page.text, &keys, &source);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    if env::var_os("SIGPROP_BOOK").is_some_and(|wish| wish == "write") {
        fs::write(Path::new(ROOT).join(PATH), expected).expect("writable");
    } else if let Some((got, expected)) =
        page.text.lines().zip(expected.lines()).find(|(got, expected)| got != expected)
    {
        panic!("{PATH}:\n{got}\nthe code says\n{expected}\n(SIGPROP_BOOK=write writes the page anew)");
    }
}

/// The groups of the fields of an architecture are the sections of the page.
#[test]
fn keys_are_in_the_order_of_the_code() {
    let (page, source) = (Page::read(PATH.into()), Source::read());
    let fields: Vec<String> = source.structure("pub struct Architecture").into_iter().map(|field| field.name).collect();
    let rows = page.text.lines().filter(|line| !line.ends_with("| meaning |"));
    let keys = rows.filter_map(key_of).filter(|key| fields.iter().any(|field| field == key));
    assert_eq!(keys.take(fields.len()).collect::<Vec<_>>(), fields);
}

#[test]
fn a_key_without_a_row_is_missed() {
    let (page, source) = (Page::read(PATH.into()), Source::read());
    let keys = Key::all(&source, &page.text);
    let without: String =
        page.text.lines().filter(|line| !line.starts_with("| `qk_norm` | [")).flat_map(|line| [line, "\n"]).collect();
    let (_, problems) = renewed(&without, &keys, &source);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("has no row for qk_norm"), "{problems:?}");
}
