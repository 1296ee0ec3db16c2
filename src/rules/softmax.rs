//! Softmax A_b = e^{s_b} / Σ e^{s}: how much its weights overlap.
//!
//! # Formula
//!
//! n scores s_b, Gaussian with variance w once what they share is taken off (it cancels). With
//! M_k(t) = E e^{kz} e^{−t e^z}, z ~ N(0, w), and 1/Σ^k = ∫ t^{k−1}/(k−1)! e^{−tΣ} dt,
//!
//! ```text
//! S2  = E Σ A²    = n ∫ t M_2 M_0^{n−1} dt
//! S3  = E Σ A³    = n ∫ t²/2 M_3 M_0^{n−1} dt
//! S4  = E Σ A⁴    = n ∫ t³/6 M_4 M_0^{n−1} dt
//! S22 = E (ΣA²)²  = ∫ t³/6 (n M_4 M_0^{n−1} + n(n−1) M_2² M_0^{n−2}) dt
//! U   = E ΣA² (s − ΣAs)²/w      likewise, with E z^j e^{kz} e^{−t e^z}
//! ```
//!
//! exact for every (real) n and w, condensed phase included. Two rows whose scores have correlation
//! ρ overlap by a power series with non-negative coefficients (Hermite expansion of A):
//!
//! ```text
//! S11(ρ) = E Σ_b A_ab A_cb = Σ_k W_k ρ^k      W_0 = 1/n      W_1 = w (1 − S2)²/(n − 1)
//! W_2 = ½ w² n (B_3² + 3(n−1) B_21² + (n−1)(n−2) B_111²)      Σ W_k = S2      Σ k W_k = w T
//! B_3 = (1 − 3S2 + 2S3)/n    B_21 = (1 − 3S2 + 2S3)/(n(n−1))    B_111 = 2(1 − 3S2 + 2S3)/(n(n−1)(n−2))
//! T11(ρ) = (1/w) dS11/dρ     T = T11(1) = S2 − 2S3 + S22
//! ```
//!
//! Up to w = [`SERIES_LIMIT`] the terms beyond k = 2 are one power of ρ that has their sum and their
//! slope; above, S11 is the double integral `n ∬ M_11 M_00^{n−1} dt du`, tabulated in (ln w, ρ).
//!
//! *Kurtosis.* Of tokens of one length scores along a direction have less than Gaussian ones, k = 3 (E |δ|⁴/(E |δ|²)² − 1)
//! for token differences δ less than Gaussian ones (−6/width on a sphere), and the density of z its part k/24 He₄(z/√w).
//! To first order in k, each score by itself (S2 → 1/n + (S2 − 1/n) e^{k d}, likewise S3, S4, S22 and E ΣA⁴ ΣA²; of T ΣA² all),
//!
//! ```text
//! dS2/dk = n/24 ∫ t (E He₄ e^{2z − te^z} M_0^{n−1} + (n−1) M_2 M_0^{n−2} E He₄ e^{−te^z}) dt      → 7 w²/(12 n) where flat
//! dS11/dk = D(0) + (D(1) − D(0)) (2ρ + ρ²)/3      D(0) = w² (1 − 3S2 + 2S3)²/(12 (n − 1))      D(1) = dS2/dk
//! dT11/dk likewise, from D(0) − 2 (1 − S2)/(n − 1) dS2/dk to dT/dk
//! ```
//!
//! the powers of ρ being those of flat attention, where D ∝ 2 (1 + ρ)² − 1. Sampled on a sphere, width 128 to 256, w = 1
//! to 5, 64 to 1024 scores: S2 1.4 to 7 % too large without, within 0.5 ± 0.5 % with it.
//!
//! What keys lean towards their query, E Σ_{b≠c} A_b A_c s_b s_c/w, is 1 − 5 S2 + 4 S3 + 6 S22 − 6 S4 of Gaussian scores (Stein's lemma)
//! and gains by k likewise, d → w/3 where flat. Tilted by e^s a sphere of D dimensions moves by I_{D/2}/I_{D/2−1}, of which 2/(1 +
//! √(1 + 4a)) with a = −k d/2 is between the bounds (Amos 1974): its square in place of e^{k d} (`leant`, over what the lemma makes
//! of rows that know k). Sampled: 64 to 1024 keys in 32 to 128 dimensions, w 1 to 9: 0.74 to 0.97 of the first order in 1/D, told
//! within 0.02 at w ≤ 4, up to 0.04 too large at 9.
//!
//! Finite heads: the score variance of a row is w χ²/n_h, the scores of two rows follow a Wishart
//! distribution; both are averaged over (behind norms of queries lengths stray less, correlations do not). 1/n_h = 1/d_head + γ for a
//! row, 1/d_head + 2γ for a pair, 1/γ the directions that keys differ in (their width, or fewer).
//!
//! # Backward
//!
//! For a gradient Γ of independent entries at A, E g_s² = Γ T/n.
//!
//! # Source
//!
//! Integrals: project notes, theory §2 and refinements §3, checked by sampling there for L = 16 …
//! 1024, w = 0.1 … 16. W_2 is ours. Replaces the log-normal e^w/n of Kedia et al. 2024.

mod apart;
mod grid;
mod integrals;
pub(crate) mod repeats;
pub(crate) mod segments;
mod shared;

use std::collections::BTreeMap;

use nalgebra::{DMatrix, SymmetricEigen};
use sigprop_stack::{Cell, Quantity, SiteRow, SiteTable};

pub(crate) use self::apart::Apart;
use self::grid::{Grid, Nodes};
use self::integrals::{OVERLAPS, cross_overlap, row_overlaps};
pub(crate) use self::shared::Shared;
use crate::interpolation::lagrange_weights;
use crate::moments::ratio;

/// Largest w at which S11 is taken from its series; the error of S11 − 1/n stays below 1.2 % there
/// for ρ > 0 and 16 to 512 scores.
const SERIES_LIMIT: f64 = 2.0;
/// Below, S2 is linear in w.
const SMALLEST: f64 = 1e-4;
/// Above, the asymptotic laws continue the values here: 1 − S2 and T fall as w^(−½) (two keys tie for the
/// largest score), T11 as 1/w (S11 has a limit), 12 % off at w = 400. Beyond w = 16 attention carries a caveat.
const LARGEST: f64 = 100.0;
/// Below, finite heads change nothing that can be seen.
const FINITE_HEAD_LIMIT: f64 = 0.05;

/// A softmax of `n` scores of variance `w` by itself, under a gradient of independent entries of variance 1.
pub(crate) fn alone(n: f64, w: f64) -> SiteTable {
    let row = Overlaps::new(n).sharp_row(n, w);
    // Below, S2 − 1/n is linear in w.
    let variance = if w < SMALLEST { w * (n - 1.0) / n.powi(3) } else { (row.s2 - 1.0 / n) / n };
    let mut cells = [None; Quantity::ALL.len()];
    let told = [(Quantity::Mean, 1.0 / n), (Quantity::Variance, variance), (Quantity::GradVariance, row.t() / n)];
    for (quantity, value) in told {
        cells[quantity as usize] = Some(Cell::exact(value));
    }
    let row = SiteRow { layer: 0, site: "softmax".to_owned(), is_stream_site: true, cells };
    SiteTable { sites: vec![row], weights: Vec::new() }
}

/// E f(A) of the first of two keys with three quarters and one quarter of the weight, A = 1/(1 + e^{−x}/3), x ~ N(0, 2w).
#[cfg(test)]
pub(crate) fn over_two_keys(w: f64, f: &dyn Fn(f64) -> f64) -> f64 {
    let nodes = crate::quadrature::gaussian_nodes(0.0, 1.0);
    nodes.iter().map(|(z, weight)| weight * f(1.0 / (1.0 + (-(2.0 * w).sqrt() * z).exp() / 3.0))).sum()
}

/// Overlaps within one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) s2: f64,
    pub(crate) s3: f64,
    pub(crate) s4: f64,
    pub(crate) s22: f64,
    /// U, what T is along the direction of the scores.
    pub(crate) tilt: f64,
    /// E (ΣA² − 2ΣA³ + (ΣA²)²) ΣA²: rows that are sharper pass more.
    pub(crate) t_s2: f64,
    /// E χT, χ the row's own score variance in units of its mean.
    pub(crate) t_weighted: f64,
    /// E ΣA² (1 − 2A + ΣA²) (s²/w − 1), how unusual the scores are that pass T.
    pub(crate) outlying: f64,
    /// E ΣA⁴ ΣA².
    s42: f64,
    /// What S2, S3, S4, S22 and E ΣA⁴ ΣA² gain per kurtosis of the scores, in units of what they have beyond flat attention's, what
    /// `t_s2` and what keys lean towards their query (`leaning_pairs`) do in units of their own.
    heavier: [f64; 7],
    /// How much of `leaning_pairs` is there: of Gaussian scores all.
    pub(crate) leant: f64,
}

impl Row {
    /// T = E (ΣA² − 2ΣA³ + (ΣA²)²), the variance that g ↦ A∘(g − A·g) passes.
    pub(crate) fn t(&self) -> f64 {
        (self.s2 - 2.0 * self.s3 + self.s22).max(0.0)
    }

    /// E Σ_{b≠c} A_b A_c s_b s_c/w of Gaussian scores, by Stein's lemma.
    fn leaning_pairs(&self) -> f64 {
        1.0 - 5.0 * self.s2 + 4.0 * self.s3 + 6.0 * self.s22 - 6.0 * self.s4
    }

    /// 1 − 3 S2 + 2 S3 = E ΣA (1 − A)(1 − 2A), n times the second derivative of a mean weight by its score.
    pub(crate) fn bend(&self) -> f64 {
        1.0 - 3.0 * self.s2 + 2.0 * self.s3
    }

    /// w (1 − 3 S2 + 2 S3)², which falls as 1/w where one key is left: two keys that compete are as often ahead of each other.
    pub(crate) fn second(&self, w: f64) -> f64 {
        w.min(LARGEST) * self.bend().powi(2)
    }

    /// 1 − 2 S2 + S22 and U, of two directions that keys do not pass like the others.
    pub(crate) fn own_directions(&self) -> [f64; 2] {
        [1.0 - 2.0 * self.s2 + self.s22, self.tilt]
    }

    /// E ΣA² (1 − A) s, s a score of variance `w`, by parts.
    pub(crate) fn leaning(&self, w: f64) -> f64 {
        w * (2.0 * (self.s2 - self.s3) - 3.0 * (self.s3 - self.s4))
    }

    /// E ΣA² (A − ΣA²)², of the direction of Σ A g in which g is one for every key.
    pub(crate) fn squares(&self) -> f64 {
        (self.s4 + self.t_s2 - self.s22).max(0.0)
    }

    /// E ΣA⁴ ΣA²/(E ΣA⁴ E ΣA²) − 1: how much sharper rows are that have the large weights.
    pub(crate) fn sharp_together(&self) -> f64 {
        (ratio(self.s42, self.s4 * self.s2) - 1.0).max(0.0)
    }

    /// The row with all it lacks to a single weight of 1 multiplied by `factor`.
    fn towards_one_hot(&self, factor: f64) -> Self {
        let lacking = |overlap: f64| 1.0 - (1.0 - overlap) * factor;
        Self {
            s2: lacking(self.s2),
            s3: lacking(self.s3),
            s4: lacking(self.s4),
            s22: lacking(self.s22),
            tilt: self.tilt * factor,
            t_s2: self.t_s2 * factor,
            t_weighted: self.t_weighted * factor,
            outlying: self.outlying * factor,
            s42: lacking(self.s42),
            heavier: self.heavier.map(|gain| gain * factor),
            leant: self.leant,
        }
    }

    /// A single weight of 1.
    fn one_hot() -> Self {
        Self { s2: 1.0, s3: 1.0, s4: 1.0, s22: 1.0, s42: 1.0, ..Self::zero() }
    }

    fn zero() -> Self {
        Self {
            s2: 0.0,
            s3: 0.0,
            s4: 0.0,
            s22: 0.0,
            tilt: 0.0,
            t_s2: 0.0,
            t_weighted: 0.0,
            outlying: 0.0,
            s42: 0.0,
            heavier: [0.0; 7],
            leant: 1.0,
        }
    }

    /// Of scores that have this `kurtosis` (of Gaussian ones: 0).
    fn of_kurtosis(self, n: f64, kurtosis: f64) -> Self {
        let beyond = |overlap: f64, flat: f64, gain: f64| (flat + (overlap - flat) * (kurtosis * gain).exp()).min(1.0);
        let [of_s2, of_s3, of_s4, of_s22, of_s42, of_t_s2, of_leant] = self.heavier;
        let flat = n.recip();
        let square = flat * flat;
        let heavier = Self {
            s2: beyond(self.s2, flat, of_s2),
            s3: beyond(self.s3, square, of_s3),
            s4: beyond(self.s4, square * flat, of_s4),
            s22: beyond(self.s22, square, of_s22),
            s42: beyond(self.s42, square * square, of_s42),
            t_s2: self.t_s2 * (kurtosis * of_t_s2).exp(),
            ..self
        };
        // On a sphere √D I_{d/2}/I_{d/2−1} in place of the first order, within its bounds.
        let more = kurtosis * of_leant;
        let pairs = if more < 0.0 { (2.0 / (1.0 + (1.0 - 2.0 * more).sqrt())).powi(2) } else { 1.0 + more };
        let told = heavier.leaning_pairs();
        let leant = if told > 0.0 { pairs * self.leaning_pairs() / told } else { 1.0 };
        Self { t_weighted: self.t_weighted * ratio(heavier.t(), self.t()), leant, ..heavier }
    }

    fn add(&mut self, weight: f64, strength: f64, other: &Self) {
        self.s2 += weight * other.s2;
        self.s3 += weight * other.s3;
        self.s4 += weight * other.s4;
        self.s22 += weight * other.s22;
        self.tilt += weight * other.tilt;
        self.t_s2 += weight * other.t_s2;
        self.t_weighted += weight * strength * other.t();
        self.outlying += weight * other.outlying;
        self.s42 += weight * other.s42;
        for (gain, of_other) in self.heavier.iter_mut().zip(other.heavier) {
            *gain += weight * of_other;
        }
    }
}

/// Overlaps between two rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cross {
    /// S11 − 1/n.
    pub(crate) excess: f64,
    /// T11.
    pub(crate) t11: f64,
    /// E ρ T11, ρ the sampled correlation of the two queries.
    pub(crate) t11_weighted: f64,
}

static ROWS: Nodes<OVERLAPS> = Nodes::new();
static CROSSES: Nodes<CROSS_NODES> = Nodes::new();
static SHARED: Nodes<SHARED_NUMBERS> = Nodes::new();

/// Overlaps of all softmax rows of a stack, tabulated as they are met.
pub(crate) struct Overlaps {
    rows: Grid<OVERLAPS, 6>,
    crosses: Grid<CROSS_NODES, 4>,
    shared: Grid<SHARED_NUMBERS, 4>,
    /// Nodes of χ²_n/n, by the bits of n.
    chi_square: BTreeMap<u64, ChiSquare>,
    /// The bits of n and w of the row that was met last, and the row: its pairs with others ask for it again.
    last: Option<([u64; 2], Row)>,
}

/// How far lengths that stray as those of Gaussian queries are from it: rounding.
const AS_GAUSSIAN: f64 = 1e-9;

/// Three nodes and weights.
type ChiSquare = [(f64, f64); 3];

/// Chebyshev nodes in ρ of the table of S11.
const CROSS_NODES: usize = 8;
const CROSS_RANGE: [f64; 2] = [-0.7, 1.0];

const SHARED_NUMBERS: usize = shared::NUMBERS * shared::COSINES.len();
/// Score variance below which keys are unequal as where it is this.
const LEAST_SHARED: f64 = 0.05;

impl Overlaps {
    /// For rows of about `n` scores.
    pub(crate) fn new(n: f64) -> Self {
        let (rows, crosses) = (Grid::new(n.ln(), 0.25, &ROWS), Grid::new(n.ln(), 0.5, &CROSSES));
        Self { rows, crosses, shared: Grid::new(n.ln(), 1.0, &SHARED), chi_square: BTreeMap::new(), last: None }
    }

    fn chi_square(&mut self, n: f64) -> ChiSquare {
        *self.chi_square.entry(n.to_bits()).or_insert_with(|| chi_square_nodes(n))
    }

    /// One row of `n` scores of variance `w` and this `kurtosis`, from heads with `freedom` = n_h.
    pub(crate) fn row(&mut self, n: f64, w: f64, freedom: f64, kurtosis: f64) -> Row {
        if w < FINITE_HEAD_LIMIT {
            let row = self.sharp_row(n, w);
            return Row { t_weighted: row.t(), ..row };
        }
        let mut average = Row::zero();
        for (strength, weight) in self.chi_square(freedom) {
            let row = self.sharp_row(n, w * strength);
            average.add(weight, strength, &row);
        }
        average.of_kurtosis(n, kurtosis)
    }

    /// Two rows of `n` scores of variance `w` with correlation `rho`, from heads with `freedom`; what the scores
    /// deviate from that correlation is by a part `queries` of their queries, and their variances stray by a part `lengths` of what
    /// those of Gaussian queries do; scores have this `kurtosis`.
    pub(crate) fn cross(
        &mut self,
        n: f64,
        w: f64,
        rho: f64,
        [freedom, queries, lengths]: [f64; 3],
        kurtosis: f64,
    ) -> Cross {
        if w < FINITE_HEAD_LIMIT || n <= 1.0 + 1e-9 {
            let cross = self.sharp_cross(n, w, rho);
            return Cross { t11_weighted: rho * cross.t11, ..cross };
        }
        let average = if w <= SERIES_LIMIT {
            // Two nodes leave less than 0.6 % of the excess here.
            let own = freedom.recip().sqrt();
            let normal = [(-own, 0.5), (own, 0.5)];
            self.average_cross(n, w, rho, lengths, [&two_nodes(freedom), &two_nodes(freedom - 1.0), &normal])
        } else {
            let spread = (3.0 / freedom).sqrt();
            let normal = [(-spread, 1.0 / 6.0), (0.0, 2.0 / 3.0), (spread, 1.0 / 6.0)];
            let (first, second) = (self.chi_square(freedom), self.chi_square(freedom - 1.0));
            self.average_cross(n, w, rho, lengths, [&first, &second, &normal])
        };
        let expected = rho * average.t11;
        let weighted = expected + queries * (average.t11_weighted - expected);
        // Of first order: not believed to change more than half of what is there.
        let [overlap, slope] = self.heavier_cross(n, w.min(LARGEST), rho, kurtosis);
        let believed = |change: f64, what: f64| change.max(-0.5 * what.abs()).min(0.5 * what.abs());
        let (overlap, slope) = (believed(overlap, average.excess), believed(slope, average.t11));
        Cross { excess: average.excess + overlap, t11: average.t11 + slope, t11_weighted: weighted + rho * slope }
    }

    /// What rows of `n` scores of variance `w` whose queries have the cosine `rho` make of keys, from heads with `freedom`.
    pub(crate) fn shared(&mut self, n: f64, w: f64, rho: f64, freedom: f64) -> Shared {
        if n <= 1.0 + 1e-9 {
            return Shared { followed: [1.0; 3], own: 1.0, between: 1.0 };
        }
        let met = w.clamp(LEAST_SHARED, LARGEST);
        let table = self.shared.at(n.ln(), met.ln(), &|ln_n, ln_w| shared::numbers(ln_n.exp(), ln_w.exp()));
        let rho = rho.max(0.0);
        let [first, second, _] = shared::COSINES;
        let weights: [f64; shared::COSINES.len()] = lagrange_weights((rho - first) / (second - first));
        let numbers = std::array::from_fn(|place| {
            weights.iter().enumerate().map(|(at, weight)| weight * table[at * shared::NUMBERS + place]).sum()
        });
        Shared::of(n, met.min(w) * rho, freedom, numbers)
    }

    /// What `kurtosis` adds to S11 and T11.
    fn heavier_cross(&mut self, n: f64, w: f64, rho: f64, kurtosis: f64) -> [f64; 2] {
        if kurtosis == 0.0 {
            return [0.0; 2];
        }
        let row = self.sharp_row(n, w);
        let heavier = row.of_kurtosis(n, kurtosis);
        let bend = 1.0 - 3.0 * row.s2 + 2.0 * row.s3;
        let apart = kurtosis * (w * bend).powi(2) / (12.0 * (n - 1.0));
        let wider = heavier.s2 - row.s2;
        let between = |apart: f64, same: f64| apart + (same - apart) * rho * (2.0 + rho) / 3.0;
        [between(apart, wider), between(apart - 2.0 * (1.0 - row.s2) * wider / (n - 1.0), heavier.t() - row.t())]
    }

    /// Average over the Wishart distribution of two rows (E ρ T11 with that of the scores), by Bartlett's
    /// decomposition: χ² of the first row, χ² of the second given the first, and their normal product, as nodes and
    /// weights.
    fn average_cross(
        &mut self,
        n: f64,
        w: f64,
        rho: f64,
        lengths: f64,
        [first, second, normal]: [&[(f64, f64)]; 3],
    ) -> Cross {
        let own = (1.0 - rho * rho).max(0.0).sqrt();
        let freedom_less_one = 1.0 - normal.iter().map(|(x, weight)| weight * x * x).sum::<f64>();
        let mut average = Cross::default();
        for &(a, weight_a) in first {
            for &(b, weight_b) in second {
                for &(x, weight_x) in normal {
                    let weight = weight_a * weight_b * weight_x;
                    let own_second = own * own * (x * x + b * freedom_less_one);
                    let other = rho * rho * a + 2.0 * rho * own * a.sqrt() * x + own_second;
                    let product = rho * a + own * a.sqrt() * x;
                    let strength = (a * other).sqrt();
                    let cosine = (product / strength).clamp(-1.0, 1.0);
                    let strength = if (lengths - 1.0).abs() > AS_GAUSSIAN { strength.powf(lengths) } else { strength };
                    let cross = self.sharp_cross(n, w * strength, cosine);
                    average.excess += weight * cross.excess;
                    average.t11 += weight * strength * cross.t11;
                    average.t11_weighted += weight * strength * cosine * cross.t11;
                }
            }
        }
        average
    }

    /// One row, its score variance exactly `w`.
    pub(crate) fn sharp_row(&mut self, n: f64, w: f64) -> Row {
        if n <= 1.0 + 1e-9 {
            return Row::one_hot();
        }
        if w > LARGEST {
            return self.sharp_row(n, LARGEST).towards_one_hot((LARGEST / w).sqrt());
        }
        let place = [n, w].map(f64::to_bits);
        if let Some((_, row)) = self.last.filter(|(last, _)| *last == place) {
            return row;
        }
        let slopes = self.rows.at(n.ln(), w.max(SMALLEST).ln(), &|ln_n, ln_w| {
            let (n, w) = (ln_n.exp(), ln_w.exp());
            let [s2, s3, s4, s22, tilt, t_s2, outlying, s42, more @ ..] = row_overlaps(n, w);
            let leant = w * Row { s2, s3, s4, s22, ..Row::zero() }.leaning_pairs();
            let t = s2 - 2.0 * s3 + s22;
            // What of flat attention is there: of S2, S3, S4, S22, E ΣA⁴ ΣA², and of what passes and leans nothing.
            let flat = [n.recip(), n.powi(-2), n.powi(-3), n.powi(-2), n.powi(-4)];
            let gain = |more: f64, overlap: f64, flat: f64| more / ((overlap - flat) * w);
            let [more_s2, more_s3, more_s4, more_s22, more_t_s2, more_s42, more_leant] = more;
            let heavier = [
                gain(more_s2, s2, flat[0]),
                gain(more_s3, s3, flat[1]),
                gain(more_s4, s4, flat[2]),
                gain(more_s22, s22, flat[3]),
                gain(more_s42, s42, flat[4]),
                gain(more_t_s2, t_s2, 0.0),
                gain(more_leant, leant, 0.0),
            ];
            let of_flat =
                [s2 / flat[0], s3 / flat[1], s4 / flat[2], s22 / flat[3], tilt / t, t_s2 / (t * s2), s42 / flat[4]];
            // Between one score and two, U may vanish.
            let [s2, s3, s4, s22, tilt, t_s2, s42] = of_flat.map(|ratio| ratio.max(1e-12).ln() / w);
            let mut told = [0.0; OVERLAPS];
            let (slopes, gains) = told.split_at_mut(OVERLAPS - heavier.len());
            slopes.copy_from_slice(&[s2, s3, s4, s22, tilt, t_s2, outlying / (t * w), s42]);
            gains.copy_from_slice(&heavier);
            told
        });
        let [s2, s3, s4, s22, tilt, t_s2, outlying, s42, heavier @ ..] = slopes;
        let [s2, s3, s4, s22, tilt, t_s2, s42] = [s2, s3, s4, s22, tilt, t_s2, s42].map(|slope| (slope * w).exp());
        let row = Row {
            s2: s2 / n,
            s3: s3 / (n * n),
            s4: s4 / n.powi(3),
            s22: s22 / (n * n),
            s42: s42 / n.powi(4),
            heavier: heavier.map(|gain| gain * w),
            ..Row::zero()
        };
        let t = row.t();
        let row = Row { tilt: tilt * t, t_s2: t_s2 * t * row.s2, outlying: outlying * w * t, ..row };
        self.last = Some((place, row));
        row
    }

    /// d ln S2/d ln w and d ln T/d ln w of a row of score variance exactly `w`.
    pub(crate) fn growth(&mut self, n: f64, w: f64) -> [f64; 2] {
        /// Factor on w over which they are taken.
        const SHARPER: f64 = 1.05;
        let (exact, sharper) = (self.sharp_row(n, w), self.sharp_row(n, w * SHARPER));
        [(sharper.s2, exact.s2), (sharper.t(), exact.t())]
            .map(|(sharper, exact)| if exact > 0.0 { (sharper / exact).ln() / SHARPER.ln() } else { 0.0 })
    }

    /// Two rows, their score variance exactly `w` and their correlation exactly `rho`.
    pub(crate) fn sharp_cross(&mut self, n: f64, w: f64, rho: f64) -> Cross {
        if n <= 1.0 + 1e-9 || w <= 0.0 {
            return Cross::default();
        }
        if w > LARGEST {
            let cross = self.sharp_cross(n, LARGEST, rho);
            return Cross { t11: cross.t11 * LARGEST / w, ..cross };
        }
        let row = self.sharp_row(n, w);
        let first = w * (1.0 - row.s2).powi(2) / (n - 1.0);
        let (excess, slope) = if w <= SERIES_LIMIT {
            series(n, w, rho, &row, first)
        } else {
            let series = self.crosses.at(n.ln(), w.ln(), &|ln_n, ln_w| {
                let (n, w) = (ln_n.exp(), ln_w.exp());
                let first = w * (1.0 - row_overlaps(n, w)[0]).powi(2) / (n - 1.0);
                chebyshev_series(|rho| ((cross_overlap(n, w, rho) - 1.0 / n) / (rho * first)).ln())
            });
            let (ln_ratio, ln_slope) = chebyshev(&series, rho);
            let ratio = first * ln_ratio.exp();
            (rho * ratio, ratio * (1.0 + rho * ln_slope))
        };
        Cross { excess, t11: slope / w, t11_weighted: 0.0 }
    }
}

/// S11 − 1/n and dS11/dρ by the series.
fn series(n: f64, w: f64, rho: f64, row: &Row, first: f64) -> (f64, f64) {
    let b3 = row.bend() / n;
    let b21 = b3 / (n - 1.0);
    let triples = if n > 2.0 + 1e-6 { 4.0 * b21 * b21 * (n - 1.0) / (n - 2.0) } else { 0.0 };
    let second = 0.5 * w * w * n * (b3 * b3 + 3.0 * (n - 1.0) * b21 * b21 + triples);
    let rest = (row.s2 - 1.0 / n - first - second).max(0.0);
    let rest_slope = (w * row.t() - first - 2.0 * second).max(0.0);
    let mut excess = rho * (first + rho * second);
    let mut slope = first + 2.0 * rho * second;
    // Less is rounding of the integrals.
    if rest > 1e-9 * row.s2 {
        let degree = (rest_slope / rest).max(3.0);
        let power = rho.abs().powf(degree - 1.0);
        // Odd, like the leading term ρ³ of what is left.
        excess += rest * power * rho;
        slope += rest * degree * power;
    }
    (excess, slope)
}

/// Middle and half of the width of [`CROSS_RANGE`].
const fn cross_range() -> (f64, f64) {
    let [lower, upper] = CROSS_RANGE;
    (0.5 * (lower + upper), 0.5 * (upper - lower))
}

/// The Chebyshev series in ρ of the interpolant through `f` at as many nodes.
fn chebyshev_series(f: impl Fn(f64) -> f64) -> [f64; CROSS_NODES] {
    let (middle, half) = cross_range();
    let count = CROSS_NODES as f64;
    let angle = |i: usize| std::f64::consts::PI * (i as f64 + 0.5) / count;
    let values: [f64; CROSS_NODES] = std::array::from_fn(|i| f(middle + half * angle(i).cos()));
    std::array::from_fn(|k| {
        let sum: f64 = (0..CROSS_NODES).map(|i| values[i] * (k as f64 * angle(i)).cos()).sum();
        sum * if k == 0 { 1.0 } else { 2.0 } / count
    })
}

/// Value and slope in ρ of a Chebyshev series.
fn chebyshev(series: &[f64; CROSS_NODES], rho: f64) -> (f64, f64) {
    let (middle, half) = cross_range();
    let rho = rho.max(CROSS_RANGE[0]);
    let x = ((rho - middle) / half).clamp(-1.0, 1.0);
    let (mut value, mut slope) = (0.0, 0.0);
    // T_k and U_{k−1} by their recurrences.
    let (mut t, mut t_next, mut u, mut u_next) = (1.0, x, 0.0, 1.0);
    for (k, coefficient) in series.iter().enumerate() {
        value += coefficient * t;
        slope += coefficient * k as f64 * u;
        (t, t_next) = (t_next, 2.0 * x * t_next - t);
        (u, u_next) = (u_next, 2.0 * x * u_next - u);
    }
    (value, slope / half)
}

/// Two Gauss nodes (value, weight) of χ²_n/n.
fn two_nodes(n: f64) -> [(f64, f64); 2] {
    let shape = 0.5 * n.max(1.0);
    let (middle, half) = ((shape + 1.0) / shape, (shape + 1.0).sqrt() / shape);
    let lower = (middle + half - 1.0) / (2.0 * half);
    [(middle - half, lower), (middle + half, 1.0 - lower)]
}

/// Three Gauss nodes (value, weight) of χ²_n/n: eigenvalues of the Jacobi matrix of the Laguerre
/// polynomials (Golub & Welsch 1969).
fn chi_square_nodes(n: f64) -> ChiSquare {
    let shape = 0.5 * n.max(1.0);
    let jacobi = DMatrix::from_fn(3, 3, |i, j| match i.abs_diff(j) {
        0 => (2.0 * i as f64 + shape) / shape,
        1 => {
            let k = i.max(j) as f64;
            (k * (k + shape - 1.0)).sqrt() / shape
        }
        _ => 0.0,
    });
    let eigen = SymmetricEigen::new(jacobi);
    std::array::from_fn(|i| (eigen.eigenvalues[i].max(0.0), eigen.eigenvectors[(0, i)].powi(2)))
}

#[cfg(test)]
mod tests;
