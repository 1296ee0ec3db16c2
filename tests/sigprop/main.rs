//! All integration tests, as one binary.

mod accuracy;
mod book;
mod caveats;
mod command_line;
mod compare;
mod drop_path;
mod encoders;
mod finite_width;
mod first_step;
mod golden;
mod head;
mod huggingface;
mod layering;
mod mean_field;
mod narrow;
mod phase;
mod python;
mod recommend;
mod reference;
mod repeats;
mod stacks;
mod strays;
mod support;
mod theory;
mod twins;
mod zoo;
