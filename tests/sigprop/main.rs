//! All integration tests, as one binary.

mod command_line;
mod encoders;
mod huggingface;
mod layering;
mod reference;
mod stacks;
mod support;
mod twins;
