//! What fuzz targets share. Each hands bytes of any kind to one parser, which must answer with a value or an error.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::{env, fs, process};

/// A folder of this process, left behind when it ends.
pub fn folder() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = env::temp_dir().join(format!("sigprop-fuzz-{}", process::id()));
        fs::create_dir_all(&folder).expect("the folder for temporary files can be written");
        folder
    });
    &FOLDER
}

/// A file with these bytes, for parsers that read files.
pub fn file(name: &str, data: &[u8]) -> PathBuf {
    let path = folder().join(name);
    fs::write(&path, data).expect("the folder for temporary files can be written");
    path
}
