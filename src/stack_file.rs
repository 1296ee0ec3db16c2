//! Stacks as JSON files: the complete input of a run, for any program.

use std::{
    collections::BTreeMap,
    fmt, fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sigprop_stack::{GradientSeed, Head, LearningRates, MapRole, RowGroup, Stack, StackError, Stream, check};

use crate::report::SCHEMA_VERSION;

/// The reason why a file is not a stack.
#[derive(Debug, thiserror::Error)]
pub enum StackFileError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file is empty.
    #[error("{}: expected a stack as JSON, got an empty file", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file is not text.
    #[error("{}: expected UTF-8 text, got a byte that is none at offset {offset}", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
        /// The offset in bytes at which valid text ends.
        offset: usize,
    },
    /// The file is not JSON, or not the JSON of a stack.
    #[error("{}:{line}:{column}: {message}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// Description of the error.
        message: String,
    },
    /// The file has a version that this release does not read.
    #[error("{}: schema_version: expected {SCHEMA_VERSION}, got {got}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The version of the file.
        got: u32,
    },
    /// The file is JSON of a stack, but this stack cannot be traversed.
    #[error("{}: the stack cannot be walked", path.display())]
    Stack {
        /// The file.
        path: PathBuf,
        /// The error in the stack.
        source: StackError,
    },
}

/// Reads and checks a stack; `-` is the standard input.
pub fn read_stack(path: &Path) -> Result<Stack, StackFileError> {
    let here = || path.to_owned();
    let bytes = read(path).map_err(|source| StackFileError::Io { path: here(), source })?;
    let text = str::from_utf8(&bytes)
        .map_err(|error| StackFileError::NotText { path: here(), offset: error.valid_up_to() })?;
    if text.trim().is_empty() {
        return Err(StackFileError::Empty { path: here() });
    }
    let file: StackFile = serde_json::from_str(text).map_err(|error| StackFileError::Json {
        path: here(),
        line: error.line(),
        column: error.column(),
        message: without_position(&error.to_string()),
    })?;
    if file.schema_version != SCHEMA_VERSION {
        return Err(StackFileError::Version { path: here(), got: file.schema_version });
    }
    let StackFile { schema_version: _, name, streams, gradient, head, learning_rates, row_groups, roles } = file;
    let stack = Stack { name, streams, gradient, head, learning_rates, row_groups, roles };
    check(&stack).map_err(|source| StackFileError::Stack { path: here(), source })?;
    Ok(stack)
}

/// Writes a stack as JSON.
pub fn stack_json(stack: &Stack, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &StackDocument::of(stack))?;
    writeln!(out)
}

/// A stack as it is read from a file. A file without a version has the first version.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StackFile {
    #[serde(default = "first_version")]
    schema_version: u32,
    name: String,
    streams: Vec<Stream>,
    gradient: GradientSeed,
    head: Option<Head>,
    #[serde(default)]
    learning_rates: BTreeMap<String, LearningRates>,
    #[serde(default)]
    row_groups: BTreeMap<String, Vec<RowGroup>>,
    #[serde(default)]
    roles: BTreeMap<String, MapRole>,
}

fn first_version() -> u32 {
    1
}

/// A stack as it is written to a file.
#[derive(Serialize)]
pub(crate) struct StackDocument<'a> {
    schema_version: u32,
    #[serde(flatten)]
    stack: &'a Stack,
}

impl<'a> StackDocument<'a> {
    pub(crate) fn of(stack: &'a Stack) -> Self {
        Self { schema_version: SCHEMA_VERSION, stack }
    }
}

/// A stable fingerprint of a stack: FNV-1a (64 bits) of its compact JSON, in hexadecimal.
///
/// # Panics
///
/// Never: a hash takes every byte, and keys of its maps are text.
pub fn stack_hash(stack: &Stack) -> String {
    let mut hash = Fnv1a::default();
    serde_json::to_writer(&mut hash, stack).expect("a hash takes every byte, and keys of its maps are text");
    hash.to_string()
}

/// A stable fingerprint of any other value, from its `{:?}` form: all fields, floats with all their digits.
#[cfg(feature = "cli")]
pub(crate) fn fingerprint(value: &impl fmt::Debug) -> String {
    let mut hash = Fnv1a::default();
    write!(hash, "{value:?}").expect("a hash takes every byte");
    hash.to_string()
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    if path == Path::new("-") {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes)?;
        Ok(bytes)
    } else {
        fs::read(path)
    }
}

/// The message of `error` without its ending " at line 1 column 2", because [`StackFileError`] prints the position
/// before it.
fn without_position(message: &str) -> String {
    message.rsplit_once(" at line ").map_or(message, |(message, _)| message).to_owned()
}

struct Fnv1a(u64);

impl Default for Fnv1a {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

/// Writes the hash in hexadecimal.
impl fmt::Display for Fnv1a {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:016x}", self.0)
    }
}

impl Write for Fnv1a {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;
    use sigprop_stack::{Activation, Component, Gaussian, GradientSeed, Head, Init, Node, Source, Stream, Tensor};

    fn stack() -> Stack {
        let stream = Stream {
            seq_len: 4,
            name: "main".to_owned(),
            source: Source::Gaussian(Gaussian { width: 8, mean: 0.0, variance: 1.0, correlation: 0.1 }),
            body: vec![Node::apply("relu", Component::Activation(Activation::Relu))],
        };
        Stack::new("one relu", vec![stream], GradientSeed { stream: 0, correlation: 0.0 })
    }

    fn message(contents: &[u8]) -> String {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("stack.json");
        fs::write(&path, contents).expect("writable");
        let error = read_stack(&path).expect_err("no stack");
        let cause = error.source().map_or(String::new(), |cause| format!(": {cause}"));
        let message = format!("{error}{cause}");
        message.replace(&folder.path().display().to_string(), "")
    }

    #[test]
    fn a_stack_survives_its_file() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("stack.json");
        let mut file = fs::File::create(&path).expect("writable");
        stack_json(&stack(), &mut file).expect("writable");
        assert_eq!(read_stack(&path).expect("a stack"), stack());
    }

    #[test]
    fn a_head_survives_its_file_and_must_fit() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("stack.json");
        let weight = Tensor { name: "head.weight".to_owned(), init: Init::Normal { std: 0.1 } };
        let body = vec![Node::apply("bend", Component::Activation(Activation::Relu))];
        let head = |width| Head { body: body.clone(), softcap: Some(30.0), ..Head::new(weight.clone(), [50, width]) };
        let written = |width| {
            let stack = Stack { head: Some(head(width)), ..stack() };
            stack_json(&stack, &mut fs::File::create(&path).expect("writable")).expect("writable");
            read_stack(&path)
        };
        assert_eq!(written(8).expect("a stack").head, Some(head(8)));
        let cause = written(9).expect_err("a head of another width").source().map(ToString::to_string);
        assert_eq!(cause.as_deref(), Some("head: expected width 9, got 8"));
    }

    #[test]
    fn errors_say_where() {
        assert_eq!(message(b"{\n  \"name\": oops }"), "/stack.json:2:11: expected value");
        assert!(message(b"{\"nmae\": \"x\"}").starts_with("/stack.json:1:7: unknown field `nmae`, expected one of"));
        assert_eq!(message(b" \n"), "/stack.json: expected a stack as JSON, got an empty file");
        assert_eq!(message(b"{\xff"), "/stack.json: expected UTF-8 text, got a byte that is none at offset 1");
        let mut unchecked = stack();
        unchecked.streams[0].seq_len = 0;
        let json = serde_json::to_vec(&unchecked).expect("JSON");
        assert_eq!(
            message(&json),
            "/stack.json: the stack cannot be walked: stack: seq_len must be between 1 and 2147483648, got 0"
        );
    }

    /// Published test vectors of FNV-1a, 64 bits: the empty string, "a", "foobar".
    #[test]
    fn fnv_1a_test_vectors() {
        for (text, expected) in
            [("", 0xcbf2_9ce4_8422_2325), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)]
        {
            let mut hash = Fnv1a(0xcbf2_9ce4_8422_2325);
            hash.write_all(text.as_bytes()).expect("a hash takes every byte");
            assert_eq!(hash.0, expected, "{text}");
        }
    }

    #[test]
    fn versions_are_known() {
        let mut text = Vec::new();
        stack_json(&stack(), &mut text).expect("a vector takes everything");
        let other = String::from_utf8(text).expect("text").replace("\"schema_version\": 1", "\"schema_version\": 2");
        assert_eq!(message(other.as_bytes()), "/stack.json: schema_version: expected 1, got 2");
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config { failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(1), ..proptest::test_runner::Config::default() })]

        /// A file with one changed byte, or one that ends early, gives a stack or an error, never a panic.
        #[test]
        fn no_damaged_file_panics(place: proptest::sample::Index, byte: u8, is_cut: bool) {
            let mut text = Vec::new();
            stack_json(&stack(), &mut text).expect("a vector takes everything");
            let place = place.index(text.len());
            text[place] = byte;
            if is_cut {
                text.truncate(place);
            }
            let file = tempfile::NamedTempFile::new().expect("a temporary file");
            fs::write(file.path(), text).expect("writable");
            let _ = read_stack(file.path());
        }
    }

    #[test]
    fn the_hash_sees_every_number() {
        let mut changed = stack();
        changed.gradient.correlation = 1e-12;
        assert_ne!(stack_hash(&stack()), stack_hash(&changed));
        assert_eq!(stack_hash(&stack()).len(), 16);
    }
}
