//! Averages over two rows of attention weights of independent keys.
//!
//! ```text
//! E Π_k Σ_b f_k(b) = ∫∫ dt du t^(n_A−1) u^(n_C−1)/(Γ(n_A) Γ(n_C))
//!                    Σ_partitions L!/(L − n_blocks)! Π_blocks μ(t, u) M(t, u)^(L − n_blocks)
//!
//! f_k = A^i C^j z^p y^q      A_b = e^(s_b)/Z      μ(t, u) = E e^(i s + j s') z^p y^q e^(−t e^s − u e^s')
//! ```
//!
//! where E is the average over random weights and over features; b is the position of a key; k is an index of the sums
//! over keys that are multiplied; f_k is a monomial of one key; A, C are two rows of attention weights over independent
//! keys, of the queries of tokens a and c; s, s' are the scores of one key in the rows A and C; Z is the sum Σ_b
//! e^(s_b) of the softmax; z, y are the scores s and s' divided by their standard deviations; i, j, p, q are the powers
//! of A, C, z and y in a monomial; n_A, n_C are the sums of the powers of A and of C over all k; t, u are the
//! integration variables that replace the sums of the softmax of A and of C; Γ is the gamma function; L is the number
//! of keys; Σ_partitions is the sum over all partitions of the indices k into blocks; n_blocks is the number of blocks
//! of a partition; Π_blocks is the product over the blocks of a partition; μ is the expectation for the product of the
//! monomials in one block; M is μ for the monomial 1, thus for a key outside the blocks.
//!
//! The scores of a key are Gaussian, of variances w_a and w_c and correlation ρ. The formula is exact except for the
//! trapezoidal rule.
//!
//! Source: 1/Zⁿ as an integral, Gross & Mézard 1984 (the random energy model).

use std::cell::RefCell;
use std::rc::Rc;

use foldhash::HashMap;
use nalgebra::DMatrix;
use smallvec::SmallVec;

use crate::quadrature::{density, trapezoidal_nodes};

/// A^i C^j f(z) g(y) of one key, in the notation of the header of this file. `a` and `c` are the powers i and j; `z`
/// and `y` are the codes of the functions f and g: a power, `H2` or `H4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Monomial {
    a: u8,
    c: u8,
    z: u8,
    y: u8,
}

/// The code of z² − 1. Smaller codes are powers of a score z.
pub(super) const H2: u8 = 5;
/// The code of z⁴ − 6z² + 3.
pub(super) const H4: u8 = 6;

/// Returns the monomial A^i C^j f(z) g(y). `a` and `c` are i and j; `z` and `y` are the codes of f and g.
pub(super) const fn mono(a: u8, c: u8, z: u8, y: u8) -> Monomial {
    Monomial { a, c, z, y }
}

impl Monomial {
    /// Returns the product of two monomials of the same key. For each score, the two functions must be powers, or one
    /// of them must be 1.
    fn times(self, other: Self) -> Self {
        Self { a: self.a + other.a, c: self.c + other.c, z: self.z + other.z, y: self.y + other.y }
    }
}

/// One term of a polynomial in sums over keys: a factor, and the monomials f_k whose sums Σ_b f_k(b) are multiplied.
pub(super) type Term<'t> = (f64, &'t [Monomial]);

/// Returns the value at the score `z` of the function that has the code `function`.
fn of_score(function: u8, z: f64) -> f64 {
    match function {
        H2 => z * z - 1.0,
        H4 => (z * z - 6.0) * z * z + 3.0,
        power => z.powi(power.into()),
    }
}

/// The distance of nodes in ln t. Second differences of averages have relative errors of 10⁻³ at this distance, and of
/// a hundredth at 0.65.
const STEP: f64 = 0.55;

/// One row of weights: the functions (t e^s)^i f(z) e^(−t e^s) of the score s = σz of a key, and their expectations.
struct ScoreRow {
    /// The nodes in z and their weights.
    scores: Vec<(f64, f64)>,
    /// t e^s at the nodes of z (rows) and of ln t (columns).
    levels: DMatrix<f64>,
    /// e^(−t e^s) at the nodes of z (rows) and of ln t (columns).
    left: DMatrix<f64>,
    /// The probabilities of the nodes in z (columns) given x (rows), the common part of the scores of both rows.
    given: DMatrix<f64>,
    /// The expectations of functions given x, at the nodes of x (rows) and of ln t (columns), by the power i and the
    /// code of f.
    moments: RefCell<HashMap<[u8; 2], Rc<DMatrix<f64>>>>,
}

impl ScoreRow {
    fn new(variance: f64, loading: f64, keys: f64, shared: &[(f64, f64)]) -> Self {
        /// The largest score in standard deviations.
        const REACH: f64 = 7.5;
        let std = variance.sqrt();
        let own = (1.0 - loading * loading).sqrt();
        let spacing = (0.7 / std).min(0.8 * own);
        let scores = trapezoidal_nodes(spacing, REACH);
        let [levels, left] = vanishing(std, keys, &scores);
        let given = DMatrix::from_fn(shared.len(), scores.len(), |x, z| {
            spacing / own * density((scores[z].0 - loading * shared[x].0) / own)
        });
        Self { scores, levels, left, given, moments: RefCell::default() }
    }

    /// Returns (t e^s)^i f(z) e^(−t e^s) at the nodes of z (rows) and of ln t (columns).
    fn function(&self, [power, function]: [u8; 2]) -> DMatrix<f64> {
        let of_scores: Vec<f64> = self.scores.iter().map(|&(z, _)| of_score(function, z)).collect();
        let mut values = self.left.clone();
        (0..power).for_each(|_| values.component_mul_assign(&self.levels));
        for at_time in values.as_mut_slice().chunks_exact_mut(of_scores.len()) {
            at_time.iter_mut().zip(&of_scores).for_each(|(value, of_score)| *value *= of_score);
        }
        values
    }

    /// Returns the expectation over z of the function with this power and code, one column per node of ln t.
    fn expectations(&self, function: [u8; 2]) -> DMatrix<f64> {
        let values = self.function(function);
        let at_time =
            |t: usize| values.column(t).iter().zip(&self.scores).map(|(value, (_, weight))| value * weight).sum();
        DMatrix::from_fn(1, values.ncols(), |_, t| at_time(t))
    }

    /// Returns the expectations of a function given x, at the nodes of x (rows) and of ln t (columns).
    fn moments(&self, function: [u8; 2]) -> Rc<DMatrix<f64>> {
        let new = || Rc::new(&self.given * self.function(function));
        Rc::clone(self.moments.borrow_mut().entry(function).or_insert_with(new))
    }
}

/// Returns t e^s and e^(−t e^s) at nodes of scores (rows) and of t (columns). ln t is evenly spaced, from where Z t is
/// small to where e^(−Z t) is negligible.
fn vanishing(std: f64, keys: f64, scores: &[(f64, f64)]) -> [DMatrix<f64>; 2] {
    /// −ln of the largest Z t that is omitted below, and of the largest e^(−Z t) that is omitted above.
    const ENDS: [f64; 2] = [13.0, 36.0];
    /// The largest number of keys in the blocks of a partition.
    const IN_BLOCKS: f64 = 6.0;
    /// The largest t e^s. Beyond it e^(−t e^s) underflows, and so does its product with any power of t e^s.
    const LARGEST: f64 = 750.0;
    let exponentials: Vec<f64> = scores.iter().map(|&(z, _)| (std * z).exp()).collect();
    let (mut levels, mut left) = (Vec::new(), Vec::new());
    let mut ln_t = -keys.ln() - 0.5 * std * std - ENDS[0];
    loop {
        let (t, start) = (ln_t.exp(), levels.len());
        levels.extend(exponentials.iter().map(|of| (t * of).min(LARGEST)));
        left.extend(levels[start..].iter().map(|level| (-level).exp()));
        let mean: f64 = left[start..].iter().zip(scores).map(|(left, &(_, weight))| left * weight).sum();
        if (keys - IN_BLOCKS).max(1.0) * mean.ln() < -ENDS[1] {
            break;
        }
        ln_t += STEP;
    }
    [levels, left].map(|of| DMatrix::from_vec(scores.len(), of.len() / scores.len(), of))
}

/// Tables on a grid of nodes, by key. A key is a monomial or a number of blocks, and a flag: true if the grid spans ln
/// t of both rows, false if it spans ln t of the first row alone.
type Cache<K> = RefCell<HashMap<(K, bool), Rc<DMatrix<f64>>>>;

/// Two rows of attention weights over `keys` keys, with caches of the integrals over them.
pub(super) struct RowPair {
    keys: f64,
    correlation: f64,
    both: [Rc<ScoreRow>; 2],
    /// The weights of the nodes in x, the common part of the scores of both rows.
    shared: Vec<f64>,
    /// μ of every monomial, on the grid of ln t of both rows or of the first row alone.
    grids: Cache<Monomial>,
    /// M (μ of the monomial 1) to the power of the number of keys outside the blocks, by the number of blocks.
    others: Cache<usize>,
    /// The averages of products of sums that were already computed.
    products: RefCell<HashMap<SmallVec<[Monomial; 5]>, f64>>,
}

impl RowPair {
    pub(super) fn new(variances: [f64; 2], correlation: f64, keys: f64) -> Self {
        let loading = correlation.abs().sqrt();
        // Both rows depend on their common part through functions that are as wide as e^(−t e^s), blurred by each row's
        // own part.
        let std = variances[0].max(variances[1]).sqrt();
        let blurred = ((1.0 - correlation.abs()) / (1.0 + correlation.abs())).sqrt();
        let shared = trapezoidal_nodes((1.0 / (std * loading)).max(1.5 * blurred).min(0.9), 7.0);
        let row = |variance: f64, loading: f64| Rc::new(ScoreRow::new(variance, loading, keys, &shared));
        let first = row(variances[0], loading);
        let is_alike = variances[0].to_bits() == variances[1].to_bits() && correlation >= 0.0;
        let second = if is_alike { Rc::clone(&first) } else { row(variances[1], loading * correlation.signum()) };
        let shared = shared.iter().map(|&(_, weight)| weight).collect();
        let (grids, others, products) = (RefCell::default(), RefCell::default(), RefCell::default());
        Self { keys, correlation, both: [first, second], shared, grids, others, products }
    }

    /// Returns the correlation of the scores of both rows.
    pub(crate) fn correlation(&self) -> f64 {
        self.correlation
    }

    /// Returns E of a polynomial in sums over keys.
    pub(super) fn mean(&self, terms: &[Term<'_>]) -> f64 {
        terms.iter().map(|&(factor, sums)| factor * self.product(sums)).sum()
    }

    /// Returns the covariance of a product of sums with the sum of a function of scores over all keys.
    pub(super) fn covariance(&self, sums: &[Monomial], function: Monomial) -> f64 {
        let with = self.product(&[sums, &[function]].concat());
        // The expectation of the function is that at Gaussian scores, for every key.
        with - self.product(sums) * self.keys * self.of_scores(function)
    }

    /// Returns E of a function of the scores of one key.
    fn of_scores(&self, function: Monomial) -> f64 {
        self.product(&[function, mono(1, 0, 0, 0), mono(0, 1, 0, 0)]) / self.keys
    }

    /// Returns E of a product of sums. Each product is computed once.
    fn product(&self, sums: &[Monomial]) -> f64 {
        let mut sorted = SmallVec::from(sums);
        sorted.sort_unstable();
        if let Some(&known) = self.products.borrow().get(&sorted) {
            return known;
        }
        let new = self.integrated(&sorted);
        self.products.borrow_mut().insert(sorted, new);
        new
    }

    fn integrated(&self, sums: &[Monomial]) -> f64 {
        let power = |of: fn(&Monomial) -> u8| sums.iter().map(|sum| usize::from(of(sum))).sum::<usize>();
        let (a, c) = (power(|sum| sum.a), power(|sum| sum.c));
        let is_pair = c > 0 || sums.iter().any(|sum| sum.y > 0);
        assert!(a > 0 && (c > 0 || !is_pair), "every row that is averaged over has a power");
        let mut total = 0.0;
        partitions(sums, &mut Vec::new(), &mut |blocks| {
            let choices: f64 = (0..blocks.len()).map(|taken| self.keys - taken as f64).product();
            if choices > 0.0 {
                let others = self.others(blocks.len(), is_pair);
                let grids: SmallVec<[_; 6]> = blocks.iter().map(|&block| self.grid(block, is_pair)).collect();
                total += choices * summed(&others, &grids);
            }
        });
        // Without powers of C, u is zero and the second row is not integrated over.
        let of_pair = if c > 0 { STEP / factorial(c - 1) } else { 1.0 };
        total * STEP / factorial(a - 1) * of_pair
    }

    /// Returns M^(L − m) on the grid, where M is μ of the monomial 1, L is the number of keys and m = `blocks`.
    fn others(&self, blocks: usize, is_pair: bool) -> Rc<DMatrix<f64>> {
        if let Some(powers) = self.others.borrow().get(&(blocks, is_pair)) {
            return Rc::clone(powers);
        }
        let one = self.grid(mono(0, 0, 0, 0), is_pair);
        let powers = Rc::new(if blocks == 0 {
            one.map(|one| one.powf(self.keys))
        } else {
            self.others(blocks - 1, is_pair).component_div(&one)
        });
        self.others.borrow_mut().insert((blocks, is_pair), Rc::clone(&powers));
        powers
    }

    fn grid(&self, monomial: Monomial, is_pair: bool) -> Rc<DMatrix<f64>> {
        let new = || {
            let ([first, second], of) = (&self.both, monomial);
            let grid = if is_pair {
                let mut own = first.moments([of.a, of.z]).transpose();
                own.column_iter_mut().zip(&self.shared).for_each(|(mut column, &weight)| column *= weight);
                own * &*second.moments([of.c, of.y])
            } else {
                first.expectations([of.a, of.z])
            };
            Rc::new(grid)
        };
        Rc::clone(self.grids.borrow_mut().entry((monomial, is_pair)).or_insert_with(new))
    }
}

/// Returns the sum over all entries of the product of `others` and every grid at the same index. The usual cases of one
/// to three grids are unrolled, so that compilers vectorise them.
fn summed(others: &DMatrix<f64>, grids: &[Rc<DMatrix<f64>>]) -> f64 {
    let others = others.as_slice();
    let grids: SmallVec<[&[f64]; 6]> = grids.iter().map(|grid| grid.as_slice()).collect();
    match &*grids {
        [a] => others.iter().zip(*a).map(|(of, a)| of * a).sum(),
        [a, b] => others.iter().zip(*a).zip(*b).map(|((of, a), b)| of * a * b).sum(),
        [a, b, c] => others.iter().zip(*a).zip(*b).zip(*c).map(|(((of, a), b), c)| of * a * b * c).sum(),
        _ => (0..others.len()).map(|at| grids.iter().fold(others[at], |of, grid| of * grid[at])).sum(),
    }
}

fn factorial(n: usize) -> f64 {
    (1..=n).map(|factor| factor as f64).product()
}

/// Calls `of` once for every partition of `sums` into blocks, with the product of the monomials in each block. `blocks`
/// are the blocks so far, to which the monomials of `sums` are added.
fn partitions(sums: &[Monomial], blocks: &mut Vec<Monomial>, of: &mut impl FnMut(&[Monomial])) {
    let Some((&first, rest)) = sums.split_first() else { return of(blocks) };
    for index in 0..blocks.len() {
        let before = blocks[index];
        blocks[index] = before.times(first);
        partitions(rest, blocks, of);
        blocks[index] = before;
    }
    blocks.push(first);
    partitions(rest, blocks, of);
    blocks.pop();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two rows satisfy Σ A = 1, and Stein's lemma for Σ A z.
    #[test]
    fn rows_obey_identities() {
        for (variance, correlation, keys) in [(0.3, 0.0, 16.0), (1.0, 0.4, 32.0), (4.0, 0.9, 128.0), (9.0, -0.2, 64.0)]
        {
            let rows = RowPair::new([variance; 2], correlation, keys);
            let of = |sums: &[Monomial]| rows.mean(&[(1.0, sums)]);
            let near = |got: f64, expected: f64| {
                assert!((got - expected).abs() < 2e-3, "{variance} {correlation} {keys}: {got}, not {expected}");
            };
            near(of(&[mono(1, 0, 0, 0)]), 1.0);
            near(of(&[mono(1, 1, 0, 0)]), of(&[mono(1, 1, 0, 0), mono(1, 0, 0, 0)]));
            near(of(&[mono(2, 0, 0, 0), mono(1, 0, 0, 0), mono(0, 1, 0, 0)]), of(&[mono(2, 0, 0, 0)]));
            let stein = variance.sqrt() * (1.0 - of(&[mono(2, 0, 0, 0)]));
            near(of(&[mono(1, 0, 1, 0)]), stein);
            near(of(&[mono(1, 0, 0, 1), mono(0, 1, 0, 0)]), correlation * stein);
        }
    }
}
