//! Names that tell why nothing was matched.

use std::collections::HashSet;

use super::{Inspection, starred};

impl Inspection {
    /// A few parameters of the network that no tensor holds, and a few tensors that are none of its parameters, with
    /// `*` for numbers.
    pub fn unmatched(&self) -> (Vec<String>, Vec<String>) {
        (examples(&self.missing), examples(&self.unknown))
    }
}

fn examples(names: &[String]) -> Vec<String> {
    const SHOWN: usize = 3;
    let mut seen = HashSet::new();
    names.iter().map(|name| starred(name)).filter(|name| seen.insert(name.clone())).take(SHOWN).collect()
}
