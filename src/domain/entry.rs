//! How one entry strays, over all tokens of a sequence: an activation or a product makes its level random.
//!
//! Given what the tokens have in common, an entry's values y_a are independent, with a mean M and a variance V of their
//! own: M² is what it adds to the level of what tokens share, V to that of what they differ in. With c = E M²/E y² and
//!
//! ```text
//! κ_m + 1 = E M⁴/(E M²)²     κ_b + 1 = E M²V/(E M² E V)     κ_t + 1 = E V²/(E V)²     k + 1 = E (y − M)⁴/E V²
//! ```
//!
//! and g = E M (y − M)³/(E M² E V), h = E ½ (E (y − M)²(z² − 1))²/E V² for y of a Gaussian z. 1/q tokens that differ
//! leave q V in the common part, o = q (1 − p)/p of it; differences of concentration γ line up with each other. With
//! 1/n = q/(1 + q), n the tokens of which n − 1 differ, and f = (k − 2)/n by which they are not Gaussian,
//!
//! ```text
//! Var m = (1 − o)² (κ_m + 1) + o (1 − o) (6 (κ_b + 1) + 4 g/n) + o² (κ_t + 1) (3 + f) − 1
//! Cov m t = (1 − o)(κ_b + 1 + 2 g/n) + o (κ_t + 1) (1 + f) − 1     Var t = (κ_t + 1)(1 + 2 q + f + h γ) − 1
//! ```
//!
//! over the width: the moments of the mean and of the variance of n independent draws. A product of independent entries has
//! M = M₁M₂, V = M₁²V₂ + V₁M₂² + V₁V₂.
//!
//! Assumptions: tokens are independent given what they have in common, but for γ.
//! Source: ours.

use nalgebra::Matrix2;

use super::Alike;
use crate::moments::ratio;

/// κ_m, κ_b, κ_t, g, k and h of the header, in this order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Entry {
    common: f64,
    both: f64,
    apart: f64,
    third: f64,
    fourth: f64,
    second: f64,
}

impl Entry {
    /// Of jointly Gaussian values.
    pub(crate) const GAUSSIAN: Self = Self { common: 2.0, both: 0.0, apart: 0.0, third: 0.0, fourth: 2.0, second: 2.0 };

    /// From the M, V, E (y − M)³, E (y − M)⁴ and E (y − M)²(z² − 1) an entry has with these probabilities.
    pub(crate) fn of(given: impl Iterator<Item = (f64, [f64; 5])>) -> Self {
        let (mut common, mut apart, mut third, mut fourth, mut second) = (0.0, 0.0, 0.0, 0.0, 0.0);
        let (mut commons, mut both, mut aparts) = (0.0, 0.0, 0.0);
        for (probability, [mean, variance, skewed, central, hermite]) in given {
            let square = mean * mean;
            common += probability * square;
            apart += probability * variance;
            third += probability * mean * skewed;
            fourth += probability * central;
            second += 0.5 * probability * hermite * hermite;
            commons += probability * square * square;
            both += probability * square * variance;
            aparts += probability * variance * variance;
        }
        Self {
            common: ratio(commons, common * common) - 1.0,
            both: ratio(both, common * apart) - 1.0,
            apart: ratio(aparts, apart * apart) - 1.0,
            third: ratio(third, common * apart),
            fourth: ratio(fourth, aparts) - 1.0,
            second: ratio(second, aparts),
        }
    }

    /// E V²/(E V)²: how much more two tokens' differences stray by few entries than by Gaussian ones.
    pub(crate) fn apart(&self) -> f64 {
        self.apart + 1.0
    }

    /// Where the scale of the arguments, which tokens that line up stray by together, is told elsewhere.
    pub(crate) fn at_given_scale(self) -> Self {
        Self { second: 0.0, ..self }
    }

    /// Between `self` and another.
    pub(crate) fn towards(&self, other: &Self, part: f64) -> Self {
        let between = |own: f64, other: f64| own + part * (other - own);
        Self {
            common: between(self.common, other.common),
            both: between(self.both, other.both),
            apart: between(self.apart, other.apart),
            third: between(self.third, other.third),
            fourth: between(self.fourth, other.fourth),
            second: between(self.second, other.second),
        }
    }

    /// Of a product, from the factors and the cosines of two different tokens in each.
    pub(crate) fn product<'a>(factors: impl Iterator<Item = (&'a Self, f64)>) -> Self {
        let times = |(entry, cosine): (Self, f64), (factor, other): (&Self, f64)| {
            (entry.times(cosine, factor, other), cosine * other)
        };
        let factors = factors.map(|(entry, cosine)| (*entry, cosine));
        factors
            .reduce(|product, (entry, cosine)| times(product, (&entry, cosine)))
            .map_or(Self::GAUSSIAN, |(entry, _)| entry)
    }

    /// Of the product with another, both with the cosine c of two different tokens.
    pub(crate) fn times(&self, cosine: f64, other: &Self, other_cosine: f64) -> Self {
        /// Of tokens that have nothing in common, and of copies, what is asked for is a limit.
        const EDGE: f64 = 1e-6;
        let inside = |cosine: f64| cosine.clamp(EDGE, 1.0 - EDGE);
        let (c, d) = (inside(cosine), inside(other_cosine));
        // E M⁴, E M²V, E V² of each, with second moments 1.
        let moments = |entry: &Self, c: f64| {
            let apart = 1.0 - c;
            [c * c * (entry.common + 1.0), c * apart * (entry.both + 1.0), apart * apart * (entry.apart + 1.0)]
        };
        let ([commons, both, aparts], [others, other_both, other_aparts]) = (moments(self, c), moments(other, d));
        let distance = (1.0 - c) + c * (1.0 - d);
        let crossed = both * other_both;
        let tail = both * other_aparts + aparts * other_both;
        let own = aparts * other_aparts;
        let square = commons * other_aparts + aparts * others + own + 2.0 * (crossed + tail);
        let (k, l) = (aparts * (self.fourth + 1.0), other_aparts * (other.fourth + 1.0));
        let (g, f) = (c * (1.0 - c) * self.third, d * (1.0 - d) * other.third);
        let fourth = commons * l
            + k * others
            + 6.0 * (crossed + both * l + k * other_both)
            + k * l
            + 4.0 * (g * l + k * f)
            + 12.0 * (both * f + g * other_both + g * f);
        let third = g * others + f * commons + 6.0 * crossed + 3.0 * (both * f + other_both * g) + f * g;
        let (h, i) = (self.second, other.second);
        let second = commons * i * other_aparts
            + h * aparts * others
            + (h + i) * own
            + 2.0 * (both * i * other_aparts + h * aparts * other_both)
            + 4.0 * crossed;
        Self {
            common: (self.common + 1.0) * (other.common + 1.0) - 1.0,
            both: (commons * other_both + both * others + crossed) / (c * d * distance) - 1.0,
            apart: square / (distance * distance) - 1.0,
            third: third / (c * d * distance),
            fourth: fourth / square - 1.0,
            second: second / square,
        }
    }

    /// Covariance of the levels of tokens that are `alike`, of one entry.
    pub(crate) fn levels(&self, alike: Alike) -> Matrix2<f64> {
        let Alike { shared, alone, concentration } = alike;
        let own = ratio((1.0 - shared) * alone, shared).min(1.0);
        let (common, each) = (1.0 - own, alone / (1.0 + alone));
        let (commons, both, aparts) = (self.common + 1.0, self.both + 1.0, self.apart + 1.0);
        let beyond = (self.fourth - 2.0) * each;
        let of_common = common * common * commons
            + 2.0 * own * common * (3.0 * both + 2.0 * self.third * each)
            + own * own * aparts * (3.0 + beyond)
            - 1.0;
        let of_both = common * (both + 2.0 * self.third * each) + own * aparts * (1.0 + beyond) - 1.0;
        let of_apart = aparts * (1.0 + 2.0 * alone + beyond + self.second * concentration) - 1.0;
        Matrix2::new(of_common, of_both, of_both, of_apart)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1/q tokens that differ draw 2 and 2q, whatever they share.
    #[test]
    fn gaussian_entries() {
        for shared in [0.1, 0.5, 0.999] {
            let levels = Entry::GAUSSIAN.levels(Alike { shared, alone: 0.03, concentration: 0.02 });
            let expected = Matrix2::new(2.0, 0.0, 0.0, 0.1);
            approx::assert_relative_eq!(levels, expected, epsilon = 1e-12);
        }
    }

    /// f g of Gaussians: tokens apart have E (fg)⁴ = 9; of copies f δg + g δf has E (f² + g²)²/4 = 2, and
    /// E f²g² (f² + g²)/2 = 3.
    #[test]
    fn products_of_gaussian_entries() {
        let near = |got: f64, expected: f64| approx::assert_relative_eq!(got, expected, epsilon = 1e-4);
        let apart = Entry::GAUSSIAN.times(0.0, &Entry::GAUSSIAN, 0.0);
        near(apart.apart, 0.0);
        near(apart.fourth, 8.0);
        near(apart.second, 4.0);
        let copies = Entry::GAUSSIAN.times(1.0, &Entry::GAUSSIAN, 1.0);
        near(copies.common, 8.0);
        near(copies.both, 2.0);
        near(copies.apart, 1.0);
        near(copies.fourth, 2.0);
        near(copies.second, 2.0);
    }

    /// An entry that is ±1 for all tokens, or 0 in common with a variance of 1, each with a probability of a half.
    #[test]
    fn from_what_an_entry_is() {
        let entry = Entry::of(
            [(0.25, [1.0, 0.0, 0.0, 0.0, 0.0]), (0.25, [-1.0, 0.0, 0.0, 0.0, 0.0]), (0.5, [0.0, 1.0, 0.0, 3.0, 2.0])]
                .into_iter(),
        );
        assert_eq!(entry, Entry { common: 1.0, both: -1.0, apart: 1.0, third: 0.0, fourth: 2.0, second: 2.0 });
        assert_eq!(
            entry.towards(&Entry::GAUSSIAN, 0.5),
            Entry { common: 1.5, both: -0.5, apart: 0.5, third: 0.0, fourth: 2.0, second: 2.0 }
        );
    }
}
