//! How the sharpness of rows and the lengths of tokens meet gradients (`attention/lengths.rs`), by position.

use super::head::Head;
use super::queries::Queries;
use super::row::Row;
use crate::moments::{TokenGradient, ratio};
use crate::rules::attention::SHARPEST_SAMPLED;
use crate::rules::attention::lengths::{self, Met};
use crate::rules::attention::matrix::Matrix;

/// What keys of one head sum over their queries.
pub(super) struct Lengths {
    /// E (v·g_v)(k·g_k), and E (k·g_k)², as E (v·g_v)² is the gradient at values.
    pub(super) crossed: Vec<f64>,
    pub(super) keys: Vec<f64>,
    /// Of the gradient at values what comes of the token's own.
    pub(super) local: Vec<f64>,
}

impl Lengths {
    /// Of no head.
    pub(super) fn none(n_keys: usize) -> Self {
        let nothing = || vec![0.0; n_keys];
        Self { crossed: nothing(), keys: nothing(), local: nothing() }
    }

    /// With a `part` of those of another head.
    pub(super) fn add(&mut self, other: &Self, part: f64) {
        let add = |all: &mut Vec<f64>, own: &[f64]| all.iter_mut().zip(own).for_each(|(all, own)| *all += part * own);
        add(&mut self.crossed, &other.crossed);
        add(&mut self.keys, &other.keys);
        add(&mut self.local, &other.local);
    }
}

impl Row {
    /// E (q·g_q)² at the query, g_q its gradient, where isotropic gradients have 1.
    pub(super) fn radial(&self) -> f64 {
        self.overlaps.as_ref().map_or(1.0, lengths::query_radial)
    }

    /// 1 − the cosine of values, whose average has the square `averaged`.
    fn apart(&self, averaged: f64) -> f64 {
        ratio(self.traces.value, (self.traces.value + averaged) * (1.0 - self.in_view.recip()))
    }

    /// What the sum of its squares multiplies in E z².
    fn amplitude(&self, spread: f64) -> f64 {
        ratio(spread * self.effective, self.traces.key)
    }

    /// The row as it meets a `gradient`, where the square of its keys' part, of `spread`, has the weight `part`.
    fn meeting(&self, gradient: &TokenGradient, spread: f64, part: f64, longer: f64) -> Self {
        let Some(row) = &self.overlaps else { return *self };
        let met = Met::new(row, self.effective, gradient, self.amplitude(spread) * part);
        let (squares, through) = (met.squares, met.sharp + ratio(met.along, row.t()));
        let flat = self.effective.recip();
        Self {
            s2: self.s2 * squares,
            value: self.value * ratio(self.s2 * squares - flat, self.s2 - flat),
            slope: self.slope * through,
            weighted_slope: self.weighted_slope * through * (1.0 + longer * self.attended()),
            ..*self
        }
    }
}

impl Head {
    /// Variance of ln |z|² of every query of which other outputs know nothing; outputs have the squares `own`.
    pub(super) fn uneven(&self, own: &[f64], n_heads: f64) -> Vec<f64> {
        let variance = |(a, row): (usize, &Row)| {
            let Some(overlaps) = &row.overlaps else { return 0.0 };
            lengths::uneven(overlaps, ratio(row.amplitude(self.spread.row(a)[a]), own[a]), n_heads)
        };
        self.rows.iter().enumerate().map(variance).collect()
    }

    /// Every row as it meets the gradient of its output; outputs have the squares `own`.
    pub(super) fn meeting(&self, gradients: &[TokenGradient], own: &[f64], n_heads: f64, longer: f64) -> Vec<Row> {
        let met = |(a, row): (usize, &Row)| {
            row.meeting(&gradients[a], self.spread.row(a)[a], ratio(1.0, own[a] * n_heads), longer)
        };
        self.rows.iter().enumerate().map(met).collect()
    }

    /// What `gradient` sums for keys, of rows that meet their own as `rows`; values are let through 1 + `odds` times.
    pub(super) fn lengths(&self, rows: &[Row], q: &Queries, gradient: &Matrix, odds: f64) -> Lengths {
        let tilts: Vec<f64> = rows.iter().map(|row| lengths::tilt(row.s2, row.contrast)).collect();
        let apart = |(a, row): (usize, &Row)| row.apart(self.value.1.row(a)[a]).sqrt();
        let apart: Vec<f64> = rows.iter().enumerate().map(apart).collect();
        let scores: Vec<f64> = rows.iter().map(|row| row.contrast.sqrt()).collect();
        let summed = |of: &(dyn Fn(usize, usize) -> f64 + Sync)| {
            let n = rows.len();
            let weighted = Matrix::symmetric(n, |a, c| {
                let met = if a == c {
                    rows[a].squares() * (1.0 + odds)
                } else {
                    let scores = (scores[a] * scores[c]).min(SHARPEST_SAMPLED);
                    1.0 + q.correlation(a, c) * scores * rows[a].first * rows[c].first
                };
                gradient.row(a)[c] * apart[a] * apart[c] * met * of(a, c)
            });
            self.averages.transposed_diagonal(&self.averages.right_transposed(&weighted))
        };
        // Of a row with itself; nothing if scores do not differ.
        let alone = |row: &Row| row.overlaps.map_or([0.0; 2], |overlaps| lengths::alone(&overlaps, row.contrast));
        let together = |a: usize, c: usize| {
            if a == c { alone(&rows[a]) } else { lengths::pair(0.5 * (tilts[a] + tilts[c]), q.correlation(a, c)) }
        };
        let [crossed, keys] = [0, 1].map(|k| summed(&|a, c| together(a, c)[k]));
        let mut reached = vec![0.0; self.key.0.columns];
        let mut own = reached.clone();
        for a in 0..rows.len() {
            for (b, weight) in self.averages.weighted_keys(a).filter(|&(b, _)| b < rows.len()) {
                reached[b] += weight * gradient.row(a)[b];
                if a == b {
                    own[b] = weight;
                }
            }
        }
        let local = reached.iter().zip(own).map(|(reached, own)| reached * own).collect();
        Lengths { crossed, keys, local }
    }
}
