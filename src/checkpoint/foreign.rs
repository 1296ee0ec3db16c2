//! Files of other formats, which are recognised but not read.

use std::path::Path;

use super::CheckpointError;

const PICKLE: &str = "with weights = torch.load(\"FILE\", weights_only=True), run \
                      safetensors.torch.save_file({name: w.clone().contiguous() for name, w in weights.items()}, \"model.safetensors\")";
const GGUF: &str =
    "convert it with AutoModelForCausalLM.from_pretrained(FOLDER, gguf_file=FILE).save_pretrained(TARGET)";
const POINTER: &str = "fetch the file with git lfs pull";
const OTHER: &str = "load the model with its library and save it with save_pretrained(TARGET, safe_serialization=True)";

/// A format of checkpoints that is recognised but not read.
struct Format {
    /// The name in error messages.
    name: &'static str,
    /// Bytes with which its files begin.
    beginnings: &'static [&'static [u8]],
    /// Extensions of its files.
    extensions: &'static [&'static str],
    /// The way to get a file that can be read.
    advice: &'static str,
}

const FORMATS: [Format; 4] = [
    Format { name: "a GGUF file", beginnings: &[b"GGUF"], extensions: &["gguf"], advice: GGUF },
    Format {
        name: "a pickle of PyTorch",
        beginnings: &[b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"],
        extensions: &["bin", "pth", "pt", "ckpt"],
        advice: PICKLE,
    },
    Format {
        name: "a pointer of Git LFS in place of the file",
        beginnings: &[b"version "],
        extensions: &[],
        advice: POINTER,
    },
    Format { name: "an HDF5 file", beginnings: &[b"\x89HDF"], extensions: &["h5"], advice: OTHER },
];

/// Returns the error for a file that begins like a file of another format. The header of a safetensors file is a JSON
/// object after eight bytes.
pub(super) fn of_file(path: &Path, beginning: &[u8]) -> Option<CheckpointError> {
    if beginning.get(8) == Some(&b'{') {
        return None;
    }
    let begins = |format: &&Format| format.beginnings.iter().any(|bytes| beginning.starts_with(bytes));
    FORMATS.iter().find(begins).map(|format| error(path, format, format.name.to_owned()))
}

/// Returns the error for a folder without safetensors files, if it holds a checkpoint of another format.
pub(super) fn in_folder(folder: &Path, files: &[String]) -> Option<CheckpointError> {
    let has = |name: &str, format: &Format| {
        // Optimisers and arguments of a training run are not checkpoints.
        let others = ["optimizer", "scheduler", "training_args", "rng_state"];
        let (_, extension) = name.rsplit_once('.').unwrap_or_default();
        format.extensions.contains(&extension) && !others.iter().any(|other| name.starts_with(other))
    };
    FORMATS.iter().find_map(|format| {
        let name = files.iter().find(|name| has(name, format))?;
        Some(error(folder, format, format!("{} ({name})", format.name)))
    })
}

fn error(path: &Path, format: &Format, got: String) -> CheckpointError {
    CheckpointError::Foreign { path: path.to_owned(), got, advice: format.advice }
}
