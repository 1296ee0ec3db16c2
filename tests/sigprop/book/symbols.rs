//! The page of symbols: it lists the paragraphs `where … is …` after the formulas in the headers of the core.

use std::collections::BTreeMap;
use std::{env, fs, path::Path};

use super::ROOT;
use crate::layering::sources;

const PATH: &str = "docs/symbols.md";
const TABLE: &str = "| symbol | meaning | files |\n|---|---|---|\n";

/// The folders whose headers have formulas.
const FOLDERS: [&str; 2] = ["src/mean_field", "src/finite_width"];

/// The largest number of files in a row.
const SHOWN: usize = 4;

/// A definition `SYMBOL, SYMBOL are MEANING`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Definition {
    symbols: Vec<String>,
    meaning: String,
}

impl Definition {
    fn read(item: &str) -> Option<Self> {
        let at = [" is ", " are "].into_iter().filter_map(|verb| Some((item.find(verb)?, verb.len())));
        let (at, length) = at.min()?;
        let mut symbols: Vec<String> = Vec::new();
        for part in item[..at].split(", ") {
            match symbols.last_mut() {
                // A comma between arguments: C(M, N).
                Some(last) if last.matches('(').count() > last.matches(')').count() => {
                    last.push_str(", ");
                    last.push_str(part);
                }
                _ => symbols.push(part.to_owned()),
            }
        }
        Some(Self { symbols, meaning: item[at + length..].to_owned() })
    }
}

/// The paragraphs of a header, and whether each follows formulas.
fn paragraphs(text: &str) -> Vec<(bool, String)> {
    let mut found: Vec<(bool, String)> = Vec::new();
    let (mut in_fence, mut after_fence, mut is_open) = (false, false, false);
    for line in text.lines().map_while(|line| line.strip_prefix("//!")) {
        let line = line.trim();
        if line.starts_with("```") {
            in_fence = !in_fence;
            (after_fence, is_open) = (true, false);
        } else if line.is_empty() {
            is_open = false;
        } else if !in_fence && is_open {
            let (_, paragraph) = found.last_mut().expect("one is open");
            paragraph.push(' ');
            paragraph.push_str(line);
        } else if !in_fence {
            found.push((after_fence, line.to_owned()));
            (after_fence, is_open) = (false, true);
        }
    }
    found
}

/// The definitions of every file with formulas, by its path below `src/`.
fn definitions() -> BTreeMap<String, Vec<Definition>> {
    let files = FOLDERS.iter().flat_map(|folder| sources(folder, &[]));
    let of = |text: &str| {
        let paragraphs = paragraphs(text).into_iter().filter(|(after_fence, _)| *after_fence);
        let lists =
            paragraphs.filter_map(|(_, text)| Some(text.strip_prefix("where ")?.trim_end_matches('.').to_owned()));
        lists.collect::<Vec<_>>().join("; ")
    };
    let listed =
        files.filter(|(_, text)| text.starts_with("//!") && text.contains("//! ```text")).map(|(path, text)| {
            let items = of(&text);
            let items = items.split("; ").filter(|item| !item.is_empty());
            let read = items.map(|item| Definition::read(item).unwrap_or_else(|| panic!("{}: {item}", path.display())));
            let below = path.strip_prefix(Path::new(ROOT).join("src")).unwrap_or(&path);
            (below.display().to_string(), read.collect())
        });
    listed.collect()
}

fn table() -> String {
    let mut files: BTreeMap<Definition, Vec<String>> = BTreeMap::new();
    for (path, definitions) in definitions() {
        for definition in definitions {
            files.entry(definition).or_default().push(format!("`{path}`"));
        }
    }
    let row = |(Definition { symbols, meaning }, files): (&Definition, &Vec<String>)| {
        let symbols: Vec<String> = symbols.iter().map(|symbol| format!("`{symbol}`")).collect();
        let shown = match files.len().checked_sub(SHOWN) {
            None | Some(0) => files.join(", "),
            Some(more) => format!("{} and {more} more", files[..SHOWN].join(", ")),
        };
        let cells = [symbols.join(", "), meaning.clone(), shown];
        format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | "))
    };
    files.iter().map(row).collect()
}

#[test]
fn the_page_lists_the_symbols_of_the_headers() {
    let path = Path::new(ROOT).join(PATH);
    let page = fs::read_to_string(&path).expect("the page of symbols");
    let (before, shown) = page.split_once(TABLE).expect("its table");
    let expected = table();
    if env::var_os("SIGPROP_BOOK").is_some_and(|wish| wish == "write") {
        fs::write(path, [before, TABLE, &expected].concat()).expect("the page can be written");
    } else {
        assert_eq!(shown, expected, "SIGPROP_BOOK=write writes {PATH} anew");
    }
}

#[test]
fn formulas_have_their_symbols_defined() {
    let without: Vec<String> =
        definitions().into_iter().filter(|(_, list)| list.is_empty()).map(|(path, _)| path).collect();
    assert!(without.is_empty(), "no paragraph `where …` after the formulas of {without:#?}");
}

#[test]
fn a_letter_has_one_meaning_in_a_file() {
    for (path, list) in definitions() {
        let mut letters: Vec<&String> = list.iter().flat_map(|definition| &definition.symbols).collect();
        let count = letters.len();
        letters.sort_unstable();
        letters.dedup();
        assert_eq!(letters.len(), count, "{path} defines a letter twice");
    }
}
