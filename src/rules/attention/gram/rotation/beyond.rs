//! What gradients of keys have in common before the rotation beyond their product with κ: Σ_f p_f Re (e^(−iθ_f (b − d)) − κ(b −
//! d)) C(V, M e^(iθ_f (a − c)))_bd over different queries a, c.

use rayon::prelude::*;

use super::lanes::{Complex, LANES, Lanes, Views, ZERO, add};
use crate::rules::attention::matrix::Matrix;

/// Of queries that see the first keys, up to these `ends`, which do not fall; of M and V, with V W and P_V; of frequencies and
/// their shares, with κ by distance.
pub(super) fn beyond(
    ends: &[usize],
    m: &Matrix,
    (v, averaged): (&Matrix, (&Matrix, &Matrix)),
    (frequencies, overlaps): (&[(f64, f64)], &[f64]),
) -> Matrix {
    // Key b is seen by queries whose views end behind it.
    let places: Vec<usize> = (1..=v.rows).collect();
    let keys = Views::new(&places);
    let of = |chunk: &[(f64, f64)]| Part::new(chunk, (ends, &keys.ends), m, averaged);
    let parts: Vec<Part> = frequencies.par_chunks(LANES).map(of).collect();
    Matrix::symmetric(v.rows, |b, d| {
        let corners = keys.corners(b, d);
        parts.iter().map(|part| part.at((b - d, overlaps[b - d]), v.row(b)[d], &corners)).sum()
    })
}

/// Of some frequencies, of two of the keys.
struct Part {
    lanes: Lanes,
    /// p_f Wᵀ M W, and the rest of p_f C.
    outer: Vec<Complex>,
    rest: Vec<Complex>,
}

impl Part {
    fn new(
        frequencies: &[(f64, f64)],
        (ends, keys): (&[usize], &[usize]),
        m: &Matrix,
        (once, twice): (&Matrix, &Matrix),
    ) -> Self {
        let (n, count) = (m.rows, keys.len());
        let lanes = Lanes::new(frequencies, n);
        // Over the queries a that see key b, of M e^(iθ (a − c)) W_ab and the same times P_V.
        let mut sums = vec![[ZERO; 2]; n];
        let [mut outer, mut half, mut rest] = [(); 3].map(|()| vec![ZERO; count * count]);
        let mut query = n;
        for key in (0..count).rev() {
            let b = keys[key] - 1;
            while query > 0 && ends[query - 1] > b {
                query -= 1;
                add_query(
                    &mut sums,
                    query,
                    (ends[query] as f64).recip(),
                    (m.row(query), twice.row(query)),
                    &lanes.turns,
                );
            }
            let (mut through, mut crossed, mut inner, mut other) = (ZERO, ZERO, ZERO, n);
            for place in (0..count).rev() {
                let d = keys[place] - 1;
                while other > 0 && ends[other - 1] > d {
                    other -= 1;
                    let share = (ends[other] as f64).recip();
                    add(&mut through, share, &sums[other][0]);
                    add(&mut crossed, share * once.row(other)[b], &sums[other][0]);
                    add(&mut inner, share, &sums[other][1]);
                }
                let place = key * count + place;
                (outer[place], half[place], rest[place]) = (through, crossed, inner);
            }
        }
        for one in 0..count {
            for other in 0..count {
                let (half, [real, imaginary]) = (half[one * count + other], half[other * count + one]);
                let place = one * count + other;
                for f in 0..LANES {
                    let share = lanes.shares[f];
                    rest[place][0][f] = share * (rest[place][0][f] - half[0][f] - real[f]);
                    rest[place][1][f] = share * (rest[place][1][f] - half[1][f] + imaginary[f]);
                    outer[place][0][f] *= share;
                    outer[place][1][f] *= share;
                }
            }
        }
        Self { lanes, outer, rest }
    }

    /// Of keys at this distance, with its κ, whose values have the product `v`, between the `corners`.
    fn at(&self, (distance, overlap): (usize, f64), v: f64, corners: &[(usize, f64); 4]) -> f64 {
        let [cos, sin] = &self.lanes.turns[distance];
        let mut sums = [0.0; LANES];
        for (place, weight) in corners.iter().filter(|(_, weight)| *weight > 0.0) {
            let (outer, rest) = (&self.outer[*place], &self.rest[*place]);
            for f in 0..LANES {
                let [real, imaginary] = [0, 1].map(|part| v * outer[part][f] + rest[part][f]);
                sums[f] += weight * ((cos[f] - overlap) * real + sin[f] * imaginary);
            }
        }
        sums.iter().sum()
    }
}

/// Adds query a, which weighs its keys by `share`, to the `sums` of queries c.
fn add_query(sums: &mut [[Complex; 2]], a: usize, share: f64, (m, p): (&[f64], &[f64]), turns: &[Complex]) {
    for (c, [plain, weighted]) in sums.iter_mut().enumerate().filter(|(c, _)| *c != a) {
        let [cos, sin] = turns[a.abs_diff(c)];
        let turn = [cos, if c < a { sin } else { sin.map(|sin| -sin) }];
        add(plain, share * m[c], &turn);
        add(weighted, share * m[c] * p[c], &turn);
    }
}
