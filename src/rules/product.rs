//! Elementwise product of factors with independent weights (gated feed-forward networks).
//!
//! # Formula
//!
//! ```text
//! E y_a y_b = Π_i E f_ia f_ib + Σ_{i<j} s_i s_j Π_{k≠i,j} E f_ka f_kb · γ (1 − c²)²
//! mean' = Π mean_i      κ' + 1 = Π (κ_i + 1)
//! ```
//!
//! The sum is over pairs of tokens, with all second moments 1: in one network the cosine c of two inputs deviates
//! by δ with variance γ (1 − c²)² (that of a sample correlation of 1/γ entries), and every factor with it by s_i δ,
//! s_i = dc_i/dc at the mean cosine.
//!
//! *Lengths.* Where the input was not normalised, factors grow together: with χ_i = d ln E f_i²/d ln |x|² and V, E, C of
//! the input ([`Strayed`]), of two factors
//!
//! ```text
//! E y² = E f² E g² (1 + χ_f χ_g V)
//! cosine' = c_f c_g (1 − χ_f χ_g (V − E)/2) + (χ_f c_f s_g + χ_g c_g s_f) c (C − (V + E)/2)
//! ```
//!
//! Sampled behind norms near their ε (stream of ±29 %, width 128): E y² 3.8 % too small without, 0.3 ± 0.6 % too large
//! with it.
//!
//! # Backward
//!
//! Factor i receives E g_a g_b Π_{j≠i} E f_ja f_jb (1 − S Σχ Σ_{j≠i} χ_j V), S the `steepness`, and is larger where the other factors
//! are: `beside` of its tokens has −(1 − S) Σ_{j≠i} χ_j V more, which weights meet ([`Domain::ln_collected`]). f_i·g_i = y·g, so its
//! radial share is that of y.
//! What they send back to the common input is aligned, x·g_i = χ_i y·g each: X = 2 Σ_{i<j} χ_i χ_j E (y·g)² over
//! E x² E g_x² width is added to its radial share, X/width to its second moment.
//! The other factors of tokens that happen to be more alike are so too: cos(g_i) answers to the input by way of factors j ≠ i by s_j
//! (cos(g) Π_{k≠i,j} c_k + P Π_{k≠i} c_k Π_{k≠j} c_k), to its own factor by P (Π_{k≠i} c_k)² (`src/domain/nearness.rs`).
//! They are less alike where gradients are small (`Domain::ln_met_again`).
//! The gradient of factor i goes with Π_{j≠i} |f_j|², and so answers to the levels of the input by −Σ χ_j of_all, its cosines as
//! those of the other factors go with c (`answers`), and meets what reaches the input by way of other branches (`rules/sum.rs`,
//! *Beside*). Sampled with reordered norms near their ε, SwiGLU, six blocks of width 128 (3000 networks): gradients at the
//! embeddings 5.4 ± 1.2 % too large without, 2.2 with it; weights of the first gate 10.7 ± 0.7 % too large without, 1.3 with it.
//! Entries share their draws: the gain of factor i has relative entry variance κ of the others, and an activation in it meets κ + 1 times
//! as much of its own (`single`): gates of 64 features before a norm have weights' gradients 8 to 10 % larger without, sampled 0.1 ±
//! 0.3 % off what those of the other factor are. What is less its mean is itself where the others have none.
//!
//! # Assumptions
//!
//! Factors are independent given the norm of their common input.
//!
//! # Source
//!
//! The product of independent second moments; the 1/width terms are ours.

use std::sync::Arc;

use nalgebra::Matrix2;

use crate::domain::{
    Branch, Concentration, Domain, Entry, Fluctuation, Fork, Gradient, Signal, Strayed, bounded, by_position,
    levels_map, of_all,
};
use crate::moments::{Few, PerToken, Token, TokenGradient, crossed, ln_correction, ratio, share};

/// The output from the common input and the factors, and how the deviations of each factor reach it.
pub(crate) fn forward(domain: &Domain, x: &Signal, factors: &[Arc<Signal>]) -> (Signal, Few<Matrix2<f64>>) {
    let strays = Strays::of(domain, x);
    let tokens = by_position(factors).iter().zip(&x.tokens).map(|(factors, x)| token(factors, strays.own(x))).collect();
    let y = Signal::new(tokens, cosines(domain, x, factors, strays));
    let (fluctuation, maps) = fluctuation(domain, x, factors, &y);
    let drawn = (fluctuation.entry.apart() / y.token().width).min(1.0);
    let concentration = concentration(factors, drawn, &|signal| domain.mean_cosine(signal));
    (Signal { concentration, fluctuation, ..y }, maps)
}

/// The gradient at every factor.
pub(crate) fn split(domain: &Domain, fork: &Fork, gradient: &Gradient) -> Vec<Gradient> {
    let Fork { x, parts: factors, maps, output } = fork;
    let positions = by_position(factors);
    let alike: Few<f64> = factors.iter().map(|factor| domain.mean_cosine(factor.as_ref())).collect();
    let strays = Strays::of(domain, x);
    let (slopes, answers) = (slopes(domain, x, factors), answers(domain, fork));
    let near = nearness(domain, fork, gradient);
    let part = |index: usize| {
        let others = || (0..factors.len()).filter(|&j| j != index);
        let known = others().map(|j| slopes[j] * others().filter(|&k| k != j).map(|k| alike[k]).product::<f64>());
        let slope = ratio(known.sum(), others().map(|j| alike[j]).product());
        let ln_again =
            if domain.follows_levels() { domain.ln_met_again(slope, x, output.fluctuation.map, gradient) } else { 0.0 };
        let [ln_squares, ln_cosines] = gradient.ln_beside(x, answers[index].column(0).into()).into();
        let again = (ln_again + ln_cosines).exp();
        let split = |(factors, x): (&Few<Token>, &Token), g: &TokenGradient| {
            split_token((factors, index), x, strays.own(x), g, gradient.together).scaled(ln_squares)
        };
        let each = positions.iter().zip(&x.tokens).zip(gradient.tokens.iter());
        let tokens: PerToken<TokenGradient> = each.map(|(at, g)| split(at, g)).collect();
        let cosines = domain.map(tokens.len(), |_, _, place| {
            let others = factors.iter().enumerate().filter(|(i, _)| *i != index);
            again * gradient.cosines[place] * others.map(|(_, factor)| factor.cosines[place]).product::<f64>()
        });
        let part = Gradient {
            nearness: gradient.nearness.split(domain, x, near[index]),
            across: gradient.across,
            concentration: Concentration { inherited: 1.0, ..gradient.concentration },
            beside: x.fluctuation.kept * gradient.beside,
            together: gradient.together,
            ..Gradient::new(tokens, cosines)
        };
        let fluctuation = split_fluctuation(domain, factors, index, gradient, &part);
        Gradient { fluctuation, response: maps[index].transpose() * gradient.response, ..part }
    };
    (0..factors.len()).map(part).collect()
}

/// How the common input strays.
#[derive(Clone, Copy)]
struct Strays {
    pairs: Strayed,
    cosine: f64,
    /// What of V single tokens know nothing of.
    common: f64,
}

impl Strays {
    fn of(domain: &Domain, x: &Signal) -> Self {
        let cosine = domain.mean_cosine(x);
        let pairs = domain.strayed(x, cosine);
        Self { pairs, cosine, common: (pairs.own - x.token().even_variance()).max(0.0) }
    }

    /// V of one token.
    fn own(self, x: &Token) -> f64 {
        bounded(x.norm_variance() + self.common)
    }

    /// How much of what keeps tokens of the product apart is gone because lengths and cosines stray together.
    fn closer(self, domain: &Domain, factors: &[Arc<Signal>], slopes: &[f64]) -> f64 {
        let Strayed { own, between, crossed: meeting } = self.pairs;
        let cosines: Few<f64> = factors.iter().map(|factor| domain.mean_cosine(factor.as_ref())).collect();
        let product: f64 = cosines.iter().product();
        if product >= 1.0 || own <= 0.0 {
            return 0.0;
        }
        let sensitivity = |i: usize| factors[i].token().sensitivity;
        let lengths = -0.25 * crossed((0..factors.len()).map(sensitivity)) * (own - between) * product;
        let turned = |j: usize| {
            let others = || (0..factors.len()).filter(|&k| k != j);
            slopes[j] * others().map(|k| cosines[k]).product::<f64>() * others().map(sensitivity).sum::<f64>()
        };
        let turned: f64 = (0..factors.len()).map(turned).sum();
        let angles = turned * self.cosine * (meeting - 0.5 * (own + between));
        bounded((lengths + angles) / (1.0 - product))
    }
}

/// The output from the outputs of the factors.
fn token(factors: &[Token], strayed: f64) -> Token {
    let width = factors[0].width;
    let kurtosis = factors.iter().map(|factor| factor.kurtosis + 1.0).product::<f64>() - 1.0;
    Token {
        ln_second: factors.iter().map(|factor| factor.ln_second).sum::<f64>()
            + ln_correction(0.5 * crossed(factors.iter().map(|factor| factor.sensitivity)) * strayed),
        mean: factors.iter().map(|factor| factor.mean).product(),
        kurtosis,
        skewness: factors.iter().map(|factor| factor.skewness).product(),
        scale_variance: factors.iter().map(|factor| factor.scale_variance.sqrt()).sum::<f64>().powi(2),
        entry_variance: kurtosis / width,
        sensitivity: factors.iter().map(|factor| factor.sensitivity).sum(),
        ..Token::gaussian(width, 0.0)
    }
}

/// The cosines of the product: those of the factors multiplied, and what they deviate together.
fn cosines(domain: &Domain, x: &Signal, factors: &[Arc<Signal>], strays: Strays) -> Arc<[f64]> {
    let slopes = slopes(domain, x, factors);
    let closer = strays.closer(domain, factors, &slopes);
    domain.map(factors[0].tokens.len(), |_, _, place| {
        let own = |index: usize| factors[index].cosines[place];
        let product: f64 = (0..factors.len()).map(own).product();
        let pairs = (0..factors.len()).flat_map(|i| (0..i).map(move |j| (i, j)));
        let together: f64 = pairs
            .map(|(i, j)| {
                let others = (0..factors.len()).filter(|&k| k != i && k != j).map(own).product::<f64>();
                slopes[i] * slopes[j] * others
            })
            .sum();
        let variance = x.concentration.of_cosine(x.cosines[place]);
        let alike = product + together * variance;
        (alike + closer * (1.0 - alike)).clamp(-1.0, 1.0)
    })
}

/// s_i of every factor.
fn slopes(domain: &Domain, x: &Signal, factors: &[Arc<Signal>]) -> Few<f64> {
    factors.iter().map(|factor| domain.contrast(x, factor)).collect()
}

/// Per factor, what cosines of its gradient answer to: pairs of tokens that happen to be more alike have other factors that are.
pub(crate) fn nearness(domain: &Domain, fork: &Fork, gradient: &Gradient) -> Few<Branch> {
    let Fork { x, parts: factors, .. } = fork;
    let slopes = slopes(domain, x, factors);
    let alike: Few<f64> = factors.iter().map(|factor| domain.mean_cosine(factor.as_ref())).collect();
    let but = |one: usize, other: usize| -> f64 {
        (0..factors.len()).filter(|&k| k != one && k != other).map(|k| alike[k]).product()
    };
    let (cosine, response) = (domain.mean_cosine(gradient), gradient.nearness.response);
    let branch = |index: usize| {
        let kept = but(index, index);
        let others = (0..factors.len()).filter(|&j| j != index);
        let by_others = others.map(|j| slopes[j] * (cosine * but(index, j) + response * kept * but(j, j)));
        Branch { kept, own: response * kept * kept, by_others: by_others.sum(), ..Branch::NONE }
    };
    (0..factors.len()).map(branch).collect()
}

/// What of the gradient of every factor goes with the other ones: what it answers to the levels of the common input by.
pub(crate) fn answers(domain: &Domain, fork: &Fork) -> Few<Matrix2<f64>> {
    let Fork { x, parts: factors, .. } = fork;
    let (all, slopes) = (of_all(domain.shared(x.as_ref())), slopes(domain, x, factors));
    let alike: Few<f64> = factors.iter().map(|factor| domain.mean_cosine(factor.as_ref())).collect();
    let of = |index: usize| {
        let others = || (0..factors.len()).filter(|&j| j != index);
        let larger: f64 = others().map(|j| factors[j].token().sensitivity).sum();
        let slope: f64 = others().map(|j| ratio(slopes[j], alike[j])).sum();
        Matrix2::from_columns(&[-larger * all, domain.answers_to_likeness(slope, x)])
    };
    (0..factors.len()).map(of).collect()
}

/// The gradient of factor `index`.
fn split_token(
    (factors, index): (&[Token], usize),
    x: &Token,
    strayed: f64,
    gradient: &TokenGradient,
    together: f64,
) -> TokenGradient {
    let others = factors.iter().enumerate().filter(|(i, _)| *i != index).map(|(_, factor)| factor);
    let ln_gain: f64 = others.clone().map(|factor| factor.ln_second).sum();
    let kurtosis = others.clone().map(|factor| factor.kurtosis + 1.0).product::<f64>() - 1.0;
    let average: f64 = others.map(|factor| factor.mean * factor.mean).product();
    let shared = gradient.of_lengths() * gradient.single * kurtosis / factors[index].width;
    // In networks where the input is larger the other factors are, and the gradient is smaller.
    let all: f64 = factors.iter().map(|factor| factor.sensitivity).sum();
    let others = all - factors[index].sensitivity;
    let beside = gradient.beside * x.sensitivity;
    let larger = others * (gradient.steepness * all * strayed + gradient.known(together) * beside);
    // Inside a branch it goes with the other factors.
    let beside = beside + others * (gradient.steepness - 1.0) * strayed;
    let single = gradient.single * (kurtosis + 1.0);
    let scaled = gradient.scaled(ln_gain + ln_correction(shared - larger));
    TokenGradient { constant: 1.0, centred: gradient.centred * average, beside, single, ..scaled }
}

/// The concentration of the product, whose entries draw this: what its factors have from their common input adds up.
fn concentration(factors: &[Arc<Signal>], drawn: f64, mean_cosine: &dyn Fn(&Signal) -> f64) -> Concentration {
    // Of what the factors are one by one, without what they deviate together.
    let cosine: f64 = factors.iter().map(|factor| mean_cosine(factor)).product();
    let share = |factor: &Arc<Signal>| {
        let own = mean_cosine(factor);
        if cosine < 1.0 && own > 0.0 { cosine / own * (1.0 - own) / (1.0 - cosine) } else { 0.0 }
    };
    let deviation: f64 = factors.iter().map(|factor| share(factor) * factor.concentration.drawn_from().sqrt()).sum();
    let concentration = Concentration {
        total: deviation * deviation + drawn,
        drawn,
        rows: factors.iter().map(|factor| share(factor) * factor.concentration.rows.sqrt()).sum::<f64>().powi(2),
        inherited: factors.iter().map(|factor| share(factor) * factor.concentration.inherited).sum(),
        unequal: factors.iter().map(|factor| share(factor) * factor.concentration.unequal.sqrt()).sum::<f64>().powi(2),
        common: common(factors, cosine, drawn, mean_cosine),
    };
    concentration.bounded()
}

/// What differences of the product, of this `cosine`, have of what its tokens share.
fn common(factors: &[Arc<Signal>], cosine: f64, drawn: f64, mean_cosine: &dyn Fn(&Signal) -> f64) -> f64 {
    let deviation = |factor: &Arc<Signal>| {
        let own = mean_cosine(factor).clamp(0.0, 1.0);
        ratio(cosine, own) * (factor.concentration.read().common * own * (1.0 - own)).sqrt()
    };
    drawn + ratio(factors.iter().map(deviation).sum::<f64>().powi(2), cosine * (1.0 - cosine))
}

/// How far the product `y` of what comes from `x` strays.
fn fluctuation(domain: &Domain, x: &Signal, factors: &[Arc<Signal>], y: &Signal) -> (Fluctuation, Few<Matrix2<f64>>) {
    let width = y.token().width;
    let alike = domain.alike(y, y.concentration.drawn_from());
    let map = |factor: &Arc<Signal>| {
        let before = domain.shared(factor.as_ref());
        levels_map(1.0, domain.part_left(y.tokens.len(), before, alike.shared), before, alike.shared)
    };
    let maps: Few<Matrix2<f64>> = factors.iter().map(map).collect();
    let before = x.fluctuation.total();
    let (mut kept, mut scale) = (Matrix2::zeros(), Matrix2::zeros());
    for (factor, map) in factors.iter().zip(&maps) {
        let fluctuation = factor.fluctuation;
        kept += map * fluctuation.kept;
        let own = fluctuation.scale - fluctuation.kept * before * fluctuation.kept.transpose();
        scale += map * own * map.transpose();
    }
    let entry =
        Entry::product(factors.iter().map(|factor| (&factor.fluctuation.entry, domain.likeness(factor.as_ref()))));
    let drawn = Fluctuation::of_entry(entry, entry.levels(alike) / width);
    let fresh = scale + drawn.fresh;
    (Fluctuation { scale: scale + kept * before * kept.transpose(), map: kept, fresh, kept, ..drawn }, maps)
}

/// How far the gradient of factor `index` strays, whose cosines are those of `part`.
fn split_fluctuation(
    domain: &Domain,
    factors: &[Arc<Signal>],
    index: usize,
    gradient: &Gradient,
    part: &Gradient,
) -> Fluctuation {
    let width = factors[index].token().width;
    let others = factors.iter().enumerate().filter(|(i, _)| *i != index).map(|(_, factor)| factor);
    let (before, after) = (domain.shared(gradient), domain.alike(part, part.concentration.drawn_from()));
    let map = levels_map(1.0, domain.part_left(part.tokens.len(), before, after.shared), before, after.shared);
    let scale = map * gradient.fluctuation.scale * map.transpose();
    let others = others.map(|other| (&other.fluctuation.entry, domain.likeness(other.as_ref())));
    let entry = Entry::product(others.chain([(&Entry::GAUSSIAN, domain.likeness(gradient))]));
    Fluctuation { scale, kept: map, ..Fluctuation::of_entry(entry, entry.levels(after) / width) }
}

/// The gradient at the common input `x`, from those at the input of each factor; with the weights of
/// the factors in it.
pub(crate) fn join(
    x: &Token,
    factors: &[Token],
    gradient: &TokenGradient,
    parts: &[TokenGradient],
) -> (TokenGradient, Few<f64>) {
    let sensitivity: f64 = factors.iter().map(|factor| factor.sensitivity).sum();
    // Through the other factors the gradient grows with the scale of the input.
    let parts: Few<TokenGradient> = parts
        .iter()
        .zip(factors)
        .map(|(part, factor)| {
            let others = sensitivity - factor.sensitivity;
            TokenGradient { steepness: part.steepness + (gradient.steepness - 1.0) * others, ..*part }
        })
        .collect();
    let (joined, weights) = TokenGradient::join(&parts);
    let ln_output: f64 = factors.iter().map(|factor| factor.ln_second).sum::<f64>() + factors[0].width.ln();
    let beside = share(gradient.ln_second + ln_output, joined.ln_second + x.ln_second + x.width.ln());
    let cross = gradient.radial * crossed(factors.iter().map(|factor| factor.sensitivity)) * beside;
    let ln_total = ln_correction(cross / x.width);
    (TokenGradient { radial: (joined.radial + cross) * (-ln_total).exp(), ..joined.scaled(ln_total) }, weights)
}
