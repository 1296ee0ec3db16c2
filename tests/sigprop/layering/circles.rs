//! Modules use each other in one direction. There are no circles in `src/`, neither by `use` lines nor by paths in the
//! code.
//!
//! A module and its submodules count as one: uses between them are not edges.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::root;

type Modules = BTreeMap<Vec<String>, BTreeSet<Vec<String>>>;

/// Reads the paths of modules below `folder`, with the paths that they use.
fn read(folder: &Path, path: &[String], modules: &mut Modules) {
    for entry in std::fs::read_dir(folder).expect("the folder exists") {
        let file = entry.expect("the folder is readable").path();
        let name = file.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        let own: Vec<String> = if name == "mod" { path.to_vec() } else { [path, &[name]].concat() };
        let is_test = own.iter().any(|part| part == "tests");
        if file.is_dir() {
            read(&file, &own, modules);
        } else if !is_test && file.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&file).expect("sources are text");
            modules.insert(own.clone(), used(&text).iter().filter_map(|path| resolved(path, &own)).collect());
        }
    }
}

/// The paths that a module names, in `use` lines and elsewhere.
fn used(text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
    let code: String = text.lines().map(|line| line.split("//").next().unwrap_or(line)).collect::<Vec<_>>().join("\n");
    let mut paths = Vec::new();
    for statement in code.split(';') {
        let (before, tree) = statement.rsplit_once("use ").unwrap_or((statement, ""));
        branches("", tree.trim(), &mut paths);
        paths.extend(inline(before));
    }
    paths
}

/// Collects the paths of the tree of a `use` line.
fn branches(prefix: &str, tree: &str, paths: &mut Vec<String>) {
    let (mut depth, mut start) = (0, 0);
    for (place, character) in tree.char_indices().chain([(tree.len(), ',')]) {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let item = tree[start..place].trim();
                match item.split_once('{') {
                    Some((head, rest)) => {
                        let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
                        branches(&format!("{prefix}{}", head.trim()), inner, paths);
                    }
                    None => paths.push(format!("{prefix}{}", item.split(" as ").next().unwrap_or(item))),
                }
                start = place + 1;
            }
            _ => {}
        }
    }
}

/// The paths in the code that begin with `crate::` or `super::`.
fn inline(code: &str) -> impl Iterator<Item = String> + '_ {
    let words = code.split(|character: char| !(character.is_alphanumeric() || character == '_' || character == ':'));
    let begins = |word: &&str| word.starts_with("crate::") || word.starts_with("super::");
    words.filter(begins).map(|word| word.trim_end_matches(':').to_owned())
}

/// Returns a path as it is from the root of the crate; `None` for a path of another crate. `own` is the module that
/// uses the path.
fn resolved(path: &str, own: &[String]) -> Option<Vec<String>> {
    let parts: Vec<String> = path.split("::").map(|part| part.trim().to_owned()).collect();
    match parts[0].as_str() {
        "crate" => Some(parts[1..].to_vec()),
        "self" => Some([own, &parts[1..]].concat()),
        "super" => {
            let up = parts.iter().take_while(|part| *part == "super").count();
            Some([own.get(..own.len().checked_sub(up)?)?, &parts[up..]].concat())
        }
        _ => None,
    }
}

#[test]
fn modules_use_each_other_in_one_direction() {
    let mut modules = Modules::new();
    read(&root().join("src"), &[], &mut modules);
    for crate_root in ["lib", "main"] {
        modules.remove(&vec![crate_root.to_owned()]).expect("the root of a crate");
    }
    let known: BTreeSet<Vec<String>> = modules.keys().cloned().collect();
    for (own, used) in &mut modules {
        let module = |path: &Vec<String>| {
            (1..=path.len()).rev().map(|length| path[..length].to_vec()).find(|path| known.contains(path))
        };
        let is_outside = |path: &Vec<String>| !path.starts_with(own) && !own.starts_with(path);
        *used = used.iter().filter_map(module).filter(is_outside).collect();
    }
    assert!(modules.values().map(BTreeSet::len).sum::<usize>() > 1000, "paths are read");
    for name in modules.keys() {
        assert!(!reached(name, &modules).contains(name), "{} is used by what it uses", name.join("::"));
    }
}

/// All modules that a module uses, directly or through others.
fn reached(from: &[String], modules: &Modules) -> BTreeSet<Vec<String>> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&Vec<String>> = modules[from].iter().collect();
    while let Some(path) = next.pop() {
        if reached.insert(path.clone()) {
            next.extend(&modules[path]);
        }
    }
    reached
}
