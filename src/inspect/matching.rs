//! The parameter that each tensor of a checkpoint holds, and the naming convention of the checkpoint.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use sigprop_stack::Parameter;

use crate::checkpoint::{Checkpoint, Entry};
use crate::huggingface::{Held, Names};

/// The parameters of a network, by the names of tensors that hold them.
pub(super) struct Matching<'a> {
    by_name: HashMap<&'a str, &'a Held>,
    /// The text before the names of the base model: `transformer.`, `module._orig_mod.`, or nothing.
    prefix: &'a str,
}

impl<'a> Matching<'a> {
    pub(super) fn new(checkpoint: &'a Checkpoint, held: &'a [Held]) -> Self {
        let by_name: HashMap<&str, &Held> = held.iter().map(|held| (held.name.as_str(), held)).collect();
        let prefix = prefix(checkpoint, &by_name);
        Self { by_name, prefix }
    }

    /// Returns the text before the names of the base model.
    pub(super) fn prefix(&self) -> &'a str {
        self.prefix
    }

    /// Returns the parameter that a tensor holds, and the name of the tensor with `*` for numbers. The prefix of a name
    /// may be shorter than that of the base model, or absent, because names given by the user are complete.
    pub(super) fn find(&self, entry: &Entry) -> Option<(&'a Held, String)> {
        beginnings(self.prefix).find_map(|front| {
            let held = self.by_name.get(entry.name.strip_prefix(front)?).copied()?;
            Some((held, format!("{front}{}", held.pattern)))
        })
    }
}

/// Returns the naming convention with which most tensors of a checkpoint match a parameter. If several are equally
/// good, it is the first of them.
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
    // The last maximum is taken, so the order is reversed.
    known.into_iter().rev().max_by_key(tensors)
}

/// Returns the first of the user's rules for names that applies to no tensor, with the number of its line; `None` if
/// all apply.
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

/// Returns the prefix with which most parameters are found; of several such prefixes the shortest.
fn prefix<'c>(checkpoint: &'c Checkpoint, held: &HashMap<&str, &Held>) -> &'c str {
    let mut found: HashMap<&str, HashSet<&str>> = HashMap::new();
    for entry in &checkpoint.entries {
        for (front, name) in beginnings(&entry.name).map(|front| (front, &entry.name[front.len()..])) {
            if held.contains_key(name) {
                found.entry(front).or_default().insert(name);
            }
        }
    }
    let count = |prefix: &str| {
        let sets: Vec<&HashSet<&str>> = beginnings(prefix).filter_map(|front| found.get(front)).collect();
        let new = |(index, set): (usize, &&HashSet<&str>)| {
            set.iter().filter(|name| sets[index + 1..].iter().all(|others| !others.contains(*name))).count()
        };
        sets.iter().enumerate().map(new).sum::<usize>()
    };
    let most = found.keys().copied().max_by_key(|prefix| (count(prefix), Reverse(prefix.len()), Reverse(*prefix)));
    most.unwrap_or_default()
}

/// Returns the beginnings of a name up to each of its dots, the longest first and the empty one last.
fn beginnings(name: &str) -> impl Iterator<Item = &str> {
    name.rmatch_indices('.').map(|(dot, _)| &name[..=dot]).chain([""])
}

/// Returns true if a tensor has as many rows as a parameter, and as many entries in each; axes of 1 are left out.
pub(super) fn fits(entry: &Entry, held: &Held) -> bool {
    outline(&entry.shape) == outline(&held.shape)
}

fn outline(shape: &[usize]) -> (usize, usize) {
    let mut axes = shape.iter().filter(|&&axis| axis != 1);
    (axes.next().copied().unwrap_or(1), axes.product())
}
