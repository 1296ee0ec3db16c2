//! How few directions the differences of tokens have; what becomes of it is derived in [`crate::rules`].
//!
//! What all tokens share, m, need not lie in the directions of their differences δ. With `common` of (δ·m)²/(|δ|²|m|²) and γ of
//! products of two differences, a cosine strays from its mean c by
//!
//! ```text
//! Var ĉ = (1 − c)² (γ (1 + c²) + 2c common)        (1 − c²)² γ if both are one
//! ```
//!
//! Maps draw 1/width of both and norms keep both. An activation c' = f(c) has δ'·m' = f'(c) δ·m, so that
//!
//! ```text
//! common' = common (f' (1 − c)/(1 − c'))² c (1 − c')/(c' (1 − c))        products of factors likewise
//! ```
//!
//! and what f makes of means, a bias, and what another branch shares are directions of their own, 1/width; a sum weighs δ_i·m_j by
//! the shares of branches in both, and what follows the fork adds up (`rules/sum.rs`). Sampled: correlations of gated squares in six
//! reordered blocks of small branches behind patches of 48 entries (width 64, 48 tokens, 2000 networks, known to 0.0001 to 0.0009):
//! 0.0333, 0.0338, 0.0359, 0.0423, 0.0563, 0.0819, told 0.0352, 0.0354, 0.0371, 0.0427, 0.0555, 0.0794; with γ for both 0.0357,
//! 0.0366, 0.0393, 0.0460, 0.0600, 0.0848. Validity: γ ≪ 1, as all of this. Source: ours.

use super::Gradient;

/// How few directions the differences of tokens have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Concentration {
    /// Relative variance over networks of the product of two token differences, 1/(number of directions they
    /// have): 1/width if all features are independent, more behind narrow or many random maps.
    pub(crate) total: f64,
    /// What of it its own entries draw: 1/width if they are Gaussian.
    pub(crate) drawn: f64,
    /// What of it rows of attention draw, by how few keys each of them sees: for a query that sees all (`rules/attention/concentration.rs`).
    pub(crate) rows: f64,
    /// How much of the deviation at the last fork is still in it: 1 there, 0 of what is independent of it.
    pub(crate) inherited: f64,
    /// Relative variance of the squares of the differences of one network beyond that of Gaussian or, behind norms, of
    /// normalised tokens (`rules/attention/concentration.rs`).
    pub(crate) unequal: f64,
    /// Relative variance over networks of the product of a difference and of what all tokens share: as the total where that lies
    /// in the directions of the differences, 1/width of a direction of its own.
    pub(crate) common: f64,
}

impl Concentration {
    /// Of differences whose products are what they are in every network.
    pub(crate) const NONE: Self = Self { total: 0.0, drawn: 0.0, rows: 0.0, inherited: 0.0, unequal: 0.0, common: 0.0 };

    /// Differences have at least one direction; as unequal as they get, and no more equal than they are (rounding, branches that
    /// follow their input the other way round).
    #[must_use]
    pub(crate) fn bounded(self) -> Self {
        let total = self.total.min(1.0);
        Self {
            total,
            rows: self.rows.min(total),
            unequal: self.unequal.clamp(0.0, 1.0),
            common: self.common.clamp(0.0, 1.0),
            ..self
        }
    }

    /// Variance of a cosine about its mean c, (1 − c²)² γ if all is drawn alike: of what both tokens differ in, and of that beside
    /// what they share.
    pub(crate) fn of_cosine(self, cosine: f64) -> f64 {
        let alike = self.total * (1.0 + cosine * cosine) + 2.0 * cosine * self.common;
        (1.0 - cosine).powi(2) * alike.max(0.0)
    }

    /// What its entries were drawn from.
    pub(crate) fn read(self) -> Self {
        Self { total: self.drawn_from(), common: (self.common - self.drawn).max(0.0), ..self }
    }

    /// Behind entries that draw this, and keep the part `kept` of the deviations they are drawn from.
    pub(crate) fn through(self, kept: f64, drawn: f64) -> Self {
        let (squared, read) = (kept * kept, self.read());
        Self {
            total: squared * read.total + drawn,
            drawn,
            rows: squared * self.rows,
            inherited: kept * self.inherited,
            unequal: squared * self.unequal,
            common: squared * read.common + drawn,
        }
    }

    /// Where differences are these to the part `kept`, and others of this `width`, independent of them, for the rest.
    pub(crate) fn mixed(self, kept: f64, other: Self, width: f64) -> Self {
        let added = 1.0 - kept;
        // Products of one with the other are drawn by the entries of both.
        let together = 2.0 * kept * added / width;
        Self {
            total: kept * kept * self.total + added * added * other.total + together,
            drawn: kept * kept * self.drawn + added * added * other.drawn + together,
            rows: kept * kept * self.rows + added * added * other.rows,
            inherited: kept * self.inherited,
            unequal: kept * kept * self.unequal,
            common: kept * self.common + added / width,
        }
    }

    /// What of the total its entries were drawn from.
    pub(crate) fn drawn_from(self) -> f64 {
        (self.total - self.drawn).max(0.0)
    }

    /// Where rows of attention see very many keys.
    pub(crate) fn of_many_keys(self) -> Self {
        Self { total: self.total - self.rows, rows: 0.0, ..self }
    }

    /// Independent features.
    pub(crate) fn fresh(width: f64) -> Self {
        let drawn = width.recip();
        Self { total: drawn, drawn, rows: 0.0, inherited: 1.0, unequal: 0.0, common: drawn }
    }

    /// Of a sum of gradients, from those at the inputs of the branches, with their `weights` in it, and `before` they were
    /// split.
    pub(crate) fn joined(parts: &[Gradient], weights: &[f64], before: Self, width: f64) -> Self {
        let fresh = width.recip();
        let terms = || weights.iter().zip(parts.iter().map(|part| part.concentration));
        let inherited: f64 = terms().map(|(weight, part)| weight * part.inherited).sum();
        let own = |part: Self| (part.total - part.inherited.powi(2) * before.total).max(0.0);
        let mixed = terms().fold(fresh, |mixed, (weight, part)| mixed + weight * weight * (own(part) - fresh));
        let total = inherited * inherited * before.total + mixed;
        Self { total, drawn: fresh, rows: 0.0, inherited: inherited * before.inherited, unequal: 0.0, common: total }
            .bounded()
    }
}

/// E ĉ² of a cosine that strays about its mean c with the variance `concentration` (1 − c²)².
pub(crate) fn square(cosine: f64, concentration: f64) -> f64 {
    let square = cosine * cosine;
    square + concentration * (1.0 - square).powi(2)
}
