//! The noise that finitely many entries add to the variables: the four-point function of one entry, over the width.
//!
//! ```text
//! M_abcd = E x_a x_b x_c x_d/(E x²)²
//! G_ab = x_a·x_b/n, in units of E x²      Cov(G_ab, G_cd) = (M_abcd − G_ab G_cd)/n
//! ```
//!
//! where M_abcd is the four-point function of one entry of tokens a, b, c, d; E is the average over random weights and
//! over features; x is one entry of the vector of a token; x_a, x_b, x_c, x_d are the vectors of tokens a, b, c, d, or
//! one entry of them; a, b, c, d are positions of tokens; G_ab is the product of tokens a and b, averaged over their
//! entries; Cov is a covariance over networks; n is the number of features.
//!
//! Tokens are exchangeable, so five numbers give all of M, and seven all of Cov. For Gaussian entries M follows from
//! Wick's theorem (Isserlis 1918). Covariance and drift in the variables (u, r) follow from Itô's formula, to order
//! 1/n.

use super::variables::{Matrix, R, R_A, R_AB, R_B, U, U_A, U_B, Vector};

/// The four-point function E x_a x_b x_c x_d of one entry of tokens a, b, c, d, in units of (E x²)².
#[derive(Clone, Copy, Debug)]
pub(crate) struct FourPoint {
    pub(crate) aaaa: f64,
    pub(crate) aaab: f64,
    pub(crate) aabb: f64,
    pub(crate) aabc: f64,
    pub(crate) abcd: f64,
}

/// Covariances of products of two tokens with products of two tokens: `aa_bc` is that of x_a² with x_b x_c.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Covariances {
    pub(crate) aa_aa: f64,
    pub(crate) aa_bb: f64,
    pub(crate) aa_ab: f64,
    pub(crate) aa_bc: f64,
    pub(crate) ab_ab: f64,
    pub(crate) ab_ac: f64,
    pub(crate) ab_cd: f64,
}

/// Covariances of products of two tokens' entries y with the gains f_a² and f_a f_b on their gradients. They are for
/// single entries, in units of E y² times the mean gain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GainCovariances {
    /// The covariances of y_a², y_b², y_a y_b and y_b y_c with f_a².
    pub(crate) own: [f64; 4],
    /// The covariances of y_a², y_c², y_a y_b, y_a y_c and y_c y_d with f_a f_b; `None` if E f_a f_b is zero.
    pub(crate) pair: Option<[f64; 5]>,
}

/// Noise that is added to the variables of one stream: its covariance, and the shift of their means.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noise {
    pub(crate) covariance: Matrix,
    pub(crate) drift: Vector,
}

impl FourPoint {
    /// The four-point function of entries that are 1.
    pub(crate) const ONE: Self = Self { aaaa: 1.0, aaab: 1.0, aabb: 1.0, aabc: 1.0, abcd: 1.0 };

    /// The four-point function of Gaussian entries of correlation `r`. `variance` is the variance of r over networks
    /// and pairs of tokens, which matters where r is small.
    pub(crate) fn gaussian(r: f64, variance: f64) -> Self {
        let r2 = r * r;
        Self { aaaa: 3.0, aaab: 3.0 * r, aabb: 1.0 + 2.0 * (r2 + variance), aabc: r + 2.0 * r2, abcd: 3.0 * r2 }
    }

    /// The four-point function of entries whose values for `length` tokens form a random direction. The values sum to
    /// zero, and all such directions are equally likely.
    pub(crate) fn direction(length: f64) -> Self {
        let rest = length - 1.0;
        let over = (rest * (rest + 2.0)).recip();
        Self {
            aaaa: 3.0 * rest * rest * over,
            aaab: -3.0 * rest * over,
            aabb: (rest * rest + 2.0) * over,
            aabc: (2.0 - rest) * over,
            abcd: 3.0 * over,
        }
    }

    /// Returns the four-point function of sums of entries with independent Gaussian weights, from the four-point function
    /// of the entries. Two random entries of a sum are `same`, or of one feature at two tokens (`neighbours`), with these
    /// probabilities; other pairs are independent. `gaussian` is the result if all pairs are.
    pub(crate) fn weighted_sums(self, [same, neighbours]: [f64; 2], gaussian: Self) -> Self {
        let sum = |gaussian: f64, one: f64, two: f64| {
            (1.0 - same - neighbours) * gaussian + 3.0 * same * one + neighbours * two
        };
        let Self { aaaa, aaab, aabb, aabc, abcd } = self;
        Self {
            aaaa: sum(gaussian.aaaa, aaaa, 3.0 * aabb),
            aaab: sum(gaussian.aaab, aaab, 3.0 * aabc),
            aabb: sum(gaussian.aabb, aabb, aabb + 2.0 * abcd),
            aabc: sum(gaussian.aabc, aabc, aabc + 2.0 * abcd),
            abcd: sum(gaussian.abcd, abcd, 3.0 * abcd),
        }
    }

    /// Returns the four-point function of products of the entries with the independent entries of `other`.
    pub(crate) fn times(self, other: Self) -> Self {
        Self {
            aaaa: self.aaaa * other.aaaa,
            aaab: self.aaab * other.aaab,
            aabb: self.aabb * other.aabb,
            aabc: self.aabc * other.aabc,
            abcd: self.abcd * other.abcd,
        }
    }

    /// Returns the four-point function of entries that are divided by 1 − p with probability 1 − p, and zero otherwise.
    pub(crate) fn masked(self, p: f64) -> Self {
        let kept = 1.0 - p;
        Self { aaaa: self.aaaa / kept, aabc: self.aabc * kept, abcd: self.abcd * kept * kept, ..self }
    }

    /// Returns the covariances of products of single entries, whose correlation is `r`.
    pub(crate) fn covariances(self, r: f64) -> Covariances {
        Covariances {
            aa_aa: self.aaaa - 1.0,
            aa_bb: self.aabb - 1.0,
            aa_ab: self.aaab - r,
            aa_bc: self.aabc - r,
            ab_ab: self.aabb - r * r,
            ab_ac: self.aabc - r * r,
            ab_cd: self.abcd - r * r,
        }
    }
}

impl Covariances {
    /// The covariances of the cross terms x_a f_b + f_a x_b in the products of x + f, for two uncorrelated signals x
    /// and f. `both` is the product of the shares of x and f in the second moment of x + f. `a` is the cosine between
    /// two tokens of x, and `b` that between two tokens of f; `joint` is the covariance of these cosines over networks.
    pub(crate) fn crossed(both: f64, [a, b]: [f64; 2], joint: f64) -> Self {
        let product = a * b;
        Self {
            aa_aa: 4.0 * both,
            aa_bb: 4.0 * both * (product + joint),
            aa_ab: 2.0 * both * (a + b),
            aa_bc: 4.0 * both * product,
            ab_ab: 2.0 * both * (1.0 + product),
            ab_ac: both * (a + b + 2.0 * product),
            ab_cd: 4.0 * both * product,
        }
    }

    /// Subtracts the covariances of entries that are the same in all networks, which are `share` of E x² and have the
    /// correlation `of_fixed`.
    pub(crate) fn less_fixed(self, [share, of_fixed]: [f64; 2]) -> Self {
        let fixed = FourPoint::gaussian(of_fixed, 0.0).covariances(of_fixed);
        let less = |all: f64, fixed: f64| all - share * share * fixed;
        Self {
            aa_aa: less(self.aa_aa, fixed.aa_aa),
            aa_bb: less(self.aa_bb, fixed.aa_bb),
            aa_ab: less(self.aa_ab, fixed.aa_ab),
            aa_bc: less(self.aa_bc, fixed.aa_bc),
            ab_ab: less(self.ab_ab, fixed.ab_ab),
            ab_ac: less(self.ab_ac, fixed.ab_ac),
            ab_cd: less(self.ab_cd, fixed.ab_cd),
        }
    }

    /// Returns the covariance matrix of (G_aa, G_bb, G_ab), of the averages of G_ab over b and over a, and of the
    /// averages of G_aa and G_ab over `length` tokens.
    pub(crate) fn matrix(self, length: f64) -> Matrix {
        let [others, rest] = [1.0, 2.0].map(|taken| (length - taken).max(0.0));
        let last = (length - 3.0).max(0.0);
        let each = others.max(1.0);
        let squares = (self.aa_aa + others * self.aa_bb) / length;
        let crossed = if others > 0.0 { (2.0 * self.aa_ab + rest * self.aa_bc) / length } else { 0.0 };
        let products = (2.0 * self.ab_ab + rest * (4.0 * self.ab_ac + last * self.ab_cd)) / (length * each);
        let square_row = (self.aa_ab + rest * self.aa_bc) / each;
        let product_row = (self.ab_ab + rest * self.ab_ac) / each;
        let two_rows = (self.ab_ab + rest * (3.0 * self.ab_ac + last * self.ab_cd)) / (each * each);
        let mut matrix = Matrix::zeros();
        let mut set = |i: usize, j: usize, value: f64| (matrix[(i, j)], matrix[(j, i)]) = (value, value);
        for (a, b, row_a, row_b) in [(U_A, U_B, R_A, R_B), (U_B, U_A, R_B, R_A)] {
            set(a, a, self.aa_aa);
            set(a, b, self.aa_bb);
            set(a, R_AB, self.aa_ab);
            set(a, row_a, self.aa_ab);
            set(a, row_b, square_row);
            set(R_AB, row_a, product_row);
            set(row_a, row_a, product_row);
            set(row_a, row_b, two_rows);
            for (of, with_all, with_pairs) in [(a, squares, crossed), (row_a, crossed, products)] {
                set(of, U, with_all);
                set(of, R, with_pairs);
            }
        }
        set(R_AB, R_AB, self.ab_ab);
        for (of, with_all, with_pairs) in [(R_AB, crossed, products), (U, squares, crossed), (R, crossed, products)] {
            set(of, U, with_all);
            set(of, R, with_pairs);
        }
        matrix
    }

    /// Returns the noise that averages over `width` entries add to the variables, for `length` tokens of correlation
    /// `r`.
    pub(crate) fn noise(self, width: f64, length: f64, r: f64) -> Noise {
        let moments = self.matrix(length) / width;
        let jacobian = jacobian(r);
        Noise { covariance: jacobian * moments * jacobian.transpose(), drift: drift(r, &moments) }
    }
}

impl GainCovariances {
    /// The covariances of the entries of y = f g with their gains, where f is the gain on the gradient of g. The
    /// entries of f and g are independent; `of_factor` is the correlation of f, `r` that of g.
    pub(crate) fn of_factor(factor: &FourPoint, of_factor: f64, r: f64) -> Self {
        let both = r * of_factor;
        let own = [factor.aaaa - 1.0, factor.aabb - 1.0, r * factor.aaab - both, r * factor.aabc - both];
        let pair = (of_factor.abs() > 1e-9).then(|| {
            let over = |moment: f64| moment / of_factor;
            let products = [factor.aabb, factor.aabc, factor.abcd].map(|moment| r * over(moment) - both);
            [over(factor.aaab) - 1.0, over(factor.aabc) - 1.0, products[0], products[1], products[2]]
        });
        Self { own, pair }
    }

    /// Returns the covariances of both gains with (G_aa, G_bb, G_ab) and the averages of G_aa and G_ab over `length`
    /// tokens.
    pub(crate) fn vectors(&self, length: f64) -> [Vector; 2] {
        let [others, rest, last] = [1.0, 2.0, 3.0].map(|taken| (length - taken).max(0.0));
        let each = others.max(1.0);
        let mut with = [Vector::zeros(); 2];
        let [aa, bb, ab, bc] = self.own;
        let own = &mut with[0];
        (own[U_A], own[U_B], own[R_AB], own[R_A]) = (aa, bb, ab, ab);
        own[R_B] = (ab + rest * bc) / each;
        own[U] = (aa + others * bb) / length;
        own[R] = (2.0 * ab + rest * bc) / length;
        if let Some([aa, cc, ab, ac, cd]) = self.pair {
            let pair = &mut with[1];
            let row = (ab + rest * ac) / each;
            (pair[U_A], pair[U_B], pair[R_AB], pair[R_A], pair[R_B]) = (aa, aa, ab, row, row);
            pair[U] = (2.0 * aa + rest * cc) / length;
            pair[R] = (2.0 * ab + rest * (4.0 * ac + last * cd)) / (length * each);
        }
        with
    }
}

/// Returns a shift of all levels u by `level` and of all correlations by `correlation`.
pub(crate) fn shift([level, correlation]: [f64; 2]) -> Vector {
    Vector::from_fn(|variable, _| if [U_A, U_B, U].contains(&variable) { level } else { correlation })
}

impl Noise {
    pub(crate) fn none() -> Self {
        Self { covariance: Matrix::zeros(), drift: Vector::zeros() }
    }

    /// Returns true if there is no noise.
    pub(crate) fn is_none(&self) -> bool {
        self.covariance == Matrix::zeros()
    }
}

/// The correlations G_ab/√(G_aa G_bb): the index of G_ab and those of G_aa and G_bb, for tokens or averages.
const PRODUCTS: [(usize, usize, usize); 3] = [(R_AB, U_A, U_B), (R_A, U_A, U), (R_B, U_B, U)];

/// Returns the derivatives of the variables by (G_aa, G_bb, G_ab), by the averages of G_ab over b and over a, and by
/// the averages of G_aa and G_ab.
fn jacobian(r: f64) -> Matrix {
    let mut jacobian = Matrix::identity();
    for (product, first, second) in PRODUCTS {
        jacobian[(product, first)] = -0.5 * r;
        jacobian[(product, second)] = -0.5 * r;
    }
    jacobian[(R, U)] = -r;
    jacobian
}

/// Returns the shift of the means of the variables: half the contraction of their second derivatives by the products G
/// with `moments`, the covariance of the products.
fn drift(r: f64, moments: &Matrix) -> Vector {
    let mut drift = Vector::zeros();
    for level in [U_A, U_B, U] {
        drift[level] = -0.5 * moments[(level, level)];
    }
    for (product, a, b) in PRODUCTS {
        let squares = 0.75 * r * (moments[(a, a)] + moments[(b, b)]) + 0.5 * r * moments[(a, b)];
        drift[product] = 0.5 * (squares - moments[(product, a)] - moments[(product, b)]);
    }
    drift[R] = r * moments[(U, U)] - moments[(R, U)];
    drift
}

/// Converts covariances with (G_aa, G_bb, G_ab) and their averages to covariances with the variables, at correlation
/// `r`.
pub(crate) fn in_variables(moments: Vector, r: f64) -> Vector {
    jacobian(r) * moments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finite_width::variables::VARIABLES;

    /// Returns the products of tokens a and b and the averages over all, from the products of four tokens.
    fn averages(gram: &[[f64; 4]; 4]) -> Vector {
        let row = |a: usize| (0..4).filter(|&b| b != a).map(|b| gram[a][b]).sum::<f64>() / 3.0;
        let mut all = Vector::zeros();
        (all[U_A], all[U_B], all[R_AB]) = (gram[0][0], gram[1][1], gram[0][1]);
        (all[R_A], all[R_B]) = (row(0), row(1));
        all[U] = (0..4).map(|a| gram[a][a]).sum::<f64>() / 4.0;
        all[R] = (0..4).map(row).sum::<f64>() / 4.0;
        all
    }

    /// Covariances of averages over tokens are averages of the covariances of all products, by Wick's theorem.
    #[test]
    fn covariances_of_averages_are_averages_of_covariances() {
        let r = 0.3;
        let cosine = |a: usize, b: usize| if a == b { 1.0 } else { r };
        let wick = |[a, b]: [usize; 2], [c, d]: [usize; 2]| cosine(a, c) * cosine(b, d) + cosine(a, d) * cosine(b, c);
        let expected = |i: usize, j: usize| {
            let with = |[a, b]: [usize; 2]| {
                let gram = std::array::from_fn(|c| std::array::from_fn(|d| wick([a, b], [c, d])));
                averages(&gram)[j]
            };
            let gram = std::array::from_fn(|a| std::array::from_fn(|b| with([a, b])));
            averages(&gram)[i]
        };
        let matrix = FourPoint::gaussian(r, 0.0).covariances(r).matrix(4.0);
        for i in 0..VARIABLES {
            for j in 0..VARIABLES {
                let expected = expected(i, j);
                assert!((matrix[(i, j)] - expected).abs() < 1e-12, "{i} {j}: {} {expected}", matrix[(i, j)]);
            }
        }
    }

    /// Directions sum to zero over the batch and have one length.
    #[test]
    fn directions_have_no_sum_and_one_length() {
        let (length, others) = (6.0, 5.0);
        let FourPoint { aaaa, aaab, aabb, aabc, abcd } = FourPoint::direction(length);
        assert!((aaaa + others * aabb - length).abs() < 1e-12);
        assert!((aaaa + others * aaab).abs() < 1e-12);
        assert!((2.0 * aaab + (length - 2.0) * aabc + length / others).abs() < 1e-12);
        assert!((aabb + aaab + (length - 2.0) * aabc).abs() < 1e-12);
        assert!((3.0 * aabc + (length - 3.0) * abcd).abs() < 1e-12);
    }

    /// The mean square χ²_n/n of n Gaussian entries of variance 1: to order 1/n, its logarithm ln(χ²_n/n) has the mean
    /// −1/n and the variance 2/n.
    #[test]
    fn logarithms_of_squares_are_lower_on_average() {
        let noise = FourPoint::gaussian(0.5, 0.0).covariances(0.5).noise(100.0, 8.0, 0.5);
        assert!((noise.covariance[(U_A, U_A)] - 0.02).abs() < 1e-12);
        assert!((noise.drift[U_A] + 0.01).abs() < 1e-12);
        // Cosines have the variance (1 − r²)²/n.
        assert!((noise.covariance[(R_AB, R_AB)] - 0.75 * 0.75 / 100.0).abs() < 1e-12);
    }

    /// Entries that are the same in all networks add no noise. Entries x = s + e, with s fixed and e Gaussian, have the
    /// covariances of this sum.
    #[test]
    fn what_is_fixed_draws_nothing() {
        let of = |r: f64, fixed: [f64; 2]| FourPoint::gaussian(r, 0.0).covariances(r).less_fixed(fixed);
        let fixed = of(0.4, [1.0, 0.4]).matrix(8.0);
        assert!(fixed.abs().max() < 1e-12, "{fixed}");
        // Half of E x² is fixed and equal in all tokens, half is independent: Cov(x_a², x_a²) = 2 e⁴ + 4 s² e²,
        // e² = s² = ½.
        let half = of(0.5, [0.5, 1.0]);
        assert!((half.aa_aa - 1.5).abs() < 1e-12);
        // Cov(x_a x_b, x_a x_b) = e⁴ + 2 s² e², Cov(x_a x_b, x_c x_d) = 0.
        assert!((half.ab_ab - 0.75).abs() < 1e-12);
        assert!(half.ab_cd.abs() < 1e-12);
    }
}
