//! Embeddings with one token per position: given ids, and terms that are added to what is there.
//!
//! # Formula
//!
//! A term adds e_a to x_a, independent of it but for the product of their means:
//!
//! ```text
//! E y_a y_b = E x_a x_b + E e_a e_b + mean x_a mean e_b + mean e_a mean x_b
//! position  E e_a e_b = 0         constant  s²        sinusoid  the product of the two waves, exactly
//! segment   s² (1 − |a − b|/(L + 1)), the probability that the split does not fall between the two
//! ```
//!
//! Differences of tokens that are x to the part s have the concentration s² γ + (1 − s)² γ_e + 2 s (1 − s)/width, γ_e =
//! 1/width but 0 of sinusoids, which nothing draws: a narrow embedding counts as much as it has in the sum.

use sigprop_stack::{Embedding, EmbeddingTerm, Gaussian, Init};
use smallvec::smallvec;

use crate::domain::{
    Concentration, Domain, Flow, Fluctuation, Gradient, GradientPairMap, Nearness, PairMap, Signal, part_map, symmetric,
};
use crate::moments::{PerToken, Token, TokenGradient, ln_sum, ratio, share};
use crate::rules::PairRule;
use crate::rules::embedding::gaussian_token;

/// Independent positions of a Gaussian source.
pub(crate) fn gaussian_source(gaussian: &Gaussian, seq_len: usize) -> Signal {
    let (token, cosine) = gaussian_token(gaussian);
    Signal::new(vec![token; seq_len].into(), symmetric(seq_len, |_, _| cosine))
}

/// Embeddings of the ids of one sequence.
pub(crate) fn embedded(embedding: &Embedding, ids: &[u32]) -> Signal {
    let width = embedding.width as f64;
    let mut signal = Signal::new(
        vec![Token::gaussian(width, f64::NEG_INFINITY); ids.len()].into(),
        symmetric(ids.len(), |_, _| 0.0),
    );
    for term in &embedding.terms {
        signal = match term {
            EmbeddingTerm::Token { table } => {
                let token = Token::gaussian(width, table.init.variance().ln());
                let same = symmetric(ids.len(), |i, j| f64::from(u8::from(ids[i] == ids[j])));
                Domain::GRAM.apply(&Rule { own: Signal::new(vec![token; ids.len()].into(), same) }, &signal)
            }
            EmbeddingTerm::LearnedPosition { .. }
            | EmbeddingTerm::SinusoidalPosition { .. }
            | EmbeddingTerm::Constant { .. }
            | EmbeddingTerm::Segment { .. } => {
                Domain::GRAM.apply(&Rule::new(term, embedding.width, ids.len()), &signal)
            }
        };
    }
    signal
}

/// Adds a term.
pub(crate) struct Rule {
    /// The term by itself.
    own: Signal,
}

impl Rule {
    /// A term that does not look at ids.
    pub(crate) fn new(term: &EmbeddingTerm, width: usize, seq_len: usize) -> Self {
        let drawn = |variance: f64, cosine: &(dyn Fn(usize, usize) -> f64 + Sync)| {
            Signal::new(vec![Token::gaussian(width as f64, variance.ln()); seq_len].into(), symmetric(seq_len, cosine))
        };
        let own = match term {
            EmbeddingTerm::Token { table } | EmbeddingTerm::LearnedPosition { table } => {
                drawn(table.init.variance(), &|_, _| 0.0)
            }
            EmbeddingTerm::Constant { table, .. } => drawn(table.init.variance(), &|_, _| 1.0),
            EmbeddingTerm::Segment { table } => {
                drawn(table.init.variance(), &|i, j| 1.0 - i.abs_diff(j) as f64 / (seq_len + 1) as f64)
            }
            EmbeddingTerm::SinusoidalPosition { scale } => sinusoids(*scale, width, seq_len),
        };
        Self { own }
    }

    /// A bias: one draw for all tokens of `x`.
    pub(crate) fn constant(bias: Init, x: &Signal) -> Self {
        let token = Token::gaussian(x.token().width, bias.variance().ln());
        Self { own: Signal::new(smallvec![token; x.tokens.len()], vec![1.0; x.cosines.len()].into()) }
    }

    /// Second moments of x and of the term in units of that of the sum, and the means likewise.
    fn parts(&self, x: &[Token], y: &[Token]) -> Vec<[f64; 4]> {
        let part = |(y, (x, e)): (&Token, (&Token, &Token))| {
            let amplitude = |token: &Token| share(0.5 * token.ln_second, 0.5 * y.ln_second);
            [amplitude(x), amplitude(e), amplitude(x) * x.mean, amplitude(e) * e.mean]
        };
        y.iter().zip(x.iter().zip(self.own.tokens.iter())).map(part).collect()
    }
}

impl PairRule for Rule {
    fn tokens(&self, x: &[Token]) -> PerToken<Token> {
        let token = |(x, e): (&Token, &Token)| {
            let ln_unit = ln_sum([x.ln_second, e.ln_second].into_iter());
            let amplitude = |token: &Token| share(0.5 * token.ln_second, 0.5 * ln_unit);
            let (first, second) = (amplitude(x) * x.mean, amplitude(e) * e.mean);
            let total = 1.0 + 2.0 * first * second;
            let (of_x, of_e) = (amplitude(x).powi(2) / total, amplitude(e).powi(2) / total);
            Token {
                ln_second: ln_unit + total.ln(),
                mean: (first + second) / total.sqrt(),
                kurtosis: of_x * of_x * x.kurtosis + of_e * of_e * e.kurtosis + 4.0 * of_x * of_e,
                skewness: of_x.powf(1.5) * x.skewness + of_e.powf(1.5) * e.skewness,
                scale_variance: of_x * of_x * x.scale_variance,
                uneven: of_x * of_x * x.uneven,
                masked: of_x * of_x * x.masked,
                entry_variance: of_x * of_x * x.entry_variance
                    + of_e * of_e * e.entry_variance
                    + 4.0 * of_x * of_e / x.width,
                sensitivity: of_x * x.sensitivity,
                constant_share: of_x * x.constant_share + of_e * e.constant_share,
                ..*x
            }
        };
        x.iter().zip(self.own.tokens.iter()).map(token).collect()
    }

    fn cosines<'a>(&'a self, x: &'a [Token], y: &'a [Token]) -> PairMap<'a> {
        let parts = self.parts(x, y);
        let count = self.own.tokens.len();
        Box::new(move |i, j, cosine| {
            let ([x_i, e_i, m_i, n_i], [x_j, e_j, m_j, n_j]) = (parts[i], parts[j]);
            x_i * x_j * cosine + e_i * e_j * self.own.cosines[i * count + j] + m_i * n_j + n_i * m_j
        })
    }

    fn concentration(&self, x: &Signal, y: &Signal, mean_cosine: &dyn Fn(&Signal) -> f64) -> Concentration {
        let apart = |part: &Signal| share(part.ln_level(), y.ln_level()) * (1.0 - mean_cosine(part));
        let (of_x, of_term) = (apart(x), apart(&self.own));
        let kept = if of_term > 0.0 { (of_x / (of_x + of_term)).clamp(0.0, 1.0) } else { 1.0 };
        x.concentration.mixed(kept, self.own.concentration, x.token().width)
    }

    fn fluctuation(&self, domain: &Domain, x: &Signal, y: &Signal) -> Fluctuation {
        let of_x = share(x.token().ln_second, y.token().ln_second);
        let drawn = (y.token().entry_variance - of_x * of_x * x.token().entry_variance).max(0.0);
        let alike = domain.alike(y, 0.0);
        x.fluctuation.redrawn(part_map(of_x, domain.shared(x), alike.parts()), alike.drawn(drawn))
    }

    fn tokens_backward(&self, x: &[Token], y: &[Token], gradients: &[TokenGradient]) -> PerToken<TokenGradient> {
        let parts = self.parts(x, y);
        let token = |(gradient, part): (&TokenGradient, &[f64; 4])| {
            let of_x = part[0] * part[0];
            TokenGradient {
                radial: 1.0 + of_x * (gradient.radial - 1.0),
                steepness: of_x * gradient.steepness,
                excess: of_x * gradient.excess,
                ..*gradient
            }
        };
        gradients.iter().zip(&parts).map(token).collect()
    }

    fn across(&self, _: &Domain, x: &Signal, across: f64) -> f64 {
        let of_x = share(x.token().ln_second, self.tokens(&x.tokens)[0].ln_second);
        1.0 + of_x * (across - 1.0)
    }

    fn nearness(&self, _: &Domain, [x, y]: [&Signal; 2], gradient: &Gradient) -> Nearness {
        gradient.nearness.before(share(x.ln_level(), y.ln_level()), 1.0, 0.0)
    }

    fn cosines_backward<'a>(&'a self, _: &'a [Token], _: &'a [TokenGradient]) -> GradientPairMap<'a> {
        Box::new(|_, _, _, gradient_cosine| gradient_cosine)
    }
}

/// Fixed waves: features 2i and 2i + 1 are `scale` times sin and cos of position · 10000^(−2i/width).
fn sinusoids(scale: f64, width: usize, seq_len: usize) -> Signal {
    let angles: Vec<f64> = (0..width).map(|f| 10_000f64.powf(-((f - f % 2) as f64) / width as f64)).collect();
    let wave = |position: usize| -> Vec<f64> {
        let phase = |(feature, angle): (usize, &f64)| {
            let phase = position as f64 * angle;
            scale * if feature % 2 == 0 { phase.sin() } else { phase.cos() }
        };
        angles.iter().enumerate().map(phase).collect()
    };
    let waves: Vec<Vec<f64>> = (0..seq_len).map(wave).collect();
    let product = |i: usize, j: usize| waves[i].iter().zip(&waves[j]).map(|(a, b)| a * b).sum::<f64>() / width as f64;
    let tokens = (0..seq_len)
        .map(|i| {
            let second = product(i, i);
            let mean = waves[i].iter().sum::<f64>() / width as f64;
            let fourth = waves[i].iter().map(|x| x.powi(4)).sum::<f64>() / width as f64;
            Token {
                // Of one feature the first position is zero.
                mean: ratio(mean, second.sqrt()),
                kurtosis: ratio(fourth, second * second) - 1.0,
                skewness: ratio(waves[i].iter().map(|x| x.powi(3)).sum::<f64>() / width as f64, second.powf(1.5)),
                entry_variance: 0.0,
                constant_share: 0.0,
                ..Token::gaussian(width as f64, second.ln())
            }
        })
        .collect();
    let cosines = symmetric(seq_len, |i, j| ratio(product(i, j), (product(i, i) * product(j, j)).sqrt()));
    Signal { concentration: Concentration::NONE, ..Signal::new(tokens, cosines) }
}

/// ln E dW² of the table of `term`, from the gradient where it is added; `None` for a term without weights.
pub(crate) fn ln_weight_gradient(
    term: &EmbeddingTerm,
    vocabulary: Option<(usize, &[u32])>,
    gradient: &Gradient,
) -> Option<f64> {
    let count = gradient.tokens.len();
    let summed = |rows: usize, shared: &(dyn Fn(usize, usize) -> f64 + Sync)| {
        // Of a token each the row that it reads.
        let read = Signal::new(vec![Token::gaussian(1.0, 0.0); count].into(), symmetric(count, shared));
        let uncoupled = Gradient::new(gradient.tokens.clone(), gradient.cosines.clone());
        Domain::GRAM.ln_collected(&read, &uncoupled, 0.0) - (rows as f64).ln()
    };
    match term {
        EmbeddingTerm::Token { .. } => {
            vocabulary.map(|(vocab_size, ids)| summed(vocab_size, &|i, j| f64::from(u8::from(ids[i] == ids[j]))))
        }
        EmbeddingTerm::LearnedPosition { .. } => Some(summed(count, &|_, _| 0.0)),
        EmbeddingTerm::Constant { rows, .. } => Some(summed(*rows, &|_, _| 1.0)),
        EmbeddingTerm::Segment { .. } => Some(summed(2, &|i, j| 1.0 - i.abs_diff(j) as f64 / (count + 1) as f64)),
        EmbeddingTerm::SinusoidalPosition { .. } => None,
    }
}
