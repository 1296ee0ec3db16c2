//! Keys as the softmax sees them.

use sigprop_stack::Attention;

use crate::domain::{Exchangeable, Signal};
use crate::rules::attention::{SHARPEST_SAMPLED, Scores};

/// ln of the score variance beyond which only T ~ w^(−½) goes on.
const LARGEST_LN_SCORE: f64 = 400.0;

/// Keys as the softmax sees them.
pub(super) struct Keys {
    /// n_e.
    pub(super) effective: f64,
    /// What multiplies S − 1/n_e in the output, in units of E v².
    pub(super) amplitude: f64,
    pub(super) key_cosine: f64,
    pub(super) value_cosine: f64,
    /// Share of the spread of the keys that comes from repeated ids and segments.
    pub(super) grouped: f64,
    /// v, as far as f64 holds it with room to spare.
    pub(super) score_variance: f64,
    /// E (d score after the cap/d score)².
    pub(super) score_slope: f64,
    /// Why the cap is not taken exactly.
    pub(super) cap: Option<(&'static str, String)>,
    /// ln of the rest of v.
    pub(super) ln_beyond: f64,
    /// w.
    pub(super) contrast: f64,
}

impl Keys {
    pub(super) fn new(
        attention: &Attention,
        domain: &Exchangeable,
        query: &Signal,
        key: &Signal,
        value: &Signal,
    ) -> Self {
        let length = domain.seq_len;
        let (key_cosine, value_cosine) = (domain.mean(&key.cosines), domain.mean(&value.cosines));
        let distance = 1.0 - key_cosine;
        let scores = Scores::new(attention, query.token().ln_second + key.token().ln_second);
        let score_slope = scores.slope;
        let cap = scores.caveat();
        let ln_score_variance = scores.ln_variance;
        let score_variance = ln_score_variance.min(LARGEST_LN_SCORE).exp();
        let ln_beyond = (ln_score_variance - LARGEST_LN_SCORE).max(0.0);
        if distance <= 1e-12 || length < 2.0 {
            let amplitude = 1.0 - value_cosine;
            return Self {
                effective: length,
                amplitude,
                grouped: 0.0,
                key_cosine,
                value_cosine,
                score_variance,
                score_slope,
                cap: None,
                ln_beyond,
                contrast: 0.0,
            };
        }
        let trace = (1.0 - 1.0 / length) * distance;
        let spread = domain.spread(&key.cosines, &key.cosines);
        let effective = 1.0 + (trace * trace / spread).min(length - 1.0);
        let contrast = score_variance * trace * effective / (effective - 1.0);
        Self {
            effective,
            // Of tokens that are copies only rounding is left.
            amplitude: (effective * domain.spread(&key.cosines, &value.cosines) / trace).max(0.0),
            grouped: 1.0 - (effective - 1.0) / (length - 1.0),
            key_cosine,
            value_cosine,
            score_variance,
            score_slope,
            cap,
            ln_beyond,
            contrast,
        }
    }

    /// E |Σ_b v_b/L|² of flat attention, in units of E v².
    pub(super) fn average(&self, length: f64) -> f64 {
        self.value_cosine * (1.0 - 1.0 / length) + 1.0 / length
    }

    /// E Σ A² over single keys, from that over effective ones.
    pub(super) fn single(&self, s2: f64, length: f64) -> f64 {
        s2 * self.effective / length
    }

    /// B: what pulls of queries are in units of, of E v².
    pub(super) fn pull(&self, concentration: f64) -> f64 {
        // Beyond what was sampled it is not let grow.
        let variance = self.score_variance.min(SHARPEST_SAMPLED / (1.0 - self.key_cosine).max(1e-3));
        variance * (1.0 - self.key_cosine) * (1.0 - self.value_cosine) * concentration
    }
}
