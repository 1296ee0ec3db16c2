//! Journals: the results of a run, written to disk one by one, so that a run that was stopped at any moment can go on.
//! A record holds a replicate of one network, a case of a suite, a cell of a phase map or a scheme of a comparison.
//!
//! ```text
//! sigprop-journal 3\n                             name and version of the format
//! <field> <value>\n ...                           what decides the result: the same for the run that goes on
//! instructions <name>\n                           of the processor that began it, which may round otherwise
//! \n
//! <length: u32> <CRC-32 of the rest: u32> <rest>  one per record, in the order in which they were done: its index
//!                                                 and itself; numbers little-endian, the rest in the format of postcard
//! ```
//!
//! A record is appended by a single write. An incomplete record and everything after it are cut off when the file is
//! opened again, and sampled again. The file is locked as long as it is open, if its file system has locks.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{File, TryLockError},
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write},
    iter,
    path::{Path, PathBuf},
};

use serde::{Serialize, de::DeserializeOwned};

use crate::{shard::Shard, vectorised::instruction_set};

/// First line of every journal.
const FORMAT: &str = "sigprop-journal 3";

/// Bytes of the length and the checksum in front of a record.
const FRAME: usize = 8;

/// The settings that determine the result of a run, and nothing else: fields and their values, without line breaks.
pub type Identity = Vec<(&'static str, String)>;

/// An open journal of records with indices.
#[derive(Debug)]
pub struct Journal<Record> {
    path: PathBuf,
    file: File,
    is_locked: bool,
    held: BTreeMap<usize, Record>,
    /// Names of the instruction sets that records were sampled with.
    instructions: BTreeSet<String>,
    /// Other journals of the same run, whose records this one has taken over.
    gathered: Vec<(PathBuf, File)>,
}

/// The reason why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file cannot be read or written.
    #[error("cannot write {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Another process has the file open.
    #[error("{}: another run is writing into this folder; wait for it or choose another folder", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The file exists already, but a new journal was asked for.
    #[error("{}: a run that did not end has left this; go on with --resume, or remove it", path.display())]
    Unfinished {
        /// The file.
        path: PathBuf,
    },
    /// The file belongs to another run.
    #[error("{}: a run with another {field} has left this: expected {expected}, got {got}", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// Name of the field that differs.
        field: String,
        /// The value of the field in this run.
        expected: String,
        /// The value of the field in the file.
        got: String,
    },
}

impl<Record: Serialize + DeserializeOwned> Journal<Record> {
    /// Creates a journal; a file that is not empty is an error.
    pub fn create(path: &Path, run: &Identity) -> Result<Self, JournalError> {
        let io = |source| JournalError::Io { path: path.to_owned(), source };
        let (file, is_locked) = open(path)?;
        if file.metadata().map_err(io)?.len() > 0 {
            return Err(JournalError::Unfinished { path: path.to_owned() });
        }
        Self::begin(path, file, is_locked, run).map_err(io)
    }

    /// Writes a journal with nothing but its header.
    fn begin(path: &Path, mut file: File, is_locked: bool, run: &Identity) -> io::Result<Self> {
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(format!("{}instructions {}\n\n", header(run), instruction_set()).as_bytes())?;
        let instructions = BTreeSet::from([instruction_set().to_owned()]);
        let (path, held, gathered) = (path.to_owned(), BTreeMap::new(), Vec::new());
        Ok(Self { path, file, is_locked, held, instructions, gathered })
    }

    /// Opens the journal that the same run left, with the records it holds; creates a new one if there is none.
    pub fn resume(path: &Path, run: &Identity) -> Result<Self, JournalError> {
        let io = |source| JournalError::Io { path: path.to_owned(), source };
        let (mut file, is_locked) = open(path)?;
        let header = header(run);
        let mut reader = BufReader::new(&file);
        if is_cut_off(&mut reader, &header).map_err(io)? {
            return Self::begin(path, file, is_locked, run).map_err(io);
        }
        for expected in header.lines() {
            let mut got = Vec::new();
            reader.read_until(b'\n', &mut got).map_err(io)?;
            let got = String::from_utf8_lossy(&got);
            let got = got.trim_end_matches('\n');
            if got != expected {
                let (field, expected) = expected.split_once(' ').unwrap_or((expected, ""));
                let got = got.strip_prefix(field).map_or(got, str::trim_start);
                let [field, expected, got] = [field, expected, got].map(str::to_owned);
                return Err(JournalError::Other { path: path.to_owned(), field, expected, got });
            }
        }
        let mut last = String::new();
        while !last.ends_with("\n\n") {
            if reader.read_line(&mut last).map_err(io)? == 0 {
                // Cut off within its last lines.
                return Self::begin(path, file, is_locked, run).map_err(io);
            }
        }
        let (held, end) = read_records(reader, (header.len() + last.len()) as u64).map_err(io)?;
        file.set_len(end).map_err(io)?;
        file.seek(SeekFrom::Start(end)).map_err(io)?;
        let began_with = last.trim().trim_start_matches("instructions ").to_owned();
        let instructions = BTreeSet::from([began_with, instruction_set().to_owned()]);
        Ok(Self { path: path.to_owned(), file, is_locked, held, instructions, gathered: Vec::new() })
    }

    /// Takes over the records of another journal of the same run, which is removed together with this one.
    pub fn gather(&mut self, path: &Path, run: &Identity) -> Result<(), JournalError> {
        let Self { path, file, held, instructions, is_locked, gathered } = Self::resume(path, run)?;
        self.held.extend(held);
        self.instructions.extend(instructions);
        self.is_locked &= is_locked;
        self.gathered.extend(gathered.into_iter().chain([(path, file)]));
        Ok(())
    }

    /// Returns true if the file is locked against other processes; some file systems have no locks.
    pub fn is_locked(&self) -> bool {
        self.is_locked
    }

    /// Returns the names of the instruction sets that the records were sampled with. Sums from different instruction
    /// sets may differ in their last digits.
    pub fn instructions(&self) -> &BTreeSet<String> {
        &self.instructions
    }

    /// Returns true if the journal holds record `index`.
    pub fn holds(&self, index: usize) -> bool {
        self.held.contains_key(&index)
    }

    /// Returns the indices below `count` of the missing records of a shard, and the number of its records that the
    /// journal holds.
    pub fn lacking(&self, shard: Shard, count: usize) -> (Vec<usize>, usize) {
        let records = (0..count).filter(|&index| shard.has(index));
        let (held, lacking): (Vec<usize>, Vec<usize>) = records.partition(|&index| self.holds(index));
        (lacking, held.len())
    }

    /// Returns the number of records that the journal holds.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Returns true if the journal holds no record.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Removes the file and the files of gathered journals, because the run has ended.
    pub fn remove(self) -> Result<(), JournalError> {
        for (path, file) in self.gathered.into_iter().chain([(self.path, self.file)]) {
            // Some systems do not remove an open file.
            drop(file);
            std::fs::remove_file(&path).map_err(|source| JournalError::Io { path, source })?;
        }
        Ok(())
    }

    /// Returns a held record and removes it from memory; `None` if it is not held.
    pub fn take(&mut self, index: usize) -> Option<Record> {
        self.held.remove(&index)
    }

    /// Appends a record to the file.
    pub fn append(&mut self, index: usize, record: &Record) -> Result<(), JournalError> {
        let mut bytes = vec![0; FRAME];
        let io = |source| JournalError::Io { path: self.path.clone(), source };
        postcard::to_io(&(index, record), &mut bytes).map_err(|error| io(io::Error::other(error)))?;
        let (frame, rest) = bytes.split_at_mut(FRAME);
        let length = u32::try_from(rest.len()).map_err(|error| io(io::Error::other(error)))?;
        frame[..4].copy_from_slice(&length.to_le_bytes());
        frame[4..].copy_from_slice(&crc32fast::hash(rest).to_le_bytes());
        self.file.write_all(&bytes).map_err(io)
    }
}

/// Opens a file, creating it if necessary, and locks it. The flag is false if its file system has no locks.
fn open(path: &Path) -> Result<(File, bool), JournalError> {
    let io = |source| JournalError::Io { path: path.to_owned(), source };
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(io)?;
    match file.try_lock() {
        Ok(()) => Ok((file, true)),
        Err(TryLockError::WouldBlock) => Err(JournalError::Locked { path: path.to_owned() }),
        Err(TryLockError::Error(source)) if has_no_locks(&source) => Ok((file, false)),
        Err(TryLockError::Error(source)) => Err(io(source)),
    }
}

/// Returns true if the error means that there are no locks: ENOSYS, EOPNOTSUPP, or ENOLCK of network file systems.
fn has_no_locks(error: &io::Error) -> bool {
    const ENOLCK: i32 = 37;
    error.kind() == io::ErrorKind::Unsupported || (cfg!(target_os = "linux") && error.raw_os_error() == Some(ENOLCK))
}

/// The first lines of every journal of a run, the same on all machines.
fn header(run: &Identity) -> String {
    let version = ("version", env!("CARGO_PKG_VERSION").to_owned());
    let fields = iter::once(&version).chain(run).map(|(field, value)| format!("{field} {value}\n"));
    format!("{FORMAT}\n{}", fields.collect::<String>())
}

/// Returns true if the file ends inside its header. The reader is at the start of the file afterwards.
fn is_cut_off(reader: &mut BufReader<&File>, header: &str) -> io::Result<bool> {
    let mut start = Vec::new();
    reader.take(header.len() as u64).read_to_end(&mut start)?;
    reader.rewind()?;
    Ok(start.len() < header.len() && header.as_bytes().starts_with(&start))
}

/// Returns the complete records, and the position where the last of them ends.
fn read_records<Record: DeserializeOwned>(
    mut reader: BufReader<&File>,
    start: u64,
) -> io::Result<(BTreeMap<usize, Record>, u64)> {
    let size = reader.get_ref().metadata()?.len();
    let (mut held, mut end) = (BTreeMap::new(), start);
    let (mut frame, mut rest) = ([0; FRAME], Vec::new());
    while end + FRAME as u64 <= size {
        reader.read_exact(&mut frame)?;
        let [a, b, c, d, checksum @ ..] = frame;
        let length = u32::from_le_bytes([a, b, c, d]);
        let next = end + FRAME as u64 + u64::from(length);
        if next > size {
            break;
        }
        rest.resize(length as usize, 0);
        reader.read_exact(&mut rest)?;
        let is_whole = crc32fast::hash(&rest) == u32::from_le_bytes(checksum);
        let Some((index, record)) = is_whole.then(|| postcard::from_bytes(&rest).ok()).flatten() else { break };
        held.insert(index, record);
        end = next;
    }
    Ok((held, end))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{Replicate, Settings, statistics::Moments};

    /// A replicate whose numbers depend on `index`, with one tensor without a gradient.
    fn replicate(index: usize) -> Replicate {
        let moments = |x: f64| Moments::of_squares(3.0, x.exp());
        Replicate {
            signals: (0..index).map(|i| moments(i as f64)).collect(),
            gradients: vec![moments(0.1); 2],
            weights: vec![None, Some(moments(-(index as f64)))],
            ..Replicate::default()
        }
    }

    /// Opens the journal of a run that goes on.
    fn resume(path: &Path, run: &Identity) -> Result<Journal<Replicate>, JournalError> {
        Journal::resume(path, run)
    }

    fn held(journal: &mut Journal<Replicate>) -> Vec<(usize, Replicate)> {
        (0..10).filter_map(|index| Some((index, journal.take(index)?))).collect()
    }

    #[test]
    fn a_file_cut_off_anywhere_holds_the_whole_records_and_goes_on() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("journal");
        let run = Settings::default().identity("stack");
        let mut journal = Journal::create(&path, &run).expect("new");
        let mut ends = vec![fs::metadata(&path).expect("there").len() as usize];
        for index in [1, 0, 2] {
            journal.append(index, &replicate(index)).expect("writable");
            ends.push(fs::metadata(&path).expect("there").len() as usize);
        }
        drop(journal);
        let whole = fs::read(&path).expect("readable");
        assert!(String::from_utf8_lossy(&whole).contains(&format!("\ninstructions {}\n\n", instruction_set())));
        for length in 0..=whole.len() {
            fs::write(&path, &whole[..length]).expect("writable");
            let mut journal = resume(&path, &run).expect("ours");
            let records = ends[1..].iter().filter(|&&end| end <= length).count();
            let mut expected: Vec<(usize, Replicate)> =
                [1, 0, 2][..records].iter().map(|&index| (index, replicate(index))).collect();
            expected.sort_by_key(|(index, _)| *index);
            assert_eq!(held(&mut journal), expected, "{length}");
            journal.append(7, &replicate(7)).expect("writable");
            drop(journal);
            let mut again = resume(&path, &run).expect("ours");
            expected.push((7, replicate(7)));
            assert_eq!(held(&mut again), expected, "{length}");
        }
    }

    #[test]
    fn a_damaged_record_and_what_is_behind_it_are_dropped() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("journal");
        let run = Settings::default().identity("stack");
        let mut journal = Journal::create(&path, &run).expect("new");
        let start = fs::metadata(&path).expect("there").len() as usize;
        journal.append(0, &replicate(0)).expect("writable");
        journal.append(1, &replicate(1)).expect("writable");
        drop(journal);
        let whole = fs::read(&path).expect("readable");
        for place in start..whole.len() {
            let mut damaged = whole.clone();
            damaged[place] ^= 0x10;
            fs::write(&path, damaged).expect("writable");
            let journal = resume(&path, &run).expect("ours");
            assert!(journal.len() < 2, "{place}");
        }
        // A power failure may leave zeros, which look like an empty record with the right checksum.
        fs::write(&path, [&whole[..start], &[0; 64]].concat()).expect("writable");
        assert!(resume(&path, &run).expect("ours").is_empty());
    }

    #[test]
    fn another_run_is_refused_with_what_differs() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("journal");
        let settings = Settings::default();
        let run = settings.identity("stack");
        let message = |run: &Identity| {
            let error = resume(&path, run).expect_err("refused").to_string();
            error.rsplit(": ").next().unwrap_or_default().to_owned()
        };
        drop(Journal::<Replicate>::create(&path, &run).expect("new"));
        assert_eq!(message(&settings.identity("other")), "expected other, got stack");
        assert_eq!(message(&Settings { seed: 7, ..settings.clone() }.identity("stack")), "expected 7, got 0");
        let error = Journal::<Replicate>::create(&path, &run).expect_err("refused");
        assert!(matches!(error, JournalError::Unfinished { .. }));
        // Neither the number of threads nor the memory decides the result.
        let elsewhere = Settings { threads: Some(3), memory: 1e9, ..settings.clone() };
        let open = resume(&path, &elsewhere.identity("stack")).expect("ours");
        let error = resume(&path, &run).expect_err("refused");
        assert!(matches!(error, JournalError::Locked { .. }));
        open.remove().expect("removable");
        assert!(!path.exists());
        fs::write(&path, "something else").expect("writable");
        assert_eq!(message(&run), "expected 3, got something else");
    }

    /// Journals of one run become one, and journals of another are refused; all are removed when the run ends.
    #[test]
    fn journals_are_gathered() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let [all, one, two] = ["all", "one", "two"].map(|name| folder.path().join(name));
        let run = Settings::default().identity("stack");
        for (path, index) in [(&one, 1), (&two, 2)] {
            Journal::create(path, &run).expect("new").append(index, &replicate(index)).expect("writable");
        }
        // The header that another machine would have written.
        let text = fs::read(&two).expect("readable");
        let ours = format!("instructions {}\n", instruction_set()).into_bytes();
        let at = text.windows(ours.len()).position(|found| found == ours).expect("a header");
        let theirs = [&text[..at], b"instructions other\n", &text[at + ours.len()..]].concat();
        fs::write(&two, theirs).expect("writable");
        let mut journal = resume(&all, &run).expect("new");
        journal.gather(&one, &run).expect("of the run");
        journal.gather(&two, &run).expect("of the run");
        assert!(journal.holds(1) && journal.holds(2) && !journal.holds(0));
        assert_eq!(journal.instructions().iter().filter(|name| *name == "other").count(), 1);
        let other = Settings { seed: 7, ..Settings::default() }.identity("stack");
        assert!(matches!(journal.gather(&folder.path().join("one"), &run), Err(JournalError::Locked { .. })));
        assert_eq!(held(&mut journal), [(1, replicate(1)), (2, replicate(2))]);
        journal.remove().expect("removable");
        assert!(fs::read_dir(folder.path()).expect("readable").next().is_none());
        drop(Journal::<Replicate>::create(&one, &other).expect("new"));
        let mut journal = resume(&all, &run).expect("new");
        assert!(matches!(journal.gather(&one, &run), Err(JournalError::Other { .. })));
    }

    #[test]
    fn file_systems_without_locks_are_known() {
        for code in [38, 95, 37] {
            assert!(has_no_locks(&io::Error::from_raw_os_error(code)), "{code}");
        }
        assert!(!has_no_locks(&io::Error::from_raw_os_error(13)));
    }
}
