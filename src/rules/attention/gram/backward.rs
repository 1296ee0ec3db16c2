//! The backward pass: gradients at queries, keys and values, and at the probabilities, as [`super`] derives them.

use std::sync::Arc;

use nalgebra::{Matrix2, Vector2};
use rayon::join;
use sigprop_stack::Attention;

use super::head::{Head, Of};
use super::lengths::Lengths;
use super::rotation::Rotation;
use super::row::Row;
use super::{Attended, Raw, mean};
use crate::domain::Gradient;
use crate::moments::{TokenGradient, ratio, share};
use crate::rules::attention::fluctuation::{Powers, Straying};
use crate::rules::attention::matrix::Matrix;
use crate::rules::attention::{alike_within_heads, along_values};

/// Masks of attention dropout on the values of one head, each by itself.
struct Masks<'a> {
    /// p/(1 − p), and what gradients of the softmax have of it at each query.
    rate: f64,
    odds: &'a [f64],
    /// The diagonal V' of V, with W V' and P_V'.
    values: Matrix,
    averaged: (Matrix, Matrix),
    /// The diagonal of D with V' in place of V.
    spread: Vec<f64>,
}

impl<'a> Masks<'a> {
    fn new(head: &Head, rate: f64, odds: &'a [f64], (k, v): (&Matrix, &Matrix)) -> Self {
        let values = Matrix::of_diagonal(&v.diagonal());
        let averaged = head.averages.averaged(&values);
        let spread = head.spread(k, &values, &averaged).diagonal();
        Self { rate, odds, values, averaged, spread }
    }
}

impl Attended {
    /// The gradient at the probabilities, from that at the output.
    pub(crate) fn probabilities_backward(&self, attention: &Attention, gradient: &Gradient) -> Gradient {
        let keep = 1.0 - attention.dropout_rate;
        let values = self.value.matrix.diagonal();
        let average = values.iter().sum::<f64>() / values.len() as f64;
        let gain = (attention.d_value as f64 / keep * average).ln() + self.value.ln_unit;
        let tokens = gradient.tokens.iter().zip(self.along_values(attention, gradient));
        let tokens =
            tokens.map(|(token, along)| TokenGradient::isotropic(token.ln_second + gain + along.ln())).collect();
        let count = gradient.tokens.len();
        let cosines = crate::domain::symmetric(count, |i, j| gradient.cosines[i * count + j] * keep);
        Gradient::new(tokens, cosines)
    }

    /// Of every query.
    fn along_values(&self, attention: &Attention, gradient: &Gradient) -> impl Iterator<Item = f64> {
        let [alignments, _] = &self.alignments;
        gradient.tokens.iter().zip(alignments).map(|(token, &alignment)| along_values(attention, token, alignment))
    }

    /// The gradients at queries, keys and values.
    pub(crate) fn split(&self, attention: &Attention, gradient: &Gradient, strayed: Straying) -> [Gradient; 3] {
        let g = Raw::of_gradient(gradient);
        let odds = attention.dropout_rate / (1.0 - attention.dropout_rate);
        let odds_of_scores: Vec<f64> = self.along_values(attention, gradient).map(|along| odds * along).collect();
        let group = ((attention.n_heads / attention.n_kv_heads) as f64).ln();
        let own: Vec<f64> = self.output.tokens.iter().map(|z| share(z.ln_second, self.value.ln_unit)).collect();
        let mut parts: [Vec<Matrix>; 3] = Default::default();
        let n_keys = self.key.matrix.rows;
        let mut lengths = Lengths::none(n_keys);
        let mut pulled = 0.0;
        let (mut before, mut weighted, mut alike) = (None, 0.0, 0.0);
        for head in &self.heads {
            let rows = head.meeting(&gradient.tokens, &own, attention.n_heads as f64, self.longer);
            pulled += head.pulled_gradient(&self.query, self.pull, &g.matrix) / self.heads.len() as f64;
            lengths.add(&head.lengths(&rows, &self.query, &g.matrix, odds), 1.0 / self.heads.len() as f64);
            weighted += self.weighted(head, &rows, &g.matrix) / self.heads.len() as f64;
            alike += self.alike_queries(head, &g.matrix) / self.heads.len() as f64;
            let masks =
                (odds > 0.0).then(|| Masks::new(head, odds, &odds_of_scores, (&self.key.matrix, &self.value.matrix)));
            let of_head = self.split_head(head, &rows, &g.matrix, masks.as_ref());
            before = head.rotation.as_ref().map(|rotation| {
                let met = |a, c| [rotation.spread(a, c), rotation.pulled(a, c)];
                let query = self.split_query(head, &rows, &g.matrix, masks.as_ref(), met);
                [query, self.unturned_key(rotation, head, &of_head[1], &g.matrix)]
            });
            for (part, of_head) in parts.iter_mut().zip(of_head) {
                part.push(of_head);
            }
        }
        let [query, key, value] = parts.map(|part| mean(part.into_iter()));
        let ln_score = g.ln_unit
            + (attention.scale.powi(2) * self.score_slope * attention.d_value as f64).ln()
            + self.value.ln_unit;

        // Of differences of keys and of values, and of queries and values; scores make rows pass less.
        let scores = Powers::scores(self.growth(&g.matrix));
        let differences = scores.and(0.0, 1.0 - self.apart, 1.0 + self.apart);
        let met_by = [differences, scores.and(1.0, 0.0, 1.0)];
        let factors = met_by.map(|met| strayed.of(met));
        let unturned = before.as_ref().map_or([&query, &key], |[query, key]| [query, key]);
        let others = (self.query.count() as f64 - 1.0).max(1.0);
        let queries = (0..self.query.count()).map(|a| self.query.square(a)).sum::<f64>();
        let of_heads = ratio((1.0 - self.alike) * alike, mean_square(&query) * queries);
        let width = (attention.n_heads * attention.d_head) as f64;
        let unmet = alike_within_heads(of_heads, width, others, self.query.alike());
        let [query_coupling, coupling] =
            self.couplings([&query, &key], unturned, [weighted, alike], (strayed, differences, factors));

        let memory = attention.memory.is_some();
        let known = if memory { 0.0 } else { 1.0 };
        let sums = value.diagonal();
        let (keys, values) = (self.key.matrix.diagonal(), self.value.matrix.diagonal());
        let [radial, from_own] =
            [|token: &TokenGradient| token.radial, |token: &TokenGradient| token.local].map(|of| average(gradient, of));
        let local = |b: usize| known * from_own * ratio(lengths.local[b], sums[b]).min(1.0);
        let query = to_gradient(&query, ln_score + self.key.ln_unit, |ln_second, a| TokenGradient {
            radial: self.heads[0].rows[a].radial(),
            local: gradient.tokens[a].local,
            ..TokenGradient::isotropic(ln_second)
        });
        let ln_key = ln_score + self.query.ln_unit + group;
        let key = to_gradient(&key, ln_key, |ln_second, b| {
            let ln_values = (lengths.keys[b] * values[b]).ln() + g.ln_unit + group + self.value.ln_unit;
            let radial = share(ln_values, ln_second + keys[b].ln() + self.key.ln_unit);
            let radial = radial.min((attention.n_kv_heads * attention.d_head) as f64);
            TokenGradient { radial, local: local(b), ..TokenGradient::isotropic(ln_second) }
        });
        let [_, alignments] = &self.alignments;
        let value_coupling = ratio(pulled, value.rows as f64 * mean_square(&value) * mean_square(&self.value.matrix));
        let value = to_gradient(&value, g.ln_unit + group, |ln_second, b| TokenGradient {
            radial: 1.0 + (radial - 1.0) * alignments[b],
            excess: known * self.sensitivities[b] * ratio(lengths.crossed[b], sums[b]),
            local: local(b),
            ..TokenGradient::isotropic(ln_second)
        });
        let along_keys = average(&key, |token| token.radial);
        let told = |part: Gradient, factor: f64, answers: Vector2<f64>| Gradient {
            across: gradient.across.map(|_| 1.0),
            one_sided: true,
            knows_networks: true,
            response: Matrix2::from_columns(&[answers, Vector2::zeros()]),
            ..part.larger(factor)
        };
        let [of_query, of_key] = before.map(|before| before.map(|matrix| Some(cosines(&matrix)))).unwrap_or_default();
        let alignment = alignments.iter().sum::<f64>() / alignments.len() as f64;
        let across = gradient.across.map(|across| 1.0 + (across - 1.0) * alignment);
        [
            Gradient {
                coupling: query_coupling,
                unmet,
                unturned: of_query,
                ..told(query, factors[0], strayed.answers(met_by[0]))
            },
            // They add up to nothing: others meet a key as its own does.
            Gradient {
                coupling,
                unturned: of_key,
                across: gradient.across.map(|_| along_keys),
                ..told(key, factors[1], strayed.keys_answer(met_by[1]))
            },
            Gradient { coupling: value_coupling, across, ..value },
        ]
    }

    /// d ln T/d ln w of rows as they receive gradients.
    fn growth(&self, gradient: &Matrix) -> f64 {
        let rows = || self.heads.iter().flat_map(|head| &head.rows).zip(gradient.diagonal().into_iter().cycle());
        ratio(rows().map(|(row, own)| own * row.growth).sum(), rows().map(|(_, own)| own).sum())
    }

    /// What the weights of queries and of keys collect beyond products of their gradients, from those of `rotated` and of `unturned`
    /// queries and keys, of what key weights have of rows of long queries, and of queries that are `alike`; two queries meet
    /// `differences`, and both gradients stray by `factors`.
    fn couplings(
        &self,
        rotated: [&Matrix; 2],
        unturned: [&Matrix; 2],
        [weighted, alike]: [f64; 2],
        (strayed, differences, [of_queries, of_keys]): (Straying, Powers, [f64; 2]),
    ) -> [f64; 2] {
        let before = |product: f64, a: usize, c: usize| {
            self.heads[0].rotation.as_ref().map_or(product, |rotation| rotation.before(product, a, c))
        };
        // Σ_b δs_ab x_b, which the key weights collect, is what the query gradient is made of.
        let collected = unturned[0].met(|a, c| before(self.query.product(a, c), a, c));
        let met = unturned[1].met(|b, d| before(self.key.matrix.row(b)[d], b, d));
        let own =
            unturned[0].diagonal().into_iter().enumerate().map(|(a, own)| own * self.query.square(a)).sum::<f64>();
        let queries = (0..rotated[0].rows).map(|a| self.query.square(a)).sum::<f64>();
        // The input of a query, alone and with another one.
        let [one, two] = [differences.and(1.0, 0.0, 0.0), differences.and(0.0, 1.0, 0.0)]
            .map(|again| ratio(strayed.of(again), of_queries) - 1.0);
        let more = (1.0 + one) * of_queries / of_keys;
        let keys = rotated[1].rows as f64 * mean_square(&self.key.matrix);
        [
            ratio(self.alike * alike + one * own + two * (collected - own), mean_square(rotated[0]) * queries),
            ratio((collected + weighted + alike) * more - met, mean_square(rotated[1]) * keys),
        ]
    }

    /// The matrix of query gradients of one head, from D and what rotations leave of what is pulled.
    fn split_query(
        &self,
        head: &Head,
        rows: &[Row],
        gradient: &Matrix,
        masks: Option<&Masks>,
        met: impl Fn(usize, usize) -> [f64; 2] + Sync,
    ) -> Matrix {
        let q = &self.query;
        let mut query = Matrix::symmetric(gradient.rows, |a, c| {
            let (one, other) = (&head.rows[a], &head.rows[c]);
            if a == c {
                return gradient.row(a)[a] * self.alone(head, a, rows[a].slope * self.along_query(one));
            }
            let [d, pulled] = met(a, c);
            let unlike = one.roots.unlike * other.roots.unlike * pulled;
            let slope = head.ratio(rows, q, a, c, Of::Slope);
            gradient.row(a)[c] * (d * slope + unlike * (1.0 - one.s2) * (1.0 - other.s2))
        });
        if let Some(masks) = masks {
            for (a, spread) in masks.spread.iter().enumerate() {
                query.row_mut(a)[a] += masks.odds[a] * gradient.row(a)[a] * spread * rows[a].slope;
            }
        }
        query
    }

    /// What a query receives beside what its row passes: one direction of d_head is that of the scores.
    fn along_query(&self, row: &Row) -> f64 {
        1.0 + (row.radial() - 1.0) / self.d_head
    }

    /// What a query receives of its own row, which passes `slope`.
    fn alone(&self, head: &Head, a: usize, slope: f64) -> f64 {
        let row = &head.rows[a];
        let unlike = row.roots.unlike.powi(2) * row.own_directions(head.turned(a, a));
        row.lengths(self.unequal, self.longer) * head.spread.row(a)[a] * slope + unlike
    }

    /// What the key weights collect of one head beyond what queries receive times their squares: rows of long queries are sharp.
    fn weighted(&self, head: &Head, rows: &[Row], gradient: &Matrix) -> f64 {
        let own = |(a, row): (usize, &Row)| {
            let plain = &head.rows[a];
            let longer = ratio(plain.weighted_slope, plain.slope) - self.along_query(plain);
            let through = plain.lengths(self.unequal, self.longer) * head.spread.row(a)[a] * row.slope * longer;
            gradient.row(a)[a] * self.query.square(a) * through
        };
        rows.iter().enumerate().map(own).sum()
    }

    /// What rows of two different queries pass more because their correlation strays.
    fn alike_queries(&self, head: &Head, gradient: &Matrix) -> f64 {
        let q = &self.query;
        let pair = |a: usize, c: usize| {
            let [_, strays] = head.expected(q, a, c, Of::Slope);
            gradient.row(a)[c] * head.spread.row(a)[c] * q.size(a, c) * strays
        };
        (0..gradient.rows).map(|a| 2.0 * (0..a).map(|c| pair(a, c)).sum::<f64>()).sum()
    }

    /// The matrix of key gradients before the rotation, from that behind it.
    fn unturned_key(&self, rotation: &Rotation, head: &Head, key: &Matrix, gradient: &Matrix) -> Matrix {
        let q = &self.query;
        let m = Matrix::symmetric(gradient.rows, |a, c| {
            let slope = head.ratio(&head.rows, q, a, c, Of::WeightedSlope);
            gradient.row(a)[c] * q.size(a, c) * q.before(a, c) * slope
        });
        let beyond = rotation.beyond(&m, &self.value.matrix, (&head.value.0, &head.value.1));
        Matrix::symmetric(key.rows, |b, d| key.row(b)[d] * rotation.overlap(b, d) + beyond.row(b)[d])
    }

    /// The matrices of query, key and value gradients of one head.
    fn split_head(&self, head: &Head, rows: &[Row], gradient: &Matrix, masks: Option<&Masks>) -> [Matrix; 3] {
        let (q, k, v) = (&self.query, &self.key.matrix, &self.value.matrix);
        let n = gradient.rows;
        let query = || self.split_query(head, rows, gradient, masks, |a, c| [head.spread.row(a)[c], head.turned(a, c)]);
        let key = || {
            let m = Matrix::symmetric(n, |a, c| {
                let lengths = if a == c { 1.0 + head.rows[a].outlying(self.unequal)[0] } else { 1.0 };
                gradient.row(a)[c] * lengths * head.met(rows, q, a, c, Of::WeightedSlope)
            });
            let mut key = head.adjoint(v, &head.value, &m);
            if let Some(alone) = head.keys_alone(q, v, gradient) {
                key.add([&alone], |[alone]| alone);
            }
            if let Some(masks) = masks {
                let passed = |a: usize| masks.odds[a] * q.square(a) * gradient.row(a)[a] * rows[a].weighted_slope;
                let passed = Matrix::of_diagonal(&(0..n).map(passed).collect::<Vec<f64>>());
                key.add([&head.adjoint(&masks.values, &masks.averaged, &passed)], |[passed]| passed);
            }
            centred(&key)
        };
        let value = || {
            let m =
                Matrix::symmetric(n, |a, c| self.variance * gradient.row(a)[c] * head.met(rows, q, a, c, Of::Value));
            let flat = head.averages.right_transposed(&head.averages.left_transposed(gradient));
            let mut value = flat.zip(&head.adjoint(k, &head.key, &m), |flat, rest| flat + rest);
            let factors: Vec<f64> = (0..n).map(|a| self.variance * q.square(a) * head.rows[a].shift).collect();
            let moved = head.shift_backward(k, gradient, &factors);
            let other = moved.transposed();
            value.add([&moved, &other], |[moved, other]| moved + other);
            if let Some(alone) = head.values_alone(self.variance, q, k, gradient) {
                value.add([&alone], |[alone]| alone);
            }
            if let Some(Masks { rate, .. }) = masks {
                let own: Vec<f64> = (0..n).map(|a| gradient.row(a)[a] * rows[a].squares()).collect();
                let let_through = head.averages.squared().transposed_of(&own);
                for (b, passed) in let_through.into_iter().enumerate() {
                    value.row_mut(b)[b] += rate * passed;
                }
            }
            value
        };
        let (value, (query, key)) = join(value, || join(query, key));
        [query, key, value]
    }
}

impl Raw {
    fn of_gradient(gradient: &Gradient) -> Self {
        Self::new(gradient.tokens.iter().map(|token| token.ln_second), &gradient.cosines)
    }
}

/// Products of vectors less their average: gradients of keys add up to nothing, for what all scores of a row share does not pass
/// the softmax.
fn centred(matrix: &Matrix) -> Matrix {
    let averages: Vec<f64> = (0..matrix.rows).map(|b| matrix.row(b).iter().sum::<f64>() / matrix.rows as f64).collect();
    let all = averages.iter().sum::<f64>() / matrix.rows as f64;
    Matrix::symmetric(matrix.rows, |b, d| matrix.row(b)[d] - averages[b] - averages[d] + all)
}

/// The average of the diagonal.
fn mean_square(matrix: &Matrix) -> f64 {
    matrix.diagonal().iter().sum::<f64>() / matrix.rows as f64
}

/// The average `of` the tokens' gradients, the large ones counting most; 1 of none.
fn average(gradient: &Gradient, of: impl Fn(&TokenGradient) -> f64) -> f64 {
    let largest = gradient.tokens.iter().map(|token| token.ln_second).fold(f64::NEG_INFINITY, f64::max);
    let weight = |token: &TokenGradient| share(token.ln_second, largest);
    let total: f64 = gradient.tokens.iter().map(weight).sum();
    if total > 0.0 { gradient.tokens.iter().map(|token| weight(token) * of(token)).sum::<f64>() / total } else { 1.0 }
}

fn to_gradient(matrix: &Matrix, ln_unit: f64, token: impl Fn(f64, usize) -> TokenGradient) -> Gradient {
    let tokens = squares(matrix).iter().enumerate().map(|(i, own)| token(ln_unit + own.ln(), i)).collect();
    Gradient::new(tokens, cosines(matrix))
}

/// The diagonal; sums that cancel leave rounding.
fn squares(matrix: &Matrix) -> Vec<f64> {
    matrix.diagonal().into_iter().map(|own| own.max(0.0)).collect()
}

fn cosines(matrix: &Matrix) -> Arc<[f64]> {
    let own = squares(matrix);
    crate::domain::symmetric(own.len(), |i, j| ratio(matrix.row(i)[j], (own[i] * own[j]).sqrt()).clamp(-1.0, 1.0))
}
