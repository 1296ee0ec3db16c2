//! The row of a query, whose keys have a part of their own and one that near keys have in common.
//!
//! With D_s, s and s' for D, tr and tr' of the smooth parts of keys and values alone, it is like two rows of equal keys:
//!
//! ```text
//! own      n = 1 + (tr tr' − s s')/(D − D_s)      w = v Q_aa tr n/(n − 1)      which is n = Z_a where ids do not repeat
//! smooth   n = 1 + s s'/D_s                       w = v Q_aa s n/(n − 1)
//! D σ = (D − D_s) σ_own + D_s σ_smooth            D τ likewise, of a query and of pairs; ΣA² as the own row has it
//! ```
//!
//! Own parts alone make k equal keys, a smooth part alone a few: each is exact in its limit of many keys.
//!
//! Assumption: σ and τ of one part hardly depend on the other. Source: ours.

use crate::mean_field::scalar::{Few, Scalar};
use crate::mean_field::softmax::{Row, Rows};

/// The keys that queries see.
pub(super) struct Keys<S> {
    /// n of own parts of every query.
    own: Few<S>,
    smooth: Option<Smooth<S>>,
}

/// Smooth parts.
struct Smooth<S> {
    /// n and s of every query.
    keys: Few<S>,
    trace: Few<S>,
    /// D_s/D of every query, and at the points of a class of pairs.
    share: Few<S>,
    share_of_pairs: Few<S>,
}

/// tr tr' and D of every query.
pub(super) struct Moments<S> {
    pub(super) traces: Few<S>,
    pub(super) spread: Few<S>,
}

impl<S: Scalar> Keys<S> {
    /// Of keys that have no smooth part: n between 1 and `most`.
    pub(super) fn alike(all: &Moments<S>, most: &[f64]) -> Self {
        let own = all.traces.iter().zip(&all.spread).zip(most);
        Self { own: own.map(|((&traces, &spread), &most)| effective(traces, spread, most)).collect(), smooth: None }
    }

    /// From what is of all parts and of smooth ones, whose s is `trace` and whose D_s/D of pairs is `share_of_pairs`.
    pub(super) fn with_smooth(
        [all, smooth]: [&Moments<S>; 2],
        trace: Few<S>,
        share_of_pairs: Few<S>,
        most: &[f64],
    ) -> Self {
        let less = |of: &Few<S>, part: &Few<S>| of.iter().zip(part).map(|(&of, &part)| of - part).collect();
        let own = Moments { traces: less(&all.traces, &smooth.traces), spread: less(&all.spread, &smooth.spread) };
        let share = smooth.spread.iter().zip(&all.spread).map(|(&part, &all)| share(part, all)).collect();
        let Self { own: keys, .. } = Self::alike(smooth, most);
        Self { smooth: Some(Smooth { keys, trace, share, share_of_pairs }), ..Self::alike(&own, most) }
    }

    /// The row of a query, from the variance of its scores per E k² and tr.
    pub(super) fn row(&self, node: usize, score: S, trace: S) -> QueryRow<S> {
        let own = equal_keys(self.own[node], score, trace);
        match &self.smooth {
            Some(Smooth { keys, trace, share, .. }) if share[node].value() > 0.0 && trace[node].value() > 0.0 => {
                QueryRow { own, smooth: equal_keys(keys[node], score, trace[node]), share: share[node] }
            }
            Some(_) | None => QueryRow { own, smooth: own, share: S::from(0.0) },
        }
    }

    /// σ and τ of two queries at a point.
    pub(super) fn with(&self, point: usize, [a, c]: [&QueryRow<S>; 2], correlation: S) -> [S; 2] {
        let own = a.own.with(&c.own, correlation);
        let Some(smooth) = &self.smooth else { return own };
        let share = smooth.share_of_pairs[point % smooth.share_of_pairs.len()];
        if share.value() <= 0.0 {
            return own;
        }
        let smooth = a.smooth.with(&c.smooth, correlation);
        [0, 1].map(|index| own[index] + (smooth[index] - own[index]) * share)
    }
}

/// `part`/`all` between 0 and 1.
pub(super) fn share<S: Scalar>(part: S, all: S) -> S {
    if part.value() > 0.0 && all.value() > 0.0 { (part / all).clamped(0.0, 1.0) } else { S::from(0.0) }
}

/// 1 + tr tr'/D, between 1 and `most`.
fn effective<S: Scalar>(traces: S, spread: S, most: f64) -> S {
    if most < 1.5 || spread.value() <= 0.0 || traces.value() <= 0.0 {
        return S::from(most);
    }
    (traces / spread + 1.0).clamped(1.0, most)
}

/// A row of so many keys, from the variance of its scores per E k² and tr.
fn equal_keys<S: Scalar>(keys: S, score: S, trace: S) -> Row<S> {
    if keys.value() <= 1.0 + 1e-9 || trace.value() <= 0.0 {
        return Row::constant(keys);
    }
    Rows::row(keys, score * trace * keys / (keys - 1.0))
}

/// The row of a query.
#[derive(Clone, Copy)]
pub(super) struct QueryRow<S> {
    pub(super) own: Row<S>,
    pub(super) smooth: Row<S>,
    /// D_s/D.
    pub(super) share: S,
}

impl<S: Scalar> QueryRow<S> {
    fn mixed(&self, of: impl Fn(&Row<S>) -> S) -> S {
        let own = of(&self.own);
        own + (of(&self.smooth) - own) * self.share
    }

    /// σ(1).
    pub(super) fn squares(&self) -> S {
        self.mixed(|row| row.squares)
    }

    /// τ(1).
    pub(super) fn passed(&self) -> S {
        self.mixed(|row| row.passed)
    }

    /// The factor on the shift of the mean row from flat.
    pub(super) fn shift(&self) -> S {
        self.mixed(|row| row.shift)
    }

    /// σ(1) and τ(1) of a single key beyond those of the row.
    pub(super) fn single_key(&self) -> [S; 2] {
        [self.own.single_key[0] - self.own.squares, self.own.single_key[1] - self.own.passed]
    }

    /// Σ_b E A_b² over that of scores that do not differ.
    pub(super) fn sharper(&self) -> S {
        self.own.sharper()
    }
}
