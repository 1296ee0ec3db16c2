//! Tests of the pages, README and the book in docs/: their commands are run, and their links are followed.

#[cfg(unix)]
mod commands;
mod complete;
#[cfg(unix)]
mod excerpts;
#[cfg(unix)]
mod fence;
mod links;
mod model_files;
#[cfg(unix)]
mod output;
mod prose;
mod symbols;

use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
};

use pulldown_cmark::{Event, Options, Parser};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A Markdown file of the repository.
pub(crate) struct Page {
    /// The path from the root of the repository.
    pub(crate) path: PathBuf,
    text: String,
}

impl Page {
    /// Reads all pages, in the order of their paths.
    pub(crate) fn all() -> Vec<Self> {
        let mut pages = Vec::new();
        collect(Path::new(""), false, &mut pages);
        collect(Path::new("docs"), true, &mut pages);
        collect(Path::new("data"), true, &mut pages);
        pages.sort_by(|a, b| a.path.cmp(&b.path));
        pages
    }

    fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(Path::new(ROOT).join(&path)).expect("a page is text");
        Self { path, text }
    }

    pub(crate) fn events(&self) -> impl Iterator<Item = (Event<'_>, Range<usize>)> {
        Parser::new_ext(&self.text, Options::ENABLE_TABLES).into_offset_iter()
    }

    /// The text of the example with the name of the page; `None` if there is none.
    fn example(&self) -> Option<String> {
        let name = self.path.with_extension("rs");
        fs::read_to_string(Path::new(ROOT).join("examples").join(name.file_name()?)).ok()
    }

    /// The file and line of a byte of the page.
    pub(crate) fn place(&self, byte: usize) -> String {
        let line = 1 + self.text[..byte].matches('\n').count();
        format!("{}:{line}", self.path.display())
    }
}

fn collect(folder: &Path, below: bool, pages: &mut Vec<Page>) {
    for entry in fs::read_dir(Path::new(ROOT).join(folder)).expect("a folder") {
        let entry = entry.expect("an entry");
        let path = folder.join(entry.file_name());
        if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(Page::read(path));
        } else if below && entry.path().is_dir() {
            collect(&path, below, pages);
        }
    }
}

/// The anchor that GitHub and mdBook give a heading.
pub(crate) fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_'));
    kept.map(|char| if char == ' ' { '-' } else { char.to_ascii_lowercase() }).collect()
}
