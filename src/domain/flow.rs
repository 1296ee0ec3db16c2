//! Signals and gradients of all tokens.

use std::sync::Arc;

use nalgebra::{Matrix2, Vector2};

use super::{Answers, Concentration, Fluctuation, Later, Lengths, Nearness, bounded};
use crate::moments::{Few, PerToken, Token, TokenGradient, ln_sum, share};

/// The signal of all tokens.
#[derive(Clone, Debug)]
pub(crate) struct Signal {
    /// One for all, or one per position.
    pub(crate) tokens: PerToken<Token>,
    /// E x_a x_b/√(E x_a² E x_b²), per pair class or, row by row, per pair of positions.
    pub(crate) cosines: Arc<[f64]>,
    pub(crate) concentration: Concentration,
    pub(crate) fluctuation: Fluctuation,
    /// What the parts along (1, …, 1) of two tokens have more in common than the tokens, in units of the second moments.
    pub(crate) centring: f64,
    /// Of single tokens, as long as they are all that strays.
    pub(crate) lengths: Option<Arc<Lengths>>,
    /// Of what was concatenated: reaches attention right behind.
    pub(crate) parts: Option<Arc<[Part]>>,
}

/// The shares that one of several concatenated parts has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) features: f64,
    /// Of E x².
    pub(crate) squares: f64,
    /// Of E (x_a − x_b)² of two tokens.
    pub(crate) differences: f64,
}

impl Signal {
    /// Tokens whose features are independent.
    pub(crate) fn new(tokens: PerToken<Token>, cosines: Arc<[f64]>) -> Self {
        let concentration = Concentration::fresh(tokens[0].width);
        Self {
            tokens,
            cosines,
            concentration,
            fluctuation: Fluctuation::none(),
            centring: 0.0,
            lengths: None,
            parts: None,
        }
    }

    /// The token that stands for all: with exchangeable tokens the only one.
    pub(crate) fn token(&self) -> &Token {
        &self.tokens[0]
    }
}

/// The gradient of all tokens.
#[derive(Clone, Debug)]
pub(crate) struct Gradient {
    pub(crate) tokens: PerToken<TokenGradient>,
    /// E g_a g_b/√(E g_a² E g_b²), as in [`Signal`].
    pub(crate) cosines: Arc<[f64]>,
    /// What E Σ_ab x_a·x_b g_a·g_b is beyond the product of the expectations, per token and in units of the mean
    /// E x² and the mean E g²: it reaches what comes right before, weights and a norm; what is before the next fan knows it as
    /// `nearness`. Gradients have it because they answer to products of tokens, so that Σ_a g_ai x_aj is symmetric in i and j.
    pub(crate) coupling: f64,
    /// Whether it is that of a query or of a key alone, which answer to products with each other: Σ_a g_ai x_aj is not symmetric.
    pub(crate) one_sided: bool,
    /// How its cosines answer to those of signals.
    pub(crate) nearness: Nearness,
    /// Whether `coupling` has in it how networks stray (`Domain::met_together`).
    pub(crate) knows_networks: bool,
    /// E (x_a·g_a)(x_b·g_b)/(E x² E g² width) of two tokens, on average and beyond the part `radial` of the product of
    /// their cosines: reaches norms' gains.
    pub(crate) along: f64,
    /// What the activation right behind adds to what it has along its signal.
    pub(crate) entrywise: Along,
    /// What of that is not met entry by entry before a map whose entries are not Gaussian: reaches a norm's gains and no further.
    pub(crate) unmet: Along,
    /// E (x_a·g_a)(x_a·g_b)/(E x² E g_a·g_b) of two tokens: 1 of gradients that point anywhere, as `radial` is. Where nothing
    /// but ids tells tokens apart (`rules/sum.rs`).
    pub(crate) across: Option<f64>,
    /// E (Σ g_a)(Σ g_b)/(E g_a·g_b width) of two tokens: 1 of gradients that point anywhere, 0 where entries sum to zero.
    pub(crate) constant: f64,
    /// Of a gradient that attention gathers, how many entries more than its `radial` part it has along what all tokens share:
    /// reaches the map right before and no further.
    pub(crate) along_all: f64,
    /// As in [`Signal`]; of the fork it was split at.
    pub(crate) concentration: Concentration,
    /// At given levels of the signals.
    pub(crate) fluctuation: Fluctuation,
    /// −d/d of the two levels that [`Fluctuation`] follows: of ln Σ |g|², then of ln of the average cosine of two tokens.
    pub(crate) response: Matrix2<f64>,
    /// What it was made of since it was split: the squares and products of two tokens there that its own are sums of, so that
    /// `response` and `beside` have become those there times this.
    pub(crate) made: Matrix2<f64>,
    /// −Cov over networks of both with the two levels at the fork it was split at, by way of the other branches.
    pub(crate) beside: Matrix2<f64>,
    /// How much of what single tokens know of it (`TokenGradient::beside`) is of all.
    pub(crate) together: f64,
    /// Y of [`Fluctuation`]: how much of what matrices draw in signals, which it answers to, one before them draws in it.
    pub(crate) redrawn: f64,
    /// Twice the covariance of what branches draw in it since it was split with what it answers to of that.
    pub(crate) again: f64,
    /// −d ln Σ |g|²/d of the average of the entries right here, in units of √E x², by way of the means of other branches.
    pub(crate) averages: f64,
    /// Of rotated queries and keys the cosines before the rotation, where attention knows them: reaches the rotation right before.
    pub(crate) unturned: Option<Arc<[f64]>>,
    /// Of a query or key of concatenated parts, the share each has of E g²: reaches the concatenation right before.
    pub(crate) shares: Option<Arc<[f64]>>,
    /// At given lengths of the signal.
    pub(crate) lengths: Option<Arc<Answers>>,
    /// What it has along the signal, where that is followed.
    pub(crate) later: Option<Later>,
}

/// What gradients have along signals: of one token (`radial`), of two along the signal of one (`across`), of two along their own
/// (`pairs`), and how they answer to how alike the two are (`Nearness::response`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Along {
    pub(crate) radial: f64,
    pub(crate) across: f64,
    pub(crate) pairs: f64,
    pub(crate) response: f64,
}

impl Along {
    pub(crate) const NONE: Self = Self { radial: 0.0, across: 0.0, pairs: 0.0, response: 0.0 };

    #[must_use]
    pub(crate) fn times(self, factor: f64) -> Self {
        let Self { radial, across, pairs, response } = self;
        Self { radial: factor * radial, across: factor * across, pairs: factor * pairs, response: factor * response }
    }

    #[must_use]
    pub(crate) fn plus(self, more: Self) -> Self {
        Self {
            radial: self.radial + more.radial,
            across: self.across + more.across,
            pairs: self.pairs + more.pairs,
            response: self.response + more.response,
        }
    }
}

impl Gradient {
    /// A gradient that meets its signal only on average.
    pub(crate) fn new(tokens: PerToken<TokenGradient>, cosines: Arc<[f64]>) -> Self {
        Self {
            tokens,
            cosines,
            coupling: 0.0,
            one_sided: false,
            nearness: Nearness::NONE,
            knows_networks: false,
            along: 0.0,
            entrywise: Along::NONE,
            unmet: Along::NONE,
            across: None,
            constant: 1.0,
            along_all: 0.0,
            concentration: Concentration::NONE,
            fluctuation: Fluctuation::none(),
            response: Matrix2::zeros(),
            made: Matrix2::identity(),
            beside: Matrix2::zeros(),
            together: 0.0,
            redrawn: 0.0,
            again: 0.0,
            averages: 0.0,
            unturned: None,
            shares: None,
            lengths: None,
            later: None,
        }
    }

    /// The same, of tokens whose second moments are larger by a factor.
    pub(crate) fn larger(self, factor: f64) -> Self {
        Self { tokens: self.tokens.iter().map(|token| token.scaled(factor.ln())).collect(), ..self }
    }

    pub(crate) fn token(&self) -> &TokenGradient {
        &self.tokens[0]
    }

    /// These `tokens` of it at the input `x` of a component whose output is `y`, with what they met by way of other branches; and
    /// ln of what the first of them did.
    pub(crate) fn met_beside(
        &self,
        tokens: PerToken<TokenGradient>,
        [x, y]: [&Signal; 2],
    ) -> (PerToken<TokenGradient>, f64) {
        if self.tokens.iter().all(|token| token.beside == 0.0) {
            return (tokens, 0.0);
        }
        let places = self.tokens.iter().zip(x.tokens.iter().zip(&y.tokens)).zip(&tokens);
        let met = places.map(|((before, (x, y)), after)| before.met_beside(*after, [x, y], self.together));
        let met: PerToken<TokenGradient> = met.collect();
        let ln_first = if tokens[0].ln_second.is_finite() { met[0].ln_second - tokens[0].ln_second } else { 0.0 };
        (met, ln_first)
    }

    /// ln of what its squares before `x`, and its cosines, are multiplied by because what answers to the levels there by
    /// `responds` goes with what it has with the fork by way of other branches.
    pub(crate) fn ln_beside(&self, x: &Signal, responds: Vector2<f64>) -> Vector2<f64> {
        ((x.fluctuation.kept * self.beside).transpose() * responds).map(bounded)
    }

    /// −Cov over networks of the levels of an input that strays like `x`, from which `map` leads to those it is at, with ln of its
    /// squares and of its cosines.
    pub(crate) fn with_levels(&self, x: Fluctuation, map: Matrix2<f64>) -> Matrix2<f64> {
        x.total() * map.transpose() * self.response + x.kept * self.beside
    }

    /// The response beyond what single tokens know, whose squares go with the scale of `all`.
    pub(crate) fn response_beyond_tokens(&self, all: Vector2<f64>) -> Matrix2<f64> {
        self.response - Matrix2::from_columns(&[self.token().steepness * all, Vector2::zeros()])
    }

    /// The response of Σ |g|².
    pub(crate) fn squares(&self) -> Vector2<f64> {
        self.response.column(0).into_owned()
    }
}

/// The tokens of all `parts` at each position.
pub(crate) fn by_position(parts: &[Arc<Signal>]) -> PerToken<Few<Token>> {
    (0..parts[0].tokens.len()).map(|i| parts.iter().map(|part| part.tokens[i]).collect()).collect()
}

/// What a signal and a gradient have in common.
pub(crate) trait Flow {
    /// ln of the second moment of every token.
    fn levels(&self) -> impl ExactSizeIterator<Item = f64> + Clone;
    /// Of all pairs.
    fn cosines(&self) -> &[f64];

    /// ln of the second moment of an entry, averaged over tokens.
    fn ln_level(&self) -> f64 {
        ln_sum(self.levels()) - (self.levels().len() as f64).ln()
    }
}

impl Flow for Signal {
    fn levels(&self) -> impl ExactSizeIterator<Item = f64> + Clone {
        self.tokens.iter().map(|token| token.ln_second)
    }

    fn cosines(&self) -> &[f64] {
        &self.cosines
    }
}

impl Flow for Gradient {
    fn levels(&self) -> impl ExactSizeIterator<Item = f64> + Clone {
        self.tokens.iter().map(|token| token.ln_second)
    }

    fn cosines(&self) -> &[f64] {
        &self.cosines
    }
}

/// The shares of gradients in the second moment of their sum.
pub(crate) fn weights(parts: &[Gradient]) -> Few<f64> {
    let levels: Few<f64> = parts.iter().map(|part| ln_sum(part.levels())).collect();
    let ln_total = ln_sum(levels.iter().copied());
    levels.into_iter().map(|level| share(level, ln_total)).collect()
}
