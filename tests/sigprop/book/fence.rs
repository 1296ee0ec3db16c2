//! Fenced blocks of code.

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, Tag, TagEnd};

use super::Page;

/// A fenced block of code.
pub(super) struct Fence {
    /// The language, then a note that syntax highlighters ignore: `(key=value)` or `(word)`.
    info: String,
    pub(super) text: String,
    /// The byte range of `text` in the page.
    pub(super) range: Range<usize>,
}

impl Page {
    pub(super) fn fences(&self) -> Vec<Fence> {
        let (mut fences, mut open): (Vec<Fence>, Option<Fence>) = (Vec::new(), None);
        for (event, range) in self.events() {
            match (event, &mut open) {
                (Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))), _) => {
                    open = Some(Fence { info: info.into_string(), text: String::new(), range: range.end..range.end });
                }
                (Event::Text(text), Some(fence)) => {
                    fence.text.push_str(&text);
                    fence.range = fence.range.start.min(range.start)..range.end;
                }
                (Event::End(TagEnd::CodeBlock), _) => fences.extend(open.take()),
                _ => {}
            }
        }
        fences
    }
}

impl Fence {
    pub(super) fn language(&self) -> &str {
        self.info.split_whitespace().next().unwrap_or_default()
    }

    /// The note in parentheses; `None` if there is none.
    pub(super) fn note(&self) -> Option<&str> {
        self.info.split_once('(')?.1.strip_suffix(')')
    }

    pub(super) fn attribute(&self, key: &str) -> Option<&str> {
        self.note()?.strip_prefix(key)?.strip_prefix('=')
    }

    /// The lines that run sigprop, without comments. Continued lines are joined.
    pub(super) fn commands(&self) -> Vec<String> {
        let text = self.text.replace("\\\n", " ").replace("cargo run --release --", "sigprop");
        let lines = text.lines().map(|line| line.split(" #").next().unwrap_or_default().trim());
        lines.filter(|line| line.split_whitespace().any(|word| word == "sigprop")).map(str::to_owned).collect()
    }
}
