//! Corrections of one attention's averages for heads of finite width and inputs of finite width.
//!
//! ```text
//! output z_a·z_c   R + (A + C)·o + d A·(I + ε)C                   value   A·C
//! query            v d² tr J_a(I + ε)J_c(I + ε)                   key     v d Q_ac tr J_a(I + ε)J_c
//! ```
//!
//! where z_a, z_c are the averages of the inputs with the rows A and C, before the map of the values; A, C are the rows
//! of attention weights of tokens a and c; R is the mean correlation of two different tokens of the sequence; o is the
//! vector of the overlaps o_b of keys b with the common part of all tokens; d is 1 − R; I is the identity matrix; ε is
//! the matrix of the fluctuations ε_bd of the products of the inputs of keys b and d; v is the variance E s² of the
//! scores; J_a, J_c are the Jacobians diag A − A Aᵀ and diag C − C Cᵀ of the softmax; Q_ac is the entry for tokens a
//! and c of the Gram matrix Q of the queries of one head; w is the variance v d of the scores without the common part
//! of a row; γ, η are the variances Var ε_bd and Var ε_bb; tr is the trace of a matrix.
//!
//! The first entry is the product of two outputs; the others are the factors on gradients along the paths of values,
//! queries and keys. The inputs of the keys have the products (1 − R)(I + ε), apart from o. Given Q and ε, scores are
//! Gaussian with covariance Q ⊗ (I + ε) w. The averages are computed to second order in all fluctuations.
//!
//! Q fluctuates like a Wishart matrix of `d_head` degrees of freedom. The inputs of keys act on scores like γ more of
//! these fluctuations, and change the kurtosis of scores where the lengths of inputs are fixed (η ≠ 2γ).
//! Source: Muirhead 1982, section 3.2 (moments of Wishart matrices).

use super::super::noise::Covariances;
use super::averages::Averages;

/// The parameters of one attention and its input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inputs {
    /// The variance E s² of scores.
    pub(crate) score: f64,
    /// R, the correlation of two tokens of the input.
    pub(crate) correlation: f64,
    /// The number of keys.
    pub(crate) keys: f64,
    pub(crate) d_head: f64,
    /// p/(1 − p), if a weight is dropped with the probability p.
    pub(crate) dropped: f64,
    /// γ, the variance of ε_bd, the fluctuation of the product of the inputs of two different keys b and d.
    pub(crate) gamma: f64,
    /// η, the variance of ε_bb, the fluctuation of the squared input of a key b.
    pub(crate) eta: f64,
    /// The variance of the overlaps o_b of keys b with the common part of all tokens.
    pub(crate) common: f64,
    /// The covariance of o_b, the overlap of key b with the common part of all tokens, with ε_bb.
    pub(crate) common_square: f64,
    /// The variance of the cosine between the inputs of two queries, minus the variance of the average of all such
    /// cosines over the sequence.
    pub(crate) pairs: f64,
    /// The variance of ln |x|² for the input x of one query, minus the variance of ln of the average of |x|² over the
    /// sequence.
    pub(crate) squares: f64,
}

/// Factors on gradients along one path (queries, keys or values x): from |g_a|² (`own_`) and from g_a·g_b (`pair_`) at
/// the output to |g_x|² (`_own`) and to g_x·g_x' (`_pair`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Path {
    pub(crate) own_own: f64,
    pub(crate) pair_own: f64,
    pub(crate) own_pair: f64,
    pub(crate) pair_pair: f64,
}

impl Path {
    /// Returns the factors at this share of the way to `other`.
    pub(super) fn towards(&self, other: &Self, share: f64) -> Self {
        let between = |from: f64, to: f64| if share < 1.0 { from + share * (to - from) } else { to };
        Self {
            own_own: between(self.own_own, other.own_own),
            pair_own: between(self.pair_own, other.pair_own),
            own_pair: between(self.own_pair, other.own_pair),
            pair_pair: between(self.pair_pair, other.pair_pair),
        }
    }
}

/// The second moments of the output of an attention, and the factors on gradients along queries, keys and values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Corrected {
    /// E z_a·z_a and E z_a·z_c for the outputs z of two tokens a and c.
    pub(crate) output: [f64; 2],
    pub(crate) paths: [Path; 3],
    /// Additions to |g_x|² of a query x and to g_x·g_x' of two queries that come from products of two different keys
    /// (see `Inputs::products_of_keys`).
    pub(crate) of_products: [f64; 2],
}

/// Covariances of the entries of Q, the Gram matrix of the queries of tokens a and c: Var Q_aa, Cov(Q_aa, Q_cc),
/// Cov(Q_aa, Q_ac), Var Q_ac.
#[derive(Clone, Copy)]
struct Queries([f64; 4]);

impl Queries {
    /// The covariances of a Wishart matrix of correlation `rho`, times its degrees of freedom.
    fn wishart(rho: f64) -> Self {
        Self([2.0, 2.0 * rho * rho, 2.0 * rho, 1.0 + rho * rho])
    }

    fn times(self, factor: f64) -> Self {
        Self(self.0.map(|of| of * factor))
    }

    fn plus(self, other: Self) -> Self {
        Self(std::array::from_fn(|index| self.0[index] + other.0[index]))
    }

    /// Returns the covariance of two functions of Q with these derivatives with respect to Q_aa, Q_cc and Q_ac.
    fn covariance(self, [a, c, r]: [f64; 3], [a2, c2, r2]: [f64; 3]) -> f64 {
        let Self([own, both, with, pair]) = self;
        own * (a * a2 + c * c2) + both * (a * c2 + c * a2) + with * ((a + c) * r2 + r * (a2 + c2)) + pair * r * r2
    }

    /// Returns ½ ∇∇f:S, the shift that these covariances S cause in the mean of a function f of Q. f is symmetric in
    /// tokens a and c. The arguments are the second derivatives of f: twice with respect to Q_aa, to Q_aa and Q_cc, to
    /// Q_aa and Q_ac, and twice to Q_ac.
    fn bend(self, [aa, ac, ar, rr]: [f64; 4]) -> f64 {
        let Self([own, both, with, pair]) = self;
        aa * own + ac * both + 2.0 * ar * with + 0.5 * rr * pair
    }
}

/// Covariances of S and X of the attention weights of one head with other quantities, in the letters of `averages.rs`.
/// The first letter of a name is S or X. The rest is the other quantity: S, X, T' (`_tt`), Q_ac T' (`_key`), and for
/// `t` either T (after S) or T' (after X).
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowCovariances {
    pub(crate) ss: f64,
    pub(crate) st: f64,
    pub(crate) sx: f64,
    pub(crate) s_tt: f64,
    pub(crate) s_key: f64,
    pub(crate) xx: f64,
    pub(crate) xt: f64,
    pub(crate) x_key: f64,
}

impl Inputs {
    /// Returns the derivatives of A·(I + ε)A with respect to Q_aa, and of A·(I + ε)C with respect to Q_aa and Q_ac.
    /// Rows prefer keys that are similar, which adds the terms of γ.
    fn slopes(&self, of: &Averages) -> [f64; 3] {
        let gamma = self.gamma;
        [of.s_a + gamma * of.pull_a, of.x_a + gamma * of.pull_pair_a, of.x_r + gamma * of.pull_pair_r]
    }

    /// Returns the term of finite width in the derivative of A·(I + ε)C with respect to Q_ac.
    pub(crate) fn row_slope(&self, of: &Averages) -> f64 {
        self.gamma * of.pull_pair_r
    }

    /// Returns the covariances of S and X that random scores and the fluctuations of Q cause.
    pub(crate) fn row_covariances(&self, of: &Averages) -> RowCovariances {
        let rho = self.correlation;
        let queries = Queries::wishart(rho).times(self.d_head.recip());
        let with = |a: [f64; 3], b: [f64; 3]| queries.covariance(a, b);
        let (s, t) = ([self.slopes(of)[0], 0.0, 0.0], [of.t_a, 0.0, 0.0]);
        let [_, x_a, x_r] = self.slopes(of);
        let (x, tt) = ([x_a, x_a, x_r], [of.tt_a, of.tt_a, of.tt_r]);
        let key = [rho * of.tt_a, rho * of.tt_a, of.tt + rho * of.tt_r];
        let (s_tt, xt) = (of.s_tt - of.s * of.tt, of.xt - of.x * of.tt);
        RowCovariances {
            ss: of.ss - of.s * of.s + with(s, s),
            st: of.st - of.s * of.t + with(s, t),
            sx: of.sx - of.s * of.x + with(s, x),
            s_tt: s_tt + with(s, tt),
            s_key: rho * s_tt + with(s, key),
            xx: of.xx - of.x * of.x + 2.0 * self.gamma * of.x_pull + with(x, x),
            xt: xt + with(x, tt),
            x_key: rho * xt + with(x, key),
        }
    }

    /// Returns the covariances of A_a·(I + ε)A_c + (A_a + A_c)·o for all tokens a, c. They come from scores, from Q,
    /// from the products ε of keys, and from the overlaps o of keys with the common part of all tokens.
    pub(crate) fn scatter(&self, of: &Averages) -> Covariances {
        let &Self { gamma, common, keys, correlation: rho, d_head, .. } = self;
        let RowCovariances { ss, sx, xx, .. } = self.row_covariances(of);
        // S of one row less 1/L, because averages over all keys have no part of ε and o.
        let own = of.s - keys.recip();
        let (products, overlaps) = (gamma * own * own, common * own);
        // Covariances with Q of other tokens, by Wick's theorem.
        let ([a, x, r], r2) = (self.slopes(of), 2.0 * rho * rho);
        Covariances {
            aa_aa: ss + 2.0 * products + 4.0 * overlaps,
            aa_bb: of.sc - of.s * of.s + a * a * r2 / d_head,
            aa_ab: sx + 2.0 * overlaps,
            aa_bc: a * (2.0 * x + r) * r2 / d_head,
            ab_ab: xx + products + 2.0 * overlaps,
            ab_ac: overlaps
                + (x * x * (2.0 + 3.0 * r2) + 2.0 * x * r * (2.0 * rho + r2) + r * r * (rho + rho * rho)) / d_head,
            ab_cd: (2.0 * x + r).powi(2) * r2 / d_head,
        }
    }

    /// Returns d = 1 − R and the variance w = v d of scores without the common part of a row.
    fn apart(&self) -> [f64; 2] {
        let d = 1.0 - self.correlation;
        [d, self.score * d]
    }

    /// Returns the second moments of the output and the factors on gradients at infinite width.
    pub(crate) fn bare(&self, of: &Averages) -> Corrected {
        let [d, _] = self.apart();
        let rho = self.correlation;
        let output = [of.s, of.x].map(|overlap| rho + d * overlap);
        self.corrected(output, [of.s, of.x], [of.t, rho * of.tt], [of.t, of.tt], [0.0; 2])
    }

    /// Returns the second moments of the output and the factors on gradients at finite width. `gathered` is true for
    /// the factors of keys and values, whose gradients are sums over queries: it includes the fluctuations of single
    /// queries.
    pub(crate) fn corrected_by(&self, of: &Averages, gathered: bool) -> Corrected {
        let &Self { gamma, eta, common_square, correlation: rho, .. } = self;
        let [d, _] = self.apart();
        let single = if gathered {
            let lengths = [self.squares, 0.0, 0.5 * rho * self.squares, self.pairs + 0.5 * rho * rho * self.squares];
            Queries(lengths)
        } else {
            Queries([0.0; 4])
        };
        let own = Queries::wishart(rho).times(self.d_head.recip()).plus(single);
        let all = own.plus(Queries::wishart(rho).times(gamma));
        let excess = (eta - 2.0 * gamma) / 8.0;
        let s = of.s + 0.5 * of.s_aa * all.0[0] + excess * of.s_kurtosis;
        let t = of.t + 0.5 * of.t_aa * all.0[0] + excess * of.t_kurtosis;
        let x = of.x + all.bend([of.x_aa, of.x_ac, of.x_ar, of.x_rr]) + excess * of.x_kurtosis;
        let tt = of.tt + all.bend([of.tt_aa, of.tt_ac, of.tt_ar, of.tt_rr]) + excess * of.tt_kurtosis;
        // Terms of one factor ε together with its effect on scores.
        let met = gamma * (of.u - of.squares) + 0.5 * eta * (of.squares - of.t);
        let met_pair = gamma * of.u_pair + 0.5 * eta * (of.squares_pair - 2.0 * of.tt);
        let output = [
            s + gamma * of.pull + 0.5 * eta * (of.longer_square - of.s) + common_square * of.longer,
            x + gamma * of.pull_pair + 0.5 * eta * (of.longer_pair - 2.0 * of.x) + common_square * of.longer_other,
        ];
        let Queries([variance, _, with, pair]) = own;
        let key = t + of.t_a * variance + met;
        let key_pair = rho * (tt + met_pair) + 2.0 * with * of.tt_a + pair * of.tt_r;
        let query = [t + eta * (of.squares - of.t), tt + eta * (of.squares_pair - 2.0 * of.tt)];
        let output = output.map(|overlap| rho + d * overlap);
        self.corrected(output, [s, x], [key, key_pair], query, self.products_of_keys(of))
    }

    /// Returns the contributions of products of two different keys to E |g|² and E g·g' of queries, in units of
    /// d² E s². They come from ε_bd² at any average correlation of keys, from ε_bd together with the scores of both
    /// keys, which ε_bd correlates, and, with a factor 1/`d_head`, from the components of both keys along the query.
    fn products_of_keys(&self, of: &Averages) -> [f64; 2] {
        let &Self { gamma, eta, d_head, .. } = self;
        let own = (1.0 - 2.0 * of.s + of.ss) + of.t - 2.0 * of.diagonal + 2.0 * (of.u - of.squares);
        let pair = (1.0 - 2.0 * of.s + of.sc) + of.tt - 2.0 * of.diagonal_pair + 2.0 * of.u_pair;
        let along_query = (of.u - of.t) / d_head;
        [gamma * own + eta * of.diagonal + along_query, gamma * pair + eta * of.diagonal_pair]
    }

    fn corrected(
        &self,
        output: [f64; 2],
        [s, x]: [f64; 2],
        key: [f64; 2],
        query: [f64; 2],
        squares: [f64; 2],
    ) -> Corrected {
        let ([d, w], others) = (self.apart(), self.keys - 1.0);
        // Rows add up to 1, so products of two tokens lose as much as single tokens gain.
        let gathered = |own: f64, pair: f64, total: f64| Path {
            own_own: own,
            pair_own: others * pair,
            own_pair: (total - own) / others,
            pair_pair: total - pair,
        };
        let [of_query, of_products] = [query, squares].map(|factors| factors.map(|of| self.score * d * d * of));
        let query = Path { own_own: of_query[0], pair_pair: of_query[1], ..Path::default() };
        // Dropout masks multiply A·A by 1/(1 − p), with the full lengths of inputs. Products of two keys stay the same.
        let output = [output[0] + self.dropped * s, output[1]];
        let paths = [query, gathered(w * key[0], w * key[1], 0.0), gathered(s, x, 1.0)];
        Corrected { output, paths, of_products }
    }

    /// Returns n times the part of |g|² at the input that W_Q, W_K and W_V cause together, in addition to the sum over
    /// their single paths. The first two numbers are for keys and values, per |g_a|² and per g_a·g_b of the output; the
    /// third is for queries.
    pub(crate) fn excess(&self, of: &Averages) -> [f64; 3] {
        let ([d, w], &Self { correlation: rho, score, .. }) = (self.apart(), self);
        let own = 2.0 * w.sqrt() * of.lean + 2.0 * w * of.t_a;
        let pair = 2.0 * w.sqrt() * of.lean_pair + w * (4.0 * rho * of.tt_a + (1.0 + rho * rho) * of.tt_r);
        [own, pair, score * d * d * (of.u - of.t)]
    }

    /// Returns four contributions, in units of n E x² E g² at the output: to E c_bb² from |g_a|² and from g_a·g_b, then
    /// to E c_bb c_b'b from each of these two. Here c_ab = x_a·g_b are products of signals and gradients.
    pub(crate) fn products(&self, of: &Averages) -> [f64; 4] {
        let ([d, w], &Self { correlation: rho, score, .. }) = (self.apart(), self);
        let (root, vr) = (w.sqrt(), score * rho);
        let own = of.s + 2.0 * d * root * of.own_z + d * w * (of.squares + of.u) + d * vr * of.t;
        let own_pair = of.x + 2.0 * d * root * of.own_pair_z + d * w * of.own_pair_zy + d * vr * rho * of.tt;
        let cross = 1.0 - of.s + d * root * of.cross_z + d * w * of.cross_zz + d * vr * of.cross_one;
        let cross_pair = 1.0 - of.x
            + d * root * (of.cross_pair_z - of.cross_pair_y)
            + d * w * of.cross_pair_zy
            + d * vr * rho * of.cross_pair_one;
        [own, own_pair, cross, cross_pair]
    }
}
