//! Softmax A_b = e^{s_b}/Σ e^s of n Gaussian scores of variance w each, after subtraction of their common part.
//!
//! ```text
//! S2 = E ΣA²     S3 = E ΣA³     T = E (ΣA² − 2ΣA³ + (ΣA²)²)     (`overlaps.rs`: exact for every n and w)
//! S(ρ) = E Σ_b A_ab A_cb = 1/n + Σ_j ω_j ρ^j      two rows a, c with the correlation ρ of their scores at each key
//! Σ ω_j = S2 − 1/n      ω_1 = w (1 − S2)²/(n − 1)
//! Σ j ω_j = w T         ω_2 = ½ w² (1 − 3 S2 + 2 S3)² n/((n − 1)(n − 2))
//! ```
//!
//! where E is the average over random scores; S2 is the overlap of a row with itself, so that a query attends to 1/S2
//! keys; S3 is the mean sum of cubes of the weights; T is the mean square derivative of the weights by the scores,
//! E Σ_bd (∂A_b/∂s_d)²; S(ρ) is the overlap of the rows of two queries; a, c are positions of queries; b is a position
//! of a key; ρ is the correlation of the scores of two queries at each key; ω_j is the coefficient of order j in the
//! series of S(ρ).
//!
//! To first order in w, S(ρ) = 1/n + w (1 − 1/n)/n ρ. Sharp rows have factors on the term in w, which are 1 for w → 0:
//!
//! ```text
//! σ(ρ) = (S(ρ) − 1/n)/(w (1 − 1/n)/n ρ) = f² + σ₂ρ + rρ^(k−1)      τ(ρ) = f² + 2σ₂ρ + krρ^(k−1)
//! σ(1) = (S2 − 1/n)/(w (1 − 1/n)/n)                                τ(1) = T/((1 − 1/n)/n)
//! f = (1 − S2)/(1 − 1/n)      σ₂ = (1 − 2/n) g²      g = √(w/2) (1 − 3 S2 + 2 S3)/((1 − 1/n)(1 − 2/n))
//! ```
//!
//! where σ(ρ) is the factor for values; τ(ρ) is the factor for gradients, the derivative of ρσ(ρ); f², σ₂ are ω_1 and
//! ω_2 over w (1 − 1/n)/n; r, k are the coefficient and the power of all later orders, which follow from σ(1) and τ(1)
//! with k ≥ 3; f is the mean derivative of a weight by its own score, relative to its value for w → 0; g is the mean
//! second derivative, relative to its value for w → 0, times √(w/2).
//!
//! The three terms are the first order of S in ρ, the second order, and all later orders as one power. The power is
//! that of |ρ|. The shift of the mean row E A from flat weights has the factor χ = σ(1), but at most 1.
//!
//! A row a of n keys and a row c of these and others, m in all, have the overlap 1/m for w → 0, and factors on the term
//! w (1 − 1/n)/m ρ:
//!
//! ```text
//! f_a f_c in place of f²     σ₂ = (1 − 2/n) g_a g_c     σ_ac(1) = σ_a(1) (f_c/f_a)^p     τ_ac(1) = τ_a(1) (f_c/f_a)^q
//! ```
//!
//! where f_a, f_c are f of the two rows; g_a, g_c are g of the two rows; σ_a, τ_a are σ and τ of row a with itself;
//! σ_ac, τ_ac are σ and τ of the two rows; p, q are two functions of n and w, which hardly depend on m and are taken at
//! m = 4n.
//!
//! The first two are exact. σ and τ are within 1 % of sampled ones for w up to 3. Two rows with equally many keys but
//! other variances take geometric means.
//!
//! Example: four scores of variance 0.01 have S2 = 1/4 + 0.01 · (1 − 1/4)/4 = 0.2519, and two such rows with ρ = 0.5
//! have the overlap S(0.5) = 1/4 + 0.01 · (1 − 1/4)/4 · 0.5 = 0.2509. 256 scores of variance 1 have σ(1) = 1.652, while
//! n → ∞ has (e^w − 1)/w = 1.718. Hence S2 = 1/256 + 1.652 · (1 − 1/256)/256 = 0.01033, and a query attends to
//! 1/S2 = 96.8 keys.
//!
//! A sink has its own formulas ([`sink`]).
//!
//! Assumption: scores are independent except for their common part. Source: ours; first order: Kedia et al. 2024.

mod grouped;
mod integrals;
#[cfg(test)]
mod nodes;
#[cfg(test)]
mod overlaps;
mod repeats;
mod sink;
mod table;

pub(crate) use integrals::normal_nodes;
#[cfg(test)]
pub(crate) use overlaps::overlaps;
pub(crate) use sink::{SinkFactors, SinkRow};
pub(crate) use table::cubic_of;

/// The factors σ(1), τ(1) and χ of a row of scores, and the numbers from which σ(ρ) and τ(ρ) of two rows follow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SoftmaxRow {
    /// The number n of scores, plus e^ς if there is a sink of logit ς; if keys are not equivalent, the number of
    /// equivalent keys that the row is like.
    pub(crate) keys: f64,
    /// The variance of each score.
    pub(crate) variance: f64,
    /// σ(1) = (S2 − 1/n)/(w (1 − 1/n)/n).
    pub(crate) squares: f64,
    /// τ(1) = T/((1 − 1/n)/n).
    pub(crate) passed: f64,
    /// `squares` and `passed` of single keys; they differ from the factors of a row where ids repeat.
    pub(crate) single_key: [f64; 2],
    /// χ, the factor on the shift of the mean row from flat weights: `squares` where that is below 1, otherwise 1.
    pub(crate) shift: f64,
    /// f = (1 − S2)/(1 − 1/n), the relative mean derivative of a weight by its own score.
    first: f64,
    /// g = √(w/2) (1 − 3 S2 + 2 S3)/((1 − 1/n)(1 − 2/n)), from the relative mean second derivative of a weight.
    third: f64,
    /// The powers p and q, for pairs of this row with a longer row.
    powers: [f64; 2],
    /// 1 − 1/n: the relative variance of the weight of a single key, per w, to first order.
    one_key: f64,
    pub(crate) sink: SinkFactors,
}

impl SoftmaxRow {
    /// Returns a row of `keys` scores that hardly differ, for which all factors are 1.
    pub(crate) fn flat(keys: f64) -> Self {
        Self::of(keys, 1.0)
    }

    /// Returns a row of `keys` equal scores. All factors are 0, because any differences of scores are rounding errors.
    pub(crate) fn constant(keys: f64) -> Self {
        Self::of(keys, 0.0)
    }

    fn of(keys: f64, factor: f64) -> Self {
        let zero = 0.0;
        let [squares, passed, shift, first] = [factor; 4];
        Self {
            keys,
            variance: zero,
            squares,
            passed,
            single_key: [factor; 2],
            shift,
            first,
            third: zero,
            powers: [zero; 2],
            one_key: 1.0 - keys.recip(),
            sink: SinkFactors::NONE,
        }
    }

    /// Returns Σ E A² divided by its value for equal scores.
    pub(crate) fn sharper(&self) -> f64 {
        self.single_key[0] * self.variance * self.one_key + self.sink.mean * self.sink.mean
    }

    /// Returns σ(ρ) and τ(ρ) of two rows.
    pub(crate) fn with(&self, other: &Self, correlation: f64) -> [f64; 2] {
        /// Smallest power k of the remainder. The remainder is a series with non-negative terms, of which the first has
        /// k = 3.
        const LEAST_POWER: f64 = 3.0;
        let [first, second] = [self.first * other.first, self.second(other)];
        let [squares, passed] = self.equal(other);
        let rest = squares - first - second;
        let slope = passed - first - second * 2.0;
        let power = slope / rest;
        // If the remainder is zero, so is its slope.
        let power = if rest.abs() > 1e-12 && power > LEAST_POWER { power } else { LEAST_POWER };
        let size = if correlation < 0.0 { -correlation } else { correlation };
        let tail = if size > 1e-12 { (size.ln() * (power - 1.0)).exp() * rest } else { 0.0 };
        [first + correlation * second + tail, first + correlation * second * 2.0 + tail * power]
    }

    /// Returns the row whose factors with itself are those of two rows with this correlation of their scores.
    pub(crate) fn between(&self, other: &Self, correlation: f64) -> Self {
        let mean = |of: &dyn Fn(&Self) -> f64| (of(self) * of(other)).max(0.0).sqrt();
        let [squares, passed] = self.with(other, correlation);
        let single_key = [0, 1].map(|index| mean(&|row| row.single_key[index]));
        Self { squares, passed, single_key, shift: mean(&|row| row.shift), ..*self }
    }

    /// Returns σ₂ of two rows, the coefficient of ρ in σ(ρ).
    fn second(&self, other: &Self) -> f64 {
        let keys = if self.keys < other.keys { self.keys } else { other.keys };
        self.third * other.third * (-keys.recip() * 2.0 + 1.0).clamp(0.0, 1.0)
    }

    /// Returns σ(1) and τ(1) of two rows, which are their factors if scores have the correlation 1.
    fn equal(&self, other: &Self) -> [f64; 2] {
        /// Largest relative difference of the numbers of keys at which they count as equal.
        const SAME: f64 = 1e-3;
        let mean = |a: f64, b: f64| if a > 0.0 && b > 0.0 { (a * b).sqrt() } else { 0.0 };
        if (self.keys / other.keys - 1.0).abs() < SAME {
            return [mean(self.squares, other.squares), mean(self.passed, other.passed)];
        }
        let [short, long] = if self.keys < other.keys { [self, other] } else { [other, self] };
        if short.first <= 0.0 || long.first <= 0.0 {
            return [0.0; 2];
        }
        let longer = long.first.ln() - short.first.ln();
        let [squares, passed] = short.powers.map(|power| (longer * power).exp());
        [short.squares * squares, short.passed * passed]
    }
}

#[cfg(test)]
mod tests {
    use approx::assert_relative_eq;

    use super::*;

    #[test]
    fn example_of_the_header() {
        let four = SoftmaxRow::new(4.0, 0.01);
        assert_relative_eq!(four.sharper() / 4.0, 0.2519, epsilon = 5e-5);
        let [squares, _] = four.with(&four, 0.5);
        let overlap = 0.25 + 0.01 * 0.75 / 4.0 * squares * 0.5;
        assert_relative_eq!(overlap, 0.2509, epsilon = 5e-5);
        let many = SoftmaxRow::new(256.0, 1.0);
        assert_relative_eq!(many.squares, 1.652, max_relative = 1e-3);
        assert_relative_eq!(256.0 / many.sharper(), 96.8, max_relative = 1e-3);
    }
}
