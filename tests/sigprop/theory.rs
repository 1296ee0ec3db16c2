//! The page *The theory in an hour* derives the numbers that the library computes.

#[path = "../../examples/theory.rs"]
mod example;

#[test]
fn the_page_and_the_library_agree() {
    example::main().expect("both have the same network");
}
