//! Heads that average alike: W, D, X and the saturation of every row.

use rayon::join;
use sigprop_stack::Rotary;

use super::own::Own;
use super::queries::Queries;
use super::rotation::Rotation;
use super::row::{LARGEST_VALUE_POWER, LEAST_POWER, Pull, Roots, Row, Traces, interpolation, sampled_rows};
use crate::domain::Concentration;
use crate::moments::ratio;
use crate::rules::attention::averages::Averages;
use crate::rules::attention::concentration::Unequal;
use crate::rules::attention::matrix::Matrix;
use crate::rules::attention::pull::Ends;
use crate::rules::softmax::Overlaps;

/// Number of effective keys up to which 1 − 3 S2 + 2 S3, which vanishes at two, is mostly the error of its table.
const LEAST_BENT: f64 = 2.05;

/// Of each query and key the roots of the shares of single keys, which add up to 1: of Σ A², and of what it passes.
pub(super) struct Singles {
    pub(super) squares: Matrix,
    pub(super) passed: Matrix,
}

/// Heads that average alike.
pub(super) struct Head {
    pub(super) averages: Averages,
    /// Variance of the cosine of two queries without one.
    drawn: f64,
    pub(super) rows: Vec<Row>,
    /// W K and P_K.
    pub(super) key: (Matrix, Matrix),
    /// W V and P_V.
    pub(super) value: (Matrix, Matrix),
    /// D.
    pub(super) spread: Matrix,
    /// X.
    pub(super) shift: Matrix,
    /// Where queries and keys are rotated.
    pub(super) rotation: Option<Rotation>,
    /// Where keys are structured.
    pub(super) singles: Option<Singles>,
    /// Likewise, where weights do not fall with distance.
    pub(super) own: Option<Own>,
}

impl Head {
    pub(super) fn new(
        averages: Averages,
        overlaps: &mut Overlaps,
        ([freedom, drawn], unequal, keys): ([f64; 2], Unequal, Concentration),
        variance: f64,
        q: &Queries,
        (k, rotary): (&Matrix, Option<&Rotary>),
        v: &Matrix,
    ) -> Self {
        let (key, value) = join(|| averages.averaged(k), || averages.averaged(v));
        let nothing = || Matrix::zeros(0, 0);
        let (rows, spread, shift) = (Vec::new(), nothing(), nothing());
        let mut head =
            Self { averages, drawn, rows, key, value, spread, shift, rotation: None, singles: None, own: None };
        let own = head.key_spread(k);
        head.spread = head.spread(k, v, &head.value);
        head.shift = head.shift(k, &head.value);
        head.rows = head.saturate(overlaps, (freedom, unequal, keys), variance, q, (k, v), &own);
        head.structured(overlaps, variance, q, (k, v));
        let effective = head.rows.iter().map(|row| row.effective).fold(0.0, f64::max);
        for row in &mut head.rows {
            let few = keys.rows * (effective / row.effective - 1.0);
            row.roots = Roots::of(row, (keys.total + few).clamp(0.0, 1.0));
        }
        let rotation = |rotary| Rotation::new(rotary, (&head.averages, &head.rows), (k, &head.key.1), v, &head.spread);
        head.rotation = rotary.map(rotation);
        head
    }

    /// D of the keys with X in place of V; `averaged` are W X and P_X.
    pub(super) fn spread(&self, k: &Matrix, x: &Matrix, averaged: &(Matrix, Matrix)) -> Matrix {
        let product = || self.averages.right(&self.averages.left(&k.times(x)));
        let half = || self.averages.right(&self.key.0.times(&averaged.0));
        let (product, half) = join(product, half);
        let other = half.transposed();
        let mut spread = product;
        spread.add([&half, &other, &self.key.1, &averaged.1], |[half, other, p_k, p_x]| p_k * p_x - half - other);
        spread
    }

    /// X with Y in place of V; `averaged` are W Y and P_Y.
    pub(super) fn shift(&self, k: &Matrix, averaged: &(Matrix, Matrix)) -> Matrix {
        let n = averaged.0.rows;
        let keys = k.diagonal();
        let columns = averaged.0.transposed();
        let own = self.averages.left(&Matrix::build(keys.len(), n, |b, c| keys[b] * columns.row(b)[c]));
        let rows = sampled_rows(n, 64, 1.0 / 48.0);
        let crossed = self.averages.weigh(&rows, &self.key.0).product(&columns);
        let between = interpolation(&rows);
        let means = self.averages.of(&keys);
        Matrix::build(n, n, |a, c| {
            let (below, part) = between[a];
            let above = (below + 1).min(rows.len() - 1);
            let crossed = crossed.row(below)[c] * (1.0 - part) + crossed.row(above)[c] * part;
            let level = 2.0 * self.key.1.row(a)[a] - means[a];
            0.5 * (own.row(a)[c] - 2.0 * crossed + level * averaged.1.row(a)[c])
        })
    }

    /// Wᵀ Γ μ', with the factors v Q_aa φ_a of μ'.
    pub(super) fn shift_backward(&self, k: &Matrix, gradient: &Matrix, factors: &[f64]) -> Matrix {
        let keys = k.diagonal();
        let means = self.averages.of(&keys);
        let n = factors.len();
        let through = self.averages.right_transposed(gradient);
        // Σ_c (ΓW)_cb f_c (W_cb' (K_b'b' + level_c) − 2 W_cb' (WK)_cb')/2.
        let levels: Vec<f64> = (0..n).map(|c| 2.0 * self.key.1.row(c)[c] - means[c]).collect();
        let scaled = Matrix::build(n, through.columns, |c, b| through.row(c)[b] * factors[c]);
        let levelled = Matrix::build(n, through.columns, |c, b| scaled.row(c)[b] * levels[c]);
        let all: Vec<usize> = (0..n).collect();
        let weighed = || self.averages.weigh(&all, &self.key.0).transposed().product(&scaled);
        let averaged = || join(|| self.averages.left_transposed(&scaled), || self.averages.left_transposed(&levelled));
        let (crossed, (plain, levelled)) = join(weighed, averaged);
        Matrix::build(through.columns, through.columns, |other, b| {
            0.5 * (plain.row(other)[b] * keys[other] + levelled.row(other)[b]) - crossed.row(other)[b]
        })
    }

    /// The diagonal of D with K in place of V.
    pub(super) fn key_spread(&self, k: &Matrix) -> Vec<f64> {
        let squares = self.averages.left(&k.times(k));
        let own = self.averages.diagonal(&squares);
        let halves = self.averages.diagonal(&self.key.0.times(&self.key.0));
        let averages = self.key.1.diagonal();
        own.iter().zip(halves).zip(averages).map(|((own, half), p)| (own - 2.0 * half + p * p).max(0.0)).collect()
    }

    pub(super) fn saturate(
        &self,
        overlaps: &mut Overlaps,
        (freedom, unequal, keys): (f64, Unequal, Concentration),
        variance: f64,
        q: &Queries,
        (k, v): (&Matrix, &Matrix),
        own: &[f64],
    ) -> Vec<Row> {
        let squares_of_keys = self.averages.of(&k.diagonal());
        let values = self.averages.of(&v.diagonal());
        let squares = self.averages.squared().of(&vec![1.0; k.rows]);
        (0..q.count())
            .map(|a| {
                let key = (squares_of_keys[a] - self.key.1.row(a)[a]).max(0.0);
                let value = (values[a] - self.value.1.row(a)[a]).max(0.0);
                let traces = Traces { key, value, input: value * value * ratio(squares_of_keys[a], values[a]) };
                let in_view = squares[a].recip();
                if key <= 1e-12 * squares_of_keys[a] || own[a] <= 0.0 {
                    return Row::flat(in_view, traces);
                }
                let effective = 1.0 + (key * key / own[a]).min(in_view - 1.0);
                let share = 1.0 - 1.0 / effective;
                let contrast = variance * q.square(a) * key / share;
                if contrast < 1e-6 {
                    return Row::flat_keys(effective, in_view, traces);
                }
                let key_cosine = self.key.1.row(a)[a] / squares_of_keys[a];
                let kurtosis = unequal.kurtosis(key_cosine) + 3.0 * keys.unequal;
                let row = overlaps.row(effective, contrast, freedom, kurtosis);
                let value = (row.s2 - 1.0 / effective) * effective / (contrast * share);
                let [_, growth] = overlaps.growth(effective, contrast);
                Row {
                    s2: row.s2,
                    effective,
                    in_view,
                    contrast,
                    value,
                    shift: if effective > LEAST_BENT { row.bend() / (share * (1.0 - 2.0 / effective)) } else { 1.0 },
                    slope: row.t() * effective / share,
                    weighted_slope: unequal.weighted(&row, freedom.recip()) * effective / share,
                    first: (1.0 - row.s2) / share,
                    traces,
                    leant: row.leant,
                    second: row.second(contrast),
                    ends: Ends::new(&row, effective, key_cosine, keys),
                    overlaps: Some(row),
                    growth,
                    ..Row::flat_keys(effective, in_view, traces)
                }
            })
            .collect()
    }

    /// R_ac, or R'_ac, from `of` a row on the diagonal; a row meets itself as one of `own`.
    pub(super) fn ratio(&self, own: &[Row], q: &Queries, a: usize, c: usize, of: Of) -> f64 {
        if a == c {
            return of.own(&own[a]);
        }
        of.series(&self.rows[a], &self.rows[c]).at(q.correlation(a, c))
    }

    /// E Q_ac R_ac over the sampled queries of heads, whose correlations stray.
    pub(super) fn met(&self, own: &[Row], q: &Queries, a: usize, c: usize, of: Of) -> f64 {
        if a == c {
            return q.square(a) * of.own(&own[a]);
        }
        let [expected, strays] = self.expected(q, a, c, of);
        let common = match of {
            // Keys receive the queries themselves.
            Of::WeightedSlope => q.cosine(a, c),
            Of::Value | Of::Slope => q.correlation(a, c),
        };
        q.size(a, c) * (common * expected + strays)
    }

    /// R_ac, and what it has from correlations that stray, of two different queries.
    pub(super) fn expected(&self, q: &Queries, a: usize, c: usize, of: Of) -> [f64; 2] {
        let series = of.series(&self.rows[a], &self.rows[c]);
        let rho = q.correlation(a, c);
        let variance = (1.0 - rho * rho).powi(2) * self.drawn;
        [series.at(rho), variance * series.bent(rho)]
    }

    /// E Q_ac R_ac D_ac.
    fn fluctuating(&self, q: &Queries, a: usize, c: usize) -> f64 {
        let d = self.spread.row(a)[c];
        if a == c {
            return d * self.met(&self.rows, q, a, c, Of::Value);
        }
        let [expected, strays] = self.expected(q, a, c, Of::Value);
        self.alike_spread(q, a, c) * expected + q.size(a, c) * d * strays
    }

    /// Q_ac D_ac.
    pub(super) fn alike_spread(&self, q: &Queries, a: usize, c: usize) -> f64 {
        q.size(a, c) * q.before(a, c) * self.spread_of(a, c)
    }

    /// D_ac, of rotated keys as queries meet it that are not rotated.
    pub(super) fn spread_of(&self, a: usize, c: usize) -> f64 {
        match &self.rotation {
            Some(rotation) if a != c => rotation.spread(a, c),
            _ => self.spread.row(a)[c],
        }
    }

    /// What scores add to an average of two rows, from how it fluctuates, E Q_ac R_ac D_ac, and X.
    pub(super) fn first_order(
        &self,
        variance: f64,
        q: &Queries,
        (fluctuating, x): (f64, &Matrix),
        a: usize,
        c: usize,
    ) -> f64 {
        let moved = |a: usize, c: usize| q.square(a) * x.row(a)[c] * self.rows[a].shift;
        variance * (fluctuating + moved(a, c) + moved(c, a))
    }

    /// What averages of X of two different rows have beyond the first order because scores move them, where keys have a structure.
    pub(super) fn moved(&self, x: &Matrix) -> Option<Matrix> {
        self.own.as_ref().map(|own| own.moved(&self.averages, x))
    }

    /// What rows a and c have in common of their scores, of what each has with itself.
    fn alike(&self, q: &Queries, a: usize, c: usize) -> f64 {
        if a == c {
            return 1.0;
        }
        let own = self.rows[a].roots.value * self.rows[c].roots.value;
        ratio(q.correlation(a, c) * self.ratio(&self.rows, q, a, c, Of::Value), own).min(1.0)
    }

    /// What rotations of keys leave of products of their inputs, in rows a and c.
    pub(super) fn turned(&self, a: usize, c: usize) -> f64 {
        self.rotation.as_ref().map_or(1.0, |rotation| rotation.turned(a, c))
    }

    /// The pull of every two rows.
    pub(super) fn pulls(&self, q: &Queries, pull: Pull) -> Matrix {
        Matrix::symmetric(q.count(), |a, c| self.pulled(q, pull, a, c))
    }

    /// The pull of rows a and c.
    fn pulled(&self, q: &Queries, pull: Pull, a: usize, c: usize) -> f64 {
        pull.at(q, [a, c], &self.rows, [self.alike(q, a, c), self.turned(a, c)])
    }

    /// Σ_ac Γ_ac times the pull.
    pub(super) fn pulled_gradient(&self, q: &Queries, pull: Pull, gradient: &Matrix) -> f64 {
        let row = |a: usize| {
            let between = (0..a).map(|c| gradient.row(a)[c] * self.pulled(q, pull, a, c)).sum::<f64>();
            gradient.row(a)[a] * self.pulled(q, pull, a, a) + 2.0 * between
        };
        (0..gradient.rows).map(row).sum()
    }

    /// E z_a·z_c, of rows with these `pulls`.
    pub(super) fn output(&self, variance: f64, q: &Queries, v: &Matrix, pulls: &Matrix, odds: f64) -> Matrix {
        let n = q.count();
        let moved = self.moved(v);
        let mut output = Matrix::symmetric(n, |a, c| {
            let first = self.first_order(variance, q, (self.fluctuating(q, a, c), &self.shift), a, c);
            let moved = moved.as_ref().filter(|_| a != c).map_or(0.0, |moved| moved.row(a)[c]);
            self.value.1.row(a)[c] + first + moved + pulls.row(a)[c]
        });
        for a in 0..n {
            let square = &mut output.row_mut(a)[a];
            *square = self.within(a, v, *square);
        }
        if odds > 0.0 {
            let let_through = self.averages.squared().of(&v.diagonal());
            for (a, row) in self.rows.iter().enumerate() {
                output.row_mut(a)[a] += odds * let_through[a] * row.squares();
            }
        }
        output
    }

    /// The square of the average of row `a`, no further than weights that add up to 1 can make it from those of values that
    /// do not oppose each other.
    pub(super) fn within(&self, a: usize, v: &Matrix, square: f64) -> f64 {
        let squares = self.averages.weighted_keys(a).map(|(b, _)| v.row(b)[b]);
        let (least, most) = squares.fold((f64::INFINITY, 0.0), |(least, most), own| (own.min(least), own.max(most)));
        square.max(least / self.rows[a].in_view).min(most)
    }

    /// cos² of the angles between outputs and values with these squares, on average over the values that a query sees, and over the
    /// queries that see a value.
    pub(super) fn alignments(&self, values: &[f64], outputs: &[f64]) -> [Vec<f64>; 2] {
        let (mut of_queries, mut of_values) = (vec![0.0; outputs.len()], vec![0.0; values.len()]);
        for (a, of_query) in of_queries.iter_mut().enumerate() {
            for (b, weight) in self.averages.weighted_keys(a) {
                let cosine = ratio(self.value.0.row(a)[b].powi(2), values[b] * outputs[a]).min(1.0);
                *of_query += weight * cosine;
                of_values[b] += weight * cosine;
            }
        }
        let seen = self.averages.transposed_of(&vec![1.0; outputs.len()]);
        of_values.iter_mut().zip(seen).for_each(|(of_value, seen)| *of_value = ratio(*of_value, seen));
        [of_queries, of_values]
    }

    /// C(X, M); `averaged` are W X and P_X.
    pub(super) fn adjoint(&self, x: &Matrix, averaged: &(Matrix, Matrix), m: &Matrix) -> Matrix {
        let through = self.averages.right_transposed(m);
        let (outer, (half, inner)) = join(
            || self.averages.left_transposed(&through),
            || {
                join(
                    || self.averages.left_transposed(&averaged.0.times(&through)),
                    || {
                        let once = self.averages.left_transposed(&m.times(&averaged.1));
                        self.averages.right_transposed(&once)
                    },
                )
            },
        );
        let other = half.transposed();
        let mut adjoint = inner;
        adjoint.add([&half, &other, &outer, x], |[half, other, outer, x]| outer * x - half - other);
        adjoint
    }
}

/// R or R' of two rows whose queries have the correlation ρ: W_1 and W_2 of [`crate::rules::softmax`], and one power of ρ with
/// what is left of the sum, which makes (ρR)' what it is at 1.
#[derive(Clone, Copy)]
pub(super) struct Series {
    first: f64,
    second: f64,
    rest: f64,
    power: f64,
}

impl Series {
    pub(super) fn at(self, rho: f64) -> f64 {
        self.first + self.second * rho + self.rest * self.power_of(rho)
    }

    /// (ρR)''/2.
    fn bent(self, rho: f64) -> f64 {
        let rest = 0.5 * self.power * (self.power + 1.0) * self.rest;
        self.second + if rho == 0.0 { 0.0 } else { rest * self.power_of(rho) / rho }
    }

    /// The part of what there is beyond ρ⁰ at 1.
    pub(super) fn beyond(self, rho: f64) -> f64 {
        ratio(self.second * rho + self.rest * self.power_of(rho), self.second + self.rest)
    }

    fn power_of(self, rho: f64) -> f64 {
        // Most rows are not sharp.
        if self.power <= LEAST_POWER { rho * rho } else { rho.abs().powf(self.power) }
    }
}

/// R of averages, R' of their derivatives by the scores, and R' with the query's own length.
#[derive(Clone, Copy)]
pub(super) enum Of {
    Value,
    Slope,
    WeightedSlope,
}

impl Of {
    /// Of a row with itself.
    fn own(self, row: &Row) -> f64 {
        match self {
            Self::Value => row.value,
            Self::Slope => row.slope,
            Self::WeightedSlope => row.weighted_slope,
        }
    }

    /// √ of what is beyond f².
    fn rest(self, roots: &Roots) -> f64 {
        match self {
            Self::Value => roots.value_rest,
            Self::Slope => roots.slope_rest,
            Self::WeightedSlope => roots.weighted_slope_rest,
        }
    }

    /// √ of what is beyond f², of a row that sees more keys than the other of those that both see (`structure.rs`).
    fn rest_beside(self, row: &Row, other: &Row) -> f64 {
        let rest = self.rest(&row.roots);
        let first = row.first * row.first;
        let all = rest * rest + first;
        if row.effective <= other.effective || all >= 1.0 {
            return rest;
        }
        let fewer = (1.0 + (all.recip() - 1.0) * row.effective / other.effective).recip();
        (fewer - first).max(0.0).sqrt()
    }

    /// Of two rows.
    pub(super) fn series(self, one: &Row, other: &Row) -> Series {
        let rest = self.rest_beside(one, other) * self.rest_beside(other, one);
        let (part, largest) = match self {
            Self::Value => (0.5, LARGEST_VALUE_POWER),
            Self::Slope | Self::WeightedSlope => (1.0, f64::INFINITY),
        };
        let second = (part * one.roots.second * other.roots.second).min(rest);
        let power = (0.5 * (one.roots.power + other.roots.power)).min(largest);
        Series { first: one.first * other.first, second, rest: rest - second, power }
    }
}
