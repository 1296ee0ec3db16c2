//! Averages over two rows of attention weights of independent keys.
//!
//! Scores of a key in the rows a, c are Gaussian, of variances w_a, w_c and correlation ρ. With A_b = e^(s_b)/Z
//!
//! ```text
//! E Π_k Σ_b f_k(b) = ∫∫ dt du t^(I−1) u^(J−1)/(Γ(I) Γ(J)) Σ_partitions L!/(L − m)! Π_blocks μ(t, u) M(t, u)^(L − m)
//! ```
//!
//! for monomials f = A^i C^j z^p y^q of one key, I and J their powers of A and C together, μ = E e^(i s + j s') z^p y^q e^(−t e^s − u e^s') of
//! the product of those in one block of a partition into m blocks, M that of 1. Exact but for the trapezoidal rule.
//!
//! Source: 1/Zⁿ as an integral, Gross & Mézard 1984 (the random energy model).

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use smallvec::SmallVec;

use crate::quadrature::trapezoidal_nodes;

/// A^i C^j and functions of the scores of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Monomial {
    a: u8,
    c: u8,
    z: u8,
    y: u8,
}

/// Functions of a score z: powers up to the fourth, z² − 1, z⁴ − 6z² + 3.
const FUNCTIONS: usize = 7;
/// The powers among them.
const SCORE_POWERS: usize = 5;
/// z² − 1 among them.
pub(super) const H2: u8 = 5;
/// z⁴ − 6z² + 3.
pub(super) const H4: u8 = 6;
/// The largest power of A in one block.
const POWERS: usize = 7;

/// The moments of rows that are asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    All,
    /// Powers of A up to the fourth and of scores up to the second.
    Few,
    /// Powers of A up to the second and of scores up to the second.
    Squares,
    /// Powers of A up to the second.
    Overlaps,
}

/// A^i C^j z^p y^q.
pub(super) const fn mono(a: u8, c: u8, z: u8, y: u8) -> Monomial {
    Monomial { a, c, z, y }
}

impl Monomial {
    /// The product for one key; of functions of a score one is a power or 1.
    fn times(self, other: Self) -> Self {
        Self { a: self.a + other.a, c: self.c + other.c, z: self.z + other.z, y: self.y + other.y }
    }
}

/// A product of sums over keys with its factor.
pub(super) type Term<'t> = (f64, &'t [Monomial]);

/// The range of Gaussian variables in quadratures.
const REACH: f64 = 7.5;

/// The distance of nodes for functions of a score of this standard deviation.
fn spacing(std: f64) -> f64 {
    (0.7 / std.max(0.35)).min(0.8)
}

/// Points in t, evenly spaced in ln t, from where Z t is small to where e^(−Z t) is nothing.
fn times(std: f64, keys: f64, step: f64) -> Vec<f64> {
    /// −ln of the largest Z t that is left out below, and of the largest e^(−Z t) above.
    const ENDS: [f64; 2] = [13.0, 36.0];
    /// Keys that are in the blocks of a partition at most.
    const IN_BLOCKS: f64 = 6.0;
    let first = -keys.ln() - 0.5 * std * std - ENDS[0];
    let nodes = trapezoidal_nodes(spacing(std), REACH);
    let is_left = |t: &f64| {
        let mean: f64 = nodes.iter().map(|&(z, weight)| weight * (-t * (std * z).exp()).exp()).sum();
        (keys - IN_BLOCKS).max(1.0) * mean.ln() > -ENDS[1]
    };
    std::iter::successors(Some(first), |ln| Some(ln + step)).map(f64::exp).take_while(is_left).collect()
}

/// E e^(i(s + ln t)) z^p e^(−t e^s) of one row, at every ln t and every x that both rows share.
struct Row {
    /// Grid points of ln t.
    points: usize,
    step: f64,
    /// Moments, ordered by i, p, x and t.
    moments: Vec<f64>,
}

impl Row {
    fn new(variance: f64, loading: f64, keys: f64, shared: &[(f64, f64)], wanted: Wanted) -> Self {
        match wanted {
            Wanted::All => Self::of::<POWERS, SCORE_POWERS>(variance, loading, keys, shared),
            Wanted::Few => Self::of::<5, 3>(variance, loading, keys, shared),
            Wanted::Squares => Self::of::<3, 3>(variance, loading, keys, shared),
            Wanted::Overlaps => Self::of::<3, 1>(variance, loading, keys, shared),
        }
    }

    fn of<const A: usize, const Z: usize>(variance: f64, loading: f64, keys: f64, shared: &[(f64, f64)]) -> Self {
        /// Distance of points in ln t: second differences of averages are known to 10⁻³ of themselves, and to a hundredth at 0.65.
        const STEP: f64 = 0.55;
        let std = variance.sqrt();
        let own = (1.0 - loading * loading).max(0.0).sqrt();
        let nodes = trapezoidal_nodes(spacing(own * std), REACH);
        let times = times(std, keys, STEP);
        let points = times.len();
        let size = shared.len() * points;
        let mut moments = vec![0.0; A * FUNCTIONS * size];
        let (mut levels, mut powers) = (vec![0.0; points], vec![0.0; points]);
        for (index, &(x, _)) in shared.iter().enumerate() {
            for &(e, weight) in &nodes {
                let z = loading * x + own * e;
                let exponential = (std * z).exp();
                for (level, &t) in levels.iter_mut().zip(&times) {
                    *level = t * exponential;
                }
                // Beyond, e^(−level) has underflowed and its powers with it.
                let used = levels.partition_point(|&level| level <= 700.0);
                for (power, &level) in powers.iter_mut().zip(&levels[..used]) {
                    *power = weight * (-level).exp();
                }
                for a in 0..A {
                    let mut function = 1.0;
                    for of_score in 0..Z {
                        let start = (a * FUNCTIONS + of_score) * size + index * points;
                        let sums = &mut moments[start..start + used];
                        sums.iter_mut().zip(&powers).for_each(|(sum, power)| *sum += power * function);
                        function *= z;
                    }
                    powers[..used].iter_mut().zip(&levels).for_each(|(power, level)| *power *= level);
                }
            }
        }
        for of_power in moments.chunks_exact_mut(FUNCTIONS * size) {
            let (of_scores, polynomials) = of_power.split_at_mut(SCORE_POWERS * size);
            let (second, fourth) = polynomials.split_at_mut(size);
            for at in 0..size {
                let [one, z2, z4] = [0, 2, 4].map(|power| of_scores[power * size + at]);
                second[at] = z2 - one;
                fourth[at] = z4 - 6.0 * z2 + 3.0 * one;
            }
        }
        Self { points, step: STEP, moments }
    }

    /// The moments of one monomial, ordered by x and t.
    fn of_monomial(&self, of: [u8; 2], shared: usize) -> &[f64] {
        let [power, function] = of.map(usize::from);
        let size = shared * self.points;
        let first = (power * FUNCTIONS + function) * size;
        &self.moments[first..first + size]
    }
}

/// Numbers on the grid of both ln t, or of that of the first row alone, by what they are of.
type Cache<K> = RefCell<HashMap<(K, bool), Rc<[f64]>>>;

/// Two rows of `keys` weights.
pub(super) struct Rows {
    keys: f64,
    correlation: f64,
    both: [Rc<Row>; 2],
    /// What scores of both rows share, and its weights.
    shared: Vec<(f64, f64)>,
    /// μ on the grid of both ln t, or of the first row alone.
    grids: Cache<Monomial>,
    /// M to the number of keys that are not in the first so many blocks.
    others: Cache<usize>,
    /// Averages of products of sums.
    products: RefCell<HashMap<SmallVec<[Monomial; 5]>, f64>>,
}

impl Rows {
    pub(super) fn new(variances: [f64; 2], correlation: f64, keys: f64, wanted: Wanted) -> Self {
        let shared = trapezoidal_nodes(0.9, 7.0);
        let loading = correlation.abs().min(1.0 - 1e-9).sqrt();
        let row = |variance: f64, loading: f64| Rc::new(Row::new(variance, loading, keys, &shared, wanted));
        let first = row(variances[0], loading);
        let is_alike = variances[0].to_bits() == variances[1].to_bits() && correlation >= 0.0;
        let second = if is_alike { Rc::clone(&first) } else { row(variances[1], loading * correlation.signum()) };
        let both = [first, second];
        let (grids, others, products) = (RefCell::default(), RefCell::default(), RefCell::default());
        Self { keys, correlation, both, shared, grids, others, products }
    }

    /// Of the scores of both rows.
    pub(crate) fn correlation(&self) -> f64 {
        self.correlation
    }

    /// E of a polynomial in sums over keys.
    pub(super) fn mean(&self, terms: &[Term<'_>]) -> f64 {
        terms.iter().map(|&(factor, sums)| factor * self.product(sums)).sum()
    }

    /// The covariance of a product of sums with that of a function of scores over all keys.
    pub(super) fn covariance(&self, sums: &[Monomial], function: Monomial) -> f64 {
        let with = self.product(&[sums, &[function]].concat());
        // Of a key that is in none of the sums it is what it is of Gaussian scores.
        with - self.product(sums) * self.keys * self.of_scores(function)
    }

    /// E of a function of the scores of one key.
    fn of_scores(&self, function: Monomial) -> f64 {
        self.product(&[function, mono(1, 0, 0, 0), mono(0, 1, 0, 0)]) / self.keys
    }

    /// E of a product of sums, once for every product.
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
                let grids: SmallVec<[Rc<[f64]>; 6]> = blocks.iter().map(|&block| self.grid(block, is_pair)).collect();
                total += choices * summed(&others, &grids);
            }
        });
        // Powers of C that are none leave u at zero, where the last row is not integrated over.
        let [first, second] = &self.both;
        let of_pair = if c > 0 { second.step / factorial(c - 1) } else { 1.0 };
        total * first.step / factorial(a - 1) * of_pair
    }

    /// M^(L − m).
    fn others(&self, blocks: usize, is_pair: bool) -> Rc<[f64]> {
        if let Some(powers) = self.others.borrow().get(&(blocks, is_pair)) {
            return Rc::clone(powers);
        }
        let keys = self.keys - blocks as f64;
        let one = self.grid(mono(0, 0, 0, 0), is_pair);
        let powers: Rc<[f64]> = one.iter().map(|&one| if one > 0.0 { one.powf(keys) } else { 0.0 }).collect();
        self.others.borrow_mut().insert((blocks, is_pair), Rc::clone(&powers));
        powers
    }

    fn grid(&self, monomial: Monomial, is_pair: bool) -> Rc<[f64]> {
        if let Some(grid) = self.grids.borrow().get(&(monomial, is_pair)) {
            return Rc::clone(grid);
        }
        let [first, second] = &self.both;
        let count = self.shared.len();
        let own = first.of_monomial([monomial.a, monomial.z], count);
        let weighted = |point: usize, x: usize| own[x * first.points + point] * self.shared[x].1;
        let grid: Rc<[f64]> = if is_pair {
            let others = second.of_monomial([monomial.c, monomial.y], count);
            let mut grid = vec![0.0; first.points * second.points];
            for (point, row) in grid.chunks_exact_mut(second.points).enumerate() {
                for (x, others) in others.chunks_exact(second.points).enumerate() {
                    let own = weighted(point, x);
                    row.iter_mut().zip(others).for_each(|(sum, other)| *sum += own * other);
                }
            }
            grid.into()
        } else {
            (0..first.points).map(|point| (0..count).map(|x| weighted(point, x)).sum()).collect()
        };
        self.grids.borrow_mut().insert((monomial, is_pair), Rc::clone(&grid));
        grid
    }
}

/// Σ of the products of entries with the same index; the usual one to three grids are unrolled, which compilers vectorise.
fn summed(others: &[f64], grids: &[Rc<[f64]>]) -> f64 {
    match grids {
        [a] => others.iter().zip(&**a).map(|(of, a)| of * a).sum(),
        [a, b] => others.iter().zip(&**a).zip(&**b).map(|((of, a), b)| of * a * b).sum(),
        [a, b, c] => others.iter().zip(&**a).zip(&**b).zip(&**c).map(|(((of, a), b), c)| of * a * b * c).sum(),
        _ => (0..others.len()).map(|at| grids.iter().fold(others[at], |of, grid| of * grid[at])).sum(),
    }
}

fn factorial(n: usize) -> f64 {
    (1..=n).map(|factor| factor as f64).product()
}

/// Calls `of` with the products in the blocks of every partition of `sums`.
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

    /// Σ A = 1, and what Stein's lemma says of Σ A z.
    #[test]
    fn rows_obey_identities() {
        for (variance, correlation, keys) in [(0.3, 0.0, 16.0), (1.0, 0.4, 32.0), (4.0, 0.9, 128.0), (9.0, -0.2, 64.0)]
        {
            let rows = Rows::new([variance; 2], correlation, keys, Wanted::All);
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
