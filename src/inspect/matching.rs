//! Which parameter each tensor of a checkpoint is, and whose names the checkpoint has.

use std::collections::HashMap;

use sigprop_stack::Parameter;

use crate::checkpoint::{Checkpoint, Entry};
use crate::huggingface::{Held, Names};

/// Parameters by the names of tensors.
pub(super) struct Matching<'a> {
    by_name: HashMap<&'a str, &'a Held>,
    /// What stands before the names of the base model: `transformer.`, `module._orig_mod.`, nothing.
    prefix: &'a str,
}

impl<'a> Matching<'a> {
    pub(super) fn new(checkpoint: &'a Checkpoint, held: &'a [Held]) -> Self {
        let by_name: HashMap<&str, &Held> = held.iter().map(|held| (held.name.as_str(), held)).collect();
        let prefix = prefix(checkpoint, &by_name);
        Self { by_name, prefix }
    }

    /// The parameter that a tensor is, and its pattern in the checkpoint. Names of one's own may be whole.
    pub(super) fn find(&self, entry: &Entry) -> Option<(&'a Held, String)> {
        let relative = entry.name.strip_prefix(self.prefix).and_then(|name| self.by_name.get(name).copied());
        let relative = relative.map(|held| (held, format!("{}{}", self.prefix, held.pattern)));
        relative.or_else(|| self.by_name.get(entry.name.as_str()).map(|&held| (held, held.pattern.clone())))
    }
}

/// Of all names that the parameters of a network may have, those that most tensors of a checkpoint have, the first of
/// several.
pub fn names_of(checkpoint: &Checkpoint, known: Vec<Names>, parameters: &[Parameter]) -> Option<Names> {
    let tensors = |names: &Names| {
        let held = names.held(parameters);
        let matching = Matching::new(checkpoint, &held);
        checkpoint
            .entries
            .iter()
            .filter(|entry| matching.find(entry).is_some_and(|(held, _)| fits(entry, held)))
            .count()
    };
    // The last of several is taken.
    known.into_iter().rev().max_by_key(tensors)
}

/// The first rule for names, with the number of its line, that no tensor follows.
pub fn unused_rule<'n>(
    checkpoint: &Checkpoint,
    names: &'n Names,
    parameters: &[Parameter],
) -> Option<(usize, &'n str)> {
    let held = names.held(parameters);
    let matching = Matching::new(checkpoint, &held);
    let found: Vec<&Held> = checkpoint.entries.iter().filter_map(|entry| Some(matching.find(entry)?.0)).collect();
    names.rules().find(|(_, name)| found.iter().all(|held| held.pattern != *name))
}

/// The one before most of the known names.
fn prefix<'c>(checkpoint: &'c Checkpoint, held: &HashMap<&str, &Held>) -> &'c str {
    let mut votes: HashMap<&str, usize> = HashMap::new();
    for entry in &checkpoint.entries {
        let starts = std::iter::once(0).chain(entry.name.match_indices('.').map(|(dot, _)| dot + 1));
        for start in starts.filter(|&start| held.contains_key(&entry.name[start..])) {
            *votes.entry(&entry.name[..start]).or_default() += 1;
        }
    }
    let most = votes.into_iter().max_by_key(|&(prefix, votes)| (votes, std::cmp::Reverse(prefix)));
    most.map_or("", |(prefix, _)| prefix)
}

/// Whether a tensor has the rows of a parameter, and as many entries in each; axes of 1 left out.
pub(super) fn fits(entry: &Entry, held: &Held) -> bool {
    outline(&entry.shape) == outline(&held.shape)
}

fn outline(shape: &[usize]) -> (usize, usize) {
    let mut axes = shape.iter().filter(|&&axis| axis != 1);
    (axes.next().copied().unwrap_or(1), axes.product())
}
