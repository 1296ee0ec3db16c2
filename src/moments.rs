//! What the predictor knows of one token, forward and backward.
//!
//! Second moments are carried as logarithms, everything else as ratios to them, so that 10⁴
//! exploding layers give numbers.
//!
//! Beside the moments of the infinitely wide network stand the quantities of order 1/width that do
//! not die out with depth (derivation: [`crate::rules`]). They describe one *sampled* network:
//! how far a token's norm strays from its expectation, and how the gradient is aligned with it.

use smallvec::SmallVec;

/// One per part of a fan or per class of pairs: seldom more than have room here.
pub(crate) type Few<T> = SmallVec<[T; 4]>;

/// One for all tokens, which has room in place, or one per position.
pub(crate) type PerToken<T> = SmallVec<[T; 1]>;

/// The signal of one token, an array of `width` entries x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Token {
    /// Number of entries.
    pub(crate) width: f64,
    /// ln E x²; −∞ for a signal that is exactly zero.
    pub(crate) ln_second: f64,
    /// E x / √(E x²).
    pub(crate) mean: f64,
    /// E x⁴ / (E x²)² − 1 over the entries of one token of given norm; 2 for Gaussian entries.
    pub(crate) kurtosis: f64,
    /// E x³ / (E x²)^(3/2).
    pub(crate) skewness: f64,
    /// Variance over networks of ln |x|² that all entries share: fluctuations of the scale.
    pub(crate) scale_variance: f64,
    /// What of it products with other tokens do not share: attention's rows are not equally sharp.
    pub(crate) uneven: f64,
    /// What of it masks of single tokens draw: products with other tokens share it all.
    pub(crate) masked: f64,
    /// Variance of ln |x|² that averaging over finitely many entries adds.
    pub(crate) entry_variance: f64,
    /// d ln E x² / d ln of the scale of the signal at the last fork.
    pub(crate) sensitivity: f64,
    /// `width` times the share of the centred second moment that lies along (1, …, 1).
    pub(crate) constant_share: f64,
}

impl Token {
    /// Independent Gaussian entries.
    pub(crate) fn gaussian(width: f64, ln_second: f64) -> Self {
        Self {
            width,
            ln_second,
            mean: 0.0,
            kurtosis: 2.0,
            skewness: 0.0,
            scale_variance: 0.0,
            uneven: 0.0,
            masked: 0.0,
            entry_variance: 2.0 / width,
            sensitivity: 1.0,
            constant_share: 1.0,
        }
    }

    /// Variance of ln |x|² over networks.
    pub(crate) fn norm_variance(&self) -> f64 {
        self.scale_variance + self.entry_variance
    }

    /// What of it the products with other tokens share.
    pub(crate) fn even_variance(&self) -> f64 {
        self.norm_variance() - self.uneven
    }

    /// E (x − m)³/(E (x − m)²)^(3/2) and E (x − m)⁴/(E (x − m)²)² − 1, m = E x; as they are of what is all mean.
    pub(crate) fn centred(&self) -> (f64, f64) {
        let mean = self.mean;
        let variance = 1.0 - mean * mean;
        if variance < 1e-9 {
            return (self.skewness, self.kurtosis);
        }
        let third = self.skewness - 3.0 * mean + 2.0 * mean.powi(3);
        let fourth = self.kurtosis + 1.0 - 4.0 * mean * self.skewness + 6.0 * mean * mean - 3.0 * mean.powi(4);
        (third / variance.powf(1.5), fourth / (variance * variance) - 1.0)
    }

    /// Whether the signal is exactly zero.
    pub(crate) fn is_zero(&self) -> bool {
        self.ln_second == f64::NEG_INFINITY
    }
}

/// The gradient of one token, an array g of the width of the signal x at the same site.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TokenGradient {
    /// ln E g²; −∞ for a gradient that is exactly zero.
    pub(crate) ln_second: f64,
    /// E (x·g)² / (E x² E g² width): 1 if g points anywhere, 0 if it is orthogonal to x.
    pub(crate) radial: f64,
    /// E (Σ g)² / (E g² width): 1 if g points anywhere, 0 if its entries sum to zero.
    pub(crate) constant: f64,
    /// How far `radial` and `steepness` are of the signal less the mean of its features: 1 before what takes that off.
    pub(crate) centred: f64,
    /// −d ln E g² / d ln |x|²: how much smaller the gradient is in a network whose norm here is
    /// larger.
    pub(crate) steepness: f64,
    /// E m²y²/(E m² E y²), y the entries of the signal whose norm is known and m what gradients were multiplied by from there to here:
    /// how much more an entry that is not masked has of that norm than one in general.
    pub(crate) single: f64,
    /// What of `radial` is not met by gradients of other tokens: E (x_a·g_a)(x_a·g_b) has `radial` less this.
    pub(crate) excess: f64,
    /// Which part of it comes of the gradient of the same token at the last fork: 1 of what acts on every token by
    /// itself.
    pub(crate) local: f64,
    /// −Cov over networks of ln |g|² with ln |x|² of the token at the last fork, by way of other branches.
    pub(crate) beside: f64,
}

impl TokenGradient {
    /// Entries that know nothing of the signal.
    pub(crate) fn isotropic(ln_second: f64) -> Self {
        Self {
            ln_second,
            radial: 1.0,
            constant: 1.0,
            centred: 0.0,
            steepness: 0.0,
            single: 1.0,
            excess: 0.0,
            local: 1.0,
            beside: 0.0,
        }
    }

    /// Whether some of it comes of gradients of other tokens; rounding is none.
    pub(crate) fn is_gathered(&self) -> bool {
        self.local < 1.0 - 1e-9
    }

    /// What a component before the output `y` makes of it at the input `x`, which is `after` by itself: a factor that goes with
    /// |x|² meets what the gradient has with the fork by way of other branches, all of it as far as it is of this token, of which
    /// the part `together` is of all tokens.
    #[must_use]
    pub(crate) fn met_beside(&self, after: Self, [x, y]: [&Token; 2], together: f64) -> Self {
        let exponent = after.steepness * x.sensitivity - self.steepness * y.sensitivity;
        after.scaled(ln_correction(exponent * self.known(together) * self.beside))
    }

    /// ρ − 1 − S: what E g'² changes by, per 1/width of what the entries' factor has together with their squares.
    pub(crate) fn of_lengths(&self) -> f64 {
        self.radial - 1.0 - self.steepness
    }

    /// How much it knows of what is of a token at the fork, of which the part `together` is of all.
    pub(crate) fn known(&self, together: f64) -> f64 {
        self.local + (1.0 - self.local) * together
    }

    /// The sum of uncorrelated gradients, and the weight of each in it.
    pub(crate) fn join(parts: &[Self]) -> (Self, Few<f64>) {
        let ln_second = ln_sum(parts.iter().map(|part| part.ln_second));
        let weights: Few<f64> = parts.iter().map(|part| share(part.ln_second, ln_second)).collect();
        let mean = |value: &dyn Fn(&Self) -> f64| parts.iter().zip(&weights).map(|(p, w)| w * value(p)).sum();
        let joined = Self {
            ln_second,
            radial: mean(&|part| part.radial),
            constant: mean(&|part| part.constant),
            centred: mean(&|part| part.centred),
            steepness: mean(&|part| part.steepness),
            single: mean(&|part| part.single),
            excess: mean(&|part| part.excess),
            local: mean(&|part| part.local),
            // A fan ends here; what it was in knows the rest.
            beside: 0.0,
        };
        (joined, weights)
    }

    /// The gradient multiplied so that its second moment changes by the factor e^`ln_gain`.
    #[must_use]
    pub(crate) fn scaled(self, ln_gain: f64) -> Self {
        Self { ln_second: self.ln_second + ln_gain, ..self }
    }
}

/// ln(1 + x) to first order in a correction `x`; a number however wrong the expansion is.
pub(crate) fn ln_correction(x: f64) -> f64 {
    if x < 0.0 { -(-x).ln_1p() } else { x.ln_1p() }
}

/// Why expansions in 1/width are not good for a token, if they are not.
pub(crate) fn width_caveat(x: &Token) -> Option<(&'static str, String)> {
    /// Terms of order 1/width² reach a percent below.
    const SMALLEST_WIDTH: f64 = 16.0;
    (x.width < SMALLEST_WIDTH)
        .then(|| ("terms of order 1/width² are neglected (width 16 and more)", format!("width {}", x.width)))
}

/// Σ_{i≠j} of the products of two.
pub(crate) fn crossed(of: impl Iterator<Item = f64>) -> f64 {
    let (sum, squares) = of.fold((0.0, 0.0), |(sum, squares), one| (sum + one, squares + one * one));
    sum * sum - squares
}

/// `a`/`b`, 0 where there is nothing to compare.
pub(crate) fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

/// e^`part` / e^`total`, 0 of nothing being 0.
pub(crate) fn share(part: f64, total: f64) -> f64 {
    if part == f64::NEG_INFINITY { 0.0 } else { (part - total).exp() }
}

/// ln Σ e^x.
pub(crate) fn ln_sum(terms: impl Iterator<Item = f64> + Clone) -> f64 {
    let mut first = terms.clone();
    if let (Some(only), None) = (first.next(), first.next()) {
        return only;
    }
    let largest = terms.clone().fold(f64::NEG_INFINITY, f64::max);
    if largest == f64::NEG_INFINITY {
        return largest;
    }
    largest + terms.map(|term| (term - largest).exp()).sum::<f64>().ln()
}
