//! Weighted sum x' = Σ β_i m_i/(1 − p_i) f_i(x): the residual connection, with stochastic depth.
//!
//! # Formula
//!
//! ```text
//! E x'_a x'_b = Σ_i β_i²/(1 − p_i) E f_ia f_ib + Σ_{i≠j} β_i β_j mean_i mean_j
//! ```
//!
//! A dropped branch is dropped for the whole sequence, so pairs of tokens too carry 1/(1 − p_i).
//!
//! # Backward
//!
//! ```text
//! E g_i² = β_i²/(1 − p_i) E g²     ρ_i = 1 + b_i² (ρ − 1)/a_i     S_i = b_i S
//! E g_x² = Σ_i E g_i'² + X/width E g²
//! X = 2 Σ_{i<j} χ_i χ_j ((ρ − 1) b_i b_j + m_i m_j) E x'²/E x²
//! ρ_x E g_x² = Σ_i ρ_i' E g_i'² + X E g²
//! ```
//!
//! a_i, χ_i as in [`crate::rules`]; m_i = β_i mean_i in units of x', and b_i = a_i + m_i Σ_{j ≠ i} m_j = E f_i x'/E x'² the
//! part of branch i along x'; X is the cross term 2 E (x·g_i)(x·g_j) of
//! the radial projections, with E (g·x_i)(g·x_j) = E g² (x_i·x_j + (ρ − 1) b_i b_j |x'|²) of a gradient that is isotropic but
//! for its part along x'.
//!
//! *Beside.* What reaches x by the other branches, S_0 = Σ_{j ≠ i} b_j χ_j S, every component of branch i meets that makes
//! gradients smaller by an exponent e of its own, in |x|², by the factor (`TokenGradient::met_beside`, along the branch)
//!
//! ```text
//! 1 + e k S_0 V     e = χ S of its input less χ S of its output     k = `local` + (1 − `local`) c²
//! ```
//!
//! for a gradient that was gathered from all tokens knows the norm of one as far as their norms go together, c² of Gaussian
//! tokens with cosine c. Where nothing but ids tells tokens apart V is what a token strays by itself, k = `local`, and two
//! gradients meet half of it; what networks have in common is in D, the levels at the fork times (M − m)ᵀ (R, Q)
//! (`Gradient::beside`), which components meet by what they answer to levels (`Gradient::ln_beside`). Sampled with reordered norms,
//! six blocks of width 64 (4000 networks): inside the last feed-forward network, behind its norm, gradients 4.4 ± 0.7 % too
//! small where only the fork knew of it, 1.8 with it; inside attention 3.5 -> 1.0 ± 0.7 %.
//!
//! *Means.* Blocks x + φ(W x) of width 64, ReLU and GELU: without the m_i gradients at the input are 17 % too small after 6
//! blocks and 75 % after 12, with them within 1.5 % and 15 to 26 % too large. There terms of order 1/width grow with the
//! signal, which itself comes out 9 to 14 % too small.
//!
//! What a branch gathers from other tokens is met by the skip's gradient as far as theirs are alike: with h = W̄ᵀ Σ_b
//! g_b/L of flat attention, E g_a·h sums over b what a norm left of x̄ᵀ P_a P_b z, −1 for b = a, −r_g (2 − c) else, so
//! that a_i χ_i of such a branch is multiplied by 1 + (L − 1) r_g (2 − c) in X. All tokens receive h, so
//! that what it takes off, it takes off every pair, too. Sampled in Post-LN Xavier of 24 sub-layers, width 64 (8000
//! networks): gradients 5 % too large half-way and their correlations 2.6 % without, 2.5 ± 1.3 % and 1.0 ± 0.6 % with it,
//! *Pairs* and *Levels* left out.
//!
//! *Pairs.* Where nothing but ids tells tokens apart it is followed how gradients of two tokens meet the signal of one, α
//! (`across`; `rules/linear.rs`): α_i = 1 + a_i (α − 1) at branch i, averages over E g_a·g_b at the input. A branch that is
//! not gathered hands x_a on to g_b along the products z_a·g_b it shares with it, s = dc_i/dc of it (1 of the skip),
//!
//! ```text
//! E g_a·g_b also + E g_a'·g_b' 2 (α − 1)(1 − c²) Σ_{i<j} a_i s_i a_j s_j E x'²/(E x² width)
//! α E g_a·g_b also + E g_a'·g_b' (α − 1) Σ_{i≠j} a_i χ_i a_j s_j E x'²/E x²
//! ```
//!
//! the first as of its own token a norm takes off, the second like the cross term X of one gradient: the whole of a block that
//! keeps scales meets a signal no more than what follows does. What attention gathers from all tokens has L χ_i for both ends.
//! Branches that begin with norms have χ_i = 0, and what they hand on of another token is left out of α. Sampled: DSLM of 6
//! blocks, width 128, uncorrelated tokens (4000 networks), correlations of gradients 1.4 to 2.4 % too large without, within 1 %
//! with the first; Post-LN Xavier of 24 sub-layers, width 64 (40000 networks), correlations up to 0.016 too large without, within
//! 0.003 with all; α itself within 0.02 behind attention, within 0.2 (first blocks) and 0.03 behind feed-forward networks.
//!
//! *Together.* What gradients have along their signals together, P (`along`), branch i has of x' and of what a norm behind took off along
//! x', √ρ of which is left: with r_i = f_i − a_i x', E (f_i·g)_a (f_i·g)_b is that of √ρ a_i x' + r_i and gradients that point
//! anywhere, so that beyond ρ_i c_i cos(g)
//!
//! ```text
//! P_i = a_i (P + cos(g) (1 − √ρ)² (c' − c_i))
//! ```
//!
//! *Levels.* Gradients answer to the levels of networks (`response`, as in `src/domain/fluctuation.rs`): squares and products of
//! a sum are sums over branches, each of which answers as its own part and as the output do. With P_i, p_i, μ_i and h_i as in
//! `src/domain/joined.rs`, ' those of gradients: averages of the entries of branch i meet 2 R_m √P_i Σ_{j≠i} μ_j/p (`averages`), and
//! products of two branches draw the same trace on both ways, so that U has 2 R_t C less,
//!
//! ```text
//! C = 4/width² Σ_{i<j} Π √(P (1 − p) h P' (1 − p') h')/(1 − p)      Π over i and j, p of the sum
//! ```
//!
//! # Assumptions
//!
//! Branches are uncorrelated but for their means (fresh zero-mean weights at the end of all but one
//! of them).
//!
//! # Source
//!
//! Kedia et al. 2024, appendix on residuals, for the leading order; the 1/width terms are ours.

mod dropped;

use std::sync::Arc;

use nalgebra::Matrix2;
use sigprop_stack::Sum;

use self::dropped::Mask;
use crate::domain::{
    Along, Branch, Concentration, Domain, Flow, Fluctuation, Fork, Gradient, Signal, Term, by_position,
};
use crate::moments::{Few, PerToken, Token, TokenGradient, crossed, ln_correction, ln_sum, ratio, share};

/// What gradients gathered from other tokens know of a token.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Others {
    /// How far norms go together.
    together: f64,
    /// (L − 1) r_g (2 − c), where nothing but ids tells tokens apart.
    alike: f64,
}

impl Others {
    pub(crate) fn new(domain: &Domain, fork: &Fork, gradient: &Gradient) -> Self {
        let alike = if domain.follows_levels() {
            let others = domain.length(gradient.tokens.len()) - 1.0;
            others * domain.mean_cosine(gradient) * (2.0 - domain.mean_cosine(fork.output.as_ref()))
        } else {
            0.0
        };
        Self { together: domain.mean_cosine(fork.x.as_ref()).powi(2), alike }
    }
}

pub(crate) struct Rule {
    /// Per branch: ln of β²/(1 − p).
    ln_gains: Few<f64>,
    /// Per branch: β.
    scales: Few<f64>,
    /// Per branch: p/(1 − p).
    odds: Few<f64>,
}

impl Rule {
    pub(crate) fn new(sum: &Sum) -> Self {
        let keep = |rate: f64| 1.0 - rate;
        Self {
            ln_gains: sum.branches.iter().map(|b| 2.0 * b.scale.abs().ln() - keep(b.drop_rate).ln()).collect(),
            scales: sum.branches.iter().map(|b| b.scale).collect(),
            odds: sum.branches.iter().map(|b| b.drop_rate / keep(b.drop_rate)).collect(),
        }
    }

    /// Told that branch `index` is kept, or that it is dropped.
    pub(crate) fn settle(&mut self, index: usize, kept: bool) {
        // 1 + odds is 1/(1 − p).
        let factor = if kept { 1.0 + self.odds[index] } else { 0.0 };
        self.ln_gains[index] += if kept { self.odds[index].ln_1p() } else { f64::NEG_INFINITY };
        self.scales[index] *= factor;
        self.odds[index] = 0.0;
    }

    /// The output from the common input and the outputs of the branches.
    fn token(&self, x: &Token, branches: &[Token]) -> Token {
        let terms = || self.ln_gains.iter().zip(branches).map(|(gain, branch)| gain + branch.ln_second);
        let ln_independent = ln_sum(terms());
        let (mean, cross) = self.means(branches, ln_independent);
        let total = 1.0 + cross;
        let ln_second = ln_independent + total.ln();
        let shares: Few<f64> = terms().map(|term| share(term, ln_second)).collect();

        let width = x.width;
        let inherited: f64 = shares.iter().zip(branches).map(|(a, b)| a * b.sensitivity).sum();
        let square: f64 = shares.iter().map(|a| a * a).sum();
        let linear: f64 = shares.iter().sum();
        let crossed = 2.0 * (linear * linear - square);
        let fresh: f64 = shares
            .iter()
            .zip(branches)
            .enumerate()
            .map(|(index, (a, b))| {
                let own = b.norm_variance() - b.sensitivity.powi(2) * x.norm_variance();
                a * a * own.max(0.0) + self.strayed(index, *a)
            })
            .sum();
        Token {
            width,
            ln_second,
            mean: mean / total.sqrt(),
            kurtosis: shares.iter().zip(branches).map(|(a, b)| a * a * b.kurtosis).sum::<f64>() + crossed,
            skewness: shares
                .iter()
                .zip(branches)
                .zip(&self.scales)
                .map(|((a, b), scale)| scale.signum() * a.powf(1.5) * b.skewness)
                .sum(),
            scale_variance: inherited * inherited * x.norm_variance() + crossed / width + fresh,
            uneven: shares.iter().zip(branches).map(|(a, b)| a * a * b.uneven).sum(),
            masked: shares.iter().zip(branches).map(|(a, b)| a * a * b.masked).sum(),
            entry_variance: 0.0,
            sensitivity: inherited * x.sensitivity,
            constant_share: shares.iter().zip(branches).map(|(a, b)| a * b.constant_share).sum(),
        }
    }

    /// The output from the common input and the branches, and how the deviations of each branch reach it.
    pub(crate) fn forward(&self, domain: &Domain, x: &Signal, branches: &[Arc<Signal>]) -> (Signal, Few<Matrix2<f64>>) {
        let positions = by_position(branches);
        let tokens: PerToken<Token> = x.tokens.iter().zip(positions).map(|(x, parts)| self.token(x, &parts)).collect();
        let cosines = self.cosines(domain, branches, &tokens);
        let (fluctuation, maps) = self.fluctuation(domain, x, branches, &tokens);
        let known = domain.follows_levels().then(|| self.known(domain, x, branches, &tokens));
        let fluctuation = Fluctuation { known, ..fluctuation };
        let mean = |tokens: &[Token]| ln_sum(tokens.iter().map(|token| token.ln_second));
        let sizes: Few<f64> = branches
            .iter()
            .zip(&self.ln_gains)
            .map(|(branch, gain)| share(gain + mean(&branch.tokens), mean(&tokens)))
            .collect();
        let alike: Few<f64> = branches.iter().map(|branch| domain.mean_cosine(branch.as_ref())).collect();
        let width = x.token().width;
        let y = Signal { fluctuation, ..Signal::new(tokens, cosines) };
        let average = domain.mean_cosine(&y);
        let apart =
            |branch: &Signal, cosine: f64| branch.centring + branch.token().constant_share * (cosine - average) / width;
        let terms = sizes.iter().zip(branches).zip(&alike);
        let centring = terms.map(|((size, branch), &cosine)| size * apart(branch, cosine)).sum();
        let y = Signal { centring, ..y };

        let x = x.concentration;
        let differences: Few<f64> =
            sizes.iter().zip(&alike).map(|(size, alike)| size * (1.0 - alike).max(0.0)).collect();
        let total: f64 = differences.iter().sum();
        if total <= 0.0 {
            return (y, maps);
        }
        let shares = || branches.iter().zip(&differences).map(|(branch, d)| (d / total, branch.concentration));
        let inherited: f64 = shares().map(|(share, branch)| share * branch.inherited).sum();
        let own = |branch: Concentration| branch.total - branch.inherited.powi(2) * x.total;
        let fresh = y.concentration.total;
        let mixed = shares().fold(fresh, |mixed, (s, branch)| mixed + s * s * (own(branch).max(0.0) - fresh));
        let kept = inherited * inherited;
        let of_rows = |branch: Concentration| branch.rows - branch.inherited.powi(2) * x.rows;
        let rows: f64 = shares().map(|(share, branch)| share * share * of_rows(branch).max(0.0)).sum();
        let concentration = Concentration {
            total: kept * x.total + mixed,
            drawn: fresh,
            rows: kept * x.rows + rows,
            inherited: inherited * x.inherited,
            unequal: unequal(shares()),
            common: common(x, shares().zip(sizes.iter().zip(&alike).map(|(size, alike)| size * alike.max(0.0))), fresh),
        };
        (Signal { concentration: concentration.bounded(), ..y }, maps)
    }

    /// Why averages of the `output` are rough, if they are.
    pub(crate) fn caveat(
        &self,
        domain: &Domain,
        branches: &[Arc<Signal>],
        output: &Signal,
    ) -> Option<(&'static str, String)> {
        /// Standard deviation of ln E x'²: variances are within 5 % where it is less.
        const LARGEST: f64 = 0.2;
        let of_means = || {
            if branches.iter().filter(|branch| branch.token().mean.abs() > 0.0).count() < 2 {
                return None;
            }
            let (_, crossed) = self.means(&firsts(branches), output.token().ln_second);
            let std = output.fluctuation.of_variance(domain.shared(output)).sqrt();
            let kind = "means of branches grow with a stream that strays: variances are told too small and correlations too large \
                        (sampled, x + φ(W x): where the standard deviation of ln is 0.2 variances are 5 % off, at 0.3 10 %, at 0.4 \
                        to 0.5 15 to 20 %)";
            (crossed > dropped::LARGEST_CROSSED && std > LARGEST).then(|| (kind, format!("{std:.2}")))
        };
        self.caveat_of_masks(branches, output).or_else(of_means)
    }

    /// How far the output strays, which has these `tokens`.
    fn fluctuation(
        &self,
        domain: &Domain,
        x: &Signal,
        branches: &[Arc<Signal>],
        tokens: &[Token],
    ) -> (Fluctuation, Few<Matrix2<f64>>) {
        let levels = tokens.iter().map(|token| token.ln_second);
        let ln_total = ln_sum(levels.clone());
        let terms: Few<Term> = branches
            .iter()
            .enumerate()
            .map(|(index, branch)| {
                let part = share(self.ln_gains[index] + ln_sum(branch.levels()), ln_total);
                let dropped = self.branch_strayed(index, part);
                let fluctuation =
                    Fluctuation { scale: branch.fluctuation.scale.add_scalar(dropped), ..branch.fluctuation };
                let mean = self.amplitude(index, branch, &tokens[0]) * branch.token().mean;
                Term {
                    share: part,
                    mean,
                    cosines: &branch.cosines,
                    inherited: branch.concentration.inherited,
                    fluctuation,
                }
            })
            .collect();
        domain.joined((x.fluctuation, x.concentration.total), &terms, &levels, x.token().width)
    }

    /// What all tokens of the output have in common of what single ones know of their scale, as `token` adds it up:
    /// inherited and fresh of every branch, and of products of two the part ⟨c_i c_j⟩.
    fn known(&self, domain: &Domain, x: &Signal, branches: &[Arc<Signal>], tokens: &[Token]) -> f64 {
        let firsts = firsts(branches);
        let shares: Few<f64> = (0..branches.len()).map(|index| self.share(index, &firsts, &tokens[0])).collect();
        let (of_x, width) = (domain.known_in_common(x), x.token().width);
        let inherited: f64 = shares.iter().zip(&firsts).map(|(a, b)| a * b.sensitivity).sum();
        let mut known = inherited * inherited * of_x;
        for (index, (branch, a)) in branches.iter().zip(&shares).enumerate() {
            let own = domain.known_in_common(branch) - branch.token().sensitivity.powi(2) * of_x;
            known += a * a * own.max(0.0) + self.strayed(index, *a);
            for (other, b) in branches[..index].iter().zip(&shares) {
                let levels = tokens.iter().map(|token| token.ln_second);
                let matrices = [&*branch.cosines, &*other.cosines];
                let [both] = domain.pair_averages(levels, matrices, [1.0], |[one, two]| [one * two]);
                known += 4.0 * a * b / width * both;
            }
        }
        known
    }

    /// √E f² of a branch, times its β, in units of √E x'² of the `whole`.
    fn amplitude(&self, index: usize, branch: &Signal, whole: &Token) -> f64 {
        self.scales[index] * share(0.5 * branch.token().ln_second, 0.5 * whole.ln_second)
    }

    /// Cov of what the output's t draws by products of two branches, whose differences line up, with what ln Σ |g|² draws by products of
    /// `parts`, which have these `shares` in it: the trace of what one branch makes of the other.
    pub(crate) fn redrawn(&self, domain: &Domain, fork: &Fork, parts: &[Gradient], shares: &[f64]) -> f64 {
        let width = fork.x.token().width;
        let apart = 1.0 - domain.shared(fork.output.as_ref());
        let line_up = |share: f64, shared: f64, inherited: f64| share * (1.0 - shared).max(0.0) * inherited.max(0.0);
        let both = |index: usize| {
            let (branch, part) = (&fork.parts[index], &parts[index]);
            let forward =
                line_up(self.size(index, fork), domain.shared(branch.as_ref()), branch.concentration.inherited);
            (forward * line_up(shares[index], domain.shared(part), part.concentration.inherited)).sqrt()
        };
        let both: Few<f64> = (0..parts.len()).map(both).collect();
        let pairs = both.iter().sum::<f64>().powi(2) - both.iter().map(|both| both * both).sum::<f64>();
        2.0 * ratio(pairs, apart) / (width * width)
    }

    /// Cosines of the output, from those of the branches.
    fn cosines(&self, domain: &Domain, branches: &[Arc<Signal>], output: &[Token]) -> Arc<[f64]> {
        let per_token = |of: &dyn Fn(usize, &Token) -> f64| -> Few<PerToken<f64>> {
            let branch = |(index, branch): (usize, &Arc<Signal>)| {
                let tokens = branch.tokens.iter().zip(output);
                tokens.map(|(b, y)| of(index, b) * share(0.5 * b.ln_second, 0.5 * y.ln_second)).collect()
            };
            branches.iter().enumerate().map(branch).collect()
        };
        let amplitudes = per_token(&|index, _| (0.5 * self.ln_gains[index]).exp());
        let has_mean = |branch: &Arc<Signal>| branch.tokens.iter().any(|token| token.mean.abs() > 0.0);
        let of_means = || per_token(&|index, b| self.scales[index] * b.mean);
        let means = if branches.iter().any(has_mean) { of_means() } else { Few::new() };
        domain.map(output.len(), |i, j, place| {
            let own: f64 = amplitudes.iter().zip(branches).map(|(a, branch)| a[i] * a[j] * branch.cosines[place]).sum();
            let (first, second, same) = means.iter().fold((0.0, 0.0, 0.0), |(first, second, same), mean| {
                (first + mean[i], second + mean[j], same + mean[i] * mean[j])
            });
            own + first * second - same
        })
    }

    /// The gradient at every branch.
    pub(crate) fn split(&self, domain: &Domain, fork: &Fork, gradient: &Gradient) -> Vec<Gradient> {
        let Fork { x, parts: branches, maps, output } = fork;
        let positions = by_position(branches);
        let firsts = firsts(branches);
        let beside = Self::beside(domain, fork, gradient);
        let [alone, together] = domain.known_alone(x);
        let masks = self.masks(domain, fork, gradient);
        let (near, along) = (self.nearness(domain, fork, gradient), self.along_pairs(domain, fork, gradient));
        let followed = domain.follows_levels();
        let across = gradient.across.unwrap_or(1.0) - 1.0;
        let shared = domain.shared(output.as_ref());
        let amplitude = |index: usize| self.amplitude(index, &branches[index], output.token());
        let mean = |index: usize| amplitude(index) * branches[index].token().mean;
        let means: f64 = (0..branches.len()).map(mean).sum();
        let averages =
            |index: usize| 2.0 * ratio(gradient.squares()[0] * (means - mean(index)) * amplitude(index), shared);
        let part = |index: usize| {
            let places = positions.iter().zip(&x.tokens).zip(output.tokens.iter().zip(gradient.tokens.iter()));
            let tokens = places
                .map(|((parts, x), (output, g))| self.split_token((index, masks[index]), (x, alone), parts, output, g))
                .collect();
            Gradient {
                tokens,
                cosines: masks[index].cosines(domain, gradient),
                coupling: 0.0,
                one_sided: false,
                nearness: gradient.nearness.split(domain, x, near[index]),
                knows_networks: false,
                constant: gradient.constant,
                along_all: 0.0,
                entrywise: Along::NONE,
                unmet: Along::NONE,
                along: along[index],
                across: followed.then(|| 1.0 + self.share(index, &firsts, output.token()) * across),
                concentration: Concentration { inherited: 1.0, ..gradient.concentration },
                fluctuation: gradient.fluctuation.forked(),
                response: maps[index] * gradient.response,
                made: Matrix2::identity(),
                beside: beside[index],
                together,
                redrawn: gradient.redrawn,
                again: 0.0,
                averages: averages(index),
                unturned: None,
                shares: None,
                lengths: None,
                later: gradient.later,
            }
        };
        (0..branches.len()).map(part).collect()
    }

    /// Per branch, what cosines of the `gradient` at the output answer to.
    pub(crate) fn nearness(&self, domain: &Domain, fork: &Fork, gradient: &Gradient) -> Few<Branch> {
        let response = domain.near(&fork.output, gradient).response;
        if response == 0.0 {
            return fork.parts.iter().map(|_| Branch { kept: 1.0, ..Branch::NONE }).collect();
        }
        let sizes: Few<f64> = (0..fork.parts.len()).map(|index| self.size(index, fork)).collect();
        let followed: Few<f64> =
            sizes.iter().zip(&fork.parts).map(|(size, branch)| size * domain.contrast(&fork.x, branch)).collect();
        let all: f64 = followed.iter().sum();
        let branch = |(size, own): (&f64, &f64)| Branch {
            kept: 1.0,
            own: response * size,
            by_others: response * (all - own),
            chosen: 0.0,
        };
        sizes.iter().zip(&followed).map(branch).collect()
    }

    /// Per branch, what gradients have along its signals together: see *Together*.
    fn along_pairs(&self, domain: &Domain, fork: &Fork, gradient: &Gradient) -> Few<f64> {
        let lost = domain.mean_cosine(gradient) * (1.0 - gradient.token().radial.max(0.0).sqrt()).powi(2);
        let output = domain.mean_cosine(fork.output.as_ref());
        let along = |(index, branch): (usize, &Arc<Signal>)| {
            self.size(index, fork) * (gradient.along + lost * (output - domain.mean_cosine(branch.as_ref())))
        };
        fork.parts.iter().enumerate().map(along).collect()
    }

    /// What of the output's squares, over all tokens, is of branch `index`.
    fn size(&self, index: usize, fork: &Fork) -> f64 {
        share(self.ln_gains[index] + fork.parts[index].ln_level(), fork.output.ln_level())
    }

    /// Per branch, −Cov of ln Σ |g|² of the `gradient` at the output with the levels at the fork by way of the other
    /// branches; and of its cosines.
    fn beside(domain: &Domain, fork: &Fork, gradient: &Gradient) -> Few<Matrix2<f64>> {
        let levels = if domain.follows_levels() { fork.x.fluctuation.total() } else { Matrix2::zeros() };
        let beside = |index: usize| levels * fork.by_others(index).transpose() * gradient.response;
        (0..fork.parts.len()).map(beside).collect()
    }

    /// The gradient at the output of branch `index`.
    fn split_token(
        &self,
        (index, mask): (usize, Mask),
        (x, alone): (&Token, f64),
        branches: &[Token],
        output: &Token,
        gradient: &TokenGradient,
    ) -> TokenGradient {
        let a = self.share(index, branches, output);
        let alongs = self.along(&self.mean_parts(branches, output.ln_second), branches, output);
        let sensitive = alongs.iter().zip(branches).map(|(along, branch)| along * branch.sensitivity);
        let others: f64 = sensitive.enumerate().filter(|(other, _)| *other != index).map(|(_, of)| of).sum();
        let along = alongs[index];
        let known = ratio(along * along, a);
        TokenGradient {
            radial: 1.0 + known * (gradient.radial - 1.0),
            constant: gradient.constant,
            steepness: along * gradient.steepness,
            excess: known * gradient.excess,
            local: 1.0,
            beside: gradient.beside * x.sensitivity + gradient.steepness * others * alone * x.norm_variance(),
            ..gradient.scaled(self.ln_gains[index] + self.ln_masked(index, a, gradient.steepness, mask))
        }
    }

    /// The gradient at the common input, from that at the output and those at the input of each
    /// branch; with the weights of the branches in it, and the part of it that gathered gradients add to every pair.
    pub(crate) fn join(
        &self,
        x: &Token,
        branches: &[Token],
        output: &Token,
        gradient: &TokenGradient,
        parts: &[TokenGradient],
        others: Others,
    ) -> (TokenGradient, Few<f64>, f64) {
        let means = self.mean_parts(branches, output.ln_second);
        let sensitive = self.sensitive(&means, branches, output);
        let inherited = gradient.steepness * sensitive.iter().sum::<f64>();
        let exponents: Few<f64> =
            parts.iter().zip(&sensitive).map(|(part, s)| part.steepness - s * gradient.steepness).collect();
        let steep = |(part, exponent): (&TokenGradient, &f64)| TokenGradient {
            steepness: part.known(others.together) * inherited + exponent,
            ..*part
        };
        let parts: Few<TokenGradient> = parts.iter().zip(&exponents).map(steep).collect();

        // What is gathered from other tokens is met by that of this one as far as their gradients are alike.
        let is_gathered = |i: usize| parts[i].is_gathered();
        let met = |gathered: f64| -> f64 {
            crossed((0..parts.len()).map(|i| sensitive[i] * if is_gathered(i) { gathered } else { 1.0 }))
        };
        let all = met(1.0 + others.alike);
        let ln_branches = ln_sum(parts.iter().map(|part| part.ln_second));
        // (E g² E x'²) / (E x² Σ E g_i²), by which the cross term stands beside the branches.
        let beside = share(gradient.ln_second + output.ln_second - x.ln_second, ln_branches);
        let alike = crossed(means.iter().zip(branches).map(|(mean, b)| mean * b.sensitivity));
        let cross = if all.abs() > 0.0 { ((gradient.radial - 1.0) * all + alike) * beside } else { 0.0 };
        let ln_total = ln_correction(cross / x.width);

        let (joined, weights) = TokenGradient::join(&parts);
        let joined = TokenGradient {
            radial: ((joined.radial + cross) * (-ln_total).exp()).max(0.0),
            local: gradient.local * joined.local,
            ..joined.scaled(ln_total)
        };
        (joined, weights, ratio(all - met(0.0), all) * cross / x.width)
    }

    /// What pairs of branches give the gradient at the input, of the second moment e^`ln_second`: its cosines, in units of those
    /// at the output, and α, in units of E g²: see *Pairs*.
    pub(crate) fn paired(
        &self,
        domain: &Domain,
        fork: &Fork,
        gradient: &Gradient,
        parts: &[Gradient],
        ln_second: f64,
    ) -> [f64; 2] {
        let Some(across) = gradient.across else { return [0.0; 2] };
        let Fork { x, parts: branches, output, .. } = fork;
        let firsts = firsts(branches);
        let (mut slopes, mut owns, mut others) = (Few::new(), Few::new(), Few::new());
        for (index, branch) in branches.iter().enumerate() {
            let (part, known) = (self.share(index, &firsts, output.token()), branch.token().sensitivity);
            let [slope, own, other] = if parts[index].token().is_gathered() {
                // Of all tokens.
                let known = (known * domain.length(x.tokens.len())).min(1.0);
                [0.0, known, known]
            } else {
                let slope = domain.contrast(x, branch);
                [slope, known, known.min(slope)]
            };
            slopes.push(part * slope);
            owns.push(part * own);
            others.push(part * other);
        }
        let met: f64 = owns.iter().sum::<f64>() * others.iter().sum::<f64>()
            - owns.iter().zip(&others).map(|(own, other): (&f64, &f64)| own * other).sum::<f64>();
        let apart = 1.0 - domain.mean_cosine(x.as_ref()).powi(2);
        let x = x.token();
        let beside = share(gradient.token().ln_second + output.token().ln_second, ln_second + x.ln_second);
        let each = (across - 1.0) * beside;
        [apart * each * crossed(slopes.into_iter()) / x.width, each * met * domain.mean_cosine(gradient)]
    }

    /// Σ β_i mean_i and Σ_{i≠j} β_i β_j mean_i mean_j, in units of a second moment.
    fn means(&self, branches: &[Token], ln_unit: f64) -> (f64, f64) {
        let means = self.mean_parts(branches, ln_unit);
        (means.iter().sum(), crossed(means.iter().copied()))
    }

    /// β_i mean_i in units of a second moment.
    fn mean_parts(&self, branches: &[Token], ln_unit: f64) -> Few<f64> {
        let part = |(scale, b): (&f64, &Token)| match b.mean {
            0.0 => 0.0,
            mean => scale * mean * share(0.5 * b.ln_second, 0.5 * ln_unit),
        };
        self.scales.iter().zip(branches).map(part).collect()
    }

    /// E f_i x'/E x'² of every branch, from the `means` of its parts in units of the output.
    fn along(&self, means: &[f64], branches: &[Token], output: &Token) -> Few<f64> {
        let all: f64 = means.iter().sum();
        let of = |(index, mean): (usize, &f64)| self.share(index, branches, output) + mean * (all - mean);
        means.iter().enumerate().map(of).collect()
    }

    /// The same times χ_i: how the output's second moment follows that of the input by way of every branch.
    fn sensitive(&self, means: &[f64], branches: &[Token], output: &Token) -> Few<f64> {
        self.along(means, branches, output).iter().zip(branches).map(|(a, b)| a * b.sensitivity).collect()
    }

    fn share(&self, index: usize, branches: &[Token], output: &Token) -> f64 {
        share(self.ln_gains[index] + branches[index].ln_second, output.ln_second)
    }
}

/// The first token of every branch, which stands for all where tokens are exchangeable.
fn firsts(branches: &[Arc<Signal>]) -> Few<Token> {
    branches.iter().map(|branch| *branch.token()).collect()
}

/// What the differences of a sum have of what its tokens share, from the shares of its branches in the former and their sizes in
/// the latter: what follows their input `x` adds up, and a branch knows nothing of what another one shares, but for `fresh`.
fn common(x: Concentration, branches: impl Iterator<Item = ((f64, Concentration), f64)>, fresh: f64) -> f64 {
    let (mut all, mut own, mut together) = (0.0, 0.0, 0.0);
    for ((share, branch), shared) in branches {
        let kept = branch.inherited * branch.inherited * x.common;
        all += shared;
        own += share * shared * (branch.common - kept - fresh).max(-fresh);
        together += (share * shared).sqrt() * branch.inherited;
    }
    if all > 0.0 { fresh + (together * together * x.common + own) / all } else { 0.0 }
}

/// How unequal the differences of a sum are, from the shares of its branches in them: what of a branch follows their input
/// is longer where that of another is.
fn unequal(branches: impl Iterator<Item = (f64, Concentration)>) -> f64 {
    let (mut alone, mut together, mut following) = (0.0, 0.0, 0.0);
    for (share, branch) in branches {
        let [own, known] = [share * share * branch.unequal, share * branch.unequal.sqrt() * branch.inherited];
        alone += own;
        together += known;
        following += known * known;
    }
    alone + together * together - following
}
