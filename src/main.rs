//! The `sigprop` command.

fn main() {}
