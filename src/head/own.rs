//! The component of a token's own embedding that remains at the end of its stream, where a tied head responds to it.
//!
//! # Formula
//!
//! The signal x is c √(E x²/E e²) e plus a remainder independent of e. The embedding e arrives through skip connections
//! alone, because all other paths pass weights of mean zero. The cosine c starts at its value at the source and is not
//! changed by norms and scales. In sums,
//!
//! ```text
//! y = Σ_i β_i x_i        c_y = Σ_i β_i c_i √(E x_i²/E y²)
//! ```
//!
//! where y is the output of the sum; β_i is the factor on branch i; x_i is the output of branch i; c_i, c_y are the
//! cosines of x_i and of y to e; e is the embedding of the token; E is the average over random weights and over
//! features.
//!
//! On its way back, a gradient g loses at every norm its component along the norm's input. The remaining products of a
//! gradient along e with e and with x/c are
//!
//! ```text
//! kept = 1 − c_1²        radial = −Σ_{k<n_norms} (1 − c_{k+1}²/c_k²)        (both 1 without norms)
//! ```
//!
//! where kept is the component along e that the norms leave of a unit gradient along e; radial is the component along x
//! that they leave of this gradient, divided by c; c_k is the cosine of the input x_k of norm k to e, where c_1 is the
//! largest and the last is c; n_norms is the number of norms.
//!
//! Of the direction ê of e, ê − Σ_k x̂_k (c_k² − c_{k+1}²)/c_k remains, where x̂_k is the direction of x_k and c_{k+1}
//! is 0 after the last norm, since each x̂_k is c_k/c_j x̂_j plus an independent part.

use std::collections::HashMap;

use sigprop_stack::{Component, Node, Norm, NormKind, Op, Read, SiteTable, Stack, Sum};

use super::ln_second;
use crate::predict::ForwardPass;

/// The relation between a token's embedding and the end of its stream.
pub(super) struct Own {
    /// The cosine between the embedding and the end of the stream.
    pub(super) cosine: f64,
    /// The component along the embedding that the norms leave of a unit gradient along it.
    pub(super) kept: f64,
    /// The component along the end of the stream that the norms leave of this unit gradient, divided by the cosine.
    pub(super) radial: f64,
}

impl Own {
    /// Computes the relation for embeddings of this `variance`, from the second moments of all sites in `table`. The
    /// stream is the one at whose end the gradient starts.
    pub(super) fn new(stack: &Stack, table: &SiteTable, variance: f64) -> Self {
        let stream = &stack.streams[stack.gradient.stream];
        let second = ForwardPass::new(stream).second_moment();
        let levels = table.sites.iter().map(|row| (row.site.as_str(), ln_second(row))).collect();
        let prefix = if stack.streams.len() > 1 { &stream.name } else { "" };
        let start = Carried { cosine: root_part(variance.ln(), second.ln()), ln_second: second.ln(), norms: None };
        let Carried { cosine, ln_second: _, norms } =
            Levels { levels, earlier: HashMap::new() }.through(&stream.body, prefix, start);
        match norms {
            None => Self { cosine, kept: 1.0, radial: 1.0 },
            Some(Norms { first, last: _, lost }) => Self { cosine, kept: 1.0 - first * first, radial: -lost },
        }
    }
}

/// The signal at one point of the stream: its cosine to the token's embedding, ln E x², and the norms that it has
/// passed (`None` before the first).
#[derive(Clone, Copy)]
struct Carried {
    cosine: f64,
    ln_second: f64,
    norms: Option<Norms>,
}

impl Carried {
    /// Returns the passed norms, including a norm at the current point.
    fn normed(&self) -> Norms {
        match self.norms {
            None => Norms { first: self.cosine, last: self.cosine, lost: 0.0 },
            Some(Norms { first, last, lost }) if self.cosine.abs() > 0.0 => {
                Norms { first, last: self.cosine, lost: lost + 1.0 - (self.cosine / last).powi(2) }
            }
            // No part of the embedding reaches this norm.
            Some(norms) => norms,
        }
    }
}

/// The norms that a signal has passed: its cosine c_i at the first and at the last of them, and Σ (1 − c_{i+1}²/c_i²)
/// over successive norms.
#[derive(Clone, Copy)]
struct Norms {
    first: f64,
    last: f64,
    lost: f64,
}

/// The sites of a stack, by path.
struct Levels<'a> {
    /// ln E x² of every site.
    levels: HashMap<&'a str, f64>,
    /// The signals of the sites that were passed.
    earlier: HashMap<String, Carried>,
}

impl Levels<'_> {
    fn through(&mut self, body: &[Node], path: &str, start: Carried) -> Carried {
        body.iter().fold(start, |x, node| {
            let path = if path.is_empty() { node.name.clone() } else { format!("{path}.{}", node.name) };
            // A read is no site.
            let ln_second = self.levels.get(path.as_str()).copied().unwrap_or(f64::NEG_INFINITY);
            let (cosine, norms) = match &node.op {
                Op::Apply(Component::Norm(norm @ Norm { kind: NormKind::LayerNorm | NormKind::RmsNorm, .. })) => {
                    (x.cosine * unbiased(norm, ln_second), Some(x.normed()))
                }
                Op::Apply(component) => (x.cosine * kept(component, [x.ln_second, ln_second]), x.norms),
                Op::Chain(body) => {
                    let end = self.through(body, &path, x);
                    (end.cosine, end.norms)
                }
                Op::Sum(sum) => self.summed(sum, &path, x, ln_second),
                Op::Read(Read::Site(site)) => return self.earlier[site],
                // Another stream does not have this embedding.
                Op::Read(Read::Stream(_)) => return Carried { cosine: 0.0, ln_second, norms: None },
                Op::Product(_) | Op::Concat(_) | Op::Attention(_) | Op::Recurrence(_) | Op::Mixture(_) => {
                    (0.0, x.norms)
                }
            };
            let y = Carried { cosine, ln_second, norms };
            self.earlier.insert(path, y);
            y
        })
    }

    /// Returns the cosine of a sum, and the norms on the branch that contributes most to it.
    fn summed(&mut self, sum: &Sum, path: &str, x: Carried, ln_second: f64) -> (f64, Option<Norms>) {
        let parts: Vec<(f64, Option<Norms>)> = sum
            .branches
            .iter()
            .map(|branch| {
                let end = self.through(&branch.body, path, x);
                (branch.scale * end.cosine * root_part(end.ln_second, ln_second), end.norms)
            })
            .collect();
        let most = parts.iter().max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()));
        // Where branches are correlated in other ways, the predicted E y² may be smaller than this component of it.
        let cosine: f64 = parts.iter().map(|(part, _)| part).sum();
        (cosine.clamp(-1.0, 1.0), most.and_then(|(_, norms)| *norms))
    }
}

/// Returns √(e^`part`/e^`whole`), or zero if either is zero.
fn root_part(part: f64, whole: f64) -> f64 {
    if part.min(whole) == f64::NEG_INFINITY { 0.0 } else { (0.5 * (part - whole)).exp() }
}

/// Returns the factor by which the biases of a norm change a cosine, from ln E y² of the output of the norm.
fn unbiased(norm: &Norm, ln_second: f64) -> f64 {
    (1.0 - norm.bias.variance() / ln_second.exp()).max(0.0).sqrt()
}

/// Returns the factor by which a component changes a cosine, from ln E x² of its input and of its output.
fn kept(component: &Component, [before, after]: [f64; 2]) -> f64 {
    match component {
        Component::Norm(norm) => unbiased(norm, after),
        Component::Scale(_) | Component::Prepend(_) => 1.0,
        // Noise of mean zero is added.
        Component::Dropout(_) | Component::Embedding(_) => root_part(before, after),
        Component::Linear(_)
        | Component::Activation(_)
        | Component::Rotary(_)
        | Component::Convolution(_)
        | Component::Pool(_)
        | Component::Select(_) => 0.0,
    }
}
