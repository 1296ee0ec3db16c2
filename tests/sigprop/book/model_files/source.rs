//! Reads fields, variants and the comments on them from the code.

use std::{fs, path::Path};

use super::ROOT;

/// Keys whose values are words, with the enum of these words.
pub(super) const WORDS: &[(&str, &str)] = &[
    ("kind", "Kind"),
    ("activation", "Activation"),
    ("mixers", "Mixer"),
    ("recurrence.form", "RecurrentForm"),
    ("norm", "NormChoice"),
    ("norm_placement", "NormPlacement"),
    ("positions", "Positions"),
    ("embedding_projection", "EmbeddingProjection"),
    ("drop_path_schedule", "DropPathSchedule"),
    ("qk_norm", "QkNorm"),
    ("parallel", "Parallel"),
    ("head", "Head"),
    ("experts.weighting", "Weighting"),
    ("experts.weights_multiply", "Multiplied"),
];

/// A field of a struct.
pub(super) struct Field {
    pub(super) name: String,
    pub(super) type_name: String,
    pub(super) comment: String,
}

/// The text of the files that define an architecture.
pub(super) struct Source {
    text: String,
}

impl Source {
    pub(super) fn read() -> Self {
        let files = [
            "src/architecture.rs",
            "src/architecture/parts.rs",
            "src/architecture/recurrence.rs",
            "src/architecture/words.rs",
            "stack/src/components/mixture.rs",
        ];
        let read = |file| fs::read_to_string(Path::new(ROOT).join(file)).expect("sources are text");
        Self { text: files.map(read).concat() }
    }

    /// The lines between the braces of the item whose first line begins with `start`.
    fn item(&self, start: &str) -> impl Iterator<Item = &str> {
        let mut lines = self.text.lines();
        let first = lines
            .by_ref()
            .find(|line| line.strip_prefix(start).is_some_and(|rest| rest.starts_with(' ') && rest.ends_with('{')));
        let first = first.unwrap_or_else(|| panic!("{start} is no item of the architecture"));
        let end = format!("{}}}", &first[..first.len() - first.trim_start().len()]);
        lines.take_while(move |line| !line.starts_with(&end))
    }

    /// The fields of the struct or variant whose first line begins with `start`.
    pub(super) fn structure(&self, start: &str) -> Vec<Field> {
        let field = |line: &str, comment: String| {
            let (name, type_name) = line.trim_start_matches("pub ").strip_suffix(',')?.split_once(": ")?;
            Some(Field { name: name.to_owned(), type_name: type_name.to_owned(), comment })
        };
        commented(self.item(start), field)
    }

    /// The words of a key, with their meanings.
    pub(super) fn words(&self, key: &str) -> Vec<(String, String)> {
        let name = WORDS.iter().find(|(of, _)| *of == key).map(|(_, name)| *name);
        let name = name.unwrap_or_else(|| panic!("{key} has no words"));
        let (start, in_macro) = match name {
            "Weighting" | "Multiplied" => (format!("pub enum {name}"), false),
            _ => (format!("    {name}"), true),
        };
        commented(self.item(&start), |line, comment| {
            let variant = line.strip_suffix(',')?;
            let word = if in_macro {
                variant.split_once(" = ")?.1.trim_matches('"').to_owned()
            } else {
                variant.to_lowercase()
            };
            Some((word, comment))
        })
    }
}

/// Collects the results of `read` on each line and the comment above it.
fn commented<'a, T>(lines: impl Iterator<Item = &'a str>, read: impl Fn(&str, String) -> Option<T>) -> Vec<T> {
    let (mut found, mut comment) = (Vec::new(), Vec::new());
    for line in lines.map(str::trim) {
        match line.strip_prefix("/// ") {
            Some(text) => comment.push(text),
            None if line.starts_with("#[") => {}
            None => found.extend(read(line, std::mem::take(&mut comment).join(" "))),
        }
    }
    found
}
