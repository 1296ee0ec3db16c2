//! What one tensor of a checkpoint holds.

use super::cut::Cut;
use super::rows::Rows;
use super::singular::{Lanczos, STEPS};
use super::sketch::{Fingerprint, Sketch};
use super::spread::Spread;
use super::{Deviation, Tails};
use crate::checkpoint::{CheckpointError, Entry, LONGEST_ROW};
use crate::huggingface::{Held, Part, Start};

/// Larger matrices have no estimate of their largest singular value: every pass reads them again.
const MOST_ENTRIES: usize = 1 << 27;

/// A tensor of a checkpoint, or one of the parts it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// Name of the tensor in the checkpoint.
    pub tensor: String,
    /// Its name with `*` for numbers.
    pub pattern: String,
    /// How it is stored.
    pub dtype: String,
    /// Rows and columns of the part, as they are stored; a vector is one column.
    pub shape: [usize; 2],
    /// Whether the tensor holds other parts beside it.
    pub is_part: bool,
    /// What it is; none if nothing of this name is known.
    pub part: Option<Part>,
    /// Its entries.
    pub spread: Spread,
    /// Its rows, where it is a table or a head and they are not of one size.
    pub rows: Option<Rows>,
    /// Estimate of the largest singular value of a matrix.
    pub singular_value: Option<f64>,
    /// What its entries are recognised by; none of a constant.
    pub fingerprint: Option<Fingerprint>,
}

impl Reading {
    /// The largest singular value that a matrix of independent entries of this size has, √E w² (√rows + √columns)
    /// (Bai, Yin 1993), for large matrices.
    pub fn random_singular_value(&self) -> Option<f64> {
        let [rows, columns] = self.shape.map(|size| (size as f64).sqrt());
        self.singular_value.and(self.spread.root_mean_square()).map(|size| size * (rows + columns))
    }

    /// The name in the checkpoint with `*` for numbers, and which part of it, if it holds several.
    pub fn title(&self) -> String {
        let Some(part) = self.part.as_ref().filter(|_| self.is_part) else { return self.pattern.clone() };
        let name = &part.pattern;
        let name = name.strip_suffix(".weight").or(name.strip_suffix(".bias")).unwrap_or(name);
        format!("{} {}", self.pattern, name.rsplit('.').next().unwrap_or(name))
    }

    /// The entries that are judged: those of rows that are of one size.
    pub fn judged(&self) -> &Spread {
        self.rows.as_ref().map_or(&self.spread, |rows| &rows.rest)
    }

    /// Whether it is not what the scheme draws: in size, in tails, or because entries are not finite.
    pub fn deviates(&self) -> bool {
        let start = self.part.as_ref().map(|part| part.start);
        let deviation = start.and_then(|start| Deviation::of(self.judged(), start));
        let has_other_rows = self.rows.as_ref().is_some_and(|rows| rows.named().next().is_some());
        self.spread.not_finite > 0
            || has_other_rows
            || deviation.is_some_and(|found| found.deviates)
            || self.has_other_tails()
    }

    /// Whether its tails are not those of the distribution it is drawn from.
    pub fn has_other_tails(&self) -> bool {
        self.tails().is_some_and(|tails| !tails.allowed)
    }

    /// Its tails; none of what is not drawn.
    pub fn tails(&self) -> Option<Tails> {
        match self.part.as_ref()?.start {
            Start::Drawn(init) => Tails::of(self.judged(), init),
            Start::Constant(_) => None,
        }
    }

    /// Number of the block it is in: the first number in its name.
    pub fn block(&self) -> Option<usize> {
        self.tensor.split('.').find_map(|part| part.parse().ok())
    }
}

/// Reads a tensor of floats.
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

/// Returns whether it has a row per token, as tables of embeddings and heads have: by its parameter, or by its name where that is not known.
fn is_table(entry: &Entry, held: Option<&Held>) -> bool {
    /// Parts of names in libraries.
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

/// Of every part, if the tensor is a matrix of a size that is passed over again.
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
