//! Examples of names that were not matched, from which the reason can be seen.

use std::collections::HashSet;

use super::{Inspection, starred};

impl Inspection {
    /// Returns a few parameters of the network that no tensor holds, and a few tensors that are not parameters of the
    /// network, with `*` for numbers.
    pub fn unmatched(&self) -> (Vec<String>, Vec<String>) {
        (examples(&self.missing), examples(&self.unknown))
    }
}

fn examples(names: &[String]) -> Vec<String> {
    const SHOWN: usize = 3;
    let mut seen = HashSet::new();
    names.iter().map(|name| starred(name)).filter(|name| seen.insert(name.clone())).take(SHOWN).collect()
}
