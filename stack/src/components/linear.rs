//! A linear map of features.

use serde::{Deserialize, Serialize};

use crate::Tensor;

/// y = W x + b, the same for every token; of a standardised weight y = Ŵ x + b with the rows of
///
/// ```text
/// Ŵ_i = γ (W_i − mean W_i)/|W_i − mean W_i| = γ (W_i − mean W_i)/(std W_i · √fan_in)      0 of rows that are constant
/// ```
///
/// Scaled weight standardisation (Brock et al. 2021), the plain one (Qiao et al. 2019) has γ = √`fan_in`; both without
/// the ε beside std² that keeps implementations from dividing by zero.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    /// Features of x.
    pub fan_in: usize,
    /// Features of y.
    pub fan_out: usize,
    /// Shape `fan_out` × `fan_in`.
    pub weight: Tensor,
    /// Shape `fan_out`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<Tensor>,
    /// γ, the length of every row that the weight is standardised to, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standardised: Option<f64>,
}
