//! Helpers of the fuzz targets. Each target hands arbitrary bytes to one parser, which must return a value or an error.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::{env, fs, process};

/// A temporary folder of this process. It is not deleted at the end.
pub fn folder() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = env::temp_dir().join(format!("sigprop-fuzz-{}", process::id()));
        fs::create_dir_all(&folder).expect("the folder for temporary files can be written");
        folder
    });
    &FOLDER
}

/// Writes a file with these bytes and returns its path, for parsers that read files.
pub fn file(name: &str, data: &[u8]) -> PathBuf {
    let path = folder().join(name);
    fs::write(&path, data).expect("the folder for temporary files can be written");
    path
}
