//! Products of two narrow matrices that are added to a tensor, as by a LoRA adapter.
//!
//! # Formula
//!
//! ```text
//! W + c B A        W [out, in], B [out, r], A [r, in]
//! W + c (B A)ᵀ     W [in, out], where a library stores maps or tables transposed
//! ```
//!
//! where c is the scaling and r the rank. The sum is built row by row while W is read.

use super::{Checkpoint, CheckpointError, Entry};

/// A product c B A of two matrices of low rank r that is added to a tensor W.
#[derive(Clone, Debug, PartialEq)]
pub struct LowRank {
    /// The matrix A, of shape [r, in].
    pub a: Entry,
    /// The matrix B, of shape [out, r].
    pub b: Entry,
    /// The factor c.
    pub scaling: f64,
    /// True if W is stored as [in, out].
    pub transposed: bool,
}

/// The two factors of a product, stored row by row.
pub(super) struct Factors {
    /// c B, or c Aᵀ if W is stored as [in, out]; the shape is [rows of W, r].
    left: Vec<f32>,
    /// A, or Bᵀ if W is stored as [in, out]; the shape is [r, columns of W].
    right: Vec<f32>,
    rank: usize,
}

impl Checkpoint {
    /// Adds a product to the tensor of this name.
    pub fn add_low_rank(&mut self, name: &str, product: LowRank) -> Result<(), CheckpointError> {
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.name == name) else {
            let expected = format!("a tensor of {}", self.path.display());
            return Err(CheckpointError::tensor(&product.a.path, name, expected, "none of this name there".to_owned()));
        };
        let ([rank, inputs], [outputs, width]) = (product.a.matrix(), product.b.matrix());
        let shape = if product.transposed { [inputs, outputs] } else { [outputs, inputs] };
        if rank != width || entry.matrix() != shape || !entry.is_float() {
            let expected = format!("{shape:?} floats, as {} has them", product.a.name);
            let got = format!("{} {:?}", entry.dtype.name(), entry.shape);
            return Err(CheckpointError::tensor(&entry.path, name, expected, got));
        }
        entry.added = Some(Box::new(product));
        Ok(())
    }
}

impl LowRank {
    /// Reads the factors.
    pub(super) fn factors(&self) -> Result<Factors, CheckpointError> {
        let ([rank, inputs], [outputs, _]) = (self.a.matrix(), self.b.matrix());
        let (a, b) = (all(&self.a)?, all(&self.b)?);
        let (mut left, right) =
            if self.transposed { (transposed(&a, rank, inputs), transposed(&b, outputs, rank)) } else { (b, a) };
        for entry in &mut left {
            *entry *= self.scaling as f32;
        }
        Ok(Factors { left, right, rank })
    }
}

impl Factors {
    /// Adds the product to consecutive entries of W, starting at index `first`.
    pub(super) fn add(&self, columns: usize, first: usize, entries: &mut [f32]) {
        let mut done = 0;
        while done < entries.len() {
            let (row, column) = ((first + done) / columns, (first + done) % columns);
            let run = (columns - column).min(entries.len() - done);
            for k in 0..self.rank {
                let factor = self.left[row * self.rank + k];
                let right = &self.right[k * columns + column..][..run];
                for (entry, right) in entries[done..done + run].iter_mut().zip(right) {
                    *entry += factor * right;
                }
            }
            done += run;
        }
    }
}

fn all(entry: &Entry) -> Result<Vec<f32>, CheckpointError> {
    let mut entries = Vec::new();
    entry.read(|piece| entries.extend_from_slice(piece.entries))?;
    Ok(entries)
}

fn transposed(entries: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    (0..columns).flat_map(|column| (0..rows).map(move |row| entries[row * columns + column])).collect()
}
