//! Moments of p − y, softmax less one-hot target, and the loss; of tied heads in `tied.rs`.

use super::targets::Repeats;
use crate::rules::softmax::{Overlaps, ln_partition};

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
    /// How often tokens are the same.
    pub(super) repeats: Repeats,
    /// L.
    pub(super) seq_len: f64,
}

/// What the loss makes of them.
pub(super) struct Residual {
    /// E loss.
    pub(super) cross_entropy: f64,
    /// E |p − y|² of a token across what the head reads, which passes the norm.
    pub(super) across: f64,
    /// E (p_a − y_a)·(p_b − y_b) of two tokens.
    pub(super) between: f64,
    /// L E |dL/dW|²/(d E x²) of all rows of the head, with what else a table it shares gathers but for |dL/de|².
    pub(super) table: f64,
    /// E p of the token just read, which a tied head tells from others.
    pub(super) read: f64,
}

impl Residual {
    pub(super) fn untied(logits: &Logits) -> Self {
        let &Logits { vocab_size, width: _, variance, cosine, repeats, seq_len } = logits;
        let mut overlaps = Overlaps::new(vocab_size);
        let row = overlaps.sharp_row(vocab_size, variance);
        let cross = overlaps.sharp_cross(vocab_size, variance, cosine);
        let own = 1.0 - 2.0 / vocab_size + row.s2;
        let cross_entropy = ln_partition(vocab_size, variance);
        let between = repeats.two - 1.0 / vocab_size + cross.excess;
        Self {
            cross_entropy,
            across: own,
            between,
            table: own + (seq_len - 1.0) * cosine * between,
            read: 1.0 / vocab_size,
        }
    }
}
