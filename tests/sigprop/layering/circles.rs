//! Modules of the infinitely wide network, and of what finite width adds, use each other in one direction.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::root;

type Modules = BTreeMap<Vec<String>, BTreeSet<Vec<String>>>;

/// Paths of modules below `folder` with the paths that they use.
fn read(root: &str, folder: &Path, path: &[String], modules: &mut Modules) {
    for entry in std::fs::read_dir(folder).expect("the folder exists") {
        let file = entry.expect("the folder is readable").path();
        let name = file.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        let own: Vec<String> = if name == "mod" { path.to_vec() } else { [path, &[name]].concat() };
        if file.is_dir() {
            read(root, &file, &own, modules);
        } else if own != ["tests"] && !own.is_empty() {
            let text = std::fs::read_to_string(&file).expect("sources are text");
            modules.insert(own.clone(), used(&text, &own, root).collect());
        }
    }
}

/// What the `use` lines of a module name, below the root of all.
fn used<'t>(text: &'t str, own: &'t [String], folder: &'t str) -> impl Iterator<Item = Vec<String>> + 't {
    let text = text.split("#[cfg(test)]").next().unwrap_or(text);
    let statements = text.split(';').filter_map(|statement| {
        let line = statement.trim_start().lines().skip_while(|line| !line.contains("use ")).collect::<String>();
        Some(line.split_once("use ")?.1.to_owned())
    });
    statements.flat_map(|statement| {
        let (head, items) = statement.split_once("::{").unwrap_or((&statement, ""));
        let items: Vec<&str> = items.trim_end_matches('}').split(',').map(str::trim).collect();
        let join = |item: &&str| if item.is_empty() { head.to_owned() } else { format!("{head}::{item}") };
        items.iter().map(join).filter_map(|path| below_root(&path, own, folder)).collect::<Vec<_>>()
    })
}

fn below_root(path: &str, own: &[String], folder: &str) -> Option<Vec<String>> {
    let parts: Vec<String> = path.split("::").map(str::to_owned).collect();
    match parts[0].as_str() {
        "crate" => Some(parts.strip_prefix(&["crate".to_owned(), folder.to_owned()])?.to_vec()),
        "self" => Some([own, &parts[1..]].concat()),
        "super" => {
            let up = parts.iter().take_while(|part| *part == "super").count();
            Some([&own[..own.len() - up], &parts[up..]].concat())
        }
        _ => None,
    }
}

#[test]
fn modules_of_both_layers_use_each_other_in_one_direction() {
    check("mean_field", 100);
    check("finite_width", 40);
}

/// With more than so many uses.
fn check(layer: &str, least: usize) {
    let mut modules = Modules::new();
    read(layer, &root().join("src").join(layer), &[], &mut modules);
    let known: BTreeSet<Vec<String>> = modules.keys().cloned().collect();
    for (own, used) in &mut modules {
        let module = |path: &Vec<String>| {
            (1..=path.len()).rev().map(|length| path[..length].to_vec()).find(|path| known.contains(path))
        };
        *used = used.iter().filter_map(module).filter(|path| path != own).collect();
    }
    assert!(modules.values().map(BTreeSet::len).sum::<usize>() > least, "lines are read");
    while !modules.is_empty() {
        let left: BTreeSet<Vec<String>> = modules.keys().cloned().collect();
        modules.retain(|_, used| used.iter().any(|path| left.contains(path)));
        assert!(modules.len() < left.len(), "a circle among {left:?}");
    }
}
