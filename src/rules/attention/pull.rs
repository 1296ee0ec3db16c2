//! How a query pulls the average of the keys towards itself, in either token domain.
//!
//! # Formula
//!
//! The scores of one query are the overlaps of the keys' inputs with one direction u, |u|² = v/(width E x²), and what
//! is attended more leans towards it. Two queries of correlation c, rows A and A': of Σ_bb' A_b A'_b' x_b·x_b' Stein's
//! lemma in both scores of both keys gives what is of order 1/width, averaged, in units of B = v (1 − c_k)(1 − c_v) γ:
//!
//! ```text
//! Gaussian tokens:    c ((1 − S2)² + S11² + S11 − 2 S21) − 4 S21 + 4 S2 S11
//! normalised tokens:  c ((1 − S2)² + S11² − S11 + 2 S21 − 2 S22') − 2 S11 + 2 S21 + 4 S2 S11 − 4 S31
//!                     − r (2 − r) (N − 2 (S11 (1 + c) − S21 (3 + 2 c) + 2 S31 + c S22'))
//! ```
//!
//! with S_jk = Σ_b A_b^j A'_b^k, S22' that with j = k = 2, N = 1 − 3 S2 + 2 S3, r = c_k. Tokens of fixed norm lack the
//! diagonal terms b = b'; and a key that overlaps less with what all tokens share has more score variance left, so the
//! softmax prefers it: the overlap o of a normalised token with the common direction has variance (1 − r)²(1 −
//! r/2)/width, the tilt moves it by −v√r Var o, and the average loses twice √r times that, of b ≠ b' alone.
//!
//! A row with itself (c = 1, S_jk = S_(j+k)), and two that have nothing in common (c = 0, S_jk = S_j S_k/n), are
//!
//! ```text
//! Gaussian tokens:    1 − S2 − 6 S3 + 6 S22                                                         and 0
//! normalised tokens:  1 − 5 S2 + 4 S3 + 6 S22 − 6 S4 − r (2 − r) (N − 4 S2 + 10 S3 − 6 S4)
//!                     and −2 N/n − r (2 − r) N (1 − 2/n)
//! ```
//!
//! In between c (1 − S2)² is taken as it is, the rest in proportion to what the rows have in common of the scores,
//! (S11 − 1/n)/(S2 − 1/n).
//!
//! Sampled: E |z_a|² − E z_a·z_c of 64 tokens (16), width 128, r 0 to 0.8, v 1 to 16: what is of the pull, 3 to 30 % of
//! it, is within 4 %.
//!
//! Tokens of one length lean less the further they are tilted: the pull is multiplied by what scores of their kurtosis leave of it
//! (`leant`, rules/softmax.rs). What they overlap with the common direction by is theirs alone where that has a direction of its own:
//! r (2 − r) goes with `common`/γ of the concentration.
//!
//! Assumptions: first order in 1/width but for that. Source: project notes, refinements §3, for Gaussian tokens; the rest is ours.

use super::concentration::Unequal;
use crate::domain::Concentration;
use crate::moments::ratio;
use crate::rules::softmax::Row;

/// What one row has to say of its pull.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    /// 1 − S2.
    left: f64,
    /// Of two rows that have nothing in common, and of a row with itself, less (1 − S2)².
    gaussian: [f64; 2],
    normalised: [f64; 2],
}

impl Ends {
    /// Of a `row` of n `keys` of this `cosine`.
    pub(super) fn new(row: &Row, n: f64, cosine: f64, keys: Concentration) -> Self {
        let Row { s2, s3, s4, s22, .. } = *row;
        let left = 1.0 - s2;
        let square = left * left;
        let bend = row.bend();
        let common = cosine * (2.0 - cosine) * ratio(keys.common, keys.total);
        let itself = 1.0 - 5.0 * s2 + 4.0 * s3 + 6.0 * s22 - 6.0 * s4;
        let alone = common * (bend - 4.0 * s2 + 10.0 * s3 - 6.0 * s4);
        Self {
            left,
            gaussian: [0.0, 1.0 - s2 - 6.0 * s3 + 6.0 * s22 - square],
            normalised: [-2.0 * bend / n - common * bend * (1.0 - 2.0 / n), itself - square - alone],
        }
    }

    /// Of one key, or of scores that do not differ.
    pub(super) fn flat() -> Self {
        Self { left: 0.0, gaussian: [0.0; 2], normalised: [0.0; 2] }
    }

    /// The pull of two rows, in units of B; of what they see their queries have the part `correlation` in common, and rotations
    /// leave the part `turned` of it. The rows have the part `alike` of their scores in common.
    pub(super) fn pull(&self, other: &Self, correlation: f64, [alike, turned]: [f64; 2], unequal: Unequal) -> f64 {
        let between =
            |one: [f64; 2], other: [f64; 2]| 0.5 * ((1.0 - alike) * (one[0] + other[0]) + alike * (one[1] + other[1]));
        let rest = unequal.between(between(self.gaussian, other.gaussian), between(self.normalised, other.normalised));
        correlation * self.left * other.left + turned * rest
    }
}
