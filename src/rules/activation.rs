//! Elementwise activation y = φ(x), x Gaussian.
//!
//! # Formula
//!
//! ```text
//! E y_a y_b = E φ(u) φ(v)      (u, v) Gaussian with the moments of (x_a, x_b)
//! V' = χ² V_scale + κ/width    χ = E uφφ'/E φ²    κ = E φ⁴/(E φ²)² − 1
//! ```
//!
//! # Backward
//!
//! ```text
//! E g_a g_b' = E g_a g_b · E φ'(u) φ'(v)
//! E g'²     also times  1 + (ρ − 1 − S)(E φ²φ'²/(E φ² E φ'²) − 1)/width
//!                 and   1 + e (χS + (e + 1)/2) V_scale,    e = −d ln E φ'²/d ln σ²
//! ρ' = (E u²φ'² + (ρ − 1)(E uφφ')²/E φ²)/(σ² E φ'²)     S' = χ S + e
//! ```
//!
//! The first bracket: entries whose φ² is large have a φ'² that is not typical, and the gradient
//! knows φ·g (ρ) and the norm of φ (S).
//!
//! # Assumptions
//!
//! Gaussian pre-activations with zero mean, exact behind a linear map of infinite fan-in; a caveat
//! says where the input is something else.
//!
//! # Source
//!
//! Kernels: see [`kernel`]. Second moments through depth: Poole et al. 2016; κ/width: Hanin & Nica
//! 2018 (κ = 5 for ReLU); the 1/width terms of the gradient are ours.

mod function;
mod kernel;
mod profile;

use std::rc::Rc;

use sigprop_stack::Activation;

use self::function::homogeneous;
use self::profile::Profile;
use super::PairRule;
use crate::moments::{Token, TokenGradient, ln_correction, width_caveat};

/// Profiles already integrated: blocks of one kind meet nearly the same scale again and again.
#[derive(Default)]
pub(crate) struct Profiles {
    known: Vec<(Activation, f64, Rc<Profile>)>,
}

impl Profiles {
    /// Distance in ln σ² that is bridged to first order, with an error of half its square.
    const REACH: f64 = 1e-5;
    /// ln σ² of a signal that is zero as far as f64 can tell.
    const SMALLEST: f64 = -1400.0;

    /// The rule of `activation` for tokens like `x`.
    pub(crate) fn rule(&mut self, activation: Activation, x: &Token) -> Rule {
        // A homogeneous activation has one profile, and shifts by any amount are exact.
        let (anchor, reach) = match homogeneous(activation) {
            Some(_) => (0.0, f64::INFINITY),
            None => (x.ln_second.max(Self::SMALLEST), Self::REACH),
        };
        let near = |known: &&(Activation, f64, Rc<Profile>)| known.0 == activation && (known.1 - anchor).abs() <= reach;
        let (anchor, profile) = if let Some((_, anchor, profile)) = self.known.iter().rev().find(near) {
            (*anchor, Rc::clone(profile))
        } else {
            let profile = Rc::new(Profile::new(activation, anchor));
            self.known.push((activation, anchor, Rc::clone(&profile)));
            (anchor, profile)
        };
        Rule { profile, shift: x.ln_second.max(Self::SMALLEST) - anchor }
    }
}

pub(crate) struct Rule {
    profile: Rc<Profile>,
    /// ln σ² less that of the profile.
    shift: f64,
}

impl PairRule for Rule {
    fn token(&self, x: &Token) -> Token {
        let p = &self.profile;
        let zero = x.is_zero() && p.vanishes_at_zero();
        Token {
            ln_second: if zero { x.ln_second } else { p.ln_second() + p.sensitivity * self.shift },
            mean: p.mean,
            kurtosis: p.kurtosis,
            scale_variance: p.sensitivity.powi(2) * x.scale_variance,
            entry_variance: p.kurtosis / x.width,
            sensitivity: p.sensitivity * x.sensitivity,
            ..Token::gaussian(x.width, 0.0)
        }
    }

    fn cosine(&self, _: [&Token; 2], _: [&Token; 2], cosine: f64) -> f64 {
        self.profile.cosines(cosine).0
    }

    fn token_backward(&self, x: &Token, _: &Token, gradient: &TokenGradient) -> TokenGradient {
        let p = &self.profile;
        let known = (gradient.radial - 1.0 - gradient.steepness) * p.shared / x.width;
        let inherited = p.sensitivity * gradient.steepness;
        let fluctuation = p.exponent * (inherited + 0.5 * (p.exponent + 1.0)) * x.scale_variance;
        let ln_gain =
            p.ln_derivative_second() - p.exponent * self.shift + ln_correction(known) + ln_correction(fluctuation);
        TokenGradient {
            radial: p.radial_free + (gradient.radial - 1.0) * p.radial_kept,
            constant: 1.0 + (gradient.constant - 1.0) * p.constant_kept,
            steepness: inherited + p.exponent,
            ..gradient.scaled(ln_gain)
        }
    }

    fn cosine_backward(&self, _: [&Token; 2], cosine: f64, _: [&TokenGradient; 2], gradient_cosine: f64) -> f64 {
        gradient_cosine * self.profile.cosines(cosine).1
    }

    fn caveat(&self, x: &Token) -> Option<(&'static str, String)> {
        /// Dropout of 10 % on Gaussian entries stays below.
        const KURTOSIS_TOLERANCE: f64 = 0.5;
        /// Correlations of a ReLU network came out 1 % high here.
        const NORM_VARIANCE_LIMIT: f64 = 0.1;
        if x.norm_variance() > NORM_VARIANCE_LIMIT {
            let got = format!("{:.2}", x.norm_variance());
            return Some((
                "norms of tokens drift apart; covariances are overestimated, by up to a quarter of the variance of ln |x|²",
                got,
            ));
        }
        if x.mean.abs() > 1e-6 || (x.kurtosis - 2.0).abs() > KURTOSIS_TOLERANCE {
            let got = format!("mean/√(E x²) {:.3}, kurtosis {:.2} (Gaussian: 3)", x.mean, x.kurtosis + 1.0);
            return Some(("the input of an activation is taken as Gaussian with mean 0", got));
        }
        width_caveat(x)
    }
}
