//! Tokens that are exchangeable but for what class their pair belongs to.
//!
//! All tokens have the same moments; ordered pairs of different tokens fall into a few classes
//! (same id, different ids …), each with its share of the pairs and its own cosine.

use std::sync::Arc;

use super::without_rounding;
use crate::rules::softmax::repeats::Repeats;

/// A class of ordered pairs of different tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PairClass {
    /// Its share of all pairs.
    pub(crate) share: f64,
    /// Whether its two tokens carry the same id.
    pub(crate) same_id: bool,
    /// Whether its two tokens lie in the same segment.
    pub(crate) same_segment: bool,
}

/// How many tokens there are and how their pairs fall into classes.
///
/// With E_ab = 1 where a and b carry the same id, C the matrix that centres rows and columns, what
/// attention sees of the repeats is ‖C E C‖². Common ids have large rows in E, which centring takes
/// off, so that this takes the probabilities of pairs *and* triples of equal ids; likewise for
/// segments.
#[derive(Clone, Debug)]
pub(crate) struct Exchangeable {
    pub(crate) seq_len: f64,
    pub(crate) classes: Vec<PairClass>,
    /// ‖C E C‖²/`seq_len`² of equal ids.
    pub(crate) id_spread: f64,
    /// ‖C E C‖²/`seq_len`² of equal segments.
    pub(crate) segment_spread: f64,
    /// Probability that three tokens carry the same id.
    pub(crate) id_triple: f64,
    /// Probability that three tokens lie in the same segment.
    pub(crate) segment_triple: f64,
    /// How often ids repeat; none without ids.
    pub(crate) repeats: Arc<Repeats>,
    /// Shares of the smaller of two segments, each as likely; none without segments.
    pub(crate) segments: &'static [f64],
}

/// The average over `shares` of segments; 0 without any.
pub(crate) fn mean_share(shares: &[f64], of: impl Fn(f64) -> f64) -> f64 {
    let sum: f64 = shares.iter().map(|&z| of(z)).sum();
    sum / shares.len().max(1) as f64
}

impl Exchangeable {
    /// Tokens without ids and segments.
    pub(crate) fn plain(seq_len: f64, classes: Vec<PairClass>) -> Self {
        Self {
            seq_len,
            classes,
            id_spread: 0.0,
            segment_spread: 0.0,
            id_triple: 0.0,
            segment_triple: 0.0,
            repeats: Arc::default(),
            segments: &[],
        }
    }

    /// Two draws of the ids, with their weights, between which the shares p₂, p₃ of pairs and triples of equal ids
    /// stray as those of n = p₂³/p₃² ids with Poisson numbers of tokens, λ = L p₃/p₂ on average, do:
    ///
    /// ```text
    /// Var p₂/p₂² = (4/λ + 2/λ²)/n     Var p₃/p₃² = (9/λ + 18/λ² + 6/λ³)/n
    /// ```
    ///
    /// Both are taken as log-normal and as going together (their correlation is 0.97 for large λ).
    pub(super) fn draws(&self) -> Vec<(f64, Self)> {
        let pair = self.share_of(|class| class.same_id);
        if pair <= 0.0 || pair >= 1.0 || self.id_triple <= 0.0 {
            return vec![(1.0, self.clone())];
        }
        let tokens = self.seq_len * self.id_triple / pair;
        let ids = pair.powi(3) / self.id_triple.powi(2);
        let spreads = [
            (4.0 / tokens + 2.0 / tokens.powi(2)) / ids,
            (9.0 / tokens + 18.0 / tokens.powi(2) + 6.0 / tokens.powi(3)) / ids,
        ];
        let factors = |sign: f64| spreads.map(|spread| (sign * spread.ln_1p().sqrt() - 0.5 * spread.ln_1p()).exp());
        let (many, few) = (factors(1.0), factors(-1.0));
        // So that the mean of p₂ stays.
        let weight = (1.0 - few[0]) / (many[0] - few[0]);
        let draw = |[pairs, triples]: [f64; 2]| {
            let equal = (pair * pairs).min(1.0);
            let class = |class: &PairClass| {
                let share = if class.same_id { equal / pair } else { (1.0 - equal) / (1.0 - pair) };
                PairClass { share: class.share * share, ..*class }
            };
            let classes = self.classes.iter().map(class).collect();
            Self { classes, id_triple: (self.id_triple * triples).min(equal), ..self.clone() }
        };
        vec![(weight, draw(many)), (1.0 - weight, draw(few))]
    }

    /// Average over all pairs.
    pub(crate) fn mean(&self, cosines: &[f64]) -> f64 {
        self.classes.iter().zip(cosines).map(|(class, cosine)| class.share * cosine).sum()
    }

    /// Averages over all pairs of functions of several cosines.
    pub(crate) fn mean_of<const M: usize, const N: usize>(
        &self,
        cosines: [&[f64]; M],
        pair: impl Fn([f64; M]) -> [f64; N],
    ) -> [f64; N] {
        let mut sums = [0.0; N];
        for (place, class) in self.classes.iter().enumerate() {
            let f = pair(cosines.map(|cosines| cosines[place]));
            sums.iter_mut().zip(f).for_each(|(sum, f)| *sum += class.share * f);
        }
        sums
    }

    /// Average over all pairs of a product.
    pub(crate) fn mean_product(&self, a: &[f64], b: &[f64]) -> f64 {
        self.classes.iter().zip(a).zip(b).map(|((class, a), b)| class.share * a * b).sum()
    }

    /// ⟨C K C, C M C⟩/`seq_len`² of two matrices with diagonal 1 and the cosines `k`, `m`.
    pub(crate) fn spread(&self, k: &[f64], m: &[f64]) -> f64 {
        let trace = |same: f64| (1.0 - 1.0 / self.seq_len) * (1.0 - same) / self.seq_len;
        let (k_id, k_segment, k_own) = self.parts(k);
        let (m_id, m_segment, m_own) = self.parts(m);
        // Who carries which id knows nothing of segments: rows of C S C add up to nothing.
        let across = (k_id * m_segment + k_segment * m_id) * (1.0 - self.share_of(|class| class.same_id));
        k_id * m_id * self.id_spread
            + k_segment * m_segment * self.segment_spread
            + (k_id * m_own + k_own * m_id) * trace(self.share_of(|class| class.same_id))
            + (k_segment * m_own + k_own * m_segment + across) * trace(self.share_of(|class| class.same_segment))
            + k_own * m_own * trace(0.0)
    }

    /// What two tokens of one id and two of one segment have in common beyond what all have, and what all have.
    pub(crate) fn likeness(&self, cosines: &[f64]) -> [f64; 3] {
        let (id, segment, own) = self.parts(cosines);
        [id, segment, 1.0 - id - segment - own]
    }

    /// Cosines as constant + id part (same id) + segment part (same segment) + own part (diagonal).
    fn parts(&self, cosines: &[f64]) -> (f64, f64, f64) {
        let contrast = |of: &dyn Fn(&PairClass) -> bool| {
            let share = self.share_of(of);
            if share <= 0.0 || share >= 1.0 {
                return 0.0;
            }
            let sum: f64 = self.classes.iter().zip(cosines).filter(|(c, _)| of(c)).map(|(c, x)| c.share * x).sum();
            sum / share - (self.mean(cosines) - sum) / (1.0 - share)
        };
        let id = contrast(&|class| class.same_id);
        let segment = contrast(&|class| class.same_segment);
        let constant = self.mean(cosines)
            - id * self.share_of(|class| class.same_id)
            - segment * self.share_of(|class| class.same_segment);
        (id, segment, 1.0 - constant - id - segment)
    }

    /// Of all pairs, those of some classes.
    pub(crate) fn share_of(&self, of: impl Fn(&PairClass) -> bool) -> f64 {
        self.classes.iter().filter(|class| of(class)).map(|class| class.share).sum()
    }

    /// Σ over pairs a ≠ b of x_a·g_a x_b·g_b and its diagonal, per token, in units of the diagonal, from the average
    /// over pairs: what multiplies `seq_len` E x² E g² in the gradient of a weight.
    pub(crate) fn coherence(&self, mean_product: f64) -> f64 {
        without_rounding(1.0 + (self.seq_len - 1.0) * mean_product)
    }
}
