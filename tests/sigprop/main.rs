//! All integration tests, as one binary.

mod layering;
mod reference;
mod support;
mod twins;
