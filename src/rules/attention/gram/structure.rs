//! Keys with a structure: those that are like others, or further from all others than most.
//!
//! # Formula
//!
//! What the first order says of a row, Σ W W'(…), is what its weights W make; what a score variance makes of it are the same
//! sums over its weights A as they are drawn ([`super::draws`]), over those of W, with K and V less the averages a query sees:
//!
//! ```text
//! t      E D(A)/D(W)                              D of `attention/gram.rs`
//! φ      Σ (E A_b − W_b) K_bb/(v Σ W_b (K_bb − tr) K_bb/2)                    how averages move towards far keys
//! s      (Σ E A_b A_b' V_bb' − P_V − 2 v X φ)/(v D(W))
//! f²     tr(L K Lᵀ V)/D(W), L = E ∂A/∂s = diag(E A) − E A Aᵀ                  what is linear in scores
//! S2     1 − (1 − 1/n_e) E tr_K(A)/tr_K(W)                                    two keys that are drawn are alike
//! single keys    E A_b² and E A_b² |v_b − z|²
//! ```
//!
//! What lengths stray by is what they make of n_e equal keys. Single keys have shares of the sums over all of them, less what
//! all pairs have, for the sum over all keys stays. Two queries of correlation ρ have of it what they have of t beyond f f. What
//! one row makes of pairs of keys, and averages that scores move, are in [`super::own`] (flat weights without decay).
//!
//! Two queries of which one sees more keys have in common what scores make of those that both see: of s, which goes with n_e as
//! 1/s − 1 ∝ w/n_e, that of the smaller n_e, likewise of t (`Of::rest_beside`). Of copies of one query, one of which sees half of the
//! keys, averages of sharp rows have half of their squares in common, not √½.
//!
//! # Assumptions
//!
//! Done for rows of which each sees half of the keys of the next, and interpolated. One row of 48 keys that are averages of each
//! other, rotated or not: within 4 %, single keys too. Two blocks of 8 to 64 tokens of 100 ids, causal or with ALiBi, at score
//! variances of 0.6 to 1.5 (800 networks): values within 0.8 % rms, gradients 2.1 %. Eight causal blocks without norms (16
//! tokens, width 64, one head, 1000 networks), whose score variance grows to 4000: values within 6 %, of every block.
//!
//! # Source
//!
//! Ours.

use std::sync::Arc;

use rayon::prelude::*;

use super::draws::Drawn;
use super::head::{Head, Of, Singles};
use super::own::{Own, Pattern};
use super::queries::Queries;
use super::row::{Row, Saturation, Single, interpolation};
use crate::moments::ratio;
use crate::rules::attention::matrix::Matrix;
use crate::rules::softmax::Overlaps;

/// S2/(v Q_aa)² times this is the variance of φ from nodes, times that of the squares: 4 over their number.
const NOISE: f64 = 4.0 / 1024.0;

/// A row whose keys are followed in pairs.
struct Structure {
    saturation: Saturation,
    /// The first key in view, and of all in view T_bb/W_b² and the same of what passes.
    first: usize,
    grown: Vec<[f64; 2]>,
    /// Of all pairs of keys, where weights do not fall with distance.
    pattern: Option<Arc<Pattern>>,
}

impl Structure {
    /// Of a key, if it is in view.
    fn grown(&self, key: usize) -> Option<[f64; 2]> {
        key.checked_sub(self.first).and_then(|place| self.grown.get(place)).copied()
    }
}

impl Head {
    /// Rows as the structure of their keys makes them, in place of n_e equal ones: done for some rows and interpolated.
    pub(super) fn structured(
        &mut self,
        overlaps: &mut Overlaps,
        variance: f64,
        q: &Queries,
        (k, v): (&Matrix, &Matrix),
    ) {
        let decays = self.averages.decays();
        let furthest =
            |a: usize| variance * q.square(a) * self.apart(a, k, &self.key).map(|(_, own)| own).fold(0.0, f64::max);
        let structured: Vec<bool> =
            (0..self.rows.len()).map(|a| self.rows[a].is_structured(decays, furthest(a))).collect();
        if !structured.contains(&true) {
            return;
        }
        let places = self.averages.halves();
        let followed = |&a: &usize| structured[a].then(|| self.structure(a, variance * q.square(a), (k, v)));
        let followed: Vec<Option<Structure>> = places.par_iter().map(followed).collect();

        let mut rows = std::mem::take(&mut self.rows);
        let shares = || Matrix::zeros(rows.len(), k.rows);
        let mut singles = Singles { squares: shares(), passed: shares() };
        for (a, (below, part)) in interpolation(&places).into_iter().enumerate().filter(|(a, _)| structured[*a]) {
            let above = followed.get(below + 1).and_then(Option::as_ref);
            // Between two rows whose keys have no structure they have none to speak of.
            let Some(one) = followed[below].as_ref().or(above) else { continue };
            let other = above.unwrap_or(one);
            let exact = overlaps.sharp_row(rows[a].effective, rows[a].contrast);
            rows[a].saturate(&one.saturation.mixed(&other.saturation, part), &exact);
            self.single_keys(a, (one, other, part), &mut singles);
        }
        self.rows = rows;
        self.singles = Some(singles);
        if !decays {
            let patterns: Vec<_> = followed.into_iter().map(|row| row?.pattern).collect();
            self.own = Some(Own::new(&self.averages, &places, &patterns, structured));
        }
    }

    /// Of row `a`; `score` is the score variance of a key of second moment 1.
    fn structure(&self, a: usize, score: f64, (k, v): (&Matrix, &Matrix)) -> Structure {
        let (keys, weights): (Vec<usize>, Vec<f64>) = self.averages.weighted_keys(a).unzip();
        let n = keys.len();
        let centred = |x: &Matrix, averaged: &(Matrix, Matrix)| {
            let (average, own) = (averaged.0.row(a), averaged.1.row(a)[a]);
            Matrix::build(n, n, |i, j| x.row(keys[i])[keys[j]] - average[keys[i]] - average[keys[j]] + own)
        };
        let (k, v) = (centred(k, &self.key), centred(v, &self.value));
        let drawn = Drawn::new(&weights, [score, self.rows[a].contrast], (&k, &v));
        let [key, value] = [&k, &v].map(Matrix::diagonal);
        let moved: Vec<f64> = drawn.mean.iter().zip(&weights).map(|(mean, weight)| mean - weight).collect();
        let sum = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
        let squares = drawn.met.diagonal();

        let row = &self.rows[a];
        let trace = sum(&weights, &key);
        let unequal: f64 = weights.iter().zip(&key).map(|(weight, key)| weight * (key - trace) * key).sum();
        // Where all keys are as far nothing moves averages, and φ from nodes is noise. φ of equal keys is off by half of s − φ (where
        // every key has as many copies the response is s), and by as much as squares are unequal.
        let noise = NOISE * row.s2 / (score * score);
        let square_error = 0.25 * (row.value - row.shift).powi(2) + unequal / (trace * trace);
        let shift =
            (2.0 * sum(&moved, &key) * square_error / score + noise * row.shift) / (unequal * square_error + noise);
        let towards: f64 = keys.iter().zip(&moved).map(|(&b, moved)| moved * self.value.0.row(a)[b]).sum();
        let added = sum(&drawn.met.entries, &v.entries) + 2.0 * towards;
        let (spread, shifted) = (self.spread.row(a)[a], 2.0 * self.shift.row(a)[a] * shift);
        let seen = sum(&drawn.mean, &key) - sum(&drawn.met.entries, &k.entries);
        let own = row.effective - (row.effective - 1.0) * seen / trace;
        let flat: f64 = weights.iter().zip(&value).map(|(weight, value)| weight * weight * value).sum();
        let passed = drawn.passed.diagonal();
        let value_factor = if spread > 0.0 { (added / score - shifted) / spread } else { row.value };
        let slope = factor(drawn.spread, spread);
        let pattern = || Pattern {
            first: keys[0],
            mean: moved.iter().zip(&weights).map(|(moved, weight)| moved / weight).collect(),
            value: Matrix::build(n, n, |i, j| {
                let moved = shift * (0.5 * (key[i] + key[j]) - trace);
                let first = 1.0 + score * (value_factor * k.row(i)[j] + moved);
                drawn.met.row(i)[j] / (weights[i] * weights[j]) - first
            }),
            key: Matrix::build(n, n, |i, j| drawn.passed.row(i)[j] / (weights[i] * weights[j] * slope) - v.row(i)[j]),
        };
        // Two rows have in common what scores move where it is followed.
        let is_followed = !self.averages.decays();
        let common =
            if is_followed && spread > 0.0 { v.met(|i, j| moved[i] * moved[j]) / (score * spread) } else { 0.0 };
        Structure {
            pattern: is_followed.then(|| Arc::new(pattern())),
            saturation: Saturation {
                value: value_factor,
                shift,
                slope,
                first: factor(drawn.linear(&k, &v), spread).sqrt(),
                moved: common,
                // Far keys that are seen more often are no more alike.
                own: own.max(1.0),
                single: Single {
                    squares: squares.iter().sum::<f64>() * row.in_view,
                    slope: factor(passed.iter().sum(), flat),
                },
            },
            first: keys[0],
            grown: weights
                .iter()
                .zip(&squares)
                .zip(&passed)
                .map(|((weight, square), passed)| [square, passed].map(|of| of / (weight * weight)))
                .collect(),
        }
    }

    /// The shares of single keys in row `a`, from those of the rows before and after it.
    fn single_keys(&self, a: usize, (one, other, way): (&Structure, &Structure, f64), singles: &mut Singles) {
        let grown = |b: usize| match (one.grown(b), other.grown(b)) {
            (Some(one), Some(other)) => [0, 1].map(|k| one[k] * (1.0 - way) + other[k] * way),
            (seen, also) => seen.or(also).unwrap_or([1.0; 2]),
        };
        for (b, weight) in self.averages.weighted_keys(a) {
            let [squares, passed] = grown(b).map(|grown| weight * weight * grown);
            (singles.squares.row_mut(a)[b], singles.passed.row_mut(a)[b]) = (squares, passed);
        }
        for shares in [singles.squares.row_mut(a), singles.passed.row_mut(a)] {
            let total: f64 = shares.iter().sum();
            for share in shares {
                *share = ratio(*share, total).sqrt();
            }
        }
    }

    /// What single keys receive more than the first order says, from `more` of every query, what pairs of queries have of it
    /// by `met` and the roots of their `shares`; taken from all pairs, for the sum over all keys does not change.
    fn alone(
        &self,
        shares: &Matrix,
        more: impl Fn(usize, &Row) -> f64,
        met: impl Fn(usize, usize) -> f64 + Sync,
    ) -> Matrix {
        let n = self.rows.len();
        // One key in view has no pairs.
        let more = |(a, row): (usize, &Row)| ratio(more(a, row), 1.0 - row.in_view.recip());
        let more: Vec<f64> = self.rows.iter().enumerate().map(more).collect();
        let met = Matrix::symmetric(n, |a, c| {
            let both = more[a] * more[c];
            // What a row has with itself is that of all pairs of keys, where these are followed.
            let followed = a == c && self.own.is_some();
            if both > 0.0 && !followed { both.sqrt() * more[a].signum() * met(a, c) } else { 0.0 }
        });
        let own = quadratic(&met, shares);
        // As far as queries see the same keys.
        let of_pairs = met.zip(&self.averages.shared(), |met, shared| -met * shared);
        let mut alone = self.averages.right_transposed(&self.averages.left_transposed(&of_pairs));
        for (b, own) in own.into_iter().enumerate() {
            alone.row_mut(b)[b] += own;
        }
        alone
    }

    /// How much of what single keys of one query have beyond the first order two queries have in common.
    fn beyond(&self, q: &Queries, a: usize, c: usize) -> f64 {
        if a == c {
            return 1.0;
        }
        Of::WeightedSlope.series(&self.rows[a], &self.rows[c]).beyond(q.correlation(a, c))
    }

    /// The squares of keys or values less the average a query sees, with their weights; `averaged` are W X and P_X.
    pub(super) fn apart(&self, a: usize, x: &Matrix, averaged: &(Matrix, Matrix)) -> impl Iterator<Item = (f64, f64)> {
        let own = averaged.1.row(a)[a];
        self.averages.weighted_keys(a).map(move |(b, weight)| (weight, x.row(b)[b] - 2.0 * averaged.0.row(a)[b] + own))
    }

    /// What single values receive of `gradient`, Γ, beyond what the first order says; none where keys have no structure.
    pub(super) fn values_alone(&self, variance: f64, q: &Queries, k: &Matrix, gradient: &Matrix) -> Option<Matrix> {
        let more = |a: usize, row: &Row| row.beyond_squares(variance * q.square(a), self.apart(a, k, &self.key));
        let met = |a: usize, c: usize| gradient.row(a)[c] * q.correlation(a, c) * self.beyond(q, a, c);
        let singles = self.singles.as_ref()?;
        let mut alone = self.alone(&singles.squares, more, met);
        if let Some(own) = &self.own {
            let n = gradient.rows;
            let pairs = Matrix::build(n, n, |a, c| if a == c { 0.0 } else { gradient.row(a)[c] });
            let own_rows = own.summed(|a| gradient.row(a)[a], |pattern| &pattern.value);
            alone.add([&own_rows, &own.moved_backward(&self.averages, &pairs)], |[own, pair]| own + pair);
        }
        Some(alone)
    }

    /// The same of single keys.
    pub(super) fn keys_alone(&self, q: &Queries, v: &Matrix, gradient: &Matrix) -> Option<Matrix> {
        let more = |a: usize, row: &Row| row.beyond_slope(self.apart(a, v, &self.value));
        let met = |a: usize, c: usize| gradient.row(a)[c] * q.size(a, c) * q.cosine(a, c) * self.beyond(q, a, c);
        let singles = self.singles.as_ref()?;
        let mut alone = self.alone(&singles.passed, more, met);
        if let Some(own) = &self.own {
            let passed = |a: usize| gradient.row(a)[a] * q.square(a) * self.rows[a].weighted_slope;
            alone.add([&own.summed(passed, |pattern| &pattern.key)], |[own]| own);
        }
        Some(alone)
    }
}

/// The diagonal of Xᵀ M X, M being symmetric and the last entries of early rows of X zero.
fn quadratic(m: &Matrix, x: &Matrix) -> Vec<f64> {
    const BAND: usize = 128;
    let starts: Vec<usize> = (0..m.rows).step_by(BAND).collect();
    let band = |&start: &usize| {
        let end = (start + BAND).min(m.rows);
        let seen = |row: usize| x.row(row).iter().rposition(|entry| *entry != 0.0).map_or(0, |last| last + 1);
        let columns = (0..end).map(seen).max().unwrap_or(0);
        if columns == 0 {
            return Vec::new();
        }
        // Pairs of rows with one in the band and the other not after it.
        let met = |i: usize, j: usize| m.row(start + i)[j] * if j < start { 2.0 } else { 1.0 };
        let rows = Matrix::build(end, columns, |i, j| x.row(i)[j]);
        let through = Matrix::build(end - start, end, met).product(&rows);
        (0..columns).map(|b| (start..end).map(|a| x.row(a)[b] * through.row(a - start)[b]).sum::<f64>()).collect()
    };
    let bands: Vec<Vec<f64>> = starts.par_iter().map(band).collect();
    let mut diagonal = vec![0.0; x.columns];
    for band in bands {
        diagonal.iter_mut().zip(band).for_each(|(sum, part)| *sum += part);
    }
    diagonal
}

/// How much larger than what flat weights make; 1 of what cancels in them.
fn factor(got: f64, flat: f64) -> f64 {
    if flat > 0.0 && got > 0.0 { got / flat } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use nalgebra::{DMatrix, DVector};
    use rand::SeedableRng;
    use rand::rngs::ChaCha8Rng;
    use rand_distr::{Distribution, StandardNormal};
    use sigprop_stack::Mask;

    use super::*;
    use crate::domain::{Concentration, Signal};
    use crate::moments::Token;
    use crate::rules::attention::averages::Averages;
    use crate::rules::attention::concentration::Unequal;

    const N: usize = 48;

    /// Cosines of tokens to which averages of all before were added so many times.
    fn averaged(times: usize) -> DMatrix<f64> {
        let averages = DMatrix::from_fn(N, N, |a, b| if b <= a { 1.0 / (a + 1) as f64 } else { 0.0 });
        let mut products = DMatrix::identity(N, N);
        for _ in 0..times {
            products = &products + &averages * &products * averages.transpose();
        }
        DMatrix::from_fn(N, N, |i, j| products[(i, j)] / (products[(i, i)] * products[(j, j)]).sqrt())
    }

    /// κ of rotary positions of heads of 64 features.
    fn turned(distance: usize) -> f64 {
        let angles = (0..32).map(|pair| distance as f64 * 10_000f64.powf(-f64::from(pair) / 32.0));
        angles.map(f64::cos).sum::<f64>() / 32.0
    }

    /// D(A), and of single keys A² |v_b − z|², of the last row over draws of its scores at a score variance of 1.
    fn sampled(k: &DMatrix<f64>, v: &DMatrix<f64>) -> (f64, Vec<f64>) {
        const DRAWS: usize = 20_000;
        let eigen = k.clone().symmetric_eigen();
        let root = &eigen.eigenvectors * DMatrix::from_diagonal(&eigen.eigenvalues.map(|value| value.max(0.0).sqrt()));
        let (mut spread, mut keys) = (0.0, vec![0.0; N]);
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let products = k.component_mul(v);
        for _ in 0..DRAWS {
            let noise = DVector::from_fn(N, |_, _| StandardNormal.sample(&mut rng));
            let weights = (&root * noise).map(f64::exp);
            let a = &weights / weights.sum();
            let (along_k, along_v) = (k * &a, v * &a);
            let own = a.dot(&along_v);
            spread += a.dot(&(&products * &a)) - 2.0 * a.dot(&along_k.component_mul(&along_v)) + a.dot(&along_k) * own;
            for (b, key) in keys.iter_mut().enumerate() {
                *key += a[b] * a[b] * (v[(b, b)] - 2.0 * along_v[b] + own);
            }
        }
        (spread / DRAWS as f64, keys.into_iter().map(|key| key / DRAWS as f64).collect())
    }

    /// With rotated keys that were averaged eight times n_e equal keys are 14 % off, and the first key is 27 % too small.
    #[test]
    fn likeness_that_fades_is_followed() {
        let plain = |matrix: &DMatrix<f64>| Matrix::build(N, N, |i, j| matrix[(i, j)]);
        for times in [3, 8] {
            for rotated in [false, true] {
                let v = averaged(times);
                let turn = |i: usize, j: usize| if rotated { turned(i.abs_diff(j)) } else { 1.0 };
                let k = DMatrix::from_fn(N, N, |i, j| v[(i, j)] * turn(i, j));
                let tokens = vec![Token::gaussian(1e9, 0.0); N];
                let cosines: std::sync::Arc<[f64]> = vec![1.0; N * N].into();
                let signal = Signal::new(tokens.into(), cosines);
                let head = Head::new(
                    Averages::new(Mask::CAUSAL, N, N, 0.0),
                    &mut Overlaps::new(N as f64),
                    ([1e9, 1e-9], Unequal::of(&signal), Concentration::NONE),
                    1.0,
                    &Queries::of(&signal),
                    (&plain(&k), None),
                    &plain(&v),
                );
                let (last, row) = (N - 1, &head.rows[N - 1]);
                let (spread, keys) = sampled(&k, &v);
                approx::assert_relative_eq!(head.spread.row(last)[last] * row.slope, spread, max_relative = 0.04);
                let beyond = row.beyond_slope(head.apart(last, &plain(&v), &head.value));
                let flat: f64 =
                    head.apart(last, &plain(&v), &head.value).map(|(weight, apart)| weight * weight * apart).sum();
                let all = beyond + row.weighted_slope * flat;
                approx::assert_relative_eq!(all, keys.iter().sum::<f64>(), max_relative = 0.03);
                let first = head.singles.as_ref().expect("structured").passed.row(last)[0].powi(2);
                approx::assert_relative_eq!(first * all, keys[0], max_relative = 0.04);
            }
        }
    }
}
