//! Scores of contents with relative positions.

use serde::{Deserialize, Serialize};

use crate::{Linear, Norm, Tensor};

/// Disentangled attention (DeBERTa): contents have scores with embeddings r of relative positions, besides the scores
/// of contents with contents:
///
/// ```text
/// s_ab = scale · (q_a·k_b + q_a·κ_δ + χ_δ·k_b)      δ = row(a − b)
/// κ = keys of the embeddings      χ = queries of the embeddings      of dropout(norm(r))
/// ```
///
/// where q, k are queries and keys of contents; a, b are the positions of a query and of a key. A map that has the
/// tensors of a map of contents is that map.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disentangled {
    /// The embeddings r, shape 2 `span` × width.
    pub table: Tensor,
    /// Number of rows of the table for keys behind the query, and for the query's own and later keys.
    pub span: usize,
    /// Distance from which on all keys share the last row, where rows beyond `span`/2 hold several distances each;
    /// `None` if every row holds one distance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_distance: Option<usize>,
    /// Norm of every embedding; `None`: there is no norm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub norm: Option<Norm>,
    /// Probability that an entry of a normed embedding is zeroed.
    #[serde(default)]
    pub dropout_rate: f64,
    /// Map from embeddings to κ (width of the keys); `None`: there is no score of queries with positions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Linear>,
    /// Map from embeddings to χ (width of the queries); `None`: there is no score of positions with keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<Linear>,
}

impl Disentangled {
    /// Returns the row of the table for a query that is `distance` positions behind a key.
    ///
    /// ```
    /// # use sigprop_stack::{Disentangled, Init, Tensor};
    /// # let table = Tensor { name: "table".to_owned(), init: Init::Zero };
    /// let rows = Disentangled { table, span: 4, max_distance: Some(16), norm: None, dropout_rate: 0.0, key: None, query: None };
    /// assert_eq!([-20, -3, -2, 0, 2, 3, 15, 20].map(|distance| rows.row(distance)), [0, 1, 2, 4, 6, 7, 7, 7]);
    /// ```
    pub fn row(&self, distance: i64) -> usize {
        let (span, middle) = (self.span as i64, self.span as i64 / 2);
        let near = distance.abs();
        let offset = match self.max_distance {
            Some(most) if near > middle => {
                let share = (near as f64 / middle as f64).ln() / ((most - 1) as f64 / middle as f64).ln();
                distance.signum() * ((share * (middle - 1) as f64).ceil() as i64 + middle)
            }
            Some(_) | None => distance,
        };
        (offset + span).clamp(0, 2 * span - 1) as usize
    }

    /// Returns the maps of the embeddings: that to keys, then that to queries.
    pub fn maps(&self) -> impl Iterator<Item = &Linear> {
        self.key.iter().chain(&self.query)
    }

    /// Returns the number of features of an embedding; 0 without a map.
    pub fn width(&self) -> usize {
        self.maps().next().map_or(0, |map| map.fan_in)
    }

    /// Returns the name of the gains of the norm.
    pub fn gain(&self) -> String {
        format!("{}.norm.gain", self.table.name)
    }

    /// Returns the name of the biases of the norm.
    pub fn bias(&self) -> String {
        format!("{}.norm.bias", self.table.name)
    }
}
