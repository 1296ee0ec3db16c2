//! Rules of the language that a program can check: comments begin with their subject, and no `what` replaces a noun.

use std::collections::BTreeMap;
use std::path::Path;

use pulldown_cmark::{Event, Tag, TagEnd};

use crate::book::Page;
use crate::layering::sources;

/// The folders with Rust code.
const FOLDERS: [&str; 8] = ["src", "stack", "validate", "tests", "benches", "examples", "fuzz", "python/src"];

/// A comment that begins with one of these does not name its subject.
const OPENINGS: [&str; 9] = ["Of", "The same", "What", "That", "From", "With", "As", "Whether", "Those"];

/// Pages that quote old texts.
const HISTORY: [&str; 1] = ["CHANGELOG.md"];

/// Comment lines outside fences, with their place and the comment mark.
fn comments(path: &Path, text: &str) -> Vec<(String, String)> {
    let mut in_fence = false;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let Some(comment) = line.strip_prefix("//") else {
            in_fence = false;
            continue;
        };
        in_fence ^= comment.contains("```");
        if !in_fence {
            lines.push((format!("{}:{}", path.display(), index + 1), comment.to_owned()));
        }
    }
    lines
}

fn has_what(text: &str) -> bool {
    text.split(|char: char| !char.is_alphanumeric()).any(|word| word.eq_ignore_ascii_case("what"))
}

/// Sentences with `what` that are no questions.
fn relatives(prose: &str) -> impl Iterator<Item = &str> {
    prose.split_inclusive(['.', '?', '!', ':', ';']).filter(|sentence| has_what(sentence) && !sentence.ends_with('?'))
}

#[test]
fn doc_comments_begin_with_their_subject() {
    let mut wrong = Vec::new();
    for (path, text) in FOLDERS.iter().flat_map(|folder| sources(folder, &[])) {
        let docs: Vec<Option<&str>> = text.lines().map(|line| line.trim().strip_prefix("///")).collect();
        for (index, doc) in docs.iter().enumerate() {
            let (Some(doc), true) = (doc, index == 0 || docs[index - 1].is_none()) else { continue };
            let rest = OPENINGS.iter().find_map(|opening| doc.trim_start().strip_prefix(opening));
            if rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric)) {
                wrong.push(format!("{}:{}:{doc}", path.display(), index + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn comments_name_what_they_mean() {
    let mut wrong = BTreeMap::new();
    for (path, text) in FOLDERS.iter().flat_map(|folder| sources(folder, &[])) {
        for (place, comment) in comments(&path, &text) {
            let prose = comment.split('`').step_by(2).collect::<String>();
            if relatives(&prose).next().is_some() {
                wrong.insert(place, comment);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn pages_name_what_they_mean() {
    let mut wrong = Vec::new();
    for page in Page::all().into_iter().filter(|page| !HISTORY.iter().any(|path| page.path.ends_with(path))) {
        let (mut prose, mut quoted, mut start) = (String::new(), 0, 0);
        for (event, range) in page.events() {
            match event {
                // Links repeat headings, which may be questions.
                Event::Start(Tag::Heading { .. } | Tag::CodeBlock(_) | Tag::Link { .. }) => quoted += 1,
                Event::End(TagEnd::Heading(_) | TagEnd::CodeBlock | TagEnd::Link) => quoted -= 1,
                Event::Start(Tag::Paragraph | Tag::Item | Tag::TableCell) => {
                    prose.clear();
                    start = range.start;
                }
                Event::Text(text) if quoted == 0 => prose += &text,
                Event::SoftBreak => prose.push(' '),
                Event::End(TagEnd::Paragraph | TagEnd::Item | TagEnd::TableCell) => {
                    wrong.extend(relatives(&prose).map(|sentence| format!("{}: {sentence}", page.place(start))));
                    prose.clear();
                }
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The checks above find violations.
#[test]
fn violations_are_found() {
    assert_eq!(relatives("The remainder is what is left. What is it?").count(), 1);
    assert_eq!(relatives("Somewhat similar tokens.").count(), 0);
    let path = Path::new("lies.rs");
    let found = comments(path, "/// ```text\n/// What\n/// ```\n/// A sum.\nlet x = 1; // What\n");
    assert_eq!(found, [("lies.rs:3".to_owned(), "/ ```".to_owned()), ("lies.rs:4".to_owned(), "/ A sum.".to_owned())]);
}
