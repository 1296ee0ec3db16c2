//! The entries of a tensor, in pieces of whole rows.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::{CheckpointError, Dtype, Entry, float8};

/// The number of entries of a piece of a tensor, unless a single row has more.
const PIECE: usize = 1 << 17;
/// The number of entries of the longest row that is read in one piece.
pub(crate) const LONGEST_ROW: usize = 1 << 22;

/// Consecutive entries of a tensor.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// The number of entries of the tensor before this piece.
    pub first: usize,
    /// The entries of the piece, in f32.
    pub entries: &'a [f32],
}

impl Entry {
    /// Returns true if the entries can be read as floats.
    pub fn is_float(&self) -> bool {
        match self.dtype {
            Dtype::F8E4M3 | Dtype::F8E5M2 | Dtype::F16 | Dtype::Bf16 | Dtype::F32 | Dtype::F64 => true,
            Dtype::Other(_) => false,
        }
    }

    /// Returns the number of rows along the first axis, and the number of entries of a row. A vector is one column.
    pub fn matrix(&self) -> [usize; 2] {
        let rows = self.shape.first().copied().unwrap_or(1);
        [rows, self.shape.iter().skip(1).product()]
    }

    /// Passes all entries to `each` in pieces of whole rows; only rows of more than 4 Mi entries are cut. Quantised
    /// entries are multiplied by their scales, and the product of an adapter is added if there is one.
    ///
    /// # Panics
    ///
    /// If the entries are not floats.
    pub fn read(&self, mut each: impl FnMut(Piece)) -> Result<(), CheckpointError> {
        let [rows, columns] = self.matrix();
        let total = rows * columns;
        let row = if columns > LONGEST_ROW { PIECE } else { columns.max(1) };
        let piece = (PIECE / row).max(1) * row;
        let bytes = match self.dtype {
            Dtype::F64 => 8,
            Dtype::F32 => 4,
            Dtype::F16 | Dtype::Bf16 => 2,
            Dtype::F8E4M3 | Dtype::F8E5M2 => 1,
            Dtype::Other(_) => unreachable!("only tensors of floats are read"),
        };
        let factors = self.scales.as_ref().map(|scales| scales.read()).transpose()?;
        let added = self.added.as_ref().map(|product| product.factors()).transpose()?;
        let error = || CheckpointError::io(&self.path);
        let mut file = File::open(&self.path).map_err(error())?;
        file.seek(SeekFrom::Start(self.offset)).map_err(error())?;
        let mut raw = vec![0; bytes * piece.min(total)];
        let mut entries = vec![0.0; piece.min(total)];
        for first in (0..total).step_by(piece) {
            let count = piece.min(total - first);
            let (raw, entries) = (&mut raw[..bytes * count], &mut entries[..count]);
            file.read_exact(raw).map_err(error())?;
            self.convert(raw, entries);
            if let (Some(scales), Some(factors)) = (&self.scales, &factors) {
                scales.apply(factors, &self.shape, first, entries);
            }
            if let Some(added) = &added {
                added.add(columns, first, entries);
            }
            each(Piece { first, entries });
        }
        Ok(())
    }

    fn convert(&self, raw: &[u8], entries: &mut [f32]) {
        let halves = || raw.as_chunks().0.iter().map(|bytes| u16::from_le_bytes(*bytes));
        match self.dtype {
            Dtype::F64 => {
                for (entry, bytes) in entries.iter_mut().zip(raw.as_chunks().0) {
                    *entry = f64::from_le_bytes(*bytes) as f32;
                }
            }
            Dtype::F32 => {
                for (entry, bytes) in entries.iter_mut().zip(raw.as_chunks().0) {
                    *entry = f32::from_le_bytes(*bytes);
                }
            }
            Dtype::F8E4M3 => entries.iter_mut().zip(raw).for_each(|(entry, byte)| *entry = float8::e4m3(*byte)),
            Dtype::F8E5M2 => entries.iter_mut().zip(raw).for_each(|(entry, byte)| *entry = float8::e5m2(*byte)),
            Dtype::F16 => halves().map(f16::from_bits).collect::<Vec<_>>().convert_to_f32_slice(entries),
            Dtype::Bf16 => halves().map(bf16::from_bits).collect::<Vec<_>>().convert_to_f32_slice(entries),
            Dtype::Other(_) => unreachable!("only tensors of floats are read"),
        }
    }
}
