//! The overlap integrals themselves, by the trapezoidal rule, which converges exponentially for
//! these integrands. In y = ln t + z every factor is e^{ky − e^y}, so nothing overflows.

use nalgebra::DMatrix;

/// Half-width of the Gaussian variables, in standard deviations.
pub(super) const REACH: f64 = 8.5;
/// M_0^{n−1} below which nothing is left of an integrand.
const NOTHING: f64 = 1e-25;

/// Nodes x and weights of E f(x), x ~ N(0, 1).
pub(super) fn normal_nodes(step: f64) -> Vec<(f64, f64)> {
    let half = (REACH / step).ceil() as i32;
    (-half..=half)
        .map(|i| {
            let x = step * f64::from(i);
            (x, step * (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt())
        })
        .collect()
}

/// Nodes e^(std x) and weights of E f(e^(std x)), x ~ N(0, 1).
pub(super) fn log_normal_nodes(std: f64, step: f64) -> Vec<(f64, f64)> {
    if std <= 0.0 {
        return vec![(1.0, 1.0)];
    }
    normal_nodes(step).into_iter().map(|(x, weight)| ((std * x).exp(), weight)).collect()
}

/// Nodes ln t that cover n scores of standard deviation `std`.
fn ln_t_nodes(n: f64, std: f64, step: f64) -> Vec<f64> {
    let (lower, upper) = (-n.ln() - REACH * std - 9.0, 4.0 + REACH * std);
    let count = ((upper - lower) / step).ceil() as usize;
    (0..=count).map(|i| lower + step * i as f64).collect()
}

/// Numbers of a row.
pub(super) const OVERLAPS: usize = 15;

/// S2, S3, S4, S22, U, E (ΣA² − 2ΣA³ + (ΣA²)²) ΣA² and E Σ A_b² (1 − 2A_b + ΣA²) (s_b²/w − 1) of n scores of variance w,
/// and E ΣA⁴ ΣA²; then what all of them but U and the seventh gain per kurtosis of the scores, and what E Σ_{b≠c} A_b A_c s_b s_c/w
/// does; relative error below 1e-6 for w from 0.001 to 100.
pub(super) fn row_overlaps(n: f64, w: f64) -> [f64; OVERLAPS] {
    let std = w.sqrt();
    let normal = normal_nodes((0.7 / std).min(0.8));
    let exponentials: Vec<(f64, f64, f64)> = normal.iter().map(|&(x, weight)| ((std * x).exp(), weight, x)).collect();
    let step = 0.4;
    let mut sums = [0.0; OVERLAPS];
    for ln_t in ln_t_nodes(n, std, step) {
        let t = ln_t.exp();
        // moments[k][j] = E x^j y^k e^(−y), y = t e^z, z = std x; the last with x⁴ − 6x² + 3
        let mut moments = [[0.0; 4]; 7];
        // The last of the first power of y times x.
        let mut outwards = 0.0;
        for &(exponential, weight, x) in &exponentials {
            let y = t * exponential;
            // Beyond, e^{−y} has underflowed and y^k with it.
            if y > 700.0 {
                continue;
            }
            let mut factor = weight * (-y).exp();
            let square = x * x;
            let hermite = square * (square - 6.0) + 3.0;
            outwards += factor * y * x * hermite;
            for [plain, first, second, fourth] in &mut moments {
                *plain += factor;
                *first += factor * x;
                *second += factor * square;
                *fourth += factor * hermite;
                factor *= y;
            }
        }
        let [
            [m0, _, _, h0],
            [_, x1, _, _],
            [m2, x2, xx2, h2],
            [m3, x3, xx3, h3],
            [m4, _, xx4, h4],
            [m5, _, _, h5],
            [m6, _, _, h6],
        ] = moments;
        if m0 <= 0.0 {
            continue;
        }
        let lone = m0.powf(n - 1.0);
        // dt = t d ln t, and t^k of the integrand is in the moments but for one factor t.
        sums[0] += n * m2 * lone;
        sums[1] += n * m3 / 2.0 * lone;
        sums[2] += n * m4 / 6.0 * lone;
        let pair = (n - 1.0) * m0.powf(n - 2.0);
        let squares = n * (m4 * lone + m2 * m2 * pair) / 6.0;
        sums[3] += squares;
        // ΣA²x² − 2 ΣA²x ΣAx + ΣA² (ΣAx)²
        let triple = pair * (n - 2.0) / m0;
        sums[4] += n * (xx2 * lone - (xx3 * lone + x2 * x1 * pair));
        sums[4] += n * (xx4 * lone + (2.0 * x3 * x1 + m2 * xx2) * pair + m2 * x1 * x1 * triple) / 6.0;
        let cubes = n * (m6 * lone + 3.0 * m4 * m2 * pair + m2.powi(3) * triple) / 120.0;
        sums[5] += squares - 2.0 * n * (m5 * lone + m3 * m2 * pair) / 24.0 + cubes;
        sums[6] += n * ((xx2 - m2 - xx3 + m3) * lone + ((xx4 - m4) * lone + (xx2 - m2) * m2 * pair) / 6.0);
        sums[7] += n * (m6 * lone + m4 * m2 * pair) / 120.0;
        // The density of x gains its part (x⁴ − 6x² + 3)/24.
        sums[8] += n * (h2 * lone + m2 * h0 * pair) / 24.0;
        sums[9] += n * (h3 * lone + m3 * h0 * pair) / 48.0;
        sums[10] += n * (h4 * lone + m4 * h0 * pair) / 144.0;
        let more_squares = n * (h4 * lone + (m4 * h0 + 2.0 * m2 * h2) * pair + m2 * m2 * h0 * triple) / 144.0;
        sums[11] += more_squares;
        let both = h4 * m2 + m4 * h2;
        let more_cubes = n * (h5 * lone + (m5 * h0 + h3 * m2 + m3 * h2) * pair + m3 * m2 * h0 * triple) / 576.0;
        let quadruple = triple * (n - 3.0) / m0;
        let more_of_three = n * (h6 * lone + (m6 * h0 + 3.0 * both) * pair) / 2880.0
            + n * (3.0 * m2 * (m4 * h0 + m2 * h2) * triple + m2.powi(3) * h0 * quadruple) / 2880.0;
        sums[12] += more_squares - 2.0 * more_cubes + more_of_three;
        sums[13] += n * (h6 * lone + (m6 * h0 + both) * pair + m4 * m2 * h0 * triple) / 2880.0;
        sums[14] += n * (2.0 * outwards * x1 * pair + x1 * x1 * h0 * triple) / 24.0;
    }
    sums.map(|sum| step * sum)
}

/// S11 of two rows of n scores of variance w with correlation rho; relative error of S11 − 1/n below
/// 1e-4 for w from 0.1 to 20.
///
/// Given the common part x, the two scores of a key are independent, so the joint moments are
/// matrix products over x: M_jk(t, u) = Σ_x m_j(t; x) m_k(u; ±x). And m_j(t; x) depends on
/// ln t + common·x alone: with commensurable steps in ln t and x it is a table in one variable.
pub(super) fn cross_overlap(n: f64, w: f64, rho: f64) -> f64 {
    let std = w.sqrt();
    let (common, own) = (std * rho.abs().sqrt(), std * (1.0 - rho.abs()).sqrt());
    let steps = Steps::new(common, (0.9 / std).min(0.8), 0.7);
    let normal = normal_nodes(steps.x);
    let width = normal.len();
    let ln_t = ln_t_nodes(n, std, steps.ln_t);
    let exponentials = log_normal_nodes(own, (0.9 / own.max(1.0)).min(0.8));
    // Moments of row `i` given x node `j`.
    let moments = steps.table(ln_t[0], [ln_t.len(), width], |t| lone_moments(t, &exponentials));
    let at = |i: usize, j: usize| *moments.at(i, j);
    let alone = |i: usize| (0..width).map(|j| normal[j].1 * at(i, j).0).sum::<f64>();
    // M_00 ≤ M_0, which falls with t.
    let height = (0..ln_t.len()).take_while(|&i| alone(i).powf(n - 1.0) > NOTHING).count();
    let joint = |moment: &dyn Fn((f64, f64)) -> f64| {
        let rows = DMatrix::from_fn(height, width, |i, j| normal[j].1.sqrt() * moment(at(i, j)));
        // A negative correlation mirrors the common part of the second row.
        let other = DMatrix::from_fn(width, height, |j, k| rows[(k, if rho < 0.0 { width - 1 - j } else { j })]);
        rows * other
    };
    let (m00, m11) = (joint(&|(m0, _)| m0), joint(&|(_, m1)| m1));
    let mut sum = 0.0;
    for i in 0..height {
        // The double integral is symmetric in t and u.
        for k in i..height {
            sum += if i == k { 1.0 } else { 2.0 } * m11[(i, k)] * m00[(i, k)].powf(n - 1.0);
        }
    }
    n * sum * steps.ln_t * steps.ln_t
}

/// E y^k e^{−y} for k = 0 … 4, y = t e^z.
pub(super) fn moments(t: f64, exponentials: &[(f64, f64)]) -> [f64; 5] {
    let mut moments = [0.0; 5];
    for &(exponential, weight) in exponentials {
        let y = t * exponential;
        // Beyond, e^{−y} has underflowed and y^k with it.
        if y < 700.0 {
            let mut factor = weight * (-y).exp();
            for moment in &mut moments {
                *moment += factor;
                factor *= y;
            }
        }
    }
    moments[0] = moments[0].max(f64::MIN_POSITIVE);
    moments
}

/// E e^{−y} and E y e^{−y} for y = t e^z.
fn lone_moments(t: f64, exponentials: &[(f64, f64)]) -> (f64, f64) {
    let (mut zeroth, mut first) = (0.0, 0.0);
    for &(exponential, weight) in exponentials {
        let y = t * exponential;
        // Beyond, e^{−y} has underflowed.
        if y < 700.0 {
            let factor = weight * (-y).exp();
            zeroth += factor;
            first += factor * y;
        }
    }
    (zeroth, first)
}

/// A function of t e^(common·x) at nodes in ln t and in x.
pub(super) struct Table<T> {
    values: Vec<T>,
    per_t: usize,
    per_x: usize,
}

impl<T> Table<T> {
    /// At node `i` in ln t and `j` in x.
    pub(super) fn at(&self, i: usize, j: usize) -> &T {
        &self.values[i * self.per_t + j * self.per_x]
    }

    /// `of` it, node by node.
    pub(super) fn map<U>(&self, of: impl Fn(&T) -> U) -> Table<U> {
        Table { values: self.values.iter().map(of).collect(), per_t: self.per_t, per_x: self.per_x }
    }
}

/// Steps in x and ln t that are multiples of one unit of ln t + common·x.
pub(super) struct Steps {
    pub(super) x: f64,
    pub(super) ln_t: f64,
    unit: f64,
    per_x: usize,
    per_t: usize,
}

impl Steps {
    /// Steps of at most `x` and `ln_t`.
    pub(super) fn new(common: f64, x: f64, ln_t: f64) -> Self {
        // A common part this small does not move ln t.
        if common < 1e-6 {
            return Self { x, ln_t, unit: ln_t, per_x: 0, per_t: 1 };
        }
        let moved = common * x;
        if moved <= ln_t {
            let per_t = (ln_t / moved).floor().min(64.0);
            let unit = (ln_t / per_t).min(moved);
            Self { x: unit / common, ln_t: unit * per_t, unit, per_x: 1, per_t: per_t as usize }
        } else {
            let per_x = (moved / ln_t).floor();
            Self { x: ln_t * per_x / common, ln_t, unit: ln_t, per_x: per_x as usize, per_t: 1 }
        }
    }

    /// `of` at as many nodes in ln t from `lower` and in x around 0.
    pub(super) fn table<T>(&self, lower: f64, [height, width]: [usize; 2], of: impl Fn(f64) -> T) -> Table<T> {
        let first = lower - self.unit * (width / 2 * self.per_x) as f64;
        let count = (height - 1) * self.per_t + (width - 1) * self.per_x + 1;
        let values = (0..count).map(|i| of((first + self.unit * i as f64).exp())).collect();
        Table { values, per_t: self.per_t, per_x: self.per_x }
    }
}
