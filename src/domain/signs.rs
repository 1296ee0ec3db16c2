//! The sizes and signs of a gradient over the tokens of one sequence: what a step along the sign of the gradient of a
//! linear map is worth, and what it does to the map's output on the same sequence.
//!
//! ```text
//! aligned = E_s (K g)_s²/(g·K g)     size = E √(2/π) √(g·K g)     K_ab = E x_a x_b,  g of covariance Γ over tokens
//! ```
//!
//! Where tokens are alike, one direction h of Γ K has much of g·K g, and its share strays from network to network; the
//! rest is the sum over many. With a = tr ΓK and b = tr ΓK²/L of which h has a₁ and b₁, z of N(0, 1), u = (a − a₁)/a₁,
//!
//! ```text
//! aligned = E (b₁ z² + b − b₁)/(a₁ z² + a − a₁) = φ b₁/a₁ + (1 − φ) (b − b₁)/(a − a₁)     φ = E z²/(z² + u)
//! size    = √(2/π) E √(a₁ z² + a − a₁)
//! ```
//!
//! φ = 1 − √(πu/2) e^{u/2} erfc √(u/2). In the Gram domain h is the eigenvector of Γ K with the largest eigenvalue
//! a₁ = h·K h, and b₁ = |K h|²/L. Exchangeable tokens have h along (1, …, 1). How often ids repeat strays from sequence
//! to sequence, and where they do both b and a are larger: averages are over two draws ([`Exchangeable::draws`]).

use std::f64::consts::{FRAC_2_PI, PI};

use nalgebra::{DMatrix, DVector};

use super::aligned::matrix;
use super::{Domain, Exchangeable, Flow, Gradient, Signal};
use crate::moments::ln_sum;
use crate::quadrature::gaussian_nodes;

/// Steps of the power method. If the second eigenvalue is not much smaller, what of it is in h matters little.
const POWERS: usize = 32;

/// See above.
pub(crate) struct Signs {
    pub(crate) ln_aligned: f64,
    pub(crate) ln_size: f64,
}

/// What a direction, or all of them, has of g·K g and of |K g|²/L.
#[derive(Clone, Copy)]
struct Shares {
    own: f64,
    met: f64,
}

impl Domain {
    /// Of a gradient that is not zero.
    pub(crate) fn signs(&self, x: &Signal, gradient: &Gradient) -> Signs {
        let Self::Exchangeable(domain) = self else { return self.signs_of_one(x, gradient) };
        let draws = domain.draws();
        let each = || {
            let one = |(weight, draw): &(f64, Exchangeable)| {
                (weight.ln(), Self::Exchangeable(draw.clone()).signs_of_one(x, gradient))
            };
            draws.iter().map(one)
        };
        Signs {
            ln_aligned: ln_sum(each().map(|(ln_weight, signs)| ln_weight + signs.ln_aligned)),
            ln_size: ln_sum(each().map(|(ln_weight, signs)| ln_weight + signs.ln_size)),
        }
    }

    /// Of one draw of the ids.
    fn signs_of_one(&self, x: &Signal, gradient: &Gradient) -> Signs {
        let (ln_x, ln_g) = (x.ln_level(), gradient.ln_level());
        let ln_collected = self.ln_collected(x, gradient, 0.0);
        let all = Shares {
            own: (ln_collected - ln_x - ln_g).exp(),
            met: (self.ln_aligned(x, gradient) - 2.0 * ln_x - ln_g).exp(),
        };
        let first = match self {
            Self::Exchangeable(domain) => domain.common(&x.cosines, &gradient.cosines),
            Self::Gram { .. } => largest(&matrix(x, ln_x), &matrix(gradient, ln_g)),
        };
        let first = Shares { own: first.own.min(all.own), met: first.met.min(all.met) };
        Signs {
            ln_aligned: ln_x + aligned(all, first).ln(),
            ln_size: 0.5 * (FRAC_2_PI.ln() + ln_collected) + mean_root(first.own / all.own).ln(),
        }
    }
}

/// E (b₁ z² + b − b₁)/(a₁ z² + a − a₁).
fn aligned(all: Shares, first: Shares) -> f64 {
    let rest = Shares { own: all.own - first.own, met: all.met - first.met };
    if first.own <= 0.0 {
        return rest.met / rest.own;
    }
    let share = first_share(rest.own / first.own);
    let of_rest = if rest.own > 0.0 { (1.0 - share) * rest.met / rest.own } else { 0.0 };
    share * first.met / first.own + of_rest
}

/// φ = E z²/(z² + u).
fn first_share(u: f64) -> f64 {
    /// Beyond, the asymptotic series is good to 1e-4.
    const LARGE: f64 = 60.0;
    if u > LARGE {
        let v = u.recip();
        return v * (1.0 - v * (3.0 - v * (15.0 - 105.0 * v)));
    }
    let half = 0.5 * u;
    1.0 - (PI * half).sqrt() * half.exp() * libm::erfc(half.sqrt())
}

/// E √(s z² + 1 − s).
fn mean_root(s: f64) -> f64 {
    gaussian_nodes(0.0, 1.0).iter().map(|(z, weight)| weight * (s * z * z + 1.0 - s).sqrt()).sum()
}

/// The largest eigenvalue of Γ K and what goes with it; nothing of no gradient.
fn largest(x: &DMatrix<f64>, gradient: &DMatrix<f64>) -> Shares {
    let mut h = DVector::from_element(x.nrows(), 1.0);
    for _ in 0..POWERS {
        let next = gradient * (x * &h);
        let norm = next.norm();
        if norm <= 0.0 {
            return Shares { own: 0.0, met: 0.0 };
        }
        h = next / norm;
    }
    let met = x * &h;
    let size = h.dot(&met);
    let own = (gradient * &met).dot(&met) / size;
    Shares { own, met: own * met.norm_squared() / (size * x.nrows() as f64) }
}

impl Exchangeable {
    /// The direction (1, …, 1).
    fn common(&self, x: &[f64], gradient: &[f64]) -> Shares {
        let [own, of_gradient] = [x, gradient].map(|cosines| self.coherence(self.mean(cosines)));
        let ones = vec![1.0; x.len()];
        Shares { own: of_gradient * own, met: of_gradient * self.aligned(x, &ones) / self.seq_len }
    }
}

#[cfg(test)]
mod tests {
    use approx::assert_relative_eq;

    use super::*;
    use crate::domain::PairClass;
    use crate::moments::{PerToken, Token, TokenGradient};

    const TOKENS: usize = 48;

    /// In both domains, all pairs of tokens having these cosines.
    fn signs([x, g]: [f64; 2]) -> [Signs; 2] {
        let class = PairClass { share: 1.0, same_id: false, same_segment: false };
        let exchangeable = Domain::Exchangeable(Exchangeable::plain(TOKENS as f64, vec![class]));
        [(exchangeable, 1), (Domain::Gram { alike: true }, TOKENS)].map(|(domain, count)| {
            let cosines = |cosine| domain.map(count, |i, j, _| if count > 1 && i == j { 1.0 } else { cosine });
            let tokens: PerToken<Token> = vec![Token::gaussian(64.0, 0.7); count].into();
            let gradients: PerToken<TokenGradient> = vec![TokenGradient::isotropic(-1.1); count].into();
            domain.signs(&Signal::new(tokens, cosines(x)), &Gradient::new(gradients, cosines(g)))
        })
    }

    /// By Simpson's rule with 40 000 panels, in Python.
    #[test]
    fn averages_over_one_direction() {
        for (u, expected) in [
            (0.01, 0.884_073_760),
            (1.0, 0.344_320_458),
            (30.0, 0.030_454_733),
            (59.0, 0.016_152_821),
            (61.0, 0.015_646_661),
            (200.0, 0.004_926_812),
        ] {
            assert_relative_eq!(first_share(u), expected, max_relative = 1e-4);
        }
        for (s, expected) in [(0.25, 0.988_239_330), (0.5, 0.957_797_919), (0.9, 0.856_995_179)] {
            assert_relative_eq!(mean_root(s), expected, max_relative = 1e-8);
        }
    }

    /// Tokens that have nothing in common, and copies: (K g)_s²/(g·K g) is 1/L and 1, whatever g is; g·K g is the sum
    /// of 48 squares, and the square of a Gaussian sum.
    #[test]
    fn limits() {
        let (ln_x, ln_g) = (0.7f64, -1.1f64);
        for Signs { ln_aligned, ln_size } in signs([0.0, 0.0]) {
            assert_relative_eq!(ln_aligned - ln_x, -(TOKENS as f64).ln(), max_relative = 1e-9);
            let expected = 0.5 * (FRAC_2_PI * TOKENS as f64).ln() + 0.5 * (ln_x + ln_g);
            assert_relative_eq!(ln_size, expected, epsilon = 0.01);
        }
        for Signs { ln_aligned, ln_size } in signs([1.0, 0.0]) {
            // Of nothing that is left, rounding: its root counts.
            assert_relative_eq!(ln_aligned, ln_x, epsilon = 1e-6);
            let expected = FRAC_2_PI.ln() + 0.5 * ((TOKENS as f64).ln() + ln_x + ln_g);
            assert_relative_eq!(ln_size, expected, epsilon = 1e-6);
        }
    }

    /// Cosine 0.7, gradients independent: averages over z and over χ² of 47 degrees of freedom, by quadrature in
    /// Python. That the rest does not stray is good to 1/47.
    #[test]
    fn alike_tokens() {
        for Signs { ln_aligned, ln_size } in signs([0.7, 0.0]) {
            assert_relative_eq!((ln_aligned - 0.7).exp(), 0.346_912_632, max_relative = 1.0 / 47.0);
            let size = (ln_size - 0.5 * (0.7 - 1.1 + FRAC_2_PI.ln() + (TOKENS as f64).ln())).exp();
            assert_relative_eq!(size, 0.915_996_383, max_relative = 1.0 / 47.0);
        }
    }
    /// Ids by Zipf's law, 1000 of them, equal tokens copies and others nothing alike; gradients alike at 0.97 and 0.99:
    /// numpy, 2000 draws of 48 ids with 32 gradients each, good to 1e-2. That one number stands for all ids leaves 4 to
    /// 5 %; one draw would be 14 % too large.
    #[test]
    fn repeats_stray() {
        let weights: Vec<f64> = (1..=1000).map(|rank| 1.0 / f64::from(rank)).collect();
        let total: f64 = weights.iter().sum();
        let [pair, id_triple] = [2, 3].map(|power| weights.iter().map(|w| (w / total).powi(power)).sum::<f64>());
        let class = |share, same_id| PairClass { share, same_id, same_segment: false };
        let plain = Exchangeable::plain(TOKENS as f64, vec![class(pair, true), class(1.0 - pair, false)]);
        let domain = Domain::Exchangeable(Exchangeable { id_triple, ..plain });
        let x = Signal::new([Token::gaussian(64.0, 0.0)].into(), [1.0, 0.0].into());
        let gradient = Gradient::new([TokenGradient::isotropic(0.0)].into(), [0.99, 0.97].into());
        assert_relative_eq!(domain.signs(&x, &gradient).ln_aligned.exp(), 0.0849, max_relative = 0.06);
    }
}
