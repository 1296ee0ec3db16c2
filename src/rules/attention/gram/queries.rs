//! The queries of an attention: their lengths and correlations.

use std::sync::Arc;

use super::rotation::Rotation;
use crate::domain::{Signal, symmetric};
use crate::moments::{ratio, share};

pub(super) struct Queries {
    /// E q² are in units of e^`ln_unit`.
    pub(super) ln_unit: f64,
    /// √E q².
    roots: Vec<f64>,
    /// Of what scores have in common.
    cosines: Arc<[f64]>,
    /// Of the queries themselves, before they are rotated, and of what they pull, where those are others.
    rotated: Option<[Arc<[f64]>; 3]>,
}

impl Queries {
    pub(super) fn of(signal: &Signal) -> Self {
        let (ln_unit, roots) = roots(signal.tokens.iter().map(|token| token.ln_second));
        Self { ln_unit, roots, cosines: Arc::clone(&signal.cosines), rotated: None }
    }

    /// Whose scores have in common what rotated keys leave them.
    pub(super) fn turned_by(self, rotation: &Rotation) -> Self {
        let count = self.count();
        let before = symmetric(count, |a, c| rotation.before(self.correlation(a, c), a, c).clamp(-1.0, 1.0));
        let cosines = symmetric(count, |a, c| before[a * count + c] * rotation.met(a, c));
        let pulled = symmetric(count, |a, c| before[a * count + c] * rotation.pulled(a, c));
        Self { cosines, rotated: Some([Arc::clone(&self.cosines), before, pulled]), ..self }
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

    /// Of the scores of two queries.
    pub(super) fn correlation(&self, a: usize, c: usize) -> f64 {
        self.cosines[a * self.count() + c]
    }

    /// E q_a·q_c.
    pub(super) fn product(&self, a: usize, c: usize) -> f64 {
        self.size(a, c) * self.cosine(a, c)
    }

    /// Of two queries themselves.
    pub(super) fn cosine(&self, a: usize, c: usize) -> f64 {
        self.other(0, a, c)
    }

    /// Of two queries before they are rotated.
    pub(super) fn before(&self, a: usize, c: usize) -> f64 {
        self.other(1, a, c)
    }

    /// Of what they pull.
    pub(super) fn pulled(&self, a: usize, c: usize) -> f64 {
        self.other(2, a, c)
    }

    fn other(&self, which: usize, a: usize, c: usize) -> f64 {
        self.rotated.as_ref().map_or(&self.cosines, |rotated| &rotated[which])[a * self.count() + c]
    }

    /// The mean cosine of two.
    pub(super) fn alike(&self) -> f64 {
        let count = self.count() as f64;
        ratio(self.cosines.iter().sum::<f64>() - count, count * (count - 1.0))
    }
}

/// ln of the largest second moment, 0 if all are zero, and the roots of all in units of it.
pub(super) fn roots(ln_seconds: impl ExactSizeIterator<Item = f64> + Clone) -> (f64, Vec<f64>) {
    let largest = ln_seconds.clone().fold(f64::NEG_INFINITY, f64::max);
    let ln_unit = if largest == f64::NEG_INFINITY { 0.0 } else { largest };
    (ln_unit, ln_seconds.map(|ln_second| share(0.5 * ln_second, 0.5 * ln_unit)).collect())
}
