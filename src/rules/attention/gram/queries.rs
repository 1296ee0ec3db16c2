//! The queries of an attention: their lengths and correlations.

use std::sync::Arc;

use crate::domain::Signal;
use crate::moments::{ratio, share};

pub(super) struct Queries {
    /// E q² are in units of e^`ln_unit`.
    pub(super) ln_unit: f64,
    /// √E q².
    roots: Vec<f64>,
    cosines: Arc<[f64]>,
}

impl Queries {
    pub(super) fn of(signal: &Signal) -> Self {
        let (ln_unit, roots) = roots(signal.tokens.iter().map(|token| token.ln_second));
        Self { ln_unit, roots, cosines: Arc::clone(&signal.cosines) }
    }

    pub(super) fn count(&self) -> usize {
        self.roots.len()
    }

    /// √(E q_a² E q_c²).
    pub(super) fn size(&self, a: usize, c: usize) -> f64 {
        self.roots[a] * self.roots[c]
    }

    /// E q_a².
    pub(super) fn square(&self, a: usize) -> f64 {
        self.size(a, a)
    }

    pub(super) fn correlation(&self, a: usize, c: usize) -> f64 {
        self.cosines[a * self.count() + c]
    }

    /// The mean cosine of two.
    pub(super) fn alike(&self) -> f64 {
        let count = self.count() as f64;
        ratio(self.cosines.iter().sum::<f64>() - count, count * (count - 1.0))
    }

    /// Σ_ac `matrix`_ac E q_a·q_c, whose entries are row by row.
    pub(super) fn met(&self, matrix: &[f64]) -> f64 {
        let count = self.count();
        let row = |a: usize| {
            let entries = matrix[a * count..].iter().zip(&self.cosines[a * count..]).zip(&self.roots);
            self.roots[a] * entries.map(|((entry, cosine), root)| entry * cosine * root).sum::<f64>()
        };
        (0..count).map(row).sum()
    }
}

/// ln of the largest second moment, 0 if all are zero, and the roots of all in units of it.
pub(super) fn roots(ln_seconds: impl ExactSizeIterator<Item = f64> + Clone) -> (f64, Vec<f64>) {
    let largest = ln_seconds.clone().fold(f64::NEG_INFINITY, f64::max);
    let ln_unit = if largest == f64::NEG_INFINITY { 0.0 } else { largest };
    (ln_unit, ln_seconds.map(|ln_second| share(0.5 * ln_second, 0.5 * ln_unit)).collect())
}
