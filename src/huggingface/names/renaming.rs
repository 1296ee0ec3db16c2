//! Names given by the user: lines `name = parameter`.
//!
//! The left side is the name in the checkpoint, with `*` for the number of a block (and a second one for the number of
//! an expert). The right side is the parameter, as the library, another convention or the network's stack calls it.
//! Parameters joined by `+` lie one below the other. Text after `#` is a comment.

use std::collections::{HashMap, HashSet};

use sigprop_stack::Parameter;

use super::{Held, Names, Part};
use crate::architecture::Architecture;
use crate::nearest::nearest;

/// The error for a line that cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: expected {expected}, got {got:?}{}", hint.as_ref().map_or(String::new(), |hint| format!("; {hint}")))]
pub struct RenamingError {
    /// The number of the line, from 1.
    pub line: usize,
    /// The expected text.
    pub expected: String,
    /// The text that was found.
    pub got: String,
    /// A hint, if there is one.
    pub hint: Option<String>,
}

/// A resolved line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rule {
    line: usize,
    /// The name in the checkpoint, with `*` for numbers.
    name: String,
    /// The patterns of the parameters it holds.
    holds: Vec<String>,
    /// The names in which the patterns are looked up.
    among: Box<Names>,
}

impl Names {
    /// Returns these names with the replacements in the lines of `text`. `parameters` are the parameters of the
    /// network.
    pub fn with_rules(
        &self,
        text: &str,
        architecture: &Architecture,
        parameters: &[Parameter],
    ) -> Result<Self, RenamingError> {
        let own = Self { modules: None, ..self.clone() };
        let mut known = self.candidates(architecture);
        known.insert(1, own);
        let known: Vec<(Self, Vec<Held>)> =
            known.into_iter().map(|names| (names.clone(), names.plain(parameters))).collect();
        let mut rules: Vec<Rule> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let code = line.split('#').next().unwrap_or_default().trim();
            if code.is_empty() {
                continue;
            }
            let rule = Rule::read(index + 1, code, &known)?;
            if let Some(other) = rules.iter().find(|other| other.name == rule.name) {
                return Err(rule.error(
                    "every name once",
                    &format!("{} of line {} again", rule.name, other.line),
                    None,
                ));
            }
            rules.push(rule);
        }
        Ok(Self { rules, ..self.clone() })
    }

    /// Returns the names given by the user, with the numbers of their lines.
    pub fn rules(&self) -> impl Iterator<Item = (usize, &str)> {
        self.rules.iter().map(|rule| (rule.line, rule.name.as_str()))
    }

    /// Returns `plain` with the names given by the user in place of the names they replace.
    pub(super) fn renamed(&self, plain: Vec<Held>, parameters: &[Parameter]) -> Vec<Held> {
        if self.rules.is_empty() {
            return plain;
        }
        let held: Vec<Held> = self.rules.iter().flat_map(|rule| rule.held(&rule.among.plain(parameters))).collect();
        let replaced: HashSet<(&str, Option<usize>)> =
            held.iter().flat_map(|held| held.parts.iter().map(key)).collect();
        let is_replaced = |part: &Part| {
            let (name, _) = key(part);
            replaced.contains(&key(part)) || replaced.contains(&(name, None))
        };
        let others: Vec<Held> = plain.into_iter().filter(|held| !held.parts.iter().all(is_replaced)).collect();
        drop(replaced);
        held.into_iter().chain(others).collect()
    }
}

fn key(part: &Part) -> (&str, Option<usize>) {
    (part.parameters[0].as_str(), part.expert)
}

impl Rule {
    fn read(line: usize, code: &str, known: &[(Names, Vec<Held>)]) -> Result<Self, RenamingError> {
        let error = |expected: &str, got: &str, hint: Option<String>| {
            let (expected, got) = (expected.to_owned(), got.to_owned());
            Err(RenamingError { line, expected, got, hint })
        };
        let sides = code.split_once('=').map(|(name, holds)| (name.trim(), holds.trim()));
        let Some((name, holds)) = sides.filter(|(name, holds)| !name.is_empty() && !holds.is_empty()) else {
            return error("name = parameter", code, None);
        };
        let holds: Vec<String> = holds.split('+').map(|pattern| pattern.trim().to_owned()).collect();
        for pattern in &holds {
            if !known.iter().any(|(_, held)| called(held, pattern).next().is_some()) {
                let patterns = known[..2].iter().flat_map(|(_, held)| held).map(|held| held.pattern.as_str());
                let hint = nearest(pattern, patterns).map(|name| format!("did you mean {name}?"));
                return error("a parameter of the network", pattern, hint);
            }
        }
        let has_all = |held: &[Held]| holds.iter().all(|pattern| called(held, pattern).next().is_some());
        let Some((among, held)) = known.iter().find(|(_, held)| has_all(held)) else {
            return error("parameters of one convention", code, None);
        };
        let rule = Self { line, name: name.to_owned(), holds, among: Box::new(among.clone()) };
        if rule.held(held).is_empty() {
            let hint = "a * on both sides is the number of a block, a second one that of an expert; what + joins lies \
                        one below the other";
            return error("as many * on both sides, and whole matrices of one width", code, Some(hint.to_owned()));
        }
        Ok(rule)
    }

    fn error(&self, expected: &str, got: &str, hint: Option<String>) -> RenamingError {
        RenamingError { line: self.line, expected: expected.to_owned(), got: got.to_owned(), hint }
    }

    /// Returns every tensor of a checkpoint that the line names; empty if its two sides do not fit.
    fn held(&self, known: &[Held]) -> Vec<Held> {
        let [first, others @ ..] = self.holds.as_slice() else { return Vec::new() };
        let others: Vec<HashMap<Vec<&str>, &Held>> =
            others.iter().map(|pattern| called(known, pattern).collect()).collect();
        let named = |(numbers, first): (Vec<&str>, &Held)| {
            let others = others.iter().map(|others| others.get(&numbers).copied());
            let held: Option<Vec<&Held>> = [Some(first)].into_iter().chain(others).collect();
            held.and_then(|held| joined(&held)).map_or(Vec::new(), |held| self.named(&held, &numbers))
        };
        called(known, first).flat_map(named).collect()
    }

    /// Returns the tensor under the name on the left side, with `numbers` in place of its `*`. A tensor of all experts
    /// is split into experts if the name has a number for them.
    fn named(&self, held: &Held, numbers: &[&str]) -> Vec<Held> {
        let name = numbers.iter().fold(self.name.clone(), |name, number| name.replacen('*', number, 1));
        let pattern = self.name.clone();
        match (self.name.matches('*').count(), is_stack(held)) {
            (stars, _) if stars == numbers.len() => vec![Held { name, pattern, ..held.clone() }],
            (stars, true) if stars == numbers.len() + 1 => {
                let expert = |expert: usize| Held {
                    name: name.replacen('*', &expert.to_string(), 1),
                    pattern: pattern.clone(),
                    shape: held.shape[1..].to_vec(),
                    axis: 0,
                    parts: held.parts.iter().map(|part| Part { expert: Some(expert), ..part.clone() }).collect(),
                    ..*held
                };
                (0..held.shape[0]).map(expert).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Returns the tensors whose names match `pattern`, each with the parts of its name in place of `*`.
fn called<'h>(known: &'h [Held], pattern: &str) -> impl Iterator<Item = (Vec<&'h str>, &'h Held)> {
    let numbers = |held: &'h Held| {
        let parts = held.pattern.split('.').zip(held.name.split('.'));
        parts.filter(|(pattern, _)| *pattern == "*").map(|(_, number)| number).collect()
    };
    known.iter().filter_map(move |held| match held {
        held if held.name == pattern => Some((Vec::new(), held)),
        held if held.pattern == pattern => Some((numbers(held), held)),
        _ => None,
    })
}

/// Returns true if the tensor holds one kind of matrix for all experts: [experts, out, in].
fn is_stack(held: &Held) -> bool {
    held.shape.len() == 3 && held.parts.iter().all(|part| part.expert.is_none() && part.shape[1] == held.shape[2])
}

/// Returns the tensors joined one below the other; `None` if their shapes do not fit.
fn joined(held: &[&Held]) -> Option<Held> {
    let [first, others @ ..] = held else { return None };
    if others.is_empty() {
        return Some((*first).clone());
    }
    let axis = usize::from(is_stack(first));
    let mut shape = first.shape.clone();
    shape[axis] = held.iter().map(|held| held.shape[axis]).sum();
    let fits = |held: &&Held| {
        let others = |shape: &[usize]| [&shape[..axis], &shape[axis + 1..]].concat();
        held.groups == 1 && (held.parts.len() == 1 || held.axis == axis) && others(&held.shape) == others(&first.shape)
    };
    let parts = held.iter().flat_map(|held| held.parts.clone()).collect();
    held.iter().all(fits).then(|| Held { shape, axis, parts, ..(*first).clone() })
}
