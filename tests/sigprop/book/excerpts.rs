//! Code on a page that has an example of the same name must be an excerpt of the example, and formulas those of the code.

use std::{env, fs, path::Path};

use super::{Page, ROOT};

/// The lines that are not empty, without their indentation.
fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

#[test]
fn code_is_that_of_the_example() {
    let mut count = 0;
    for page in Page::all() {
        let Some(example) = page.example() else { continue };
        let example = lines(&example);
        for fence in page.fences().into_iter().filter(|fence| fence.language() == "rust") {
            let excerpt = lines(&fence.text);
            let is_there = example.windows(excerpt.len()).any(|window| window == excerpt);
            assert!(is_there, "{}: not in the example\n{}", page.place(fence.range.start), fence.text);
            count += 1;
        }
    }
    assert!(count > 0, "no page quotes an example");
}

/// The formulas of a file: the first block of its header.
fn formulas(path: &str) -> String {
    let text = fs::read_to_string(Path::new(ROOT).join(path)).expect("the page names a file");
    let header = text.lines().map_while(|line| line.strip_prefix("//!"));
    let header: Vec<&str> = header.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    let block = header.iter().skip_while(|line| !line.starts_with("```")).skip(1);
    block.take_while(|line| !line.starts_with("```")).flat_map(|line| [*line, "\n"]).collect()
}

/// A block `text (from=FILE)` is the block of formulas of that file. `SIGPROP_BOOK=write` writes it anew.
#[test]
fn formulas_are_those_of_the_code() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in Page::all() {
        let mut text = page.text.clone();
        for fence in page.fences().into_iter().rev() {
            let Some(path) = fence.attribute("from") else { continue };
            let expected = formulas(path);
            count += 1;
            if fence.text != expected {
                wrong.push(format!("{}: {path} has\n{expected}", page.place(fence.range.start)));
                text.replace_range(fence.range, &expected);
            }
        }
        if text != page.text && env::var_os("SIGPROP_BOOK").is_some_and(|wish| wish == "write") {
            fs::write(Path::new(ROOT).join(&page.path), text).expect("the page can be written");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 0, "no page has formulas of the code");
}
