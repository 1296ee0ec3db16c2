//! Judges if the weights of all blocks learn at one pace.
//!
//! # Rule
//!
//! Weight matrices with the same name in different blocks have one shape, so that the norms of their gradients
//! differ like √E (dL/dW)². A clip of the global norm keeps their ratio, one learning rate of SGD makes it that of
//! their updates, and Adam removes it until ε or rounding is reached.
//!
//! # Source
//!
//! Xiong et al. 2020, Kedia et al. 2024: Post-LN and Pre-LN stacks learn unevenly over depth. Where tokens have become
//! copies, queries and keys get no gradient (Noci et al. 2022, arXiv 2206.03126).

use std::collections::BTreeMap;

use sigprop_stack::{BlockName, WeightRow};

use super::{Finding, Kind, Severity, factor};

/// The ratio above which different gradient norms of one weight over the blocks are a notice.
const UNEVEN: f64 = 10.0;

/// The ratio above which they are a warning: if the largest gradients have entries of 10⁻⁴, the smallest come near
/// Adam's usual ε of 10⁻⁸.
const FAR_APART: f64 = 1e4;

/// The differences between blocks of the gradient norm of one weight matrix.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Spread {
    /// Name of the matrix, with a `*` for the number of the block.
    pub(crate) tensor: String,
    /// ln of the ratio of the largest to the smallest norm; ∞ if some norms are zero, but not all.
    pub(crate) ln_ratio: f64,
}

impl Spread {
    /// Returns the spread of the weight matrix whose norms differ most; `None` if no matrix in the blocks has a
    /// gradient.
    pub(crate) fn of(weights: &[WeightRow]) -> Option<Self> {
        Self::all(weights).into_iter().max_by(|one, other| one.ln_ratio.total_cmp(&other.ln_ratio))
    }

    /// Returns the spreads of all weight matrices in the blocks that have a gradient, in the order of their names.
    pub(crate) fn all(weights: &[WeightRow]) -> Vec<Self> {
        let mut ranges: BTreeMap<(&str, &str), [f64; 2]> = BTreeMap::new();
        let matrices = weights.iter().filter(|row| is_matrix(&row.tensor));
        for (names, row) in matrices.filter_map(|row| Some((around_block(&row.tensor)?, row))) {
            let ln_norm = 0.5 * row.grad_second_moment.value.ln_abs();
            let range = ranges.entry(names).or_insert([f64::INFINITY, f64::NEG_INFINITY]);
            *range = [range[0].min(ln_norm), range[1].max(ln_norm)];
        }
        let flowing = ranges.into_iter().filter(|(_, [_, largest])| *largest > f64::NEG_INFINITY);
        let spread =
            |(names, [smallest, largest]): (_, [f64; 2])| Self { tensor: starred(names), ln_ratio: largest - smallest };
        flowing.map(spread).collect()
    }
}

/// Returns true if a tensor has the name of a weight matrix, or of some rows of one: `c_attn.weight[0:64]`.
pub(crate) fn is_matrix(tensor: &str) -> bool {
    tensor.split_once('[').map_or(tensor, |(whole, _)| whole).ends_with("weight")
}

/// Replaces the number of the block by `*`: `blocks.3.ffn.in.weight` → `blocks.*.ffn.in.weight`. `None` for names
/// outside blocks.
pub(crate) fn over_blocks(tensor: &str) -> Option<String> {
    around_block(tensor).map(starred)
}

/// The parts of the name of a tensor before and after the number of its block.
fn around_block(tensor: &str) -> Option<(&str, &str)> {
    BlockName::of(tensor).filter(|name| !name.path.is_empty()).map(|name| (name.before, name.path))
}

fn starred((before, path): (&str, &str)) -> String {
    format!("{before}*.{path}")
}

/// Judges the gradient norms of weight matrices over the blocks; `None` if no matrix in the blocks has a gradient.
pub(super) fn judge(weights: &[WeightRow]) -> Option<Finding> {
    let Spread { tensor, ln_ratio } = Spread::of(weights)?;
    let what = if ln_ratio.is_finite() {
        format!("norms differ by ×{} between blocks, most in {tensor}", factor(ln_ratio))
    } else {
        format!("norms are zero to rounding in some blocks of {tensor}")
    };
    let (kind, severity, verb, bound) = if ln_ratio > FAR_APART.ln() {
        (Kind::Uneven, Severity::Warning, "are uneven", format!("more than {FAR_APART}"))
    } else if ln_ratio > UNEVEN.ln() {
        (Kind::Uneven, Severity::Notice, "are uneven", format!("more than {UNEVEN}"))
    } else {
        (Kind::Even, Severity::Fine, "are even", format!("at most {UNEVEN}"))
    };
    let text = format!("weight gradients {verb}: {what}");
    let rule = format!("largest over smallest gradient norm of one weight over the blocks {bound}");
    Some(Finding { kind, severity, text, rule, block: None, value: ln_ratio })
}
