//! Code on a page that has an example of the same name must be an excerpt of the example.

use super::Page;

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
