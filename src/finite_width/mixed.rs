//! Second moments of products of signals with gradients, c_ab = x_a·g_b, and their effect on gradients.
//!
//! Three numbers of a gradient are passed back by affine maps, and multiples of them over n are added to ln E g_a² and
//! ln E g_a g_b. All three are 1 if the gradient is isotropic:
//!
//! ```text
//! ρ = E c_aa²/(n E x² E g²)      α = E c_aa c_ab/(n E x² E g_a g_b)      k = E (Σ_i g_i)²/(n E g²)
//! ```
//!
//! where ρ, α are the second moment of c_aa and that of c_aa with c_ab, relative to an isotropic gradient; k is the
//! squared sum of the entries of a gradient, relative to an isotropic gradient; E is the average over random weights
//! and over features; x, g are entries of a signal and of its gradient; g_a, g_b are the gradients of the loss with
//! respect to the vectors of tokens a and b; g_i is entry i of the gradient of a token; a, b are positions of tokens; n
//! is the number of features.
//!
//! Given W x = y, the gradient at the input of a linear map is Wᵀg = X (XᵀX)⁻¹ Yᵀg + P⊥W̃ᵀg, where W̃ is a new sample
//! of W and P⊥ the projection onto the complement of all inputs x. So x·Wᵀg = y·g, and |Wᵀg|² differs from that of an
//! independent W only as far as E c cᵀ is not isotropic.
//!
//! Gradients of gains alone depend on two more numbers. One is the excess of E c_aa c_bb/(n E x² E g²) over E x_a x_b E
//! g_a g_b/(E x² E g²), which c_ab c_ba has too. The other is q, n times the relative excess of E Σ_i g_ai² x_ai² over
//! n E x² E g²: where g has more along x, large entries have larger gradients. Source: Bolthausen 2014 (conditioning on
//! a Gaussian matrix).

/// The numbers ρ, α, k, the excess of c_aa c_bb, and q of a gradient, where c_ab = x_a·g_b.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mixed {
    /// ρ = E c_aa²/(n E x² E g²), where c_ab = x_a·g_b.
    pub(crate) radial: f64,
    /// α = E c_aa c_ab/(n E x² E g_a g_b), where c_ab = x_a·g_b.
    pub(crate) cross: f64,
    /// k = E (Σ_i g_i)²/(n E g²).
    pub(crate) ones: f64,
    /// The excess of E c_aa c_bb/(n E x² E g²) over E x_a x_b E g_a g_b/(E x² E g²).
    pub(crate) pairs: f64,
    /// q, which is n times the relative excess of E Σ_i g_ai² x_ai² over n E x² E g².
    pub(crate) squares: f64,
    /// The parts of ρ and α that come from single entries.
    pub(crate) entries: [f64; 2],
}

/// The affine map of one of the numbers ρ, α and k: `isotropic` + `kept` (number − 1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Affine {
    pub(crate) isotropic: f64,
    pub(crate) kept: f64,
}

/// The map of a component from the numbers of the gradient at its output (see [`Mixed`]) to those at its input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transport {
    pub(crate) radial: Affine,
    pub(crate) cross: Affine,
    pub(crate) ones: Affine,
    /// Factors of three terms whose sum is the excess of c_aa c_bb at the input: the excess at the output, E g_a g_b/E
    /// g² at the output, and E g_a g_b/E g² at the input.
    pub(crate) pairs: [f64; 3],
    /// Factors of three terms whose sum is q at the input: q at the output, ρ − 1 at the output, and ρ − 1 at the
    /// input.
    pub(crate) squares: [f64; 3],
    /// The parts of ρ and α at the input that come from single entries.
    pub(crate) entries: [f64; 2],
    /// The addition to ln E g_a²: multiples of 1, ρ − 1, α − 1, k − 1.
    pub(crate) own: [f64; 4],
    /// The addition to ln E g_a g_b: multiples of 1, ρ − 1, α − 1, k − 1.
    pub(crate) pair: [f64; 4],
    /// Factors of order 1/n on the parts of ρ − 1 and α − 1 that come from single entries. These products are
    /// subtracted from the additions `own` and `pair`.
    pub(crate) less_entries: [f64; 2],
}

impl Affine {
    /// The map that keeps the number.
    pub(crate) const SAME: Self = Self { isotropic: 1.0, kept: 1.0 };
    /// The map that forgets the number: the result is 1.
    pub(crate) const ISOTROPIC: Self = Self { isotropic: 1.0, kept: 0.0 };
    /// The map that removes the number: the result is 0.
    pub(crate) const NOTHING: Self = Self { isotropic: 0.0, kept: 0.0 };

    fn of(self, number: f64) -> f64 {
        self.isotropic + self.kept * (number - 1.0)
    }
}

impl Mixed {
    /// The numbers of a gradient that is isotropic.
    pub(crate) const ISOTROPIC: Self =
        Self { radial: 1.0, cross: 1.0, ones: 1.0, pairs: 0.0, squares: 0.0, entries: [1.0; 2] };

    /// Returns the numbers at the input of a component, where gradients have the cosines `after` at its output and
    /// `before` at its input.
    pub(crate) fn through(self, transport: &Transport, [after, before]: [f64; 2]) -> Self {
        let [kept, by_after, by_before] = transport.pairs;
        let [squares_kept, by_output, by_input] = transport.squares;
        let radial = transport.radial.of(self.radial);
        Self {
            pairs: kept * self.pairs + by_after * after + by_before * before,
            squares: squares_kept * self.squares + by_output * (self.radial - 1.0) + by_input * (radial - 1.0),
            entries: transport.entries,
            radial,
            cross: transport.cross.of(self.cross),
            ones: transport.ones.of(self.ones),
        }
    }

    /// Returns the additions of a component to ln E g_a² and ln E g_a g_b.
    pub(crate) fn added(self, transport: &Transport) -> [f64; 2] {
        let numbers = [1.0, self.radial - 1.0, self.cross - 1.0, self.ones - 1.0];
        let added = [transport.own, transport.pair]
            .map(|by| by.iter().zip(numbers).map(|(by, number)| by * number).sum::<f64>());
        std::array::from_fn(|index| added[index] - transport.less_entries[index] * (self.entries[index] - 1.0))
    }

    /// Returns the numbers of the sum of uncorrelated gradients with these shares of E g².
    pub(crate) fn joined(parts: impl Iterator<Item = (f64, Self)>) -> Self {
        let none = Self { radial: 0.0, cross: 0.0, ones: 0.0, ..Self::ISOTROPIC };
        parts.fold(none, |sum, (share, part)| Self {
            radial: sum.radial + share * part.radial,
            cross: sum.cross + share * part.cross,
            ones: sum.ones + share * part.ones,
            pairs: sum.pairs + share * part.pairs,
            squares: sum.squares + share * part.squares,
            entries: [1.0; 2],
        })
    }
}

impl Transport {
    /// The effect of a component that changes nothing.
    pub(crate) const NONE: Self = Self {
        radial: Affine::SAME,
        cross: Affine::SAME,
        ones: Affine::SAME,
        pairs: [1.0, 0.0, 0.0],
        squares: [1.0, 0.0, 0.0],
        entries: [1.0; 2],
        own: [0.0; 4],
        pair: [0.0; 4],
        less_entries: [0.0; 2],
    };
}
