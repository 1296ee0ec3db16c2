//! Links and file names on the pages.

use std::{
    collections::BTreeSet,
    fs,
    ops::Range,
    path::{Component, Path},
};

use pulldown_cmark::{Event, Tag, TagEnd};

use super::{Page, ROOT, anchor};

/// Folders of the repository whose files are named on pages.
const FOLDERS: [&str; 10] =
    [".ci/", "benches/", "data/", "docs/", "examples/", "fuzz/", "src/", "stack/", "tests/", "validate/"];

impl Page {
    /// The anchors of the headings.
    fn anchors(&self) -> BTreeSet<String> {
        let (mut anchors, mut heading): (BTreeSet<String>, Option<String>) = (BTreeSet::new(), None);
        for (event, _) in self.events() {
            match (event, &mut heading) {
                (Event::Start(Tag::Heading { .. }), _) => heading = Some(String::new()),
                (Event::Text(text) | Event::Code(text), Some(heading)) => heading.push_str(&text),
                (Event::End(TagEnd::Heading(_)), _) => anchors.extend(heading.take().map(|text| anchor(&text))),
                _ => {}
            }
        }
        anchors
    }

    /// Links and pictures that point into the repository, each with its place on the page.
    pub(super) fn links(&self) -> Vec<(String, String)> {
        let target = |(event, range): (Event<'_>, Range<usize>)| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                Some((dest_url.into_string(), self.place(range.start)))
            }
            _ => None,
        };
        self.events().filter_map(target).filter(|(link, _)| !link.contains("://")).collect()
    }
}

/// Returns true if the path leaves the folder where it starts.
fn leaves(path: &Path) -> bool {
    let mut depth = 0;
    path.components().any(|part| {
        depth += if part == Component::ParentDir { -1 } else { 1 };
        depth < 0
    })
}

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    for page in Page::all() {
        for (link, place) in page.links() {
            let (file, anchor) = link.split_once('#').map_or((link.as_str(), None), |(file, at)| (file, Some(at)));
            let path = if file.is_empty() {
                page.path.clone()
            } else {
                page.path.parent().expect("a page is in a folder").join(file)
            };
            if page.path.strip_prefix("docs").is_ok_and(|from| leaves(&from.with_file_name(file))) {
                broken.push(format!("{place}: {link} leaves the book"));
            } else if !Path::new(ROOT).join(&path).exists() {
                broken.push(format!("{place}: {link} is not there"));
            } else if anchor.is_some_and(|anchor| !Page::read(path).anchors().contains(anchor)) {
                broken.push(format!("{place}: {link} has no such heading"));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Checks files that pages name as code, without a link. Files that are built are left out.
#[test]
fn named_files_are_there() {
    let made = fs::read_to_string(Path::new(ROOT).join(".gitignore")).expect("a file");
    let is_made = |name: &str| made.lines().any(|path| name.starts_with(path.trim_start_matches('/')));
    let mut lacking = Vec::new();
    for page in Page::all() {
        for (event, range) in page.events() {
            let Event::Code(name) = event else { continue };
            let is_path = FOLDERS.iter().any(|folder| name.starts_with(folder));
            let is_pattern = name.contains(['<', '*', '…', ' ', '$']);
            if is_path && !is_pattern && !is_made(&name) && !Path::new(ROOT).join(&*name).exists() {
                lacking.push(format!("{}: {name}", page.place(range.start)));
            }
        }
    }
    assert!(lacking.is_empty(), "{}", lacking.join("\n"));
}
