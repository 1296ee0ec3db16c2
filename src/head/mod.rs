//! The output head under cross-entropy: the loss at initialisation, and gradients in absolute numbers.
//!
//! # Formula
//!
//! ```text
//! E loss       = E ln Σ e^z − E z_y = ∫₀^∞ (e^{−t} − M_0(t)^V)/t dt        (ln V + w/2 while w ≪ ln V)
//! E |p − y|²   = 1 − 2/V + S2                    E (p_a − y_a)·(p_b − y_b) = π₂ − 2/V + S11(ρ)
//! E g²         = s² E |p − y|²/L²                the loss being the mean over the L tokens of a sequence
//! E dW_head²   = Σ_ab E x_a x_b E (p_a − y_a)·(p_b − y_b)/(V L²)
//!
//! a tied head, whose row o is the token's own embedding:
//! E loss       = ∫₀^∞ (e^{−t} − N_0(t) M_0(t)^{V−1})/t dt − π₂ c √(n w)
//! E p_y        = π₂ P + (1 − π₂)(1 − P)/(V − 1)                 in place of 1/V; S2 likewise with p_o apart
//! S11          = (1 − P)² S11(ρ) + 2 P (1 − P)/V + π₂ P²
//! ```
//!
//! where x, x_a are the input of the head at a token; z is the vector of the logits z_v = w_v·x; w_v is row v of the
//! head, with entries of variance s²; s² is the variance of an entry of a weight; w is the variance n s² E x² of a
//! logit; n is the number of features of x; V is the number of rows, the size of the vocabulary; L is the number of
//! tokens of a sequence; E is the average over random weights and over features; t is a variable of integration; M_0,
//! N_0 are E e^{−t e^z} of a logit and of the logit z_o of the row o; p, p_a are softmax z at a token; y, y_a are the
//! one-hot target of a token; z_y, p_y are the entries of z and p at the target; S2, S11 are the overlaps E Σ p² and E
//! p_a·p_b of the softmax; ρ is the correlation of two tokens; π₂ is the probability that two tokens have the same
//! target; a, b are positions of tokens; g is the gradient of the loss with respect to x; dW_head is the gradient of an
//! entry of the head; o is the id of a token; c is the cosine of x to the token's own embedding; P is E p_o.
//!
//! The overlaps are those of `src/mean_field/softmax/`. Given x the logits are independent Gaussians; at two tokens
//! their correlation is the cosine ρ of the tokens. The gradient g at the end of the stream is correlated like p − y
//! and seeds the backward pass. Tokens of equal ids have a correlation of their own: their cosine is larger by c²
//! (`own.rs`). Under a soft cap z = C tanh(u/C), with u Gaussian, each p − y is multiplied by J = dz/du, and the loss
//! is the loss of z (`residual.rs`, `apart.rs`).
//!
//! At a given length of x the logit of the row o is z_o ~ N(c √(n w), w (1 − c²/2)). The component of g along the
//! token's own embedding is shorter by the factor 1 − c², since the norm subtracts the component along x. The gradients
//! that the table collects as head and as embedding are not independent: `src/head/tied.rs`.
//!
//! # Assumptions
//!
//! Targets have the distribution of the input and do not depend on the token itself, as in a language model at
//! initialisation. The component of g along x itself, s² x, is left out: the norm before the head subtracts it, and it
//! is one direction of n. The loss is averaged over sequences, not summed. The global norm leaves out gradients of norm
//! biases.
//!
//! # Source
//!
//! Moments of the softmax: `src/mean_field/softmax/`; the rest is ours.

mod apart;
mod own;
mod residual;
mod targets;
#[cfg(test)]
mod tests;
mod tied;

use std::collections::HashMap;

pub use sigprop_stack::Head;
use sigprop_stack::{Cell, Number, Quantity, SiteRow, SiteTable, Stack, Tensor, WeightRow};

use crate::PredictError;
use crate::assemble::token_table;
use crate::caveat::{Caveat, Condition};
use crate::cost::tensor_entries;
use crate::logarithms::ln_sum;
use crate::predict::{Options, Prediction, Sites, blocked, predict_seeded, predict_watched};
use own::Own;
use residual::{Logits, Residual, RowGroup};
use targets::Repeats;

/// The softmax weight, at a token, of the token's own id above which a caveat reports it. The square of this weight is
/// the common part of the gradients of tokens with equal ids.
const READ: f64 = 0.1;

/// ln of the logit variance above which the softmax is 0 or 1, and only the loss grows, with the standard deviation.
/// Larger logits are computed at this variance, where squares of all moments fit into f64.
const LARGEST_LN_VARIANCE: f64 = 300.0;

/// Returns the head that shares the table of token embeddings; `None` if the stream does not embed ids.
pub fn tied(stack: &Stack) -> Option<Head> {
    token_table(stack).map(|(table, shape)| Head::new(table.clone(), shape))
}

/// The prediction for a network under the loss of its head.
#[derive(Clone, Debug, PartialEq)]
pub struct LossPrediction {
    /// The moments of all sites and weights. Gradients are of the mean loss over the tokens of a sequence.
    pub prediction: Prediction,
    /// The loss itself.
    pub loss: Loss,
}

/// A loss at initialisation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// The variance of a logit.
    pub logit_variance: Number,
    /// The expected cross-entropy in nats.
    pub cross_entropy: Number,
    /// The cross-entropy of equal logits, ln V.
    pub uniform: f64,
    /// √(E Σ (dL/dW)²) over all weights, for one sequence.
    pub grad_norm: Number,
}

/// Predicts the moments of a network under cross-entropy.
///
/// ```
/// use sigprop::architecture::{self, Architecture};
/// use sigprop::assemble::{Input, Run, assemble};
/// use sigprop::head::predict_loss;
/// use sigprop::schemes::Scheme;
///
/// let head = architecture::Head::Untied;
/// let architecture = Architecture { n_layers: 2, d_model: 64, head, ..Architecture::default() };
/// let scheme = Scheme::parse("gpt2")?;
/// let stack = assemble(&architecture, &scheme, &Input::Zipf, &Run::default())?.stack;
/// let head = stack.head.as_ref().expect("the architecture has one");
/// let loss = predict_loss(&stack, head, sigprop::Sites::Stream)?.loss;
/// let (cross_entropy, variance) = (loss.cross_entropy.value(), loss.logit_variance.value());
/// assert!((cross_entropy - 32_000_f64.ln() - 0.5 * variance).abs() < 1e-3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn predict_loss(stack: &Stack, head: &Head, options: impl Into<Options>) -> Result<LossPrediction, PredictError> {
    predict_loss_watched(stack, head, options.into(), &|| ())
}

/// Predicts like [`predict_loss`], and calls `each` twice for every given sequence of ids.
pub fn predict_loss_watched(
    stack: &Stack,
    head: &Head,
    options: Options,
    each: &(dyn Fn() + Sync),
) -> Result<LossPrediction, PredictError> {
    let entries = entries(stack, Some(head));
    let mut stack = stack.with_head_body(head);
    let seq_len = stack.streams[stack.gradient.stream].seq_len as f64;
    let token = token_table(&stack).map(|(table, _)| table.clone());
    let is_tied = token.as_ref().is_some_and(|table| table.name == head.weight.name);
    // A token's own embedding is followed from site to site.
    let sites = if token.is_some() { Sites::All } else { Sites::Stream };
    let table = predict_watched(&stack, Options { sites, steps: false, ..options }, each)?.table;
    let end = End::of(&table, &stack);
    let own = token.as_ref().map(|token| Own::new(&stack, &table, token.init.variance()));
    let weight_variance = head.weight.init.variance();
    let ln_square_scale = 2.0 * head.scale.abs().ln();
    let ln_variance = (head.width as f64 * weight_variance).ln() + ln_square_scale + end.ln_second;
    if ln_variance.is_nan() {
        return Err(PredictError::NotANumber { site: "head".to_owned(), quantity: "logit_variance" });
    }
    let ln_beyond = (ln_variance - LARGEST_LN_VARIANCE).max(0.0);
    let logits = Logits {
        vocab_size: head.vocab_size as f64,
        width: head.width as f64,
        variance: (ln_variance - ln_beyond).exp(),
        rows: row_groups(&stack, head),
        softcap: head.softcap,
        cosine: end.cosine,
        own: own.as_ref().map_or(0.0, |own| own.cosine * own.cosine),
        repeats: Repeats::of(&stack, head),
        seq_len,
    };
    let residual = match &own {
        Some(own) if is_tied => Residual::tied(&logits, own),
        Some(_) | None => Residual::untied(&logits),
    };

    let [others, same] = residual.correlations(&logits.repeats);
    stack.to_mut().gradient.correlation = others;
    let mut prediction = predict_seeded(&stack, options, Some(same), each)?;
    // The mean over tokens, and the factor on the logits.
    let ln_mean = ln_square_scale - 2.0 * seq_len.ln();
    scale(&mut prediction, (weight_variance * residual.across).ln() + ln_mean);
    let per_row = |sum: f64| (seq_len * sum.max(0.0) / head.vocab_size as f64).ln() + ln_mean;
    add_head(&mut prediction.table, &head.weight, end.ln_second + per_row(residual.table));
    if let Some(bias) = &head.bias {
        add_head(&mut prediction.table, bias, per_row(residual.bias));
    }
    prediction.blocked = blocked(&stack, Some(head), &prediction.table.weights);
    prediction.caveats.extend(caveat(&residual));

    let squares = prediction.table.weights.iter();
    let squares = squares.map(|row| row.grad_second_moment.value.ln_abs() + (entries[&row.tensor] as f64).ln());
    // The soft cap bounds the logits, and thereby the loss.
    let ln_loss_unit = if head.softcap.is_some() { 0.0 } else { 0.5 * ln_beyond };
    let loss = Loss {
        logit_variance: Number::from_ln(ln_variance),
        cross_entropy: Number::scaled(residual.cross_entropy.max(0.0), ln_loss_unit),
        uniform: (head.vocab_size as f64).ln(),
        grad_norm: Number::from_ln(0.5 * ln_sum(squares)),
    };
    Ok(LossPrediction { prediction, loss })
}

/// Returns a caveat if the head gives more than a share `READ` of the softmax to the token's own id.
fn caveat(residual: &Residual) -> Option<Caveat> {
    (residual.read > READ).then(|| Caveat::at("head", Condition::TokenJustRead(residual.read)))
}

/// Returns the rows of a head, grouped by their standard deviation; one group if all rows are equal.
fn row_groups(stack: &Stack, head: &Head) -> Vec<RowGroup> {
    let whole = || vec![RowGroup { count: head.vocab_size as f64, weight: 1.0 }];
    let Some(groups) = stack.row_groups.get(&head.weight.name) else { return whole() };
    let square = groups.iter().map(|group| group.rows as f64 * group.std * group.std).sum::<f64>();
    let mean = square / head.vocab_size as f64;
    if mean <= 0.0 {
        return whole();
    }
    let group =
        |group: &sigprop_stack::RowGroup| RowGroup { count: group.rows as f64, weight: group.std * group.std / mean };
    groups.iter().map(group).collect()
}

/// Returns the number of entries of every tensor by its name, including the tensors of the head.
pub(crate) fn entries(stack: &Stack, head: Option<&Head>) -> HashMap<String, u64> {
    let Some(head) = head else { return tensor_entries(stack) };
    let mut entries = tensor_entries(&stack.with_head_body(head));
    entries.insert(head.weight.name.clone(), head.vocab_size as u64 * head.width as u64);
    entries.extend(head.bias.iter().map(|bias| (bias.name.clone(), head.vocab_size as u64)));
    entries
}

/// Moments of the input of the head.
struct End {
    ln_second: f64,
    cosine: f64,
}

impl End {
    fn of(table: &SiteTable, stack: &Stack) -> Self {
        let name = &stack.streams[stack.gradient.stream].name;
        let several = stack.streams.len() > 1;
        let mut rows = table.stream_sites().filter(|row| !several || row.site.starts_with(&format!("{name}.")));
        let row = rows.next_back().expect("a stream has sites");
        let ln_second = ln_second(row);
        let value = |quantity| row.value(quantity).unwrap_or(Number::ZERO);
        let part = |ln: f64| if ln_second > f64::NEG_INFINITY { (ln - ln_second).exp() } else { 0.0 };
        let cosine = part(2.0 * value(Quantity::Mean).ln_abs())
            + value(Quantity::TokenCorrelation).value() * part(value(Quantity::Variance).ln_abs());
        Self { ln_second, cosine: cosine.clamp(-1.0, 1.0) }
    }
}

/// Returns ln E x² of a site.
fn ln_second(row: &SiteRow) -> f64 {
    let ln = |quantity| row.value(quantity).unwrap_or(Number::ZERO).ln_abs();
    ln_sum([2.0 * ln(Quantity::Mean), ln(Quantity::Variance)])
}

/// Multiplies all gradients by √(e^`ln`).
fn scale(prediction: &mut Prediction, ln: f64) {
    let scaled = |value: Number| Number::from_ln(value.ln_abs() + ln);
    for row in &mut prediction.table.sites {
        for quantity in [Quantity::GradVariance, Quantity::GradVarianceFirst, Quantity::GradVarianceLast] {
            let cell = &mut row.cells[quantity as usize];
            *cell = cell.map(|cell| Cell::exact(scaled(cell.value)));
        }
    }
    for row in &mut prediction.table.weights {
        row.grad_second_moment = Cell::exact(scaled(row.grad_second_moment.value));
    }
    for row in &mut prediction.scales {
        row.grad_second_moment = scaled(row.grad_second_moment);
    }
    for row in &mut prediction.linears {
        row.moved_by_sgd = scaled(row.moved_by_sgd);
        row.gradient_size = Number::from_ln(row.gradient_size.ln_abs() + 0.5 * ln);
    }
}

/// Adds the gradient of the head to the tensor it shares, or as a row of its own.
fn add_head(table: &mut SiteTable, tensor: &Tensor, ln_second_moment: f64) {
    if let Some(row) = table.weights.iter_mut().find(|row| row.tensor == tensor.name) {
        let ln = ln_sum([row.grad_second_moment.value.ln_abs(), ln_second_moment]);
        row.grad_second_moment = Cell::exact(Number::from_ln(ln));
    } else {
        let layer = table.sites.last().map_or(0, |row| row.layer + 1);
        table.weights.push(WeightRow {
            layer,
            tensor: tensor.name.clone(),
            variance: tensor.init.variance(),
            grad_second_moment: Cell::exact(Number::from_ln(ln_second_moment)),
        });
    }
}
