//! The naming conventions that the parameters of a checkpoint may follow.

use super::{Modules, Names, meta, nanogpt, timm, torch};
use crate::architecture::Architecture;
use crate::huggingface::families::FAMILIES;

/// Conventions that belong to no config.
const CONVENTIONS: &[(&str, Modules)] = &[
    ("Meta's Llama", meta::META),
    ("torch.nn.TransformerEncoder", torch::ENCODER),
    ("torch.nn.TransformerDecoder", torch::DECODER),
    ("torch.nn.Transformer", torch::BOTH),
    ("timm's ViT", timm::TIMM),
    ("nanoGPT", nanogpt::NANOGPT),
];

impl Names {
    /// Returns all names that the parameters of a network may have: these names, other conventions and, if these are
    /// the names in the stack, the names of all families of the library.
    pub fn candidates(&self, architecture: &Architecture) -> Vec<Self> {
        let named = |convention, modules| Self { convention: Some(convention), modules: Some(modules), ..self.clone() };
        let conventions = CONVENTIONS.iter().map(|(convention, modules)| named(*convention, *modules));
        let families = FAMILIES.iter().filter(|_| self.modules.is_none());
        let families = families.map(|family| named("transformers", (family.names)(architecture)));
        [self.clone()].into_iter().chain(conventions).chain(families).collect()
    }
}
