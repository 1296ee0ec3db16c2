//! What a gradient has along its signal, and how that strays.
//!
//! # Formula
//!
//! x·g = Z is the same at all depths where networks are of degree one (ReLU, and as far as others are like it): the part of |g|² along x
//! is Z²/|x|², which grows back to where signals are small, and φ' lets more of it pass than of the rest. With s what of |g|² came of Z²
//! so, 1 − s = Π (what |g|² grows by without a part along x)/(what it does), and W the variance of what the level of all tokens draws
//! from here on,
//!
//! ```text
//! Var ln Σ |g|² also + ln (1 + 2 s² ⟨c²⟩) + s² W
//! ```
//!
//! for Z² = |y|²|g_y|² χ²/width at the end, y the signal and c the cosines of g there; what |g|² draws otherwise is drawn of both parts.
//!
//! Sampled in x + φ(W x), 12 blocks of width 64 and 128, ReLU and SiLU (docs/accuracy.md): at the input within 18 %, where s is 0.75 (35
//! to 45 % too small without). In encoders, whose norms end Z, attention ends it, too.
//!
//! # Assumptions
//!
//! Cosines of gradients at the end are those here; Z knows nothing of what else is drawn.
//!
//! # Source
//!
//! Ours.

use super::Fluctuation;
use super::fluctuation::{of_all, variance_of_all};

/// From here to where the gradient is drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Later {
    /// What the level of all tokens there has of the level here, and W.
    kept: f64,
    drawn: f64,
    /// 1 − s.
    elsewhere: f64,
}

impl Later {
    /// There.
    pub(crate) const NONE: Self = Self { kept: 1.0, drawn: 0.0, elsewhere: 1.0 };

    /// Before a component behind which signals stray like this, and tokens share that much.
    pub(crate) fn before(self, y: Fluctuation, shared: f64) -> Self {
        let kept = self.kept * of_all(shared).dot(&y.map.column_sum());
        Self { kept, drawn: self.drawn + self.kept * self.kept * variance_of_all(y.fresh, shared), ..self }
    }

    /// Where so much of |g|² is there without what lies along the signal.
    pub(crate) fn grown(self, elsewhere: f64) -> Self {
        Self { elsewhere: self.elsewhere * elsewhere, ..self }
    }

    /// The same gradient, split, in branches, which have these shares in what it is before the fork.
    pub(crate) fn joined(self, branches: impl Iterator<Item = (f64, Option<Self>)>) -> Option<Self> {
        let elsewhere = branches.map(|(share, branch)| Some(share * branch?.elsewhere)).sum::<Option<f64>>()?;
        Some(Self { elsewhere: elsewhere.min(1.0), ..self })
    }

    /// What it adds to the variance of ln Σ |g|², with ⟨c²⟩.
    pub(crate) fn variance(self, alike: f64) -> f64 {
        let square = (1.0 - self.elsewhere).powi(2);
        // Of one token Z² strays far.
        (2.0 * alike * square).ln_1p() + square * self.drawn
    }
}
