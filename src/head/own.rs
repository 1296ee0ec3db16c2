//! What is left of a token's own embedding at the end of its stream: what a tied head finds there.
//!
//! # Formula
//!
//! x = a e + what is independent of e: the embedding e comes through skip connections alone, for whatever else is made
//! of it passes weights of mean zero. Its cosine to x, c = a √(E e²/E x²), is that of the source at first, stays as it
//! is in norms and scales, and
//!
//! ```text
//! y = Σ_i s_i x_i        c_y = Σ_i s_i c_i √(E x_i²/E y²)
//! ```

use std::collections::HashMap;

use sigprop_stack::{Component, Node, Op, SiteTable, Stack, Sum};

use super::ln_second;
use crate::predict::ForwardWalk;

/// The cosine between the end of the stream that ends in a gradient and its token's embedding of variance `variance`,
/// by the levels of all sites.
pub(super) fn cosine(stack: &Stack, table: &SiteTable, variance: f64) -> f64 {
    let stream = &stack.streams[stack.gradient.stream];
    let second = ForwardWalk::new(stream).second_moment();
    let levels = table.sites.iter().map(|row| (row.site.as_str(), ln_second(row))).collect();
    let prefix = if stack.streams.len() > 1 { &stream.name } else { "" };
    let start = Carried { cosine: (variance / second).sqrt(), ln_second: second.ln() };
    Levels(levels).through(&stream.body, prefix, start).cosine
}

/// A signal on its way.
#[derive(Clone, Copy)]
struct Carried {
    cosine: f64,
    ln_second: f64,
}

/// ln E x² by site.
struct Levels<'a>(HashMap<&'a str, f64>);

impl Levels<'_> {
    fn through(&self, body: &[Node], path: &str, start: Carried) -> Carried {
        body.iter().fold(start, |x, node| {
            let path = if path.is_empty() { node.name.clone() } else { format!("{path}.{}", node.name) };
            let ln_second = self.0[path.as_str()];
            let cosine = match &node.op {
                Op::Apply(component) => x.cosine * kept(component, x.ln_second - ln_second),
                Op::Chain(body) => self.through(body, &path, x).cosine,
                Op::Sum(sum) => self.summed(sum, &path, x, ln_second),
                Op::Product(_) | Op::Concat(_) | Op::Attention(_) | Op::Mixture(_) => 0.0,
            };
            Carried { cosine, ln_second }
        })
    }

    fn summed(&self, sum: &Sum, path: &str, x: Carried, ln_second: f64) -> f64 {
        let branches = sum.branches.iter().map(|branch| {
            let end = self.through(&branch.body, path, x);
            branch.scale * end.cosine * (0.5 * (end.ln_second - ln_second)).exp()
        });
        branches.sum()
    }
}

/// The part of a cosine that a component leaves, which divides E x² by e^`ln_fall`.
fn kept(component: &Component, ln_fall: f64) -> f64 {
    match component {
        Component::Norm(_) | Component::Scale(_) | Component::Prepend(_) => 1.0,
        // Noise of mean zero is added.
        Component::Dropout(_) | Component::Embedding(_) => (0.5 * ln_fall).exp(),
        Component::Linear(_) | Component::Activation(_) | Component::Rotary(_) | Component::Convolution(_) => 0.0,
    }
}
