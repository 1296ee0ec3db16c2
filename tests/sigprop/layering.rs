//! Rules of the layout: which parts may use which, and one name per component.

mod circles;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The names of the Rust files in a folder, without `mod`.
pub(crate) fn names(folder: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(root().join(folder)).expect("the folder exists");
    entries
        .map(|entry| entry.expect("the folder is readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| path.file_stem().expect("a file has a name").to_string_lossy().into_owned())
        .filter(|name| name != "mod")
        .collect()
}

#[test]
fn the_engine_cannot_see_the_theory() {
    let manifest = std::fs::read_to_string(root().join("validate/Cargo.toml")).expect("the manifest is readable");
    let manifest: toml::Table = manifest.parse().expect("the manifest is TOML");
    for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
        let Some(dependencies) = manifest.get(section).and_then(toml::Value::as_table) else { continue };
        for (name, value) in dependencies {
            let package = value.get("package").and_then(toml::Value::as_str).unwrap_or(name);
            assert_ne!(package, "sigprop", "validate/ must not depend on what it checks");
        }
    }
}

#[test]
fn a_component_has_one_name() {
    let components = names("validate/src/components");
    assert_eq!(components, names("tests/sigprop/twins"), "every sampled component has a twin test");
    for name in components {
        let is_file = |file: String| root().join("src/mean_field").join(file).is_file();
        assert!(is_file(format!("{name}.rs")) || is_file(format!("{name}/mod.rs")), "{name} has no map of moments");
    }
}

/// The Rust files below a folder with their texts, without the paths in `left_out`.
pub(crate) fn sources(folder: &str, left_out: &[&str]) -> Vec<(PathBuf, String)> {
    let (mut folders, mut sources) = (vec![root().join(folder)], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the folder exists") {
            let path = entry.expect("the folder is readable").path();
            if left_out.iter().any(|left_out| path.ends_with(left_out)) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("sources are text");
                sources.push((path, text));
            }
        }
    }
    sources
}

/// The theory of infinite width depends only on itself and on mathematics.
#[test]
fn the_mean_field_cannot_see_finite_width() {
    for (path, text) in sources("src/mean_field", &[]) {
        let uses = text.lines().filter_map(|line| line.trim_start().strip_prefix("use crate::"));
        for used in uses {
            let known = ["mean_field", "quadrature", "logarithms"].iter().any(|known| used.starts_with(known));
            assert!(known, "{} uses {used}", path.display());
        }
    }
}

/// Only the command combines predictions with measurements.
#[test]
fn the_library_cannot_see_the_engine() {
    for (path, text) in sources("src", &["src/cli", "src/main.rs"]) {
        assert!(!text.contains("sigprop_validate"), "{} uses the engine", path.display());
    }
}
