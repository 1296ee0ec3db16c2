//! The table of results that all interpreters of a stack have in common.

use serde::{Deserialize, Serialize};

use crate::Number;

/// A quantity that is reported for every site; the variants have the order of the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quantity {
    /// E x.
    Mean,
    /// E x² − mean².
    Variance,
    /// (E over ordered pairs of tokens of x_a x_b − mean²) / variance.
    TokenCorrelation,
    /// E g².
    GradVariance,
    /// E over ordered pairs of tokens of g_a g_b, over the gradient variance.
    GradTokenCorrelation,
    /// E x² − mean² at the first position, with the mean at this position alone.
    VarianceFirst,
    /// E x² − mean² at the last position, with the mean at this position alone.
    VarianceLast,
    /// E g² at the first position.
    GradVarianceFirst,
    /// E g² at the last position.
    GradVarianceLast,
    /// Standard deviation, over networks, of the ln of a network's own variance.
    LnVarianceStd,
    /// Standard deviation, over networks, of the ln of a network's own E g².
    LnGradVarianceStd,
}

impl Quantity {
    /// All quantities, in the order of the columns.
    pub const ALL: [Self; 11] = [
        Self::Mean,
        Self::Variance,
        Self::TokenCorrelation,
        Self::GradVariance,
        Self::GradTokenCorrelation,
        Self::VarianceFirst,
        Self::VarianceLast,
        Self::GradVarianceFirst,
        Self::GradVarianceLast,
        Self::LnVarianceStd,
        Self::LnGradVarianceStd,
    ];

    /// Name in CSV and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Variance => "variance",
            Self::TokenCorrelation => "token_correlation",
            Self::GradVariance => "grad_variance",
            Self::GradTokenCorrelation => "grad_token_correlation",
            Self::VarianceFirst => "variance_first",
            Self::VarianceLast => "variance_last",
            Self::GradVarianceFirst => "grad_variance_first",
            Self::GradVarianceLast => "grad_variance_last",
            Self::LnVarianceStd => "ln_variance_std",
            Self::LnGradVarianceStd => "ln_grad_variance_std",
        }
    }
}

/// A number with its standard error.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The number.
    pub value: Number,
    /// Standard error of a measurement; zero for a prediction.
    pub std_error: Number,
}

impl Cell {
    /// A number without error.
    pub fn exact(value: impl Into<Number>) -> Self {
        Self { value: value.into(), std_error: Number::ZERO }
    }
}

/// All quantities of one site; `None` for a quantity that does not exist there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SiteRow {
    /// The layer: −1 for the input of block 0, i for block i, N after the last block.
    pub layer: i64,
    /// Path of the site.
    pub site: String,
    /// True if the site lies on the stream itself, not inside a block.
    pub is_stream_site: bool,
    /// One cell per [`Quantity`], in the order of [`Quantity::ALL`].
    pub cells: [Option<Cell>; Quantity::ALL.len()],
}

impl SiteRow {
    /// The cell of one quantity; `None` if the quantity does not exist at this site.
    pub fn get(&self, quantity: Quantity) -> Option<&Cell> {
        self.cells[quantity as usize].as_ref()
    }

    /// The value of one quantity; `None` if the quantity does not exist at this site.
    pub fn value(&self, quantity: Quantity) -> Option<Number> {
        self.get(quantity).map(|cell| cell.value)
    }
}

/// The gradient of one weight tensor from one sequence: E (dL/dW)².
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WeightRow {
    /// Layer of the site that uses the tensor.
    pub layer: i64,
    /// Name of the tensor.
    pub tensor: String,
    /// Variance of one weight, truncation included.
    pub variance: f64,
    /// Second moment of one entry of the gradient, which is the sum over the tokens of one sequence.
    pub grad_second_moment: Cell,
}

/// The results of an interpreter, in order of depth.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SiteTable {
    /// One row per site.
    pub sites: Vec<SiteRow>,
    /// One row per weight tensor; empty unless asked for.
    pub weights: Vec<WeightRow>,
}

impl SiteTable {
    /// The rows on the stream itself.
    pub fn stream_sites(&self) -> impl DoubleEndedIterator<Item = &SiteRow> {
        self.sites.iter().filter(|row| row.is_stream_site)
    }

    /// The row of the site with this path; `None` if there is none.
    pub fn site(&self, path: &str) -> Option<&SiteRow> {
        self.sites.iter().find(|row| row.site == path)
    }
}
