//! Noise that a stream has from before an orthogonal map, which preserves the products of tokens.
//!
//! ```text
//! Cov(y_a·y_b, y_c·y_d | x) = (1 − p) · the covariance for Gaussian weights       p = min(1, n_out/n_in)
//! Cov(Wᵀg_a·Wᵀg_b, Wᵀg_c·Wᵀg_d | g) likewise                                       p = min(1, n_in/n_out)
//! ```
//!
//! where y = W x is the output of an orthogonal map of n_in onto n_out features; a, b, c, d are positions of tokens; g is
//! the gradient at y; Cov is a covariance over networks; p is the share that the map preserves.
//!
//! W is a rotation followed by a selection of n_out of n_in entries, or the transpose of such a map. Given the products
//! of all tokens, each entry of y is Gaussian as for a Gaussian map, to leading order, but squares of different entries
//! have correlations of −p/n_out, so that the products fluctuate less. A function φ of the entries has the covariance
//! Cov(φ, φ) − p J Cov(y, y) Jᵀ with the Jacobian J of its map of products, because a regression of φ on the products
//! of Gaussian entries has the slope J (Price 1958). In the code, the second term is noise that is already in the
//! covariance of the variables (`Stream::drawn`, `Both::preserved`). Exact for one token: |y|²/(γ² |x|²) has the
//! distribution Beta(n_out/2, (n_in − n_out)/2).
//!
//! Source: Haar's measure; Price 1958, *A useful theorem for nonlinear devices having Gaussian inputs*.

use sigprop_stack::{Init, Linear};

use super::forward::Step;
use super::map::Gain;
use super::noise::{FourPoint, Noise};
use super::stream::Stream;
use super::variables::{U, Vector};

/// Returns the shares p of a linear map: for products of two tokens of the output, and for those of two tokens' gradients
/// at the input. Both are 0 for independent weights.
pub(super) fn shares(linear: &Linear) -> [f64; 2] {
    match linear.weight.init {
        Init::Orthogonal { .. } => {
            let ratio = linear.fan_out as f64 / linear.fan_in as f64;
            [ratio.min(1.0), ratio.recip().min(1.0)]
        }
        Init::Zero | Init::Normal { .. } | Init::Uniform { .. } | Init::TruncatedNormal { .. } => [0.0; 2],
    }
}

/// Returns the share `preserved` of the noise of `width` Gaussian entries that have the correlation of the input `x`,
/// for `length` tokens. `r` is the correlation of two tokens of the output, `variance` that of r over networks.
pub(super) fn noise(x: &Stream, [r, variance]: [f64; 2], width: f64, length: f64, preserved: f64) -> Noise {
    if preserved <= 0.0 {
        return Noise::none();
    }
    let covariances = FourPoint::gaussian(x.correlation, variance).covariances(x.correlation);
    let Noise { covariance, drift } = covariances.noise(width, length, r);
    Noise { covariance: covariance * preserved, drift: drift * preserved }
}

/// The part of a component's terms that comes from noise of its inputs' entries that is already in the covariance of the
/// variables: there it acts on the output and on the gain through their derivatives.
pub(super) struct Through {
    /// The variance of U.
    pub(super) level: f64,
    /// The covariances of the output's variables with ln of the gains on E g_a² and E g_a g_b.
    pub(super) with_gains: [Vector; 2],
}

impl Through {
    pub(super) fn new(step: &Step, gain: &Gain, inputs: &[&Stream]) -> Self {
        let mut all = Self { level: 0.0, with_gains: [Vector::zeros(); 2] };
        let cosine = gain.cosine.value;
        for (part, input) in inputs.iter().enumerate() {
            let Some(drawn) = input.drawn.filter(|_| input.is_preserved) else { continue };
            let through = step.blocks[part] * drawn.covariance;
            let own = gain.ln_own.gradient[part];
            all.level += (through * step.blocks[part].transpose())[(U, U)];
            all.with_gains[0] += through * own;
            if cosine.abs() > 1e-9 {
                all.with_gains[1] += through * (own + gain.cosine.gradient[part] / cosine);
            }
        }
        all
    }
}
