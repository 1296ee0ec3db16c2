//! Rows whose keys come in groups of unlike size, those of one id.
//!
//! D and X have D° and X° of how often ids happen to repeat. Seen from keys, two with the same id have less of the gradient than others:
//! C(M, N), of keys M beside values V or of values beside keys, gains
//!
//! ```text
//! λ ([same id] − π₂) δ_bd S_bd          S_bd = Σ_a N_aa W_ab W_ad          δ: what two tokens with the same id have more in common in M
//! Σ_bd V_bd of all gains = Σ_ac N_ac D°_ac, and at values also Σ_ac Γ_ac (Q_aa s_a X°_ac + Q_cc s_c X°_ca)
//! ```
//!
//! so that the same weight gradients are found from queries, outputs and keys. In sharp rows a key alone has Σ_ac e_ac W_ab W_cb more than what
//! keys have in common grows by, and other keys of the row have less; e_ac over N_ac is linear in the correlation of a and c.
//!
//! Assumption: what is gained follows S. Source: ours.

use std::sync::Arc;

use crate::mean_field::kernel::Kernel;
use crate::mean_field::positions::Repetition;
use crate::mean_field::scalar::{Few, Scalar};
use crate::mean_field::softmax::Row;

/// How ids repeat among keys.
pub(super) struct Repeated<S> {
    pub(super) repetition: Arc<Repetition>,
    /// By how much two keys with the same id are more alike than others, and two values, on average over pairs that a query sees.
    pub(super) differences: [Few<S>; 2],
    /// tr of values.
    pub(super) trace: Few<S>,
    /// D°, X°_ac and X°_ca.
    pub(super) spread: Kernel<S>,
    pub(super) shift: [Kernel<S>; 2],
}

impl<S: Scalar> Repeated<S> {
    /// The row of a query that sees so many keys, from that of equal keys.
    pub(super) fn row(&self, row: Row<S>, node: usize, [score, trace]: [S; 2], seen: f64) -> Row<S> {
        let [of_keys, of_values] = self.differences.each_ref().map(|of| of[node]);
        // By how much a token is more alike to itself than to one with another id.
        let apart = |trace: S, difference: S| trace * (seen / (seen - 1.0)) + difference * self.repetition.same();
        let [key, value] = [apart(trace, of_keys), apart(self.trace[node], of_values)];
        let likeness = of_keys * of_values / (key * value);
        if of_keys.value() > 0.0 && likeness.value() > 0.0 {
            row.with_ids(&self.repetition, seen, score * key, likeness.sqrt())
        } else {
            row
        }
    }

    /// What N makes of it, with e_a and what is gained beyond D°.
    pub(super) fn uneven(&self, weights: &Kernel<S>, excess: Kernel<S>, beyond: S) -> Uneven<'_, S> {
        let gained = weights.contracted(&self.spread) + beyond;
        Uneven { repetition: &self.repetition, excess, weights: weights.own.clone(), gained }
    }
}

/// What is gained by keys, or values.
pub(super) struct Uneven<'r, S> {
    repetition: &'r Repetition,
    /// e_ac and N_aa.
    pub(super) excess: Kernel<S>,
    pub(super) weights: Few<S>,
    gained: S,
}

impl<S: Scalar> Uneven<'_, S> {
    /// C(M, N) with its gains, from S and what e adds to pairs, at points without classes, what e adds to single keys, and M and V.
    pub(super) fn added(
        &self,
        mut to: Kernel<S>,
        [shared, pairs]: [&[S]; 2],
        own: &[S],
        [this, other]: [&Kernel<S>; 2],
    ) -> Kernel<S> {
        let positions = Arc::clone(&to.positions);
        let count = shared.len();
        let along: Few<S> = this.of_same_ids().iter().zip(shared).map(|(&same, &shared)| same * shared).collect();
        let same = other.of_same_ids();
        let met = positions.sum_pairs(|point| along[point % count] * same[point % count]);
        let met = met * (self.repetition.same() * (1.0 - self.repetition.same()));
        let spent = positions.sum(|node| own[node] * other.own[node])
            + positions.sum_pairs(|point| pairs[point % count] * other.pairs[point]);
        let factor = if met.value() > 0.0 { (self.gained - spent) / met } else { S::from(0.0) };
        to.own.iter_mut().zip(own).for_each(|(sum, &own)| *sum += own);
        for (point, sum) in to.pairs.iter_mut().enumerate() {
            let (class, index) = (point / count, point % count);
            *sum += pairs[index] + factor * along[index] * self.repetition.of_pair(class);
        }
        to
    }
}
