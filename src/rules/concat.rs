//! Chains side by side in every head.
//!
//! # Formula
//!
//! ```text
//! E y_a y_b = Σ_i u_i E f_ia f_ib      u_i = width_i/Σ width, shared parts counted once per head
//! ```
//!
//! # Backward
//!
//! Every part receives the gradient of its features; a shared one the sum over heads, `n_heads` times as much. The gradient of a
//! query, Σ_b δs_ab k_b with Σ_b δs_ab = 0, has in every part what differences of keys have there; that of a key, Σ_a δs_ab q_a,
//! what queries have.
//!
//! # Assumptions
//!
//! Other gradients have one second moment over all features. Pairs of keys count alike, and pairs of queries not at all.
//!
//! # Source
//!
//! Ours.

use std::sync::Arc;

use nalgebra::Matrix2;
use sigprop_stack::Concat;

use crate::domain::{Domain, Fluctuation, Fork, Gradient, Part, Signal, Term};
use crate::moments::{Few, PerToken, Token, TokenGradient, ln_sum, share};

/// Features a part takes in the output.
fn width(concat: &Concat, index: usize, part: &Token) -> f64 {
    if concat.parts[index].shared { concat.n_heads as f64 * part.width } else { part.width }
}

/// The output from the common input and the parts, and how the deviations of each part reach it.
pub(crate) fn forward(
    concat: &Concat,
    domain: &Domain,
    x: &Signal,
    parts: &[Arc<Signal>],
) -> (Signal, Few<Matrix2<f64>>) {
    let widths: Few<f64> = parts.iter().enumerate().map(|(i, part)| width(concat, i, part.token())).collect();
    let total: f64 = widths.iter().sum();
    let count = parts[0].tokens.len();
    let ln_part = |index: usize, i: usize| (widths[index] / total).ln() + parts[index].tokens[i].ln_second;
    let token = |i: usize| {
        let ln_second = ln_sum((0..parts.len()).map(|index| ln_part(index, i)));
        let mean = |value: &dyn Fn(&Token) -> f64| -> f64 {
            (0..parts.len()).map(|index| share(ln_part(index, i), ln_second) * value(&parts[index].tokens[i])).sum()
        };
        Token {
            scale_variance: mean(&|token| token.scale_variance),
            uneven: mean(&|token| token.uneven),
            sensitivity: mean(&|token| token.sensitivity),
            ..Token::gaussian(total, ln_second)
        }
    };
    let tokens: PerToken<Token> = (0..count).map(token).collect();
    let amplitudes: Few<Few<f64>> = (0..parts.len())
        .map(|index| (0..count).map(|i| share(0.5 * ln_part(index, i), 0.5 * tokens[i].ln_second)).collect())
        .collect();
    let cosines = domain.map(count, |i, j, place| {
        amplitudes.iter().zip(parts).map(|(a, part)| a[i] * a[j] * part.cosines[place]).sum()
    });
    let levels = tokens.iter().map(|token| token.ln_second);
    let pooled: Few<f64> = (0..parts.len()).map(|index| ln_sum((0..count).map(|i| ln_part(index, i)))).collect();
    let ln_total = ln_sum(pooled.iter().copied());
    let terms: Few<Term> = parts
        .iter()
        .zip(&pooled)
        .map(|(part, ln_second)| Term {
            share: share(*ln_second, ln_total),
            cosines: &part.cosines,
            mean: 0.0,
            inherited: 0.0,
            fluctuation: part.fluctuation,
        })
        .collect();
    // Features of their own have no products with others.
    let (fluctuation, maps) = domain.joined((x.fluctuation, 0.0), &terms, &levels, f64::INFINITY);
    let difference = |index: usize| terms[index].share * (1.0 - domain.mean_cosine(parts[index].as_ref()));
    let differences: f64 = (0..parts.len()).map(difference).sum();
    let part = |index: usize| Part {
        features: widths[index] / total,
        squares: terms[index].share,
        // Of tokens that are all alike, what they are.
        differences: if differences > 0.0 { difference(index) / differences } else { terms[index].share },
    };
    let parts = (0..parts.len()).map(part).collect();
    (Signal { fluctuation, parts: Some(parts), ..Signal::new(tokens, cosines) }, maps)
}

/// The variance of scores over that of a query and keys whose parts have equal second moments.
pub(crate) fn score_variance([query, key]: [&Signal; 2]) -> f64 {
    let (Some(query), Some(key)) = (&query.parts, &key.parts) else { return 1.0 };
    query.iter().zip(key.iter()).map(|(q, k)| q.squares * k.differences / k.features).sum()
}

/// The gradients at query and key of attention with the share of each part: that of differences of keys in a query's, that of
/// queries in a key's.
pub(crate) fn gradient_shares([query, key]: [&Signal; 2], gradients: [Gradient; 2]) -> [Gradient; 2] {
    let of = |signal: &Signal, share: fn(&Part) -> f64| -> Option<Arc<[f64]>> {
        Some(signal.parts.as_ref()?.iter().map(share).collect())
    };
    let [at_query, at_key] = gradients;
    let shares = of(key, |part| part.differences);
    [Gradient { shares, ..at_query }, Gradient { shares: of(query, |part| part.squares), ..at_key }]
}

/// The gradient at the output of every part.
pub(crate) fn split(concat: &Concat, fork: &Fork, gradient: &Gradient) -> Vec<Gradient> {
    let Fork { x, parts, maps, .. } = fork;
    let widths: Few<f64> = parts.iter().enumerate().map(|(i, part)| width(concat, i, part.token())).collect();
    let total: f64 = widths.iter().sum();
    let part = |index: usize| {
        let width = widths[index] / total;
        let more = gradient.shares.as_ref().map_or(1.0, |shares| shares[index] / width);
        let heads = if concat.parts[index].shared { concat.n_heads as f64 } else { 1.0 };
        let token = |(g, x): (&TokenGradient, &Token)| TokenGradient {
            beside: g.beside * x.sensitivity,
            ..TokenGradient::isotropic(g.ln_second + (heads * more).ln())
        };
        let fluctuation = gradient.fluctuation.forked();
        Gradient {
            tokens: gradient.tokens.iter().zip(&x.tokens).map(token).collect::<Vec<_>>().into(),
            fluctuation: Fluctuation { entries: fluctuation.entries / width, ..fluctuation },
            response: maps[index] * gradient.response,
            made: Matrix2::identity(),
            beside: x.fluctuation.kept * gradient.beside,
            shares: None,
            ..gradient.clone()
        }
    };
    (0..concat.parts.len()).map(part).collect()
}
