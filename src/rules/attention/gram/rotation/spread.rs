//! D where keys and values meet queries by the difference of how far both are turned: Σ_f p_f Re e^(iθ_f (a − c)) D_f, D_f as in
//! [`crate::rules::attention::gram`] of the keys K_bd e^(−iθ_f (b − d)); and κ'.

use rayon::prelude::*;

use super::lanes::{Complex, LANES, Lanes, Views, ZERO, add};
use crate::rules::attention::matrix::Matrix;

/// Both, of queries that see the first keys, up to these `ends`, which do not fall; of the products K before the rotation and V; of
/// frequencies and their shares.
pub(super) fn spread(ends: &[usize], (k, v): (&Matrix, &Matrix), frequencies: &[(f64, f64)]) -> [Matrix; 2] {
    let views = Views::new(ends);
    let parts: Vec<Part> = frequencies.par_chunks(LANES).map(|chunk| Part::new(chunk, &views, (k, v))).collect();
    let at = |distance: usize, [a, c]: [usize; 2]| -> f64 {
        let corners = views.corners(a, c);
        parts.iter().map(|part| part.at(distance, &corners)).sum()
    };
    let spread = Matrix::symmetric(ends.len(), |a, c| at(a - c, [a, c]));
    let met = Matrix::symmetric(ends.len(), |a, c| {
        let own = spread.row(c)[c];
        if own > 0.0 { at(a - c, [c, c]) / own } else { 1.0 }
    });
    [spread, met]
}

/// Of some frequencies p_f D_f, of two of the views.
struct Part {
    lanes: Lanes,
    spread: Vec<Complex>,
}

/// What one view of keys d has summed over keys b so far.
#[derive(Clone, Copy)]
struct Sums {
    /// Of K V, K, (V W)(K W) and V W.
    products: Complex,
    keys: Complex,
    crossed: Complex,
    values: f64,
}

impl Part {
    fn new(frequencies: &[(f64, f64)], views: &Views, (k, v): (&Matrix, &Matrix)) -> Self {
        let lanes = Lanes::new(frequencies, k.rows);
        let count = views.count();
        let mut sums = vec![Sums { products: ZERO, keys: ZERO, crossed: ZERO, values: 0.0 }; count];
        let mut spread = vec![ZERO; count * count];
        let mut crossed = spread.clone();
        let mut view = 0;
        for b in 0..views.ends[count - 1] {
            add_key(&mut sums, b, &views.ends, (k.row(b), v.row(b)), &lanes.turns);
            if b + 1 < views.ends[view] {
                continue;
            }
            let share = (views.ends[view] as f64).recip();
            for (other, sums) in sums.iter().enumerate() {
                let place = view * count + other;
                add(&mut crossed[place], share, &sums.crossed);
                add(&mut spread[place], share, &sums.products);
                add(&mut spread[place], share * share * sums.values, &sums.keys);
            }
            view += 1;
        }
        for one in 0..count {
            for other in 0..count {
                let (half, [real, imaginary]) = (crossed[one * count + other], crossed[other * count + one]);
                let [of_real, of_imaginary] = &mut spread[one * count + other];
                for f in 0..LANES {
                    of_real[f] = lanes.shares[f] * (of_real[f] - half[0][f] - real[f]);
                    of_imaginary[f] = lanes.shares[f] * (of_imaginary[f] - half[1][f] + imaginary[f]);
                }
            }
        }
        Self { lanes, spread }
    }

    /// Of queries at this `distance`, between the views of the `corners`.
    fn at(&self, distance: usize, corners: &[(usize, f64); 4]) -> f64 {
        let [cos, sin] = &self.lanes.turns[distance];
        let mut sums = [0.0; LANES];
        for (place, weight) in corners.iter().filter(|(_, weight)| *weight > 0.0) {
            let [real, imaginary] = &self.spread[*place];
            for f in 0..LANES {
                sums[f] += weight * (cos[f] * real[f] - sin[f] * imaginary[f]);
            }
        }
        sums.iter().sum()
    }
}

/// Adds key b to the `sums` of views of the keys d before each of these `ends`.
fn add_key(sums: &mut [Sums], b: usize, ends: &[usize], (k, v): (&[f64], &[f64]), turns: &[Complex]) {
    let (mut keys, mut products, mut values, mut start) = (ZERO, ZERO, 0.0, 0);
    for (sums, &end) in sums.iter_mut().zip(ends) {
        for d in start..end {
            let [cos, sin] = &turns[b.abs_diff(d)];
            let turned = if d < b { -1.0 } else { 1.0 };
            let (own, both) = (k[d], k[d] * v[d]);
            for f in 0..LANES {
                keys[0][f] += own * cos[f];
                keys[1][f] += turned * own * sin[f];
                products[0][f] += both * cos[f];
                products[1][f] += turned * both * sin[f];
            }
            values += v[d];
        }
        start = end;
        let share = (end as f64).recip();
        add(&mut sums.products, share, &products);
        add(&mut sums.keys, share, &keys);
        add(&mut sums.crossed, share * share * values, &keys);
        sums.values += share * values;
    }
}
