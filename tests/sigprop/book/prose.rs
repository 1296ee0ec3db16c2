//! Numbers in sentences. In a section that shows an output, a decimal number of four digits or more must occur in an
//! output of the page.

use std::collections::BTreeSet;

use pulldown_cmark::{Event, Tag, TagEnd};

use super::Page;

/// Decimal numbers with at least this many significant digits must come from an output.
const DIGITS: usize = 4;

/// Numbers measured with another program.
const MEASURED_ELSEWHERE: [&str; 1] = ["0.9998"];

/// A section: its sentences with their byte positions. `shows_output` is true if it contains an output.
#[derive(Default)]
struct Section {
    sentences: Vec<(usize, String)>,
    shows_output: bool,
}

/// The decimal numbers in a text.
fn decimals(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|char: char| !(char.is_ascii_digit() || char == '.'));
    words.map(|word| word.trim_matches('.')).filter(|word| word.matches('.').count() == 1)
}

fn digits(number: &str) -> usize {
    number.replace('.', "").trim_start_matches('0').len()
}

/// The sections of a page, and the decimal numbers in its blocks and tables.
fn sections(page: &Page) -> (Vec<Section>, BTreeSet<String>) {
    let (mut sections, mut shown) = (vec![Section::default()], BTreeSet::new());
    let (mut in_block, mut in_table) = (false, false);
    for (event, range) in page.events() {
        let section = sections.last_mut().expect("a first section");
        match event {
            Event::Start(Tag::Heading { .. }) => sections.push(Section::default()),
            Event::Start(Tag::CodeBlock(kind)) => {
                in_block = true;
                section.shows_output |=
                    matches!(kind, pulldown_cmark::CodeBlockKind::Fenced(language) if &*language == "text");
            }
            Event::End(TagEnd::CodeBlock) => in_block = false,
            Event::Start(Tag::Table(_)) => in_table = true,
            Event::End(TagEnd::Table) => in_table = false,
            Event::Text(text) if in_block || in_table => shown.extend(decimals(&text).map(str::to_owned)),
            Event::Text(text) => section.sentences.push((range.start, text.into_string())),
            _ => {}
        }
    }
    (sections, shown)
}

#[test]
fn numbers_in_sentences_are_those_of_the_outputs() {
    let mut wrong = Vec::new();
    for page in Page::all() {
        let (sections, shown) = sections(&page);
        let sentences = sections.iter().filter(|section| section.shows_output).flat_map(|section| &section.sentences);
        for (byte, sentence) in sentences {
            let foreign = decimals(sentence).filter(|number| digits(number) >= DIGITS && !shown.contains(*number));
            let foreign = foreign.filter(|number| !MEASURED_ELSEWHERE.contains(number));
            wrong.extend(foreign.map(|number| format!("{}: {number} is in no output of the page", page.place(*byte))));
        }
    }
    assert!(wrong.is_empty(), "{}\n(give fewer digits where a number is computed from others)", wrong.join("\n"));
}
