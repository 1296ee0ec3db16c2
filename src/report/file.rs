//! Files that are written completely or not at all.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

/// Start and end of the names of temporary files.
const PREFIX: &str = ".sigprop-";
const SUFFIX: &str = ".tmp";

/// Removes the temporary files that [`write_file`] left in `folder` when it was killed. No other process may be writing
/// there.
pub fn remove_leftovers(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if entry.file_type()?.is_file() && name.starts_with(PREFIX) && name.ends_with(SUFFIX) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Writes a file as a whole. A temporary file next to `path` is written first and replaces the file when it is
/// complete. If `path` is not a regular file (a device, a pipe), it is written to directly.
pub fn write_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let existing = fs::metadata(path).ok();
    if existing.as_ref().is_some_and(|found| !found.is_file()) {
        let mut out = BufWriter::new(File::options().write(true).open(path)?);
        write(&mut out)?;
        return out.flush();
    }
    // If the path is a link, its target is replaced and the link stays.
    let path = if existing.is_some() { fs::canonicalize(path)? } else { path.to_owned() };
    let folder =
        path.parent().filter(|folder| !folder.as_os_str().is_empty()).map_or(PathBuf::from("."), Path::to_owned);
    let mut temporary = builder().tempfile_in(folder).map_err(|error| without_path(&error))?;
    let mut out = BufWriter::new(temporary.as_file_mut());
    write(&mut out)?;
    out.flush()?;
    drop(out);
    if let Some(existing) = existing {
        temporary.as_file().set_permissions(existing.permissions())?;
    }
    temporary.persist(path)?;
    Ok(())
}

/// Returns the error of the system, without the name of the temporary file, which means nothing to the user.
fn without_path(error: &io::Error) -> io::Error {
    let text = error.to_string();
    io::Error::new(error.kind(), text.split(" at path ").next().unwrap_or_default())
}

fn builder() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX).suffix(SUFFIX);
    // These are the permissions of an ordinary new file; temporary ones are private otherwise.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_whole_or_not_there() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("report.csv");
        let failed = write_file(&path, |out| {
            out.write_all(b"half")?;
            Err(io::Error::other("stopped"))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);

        for text in ["first", "second"] {
            write_file(&path, |out| out.write_all(text.as_bytes())).expect("writable");
            assert_eq!(fs::read_to_string(&path).expect("readable"), text);
        }
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }

    #[test]
    fn what_a_kill_left_is_removed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (_, left) = builder().tempfile_in(folder.path()).expect("writable").keep().expect("kept");
        let others = ["report.csv", ".sigprop-notes"].map(|name| folder.path().join(name));
        for path in &others {
            write_file(path, |out| out.write_all(b"whole")).expect("writable");
        }
        remove_leftovers(folder.path()).expect("a folder");
        assert!(!left.exists() && others.iter().all(|path| path.exists()));
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (path, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&path, "old").expect("writable");
        std::os::unix::fs::symlink(&path, &link).expect("linkable");
        write_file(&link, |out| out.write_all(b"new")).expect("writable");
        assert_eq!(fs::read_to_string(&path).expect("readable"), "new");
    }
}
