//! The subjects that must have a place in the book.

use std::{collections::BTreeSet, fs, path::Path};

use sigprop::schemes::SCHEMES;

use super::{Page, ROOT};
use crate::layering::names;

#[test]
fn all_pages_are_among_its_contents() {
    let (contents, pages): (Vec<Page>, Vec<Page>) = Page::all()
        .into_iter()
        .filter(|page| page.path.starts_with("docs"))
        .partition(|page| page.path.ends_with("SUMMARY.md"));
    let listed: BTreeSet<_> = contents[0].links().into_iter().map(|(link, _)| Path::new("docs").join(link)).collect();
    assert_eq!(listed, pages.into_iter().map(|page| page.path).collect());
}

#[test]
fn all_code_in_rust_is_tested() {
    let tested = fs::read_to_string(Path::new(ROOT).join("src/lib.rs")).expect("a file");
    for page in Page::all() {
        // These pages are excerpts of examples, and another test compares them.
        if page.example().is_some() {
            continue;
        }
        let path = page.path.display();
        let has_code = page.text.lines().any(|line| line.starts_with("```rust"));
        assert_eq!(has_code, tested.contains(&format!("\"../{path}\"")), "src/lib.rs: {path}");
    }
}

#[test]
fn all_schemes_have_a_row() {
    let page = Page::read("docs/schemes.md".into());
    for scheme in SCHEMES {
        assert!(page.text.contains(&format!("`{}`", scheme.name)), "{} is not told of", scheme.name);
    }
}

#[test]
fn all_components_have_their_page() {
    let page = Page::read("docs/rules.md".into());
    for component in names("validate/src/components") {
        assert!(page.text.contains(&format!("`{component}")), "{component} is on no page");
    }
}
