//! Moments of J (p − y), softmax less one-hot target times the slope of the soft cap, and the loss; of tied heads in
//! `tied.rs`.

use super::apart::{Apart, Group};
use super::targets::Repeats;
use crate::mean_field::softmax::Rows;

/// The law of the logits of a head.
pub(super) struct Logits {
    /// V.
    pub(super) vocab_size: f64,
    /// d.
    pub(super) width: f64,
    /// w, of one logit before the soft cap, on average over the rows.
    pub(super) variance: f64,
    /// Rows of one size, all rows of the head together.
    pub(super) rows: Vec<RowGroup>,
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

/// Rows of a head that have one standard deviation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RowGroup {
    /// How many there are.
    pub(super) count: f64,
    /// Their E w_v² over that of all rows.
    pub(super) weight: f64,
}

/// What the loss makes of them.
pub(super) struct Residual {
    /// E loss.
    pub(super) cross_entropy: f64,
    /// E |J (p − y)|² of a token.
    pub(super) size: f64,
    /// The same across what the head reads, which passes the norm, each row by its size.
    pub(super) across: f64,
    /// E J_a (p_a − y_a)·J_b (p_b − y_b) of two tokens, each row by its size.
    pub(super) between: f64,
    /// L E (dL/db)² of a bias, all rows together.
    pub(super) bias: f64,
    /// L E |dL/dW|²/(d E x²) of all rows of the head, with what else a table it shares gathers but for |dL/de|².
    pub(super) table: f64,
    /// `between` of tokens of equal ids, across what the head reads.
    pub(super) alike: f64,
    /// E p of the token just read, which a tied head tells from others.
    pub(super) read: f64,
}

impl Residual {
    /// Moments of a head that shares no row with the input; the target is in each group of rows as often as rows are.
    pub(super) fn untied(logits: &Logits) -> Self {
        let parts: Vec<(f64, Self)> = (0..logits.rows.len())
            .map(|target| (logits.rows[target].count / logits.vocab_size, Self::untied_with(logits, target)))
            .collect();
        let mean = |of: &dyn Fn(&Self) -> f64| parts.iter().map(|(share, part)| share * of(part)).sum::<f64>();
        Self {
            cross_entropy: mean(&|part| part.cross_entropy),
            size: mean(&|part| part.size),
            across: mean(&|part| part.across),
            between: mean(&|part| part.between),
            bias: mean(&|part| part.bias),
            table: mean(&|part| part.table),
            alike: mean(&|part| part.alike),
            read: mean(&|part| part.read),
        }
    }

    /// Moments where the target is in this group of rows.
    fn untied_with(logits: &Logits, target: usize) -> Self {
        let &Logits { softcap, repeats, seq_len, .. } = logits;
        let row = Apart::new(&logits.groups(Some(target)), [0.0, logits.variance_of(target)], softcap);
        let score = row.own_score;
        let own = row.own.square - 2.0 * row.own.sloped_twice + score.slope_square;
        let size = own + row.others.square;
        let across = logits.rows[target].weight * own + logits.weighted(|group| row.groups[group].square);
        let [same, other] = logits.cosines();
        let repeat = repeats.two;
        let mixed = |of_same: f64, of_other: f64| repeat * of_same + (1.0 - repeat) * of_other;
        let [of_same, of_other] = [same, other].map(|cosine| logits.between(&row, target, cosine, true));
        let [plain_same, plain_other] = [same, other].map(|cosine| logits.between(&row, target, cosine, false));
        let head = mixed(same * plain_same, other * plain_other);
        Self {
            cross_entropy: row.ln_partition - score.mean,
            size,
            across,
            between: mixed(of_same, of_other),
            bias: size + (seq_len - 1.0) * mixed(plain_same, plain_other),
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

    /// Groups of scores, without one row of this group.
    pub(super) fn groups(&self, without: Option<usize>) -> Vec<Group> {
        let count = |index: usize| self.rows[index].count - f64::from(u8::from(without == Some(index)));
        (0..self.rows.len()).map(|index| Group { count: count(index), variance: self.variance_of(index) }).collect()
    }

    /// The group that most rows are in.
    pub(super) fn commonest(&self) -> usize {
        let largest = |(_, row): &(usize, &RowGroup)| row.count;
        let all = self.rows.iter().enumerate();
        all.max_by(|a, b| largest(a).total_cmp(&largest(b))).map_or(0, |(index, _)| index)
    }

    /// The variance of a logit of a group.
    pub(super) fn variance_of(&self, group: usize) -> f64 {
        self.variance * self.rows[group].weight
    }

    /// A sum over groups, each by the size of its rows.
    pub(super) fn weighted(&self, of: impl Fn(usize) -> f64) -> f64 {
        self.rows.iter().enumerate().map(|(index, row)| row.weight * of(index)).sum()
    }

    /// E J_a (p_a − y_a)·J_b (p_b − y_b) of two tokens with this cosine, whose targets are in this group; `by_size`: each row by
    /// its size.
    fn between(&self, row: &Apart, target: usize, cosine: f64, by_size: bool) -> f64 {
        let score = row.own_score;
        // Slopes are even in the logits: what two tokens have of them in common goes with ρ².
        let common = |apart: f64, same: f64| apart + (same - apart) * cosine * cosine;
        let targets = common(score.slope * score.slope, score.slope_square);
        let one_target = common(row.own.sloped * score.slope, row.own.sloped_twice);
        let size = if by_size { self.rows[target].weight } else { 1.0 };
        let sloped = |group: usize| row.groups[group].sloped + if group == target { row.own.sloped } else { 0.0 };
        size * (self.repeats.two * targets - 2.0 * one_target) + self.overlap(row, sloped, cosine, by_size)
    }

    /// E Σ_v p_av p_bv J_av J_bv of two tokens with this cosine, `sloped` being Σ E p J of a group; `by_size`: each row by its
    /// size. Of a group with mass P, p/P is the softmax over its rows. Under a soft cap weights are as alike as those of
    /// Gaussian logits of the same variance.
    pub(super) fn overlap(&self, row: &Apart, sloped: impl Fn(usize) -> f64, cosine: f64, by_size: bool) -> f64 {
        let of_group = |(index, &RowGroup { count, weight }): (usize, &RowGroup)| {
            let variance = row.group_scores[index].square;
            let softmax = Rows::row(count, variance);
            let [overlap, _] = softmax.with(&softmax, cosine);
            let size = if by_size { weight } else { 1.0 };
            size * sloped(index).powi(2) * (1.0 + variance * (1.0 - 1.0 / count) * cosine * overlap) / count
        };
        self.rows.iter().enumerate().map(of_group).sum()
    }
}
