//! Averages over rows of attention weights that corrections for finite heads and inputs need, per score variance and
//! correlation.
//!
//! ```text
//! J = diag A − A Aᵀ      S = A·A      X = A·C      T = tr JJ      T' = tr J_a J_c      m = A·z
//! ```
//!
//! where A, C are two rows of attention weights over independent keys, of the queries of tokens a and c; J, J_a are the
//! Jacobian of the softmax at the row A; J_c is the Jacobian of the softmax at the row C; S is the overlap of a row
//! with itself; X is the overlap of two rows; T is the squared norm of the Jacobian of a row; T' is the product of the
//! Jacobians of two rows; m is the mean standardised score under the weights A; z is the vector of the scores of the
//! row A, divided by their standard deviation; diag A is the diagonal matrix of the entries of A; tr is the trace of a
//! matrix; w is the variance of the scores; ρ is the correlation of the scores of both rows at one key; Q is the Gram
//! matrix of both queries.
//!
//! Derivatives are by Q, at Q_aa = Q_cc = 1 and Q_ac = ρ.

use std::collections::HashMap;
use std::sync::{LazyLock, PoisonError, RwLock};

use super::rows::{H2, H4, Monomial, RowPair, mono};

macro_rules! averages {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Averages over rows of attention weights, at one variance of scores and one correlation of the scores of two
        /// rows.
        #[derive(Clone, Copy, Debug, Default)]
        pub(crate) struct Averages { $($(#[$doc])* pub(crate) $name: f64),* }

        impl Averages {
            /// Returns the weighted sum of `parts`, each a weight and its averages.
            pub(crate) fn mixed(parts: &[(f64, Self)]) -> Self {
                Self { $($name: parts.iter().map(|(weight, part)| weight * part.$name).sum()),* }
            }
        }
    };
}

averages! {
    /// E S for the overlap S of a row with itself, and its first and second derivatives with respect to Q_aa.
    s, s_a, s_aa,
    /// E T for the squared norm T of the Jacobian of a row, and its first and second derivatives with respect to Q_aa.
    t, t_a, t_aa,
    /// Covariances of S and of T with Σ_b (z_b⁴ − 6z_b² + 3), a sum over keys b. They give the effect of the kurtosis
    /// of scores on E S and E T.
    s_kurtosis, t_kurtosis,
    /// E X for the overlap X of the rows of tokens a and c; its derivatives with respect to Q_aa (a), Q_cc (c) and Q_ac
    /// (r); the effect of the kurtosis of scores on it.
    x, x_a, x_r, x_aa, x_ac, x_ar, x_rr, x_kurtosis,
    /// E T' for the product T' of the Jacobians of two rows, its derivatives and the effect of kurtosis, named like
    /// those of E X.
    tt, tt_a, tt_r, tt_aa, tt_ac, tt_ar, tt_rr, tt_kurtosis,
    /// Expectations of S², S_aS_c, S X, X², S T, X T' and S T', in the letters of the file header. S_a and S_c are S of
    /// the two rows.
    ss, sc, sx, xx, st, xt, s_tt,
    /// Expectations of |J z|² (`u`), of Σ_b (J²)_bb z_b² (`squares`) and of Σ_b (J_bb)² (`diagonal`), for the Jacobian
    /// J of the softmax and the standardised scores z of a row.
    u, squares, diagonal,
    /// `pull` is E [m² − Σ A²z²], and `pull_a` is its derivative with respect to Q_aa; `longer` is E Σ A z² − 1;
    /// `longer_square` is E Σ A²z². Here m = Σ A z, for the weights A and the standardised scores z of a row.
    pull, pull_a, longer, longer_square,
    /// E Σ_b A_b r_b² − 2, where r_b² = Σ_i z_i² is the sum of squares of the two whitened scores z_i of key b.
    longer_other,
    /// `pull_pair` is E [Σ_i A·z_i C·z_i − Σ AC r²], then come its derivatives with respect to Q_aa and Q_ac; `x_pull`
    /// is the covariance of X with the bracket; `longer_pair` is E Σ AC r². Here z_i are the two whitened scores of a
    /// key and r² = Σ_i z_i².
    pull_pair, pull_pair_a, pull_pair_r, x_pull, longer_pair,
    /// Expectations of Σ_i z_i·J_aJ_c z_i − Σ_b (J_aJ_c)_bb r_b² (`u_pair`), of Σ_b (J_aJ_c)_bb r_b² (`squares_pair`)
    /// and of Σ_b (J_a)_bb (J_c)_bb (`diagonal_pair`), for the two whitened scores z_i and r² = Σ_i z_i² per key.
    u_pair, squares_pair, diagonal_pair,
    /// Expectations of Σ A²(z − m) (`lean`), Σ AC(z − m) (`lean_pair`) and Σ A²(A − S)² (`along`), which are sums over
    /// keys.
    lean, lean_pair, along,
    /// Averages that enter E c_bb² and E c_bb c_b'b, where c_ab = x_a·g_b are products of signals and gradients: see
    /// `Inputs::products` in `gains.rs`.
    own_z, own_pair_z, own_pair_zy, cross_z, cross_zz, cross_one, cross_pair_z, cross_pair_y, cross_pair_zy, cross_pair_one,
}

/// A key of `CORNERS`: the indices of a corner on the grid of ln w and of ρ, and the bits of the number of keys.
type Corner = (i64, i64, u64);

/// A cache of the averages at the corners of the grid, shared by the whole process.
static CORNERS: LazyLock<RwLock<HashMap<Corner, Averages>>> = LazyLock::new(RwLock::default);

impl Averages {
    /// Returns the averages of rows of `keys` keys whose scores have the variance `w` and the correlation `rho`,
    /// interpolated linearly between the corners of a grid in ln w and ρ.
    pub(crate) fn at(w: f64, rho: f64, keys: f64) -> Self {
        /// The distances between corners in ln w and in ρ.
        const STEPS: [f64; 2] = [0.25, 0.0625];
        /// The smallest ln w of the grid. At smaller values all weights of a row are almost equal.
        const FLAT: f64 = -9.0;
        /// The largest ρ of the grid. Closer to 1, the differences between two rows are lost in rounding.
        const LARGEST: f64 = 0.9375;
        let steps = [w.ln().max(FLAT) / STEPS[0], rho.clamp(0.0, LARGEST) / STEPS[1]];
        let mut parts = Vec::with_capacity(4);
        for (first, second) in [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)] {
            let corner = [steps[0].floor() + first, steps[1].floor() + second];
            let weight = (1.0 - (steps[0] - corner[0]).abs()) * (1.0 - (steps[1] - corner[1]).abs());
            if weight > 0.0 {
                let key = (corner[0] as i64, corner[1] as i64, keys.to_bits());
                let known = CORNERS.read().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
                let corner = known.unwrap_or_else(|| {
                    let new = Self::new((corner[0] * STEPS[0]).exp(), corner[1] * STEPS[1], keys);
                    CORNERS.write().unwrap_or_else(PoisonError::into_inner).insert(key, new);
                    new
                });
                parts.push((weight, corner));
            }
        }
        Self::mixed(&parts)
    }
}

/// Returns E X and E T' of a pair of rows: the means of their overlap and of the product of their Jacobians.
fn pair(rows: &RowPair) -> [f64; 2] {
    let x = rows.mean(&[(1.0, &[AC])]);
    [x, x + rows.mean(&[(-1.0, &[A2C]), (-1.0, &[AC2]), (1.0, &[AC, AC])])]
}

/// Returns the expectation of (Σ_i A·z_i C·z_i − Σ AC r²) times the product of the sums `with`. Here z_i are the two
/// whitened scores of a key and r² = Σ_i z_i².
fn pull_pair(rows: &RowPair, with: &[Monomial]) -> f64 {
    let rho = rows.correlation();
    let e = |sums: &[Monomial]| rows.mean(&[(1.0, &[sums, with].concat())]);
    let white = |zz: f64, yy: f64, zy: f64| (zz + yy - 2.0 * rho * zy) / (1.0 - rho * rho);
    let zy = 0.5 * (e(&[z(1, 0), y(0, 1)]) + e(&[y(1, 0), z(0, 1)]));
    let met = white(e(&[z(1, 0), z(0, 1)]), e(&[y(1, 0), y(0, 1)]), zy);
    met - white(e(&[zz(1, 1)]), e(&[mono(1, 1, 0, 2)]), e(&[self::zy(1, 1)]))
}

/// Returns E of (A·z)² − Σ A²z² of the first row.
fn pull(rows: &RowPair) -> f64 {
    rows.mean(&[(1.0, &[z(1, 0), z(1, 0)]), (-1.0, &[zz(2, 0)])])
}

/// Returns E S and E T of the first row: the means of its overlap with itself and of the squared norm of its Jacobian.
fn single(rows: &RowPair) -> [f64; 2] {
    let s = rows.mean(&[(1.0, &[A2])]);
    [s, s + rows.mean(&[(-2.0, &[A3]), (1.0, &[A2, A2])])]
}

const A2: Monomial = mono(2, 0, 0, 0);
const A3: Monomial = mono(3, 0, 0, 0);
const A4: Monomial = mono(4, 0, 0, 0);
const C: Monomial = mono(0, 1, 0, 0);
const C2: Monomial = mono(0, 2, 0, 0);
const AC: Monomial = mono(1, 1, 0, 0);
const A2C: Monomial = mono(2, 1, 0, 0);
const AC2: Monomial = mono(1, 2, 0, 0);
const A2C2: Monomial = mono(2, 2, 0, 0);

/// The monomial A^i C^j z with the powers i = `a` and j = `c`.
const fn z(a: u8, c: u8) -> Monomial {
    mono(a, c, 1, 0)
}

/// The monomial A^i C^j z².
const fn zz(a: u8, c: u8) -> Monomial {
    mono(a, c, 2, 0)
}

/// The monomial A^i C^j z y.
const fn zy(a: u8, c: u8) -> Monomial {
    mono(a, c, 1, 1)
}

/// The monomial A^i C^j y.
const fn y(a: u8, c: u8) -> Monomial {
    mono(a, c, 0, 1)
}

/// Returns the covariance of the product of the sums `of` with Σ (r⁴ − 8r² + 8), r² = (z² + y² − 2ρ z y)/(1 − ρ²): the
/// effect of kurtosis of the scores of a key.
fn kurtosis(rows: &RowPair, rho: f64, of: &[Monomial]) -> f64 {
    let scale = 1.0 - rho * rho;
    let squares = [(2, 0, 1.0), (0, 2, 1.0), (1, 1, -2.0 * rho)].map(|(p, q, factor)| (p, q, -8.0 * factor / scale));
    let both = 2.0 + 4.0 * rho * rho;
    let fourths = [(4, 0, 1.0), (0, 4, 1.0), (2, 2, both), (3, 1, -4.0 * rho), (1, 3, -4.0 * rho)]
        .map(|(p, q, factor)| (p, q, factor / (scale * scale)));
    let weights = squares.into_iter().chain(fourths);
    weights.map(|(p, q, factor)| factor * rows.covariance(of, mono(0, 0, p, q))).sum()
}

impl Averages {
    /// Integrates the averages of rows of `keys` keys whose scores have the variance `w` and the correlation `rho`.
    pub(crate) fn new(w: f64, rho: f64, keys: f64) -> Self {
        let rows = RowPair::new([w, w], rho, keys);
        let mut averages = Self::default();
        averages.derive(&rows, w, rho, keys);
        averages.of_one(&rows);
        averages.of_two(&rows, rho);
        averages.mixed_products(&rows);
        averages
    }

    /// Sets the expectations of S, T, X and T', and all derivatives, by finite differences.
    fn derive(&mut self, rows: &RowPair, w: f64, rho: f64, keys: f64) {
        // With these steps Q stays positive definite.
        let step = (0.3 * (1.0 - rho * rho)).min(0.15);
        let turn = (0.3 * (1.0 - rho.abs())).min(0.05);
        let at = |a: f64, c: f64, r: f64| {
            let scales = [1.0 + step * a, 1.0 + step * c];
            let correlation = (rho + turn * r) / (scales[0] * scales[1]).sqrt();
            RowPair::new(scales.map(|scale| w * scale), correlation, keys)
        };
        let (above, below) = (at(1.0, 0.0, 0.0), at(-1.0, 0.0, 0.0));
        let single = [single(&below), single(rows), single(&above)];
        let pairs = [pair(&below), pair(rows), pair(&above)];
        let both = [-1.0, 1.0].map(|side| pair(&at(side, side, 0.0)));
        let turned = [-1.0, 1.0].map(|side| at(0.0, 0.0, side));
        let pulls = turned.each_ref().map(|rows| pull_pair(rows, &[]));
        self.pull_pair_r = (pulls[1] - pulls[0]) / (2.0 * turn);
        let turned = turned.map(|rows| pair(&rows));
        let with = [-1.0, 1.0].map(|side| pair(&at(side, 0.0, side)));
        self.pull_a = (pull(&above) - pull(&below)) / (2.0 * step);
        self.pull_pair_a = (pull_pair(&above, &[]) - pull_pair(&below, &[])) / (2.0 * step);
        let slope = |[below, _, above]: [f64; 3], step: f64| (above - below) / (2.0 * step);
        let bend = |[below, middle, above]: [f64; 3], step: f64| (above + below - 2.0 * middle) / (step * step);
        let of_one = |index: usize| {
            let values = single.map(|values| values[index]);
            [values[1], slope(values, step), bend(values, step)]
        };
        [self.s, self.s_a, self.s_aa] = of_one(0);
        [self.t, self.t_a, self.t_aa] = of_one(1);
        let of_two = |index: usize| {
            let values = pairs.map(|values| values[index]);
            let ends = |ends: &[[f64; 2]; 2]| [ends[0][index], values[1], ends[1][index]];
            let (both, turned, with) = (ends(&both), ends(&turned), ends(&with));
            let aa = bend(values, step);
            let rr = bend(turned, turn);
            let ac = 0.5 * bend(both, step) - aa;
            // The second difference along (h, k) is h² f_aa + 2hk f_ar + k² f_rr.
            let ar = (bend(with, 1.0) - step * step * aa - turn * turn * rr) / (2.0 * step * turn);
            [values[1], slope(values, step), slope(turned, turn), aa, ac, ar, rr]
        };
        [self.x, self.x_a, self.x_r, self.x_aa, self.x_ac, self.x_ar, self.x_rr] = of_two(0);
        [self.tt, self.tt_a, self.tt_r, self.tt_aa, self.tt_ac, self.tt_ar, self.tt_rr] = of_two(1);
    }

    /// Sets the averages that depend on one row alone.
    fn of_one(&mut self, rows: &RowPair) {
        let e = |terms: &[super::rows::Term<'_>]| rows.mean(terms);
        let h4 = mono(0, 0, H4, 0);
        self.s_kurtosis = e(&[(1.0, &[A2, h4])]);
        self.t_kurtosis = self.s_kurtosis + e(&[(-2.0, &[A3, h4]), (1.0, &[A2, A2, h4])]);
        self.ss = e(&[(1.0, &[A2, A2])]);
        self.st = self.ss + e(&[(-2.0, &[A2, A3]), (1.0, &[A2, A2, A2])]);
        self.longer_square = e(&[(1.0, &[zz(2, 0)])]);
        self.u = self.longer_square + e(&[(-2.0, &[z(1, 0), z(2, 0)]), (1.0, &[z(1, 0), z(1, 0), A2])]);
        self.squares = self.longer_square + e(&[(-2.0, &[zz(3, 0)]), (1.0, &[zz(2, 0), A2])]);
        self.diagonal = e(&[(1.0, &[A2]), (-2.0, &[A3]), (1.0, &[A4])]);
        self.pull = pull(rows);
        self.longer = e(&[(1.0, &[mono(1, 0, H2, 0)])]);
        self.lean = e(&[(1.0, &[z(2, 0)]), (-1.0, &[z(1, 0), A2])]);
        self.along = e(&[(1.0, &[A4]), (-2.0, &[A3, A2]), (1.0, &[A2, A2, A2])]);
    }

    /// Sets the averages that depend on both rows.
    fn of_two(&mut self, rows: &RowPair, rho: f64) {
        let e = |terms: &[super::rows::Term<'_>]| rows.mean(terms);
        let white = |zz: f64, zy: f64| (2.0 * zz - 2.0 * rho * zy) / (1.0 - rho * rho);
        self.sc = e(&[(1.0, &[A2, C2])]);
        self.sx = e(&[(1.0, &[A2, AC])]);
        self.xx = e(&[(1.0, &[AC, AC])]);
        self.xt = self.xx + e(&[(-2.0, &[AC, A2C]), (1.0, &[AC, AC, AC])]);
        self.s_tt = self.sx + e(&[(-1.0, &[A2, A2C]), (-1.0, &[A2, AC2]), (1.0, &[A2, AC, AC])]);
        let [zz_a, yy_a, zy_a] = [zz(1, 0), mono(1, 0, 0, 2), zy(1, 0)].map(|f| e(&[(1.0, &[f, C])]));
        self.longer_other = (zz_a + yy_a - 2.0 * rho * zy_a) / (1.0 - rho * rho) - 2.0;
        let [zz_ac, zy_ac] = [zz(1, 1), zy(1, 1)].map(|f| e(&[(1.0, &[f])]));
        self.longer_pair = white(zz_ac, zy_ac);
        self.pull_pair = pull_pair(rows, &[]);
        self.x_pull = pull_pair(rows, &[AC]) - self.x * self.pull_pair;
        let squares_zz = zz_ac + e(&[(-1.0, &[zz(2, 1)]), (-1.0, &[zz(1, 2)]), (1.0, &[zz(1, 1), AC])]);
        let squares_zy = zy_ac + e(&[(-1.0, &[zy(2, 1)]), (-1.0, &[zy(1, 2)]), (1.0, &[zy(1, 1), AC])]);
        self.squares_pair = white(squares_zz, squares_zy);
        // J_a f · J_c g = Σ AC f g − A·f Σ AC g − C·g Σ AC f + A·f C·g X.
        let u_zz =
            zz_ac + e(&[(-1.0, &[z(1, 0), z(1, 1)]), (-1.0, &[z(0, 1), z(1, 1)]), (1.0, &[z(1, 0), z(0, 1), AC])]);
        let u_zy = zy_ac
            + 0.5 * e(&[(-1.0, &[z(1, 0), y(1, 1)]), (-1.0, &[y(0, 1), z(1, 1)]), (1.0, &[z(1, 0), y(0, 1), AC])])
            + 0.5 * e(&[(-1.0, &[y(1, 0), z(1, 1)]), (-1.0, &[z(0, 1), y(1, 1)]), (1.0, &[y(1, 0), z(0, 1), AC])]);
        self.u_pair = white(u_zz, u_zy) - self.squares_pair;
        self.diagonal_pair = self.x + e(&[(-1.0, &[A2C]), (-1.0, &[AC2]), (1.0, &[A2C2])]);
        self.lean_pair = e(&[(1.0, &[z(1, 1)]), (-1.0, &[z(1, 0), AC])]);
        self.x_kurtosis = kurtosis(rows, rho, &[AC]);
        let of_squares = -kurtosis(rows, rho, &[A2C]) - kurtosis(rows, rho, &[AC2]);
        self.tt_kurtosis = self.x_kurtosis + of_squares + kurtosis(rows, rho, &[AC, AC]);
    }

    /// Sets the averages that enter E c_bb² and E c_bb c_b'b, where c_ab = x_a·g_b are products of signals and
    /// gradients.
    fn mixed_products(&mut self, rows: &RowPair) {
        let e = |terms: &[super::rows::Term<'_>]| rows.mean(terms);
        self.own_z = e(&[(1.0, &[z(2, 0)]), (-1.0, &[z(3, 0)])]);
        self.own_pair_z = e(&[(1.0, &[z(1, 1)]), (-1.0, &[z(2, 1)])]);
        let zy_squares = [(-1.0, &[zy(2, 1)][..]), (-1.0, &[zy(1, 2)]), (1.0, &[zy(1, 1), AC])];
        let zy_one = e(&[(1.0, &[zy(1, 1)])]);
        self.own_pair_zy = zy_one + e(&zy_squares);
        self.cross_z = e(&[(1.0, &[z(1, 0)]), (-3.0, &[z(2, 0)]), (2.0, &[z(3, 0)])]);
        self.cross_zz = e(&[(-1.0, &[zz(2, 0)]), (-1.0, &[zz(2, 0), A2]), (2.0, &[zz(3, 0)])]);
        self.cross_one = e(&[(-1.0, &[A2]), (-1.0, &[A2, A2]), (2.0, &[A3])]);
        self.cross_pair_z = e(&[(1.0, &[z(1, 0)]), (-1.0, &[z(2, 0)]), (-1.0, &[z(1, 1)]), (1.0, &[z(2, 1)])]);
        self.cross_pair_y = e(&[(1.0, &[mono(1, 1, 0, 1)]), (-1.0, &[mono(1, 2, 0, 1)])]);
        let products = [(-1.0, &[zy(1, 1), AC][..]), (1.0, &[zy(1, 2)]), (1.0, &[zy(2, 1)])];
        self.cross_pair_zy = e(&products) - zy_one;
        self.cross_pair_one = e(&[(-1.0, &[AC]), (-1.0, &[AC, AC]), (1.0, &[AC2]), (1.0, &[A2C])]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Derivatives by the scale of one row and by the correlation of both agree with Gaussian averages weighted by
    /// polynomials.
    #[test]
    fn derivatives_are_those_of_weights() {
        let (w, rho, keys) = (1.5, 0.3, 32.0);
        let averages = Averages::new(w, rho, keys);
        let rows = RowPair::new([w, w], rho, keys);
        // E f Σ (z² − 1) = 2 f_a of one row.
        let weighted = rows.mean(&[(1.0, &[A2, mono(0, 0, H2, 0)])]);
        assert!((weighted - 2.0 * averages.s_a).abs() < 2e-3, "{weighted} {}", averages.s_a);
        // E f Σ (z y − ρ) = 4ρ f_a + (1 + ρ²) f_ρ of two.
        let weighted = rows.mean(&[(1.0, &[AC, zy(0, 0)])]) - rho * keys * averages.x;
        let expected = 4.0 * rho * averages.x_a + (1.0 + rho * rho) * averages.x_r;
        assert!((weighted - expected).abs() < 2e-3, "{weighted} {expected}");
        // ΣA = 1.
        let total = rows.mean(&[(1.0, &[mono(1, 0, 0, 0), C, AC])]);
        assert!((total - averages.x).abs() < 1e-3);
    }
}
