//! The first update: the size and the effect of the first step of an optimiser, for every tensor.
//!
//! # Formula
//!
//! ```text
//! SGD    ΔW = −η G         RMS ΔW = η √(E G²)       ΔL = −η n_entries E G²      E Δy² = η² S_SGD
//! Adam   ΔW = −η sign G    RMS ΔW = η √seen         ΔL = −η n_entries E |G|     E Δy² = η² S_Adam
//! ```
//!
//! where W is a weight tensor; ΔW is its first step; G is the gradient dL/dW of one sequence; η is the learning rate of
//! the tensor (the requested rate × the factor of the tensor in the stack); RMS ΔW is the root mean square √(E ΔW²)
//! over the entries of the tensor; n_entries is the number of entries of the tensor; E is the average over random
//! weights and over features; ΔL is the first-order change of the loss by the step of this tensor alone; Δy is the
//! change of the output of a linear map y = W x on the same sequence; S_SGD, S_Adam are E Δy²/η² of SGD and of Adam,
//! derived with E |G| in the header of the module `mean_field::steps`; seen is the share of entries whose gradient is
//! not exactly zero (in a table the share of rows whose ids occur, 1 elsewhere).
//!
//! Without ε, the constant in its denominator, Adam's first step is the sign of G, as both of its moments are corrected
//! for their bias. For tensors other than linear maps E |G| = √(2/π) √(seen E G²), as for Gaussian entries.
//!
//! # Assumptions
//!
//! One sequence, no weight decay, no clipping, no momentum yet. The joint effect of several tensors, whose output
//! changes combine further on, is not predicted; to first order their ΔL add up. Δy is not predicted for
//!
//! * maps that are used several times, and experts;
//! * maps that make keys: their gradients sum to zero and depend on which tokens are similar, beyond averages over
//!   pairs;
//! * Adam: maps after activations and products, where the features of similar tokens are not Gaussian, and maps before
//!   ReLU and similar functions, whose features may be silent for all tokens and then take no step (`untold.rs`).
//!
//! The two kinds of maps named for Adam have a smaller E |G| than predicted: there Adam's ΔL is too large by up to
//! √(π/2). Kernels are averages over the repetitions of ids. Δy is quadratic in kernels but does not contain their
//! variance over sequences, so that it is too small after attention to few tokens.
//!
//! # Source
//!
//! Kingma and Ba 2015 (arXiv 1412.6980), algorithm 1; quantities that should not depend on the width: Yang et al. 2022
//! (Tensor Programs V, arXiv 2203.03466), table 3 and appendix on coordinate checks. The moments are ours.

mod seen;
mod untold;

use std::collections::HashMap;
use std::f64::consts::FRAC_2_PI;

pub use sigprop_stack::Optimizer;
use sigprop_stack::{Number, Stack, WeightRow};

use crate::head::{Head, entries};
use crate::logarithms::ln_sum;
use crate::predict::{LinearRow, Prediction, ScaleRow};
use seen::seen;
use untold::untold;

/// The first step of an optimiser.
#[derive(Clone, Debug, PartialEq)]
pub struct FirstUpdate {
    /// Every tensor that has a gradient, in order of depth, then every learned factor on a branch.
    pub rows: Vec<UpdateRow>,
    /// The decrease of the loss, to first order.
    pub loss_drop: Number,
}

/// The first step of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct UpdateRow {
    /// Layer of the site that uses the tensor.
    pub layer: i64,
    /// Name of the tensor.
    pub tensor: String,
    /// The learning rate of the tensor: the requested rate times the factor of the tensor in the stack.
    pub learning_rate: Number,
    /// Root mean square of the step, √(E ΔW²).
    pub update: Number,
    /// `update` over √(E W²); `None` for weights that start at zero.
    pub relative_update: Option<Number>,
    /// Root mean square change of the output of a linear map, √(E Δy²); `None` if it is not predicted.
    pub output_change: Option<Number>,
    /// `output_change` over √(E y²); `None` if `output_change` is not predicted or E y² is zero.
    pub relative_output_change: Option<Number>,
    /// The decrease of the loss by this tensor alone, to first order.
    pub loss_drop: Number,
}

impl FirstUpdate {
    /// Computes the first step at a `learning_rate` > 0 from a prediction of `stack` under `head` that was made with
    /// [`crate::Options::steps`].
    pub fn of(
        prediction: &Prediction,
        (stack, head): (&Stack, Option<&Head>),
        optimizer: Optimizer,
        learning_rate: f64,
    ) -> Self {
        let (entries, seen, untold) = (entries(stack, head), seen(stack, head), untold(stack, optimizer));
        let rates = |tensor: &str| stack.learning_rates.get(tensor).copied().unwrap_or_default();
        let mut linears: HashMap<&str, Vec<&LinearRow>> = HashMap::new();
        for row in &prediction.linears {
            linears.entry(&row.tensor).or_default().push(row);
        }
        let row = |weight: &WeightRow| {
            let tensor = weight.tensor.as_str();
            let linear = linears.get(tensor).filter(|uses| uses.len() == 1).map(|uses| uses[0]);
            let step = Step {
                weight,
                linear,
                moved: linear.filter(|_| !untold.contains(tensor)).map(|linear| linear.moved(optimizer)),
                ln_entries: (entries[tensor] as f64).ln(),
                ln_seen: seen.get(tensor).map_or(0.0, |share| share.ln()),
                ln_rate: (learning_rate * rates(tensor).of(optimizer)).ln(),
            };
            step.row(optimizer)
        };
        let scale = |scale: &ScaleRow| {
            let rate = learning_rate * rates(&scale.name).of(optimizer);
            scale_row(scale, optimizer, rate.ln())
        };
        let mut rows: Vec<UpdateRow> = prediction.table.weights.iter().map(row).collect();
        rows.extend(prediction.scales.iter().map(scale));
        let loss_drop = Number::from_ln(ln_sum(rows.iter().map(|row| row.loss_drop.ln_abs())));
        Self { rows, loss_drop }
    }
}

/// The first step of a learned factor on a branch: the output of the branch changes by Δα f.
fn scale_row(row: &ScaleRow, optimizer: Optimizer, ln_rate: f64) -> UpdateRow {
    let (ln_gradient, ln_entries) = (row.grad_second_moment.ln_abs(), (row.entries as f64).ln());
    let is_reached = ln_gradient > f64::NEG_INFINITY;
    let (ln_update, ln_drop) = match optimizer {
        Optimizer::Sgd => (ln_rate + 0.5 * ln_gradient, ln_rate + ln_entries + ln_gradient),
        Optimizer::Adam if !is_reached => (f64::NEG_INFINITY, f64::NEG_INFINITY),
        Optimizer::Adam => (ln_rate, ln_rate + ln_entries + 0.5 * (FRAC_2_PI.ln() + ln_gradient)),
    };
    let relative_update = (row.scale != 0.0).then(|| Number::from_ln(ln_update - row.scale.abs().ln()));
    UpdateRow {
        layer: row.layer,
        tensor: row.name.clone(),
        learning_rate: Number::from_ln(ln_rate),
        update: Number::from_ln(ln_update),
        relative_update,
        output_change: Some(Number::from_ln(ln_update + 0.5 * row.output.ln_abs())),
        relative_output_change: relative_update,
        loss_drop: Number::from_ln(ln_drop),
    }
}

struct Step<'a> {
    weight: &'a WeightRow,
    /// The linear map that uses the tensor, if it is used exactly once.
    linear: Option<&'a LinearRow>,
    /// E Δy² at learning rate 1; `None` if it is not predicted.
    moved: Option<Number>,
    ln_entries: f64,
    /// ln of the share of entries that have a gradient.
    ln_seen: f64,
    ln_rate: f64,
}

impl Step<'_> {
    fn row(&self, optimizer: Optimizer) -> UpdateRow {
        let ln_gradient = self.weight.grad_second_moment.value.ln_abs();
        let ln_update = self.ln_rate
            + match optimizer {
                Optimizer::Sgd => 0.5 * ln_gradient,
                Optimizer::Adam if ln_gradient == f64::NEG_INFINITY => f64::NEG_INFINITY,
                Optimizer::Adam => 0.5 * self.ln_seen,
            };
        let ln_drop = self.ln_rate
            + self.ln_entries
            + match (optimizer, self.linear) {
                (Optimizer::Sgd, _) => ln_gradient,
                (Optimizer::Adam, Some(linear)) => linear.gradient_size.ln_abs(),
                (Optimizer::Adam, None) => 0.5 * (FRAC_2_PI.ln() + self.ln_seen + ln_gradient),
            };
        let over = |ln: f64, ln_square: f64| ln_square.is_finite().then(|| Number::from_ln(ln - 0.5 * ln_square));
        let ln_change = self.moved.map(|moved| self.ln_rate + 0.5 * moved.ln_abs());
        let ln_output = self.linear.map(|linear| linear.output.ln_abs());
        UpdateRow {
            layer: self.weight.layer,
            tensor: self.weight.tensor.clone(),
            learning_rate: Number::from_ln(self.ln_rate),
            update: Number::from_ln(ln_update),
            relative_update: over(ln_update, self.weight.variance.ln()),
            output_change: ln_change.map(Number::from_ln),
            relative_output_change: ln_change.zip(ln_output).and_then(|(ln, output)| over(ln, output)),
            loss_drop: Number::from_ln(ln_drop),
        }
    }
}
