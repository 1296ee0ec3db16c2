//! Moments of J (p − y), softmax less one-hot target times the slope of the soft cap, and the loss; of tied heads in
//! `tied.rs`.

use super::apart::Apart;
use super::targets::Repeats;
use crate::mean_field::softmax::Rows;

/// The law of the logits of a head.
pub(super) struct Logits {
    /// V.
    pub(super) vocab_size: f64,
    /// d.
    pub(super) width: f64,
    /// w, of one logit before the soft cap.
    pub(super) variance: f64,
    /// c.
    pub(super) softcap: Option<f64>,
    /// Between what two tokens give to the head, all pairs together.
    pub(super) cosine: f64,
    /// c² between what a token gives to the head and its own embedding, by which tokens of equal ids are more alike.
    pub(super) own: f64,
    /// How often tokens are the same.
    pub(super) repeats: Repeats,
    /// L.
    pub(super) seq_len: f64,
}

/// What the loss makes of them.
pub(super) struct Residual {
    /// E loss.
    pub(super) cross_entropy: f64,
    /// E |J (p − y)|² of a token.
    pub(super) size: f64,
    /// The same across what the head reads, which passes the norm.
    pub(super) across: f64,
    /// E J_a (p_a − y_a)·J_b (p_b − y_b) of two tokens.
    pub(super) between: f64,
    /// L E |dL/dW|²/(d E x²) of all rows of the head, with what else a table it shares gathers but for |dL/de|².
    pub(super) table: f64,
    /// `between` of tokens of equal ids, across what the head reads.
    pub(super) alike: f64,
    /// E p of the token just read, which a tied head tells from others.
    pub(super) read: f64,
}

impl Residual {
    pub(super) fn untied(logits: &Logits) -> Self {
        let &Logits { vocab_size, variance, softcap, repeats, seq_len, .. } = logits;
        let row = Apart::new(vocab_size - 1.0, variance, [0.0, variance], softcap);
        let score = row.own_score;
        let size = row.own.square + row.others.square - 2.0 * row.own.sloped_twice + score.slope_square;
        let [same, other] = logits.cosines();
        let (of_same, of_other) = (logits.between(&row, same), logits.between(&row, other));
        let repeat = repeats.two;
        let between = repeat * of_same + (1.0 - repeat) * of_other;
        let head = repeat * same * of_same + (1.0 - repeat) * other * of_other;
        Self {
            cross_entropy: row.ln_partition - score.mean,
            size,
            across: size,
            between,
            table: size + (seq_len - 1.0) * head,
            alike: of_same,
            read: row.own.mean,
        }
    }
}

impl Residual {
    /// Correlations of what passes the norm, between tokens of other ids and of equal ones.
    pub(super) fn correlations(&self, repeats: &Repeats) -> [f64; 2] {
        let other = (self.between - repeats.two * self.alike) / (1.0 - repeats.two).max(f64::MIN_POSITIVE);
        [other, self.alike].map(|product| (product / self.across).clamp(0.0, 1.0))
    }
}

impl Logits {
    /// Between tokens of equal ids, and between those of others.
    pub(super) fn cosines(&self) -> [f64; 2] {
        let other = self.cosine - self.repeats.two * self.own;
        [(other + self.own).min(1.0), other]
    }

    /// E J_a (p_a − y_a)·J_b (p_b − y_b) of two tokens with this cosine, all rows of the head being alike.
    fn between(&self, row: &Apart, cosine: f64) -> f64 {
        let score = row.own_score;
        // Slopes are even in the logits: what two tokens have of them in common goes with ρ².
        let common = |apart: f64, same: f64| apart + (same - apart) * cosine * cosine;
        let targets = common(score.slope * score.slope, score.slope_square);
        let one_target = common(row.own.sloped * score.slope, row.own.sloped_twice);
        let overlap = self.overlap(row, row.own.sloped + row.others.sloped, cosine);
        self.repeats.two * targets - 2.0 * one_target + overlap
    }

    /// E Σ_v p_av p_bv J_av J_bv of two tokens with this cosine over logits that are alike, Σ E p J being `sloped`. Under
    /// a soft cap weights are as alike as those of Gaussian logits of the same variance.
    pub(super) fn overlap(&self, row: &Apart, sloped: f64, cosine: f64) -> f64 {
        let vocab_size = self.vocab_size;
        let variance = row.other_score.square;
        let row = Rows::row(vocab_size, variance);
        let [overlap, _] = row.with(&row, cosine);
        sloped * sloped * (1.0 + variance * (1.0 - 1.0 / vocab_size) * cosine * overlap) / vocab_size
    }
}
