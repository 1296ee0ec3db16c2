//! Overlaps of one row whose keys carry ids that repeat, without and with a part of their own.
//!
//! # Formula
//!
//! N_m ids of m tokens each, Σ m N_m = L. Scores are √(wλ) u_id + √(w (1 − λ)) n_b with independent u, n ~ N(0, 1), λ the
//! likeness of two keys of one id. Given u, with y = t e^s and M_k = E_n y^k e^{−y}, an id of m tokens whose weights are A_b,
//! G = Σ_b A_b, Q = Σ_b A_b², has
//!
//! ```text
//! F_m = E_u M_0^m     E e^{−Σy} = Π F_m^{N_m}
//! E y(G²) = m M_2 M_0^{m−1} + m(m−1) M_1² M_0^{m−2},  E y(Q) = m M_2 M_0^{m−1},  …
//! E Σ_id G² = ∫ Σ_m N_m (E_u E y(G²)/F_m) Π F^N dt/t                                  likewise all below
//! ```
//!
//! exact at every w but for how N_m strays. With K, V the matrices λ E + (1 − λ) I of keys and of values, μ the likeness
//! of two values of one id, E those of equal ids,
//!
//! ```text
//! E AᵀVA              = μ E ΣG² + (1 − μ) E ΣQ                    and of mean rows, μ Σ(E G)² + (1 − μ) Σ(E A)²
//! T_KV = E Σ_bc K_bc δ_bᵀδ_c,  δ_b = A_b (g_b − ΣAg),  E g_b g_c = V_bc
//!      = E Σ_bc K_bc V_bc A_b A_c − 2 E Σ_b A_b (KA)_b (VA)_b + E AᵀKA AᵀVA
//! ```
//!
//! Two rows whose scores have nothing in common pass T_KV(0) = tr K J V J, J = diag(E A) − E A Aᵀ.
//!
//! For w → 0 both E AᵀVA less that of mean rows over w, T_KV and T_KV(0) are ‖C K C · C V C‖/L².
//!
//! # Source
//!
//! The product integral of [`super::integrals`], with a second Gaussian for each id. Ours.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use libm::lgamma;
use sigprop_stack::PowerLaw;

use super::grid::Nodes;
use super::integrals::{REACH, Steps, Table, log_normal_nodes, moments};
use crate::domain::mean_share;
use crate::interpolation::{lagrange, lagrange_weights, weighted};

/// How many numbers a node has.
const COUNT: usize = 13;
/// Distance of nodes in ln w and in λ.
const STEP_W: f64 = 0.25;
const STEP_LIKENESS: f64 = 0.25;
/// Nodes in ln w and in λ that are met at a time.
const POINTS: usize = 4;

static NODES: Nodes<COUNT> = Nodes::new();

/// How many ids there are with how many tokens each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repeats {
    /// N_m and m.
    ids: Vec<(f64, f64)>,
    /// Of these numbers, to find nodes by.
    key: u64,
}

/// What one row of Σ m N_m = L keys overlaps with itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repeated {
    /// E Σ G² and E Σ Q.
    pub(crate) own: [f64; 2],
    /// Σ (E G)² and Σ (E A)².
    pub(crate) mean: [f64; 2],
    /// E Σ G³, E Σ G Q and E Σ A³.
    pub(crate) cubes: [f64; 3],
    /// E (ΣG²)², E ΣG² ΣQ and E (ΣQ)².
    pub(crate) squares: [f64; 3],
    /// T_KV(0) of matrices E E, E I and I I.
    pub(crate) apart: [f64; 3],
}

impl Repeated {
    fn of([g, q, mean_g, mean_q, ggg, gq, qa, g_g, g_q, q_q, ee, ei, ii]: [f64; COUNT]) -> Self {
        Self {
            own: [g, q],
            mean: [mean_g, mean_q],
            cubes: [ggg, gq, qa],
            squares: [g_g, g_q, q_q],
            apart: [ee, ei, ii],
        }
    }

    /// T_KV of matrices E E, E I and I I.
    pub(crate) fn passed(&self) -> [f64; 3] {
        let ([g, q], [ggg, gq, qa], [g_g, g_q, q_q]) = (self.own, self.cubes, self.squares);
        [g - 2.0 * ggg + g_g, q - 2.0 * gq + g_q, q - 2.0 * qa + q_q]
    }
}

impl Repeats {
    /// Expected numbers among `seq_len` tokens whose ids are drawn by `law`.
    pub(crate) fn of(law: PowerLaw, seq_len: usize) -> Self {
        /// Ranks that are taken one by one, and by how much later ones differ that are taken together.
        const APART: usize = 64;
        const TOGETHER: f64 = 0.04;
        let probabilities = law.probabilities();
        let mut counts = BTreeMap::new();
        let mut first = 0;
        while first < probabilities.len() {
            let many = if first < APART { 1 } else { ((first as f64 * TOGETHER) as usize).max(1) };
            let ranks = &probabilities[first..(first + many).min(probabilities.len())];
            let probability = ranks.iter().sum::<f64>() / ranks.len() as f64;
            count_tokens(seq_len, probability, ranks.len() as f64, &mut counts);
            first += ranks.len();
        }
        let ids: Vec<(f64, f64)> = counts.into_values().map(|(ids, tokens)| (ids, tokens / ids)).collect();
        let bits = ids.iter().flat_map(|(ids, tokens)| [ids.to_bits(), tokens.to_bits()]);
        // FNV-1a over words.
        let key = bits.fold(0xcbf2_9ce4_8422_2325, |key: u64, bits| (key ^ bits).wrapping_mul(0x0100_0000_01b3));
        Self { ids, key }
    }

    /// Σ N (m/L)^k.
    fn power(&self, k: i32) -> f64 {
        let length = self.length();
        self.ids.iter().map(|(ids, tokens)| ids * (tokens / length).powi(k)).sum()
    }

    /// L.
    pub(super) fn length(&self) -> f64 {
        self.ids.iter().map(|(ids, tokens)| ids * tokens).sum()
    }

    /// Σ_id G² of flat attention.
    pub(crate) fn flat(&self) -> f64 {
        self.power(2)
    }

    /// Whether there are any.
    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// tr M^k/(tr M)^k for k = 3 and 4, M = C (K + κ S) C/L with S those in the same of two segments of these `shares`.
    /// From t_k = tr (K/L)^k and a_k = 1ᵀ (K/L)^k 1/L,
    ///
    /// ```text
    /// t_3 − 3 a_3 + 3 a_1 a_2 − a_1³     t_4 − 4 a_4 + 4 a_1 a_3 + 2 a_2² − 4 a_1² a_2 + a_1⁴     (1 − a_1)^k below
    /// ```
    ///
    /// and C S C/L has one eigenvalue 2 z (1 − z), in a direction that ids hardly know of: κ^k times the mean of its powers
    /// above, κ times its mean below.
    pub(crate) fn traces(&self, key: f64, segment: f64, shares: &[f64]) -> [f64; 2] {
        let (single, length) = ((1.0 - key) / self.length(), self.length());
        let of_ids = |of: &dyn Fn(f64, f64) -> f64| {
            self.ids.iter().map(|(ids, tokens)| ids * of(*tokens, key * tokens / length + single)).sum::<f64>()
        };
        let of_segments = |k: i32| mean_share(shares, |z| (2.0 * segment * z * (1.0 - z)).powi(k));
        let [t3, t4] = [3, 4].map(|k| of_ids(&|m, level| level.powi(k) + (m - 1.0) * single.powi(k)));
        let [a1, a2, a3, a4] = [1, 2, 3, 4].map(|k| of_ids(&|m, level| m / length * level.powi(k)));
        let third = t3 - 3.0 * a3 + 3.0 * a1 * a2 - a1.powi(3) + of_segments(3);
        let fourth = t4 - 4.0 * a4 + 4.0 * a1 * a3 + 2.0 * a2 * a2 - 4.0 * a1 * a1 * a2 + a1.powi(4);
        let trace = 1.0 - a1 + of_segments(1);
        [third / trace.powi(3), (fourth + of_segments(4)) / trace.powi(4)]
    }

    /// ⟨C K C, C V C⟩/L².
    pub(crate) fn spread(&self, key: f64, value: f64) -> f64 {
        let single = self.length().recip();
        let [second, third] = [self.power(2), self.power(3)];
        let both = key * value;
        let mixed = key * (1.0 - value) + value * (1.0 - key);
        let neither = (1.0 - key) * (1.0 - value);
        let average = |likeness: f64| likeness * second + (1.0 - likeness) * single;
        both * second + (1.0 - both) * single
            - 2.0 * (both * third + mixed * second * single + neither * single * single)
            + average(key) * average(value)
    }

    /// At score variance `w` and this likeness of keys, interpolated.
    pub(crate) fn overlaps(&self, w: f64, likeness: f64) -> Repeated {
        let (first_w, weights_w) = lagrange::<POINTS>(w.ln() / STEP_W);
        let (first, weights) = lagrange_within(likeness / STEP_LIKENESS);
        Repeated::of(weighted(first, weights, |place| {
            weighted(first_w, weights_w, |place_w| {
                NODES.get((self.key, place, place_w), || {
                    integrated(&self.ids, (STEP_W * f64::from(place_w)).exp(), STEP_LIKENESS * f64::from(place))
                })
            })
        }))
    }
}

/// Adds `ids` ids of this probability to those with as many tokens, or nearly as many: ids and tokens.
fn count_tokens(seq_len: usize, probability: f64, ids: f64, counts: &mut BTreeMap<i64, (f64, f64)>) {
    /// Largest number of tokens that is not taken together with others, and classes per factor of e beyond.
    const EXACT: usize = 4;
    const FINENESS: f64 = 5.0;
    /// Expected numbers of ids below which there are none.
    const NONE: f64 = 1e-9;
    let length = seq_len as f64;
    let (mean, std) = (length * probability, (length * probability).sqrt());
    let first = (mean - 8.0 * std).max(1.0) as usize;
    let last = ((mean + 8.0 * std + 8.0) as usize).min(seq_len);
    if probability >= 1.0 {
        counts.insert(i64::MAX, (ids, ids * length));
        return;
    }
    let (ln_one, ln_other) = (probability.ln(), (-probability).ln_1p());
    for tokens in first..=last {
        let [m, others] = [tokens as f64, length - tokens as f64];
        let ln_ways = lgamma(length + 1.0) - lgamma(m + 1.0) - lgamma(others + 1.0);
        let expected = ids * (ln_ways + m * ln_one + others * ln_other).exp();
        let class = if tokens <= EXACT { tokens as i64 } else { 100 + (m.ln() * FINENESS).round() as i64 };
        if expected > NONE {
            let (known, all) = counts.entry(class).or_default();
            *known += expected;
            *all += expected * m;
        }
    }
}

/// Four nodes around `x`, none below the first or above the last one, and their weights.
fn lagrange_within(x: f64) -> (i32, [f64; POINTS]) {
    let last = STEP_LIKENESS.recip().round();
    let first = (x.floor() - 1.0).clamp(0.0, last - 3.0);
    (first as i32, lagrange_weights(x.clamp(0.0, last) - first))
}

/// The numbers of [`Repeated`], in its order.
fn integrated(ids: &[(f64, f64)], w: f64, likeness: f64) -> [f64; COUNT] {
    /// In ln t, and of a Gaussian variable: the trapezoidal rule is off by e^(−π²/step) and e^(−2π²/step²).
    const STEP: f64 = 0.55;
    const COARSE: f64 = 1.1;
    /// ln of what is left out of E G below the first node: integrands begin as t, those of squares as t².
    const LEFT_OUT: f64 = -12.0;
    /// ln of Π F below which nothing is left of an integrand; it only falls with t.
    const NOTHING: f64 = -60.0;
    let [common, own] = [likeness, 1.0 - likeness].map(|share| (w * share).sqrt());
    let coarse = |std: f64| (0.8 / std).min(COARSE);
    let steps = Steps::new(common, coarse(common), STEP);
    let (levels, own) = (log_normal_nodes(common, steps.x), log_normal_nodes(own, coarse(own)));
    let length: f64 = ids.iter().map(|(ids, tokens)| ids * tokens).sum();
    let (lower, upper) = (LEFT_OUT - REACH * w.sqrt() - length.ln(), 4.0 + REACH * w.sqrt());
    let count = ((upper - lower) / steps.ln_t).ceil() as usize;
    let known = steps.table(lower, [count, levels.len()], |t| Given::new(moments(t, &own)));
    // M_0^m.
    let powers: Vec<Table<f64>> = ids.iter().map(|&(_, m)| known.map(|given| (m * given.ln).exp())).collect();
    // E G, E G² and E Q; E G G' of different ids.
    let mut means = vec![[0.0; 3]; ids.len()];
    let mut together = vec![0.0; ids.len() * ids.len()];
    let mut sums = Sums::default();
    for i in 0..count {
        let of_id = |(&(_, tokens), powers): (&(f64, f64), &Table<f64>)| {
            let given = levels.iter().enumerate();
            Id::of(tokens, given.map(|(j, (_, weight))| (weight * powers.at(i, j), &known.at(i, j).products)))
        };
        let all: Vec<Id> = ids.iter().zip(&powers).map(of_id).collect();
        let ln_all: f64 = ids.iter().zip(&all).map(|((count, _), id)| count * id.ln).sum();
        if ln_all < NOTHING {
            break;
        }
        let weight = steps.ln_t * ln_all.exp();
        sums.add(weight, ids, &all);
        for (mean, id) in means.iter_mut().zip(&all) {
            mean.iter_mut().zip([id.first, id.g, id.q]).for_each(|(mean, value)| *mean += weight * value);
        }
        for (row, one) in together.chunks_exact_mut(ids.len()).zip(&all) {
            row.iter_mut().zip(&all).for_each(|(sum, other)| *sum += weight * one.first * other.first);
        }
    }
    let sum = |of: &dyn Fn([f64; 3], f64) -> f64| {
        ids.iter().zip(&means).map(|((count, tokens), mean)| count * of(*mean, *tokens)).sum::<f64>()
    };
    let Sums { g, q, ggg, gq, qa, g_g, g_q, q_q } = sums;
    let squares = [sum(&|[mean, ..], _| mean * mean), sum(&|[mean, ..], tokens| mean * mean / tokens)];
    // (K J)_bb' of equal keys, of others of the id, and over J_bb' of other ids.
    let mapped = |part: f64, [mean, square, squares]: [f64; 3], m: f64| {
        let own = (mean - squares) / m;
        let other = if m > 1.0 { -(square - squares) / (m * (m - 1.0)) } else { 0.0 };
        let whole = part * (own + (m - 1.0) * other);
        [(1.0 - part) * own + whole, (1.0 - part) * other + whole, 1.0 - part + part * m]
    };
    let of = |part: f64| -> Vec<[f64; 3]> {
        ids.iter().zip(&means).map(|((_, m), means)| mapped(part, *means, *m)).collect()
    };
    let (whole, single) = (of(1.0), of(0.0));
    let apart = |keys: &[[f64; 3]], values: &[[f64; 3]]| {
        let mut total = 0.0;
        for (i, (count, m)) in ids.iter().enumerate() {
            total += count * m * (keys[i][0] * values[i][0] + (m - 1.0) * keys[i][1] * values[i][1]);
            for (j, (others, n)) in ids.iter().enumerate() {
                let pairs = count * if i == j { count - 1.0 } else { *others };
                total += pairs * together[i * ids.len() + j].powi(2) / (m * n) * keys[i][2] * values[j][2];
            }
        }
        total
    };
    let [ee, ei, ii] = [apart(&whole, &whole), apart(&whole, &single), apart(&single, &single)];
    [g, q, squares[0], squares[1], ggg, gq, qa, g_g, g_q, q_q, ee, ei, ii]
}

/// One u at one t: ln M_0, and products of r_k = M_k/M_0 (see [`Id`]).
struct Given {
    ln: f64,
    products: [f64; PRODUCTS],
}

const PRODUCTS: usize = 12;

impl Given {
    fn new([m0, rest @ ..]: [f64; 5]) -> Self {
        let [one, two, three, four] = rest.map(|moment| moment / m0);
        let square = one * one;
        let products = [
            1.0,
            one,
            two,
            square,
            three,
            two * one,
            square * one,
            four,
            three * one,
            two * two,
            two * square,
            square * square,
        ];
        Self { ln: m0.ln(), products }
    }
}

/// One id at one t: ln F, then expectations over its scores.
struct Id {
    ln: f64,
    /// G, G², Q, Σ A³, G Q, G³, G⁴, G² Q and Q².
    first: f64,
    g: f64,
    q: f64,
    cubes: f64,
    gq: f64,
    ggg: f64,
    gggg: f64,
    ggq: f64,
    qq: f64,
}

impl Id {
    /// With m tokens, from all u, their weights times M_0^m.
    fn of<'a>(m: f64, given: impl Iterator<Item = (f64, &'a [f64; PRODUCTS])>) -> Self {
        let mut sums = [0.0; PRODUCTS];
        for (weight, products) in given {
            sums.iter_mut().zip(products).for_each(|(sum, product)| *sum += weight * product);
        }
        let all = sums[0].max(f64::MIN_POSITIVE);
        let [_, r1, r2, r11, r3, r21, r111, r4, r31, r22, r211, r1111] = sums.map(|sum| sum / all);
        // Tuples of different tokens.
        let pairs = m * (m - 1.0);
        let triples = pairs * (m - 2.0).max(0.0);
        let fours = triples * (m - 3.0).max(0.0);
        Self {
            ln: all.ln(),
            first: m * r1,
            g: m * r2 + pairs * r11,
            q: m * r2,
            cubes: m * r3,
            gq: m * r3 + pairs * r21,
            ggg: m * r3 + 3.0 * pairs * r21 + triples * r111,
            gggg: m * r4 + pairs * (4.0 * r31 + 3.0 * r22) + 6.0 * triples * r211 + fours * r1111,
            ggq: m * r4 + pairs * (2.0 * r31 + r22) + triples * r211,
            qq: m * r4 + pairs * r22,
        }
    }
}

/// E of ΣG², ΣQ, ΣG³, ΣGQ, ΣA³, (ΣG²)², ΣG² ΣQ and (ΣQ)².
#[derive(Default)]
struct Sums {
    g: f64,
    q: f64,
    ggg: f64,
    gq: f64,
    qa: f64,
    g_g: f64,
    g_q: f64,
    q_q: f64,
}

impl Sums {
    fn add(&mut self, weight: f64, ids: &[(f64, f64)], all: &[Id]) {
        let sum = |of: &dyn Fn(&Id) -> f64| ids.iter().zip(all).map(|((count, _), id)| count * of(id)).sum::<f64>();
        let (g, q) = (sum(&|id| id.g), sum(&|id| id.q));
        self.g += weight * g;
        self.q += weight * q;
        self.ggg += weight * sum(&|id| id.ggg) / 2.0;
        self.gq += weight * sum(&|id| id.gq) / 2.0;
        self.qa += weight * sum(&|id| id.cubes) / 2.0;
        self.g_g += weight * (g * g + sum(&|id| id.gggg - id.g * id.g)) / 6.0;
        self.g_q += weight * (g * q + sum(&|id| id.ggq - id.g * id.q)) / 6.0;
        self.q_q += weight * (q * q + sum(&|id| id.qq - id.q * id.q)) / 6.0;
    }
}
