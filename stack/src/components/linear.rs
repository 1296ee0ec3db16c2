//! A linear map of features.

use serde::{Deserialize, Serialize};

use crate::Tensor;

/// y = W x + b, the same for every token. For a standardised weight y = Ŵ x + b, where Ŵ has the rows
///
/// ```text
/// Ŵ_i = γ (W_i − mean W_i)/|W_i − mean W_i| = γ (W_i − mean W_i)/(std W_i · √fan_in)      0 of rows that are constant
/// ```
///
/// This is scaled weight standardisation (Brock et al. 2021). The plain one (Qiao et al. 2019) has γ = √`fan_in`. Both
/// are without the ε that implementations add to std² to avoid a division by zero.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    /// Number of features of x.
    pub fan_in: usize,
    /// Number of features of y.
    pub fan_out: usize,
    /// Shape `fan_out` × `fan_in`.
    pub weight: Tensor,
    /// Shape `fan_out`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<Tensor>,
    /// γ, the length of every row of the standardised weight; `None` if the weight is not standardised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standardised: Option<f64>,
}
