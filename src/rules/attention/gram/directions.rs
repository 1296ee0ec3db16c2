//! What the differences of outputs come of, as `attention/concentration.rs` asks for it: of an average row.
//!
//! With Q, D, R' and the pull as in [`super`], R' being the slope of what two rows have in common at the correlation of their queries,
//! averages over pairs of rows of
//!
//! ```text
//! linear in queries   v R'_ac ((Q_aa D_aa + Q_cc D_cc)/2 − Q_ac D_ac) + (pull_aa + pull_cc)/2 − pull_ac
//! of their inputs     v R'_ac ((Q_aa + Q_cc)/2 − Q_ac) D_ac           + the same
//! ```
//!
//! the rest of the first being of keys that one of the two does not see or that are turned otherwise. Of unmasked tokens that are all
//! unlike both are w (1 − ρ) T11 and the pull of `exchangeable.rs` (tests/sigprop/stacks.rs: weights of both within 2 %).

use super::head::{Head, Of};
use super::queries::Queries;
use super::row::Row;
use crate::moments::ratio;
use crate::rules::attention::concentration::Parts;
use crate::rules::attention::fluctuation::Elasticity;
use crate::rules::attention::matrix::Matrix;
use crate::rules::softmax::{Overlaps, Shared};

/// How unequal keys are to an average row of `heads`, what the differences of `output`s come of, what their squares stray by, as
/// outputs do by `uneven`, and how they follow those of keys and queries.
pub(super) fn differences(
    heads: &[Head],
    overlaps: &mut Overlaps,
    (variance, freedom): (f64, f64),
    (q, pulls): (&Queries, &[Matrix]),
    [values, output]: [&Matrix; 2],
    uneven: &[f64],
) -> (Shared, Parts, f64, Elasticity) {
    let count = output.rows as f64;
    let over_rows = |of: fn(&Row) -> f64| {
        heads.iter().flat_map(|head| &head.rows).map(of).sum::<f64>() / (count * heads.len() as f64)
    };
    let alike = q.alike();
    let (effective, contrast) = (over_rows(|row| row.effective), over_rows(|row| row.contrast));
    let shared = overlaps.shared(effective, contrast, alike, freedom);
    let total = apart(output);
    let of_heads: Vec<[f64; 3]> =
        heads.iter().zip(pulls).map(|(head, pulls)| head.differences(variance, q, pulls)).collect();
    let [flat, linear, inherited] =
        [0, 1, 2].map(|part| ratio(of_heads.iter().map(|of| of[part]).sum::<f64>(), total * heads.len() as f64));
    let of_values = ratio(of_pairs(values), of_pairs(output)).clamp(0.0, 1.0);
    let flat = flat.clamp(0.0, 1.0);
    let linear = ratio(linear, 1.0 - flat).clamp(0.0, 1.0);
    let inherited = inherited.clamp(0.0, (1.0 - flat) * linear);
    let squares = uneven.iter().zip(output.diagonal()).map(|(uneven, own)| uneven * own * own).sum::<f64>() / count;
    // What masks make of values follows them alone.
    let elasticity = elasticity(overlaps, (effective, contrast), alike, freedom).times(1.0 - flat);
    (
        shared,
        Parts { flat, linear, inherited, alike: of_values },
        ratio(squares * (1.0 - alike * alike), total * total),
        elasticity,
    )
}

/// Of rows that differ by scores, of queries with this cosine.
fn elasticity(overlaps: &mut Overlaps, (n, w): (f64, f64), cosine: f64, freedom: f64) -> Elasticity {
    let row = overlaps.sharp_row(n, w);
    let cross = overlaps.cross(n, w, cosine, [freedom, 1.0, 1.0], 0.0);
    Elasticity::new(&row, w, row.s2 - n.recip() - cross.excess, [cosine * cross.t11, (1.0 - cosine) * cross.t11])
}

impl Head {
    /// What outputs differ by for flat weights, what of the rest is linear in queries, by the slope of what two rows have in common
    /// of their scores, and pulled, and what of that comes of different inputs, not of keys out of sight or turned.
    fn differences(&self, variance: f64, q: &Queries, pulls: &Matrix) -> [f64; 3] {
        let (mut linear, mut inherited) = (0.0, 0.0);
        for a in 0..q.count() {
            for c in 0..a {
                let slope = variance * self.ratio(&self.rows, q, a, c, Of::Slope);
                let [own, other] = [a, c].map(|row| self.alike_spread(q, row, row));
                linear += slope * (own + other - 2.0 * self.alike_spread(q, a, c));
                let apart = q.square(a) + q.square(c) - 2.0 * q.size(a, c) * q.before(a, c);
                inherited += slope * apart * self.spread_of(a, c);
            }
        }
        let (pairs, pulled) = ((q.count() as f64).powi(2), apart(pulls).max(0.0));
        [apart(&self.value.1), linear / pairs + pulled, inherited / pairs + pulled]
    }
}

/// The average product of two different ones.
fn of_pairs(products: &Matrix) -> f64 {
    let count = products.rows as f64;
    let own: f64 = products.diagonal().iter().sum();
    ratio(products.entries.iter().sum::<f64>() - own, count * (count - 1.0))
}

/// What rows differ by, of the matrix of their products: the average square less that of all pairs.
fn apart(products: &Matrix) -> f64 {
    let count = products.rows as f64;
    products.diagonal().iter().sum::<f64>() / count - products.entries.iter().sum::<f64>() / (count * count)
}
