//! All integration tests, as one binary.

mod layering;
mod reference;
mod stacks;
mod support;
mod twins;
