//! Scores of contents with relative positions: s_ab = scale (q_a·k_b + q_a·κ_δ + χ_δ·k_b), δ = row(a − b), if all
//! queries see all keys.
//!
//! Rows of the table of positions are independent, so that scores get a part that two keys share only if they are in
//! one row. Of D and tr for queries a and c, averaged over queries,
//!
//! ```text
//! Q_ac D_ac    + tr'/L (Q_ac R_κ u + R_χ w)
//! Q_ac tr      + (1 − 1/L) (Q_ac R_κ u + R_χ w)      = Cov(s_ab, s_cb)/v about the averages of rows
//! u = same − other      w = same K_bb − other K_bd
//! same = P(row(a − b) = row(c − b))      other = P(row(a − b) = row(c − d))      1 and almost 0 at a = c
//! ```
//!
//! where Q, K are the kernels of queries and keys of contents; R_κ, R_χ are the second moments of an entry of κ and of
//! χ; tr, tr' are the variances of the keys and of the values in view about their averages; D is the first order in the
//! scores, per v Q_ac; L is the number of tokens of a sequence; P is the share among all positions with b ≠ d; v is
//! scale² d_head; a, c are positions of queries; b, d are positions of keys.
//!
//! Two queries have distances of their own to one key: same is almost 0 at a ≠ c, unless rows hold many distances.
//!
//! # Backward
//!
//! ```text
//! G^v_bb   + v (1 − 1/L)/L² Σ_ac Γ_ac σ_ac (Q_ac R_κ u + R_χ w)          G^v_bd: − G^v_bb/(L − 1)
//! G^q      + scale² d_value Γ∘τ R_κ u tr'/L
//! G^k_bb   + scale² d_value R_χ tr'/L² Σ_ac Γ_ac τ_ac same               G^k_bd: − other/(L − 1) in place of same
//! Σ G^κ    = scale² d_value tr'/L Σ_ac Γ_ac Q_ac τ_ac u                  Σ G^χ = scale² d_value tr'/L Σ_ac Γ_ac τ_ac w
//! ```
//!
//! where G^v, G^q, G^k are the kernels of the gradients at values, queries and keys; G^κ, G^χ are those at the images
//! of rows, summed over all rows; Γ is the kernel of the gradients at the output of the heads; σ, τ are the factors of
//! sharp rows on D and on gradients through scores; d_value is the number of features of a head of values. Gradients of
//! all keys no longer add up to zero, because a score of χ_δ with a key differs between keys.
//!
//! Maps that positions share with contents have the sum of both gradients, which are uncorrelated because embeddings
//! and contents are.
//!
//! Assumptions: heads are wide; the maps and the norm of positions have no biases (the part that all rows have in common
//! counts as their own); values are equivalent but for their own parts. Source: ours; the scores: He et al. 2021.

use std::sync::Arc;

use sigprop_stack::{Disentangled, Dropout, Init, Linear, Tensor};

use super::component::{MeanField, Parameter};
use super::gradient::Gradient;
use super::kernel::Kernel;
use super::positions::Positions;
use super::signal::Signal;

/// The embeddings of relative positions, and their images under the maps to keys and to queries.
pub(super) struct Images {
    positions: Disentangled,
    /// The table, the output of its norm and the input of the maps.
    chain: [Signal; 3],
    keys: Option<Signal>,
    queries: Option<Signal>,
}

impl Images {
    pub(super) fn new(positions: &Disentangled) -> Self {
        let rows = Arc::new(Positions::groups(&[2.0 * positions.span as f64], None));
        let variance = positions.table.init.variance();
        let table = Signal::centred(positions.width() as f64, Kernel::new(&rows, |_| variance, |_| 0.0));
        let normed = positions.norm.map_or_else(|| table.clone(), |norm| norm.forward(&table));
        let input = Dropout { rate: positions.dropout_rate }.forward(&normed);
        let image = |map: &Option<Linear>| map.as_ref().map(|map| map.forward(&input));
        let [keys, queries] = [&positions.key, &positions.query].map(image);
        Self { positions: positions.clone(), chain: [table, normed, input], keys, queries }
    }

    /// Returns R_κ in units of the kernel `key` and R_χ in units of the kernel `query`.
    fn squares(&self, [query, key]: [&Kernel; 2]) -> [f64; 2] {
        let square = |(image, unit): (&Option<Signal>, &Kernel)| {
            image.as_ref().map_or(0.0, |image| image.kernel.own[0] * (image.kernel.ln_unit - unit.ln_unit).exp())
        };
        [(&self.keys, key), (&self.queries, query)].map(square)
    }

    /// Returns ln E dW² of every tensor of the positions, from ln Σ G^κ and ln Σ G^χ.
    pub(super) fn weights(&self, ln_totals: [f64; 2]) -> Vec<(Tensor, f64)> {
        let Self { positions, chain: [table, normed, input], .. } = self;
        let rows = 2.0 * positions.span as f64;
        let (mut weights, mut at_input) = (Vec::new(), Vec::new());
        let sides = [(&positions.key, &self.keys), (&positions.query, &self.queries)];
        for ((map, image), ln_total) in sides.into_iter().zip(ln_totals) {
            let (Some(map), Some(image)) = (map, image) else { continue };
            let kernel = Kernel::new(&input.kernel.positions, |_| rows.recip(), |_| 0.0);
            let gradient = Gradient::independent(Kernel { ln_unit: ln_total, ..kernel });
            for (parameter, ln_square) in map.weights(input, image, &gradient) {
                if let Parameter::Tensor(tensor) | Parameter::Bias(tensor) = parameter {
                    weights.push((tensor.clone(), ln_square));
                }
            }
            at_input.push(map.backward(input, image, &gradient));
        }
        let dropout = Dropout { rate: positions.dropout_rate };
        let mut gradient = dropout.backward(normed, input, &Gradient::sum(&at_input));
        if let Some(norm) = &positions.norm {
            let gains = Tensor { name: positions.gain(), init: Init::Zero };
            weights.extend(norm.weights(table, normed, &gradient).iter().map(|(_, ln_gain)| (gains.clone(), *ln_gain)));
            gradient = norm.backward(table, normed, &gradient);
        }
        weights.push((positions.table.clone(), gradient.kernel.own[0].ln() + gradient.kernel.ln_unit));
        weights
    }
}

/// A number for a query with itself, and a number for two queries.
#[derive(Clone, Copy, Debug)]
struct Each {
    own: f64,
    pair: f64,
}

impl Each {
    /// Returns the sum over all queries a and c of a kernel times these numbers.
    fn total(self, kernel: &Kernel) -> f64 {
        let positions = &kernel.positions;
        positions.sum(|node| kernel.own[node]) * self.own + positions.sum_pairs(|point| kernel.pairs[point]) * self.pair
    }

    /// Returns the products with the numbers of `other`.
    fn by(self, other: Self) -> Self {
        Self { own: self.own * other.own, pair: self.pair * other.pair }
    }

    /// Returns a kernel of the queries times these numbers.
    fn times(self, kernel: &Kernel) -> Kernel {
        let [own, pairs] = [(&kernel.own, self.own), (&kernel.pairs, self.pair)]
            .map(|(of, factor)| of.iter().map(|&number| number * factor).collect());
        kernel.with(kernel.ln_unit, own, pairs)
    }
}

/// Returns the shares `same` and `other` of positions in one row of the table, for sequences of `length` tokens.
fn shares(positions: &Disentangled, length: usize) -> [Each; 2] {
    // Rows are intervals of distances of one sign. Two distances of a row have L − max(|d|, |d'|) queries a with keys
    // at both.
    let (mut squares, mut products) = (0.0, 0.0);
    let (mut row, mut count, mut sum) = (usize::MAX, 0.0, 0.0);
    let far = length as i64 - 1;
    for distance in (0..=far).chain((-far..0).rev()) {
        if positions.row(distance) != row {
            products += sum * sum;
            (row, count, sum) = (positions.row(distance), 0.0, 0.0);
        }
        let queries = (length as i64 - distance.abs()) as f64;
        squares += queries * (2.0 * count + 1.0);
        (count, sum) = (count + 1.0, sum + queries);
    }
    products += sum * sum;
    let tokens = length as f64;
    let others = (tokens - 1.0).max(1.0);
    let (own, pair) = (squares / tokens.powi(2), (products - squares) / (tokens.powi(2) * others));
    let same = (squares - tokens.powi(2)) / (tokens.powi(2) * others);
    [Each { own: 1.0, pair: same }, Each { own: (own - 1.0) / others, pair: (pair - same) / others }]
}

/// The part of the scores of a head that relative positions have.
pub(super) struct RelativeScores {
    /// The number L of tokens of a sequence.
    length: f64,
    /// ln of the units of queries, keys and values.
    ln_units: [f64; 3],
    /// R_κ in units of the keys, and R_χ in units of the queries.
    squares: [f64; 2],
    same: Each,
    other: Each,
    u: Each,
    /// w in units of the keys.
    w: Each,
    /// tr', plus the addition by masks of dropout.
    trace: Each,
    /// tr of the keys of contents.
    of_contents: f64,
    /// Cov(s_ab, s_cb)/v about the averages of rows, contents included: the kernel Q tr with its addition.
    pub(super) scores: Kernel,
}

impl RelativeScores {
    /// Computes the part of positions, from tr and tr'. `masked` is p/(1 − p) of the mean square of a value, for dropout
    /// of rate p on the weights.
    pub(super) fn new(
        images: &Images,
        [query, key, value]: [&Kernel; 3],
        ([of_keys, of_values], masked): ([f64; 2], f64),
    ) -> Self {
        let length = key.positions.length;
        let [same, other] = shares(&images.positions, length.round() as usize);
        let squares = images.squares([query, key]);
        let all_pairs = (length * (length - 1.0)).max(1.0);
        let mean = key.positions.sum(|node| key.own[node]) / length;
        let mean_pair = key.positions.sum_pairs(|point| key.pairs[point]) / all_pairs;
        let u = Each { own: same.own - other.own, pair: same.pair - other.pair };
        let w = |same: f64, other: f64| same * mean - other * mean_pair;
        let w = Each { own: w(same.own, other.own), pair: w(same.pair, other.pair) };
        let factor = 1.0 - length.recip();
        let [of_u, of_w] = [squares[0] * factor, squares[1] * factor];
        let tr = Each { own: of_keys + of_u * u.own, pair: of_keys + of_u * u.pair };
        let mut scores = tr.times(query);
        scores.own.iter_mut().for_each(|own| *own += w.own * of_w);
        scores.pairs.iter_mut().for_each(|pair| *pair += w.pair * of_w);
        let trace = Each { own: of_values + masked * factor, pair: of_values };
        let ln_units = [query, key, value].map(|part| part.ln_unit);
        Self { length, ln_units, squares, same, other, u, w, trace, of_contents: of_keys, scores }
    }

    /// Returns the addition to D, for a query with itself and for two queries.
    pub(super) fn spread(&self) -> [f64; 2] {
        let of_values = self.squares[0] * self.trace.pair / self.length;
        [self.u.own * of_values, self.u.pair * of_values]
    }

    /// Returns the part R_χ w tr'/L of E z z', per v σ, for a query with itself and for two queries.
    pub(super) fn outputs(&self) -> [f64; 2] {
        let of_values = self.squares[1] * self.trace.pair / self.length;
        [self.w.own * of_values, self.w.pair * of_values]
    }

    /// Returns the addition to tr of the keys, for a query with itself.
    pub(super) fn key_trace(&self) -> f64 {
        self.squares[0] * self.u.own * (1.0 - self.length.recip())
    }

    /// Returns E s² of a query with this second moment, per v.
    pub(super) fn square(&self, query: f64) -> f64 {
        query * self.squares[0] + self.squares[1] * self.w.own
    }

    /// Returns the shares of contents in the gradients at queries and at keys, for queries of this second moment.
    pub(super) fn content_shares(&self, query: f64) -> [f64; 2] {
        let share =
            |contents: f64, positions: f64| if positions > 0.0 { contents / (contents + positions) } else { 1.0 };
        [share(self.of_contents, self.key_trace()), share(query, self.squares[1])]
    }

    /// Returns e^(unit of `both`) in units of `gamma` and of the queries.
    fn unit(&self, [both, gamma]: [&Kernel; 2]) -> f64 {
        (both.ln_unit - gamma.ln_unit - self.ln_units[0]).exp()
    }

    /// Returns the kernel of all tokens with these numbers, in units of e^`ln_unit`.
    fn everywhere(&self, ln_unit: f64, each: Each) -> Kernel {
        Kernel { ln_unit, ..Kernel::new(&self.scores.positions, |_| each.own, |_| each.pair) }
    }

    /// Returns the addition to C(K, Γ∘Q∘σ), the gradient at values; `both` is Γ∘Q∘σ and `gamma` is Γ∘σ.
    pub(super) fn at_values(&self, [both, gamma]: [&Kernel; 2]) -> Kernel {
        let [keys, queries] = self.squares;
        let total = keys * self.u.total(both) * self.unit([both, gamma]) + queries * self.w.total(gamma);
        let own = total * (1.0 - self.length.recip()) / self.length.powi(2);
        let [query, key, _] = self.ln_units;
        self.everywhere(gamma.ln_unit + query + key, Each { own, pair: -own / self.others() })
    }

    /// Returns the addition to C(V, Γ∘Q∘τ), the gradient at keys; `gamma` is Γ∘τ.
    pub(super) fn at_keys(&self, gamma: &Kernel) -> Kernel {
        let of = |shares: Each| self.squares[1] * shares.by(self.trace).total(gamma) / self.length.powi(2);
        let [query, _, value] = self.ln_units;
        let each = Each { own: of(self.same), pair: -of(self.other) / self.others() };
        self.everywhere(gamma.ln_unit + query + value, each)
    }

    /// Returns ln Σ G^κ and ln Σ G^χ per scale² d_value; `both` is Γ∘Q∘τ and `gamma` is Γ∘τ.
    pub(super) fn ln_at_positions(&self, [both, gamma]: [&Kernel; 2]) -> [f64; 2] {
        let [_, key, value] = self.ln_units;
        let ln = |factors: Each, kernel: &Kernel| {
            (factors.by(self.trace).total(kernel) / self.length).max(0.0).ln() + kernel.ln_unit + value
        };
        [ln(self.u, both), ln(self.w, gamma) + key]
    }

    fn others(&self) -> f64 {
        (self.length - 1.0).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counted over all positions of a sequence.
    #[test]
    fn shares_are_those_of_all_positions() {
        let table = Tensor { name: String::new(), init: Init::Zero };
        for (span, max_distance, length) in [(8, None, 6), (4, None, 9), (6, Some(12), 20), (2, Some(3), 7)] {
            let positions = Disentangled {
                table: table.clone(),
                span,
                max_distance,
                norm: None,
                dropout_rate: 0.0,
                key: None,
                query: None,
            };
            let row = |a: usize, b: usize| positions.row(a as i64 - b as i64);
            let mut sums = [[[0.0; 2]; 2]; 2];
            for index in 0..length * length * length * length {
                let [a, c, b, d] = [0, 1, 2, 3].map(|place| index / usize::pow(length, place) % length);
                let is_in_row = f64::from(u8::from(row(a, b) == row(c, d)));
                let sum = &mut sums[usize::from(a != c)][usize::from(b != d)];
                (sum[0], sum[1]) = (sum[0] + is_in_row, sum[1] + 1.0);
            }
            let [same, other] = shares(&positions, length);
            for (got, [sum, count]) in [same.own, other.own, same.pair, other.pair].iter().zip(sums.concat()) {
                approx::assert_relative_eq!(*got, sum / count, max_relative = 1e-12);
            }
        }
    }
}
