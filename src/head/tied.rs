//! A head that shares the table of the embeddings: the loss, and the gradient of a row in both roles.
//!
//! # Formula
//!
//! In units of n E x²/L,
//!
//! ```text
//! Σ_v E dW_v²         = E |q|² + (L − 1) [ρ E q_a·q_b + c² E(q_a·q_b; o_a = o_b)]
//! 2 Σ_v E dW_v·de_v   = 2 c² { radial E q_ao² + (L − 1) [(kept − ρ) E(q_ao q_bo; o_a = o_b = o)
//!                       + E(q_a(o_b) q_b(o_a); o_a ≠ o_b) − ρ E(q_a(o_b) q_b(o_b); o_a ≠ o_b)] }
//! ```
//!
//! where v is the index of a row of the table; dW_v is the gradient Σ_a q_av x_a/L of row v as a row of the head; de_v
//! is the gradient Σ_{o_b = v} dL/de_b of row v as an embedding; q, q_a are the softmax minus the one-hot target, p_a −
//! y_a, at a token; q_av, q_ao, q_a(o_b) are the entries of q_a at the ids v, o and o_b; o_a is the id of token a; o is
//! the id of a token; a, b are positions of tokens; E is the average over random weights and over features; E(…) is the
//! average over ordered pairs of different tokens, where pairs that do not meet the condition count as zero; L is the
//! number of tokens of a sequence; ρ is the correlation of two tokens of different ids (ρ + c² if their ids are equal);
//! c is the cosine of x to the token's own embedding; kept, radial are the parts of dL/de_b that the norms leave along
//! its embedding and along x.
//!
//! The numbers c, kept and radial are derived in `own.rs`; radial is 0 if the last norm is the only one on the way. The
//! gradient dL/de_b at the embedding of token b is c √(E x²/s²) Σ_v q_bv w_v/L through the skips, without the
//! components that norms subtract; w_v is row v of the head. The mean of x_a·w_v is c √(n w) for v = o_a and 0 for all
//! others, where n is the number of features of x and w the variance of a logit.
//!
//! The averages of q_av q_bu = (α − Y)(β − Z) follow from the probabilities of Y, of Z and of both, where Y and Z are 1
//! if v is the target of a and u that of b. α and β are E p at the token's own id, P, or at another, (1 − P)/(V − 1). A
//! target is the id of the next token: of L (L − 1) pairs, L − 1 have o_b = y_a for certain, and these dominate under
//! Zipf ids. Under a soft cap of slope J (`residual.rs`), p, y and q are multiplied by J: α and β are E p J, and Y and
//! Z have the factor E J.
//!
//! # Assumptions
//!
//! The part of x beyond its own embedding has the same correlation between any two tokens. Fluctuations of logits are
//! left out of the second line (of order √w/(c √n)). Σ_v E de_v² is the value of the predictor, under a seed that is
//! more correlated for tokens of equal ids.
//!
//! # Source
//!
//! Ours.

#[cfg(test)]
mod tests;

use super::apart::Apart;
use super::own::Own;
use super::residual::{Logits, Residual};
use super::targets::Repeats;

impl Residual {
    pub(super) fn tied(logits: &Logits, own: &Own) -> Self {
        let &Logits { vocab_size, width, variance, softcap, repeats, seq_len, .. } = logits;
        let repeat = repeats.two;
        let square = own.cosine * own.cosine;
        let mean = own.cosine * (width * variance).sqrt();
        let row =
            Apart::new(&logits.groups(Some(logits.commonest())), [mean, variance * (1.0 - 0.5 * square)], softcap);
        let (own_score, other_score) = (row.own_score, row.other_score);
        let each = |sum: f64| sum / (vocab_size - 1.0);
        // A target is the token's own id with the probability that two ids are equal.
        let target = |own: f64, other: f64| repeat * own + (1.0 - repeat) * other;
        let size = target(own_score.slope_square, other_score.slope_square)
            - 2.0 * target(row.own.sloped_twice, each(row.others.sloped_twice))
            + row.own.square
            + row.others.square;
        let along = row.own.square - 2.0 * repeat * row.own.sloped_twice + repeat * own_score.slope_square;
        let between = logits.between_read(&row);

        let pairs = Pairs::new(&repeats, seq_len);
        let (o, v) = ([row.own.sloped, own_score.slope], [each(row.others.sloped), other_score.slope]);
        let [alike, rest] = logits.cosines();
        let same = pairs.same.product(o, o);
        let overlap = logits.overlap(&row, |group| row.groups[group].sloped, alike, false);
        let beside = pairs.beside.product(v, v) + repeat * (overlap - v[0] * v[0]);
        let head = rest * between + square * (same + beside);
        let both = (own.kept - rest) * same + pairs.crossed.product(v, v) - rest * pairs.parallel.product(v, o);
        let table = size + 2.0 * square * own.radial * along + (seq_len - 1.0) * (head + 2.0 * square * both);
        Self {
            cross_entropy: row.ln_partition - repeat * own_score.mean,
            size,
            across: size - row.others.square + logits.weighted(|group| row.groups[group].square) - square * along,
            between,
            bias: size + (seq_len - 1.0) * between,
            table,
            alike: if repeat > 0.0 { ((1.0 - square) * same + beside) / repeat } else { between },
            read: row.own.mean,
        }
    }
}

impl Logits {
    /// Returns E J_a (p_a − y_a)·J_b (p_b − y_b) of two tokens, for a head in which the id of each has a row of its
    /// own.
    fn between_read(&self, row: &Apart) -> f64 {
        let repeat = self.repeats.two;
        let (own, others) = (row.own.sloped, row.others.sloped);
        let target = |own: f64, other: f64| repeat * own + (1.0 - repeat) * other;
        let weight = target(own, others / (self.vocab_size - 1.0));
        let slope = target(row.own_score.slope, row.other_score.slope);
        // One pair in L is a token and its target.
        let weight = weight + (own - weight) / self.seq_len;
        let [same, other] =
            self.cosines().map(|cosine| self.overlap(row, |group| row.groups[group].sloped, cosine, false));
        let overlap = target(same, other) + 2.0 * own * others / self.vocab_size + repeat * own * own;
        repeat * slope * slope - 2.0 * weight * slope + overlap
    }
}

/// Probabilities for ordered pairs of different tokens a and b, with ids o and targets y. Every field is for one class
/// of pairs, and for two events Y and Z of the targets.
struct Pairs {
    /// Pairs of equal ids, o_a = o_b = o. Y is the event y_a = o, and Z is y_b = o.
    same: Chances,
    /// Pairs of equal ids. Y is the event that y_a is some other id v, and Z that y_b is v.
    beside: Chances,
    /// Pairs of different ids. Y is the event y_a = o_b, and Z is y_b = o_a.
    crossed: Chances,
    /// Pairs of different ids. Y is the event y_a = o_b, and Z is y_b = o_b.
    parallel: Chances,
}

impl Pairs {
    fn new(repeats: &Repeats, seq_len: f64) -> Self {
        let &Repeats { two, three, four } = repeats;
        // In 1/L of all pairs b follows a, and y_a = o_b. In as many a follows b, and y_b = o_a.
        let next = 1.0 / seq_len;
        let far = 1.0 - 2.0 * next;
        let once = two - three;
        let towards = far * once + next * (1.0 - two) + next * once;
        Self {
            same: Chances {
                pairs: two,
                first: far * three + next * two + next * three,
                second: far * three + next * three + next * two,
                both: far * four + 2.0 * next * three,
            },
            beside: Chances {
                pairs: two,
                first: (far + next) * once,
                second: (far + next) * once,
                both: far * (two * two - four),
            },
            crossed: Chances {
                pairs: 1.0 - two,
                first: towards,
                second: towards,
                both: far * (two * two - four) + 2.0 * next * once,
            },
            parallel: Chances {
                pairs: 1.0 - two,
                first: towards,
                second: (far + next) * once,
                both: far * (three - four) + next * once,
            },
        }
    }
}

/// Probabilities among all pairs: that a pair is in the class (`pairs`); that it is in the class and Y occurs
/// (`first`), Z occurs (`second`), or both occur (`both`).
struct Chances {
    pairs: f64,
    first: f64,
    second: f64,
    both: f64,
}

impl Chances {
    /// Returns E (α − Y J)(β − Z J') over the pairs of the class, where Y and Z are 1 if the events occur. The
    /// arguments are α and E J, and β and E J'.
    fn product(&self, [alpha, slope]: [f64; 2], [beta, other]: [f64; 2]) -> f64 {
        let targets = slope * other * self.both - alpha * other * self.second - beta * slope * self.first;
        alpha * beta * self.pairs + targets
    }
}
