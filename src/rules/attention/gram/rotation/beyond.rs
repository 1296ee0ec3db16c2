//! What gradients of keys have in common before the rotation beyond their product with κ: Σ_f p_f Re (e^(−iθ_f (b − d)) − κ(b −
//! d)) C(V, M e^(iθ_f (a − c)))_bd over different queries a, c.

use rayon::prelude::*;

use super::lanes::{Complex, LANES, Lanes, Views, ZERO, add, add_shares};
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
        parts.iter().map(|part| part.at([b, d], overlaps[b - d], v.row(b)[d], &keys)).sum()
    })
}

/// Of some frequencies, of two of the keys.
struct Part {
    lanes: Lanes,
    /// p_f Wᵀ M W, and of p_f C what has P_V.
    outer: Vec<Complex>,
    inner: Vec<Complex>,
    /// What has V W, which differs from key to key, of each key and some of the others.
    half: Vec<Complex>,
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
        let [mut outer, mut inner] = [(); 2].map(|()| vec![ZERO; count * count]);
        let mut half = vec![ZERO; n * count];
        let mut query = n;
        for b in (0..n).rev() {
            while query > 0 && ends[query - 1] > b {
                query -= 1;
                let share = (ends[query] as f64).recip();
                add_query(&mut sums, query, share, (m.row(query), twice.row(query)), &lanes.turns);
            }
            let key = keys.binary_search(&(b + 1)).ok();
            let (mut through, mut crossed, mut met, mut other) = (ZERO, ZERO, ZERO, n);
            for place in (0..count).rev() {
                while other > 0 && ends[other - 1] >= keys[place] {
                    other -= 1;
                    let share = lanes.shares.map(|part| part / ends[other] as f64);
                    let [plain, weighted] = &sums[other];
                    add_shares(&mut crossed, share.map(|share| share * once.row(other)[b]), plain);
                    if key.is_some() {
                        add_shares(&mut through, share, plain);
                        add_shares(&mut met, share, weighted);
                    }
                }
                half[b * count + place] = crossed;
                if let Some(key) = key {
                    (outer[key * count + place], inner[key * count + place]) = (through, met);
                }
            }
        }
        Self { lanes, outer, inner, half }
    }

    /// Of two keys, with κ of their distance and the product `v` of their values.
    fn at(&self, [b, d]: [usize; 2], overlap: f64, v: f64, keys: &Views) -> f64 {
        let [mut real, mut imaginary] = ZERO;
        for (place, weight) in keys.corners(b, d).into_iter().filter(|(_, weight)| *weight > 0.0) {
            let (outer, inner) = (&self.outer[place], &self.inner[place]);
            for f in 0..LANES {
                real[f] += weight * (v * outer[0][f] + inner[0][f]);
                imaginary[f] += weight * (v * outer[1][f] + inner[1][f]);
            }
        }
        for ([one, other], sign) in [([b, d], 1.0), ([d, b], -1.0)] {
            for (place, weight) in keys.around(other).into_iter().filter(|(_, weight)| *weight > 0.0) {
                let half = &self.half[one * keys.count() + place];
                for f in 0..LANES {
                    real[f] -= weight * half[0][f];
                    imaginary[f] -= sign * weight * half[1][f];
                }
            }
        }
        let [cos, sin] = &self.lanes.turns[b - d];
        (0..LANES).map(|f| (cos[f] - overlap) * real[f] + sin[f] * imaginary[f]).sum()
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
