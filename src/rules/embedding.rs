//! Where a stream starts: sums of looked-up embeddings, or Gaussian vectors.
//!
//! # Formula
//!
//! ```text
//! token     E x² = s²         E x_a x_b = s² if both carry the same id, else 0
//! position  E x² = s²         E x_a x_b = 0
//! segment   E x² = s²         E x_a x_b = s² in the same segment, else 0
//! constant  E x² = s²         E x_a x_b = s²
//! ```
//!
//! Terms add. P(same id) = Σ p², exactly. A split uniform on 0 … L leaves two different positions in
//! one segment with probability 2/3, exactly. Sinusoids make neighbours more alike than strangers: every position is followed then
//! (`positions.rs`).
//!
//! # Backward
//!
//! Rows of a table collect the gradients of the positions that use them:
//!
//! ```text
//! token     E dW² = L/V (E g² + (L − 1) Σ over pairs with the same id of share · E g_a g_b)
//! position  E dW² = E g²
//! segment   E dW² = L/2 (E g² + (L − 1) Σ over pairs in the same segment of share · E g_a g_b)
//! ```
//!
//! # Source
//!
//! Kedia et al. 2024, §3 (repeat probability π²/(6 ln² V) there, exact here).

pub(crate) mod positions;

use std::sync::Arc;

use nalgebra::{Matrix2, Vector2};
use sigprop_stack::{Embedding, EmbeddingTerm, Gaussian, PowerLaw};

use crate::domain::{Exchangeable, Fluctuation, Gradient, Lengths, PairClass, Signal, mean_share};
use crate::moments::Token;
use crate::rules::softmax::repeats::Repeats;

/// Shares of the smaller of two segments that stand for all: they and those of the larger have the moments of a share uniform in
/// [0, 1] up to the fifth (Chebyshev's four nodes of equal weight).
pub(crate) const SEGMENT_SHARES: [f64; 2] = [0.102_672_764, 0.406_203_763];

/// ‖C E C‖²/L² of equal ids: ΣE² − 2 Σ_b (Σ_b' E)²/L + (ΣE)²/L², with Σ E² = Σ E, over L².
fn id_spread(length: f64, pair: f64, triple: f64) -> f64 {
    let entries = 1.0 / length + (1.0 - 1.0 / length) * pair;
    let others = length - 1.0;
    let rows = (1.0 + 3.0 * others * pair + others * (length - 2.0) * triple) / (length * length);
    let fluctuation = 4.0 * (triple - pair * pair) / length;
    (entries - 2.0 * rows + entries * entries + fluctuation).max(0.0)
}

/// Gaussian vectors at the start of a stream of `seq_len` tokens, and their pair classes.
pub(crate) fn gaussian_source(gaussian: &Gaussian, seq_len: usize) -> (Exchangeable, Signal) {
    let class = PairClass { share: 1.0, same_id: false, same_segment: false };
    let seq_len = seq_len as f64;
    let domain = Exchangeable::plain(seq_len, vec![class]);
    let (token, cosine) = gaussian_token(gaussian);
    let lengths = Lengths::source(&token, cosine).map(Arc::new);
    (domain, Signal { lengths, ..Signal::new([token].into(), [cosine].into()) })
}

/// One Gaussian vector, and the cosine of two.
pub(crate) fn gaussian_token(gaussian: &Gaussian) -> (Token, f64) {
    let square = gaussian.mean * gaussian.mean;
    let second = gaussian.variance + square;
    let mut token = Token::gaussian(gaussian.width as f64, second.ln());
    if second <= 0.0 {
        return (token, gaussian.correlation);
    }
    // E x⁴ = 3 E² x² − 2 mean⁴.
    token.mean = gaussian.mean / second.sqrt();
    token.kurtosis = 2.0 - 2.0 * token.mean.powi(4);
    token.skewness = 3.0 * token.mean - 2.0 * token.mean.powi(3);
    token.entry_variance = token.kurtosis / token.width;
    (token, (gaussian.correlation * gaussian.variance + square) / second)
}

/// Embeddings of ids drawn from `law` at the start of a stream of `seq_len` tokens, and their pair classes.
///
/// Of two segments the smaller has each of these `shares` as often.
pub(crate) fn source(
    embedding: &Embedding,
    law: PowerLaw,
    seq_len: usize,
    shares: &'static [f64],
) -> (Exchangeable, Signal) {
    let repeat = law.repeat_probability(2);
    let segments = if has_segments(embedding) { shares } else { &[] };
    // P(so many different positions lie in the same segment), and ‖C E C‖²/L².
    let same = |count: i32| mean_share(segments, |z| z.powi(count) + (1.0 - z).powi(count));
    let segment_spread = mean_share(segments, |z| (2.0 * z * (1.0 - z)).powi(2));
    let mut classes = Vec::new();
    for (same_id, id_share) in [(true, repeat), (false, 1.0 - repeat)] {
        if has_segments(embedding) {
            classes.push(PairClass { share: id_share * same(2), same_id, same_segment: true });
            classes.push(PairClass { share: id_share * (1.0 - same(2)), same_id, same_segment: false });
        } else {
            classes.push(PairClass { share: id_share, same_id, same_segment: false });
        }
    }
    classes.retain(|class| class.share > 0.0);

    let mut second = 0.0;
    let mut crosses = vec![0.0; classes.len()];
    for term in &embedding.terms {
        let (own, shared): (f64, &dyn Fn(&PairClass) -> f64) = match term {
            EmbeddingTerm::Token { table } => (table.init.variance(), &|class| f64::from(u8::from(class.same_id))),
            EmbeddingTerm::LearnedPosition { table } => (table.init.variance(), &|_| 0.0),
            EmbeddingTerm::Constant { table, .. } => (table.init.variance(), &|_| 1.0),
            EmbeddingTerm::Segment { table } => {
                (table.init.variance(), &|class| f64::from(u8::from(class.same_segment)))
            }
            EmbeddingTerm::SinusoidalPosition { .. } => unreachable!("waves take the Gram domain"),
        };
        second += own;
        for (cross, class) in crosses.iter_mut().zip(&classes) {
            *cross += own * shared(class);
        }
    }
    let triple = law.repeat_probability(3);
    let repeats = Arc::new(Repeats::of(law, seq_len));
    let seq_len = seq_len as f64;
    let id_spread = id_spread(seq_len, repeat, triple);
    let domain = Exchangeable {
        id_spread,
        segment_spread,
        id_triple: triple,
        segment_triple: same(3),
        repeats,
        segments,
        ..Exchangeable::plain(seq_len, classes)
    };
    let token = Token::gaussian(embedding.width as f64, f64::ln(second));
    if second > 0.0 {
        crosses = crosses.into_iter().map(|cross| cross / second).collect();
    }
    // How many repeats a sequence happens to have.
    let own: f64 = embedding
        .terms
        .iter()
        .map(|term| match term {
            EmbeddingTerm::Token { table } => table.init.variance(),
            EmbeddingTerm::LearnedPosition { .. }
            | EmbeddingTerm::Constant { .. }
            | EmbeddingTerm::Segment { .. }
            | EmbeddingTerm::SinusoidalPosition { .. } => 0.0,
        })
        .sum();
    let others = (1.0 - 1.0 / seq_len) * own / second;
    let shared = 1.0 / seq_len + (1.0 - 1.0 / seq_len) * domain.mean(&crosses);
    let met = repeats_variance(seq_len, repeat, triple) * (others / shared).powi(2);
    // What repeats add to what is common they take from the differences.
    let moved = if shared < 1.0 { Vector2::new(1.0, -shared / (1.0 - shared)) } else { Vector2::zeros() };
    let scale = if second > 0.0 && seq_len > 1.0 { met * moved * moved.transpose() } else { Matrix2::zeros() };
    let fluctuation = Fluctuation { scale, ..Fluctuation::none() };
    (domain, Signal { fluctuation, ..Signal::new([token].into(), crosses.into()) })
}

/// Whether it tells two segments apart.
pub(crate) fn has_segments(embedding: &Embedding) -> bool {
    embedding.terms.iter().any(|term| matches!(term, EmbeddingTerm::Segment { .. }))
}

/// Variance of the share of pairs with equal ids in a sequence, from the probabilities that two and three are equal.
fn repeats_variance(length: f64, pair: f64, triple: f64) -> f64 {
    (2.0 * pair * (1.0 - pair) + 4.0 * (length - 2.0) * (triple - pair * pair)) / (length * (length - 1.0))
}

/// ln E dW² of the table of `term`, from the gradient at the start of the stream; `None` for a term
/// without weights.
pub(crate) fn ln_weight_gradient(
    term: &EmbeddingTerm,
    embedding: &Embedding,
    domain: &Exchangeable,
    gradient: &Gradient,
) -> Option<f64> {
    let ln_second = gradient.token().ln_second;
    let collected = |rows: f64, shared: &dyn Fn(&PairClass) -> bool| {
        let pairs: f64 = domain
            .classes
            .iter()
            .zip(gradient.cosines.iter())
            .filter(|(class, _)| shared(class))
            .map(|(class, cosine)| class.share * cosine)
            .sum();
        ln_second + (domain.seq_len / rows * (1.0 + (domain.seq_len - 1.0) * pairs)).ln()
    };
    match term {
        EmbeddingTerm::Token { .. } => Some(collected(embedding.ids.vocab_size() as f64, &|class| class.same_id)),
        EmbeddingTerm::LearnedPosition { .. } => Some(ln_second),
        EmbeddingTerm::Constant { rows, .. } => Some(collected(*rows as f64, &|_| true)),
        EmbeddingTerm::Segment { .. } => Some(collected(2.0, &|class| class.same_segment)),
        EmbeddingTerm::SinusoidalPosition { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use nalgebra::DMatrix;
    use rand::rngs::ChaCha8Rng;
    use rand::{RngExt, SeedableRng};
    use sigprop_stack::{Ids, Init, Tensor};

    use super::*;

    /// ‖C K C‖²/L² of ids and segments beside drawn ones: without what both have in common it is 9 % too small.
    #[test]
    fn keys_spread_as_ids_and_segments_do() {
        const LENGTH: usize = 40;
        const DRAWS: usize = 2000;
        const FIRST: usize = 12;
        const SHARES: [f64; 1] = [FIRST as f64 / LENGTH as f64];
        let law = PowerLaw { vocab_size: 1000, exponent: 0.0 };
        let table = |name: &str| Tensor { name: name.to_owned(), init: Init::Normal { std: 1.0 } };
        let terms =
            vec![EmbeddingTerm::Token { table: table("tokens") }, EmbeddingTerm::Segment { table: table("segments") }];
        let (domain, keys) = source(&Embedding { width: 64, ids: Ids::PowerLaw(law), terms }, law, LENGTH, &SHARES);
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut sum = 0.0;
        for _ in 0..DRAWS {
            let ids: [usize; LENGTH] = std::array::from_fn(|_| rng.random_range(0..law.vocab_size));
            let drawn = DMatrix::from_fn(LENGTH, LENGTH, |a, b| {
                let alike = [ids[a] == ids[b], (a < FIRST) == (b < FIRST)];
                alike.map(|alike| 0.5 * f64::from(u8::from(alike))).iter().sum::<f64>()
            });
            let rows = drawn.column_mean();
            let all = rows.mean();
            let centred = DMatrix::from_fn(LENGTH, LENGTH, |a, b| drawn[(a, b)] - rows[a] - rows[b] + all);
            sum += centred.norm_squared() / (LENGTH * LENGTH) as f64;
        }
        let spread = domain.spread(&keys.cosines, &keys.cosines);
        approx::assert_relative_eq!(spread, sum / DRAWS as f64, max_relative = 0.01);
    }

    /// E z^k = 1/(k + 1) of a uniform share, up to k = 5.
    #[test]
    fn shares_of_segments_have_the_moments_of_uniform_ones() {
        for k in 1..=5 {
            let got = mean_share(&SEGMENT_SHARES, |z| 0.5 * (z.powi(k) + (1.0 - z).powi(k)));
            approx::assert_relative_eq!(got, 1.0 / f64::from(k + 1), max_relative = 1e-8);
        }
    }
}
