//! The first update: how large the first step of an optimiser is, of every tensor and of what it does.
//!
//! # Formula
//!
//! With G = dL/dW of one sequence, η the learning rate, n the entries of a tensor, and of a linear map y = W x
//!
//! ```text
//! SGD    ΔW = −η G         RMS ΔW = η √(E G²)    ΔL = −η n E G²                   E Δy² = η² S
//! Adam   ΔW = −η sign G    RMS ΔW = η √f         ΔL = −η n f √(2/π) √(E G²/f)
//! ```
//!
//! ΔL is the change of the loss to first order by the step of this tensor alone, Δy that of the output on the same
//! sequence, and S = E |Σ_t g_t x_t·x_s|² of an entry (`src/rules/linear.rs`). Without ε Adam's first step, with both
//! of its moments corrected for their bias, is the sign; f is the share of entries whose gradient is not exactly zero:
//! rows of ids that occur, 1 elsewhere. Of Gaussian entries E |G| = √(2/π) √(E G²).
//!
//! # Assumptions
//!
//! One sequence, no weight decay, no clipping, no momentum yet. What several tensors do together, by their outputs
//! meeting further on, is not told; to first order their ΔL add up. No Δy is told of
//!
//! * maps that are used several times, and experts;
//! * Adam: with tokens alike Σ_j sign(G_ij) x_sj depends on the law of the features beyond second moments;
//! * maps of queries and keys: their gradients know which tokens are alike beyond averages over pairs, and E Δy² would
//!   come out a fifth to a third too large (2 blocks of width 64 and 128, 48 tokens, Zipf).
//!
//! G_ij = Σ_t g_ti x_tj is Gaussian over many distinct tokens. Few tokens, or tokens that are alike, leave it a product
//! of two Gaussians: E |G|, and Adam's ΔL, are then up to √(2/π) smaller, and less where features are heavy-tailed.
//!
//! # Source
//!
//! Kingma and Ba 2015 (arXiv 1412.6980), algorithm 1; what should not depend on the width: Yang et al. 2022 (Tensor
//! Programs V, arXiv 2203.03466), table 3 and appendix on coordinate checks. Moments: ours.

mod scored;
mod seen;

use std::collections::HashMap;
use std::f64::consts::FRAC_2_PI;

use sigprop_stack::{Number, Stack, WeightRow};

use crate::head::{Head, entries};
use crate::moments::ln_sum;
use crate::predict::{LinearRow, Prediction};
use scored::scored;
use seen::seen;

/// Which way a step goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Optimizer {
    /// Along the gradient.
    Sgd,
    /// Along its sign.
    Adam,
}

/// The first step of an optimiser.
#[derive(Clone, Debug, PartialEq)]
pub struct FirstUpdate {
    /// Every tensor that has a gradient, in order of depth.
    pub rows: Vec<UpdateRow>,
    /// How much lower the loss gets, to first order.
    pub loss_drop: Number,
}

/// The first step of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct UpdateRow {
    /// Layer of the site that uses the tensor.
    pub layer: i64,
    /// Name of the tensor.
    pub tensor: String,
    /// √(E ΔW²).
    pub update: Number,
    /// The same over √(E W²), of weights that do not start at zero.
    pub relative_update: Option<Number>,
    /// √(E Δy²) of the output of a linear map, by SGD; none of queries and keys.
    pub output_change: Option<Number>,
    /// The same over √(E y²).
    pub relative_output_change: Option<Number>,
    /// How much lower the loss gets, to first order.
    pub loss_drop: Number,
}

impl FirstUpdate {
    /// The first step at a `learning_rate` > 0, from a prediction with [`crate::Options::steps`] of `stack` under `head`.
    pub fn of(
        prediction: &Prediction,
        (stack, head): (&Stack, Option<&Head>),
        optimizer: Optimizer,
        learning_rate: f64,
    ) -> Self {
        let (entries, seen, scored) = (entries(stack, head), seen(stack, head), scored(stack));
        let mut linears: HashMap<&str, Vec<&LinearRow>> = HashMap::new();
        for row in prediction.linears.iter().filter(|row| !scored.contains(row.tensor.as_str())) {
            linears.entry(&row.tensor).or_default().push(row);
        }
        let rows: Vec<UpdateRow> = prediction
            .table
            .weights
            .iter()
            .map(|weight| {
                let step = Step {
                    weight,
                    ln_entries: (entries[&weight.tensor] as f64).ln(),
                    ln_seen: seen.get(&weight.tensor).map_or(0.0, |share| share.ln()),
                    ln_rate: learning_rate.ln(),
                };
                let uses = linears.get(weight.tensor.as_str()).filter(|_| optimizer == Optimizer::Sgd);
                let linear = uses.filter(|uses| uses.len() == 1).map(|uses| uses[0]);
                step.row(optimizer, linear)
            })
            .collect();
        let loss_drop = Number::from_ln(ln_sum(rows.iter().map(|row| row.loss_drop.ln_abs())));
        Self { rows, loss_drop }
    }
}

struct Step<'a> {
    weight: &'a WeightRow,
    ln_entries: f64,
    /// ln of the share of entries that have a gradient.
    ln_seen: f64,
    ln_rate: f64,
}

impl Step<'_> {
    fn row(&self, optimizer: Optimizer, linear: Option<&LinearRow>) -> UpdateRow {
        let ln_gradient = self.weight.grad_second_moment.value.ln_abs();
        let ln_update = self.ln_rate
            + match optimizer {
                Optimizer::Sgd => 0.5 * ln_gradient,
                Optimizer::Adam if ln_gradient == f64::NEG_INFINITY => f64::NEG_INFINITY,
                Optimizer::Adam => 0.5 * self.ln_seen,
            };
        let ln_drop = self.ln_rate
            + self.ln_entries
            + match optimizer {
                Optimizer::Sgd => ln_gradient,
                Optimizer::Adam => 0.5 * (FRAC_2_PI.ln() + self.ln_seen + ln_gradient),
            };
        let over = |ln: f64, ln_square: f64| ln_square.is_finite().then(|| Number::from_ln(ln - 0.5 * ln_square));
        let ln_change = linear.map(|linear| self.ln_rate + 0.5 * linear.moved.ln_abs());
        UpdateRow {
            layer: self.weight.layer,
            tensor: self.weight.tensor.clone(),
            update: Number::from_ln(ln_update),
            relative_update: over(ln_update, self.weight.variance.ln()),
            output_change: ln_change.map(Number::from_ln),
            relative_output_change: ln_change.zip(linear).and_then(|(ln, linear)| over(ln, linear.output.ln_abs())),
            loss_drop: Number::from_ln(ln_drop),
        }
    }
}
