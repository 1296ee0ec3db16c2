//! Second moments of products of signals with gradients, c_ab = x_a·g_b, and what they do to gradients.
//!
//! Given W x = y a linear map is Wᵀg = X (XᵀX)⁻¹ Yᵀg + P⊥W̃ᵀg with W̃ drawn anew: x·Wᵀg = y·g, and |Wᵀg|² differs from that of an
//! independent W only by how far E c cᵀ is from isotropic. Numbers of a gradient,
//!
//! ```text
//! ρ = E c_aa²/(n E x² E g²)      α = E c_aa c_ab/(n E x² E g_a g_b)      k = E (Σ_i g_i)²/(n E g²)      all 1 if g is isotropic
//! ```
//!
//! are handed on by affine maps, and add multiples of themselves over n to ln E g_a² and ln E g_a g_b. Gradients of gains alone know of
//! two more: the excess of E c_aa c_bb/(n E x² E g²) over E x_a x_b E g_a g_b/(E x² E g²), which c_ab c_ba has too, and q, n times that of
//! E Σ_i g_ai² x_ai² over n E x² E g²: where g has the more along x, entries that are large have larger gradients.
//! Source: Bolthausen 2014 (conditioning on a Gaussian matrix).

/// ρ, α, k, the excess of c_aa c_bb, and q.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mixed {
    /// ρ.
    pub(crate) radial: f64,
    /// α.
    pub(crate) cross: f64,
    /// k.
    pub(crate) ones: f64,
    /// The excess of c_aa c_bb.
    pub(crate) pairs: f64,
    /// q.
    pub(crate) squares: f64,
    /// ρ and α as far as single entries make them.
    pub(crate) entries: [f64; 2],
}

/// What becomes of one of the three numbers: `isotropic` + `kept` (number − 1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Affine {
    pub(crate) isotropic: f64,
    pub(crate) kept: f64,
}

/// What a component makes of ρ, α and k.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transport {
    pub(crate) radial: Affine,
    pub(crate) cross: Affine,
    pub(crate) ones: Affine,
    /// Of the excess: what is kept, what it becomes by E g_a g_b/E g² at the output, and by that at the input.
    pub(crate) pairs: [f64; 3],
    /// Of q: what is kept, what it becomes by ρ − 1 at the output, and by that at the input.
    pub(crate) squares: [f64; 3],
    /// ρ and α as far as single entries make them behind it.
    pub(crate) entries: [f64; 2],
    /// What it adds to ln E g_a² and ln E g_a g_b: multiples of 1, ρ − 1, α − 1, k − 1.
    pub(crate) own: [f64; 4],
    pub(crate) pair: [f64; 4],
    /// The share of ρ and α that entries make, over n, which it takes off.
    pub(crate) less_entries: [f64; 2],
}

impl Affine {
    /// What does not change.
    pub(crate) const SAME: Self = Self { isotropic: 1.0, kept: 1.0 };
    /// What is forgotten.
    pub(crate) const ISOTROPIC: Self = Self { isotropic: 1.0, kept: 0.0 };
    /// What is removed.
    pub(crate) const NOTHING: Self = Self { isotropic: 0.0, kept: 0.0 };

    fn of(self, number: f64) -> f64 {
        self.isotropic + self.kept * (number - 1.0)
    }
}

impl Mixed {
    /// Of a gradient that points anywhere.
    pub(crate) const ISOTROPIC: Self =
        Self { radial: 1.0, cross: 1.0, ones: 1.0, pairs: 0.0, squares: 0.0, entries: [1.0; 2] };

    /// Behind a component that gradients have these cosines behind and before.
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

    /// What a component adds to ln E g_a² and ln E g_a g_b.
    pub(crate) fn added(self, transport: &Transport) -> [f64; 2] {
        let numbers = [1.0, self.radial - 1.0, self.cross - 1.0, self.ones - 1.0];
        let added = [transport.own, transport.pair]
            .map(|by| by.iter().zip(numbers).map(|(by, number)| by * number).sum::<f64>());
        std::array::from_fn(|index| added[index] - transport.less_entries[index] * (self.entries[index] - 1.0))
    }

    /// Of the sum of two uncorrelated gradients with these shares of E g².
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
    /// That changes nothing.
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
