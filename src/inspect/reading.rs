//! The measurements of one tensor of a checkpoint.

use super::cut::Cut;
use super::rows::Rows;
use super::singular::{Lanczos, STEPS};
use super::sketch::{Fingerprint, Sketch};
use super::spread::Spread;
use super::{Deviation, Tails};
use crate::checkpoint::{CheckpointError, Entry, LONGEST_ROW};
use crate::huggingface::{Held, Part, Start};

/// The largest number of entries of a matrix whose largest singular value is estimated: every pass reads the matrix
/// again.
const MOST_ENTRIES: usize = 1 << 27;

/// The measurements of a tensor of a checkpoint, or of one of the parts it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The name of the tensor in the checkpoint.
    pub tensor: String,
    /// Its name with `*` for numbers.
    pub pattern: String,
    /// The type in which it is stored.
    pub dtype: String,
    /// Rows and columns of the part, as they are stored; a vector is one column.
    pub shape: [usize; 2],
    /// True if the tensor holds other parts, too.
    pub is_part: bool,
    /// The part of the network that the tensor holds; `None` if its name is not known.
    pub part: Option<Part>,
    /// The statistics of its entries.
    pub spread: Spread,
    /// The groups of its rows by size; `None` unless it is a table or a head whose rows differ in size.
    pub rows: Option<Rows>,
    /// An estimate of the largest singular value; `None` for vectors and very large matrices.
    pub singular_value: Option<f64>,
    /// A summary of its entries, with which tensors are compared; `None` for a constant.
    pub fingerprint: Option<Fingerprint>,
}

impl Reading {
    /// Returns the largest singular value of a matrix of independent entries with the same shape and second moment: √E
    /// w² (√rows + √columns) for large matrices (Bai, Yin 1993).
    pub fn random_singular_value(&self) -> Option<f64> {
        let [rows, columns] = self.shape.map(|size| (size as f64).sqrt());
        self.singular_value.and(self.spread.root_mean_square()).map(|size| size * (rows + columns))
    }

    /// Returns the name in the checkpoint with `*` for numbers, followed by the part if the tensor holds several.
    pub fn title(&self) -> String {
        let Some(part) = self.part.as_ref().filter(|_| self.is_part) else { return self.pattern.clone() };
        let name = &part.pattern;
        let name = name.strip_suffix(".weight").or(name.strip_suffix(".bias")).unwrap_or(name);
        format!("{} {}", self.pattern, name.rsplit('.').next().unwrap_or(name))
    }

    /// Returns the statistics of the entries that are judged, without rows of other sizes.
    pub fn judged(&self) -> &Spread {
        self.rows.as_ref().map_or(&self.spread, |rows| &rows.rest)
    }

    /// Returns true if the tensor differs from the scheme: in the size of all entries or of some rows, in tails, or
    /// because entries are not finite.
    pub fn deviates(&self) -> bool {
        let start = self.part.as_ref().map(|part| part.start);
        let deviation = start.and_then(|start| Deviation::of(self.judged(), start));
        let has_other_rows = self.rows.as_ref().is_some_and(|rows| rows.named().next().is_some());
        self.spread.not_finite > 0
            || has_other_rows
            || deviation.is_some_and(|found| found.deviates)
            || self.has_other_tails()
    }

    /// Returns true if the tails do not agree with the distribution of the scheme.
    pub fn has_other_tails(&self) -> bool {
        self.tails().is_some_and(|tails| !tails.allowed)
    }

    /// Returns the tails, compared with the distribution of the scheme; `None` if the tensor is not sampled.
    pub fn tails(&self) -> Option<Tails> {
        match self.part.as_ref()?.start {
            Start::Drawn(init) => Tails::of(self.judged(), init),
            Start::Constant(_) | Start::LogRates(_) | Start::StepBiases(_) => None,
        }
    }

    /// Returns the number of its block, which is the first number in its name; `None` if its name has no number.
    pub fn block(&self) -> Option<usize> {
        self.tensor.split('.').find_map(|part| part.parse().ok())
    }
}

/// Measures a tensor of floats, part by part.
pub(super) fn read(entry: &Entry, held: Option<&Held>, pattern: &str) -> Result<Vec<Reading>, CheckpointError> {
    let cut = Cut::of(entry, held);
    let mut spreads = vec![Spread::default(); cut.parts()];
    let mut sketches: Vec<Sketch> = cut.shapes(entry).map(Sketch::new).collect();
    let [_, columns] = entry.matrix();
    let has_rows = cut.parts() == 1 && columns <= LONGEST_ROW && is_table(entry, held);
    let mut rows: Vec<Spread> = Vec::new();
    entry.read(|piece| {
        if has_rows {
            rows.extend(piece.entries.chunks(columns.max(1)).map(Spread::of));
        }
        cut.deal(piece, |index, entries| {
            spreads[index] = spreads[index].with(Spread::of(entries));
            sketches[index].add(entries);
        });
    })?;
    let singular_values = singular_values(entry, &cut)?;
    let reading = |(index, (spread, singular_value)): (usize, (Spread, Option<f64>))| Reading {
        tensor: entry.name.clone(),
        pattern: pattern.to_owned(),
        dtype: entry.dtype.name().to_owned(),
        shape: sketches[index].shape(),
        is_part: cut.parts() > 1,
        part: held.map(|held| held.parts[index].clone()),
        spread,
        rows: Rows::of(&rows),
        singular_value,
        fingerprint: sketches[index].fingerprint(&spread),
    };
    Ok(spreads.into_iter().zip(singular_values).enumerate().map(reading).collect())
}

/// Returns true if the tensor has a row per token id, as tables of embeddings and heads have. This follows from its
/// parameter, or from its name if the parameter is not known.
fn is_table(entry: &Entry, held: Option<&Held>) -> bool {
    /// Parts of the names of such tensors in libraries.
    const NAMES: [&str; 5] = ["embed", "wte", "wpe", "lm_head", "shared.weight"];
    entry.shape.len() == 2
        && match held {
            Some(held) => {
                held.parts.iter().flat_map(|part| &part.parameters).any(|name| {
                    name.starts_with("head.") || name.contains("embeddings.") || name.ends_with("embedding")
                })
            }
            None => NAMES.iter().any(|part| entry.name.contains(part)),
        }
}

/// Returns the largest singular value of every part; `None` unless the tensor is a matrix small enough to be read
/// several times.
fn singular_values(entry: &Entry, cut: &Cut) -> Result<Vec<Option<f64>>, CheckpointError> {
    let [rows, columns] = entry.matrix();
    let is_matrix = rows > 1 && columns > 1 && columns <= LONGEST_ROW && rows * columns <= MOST_ENTRIES;
    if !is_matrix {
        return Ok(vec![None; cut.parts()]);
    }
    let mut walks: Vec<Lanczos> = (0..cut.parts()).map(|index| Lanczos::new(cut.row(index))).collect();
    let mut open = vec![true; walks.len()];
    for _ in 0..STEPS {
        entry.read(|piece| {
            cut.deal(piece, |index, rows| {
                if open[index] {
                    walks[index].rows(rows);
                }
            });
        })?;
        for (walk, open) in walks.iter_mut().zip(&mut open) {
            *open = *open && walk.step();
        }
        if open.iter().all(|open| !open) {
            break;
        }
    }
    Ok(walks.iter().map(Lanczos::largest).collect())
}
