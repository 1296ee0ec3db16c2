//! Moments of p − y, softmax less one-hot target, and the loss.

use crate::rules::softmax::{Apart, Overlaps, ln_partition};

/// The law of the logits of a head.
pub(super) struct Logits {
    /// V.
    pub(super) vocab_size: f64,
    /// d.
    pub(super) width: f64,
    /// w, of one logit.
    pub(super) variance: f64,
    /// Between what two tokens give to the head.
    pub(super) cosine: f64,
    /// Probability that two tokens, or a token and its target, are the same.
    pub(super) repeat: f64,
    /// c, of a tied head.
    pub(super) own: Option<f64>,
}

/// What the loss makes of them.
pub(super) struct Residual {
    /// E loss.
    pub(super) cross_entropy: f64,
    /// E |p − y|² of a token.
    pub(super) own: f64,
    /// Its part across what the head reads, which passes the norm.
    pub(super) across: f64,
    /// E (p_a − y_a)·(p_b − y_b) of two tokens.
    pub(super) between: f64,
}

impl Residual {
    pub(super) fn new(logits: &Logits) -> Self {
        match logits.own {
            Some(cosine) => Self::tied(logits, cosine),
            None => Self::untied(logits),
        }
    }

    fn untied(&Logits { vocab_size, width: _, variance, cosine, repeat, own: _ }: &Logits) -> Self {
        let mut overlaps = Overlaps::new(vocab_size);
        let row = overlaps.sharp_row(vocab_size, variance);
        let cross = overlaps.sharp_cross(vocab_size, variance, cosine);
        let own = 1.0 - 2.0 / vocab_size + row.s2;
        let cross_entropy = ln_partition(vocab_size, variance);
        Self { cross_entropy, own, across: own, between: repeat - 1.0 / vocab_size + cross.excess }
    }

    fn tied(logits: &Logits, own_cosine: f64) -> Self {
        let &Logits { vocab_size, width, variance, cosine, repeat, own: _ } = logits;
        let square = own_cosine * own_cosine;
        let mean = own_cosine * (width * variance).sqrt();
        let row = Apart::new(vocab_size - 1.0, variance, [mean, variance * (1.0 - 0.5 * square)]);
        let other = 1.0 - row.own;
        let target = repeat * row.own + (1.0 - repeat) * other / (vocab_size - 1.0);
        let own = 1.0 - 2.0 * target + row.own_square + row.others;
        let along = row.own_square - 2.0 * repeat * row.own + repeat;
        let shared = 1.0 / vocab_size + Overlaps::new(vocab_size).sharp_cross(vocab_size, variance, cosine).excess;
        let overlap = other * other * shared + 2.0 * row.own * other / vocab_size + repeat * row.own * row.own;
        Self {
            cross_entropy: row.ln_partition - repeat * mean,
            own,
            across: own - square * along,
            between: repeat - 2.0 * target + overlap,
        }
    }
}
