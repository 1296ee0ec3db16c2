//! Distributions of single tensors, which replace those of the scheme.

use std::collections::{BTreeMap, BTreeSet};

use sigprop_stack::{Init, Named, Stack};

use super::AssembleError;
use crate::nearest::nearest;

/// Replaces the distributions of the tensors that match an entry. Returns the entries that match no tensor.
pub(super) fn replace<'a>(stack: &mut Stack, entries: &'a BTreeMap<String, Init>) -> BTreeSet<&'a str> {
    let mut idle: BTreeSet<&str> = entries.keys().map(String::as_str).collect();
    if entries.is_empty() {
        return idle;
    }
    stack.change(|named| {
        let Named::Tensor(tensor) = named else { return };
        let matching = entries.iter().filter(|(entry, _)| matches(entry, &tensor.name));
        let stars = |entry: &str| entry.split('.').filter(|part| *part == "*").count();
        let mut closest: Option<(&str, Init)> = None;
        for (entry, init) in matching {
            idle.remove(entry.as_str());
            if closest.is_none_or(|(other, _)| stars(entry) < stars(other)) {
                closest = Some((entry, *init));
            }
        }
        if let Some((_, init)) = closest {
            tensor.init = init;
        }
    });
    idle
}

/// The error for an entry that matches no tensor.
pub(super) fn unmatched(stack: &mut Stack, entry: &str) -> AssembleError {
    let mut names = BTreeSet::new();
    stack.change(|named| {
        if let Named::Tensor(tensor) = named {
            names.insert(general(&tensor.name));
        }
    });
    let hint = nearest(&general(entry), names.iter().map(String::as_str)).map(str::to_owned);
    let hint = hint.unwrap_or_else(|| names.into_iter().collect::<Vec<_>>().join(", "));
    AssembleError::NoTensor { entry: entry.to_owned(), hint }
}

/// Returns true if an entry names a tensor; `.weight` may be left out, and `*` matches one part.
fn matches(entry: &str, tensor: &str) -> bool {
    let same = |tensor: &str| {
        let (mut left, mut right) = (entry.split('.'), tensor.split('.'));
        let alike = left.by_ref().zip(right.by_ref()).all(|(entry, part)| entry == "*" || entry == part);
        alike && entry.split('.').count() == tensor.split('.').count()
    };
    same(tensor) || tensor.strip_suffix(".weight").is_some_and(same)
}

/// The name of a tensor with `*` for the number of its block and without `.weight`.
fn general(name: &str) -> String {
    let parts = name.strip_suffix(".weight").unwrap_or(name).split('.');
    let parts = parts.map(|part| if part.parse::<usize>().is_ok() { "*" } else { part });
    parts.collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use crate::architecture::{Architecture, Format};
    use crate::assemble::{Input, Run, assemble};
    use crate::schemes::Scheme;
    use sigprop_stack::{Init, Named};

    const SHAPE: &str = "n_layers = 2\nd_model = 64\nseq_len = 8\nvocab_size = 50\n";

    /// The distribution of a tensor, or the error, under a scheme.
    fn init(file: &str, scheme: &str, name: &str) -> Result<Init, String> {
        let file = format!("{SHAPE}{file}");
        let architecture = Architecture::from_file_text(&file, Format::Toml).map_err(|error| error.to_string())?;
        let scheme = Scheme::parse(scheme).expect("a scheme");
        let assembled = assemble(&architecture, &scheme, &Input::default(), &Run::default());
        let mut stack = assembled.map_err(|error| error.to_string())?.stack;
        let mut found = None;
        stack.change(|named| match named {
            Named::Tensor(tensor) if tensor.name == name => found = Some(tensor.init),
            Named::Tensor(_) | Named::Norm(..) | Named::Sum(..) | Named::Attention(_) => {}
        });
        Ok(found.expect("the tensor exists"))
    }

    #[test]
    fn entries_replace_the_distributions_of_any_scheme() {
        let file = "[init]\n\"blocks.*.attention.output\" = {std = 0.01}\n\
                    \"blocks.1.attention.output.weight\" = {uniform = 0.5}\n\"embeddings.token\" = {std = 0.0}";
        for scheme in ["xavier", "gpt2", "mup", "rezero"] {
            let init = |name| init(file, scheme, name).expect("a network");
            assert_eq!(init("blocks.0.attention.output.weight"), Init::Normal { std: 0.01 }, "{scheme}");
            assert_eq!(init("blocks.1.attention.output.weight"), Init::Uniform { bound: 0.5 }, "{scheme}");
            assert_eq!(init("embeddings.token"), Init::Zero, "{scheme}");
        }
        let plain = init("", "xavier", "blocks.0.ffn.in.weight");
        assert_eq!(init(file, "xavier", "blocks.0.ffn.in.weight"), plain);
        let head = "head = \"untied\"\n[init]\nhead = {std = 0.5, cutoff = 2.0}";
        assert_eq!(init(head, "xavier", "embeddings.token"), init("", "xavier", "embeddings.token"));
    }

    #[test]
    fn an_entry_without_a_tensor_is_an_error_with_the_nearest() {
        let error = init("[init]\n\"blocks.*.atention.output\" = {std = 0.01}", "xavier", "").unwrap_err();
        assert!(error.starts_with("init: no tensor is called \"blocks.*.atention.output\""), "{error}");
        assert!(error.contains("nearest: blocks.*.attention.output"), "{error}");
        for wrong in ["{std = -1.0}", "{std = 0.1, uniform = 0.1}", "{cutoff = 2.0}", "{}", "{std = nan}"] {
            let error = init(&format!("[init]\n\"embeddings.token\" = {wrong}"), "xavier", "").unwrap_err();
            assert!(error.starts_with("init must be {std = x}"), "{error}");
        }
    }
}
