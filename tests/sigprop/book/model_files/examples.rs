//! Reads, resolves and assembles the examples of the page.

use serde_json::{Map, Value};
use sigprop::architecture::{Architecture, Format};
use sigprop::assemble::{Input, Run, assemble};
use sigprop::schemes::Scheme;

use super::{KEYS, PATH, Page, cells, key_of};

/// Keys of a small network that completes an example.
pub(super) const AROUND: [(&str, u64); 4] = [("n_layers", 2), ("d_model", 64), ("seq_len", 16), ("vocab_size", 100)];

/// The keys of the page with their examples.
pub(super) fn examples(page: &str) -> Vec<(&str, String)> {
    let (mut found, mut in_keys) = (Vec::new(), false);
    for line in page.lines() {
        in_keys = line == KEYS || in_keys && line.starts_with('|');
        let Some(key) = key_of(line).filter(|_| in_keys) else { continue };
        let spans = cells(line)[4].split('`').skip(1).step_by(2);
        found.push((key, spans.flat_map(|span| [span, "\n"]).collect()));
    }
    found
}

pub(super) fn table(example: &str) -> Map<String, Value> {
    toml::from_str(example).unwrap_or_else(|error| panic!("{PATH}: {example}{error}"))
}

/// The example of a nested table as a file, and the path of the table in it.
fn parent_of(page: &str, parent: &str) -> (Map<String, Value>, Vec<String>) {
    let path: Vec<String> = parent.split('.').map(str::to_owned).collect();
    // Each of the two kinds of stem has one example, that of the first key of its table.
    let holder = if path[0] == "stem" { format!("{parent}.") } else { parent.to_owned() };
    let example =
        examples(page).into_iter().find(|(key, _)| *key == holder || path[0] == "stem" && key.starts_with(&holder));
    let (_, example) = example.unwrap_or_else(|| panic!("{PATH} has no example of {parent}"));
    (table(&example), path)
}

fn inner<'a>(file: &'a mut Map<String, Value>, path: &[String]) -> &'a mut Map<String, Value> {
    let (first, rest) = path.split_first().expect("a path");
    let mut found = file.get_mut(first).expect("the example has the table");
    for part in rest {
        found = found.get_mut(part).expect("the example has the table");
    }
    found.as_object_mut().expect("a table")
}

/// The value of a key of a nested table if a file omits it; `None` if the key is required.
pub(super) fn nested_default(page: &str, parent: &str, name: &str) -> Option<Value> {
    let (mut file, path) = parent_of(page, parent);
    inner(&mut file, &path).remove(name);
    let read = Architecture::from_file_text(&Value::Object(file).to_string(), Format::Json).ok()?;
    let Value::Object(mut read) = serde_json::to_value(read).expect("plain data") else { unreachable!("a struct") };
    Some(inner(&mut read, &path)[name].clone())
}

/// The example as a file. The example of a key of a nested table is added to the example of that table.
fn file(page: &str, key: &str, example: &str) -> Map<String, Value> {
    let own = table(example);
    let mut file = match key.rsplit_once('.') {
        Some((parent, name)) if own.contains_key(name) => {
            let (mut file, path) = parent_of(page, parent);
            inner(&mut file, &path).extend(own);
            file
        }
        Some(_) | None => own,
    };
    for (name, value) in AROUND {
        file.entry(name).or_insert(value.into());
    }
    file
}

/// The value of a key in a file; `*` is the first key of a table.
fn written<'a>(file: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    let (first, rest) = key.split_once('.').unwrap_or((key, ""));
    rest.split('.').filter(|part| !part.is_empty()).try_fold(file.get(first)?, |value, part| match part {
        "*" => value.as_object()?.values().next(),
        _ => value.get(part),
    })
}

#[test]
fn every_example_is_a_network() {
    let page = Page::read(PATH.into());
    let default = serde_json::to_value(Architecture::default()).expect("plain data");
    let all = examples(&page.text);
    assert!(all.len() > 80, "{} examples are too few", all.len());
    for (key, example) in all {
        let file = file(&page.text, key, &example);
        let value = written(&file, key).unwrap_or_else(|| panic!("{PATH}: the example of {key} does not set it"));
        assert!(default.get(key) != Some(value), "{PATH}: the example of {key} is its default");
        let text = Value::Object(file.clone()).to_string();
        let network =
            Architecture::from_file_text(&text, Format::Json).map_err(|error| error.to_string()).and_then(|read| {
                let scheme =
                    Scheme::parse(read.scheme.as_deref().unwrap_or("xavier")).map_err(|error| error.to_string())?;
                assemble(&read, &scheme, &Input::default(), &Run::default()).map_err(|error| error.to_string())
            });
        if let Err(error) = network {
            panic!("{PATH}: the example of {key} is no network: {error}\n{text}");
        }
    }
}
