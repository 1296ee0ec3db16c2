//! Where paths fan out and meet again: the rule of every fan, forward and backward.

use std::sync::Arc;

use nalgebra::{Matrix2, Vector2};
use sigprop_stack::{Attention, Fan, Mixture, Site, Sum};

use super::{Kept, Moments};
use crate::Sites;
use crate::domain::{
    Along, Branch, Concentration, Domain, Fluctuation, Fork, Gradient, Later, OfPairs, Pooled, Signal, Term, summed,
    weights,
};
use crate::moments::{Few, PerToken, Token, TokenGradient, share};
use crate::rules::attention::Attended;
use crate::rules::mixture::Routing;
use crate::rules::softmax::Overlaps;
use crate::rules::{attention, concat, mixture, product, sum};

impl Moments {
    /// What comes out where `parts` of the common input `x` meet.
    pub(super) fn merged(
        &mut self,
        at: &Site,
        fan: Fan,
        x: Arc<Signal>,
        parts: Vec<Arc<Signal>>,
    ) -> (Arc<Signal>, Kept) {
        // What the parts have from the fork, the fork has from the one before.
        let before = Arc::clone(&x);
        let inherit = |mut y: Signal| {
            let scaled =
                |(token, x): (&Token, &Token)| Token { sensitivity: token.sensitivity * x.sensitivity, ..*token };
            y.tokens = y.tokens.iter().zip(before.tokens.iter()).map(scaled).collect();
            y.concentration.inherited *= before.concentration.inherited;
            y.fluctuation.kept *= before.fluctuation.kept;
            Arc::new(y)
        };
        match fan {
            Fan::Sum(sum) => {
                let (rule, y, maps) = self.summed(at, sum, &x, &parts);
                self.rows.caveat(at, rule.caveat(&self.domain, &parts, &y));
                let output = Arc::new(y);
                (Arc::clone(&output), Kept::Sum(Box::new((rule, Fork { x, parts, maps, output }))))
            }
            Fan::Product(_) => {
                let (y, maps) = product::forward(&self.domain, &x, &parts);
                (inherit(y.clone()), Kept::Product(Box::new(Fork { x, parts, maps, output: Arc::new(y) })))
            }
            Fan::Concat(concat) => {
                let (y, maps) = concat::forward(concat, &self.domain, &x, &parts);
                (inherit(y.clone()), Kept::Concat(Box::new(Fork { x, parts, maps, output: Arc::new(y) })))
            }
            Fan::Attention(attention) => {
                let (output, kept) = self.attend(at, attention, &x, parts);
                (inherit(output), kept)
            }
            Fan::Mixture(mixture) => {
                let routing = self.routing(at, mixture, &x);
                let expert = parts.into_iter().next().expect("one expert stands for all");
                let y = mixture::forward(mixture, &routing, &self.domain, &x, &expert);
                let ln_gain = mixture::ln_gain(mixture, &routing);
                (inherit(y), Kept::Mixture { routing, ln_gain, x, expert, router_gradient: None })
            }
        }
    }

    /// The rule of `sum`, what comes out, and how deviations of its branches reach it; masks that decide how long that is are
    /// told apart.
    fn summed(
        &mut self,
        at: &Site,
        sum: &Sum,
        x: &Signal,
        parts: &[Arc<Signal>],
    ) -> (sum::Rule, Signal, Few<Matrix2<f64>>) {
        let mut rule = sum::Rule::new(sum);
        self.masks.settled(at.path()).for_each(|(index, kept)| rule.settle(index, kept));
        loop {
            let (y, maps) = rule.forward(&self.domain, x, parts);
            let mask = rule.strayed_most(parts, &y);
            let told = |&(index, variance): &(usize, f64)| {
                self.masks.tell(at.path(), index, sum.branches[index].drop_rate, variance)
            };
            match mask.filter(told) {
                Some((index, _)) => rule.settle(index, true),
                None => return (rule, y, maps),
            }
        }
    }

    fn attend(&mut self, at: &Site, attention: &Attention, x: &Arc<Signal>, parts: Vec<Arc<Signal>>) -> (Signal, Kept) {
        let parts: [Arc<Signal>; 3] = parts.try_into().expect("attention has the parts query, key, value");
        let length = self.domain.length(parts[1].tokens.len());
        let overlaps = self.overlaps.entry(length as usize).or_insert_with(|| Overlaps::new(length));
        let attended = Attended::new(attention, &self.domain, overlaps, x, parts);
        self.rows.caveat(at, attended.caveat());
        self.rows.attention(at, attended.sharpness(&self.domain));
        if self.sites == Sites::All && !at.recomputing() {
            let probabilities = attended.probabilities(&self.domain);
            let pooled = Pooled { ends: None, ..self.domain.pool(&probabilities) };
            self.rows.signal((at.layer(), at.sibling("softmax")), false, pooled, Matrix2::zeros());
        }
        (attended.output().clone(), Kept::Attention(Box::new(attended), Arc::clone(x)))
    }

    /// The routing of the mixture at this site whose input is `x`, at the mean scale of its tokens.
    fn routing(&mut self, at: &Site, mixture: &Mixture, x: &Signal) -> Arc<Routing> {
        /// Relative distance of standard deviations that are not told apart.
        const REACH: f64 = 0.01;
        let pooled = self.domain.pool(x);
        let std = (x.token().width * mixture.router.init.variance() * pooled.second * pooled.ln_unit.exp()).sqrt();
        self.rows.caveat(at, mixture::caveat(mixture, std));
        let alike = |known: &(Mixture, f64, Arc<Routing>)| {
            known.0.n_experts == mixture.n_experts
                && known.0.top_k == mixture.top_k
                && known.0.weighting == mixture.weighting
                && known.0.normalised == mixture.normalised
                && (known.1 - std).abs() <= REACH * std
        };
        if let Some((_, _, routing)) = self.routings.iter().find(|known| alike(known)) {
            return Arc::clone(routing);
        }
        let routing = Arc::new(Routing::new(mixture, std));
        self.routings.push((mixture.clone(), std, Arc::clone(&routing)));
        routing
    }

    /// The gradient at the output of every part.
    pub(super) fn parts(&mut self, at: &Site, fan: Fan, kept: &mut Kept, gradient: &Gradient) -> Vec<Gradient> {
        match (fan, kept) {
            (Fan::Sum(_), Kept::Sum(kept)) => {
                let (rule, fork) = kept.as_ref();
                rule.split(&self.domain, fork, gradient)
            }
            (Fan::Product(_), Kept::Product(fork)) => product::split(&self.domain, fork, gradient),
            (Fan::Concat(concat), Kept::Concat(fork)) => concat::split(concat, fork, gradient),
            (Fan::Attention(attention), Kept::Attention(attended, _)) => {
                if self.sites == Sites::All && at.is_observed() {
                    let backward = attended.probabilities_backward(attention, gradient);
                    let pooled = Pooled { ends: None, ..self.domain.pool_gradient(&backward) };
                    self.rows.gradient(&at.sibling("softmax"), pooled, Vector2::zeros());
                }
                attended.split(attention, &self.domain, gradient).into()
            }
            (Fan::Mixture(mixture), Kept::Mixture { routing, x, expert, router_gradient, .. }) => {
                let [scores, experts] = mixture::split(mixture, routing, &self.domain, [x, expert], gradient);
                let ln_gradient = self.domain.ln_collected(x, &scores, 0.0);
                self.write_weight(at, &mixture.router, ln_gradient);
                *router_gradient = Some(Box::new(mixture::router_backward(mixture, &scores)));
                self.experts *= mixture.n_experts as f64;
                self.chosen = Some(mixture::chosen(routing, &self.domain, x));
                vec![experts]
            }
            (Fan::Sum(_) | Fan::Product(_) | Fan::Concat(_) | Fan::Attention(_) | Fan::Mixture(_), _) => {
                unreachable!("merge keeps what fits the fan")
            }
        }
    }
}

/// The gradient at the common input, from the `gradient` at the output and those at the input of each part.
pub(super) fn joined(domain: &Domain, kept: &Kept, gradient: &Gradient, parts: &[Gradient]) -> Gradient {
    let count = parts[0].tokens.len();
    let mut tokens = PerToken::with_capacity(count);
    let mut roots: Few<PerToken<f64>> = parts.iter().map(|_| PerToken::with_capacity(count)).collect();
    // How far norms go together, which gradients that were gathered from other tokens are told.
    let is_gathered = || parts.iter().any(|part| part.tokens.iter().any(TokenGradient::is_gathered));
    let others = match kept {
        Kept::Sum(kept) if is_gathered() => sum::Others::new(domain, &kept.1, gradient),
        _ => sum::Others::default(),
    };
    let mut gathered = 0.0;
    for i in 0..count {
        let at: Few<TokenGradient> = parts.iter().map(|part| part.tokens[i]).collect();
        let (token, weight) = match kept {
            Kept::Sum(kept) => {
                let (rule, Fork { x, parts, output, .. }) = kept.as_ref();
                let branches: Few<Token> = parts.iter().map(|branch| branch.tokens[i]).collect();
                let (token, weight, crossed) =
                    rule.join(&x.tokens[i], &branches, &output.tokens[i], &gradient.tokens[i], &at, others);
                gathered += crossed / count as f64;
                (token, weight)
            }
            Kept::Product(fork) => {
                let factors: Few<Token> = fork.parts.iter().map(|factor| factor.tokens[i]).collect();
                product::join(&fork.x.tokens[i], &factors, &gradient.tokens[i], &at)
            }
            Kept::Attention(..) => attention::join(&at),
            Kept::Mixture { routing, ln_gain, x, expert, .. } => {
                mixture::join((routing, *ln_gain), [&x.tokens[i], &expert.tokens[i]], &gradient.tokens[i], &at)
            }
            Kept::Concat(_) => TokenGradient::join(&at),
            Kept::Apply(_) | Kept::Standardised(_) | Kept::Steps(_) | Kept::Convolution { .. } | Kept::Prepend => {
                unreachable!("no fan")
            }
        };
        tokens.push(TokenGradient { beside: gradient.tokens[i].beside, ..token });
        roots.iter_mut().zip(weight).for_each(|(roots, weight)| roots.push(weight.sqrt()));
    }
    let [paired, met_across] = match kept {
        Kept::Sum(kept) => kept.0.paired(domain, &kept.1, gradient, parts, tokens[0].ln_second),
        _ => [0.0; 2],
    };
    let cosines = domain.map(count, |i, j, place| {
        let own: f64 = roots.iter().zip(parts).map(|(roots, part)| roots[i] * roots[j] * part.cosines[place]).sum();
        own + gathered * (1.0 - own) + paired * gradient.cosines[place]
    });
    let shares = weights(parts);
    let (x, fork) = match kept {
        Kept::Sum(kept) => (&kept.1.x, Some(&kept.1)),
        Kept::Product(fork) | Kept::Concat(fork) => (&fork.x, Some(fork.as_ref())),
        Kept::Attention(_, x) | Kept::Mixture { x, .. } => (x, None),
        Kept::Apply(_) | Kept::Standardised(_) | Kept::Steps(_) | Kept::Convolution { .. } | Kept::Prepend => {
            unreachable!("no fan")
        }
    };
    let width = x.token().width;
    let concentration = Concentration::joined(parts, &shares, gradient.concentration, width);
    let levels = tokens.iter().map(|token| token.ln_second);
    let fluctuation = joined_fluctuation(domain, kept, gradient, (parts, &shares), (&levels, width));
    let responses = joined_responses(domain, kept, fork, gradient, parts);
    let pairs = domain.of_pairs(parts, &shares);
    let response = summed(&shares, pairs.as_ref(), &responses);
    let mades: Few<Matrix2<f64>> = parts.iter().map(|part| part.made).collect();
    let made = summed(&shares, pairs.as_ref(), &mades);
    // Of a sum it reaches the gains of a norm right before.
    let hands_on = matches!(kept, Kept::Attention(..) | Kept::Product(_) | Kept::Sum(_) | Kept::Mixture { .. });
    let of_parts = |of: &dyn Fn(&Gradient) -> f64| -> f64 {
        parts.iter().zip(&shares).filter(|_| hands_on).map(|(part, share)| of(part) * share).sum()
    };
    let branches: Few<Branch> = match kept {
        Kept::Sum(kept) => kept.0.nearness(domain, &kept.1, gradient),
        Kept::Product(fork) => product::nearness(domain, fork, gradient),
        Kept::Mixture { routing, .. } => {
            [mixture::nearness(routing, domain, x, gradient), Branch::NONE].into_iter().collect()
        }
        _ => parts.iter().map(|_| Branch::NONE).collect(),
    };
    let near = parts.iter().zip(&shares).map(|(part, share)| (domain.near(x, part), *share));
    Gradient {
        nearness: gradient.nearness.joined(&branches, near),
        along: of_parts(&|part| part.along),
        unmet: parts.iter().zip(&shares).fold(Along::NONE, |sum, (part, share)| sum.plus(part.unmet.times(*share))),
        across: joined_across(parts, pairs.as_ref(), met_across),
        constant: joined_constant(parts, pairs.as_ref()),
        concentration,
        fluctuation,
        response,
        made: gradient.made * made,
        beside: gradient.beside * made,
        together: gradient.together,
        redrawn: joined_redrawn(kept, parts, &shares),
        again: gradient.again + of_parts(&|part| part.again),
        later: joined_later(domain, kept, gradient, parts, tokens[0].ln_second),
        ..Gradient::new(tokens, cosines)
    }
}

/// How the sum of `parts` strays that have these `shares` in it, from its `levels` and width.
fn joined_fluctuation(
    domain: &Domain,
    kept: &Kept,
    gradient: &Gradient,
    (parts, shares): (&[Gradient], &[f64]),
    (levels, width): (&(impl ExactSizeIterator<Item = f64> + Clone), f64),
) -> Fluctuation {
    let terms: Few<Term> = parts
        .iter()
        .zip(shares)
        .map(|(part, &share)| Term {
            share,
            cosines: &part.cosines,
            mean: 0.0,
            inherited: part.concentration.inherited,
            fluctuation: part.fluctuation,
        })
        .collect();
    let before = (gradient.fluctuation, gradient.concentration.total);
    let (fluctuation, _) = domain.joined(before, &terms, levels, width);
    let (fork, of_branches) = match kept {
        Kept::Sum(kept) => {
            let (rule, fork) = kept.as_ref();
            let again = gradient.squares()[1] * rule.redrawn(domain, fork, parts, shares);
            let in_all = |(part, share): (&Gradient, &f64)| part.again * share * (1.0 - share);
            let in_all: f64 = parts.iter().zip(shares).map(in_all).sum();
            (fork, rule.masked(fork, gradient, shares) - 2.0 * again - in_all)
        }
        Kept::Product(fork) | Kept::Concat(fork) => (fork.as_ref(), 0.0),
        _ => return fluctuation,
    };
    let fluctuation = fluctuation.met(fork.fresh(shares), gradient.squares());
    Fluctuation { scale: fluctuation.scale.add_scalar(of_branches), ..fluctuation }
}

/// What the sum of `parts`, which is as large as this, has along its signal.
fn joined_later(
    domain: &Domain,
    kept: &Kept,
    gradient: &Gradient,
    parts: &[Gradient],
    ln_second: f64,
) -> Option<Later> {
    let Kept::Sum(kept) = kept else { return None };
    let output = &kept.1.output;
    let later = gradient.later?.before(output.fluctuation, domain.shared(output.as_ref()));
    later.joined(parts.iter().map(|part| (share(part.token().ln_second, ln_second), part.later)))
}

/// What every one of the `parts` at the common input answers to all that is there by.
fn joined_responses(
    domain: &Domain,
    kept: &Kept,
    fork: Option<&Fork>,
    gradient: &Gradient,
    parts: &[Gradient],
) -> Few<Matrix2<f64>> {
    let mut responses = match fork {
        Some(fork) => fork.responses(gradient, parts),
        None => parts.iter().map(|part| part.response).collect(),
    };
    match kept {
        Kept::Product(fork) => {
            responses.iter_mut().zip(product::answers(domain, fork)).for_each(|(own, other)| *own += other);
        }
        Kept::Mixture { routing, expert, .. } => {
            responses[0] += mixture::answers(routing, expert, gradient) * parts[0].made;
        }
        _ => {}
    }
    responses
}

/// `across` where `parts` are joined that have these parts of `pairs`, if it is followed in all; with what pairs of parts have
/// `met`, in units of E g².
fn joined_across(parts: &[Gradient], pairs: Option<&OfPairs>, met: f64) -> Option<f64> {
    let followed: Few<f64> = parts.iter().map(|part| part.across).collect::<Option<_>>()?;
    let met = |OfPairs { shares, all }: &OfPairs| {
        followed.iter().zip(shares).map(|(across, share)| (across - 1.0) * share).sum::<f64>() + met / all
    };
    Some(1.0 + pairs.map_or(0.0, met))
}

/// `redrawn` of a sum, which goes on.
fn joined_redrawn(kept: &Kept, parts: &[Gradient], shares: &[f64]) -> f64 {
    let Kept::Sum(kept) = kept else { return 0.0 };
    let terms = parts.iter().zip(shares).zip(&kept.1.maps);
    terms.map(|((part, share), map)| share * map[(1, 1)] * part.redrawn).sum()
}

/// `constant` likewise.
fn joined_constant(parts: &[Gradient], pairs: Option<&OfPairs>) -> f64 {
    let sum =
        |OfPairs { shares, .. }: &OfPairs| parts.iter().zip(shares).map(|(part, share)| share * part.constant).sum();
    pairs.map_or(1.0, sum)
}

/// The sum of two gradients at one place.
pub(super) fn accumulated(domain: &Domain, parts: &[Gradient; 2]) -> Gradient {
    let joined: Vec<(TokenGradient, Few<f64>)> =
        (0..parts[0].tokens.len()).map(|i| TokenGradient::join(&[parts[0].tokens[i], parts[1].tokens[i]])).collect();
    let cosines = domain.map(joined.len(), |i, j, place| {
        (0..2).map(|p| (joined[i].1[p] * joined[j].1[p]).sqrt() * parts[p].cosines[place]).sum()
    });
    // What strays is told of the larger one: their deviations together are not followed.
    let larger = usize::from(weights(parts)[1] > 0.5);
    let Gradient { concentration, fluctuation, response, .. } = parts[larger];
    let coupling = parts.iter().zip(weights(parts)).map(|(part, weight)| part.coupling * weight).sum();
    let tokens = joined.into_iter().map(|(token, _)| token).collect();
    Gradient { coupling, concentration, fluctuation, response, ..Gradient::new(tokens, cosines) }
}
