//! Multi-head softmax attention, from the states of queries, keys and values; one file per token domain.

mod averages;
mod concentration;
mod exchangeable;
mod fluctuation;
mod gram;
mod lengths;
mod matrix;
mod pull;

use std::sync::Arc;

use sigprop_stack::{Attention, Component, Node, Op};

use self::fluctuation::{Strayed, gathered};
use super::concat;
use super::softmax::Overlaps;
use crate::domain::{Along, Domain, Gradient, Signal};
use crate::moments::{Few, Token, TokenGradient, ratio};
use crate::quadrature::gaussian_nodes;

/// Score variance up to which the rules were sampled (single heads, project notes; this project's own
/// twins: whole attention to about 1, softmax to 16).
const SHARPEST_SAMPLED: f64 = 16.0;
/// Rows that are all equally sharp, as far as can be seen.
const LEAST_DRAWN: f64 = 1e-9;

/// What the forward pass of one attention leaves for its backward pass.
pub(crate) struct Attended {
    core: Core,
    strayed: Strayed,
    output: Signal,
    query_and_key: [Arc<Signal>; 2],
    narrow_latent: Option<(&'static str, String)>,
}

/// As the token domain has it.
enum Core {
    Exchangeable(Box<exchangeable::Attended>),
    Gram(Box<gram::Attended>),
}

impl Attended {
    /// From the common input and the queries, keys and values.
    pub(crate) fn new(
        attention: &Attention,
        domain: &Domain,
        overlaps: &mut Overlaps,
        input: &Signal,
        parts: [Arc<Signal>; 3],
    ) -> Self {
        let [query, key, value] = parts.clone();
        let (core, output) = match domain {
            Domain::Exchangeable(domain) => {
                let attended = exchangeable::Attended::new(attention, domain, overlaps, input, parts);
                let output = attended.output().clone();
                (Core::Exchangeable(Box::new(attended)), output)
            }
            Domain::Gram { .. } => {
                let attended = gram::Attended::new(attention, overlaps, input, parts);
                let output = attended.output().clone();
                (Core::Gram(Box::new(attended)), output)
            }
        };
        let elasticity = match (&core, domain) {
            (Core::Exchangeable(attended), Domain::Exchangeable(domain)) => attended.elasticity(domain),
            (Core::Gram(attended), Domain::Gram { .. }) => attended.elasticity(),
            _ => unreachable!("the domain does not change"),
        };
        let narrow_latent = concentration::narrow_latent([input, &key, &value], domain.length(key.tokens.len()));
        let (fluctuation, strayed) = fluctuation::forward(domain, attention, input, &value, elasticity);
        Self { core, strayed, output: Signal { fluctuation, ..output }, query_and_key: [query, key], narrow_latent }
    }

    /// The heads' outputs.
    pub(crate) fn output(&self) -> &Signal {
        &self.output
    }

    /// Why the rule is not exact here, if it is not.
    pub(crate) fn caveat(&self) -> Option<(&'static str, String)> {
        let of_core = match &self.core {
            Core::Exchangeable(attended) => attended.caveat(),
            Core::Gram(attended) => attended.caveat(),
        };
        of_core.or_else(|| self.narrow_latent.clone())
    }

    /// What the scores make of the rows.
    pub(crate) fn sharpness(&self, domain: &Domain) -> Sharpness {
        match (&self.core, domain) {
            (Core::Exchangeable(attended), Domain::Exchangeable(domain)) => attended.sharpness(domain),
            (Core::Gram(attended), Domain::Gram { .. }) => attended.sharpness(),
            _ => unreachable!("the domain does not change"),
        }
    }

    /// The attention probabilities, one row per query with an entry per key, those out of sight being zero.
    pub(crate) fn probabilities(&self, domain: &Domain) -> Signal {
        match (&self.core, domain) {
            (Core::Exchangeable(attended), Domain::Exchangeable(domain)) => attended.probabilities(domain),
            (Core::Gram(attended), Domain::Gram { .. }) => attended.probabilities(),
            _ => unreachable!("the domain does not change"),
        }
    }

    /// The gradient at the probabilities, from that at the output.
    pub(crate) fn probabilities_backward(&self, attention: &Attention, gradient: &Gradient) -> Gradient {
        match &self.core {
            Core::Exchangeable(attended) => attended.probabilities_backward(attention, gradient),
            Core::Gram(attended) => attended.probabilities_backward(attention, gradient),
        }
    }

    /// The gradients at queries, keys and values.
    pub(crate) fn split(&self, attention: &Attention, domain: &Domain, gradient: &Gradient) -> [Gradient; 3] {
        let strayed = self.strayed.straying(gradient);
        let parts = match (&self.core, domain) {
            (Core::Exchangeable(attended), Domain::Exchangeable(exchangeable)) => {
                attended.split(attention, exchangeable, gradient, strayed)
            }
            (Core::Gram(attended), Domain::Gram { .. }) => {
                let [query, key, value] = attended.split(attention, gradient, strayed);
                // Of flat rows.
                let pairs = if domain.follows_levels() {
                    let pairs = (domain.length(gradient.tokens.len()) - 1.0) * domain.mean_cosine(gradient);
                    ratio(pairs, 1.0 + pairs)
                } else {
                    0.0
                };
                let made = gathered(pairs, 0.0);
                [query, Gradient { made, ..key }, Gradient { made, ..value }]
            }
            _ => unreachable!("the domain does not change"),
        };
        let [query, key, value] = fluctuation::backward(domain, attention, gradient, &self.strayed, parts);
        let [query, key] = concat::gradient_shares(self.query_and_key.each_ref().map(Arc::as_ref), [query, key]);
        [query, key, value]
    }
}

/// The gradient at the input, from those of queries, keys and values: what longer keys change goes with what longer
/// values do. Gradients of keys add up to nothing, so that others meet the part of a key's along it by −1/(L − 1): next to nothing
/// beside what gradients of values have in common.
pub(crate) fn join(parts: &[TokenGradient]) -> (TokenGradient, Few<f64>) {
    let (joined, weights) = TokenGradient::join(parts);
    let [crossed, unmet] = match (parts, &weights[..]) {
        ([_, key, value], [_, of_keys, of_values]) => [2.0 * of_values * value.excess, of_keys * key.radial],
        // Keys and values of another stream.
        _ => [0.0; 2],
    };
    (TokenGradient { radial: joined.radial + crossed, excess: joined.excess + unmet, ..joined }, weights)
}

/// E (g·v)² of a `gradient` at the output and a value in one head, in units of that of directions that know nothing of each
/// other: they share what a value shares with the output, cos² = `alignment`, of which norms leave nothing over all heads.
fn along_values(attention: &Attention, gradient: &TokenGradient, alignment: f64) -> f64 {
    1.0 + (gradient.radial - 1.0) * alignment / attention.n_heads as f64
}

/// Variance of ln |z|² that averaging over entries adds: the g query heads of one group have the part r = `shared` of their
/// outputs in common, for they average the same values, 2/(heads · `d_value`) (1 + (g − 1) r²). Ours, to first order in
/// 1/`d_value`: gradients before attention with one value head of 64 features are still 1 to 3 % too small.
fn entry_variance(attention: &Attention, shared: f64) -> f64 {
    let group = (attention.n_heads / attention.n_kv_heads) as f64;
    let width = (attention.n_heads * attention.d_value) as f64;
    2.0 / width * (1.0 + (group - 1.0) * shared.min(1.0).powi(2))
}

/// Half the variance of ln |x|² within one head of queries and of keys: 1/`d_head` of Gaussian entries, nothing behind norms per
/// head; what one norm takes off all heads they still have to share.
fn head_lengths(attention: &Attention, query: &Token, key: &Token) -> [f64; 2] {
    let d_head = attention.d_head as f64;
    let of_all = |node: &Node| match &node.op {
        Op::Apply(Component::Norm(norm)) => norm.groups == 1 && norm.kind.pointwise().is_none(),
        _ => false,
    };
    [(&attention.query, query), (&attention.key, key)].map(|(body, token)| {
        let heads = token.width / d_head;
        let own = 0.5 * (token.entry_variance * heads + token.scale_variance);
        // Entries behind a map have a length of their own again.
        let is_last = token.entry_variance == 0.0;
        if is_last && body.iter().any(of_all) { own + (1.0 - heads.recip()) / d_head } else { own }
    })
}

/// What queries that happen to be alike within single heads, and not as inputs, pass `beyond` the product of the averages, per
/// token: met by gains of a norm right before, of as many features, at `others` of this mean `cosine`.
fn alike_within_heads(beyond: f64, width: f64, others: f64, cosine: f64) -> Along {
    Along { pairs: ratio(beyond * width, others * (1.0 + cosine * cosine)), ..Along::NONE }
}

/// Scores before the softmax, cap included.
#[derive(Clone, Copy, Debug)]
struct Scores {
    /// ln of the variance of a score.
    ln_variance: f64,
    /// E (d cap(s)/ds)².
    slope: f64,
    /// Variance before the cap, in units of the cap's square.
    reach: f64,
}

impl Scores {
    /// Scores of queries and keys whose second moments have the product e^`ln_product`.
    ///
    /// cap(s) = c·tanh(s/c) of Gaussian s is taken as Gaussian of the same variance.
    fn new(attention: &Attention, ln_product: f64) -> Self {
        let ln_variance = (attention.scale.powi(2) * attention.d_head as f64).ln() + ln_product;
        let Some(cap) = attention.softcap else { return Self { ln_variance, slope: 1.0, reach: 0.0 } };
        let scale = (0.5 * ln_variance - cap.ln()).clamp(-300.0, 300.0).exp();
        let (mut square, mut slope) = (0.0, 0.0);
        for (z, weight) in gaussian_nodes(0.0, scale) {
            let tanh = libm::tanh(scale * z);
            square += weight * tanh * tanh;
            slope += weight * (1.0 - tanh * tanh).powi(2);
        }
        Self { ln_variance: 2.0 * cap.ln() + square.ln(), slope, reach: scale * scale }
    }
}

impl Scores {
    /// Why the cap is not taken exactly, if it is not.
    fn caveat(&self) -> Option<(&'static str, String)> {
        /// Gradients of queries and keys were sampled 4 % high at 0.03, 7 to 14 % at 0.5.
        const LARGEST_REACH: f64 = 0.01;
        (self.reach > LARGEST_REACH).then(|| {
            (
                "scores reach their cap, which bends what all keys share too",
                format!("score variance {:.2} of cap²", self.reach),
            )
        })
    }
}

/// What attention does with its scores, averaged over queries and heads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sharpness {
    /// ln E s² of the scores of keys in view, without what positions add.
    pub(crate) ln_score: f64,
    /// 1/E Σ_b A_ab².
    pub(crate) attended: f64,
    /// The same of scores that do not differ.
    pub(crate) in_view: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight heads of 16 features, two of them with their own values: 32 features if all average alike, 128 if none do.
    #[test]
    fn heads_that_share_values_are_fewer() {
        let attention = Attention { d_value: 16, ..Attention::plain(8, 2, 16, [Vec::new(), Vec::new(), Vec::new()]) };
        approx::assert_relative_eq!(entry_variance(&attention, 1.0), 2.0 / 32.0);
        approx::assert_relative_eq!(entry_variance(&attention, 0.0), 2.0 / 128.0);
    }
}
