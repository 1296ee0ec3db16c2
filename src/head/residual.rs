//! Moments of J (p − y), the softmax minus the one-hot target times the slope of the soft cap, and of the loss. Tied
//! heads are in `tied.rs`.

use super::apart::{Apart, Group};
use super::targets::Repeats;
use crate::mean_field::softmax::SoftmaxRow;

/// The distribution of the logits of a head.
pub(super) struct Logits {
    /// V, the number of rows.
    pub(super) vocab_size: f64,
    /// n, the width of the input.
    pub(super) width: f64,
    /// w, the variance of a logit before the soft cap, on average over the rows.
    pub(super) variance: f64,
    /// All rows of the head, grouped by their standard deviation.
    pub(super) rows: Vec<RowGroup>,
    /// The soft cap, if there is one.
    pub(super) softcap: Option<f64>,
    /// The cosine between the inputs of the head at two tokens, on average over all pairs.
    pub(super) cosine: f64,
    /// c², the squared cosine between the input of the head at a token and the token's own embedding. The cosine
    /// between tokens of equal ids is larger by c².
    pub(super) own: f64,
    /// The probabilities that tokens have the same id.
    pub(super) repeats: Repeats,
    /// L, the length of a sequence.
    pub(super) seq_len: f64,
}

/// Rows of a head with the same standard deviation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RowGroup {
    /// The number of rows.
    pub(super) count: f64,
    /// E w_v² of these rows, relative to the mean over all rows.
    pub(super) weight: f64,
}

/// Moments of the loss and of its gradient with respect to the logits.
pub(super) struct Residual {
    /// E loss.
    pub(super) cross_entropy: f64,
    /// E |J (p − y)|² of a token.
    pub(super) size: f64,
    /// E |J (p − y)|² with each row weighted by its size, without the component along the input of the head, which the
    /// norm subtracts.
    pub(super) across: f64,
    /// E J_a (p_a − y_a)·J_b (p_b − y_b) of two tokens, with each row weighted by its size.
    pub(super) between: f64,
    /// L E (dL/db)² of a bias, summed over all rows.
    pub(super) bias: f64,
    /// L E |dL/dW|²/(n E x²), summed over all rows of the head. For a tied head this includes the product with the
    /// gradient of the embeddings, but not |dL/de|².
    pub(super) table: f64,
    /// `between` for tokens of equal ids, without the component along the input of the head.
    pub(super) alike: f64,
    /// E p of the token's own id. In a tied head it differs from E p of other ids.
    pub(super) read: f64,
}

impl Residual {
    /// Computes the moments of a head that shares no row with the input. The probability that the target is in a group
    /// of rows is proportional to the number of its rows.
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

    /// Computes the moments for a target in the group of rows with index `target`.
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
    /// Returns the correlations between the gradients of two tokens before the norm: for tokens of different ids, and
    /// for tokens of equal ids.
    pub(super) fn correlations(&self, repeats: &Repeats) -> [f64; 2] {
        let other = (self.between - repeats.two * self.alike) / (1.0 - repeats.two).max(f64::MIN_POSITIVE);
        [other, self.alike].map(|product| (product / self.across).clamp(0.0, 1.0))
    }
}

impl Logits {
    /// Returns the cosines between tokens of equal ids and between tokens of different ids.
    pub(super) fn cosines(&self) -> [f64; 2] {
        let other = self.cosine - self.repeats.two * self.own;
        [(other + self.own).min(1.0), other]
    }

    /// Returns the groups of scores, with one row fewer in the group of index `without`.
    pub(super) fn groups(&self, without: Option<usize>) -> Vec<Group> {
        let count = |index: usize| self.rows[index].count - f64::from(u8::from(without == Some(index)));
        (0..self.rows.len()).map(|index| Group { count: count(index), variance: self.variance_of(index) }).collect()
    }

    /// Returns the index of the group with most rows.
    pub(super) fn commonest(&self) -> usize {
        let largest = |(_, row): &(usize, &RowGroup)| row.count;
        let all = self.rows.iter().enumerate();
        all.max_by(|a, b| largest(a).total_cmp(&largest(b))).map_or(0, |(index, _)| index)
    }

    /// Returns the variance of a logit of a group.
    pub(super) fn variance_of(&self, group: usize) -> f64 {
        self.variance * self.rows[group].weight
    }

    /// Returns the sum of `of` over the indices of groups, each weighted by `weight` of its rows.
    pub(super) fn weighted(&self, of: impl Fn(usize) -> f64) -> f64 {
        self.rows.iter().enumerate().map(|(index, row)| row.weight * of(index)).sum()
    }

    /// Returns E J_a (p_a − y_a)·J_b (p_b − y_b) of two tokens with this cosine, whose targets are in the group of
    /// index `target`. With `by_size` each row is weighted by its size.
    fn between(&self, row: &Apart, target: usize, cosine: f64, by_size: bool) -> f64 {
        let score = row.own_score;
        // Slopes are even in the logits, so their common part at two tokens grows with ρ².
        let common = |apart: f64, same: f64| apart + (same - apart) * cosine * cosine;
        let targets = common(score.slope * score.slope, score.slope_square);
        let one_target = common(row.own.sloped * score.slope, row.own.sloped_twice);
        let size = if by_size { self.rows[target].weight } else { 1.0 };
        let sloped = |group: usize| row.groups[group].sloped + if group == target { row.own.sloped } else { 0.0 };
        size * (self.repeats.two * targets - 2.0 * one_target) + self.overlap(row, sloped, cosine, by_size)
    }

    /// Returns E Σ_v p_av p_bv J_av J_bv of two tokens with this cosine, where `sloped` returns Σ E p J of a group.
    /// With `by_size` each row is weighted by its size. In a group of mass P, p/P is the softmax over its rows. Under a
    /// soft cap weights are taken to be as correlated as for Gaussian logits of the same variance.
    pub(super) fn overlap(&self, row: &Apart, sloped: impl Fn(usize) -> f64, cosine: f64, by_size: bool) -> f64 {
        let of_group = |(index, &RowGroup { count, weight }): (usize, &RowGroup)| {
            let variance = row.group_scores[index].square;
            let softmax = SoftmaxRow::new(count, variance);
            let [overlap, _] = softmax.with(&softmax, cosine);
            let size = if by_size { weight } else { 1.0 };
            size * sloped(index).powi(2) * (1.0 + variance * (1.0 - 1.0 / count) * cosine * overlap) / count
        };
        self.rows.iter().enumerate().map(of_group).sum()
    }
}
