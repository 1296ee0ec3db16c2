//! How gradients of two tokens answer to how alike the tokens happen to be.
//!
//! In one network the cosine ĉ of two tokens strays from its mean c. Gradients of pairs that happen to be more alike are more
//! alike themselves: activations multiply cosines by κ(ĉ), attention sends alike queries to the same keys. With P = d cos(g_a,
//! g_b)/dĉ_ab at a signal (`response`), what weights and gains collect there, E Σ_ab x_a·x_b g_a·g_b, exceeds the product of
//! the expectations by
//!
//! ```text
//! (L − 1) (P γ v(c) + D ι (1 − c))        v(c) = (1 − c)² (2 − (1 − c)²)        per token, in units of E x² E g²
//! ```
//!
//! γ v is the variance of ĉ in networks of given levels, whose tokens are m + d_a, |m|² and Σ|d|² fixed, and normalised: with
//! γ of d_a·d_b/|d|² and of either m·d_a/(|m||d|) ĉ − c = (d_a·d_b + (1 − c) m·(d_a + d_b) − c (|d_a|² + |d_b|² − 2|d|²)/2)/|x|²
//! has γ ((1 − c)² + 2c (1 − c)³ + c² (1 − c)²), the second with `common` in place of γ where what is shared has directions of its own.
//! (That of |m|², 2 c² (1 − c)² γ, which makes (1 − c²)² γ of it, is of levels: [`Domain::met_together`].)
//!
//! Maps and norms keep ĉ but for what they draw, and P with it; an activation of c' = f(c) has P_x = κ f' P_y + κ' cos(g). A sum, of
//! whose second moment branch i is the part a_i, has ĉ' = Σ a_i ĉ_i, so that the branch receives P a_i; and a branch keeps, of
//! what differs at the fork, the slope s_i = ι_i (1 − c_i)/(1 − c), ι its `inherited` concentration. At the fork
//!
//! ```text
//! P_x = Σ_i w_i (P_i + m_i P Σ_{j≠i} a_j s_j)
//! ```
//!
//! w_i being the shares of branches in the gradient, m_i = d cos(g_i)/d cos(g') what branch i makes of cosines (`made`). Inside
//! branch i the same is met by way of the others: D = P Σ_{j≠i} a_j s_j γ v(c)/(1 − c) of the fork, times m (`beside`).
//!
//! Gains of norms meet such a response twice where Σ_a g_a x_aᵀ is symmetric (`rules/norm.rs`). That of tokens that go to one expert is not
//! (`rules/mixture.rs`, *Chosen alike*): the part O of P is `one_sided`, and goes along with it.
//!
//! Assumptions: γ ≪ 1; all pairs are taken at their average cosine. Attention hands on what its own rows make of pairs, and ends what
//! it is given: the gradient of a value is gathered from all queries.
//!
//! Source: ours.

use super::{Concentration, Domain, Gradient, Signal};
use crate::moments::ratio;

/// How cosines of a gradient answer to those of its signal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Nearness {
    /// P, of the signal right here.
    pub(crate) response: f64,
    /// The part of it by which Σ_a g_a x_aᵀ is not symmetric: of experts that are chosen together.
    pub(crate) one_sided: f64,
    /// D, of the fork it was split at.
    pub(crate) beside: f64,
    /// m, since it was split.
    pub(crate) made: f64,
}

impl Nearness {
    pub(crate) const NONE: Self = Self { response: 0.0, one_sided: 0.0, beside: 0.0, made: 1.0 };

    /// Before what maps cosines of signals with this `slope` and multiplies those of gradients by `kept`, to which it adds this
    /// much by its `own` answer to the signal.
    #[must_use]
    pub(crate) fn before(self, slope: f64, kept: f64, own: f64) -> Self {
        Self {
            response: kept * slope * self.response + own,
            one_sided: kept * slope * self.one_sided,
            beside: kept * self.beside,
            made: kept * self.made,
        }
    }

    /// Where it was split, at a `branch` of what forked at `x`.
    pub(crate) fn split(self, domain: &Domain, x: &Signal, branch: Branch) -> Self {
        let here = if branch.by_others == 0.0 { 0.0 } else { branch.by_others * domain.apart(x) };
        Self {
            response: branch.own,
            one_sided: branch.own * self.sided(),
            beside: here + branch.kept * self.beside * x.concentration.inherited,
            made: 1.0,
        }
    }

    /// At the input of a fan, from that at its output and those of `parts`, which have these `shares` in the gradient, where
    /// `branches` begin.
    pub(crate) fn joined(self, branches: &[Branch], parts: impl Iterator<Item = (Self, f64)>) -> Self {
        let mut joined = Self { made: 0.0, ..Self::NONE };
        for (branch, (part, share)) in branches.iter().zip(parts) {
            joined.response += share * (part.response + part.made * (branch.by_others + branch.chosen));
            joined.one_sided +=
                share * (part.one_sided + part.made * (branch.by_others * self.sided() + branch.chosen));
            joined.made += share * part.made * branch.kept;
        }
        Self { beside: joined.made * self.beside, made: joined.made * self.made, ..joined }
    }

    /// How much of the response is one-sided.
    fn sided(self) -> f64 {
        if self.response == 0.0 { 0.0 } else { self.one_sided / self.response }
    }
}

/// What a fan makes of cosines of the gradient at its output, where a branch begins.
#[derive(Clone, Copy)]
pub(crate) struct Branch {
    /// d cos(g_i)/d cos(g').
    pub(crate) kept: f64,
    /// How they answer to the branch's output.
    pub(crate) own: f64,
    /// How they answer to the fan's input by way of the other branches.
    pub(crate) by_others: f64,
    /// And because tokens that are alike are sent into the same branch.
    pub(crate) chosen: f64,
}

impl Branch {
    /// Of what hands nothing on.
    pub(crate) const NONE: Self = Self { kept: 0.0, own: 0.0, by_others: 0.0, chosen: 0.0 };
}

impl Domain {
    /// v(c) γ.
    fn nearness(&self, x: &Signal) -> f64 {
        /// What rounding leaves between copies is none.
        const COPIES: f64 = 1e-9;
        let apart = 1.0 - self.mean_cosine(x);
        if apart <= COPIES {
            return 0.0;
        }
        let (cosine, Concentration { total, common, .. }) = (1.0 - apart, x.concentration);
        let alike = total * (1.0 + cosine * cosine) + 2.0 * cosine * apart * common;
        apart * apart * alike.max(0.0)
    }

    /// The same over 1 − c.
    fn apart(&self, x: &Signal) -> f64 {
        ratio(self.nearness(x), 1.0 - self.mean_cosine(x))
    }

    /// What E Σ_ab x_a·x_b g_a·g_b is beyond the product of the expectations, per token and in units of E x² E g², because
    /// pairs that happen to be more alike have gradients more alike: here, and at the fork.
    pub(crate) fn met_near(&self, x: &Signal, gradient: &Gradient) -> f64 {
        let Nearness { response, beside, .. } = gradient.nearness;
        let inherited = || self.others(x) * x.concentration.inherited * (1.0 - self.mean_cosine(x));
        self.met_here(x, response) + if beside == 0.0 { 0.0 } else { beside * inherited() }
    }

    /// The part met here, of cosines that answer by this `response`.
    pub(crate) fn met_here(&self, x: &Signal, response: f64) -> f64 {
        if response == 0.0 { 0.0 } else { self.others(x) * response * self.nearness(x) }
    }

    /// How cosines of the `gradient` at `x` answer to those there, where its `coupling` is told as a response.
    pub(crate) fn near(&self, x: &Signal, gradient: &Gradient) -> Nearness {
        let Gradient { nearness, coupling, .. } = *gradient;
        if coupling == 0.0 {
            return nearness;
        }
        Nearness { response: nearness.response + ratio(coupling, self.met_here(x, 1.0)), ..nearness }
    }

    /// L − 1.
    fn others(&self, x: &Signal) -> f64 {
        self.length(x.tokens.len()) - 1.0
    }
}
