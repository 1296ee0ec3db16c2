//! The effect of repeated ids on sums over keys in view. The product of two tokens with the same id is larger by δ.
//!
//! Ids are drawn independently. Sums fluctuate with the number of repeats, and two queries with the same id see this id
//! more often.
//!
//! ```text
//! P gains       (W_aa W_cc + W_ac W_ca)(V_class − V)
//!               + e_class Σ_d≠a,c [(W_aa W_cd + W_ca W_ad) δ_ad + (W_cc W_ad + W_ac W_cd) δ_cd]
//! F₁ gains      e₃ Σ_b W_ab R_δ(b, c)² + e₂ Σ_bd W_ab W_cd² δ_bd²
//! P∘P' gains    e₁ (Δ[W_a², W_c²] + Δ[W_a W_c, W_a W_c])
//!               + e₃ (U_ac + U_ca + 2 Σ_b W_ab W_cb R_δ(b, a) R_δ(b, c))      U_ac = Σ_b W_ab² R_δ(b, c)²
//! ```
//!
//! where a, c are positions of queries; b, d are positions of keys; P, F₁, P' are the sums of [`super::masked`]; W is
//! the matrix of flat weights; V_class is V of the pairs of one class, with the same id or with different ids; V is the
//! kernel of values, averaged over both classes; δ is the excess of the kernel for two tokens with the same id, and its
//! square is the δ of keys times the δ of values; R_δ(b, c) is Σ_d≠b W_cd δ_bd; Δ[W_a², W_c²] is Σ_bd W_ab² δ_bd²
//! W_cd², and likewise with other weights; U_ac is a sum over keys that is defined in the last line; e_class is the
//! probability that a third token has the id of the first token of a pair of this class, minus the probability that two
//! tokens have the same id; e₃ is π₃ − π₂², where π_k is the probability that k tokens have the same id; e₂ is π₂ − π₃;
//! e₁ is e₂ − e₃.
//!
//! The product of two different R_δ is taken as the geometric mean of the squares, and Δ[W_a W_c, W_a W_c] as
//! Δ[W_c², W_c²] (Σ_d W_ad W_cd/Σ_d W_cd²)². Source: ours.

use super::operators::{Jump, Operators, added, multiplied};
use super::side::Ahead;
use crate::mean_field::few::Few;
use crate::mean_field::positions::Repetition;

/// The additions to P, D and X from repeated ids: `flat` to P in each class of pairs and `spread` to D, both at lower
/// points, and `shift` to X at all points.
pub(super) struct Repeats {
    pub(super) flat: [Vec<f64>; 2],
    pub(super) spread: Vec<f64>,
    pub(super) shift: Vec<f64>,
    /// The mean of δ over pairs of tokens in view, per query: first of the keys, then of the values. δ is the excess of
    /// the kernel for two tokens with the same id.
    pub(super) differences: [Few<f64>; 2],
}

/// The excess δ of a kernel for two tokens with the same id: at the lower points, its limit at every node, and its
/// weighted sums R_δ at all points.
struct Difference {
    lower: Vec<f64>,
    limit: Vec<f64>,
    rows: Vec<f64>,
}

impl Difference {
    fn new(operators: &Operators, side: &Ahead) -> Self {
        let lower = side.side.kernel.of_same_ids().to_vec();
        let limit = operators.diagonal(&lower).to_vec();
        let rows = operators.over_keys(&operators.sums.chart.all(&lower), side.side.is_key);
        let rows = operators.without_own(&rows, &limit, 1);
        Self { lower, limit, rows }
    }

    /// Returns the mean of δ over the pairs of keys in view of every query: Σ_b≠d W_ab W_ad δ_bd over Σ_b≠d W_ab W_ad.
    fn mean(&self, operators: &Operators) -> Few<f64> {
        let sums = operators.with_jump(Jump::Forward, &operators.sums.chart.transposed(&self.rows));
        // Σ_b≠d W_ab W_ad.
        let pairs = |(total, most): (&f64, &f64)| total * total - most.recip();
        let pairs = operators.sums.totals.iter().zip(&operators.sums.most).map(pairs);
        let sums = operators.diagonal(&operators.lower(&sums)).into_iter().zip(pairs);
        sums.map(|(sum, pairs)| if pairs > 1e-9 { sum / pairs } else { 0.0 }).collect()
    }
}

impl Repeats {
    pub(super) fn new(operators: &Operators, key: &Ahead, value: &Ahead) -> Option<Self> {
        let ids = key.side.kernel.positions.repetition.as_ref()?;
        let [of_key, of_value] = [key, value].map(|side| Difference::new(operators, side));
        let chart = &operators.sums.chart;
        let both = multiplied(&of_key.lower, &of_value.lower);
        let limit = multiplied(&of_key.limit, &of_value.limit);
        let rows = multiplied(&chart.transposed(&of_key.rows), &chart.transposed(&of_value.rows));
        let all = chart.all(&both);
        let squares = operators.without_own(&operators.sums.squares.of(&all), &limit, 2);
        let alone = operators.without_own(&operators.sums.forward.of(&all), &limit, 1);
        let (first, second, together) = (ids.excess_of_both(), ids.excess(), ids.covariance());
        let jump = |sum: Jump, f: &[f64]| operators.with_jump(sum, f);
        let transposed = chart.transposed(&squares);

        // F₁ and P∘P' are at (row c, position a).
        let crossed = sum_of(&[(together, &jump(Jump::Forward, &rows)), (second, &jump(Jump::Forward, &transposed))]);
        let of_rows = jump(Jump::Squares, &rows);
        let apart = operators.lower(&jump(Jump::Squares, &transposed));
        let mean = {
            let [of_rows, other] = [&of_rows, &chart.transposed(&of_rows)].map(|all| operators.lower(all));
            let own = operators.diagonal(&apart);
            let own = operators.at_lower_ends(&own);
            let at = |index: usize| {
                let alike = apart[index] + own[index] * operators.sums.alike[index].powi(2);
                let rows = of_rows[index] + other[index] + root(of_rows[index] * other[index]) * 2.0;
                alike * first + rows * together
            };
            (0..apart.len()).map(at).collect::<Vec<f64>>()
        };
        let spread = {
            let transposed = operators.lower(&chart.transposed(&crossed));
            let crossed = operators.lower(&crossed);
            (0..mean.len()).map(|index| mean[index] - crossed[index] - transposed[index]).collect()
        };
        let shift =
            shift(operators, [&rows, &of_rows], [&transposed, &chart.transposed(&alone)], [first, second, together]);
        let differences = [&of_key, &of_value].map(|of| of.mean(operators));
        Some(Self { flat: flat(operators, &of_value, ids), spread, shift, differences })
    }
}

/// Returns the addition to X(a, c) from repeated ids, at all points of the chart (node a, second position c).
fn shift(
    operators: &Operators,
    [rows, of_rows]: [&[f64]; 2],
    [squares, alone]: [&[f64]; 2],
    [first, second, together]: [f64; 3],
) -> Vec<f64> {
    let chart = &operators.sums.chart;
    let diagonals: Vec<usize> = chart.diagonals().collect();
    let both = |f: &[f64]| operators.with_jump(Jump::Both, f);
    let (of_squares, of_alone, own_rows) = (both(squares), both(alone), both(rows));
    // Σ_b W_ab² R_δ(b, c)² and Σ_b W_ab R_δ(b, c)² are at (row a, position c).
    let by_square = chart.transposed(of_rows);
    let by_weight = chart.transposed(&operators.with_jump(Jump::Forward, rows));
    let product = |of: &[f64], place: usize| root(of[diagonals[chart.points[place].0]] * of[place]);
    let at = |place: usize| {
        let mean =
            of_squares[place] * (2.0 * first) + (product(&by_square, place) + own_rows[place]) * (2.0 * together);
        mean - product(&by_weight, place) * together - of_alone[place] * second
    };
    (0..chart.points.len()).map(at).collect()
}

/// Returns the addition to P from repeated ids in each class of pairs, at the lower points.
fn flat(operators: &Operators, difference: &Difference, ids: &Repetition) -> [Vec<f64>; 2] {
    let chart = &operators.sums.chart;
    let [rows, transposed] = [&difference.rows, &chart.transposed(&difference.rows)].map(|all| operators.lower(all));
    let own: Vec<f64> = chart.diagonals().map(|diagonal| difference.rows[diagonal + 1]).collect();
    let own_at_ends = operators.at_lower_ends(&own);
    let at = |index: usize| {
        let place = chart.lower[index];
        let node = chart.points[place].0;
        let [wa, wb] = operators.own_weights(place);
        let [query, key] = [operators.sums.query_weights[place], operators.sums.key_weights[place]];
        let third =
            (rows[index] - difference.lower[index] * wb) * wa + (transposed[index] - difference.lower[index] * wa) * wb;
        let third =
            third + own[node] * key + own_at_ends[index] * query - difference.lower[index] * (2.0 * query * key);
        [difference.lower[index] * (wa * wb + query * key), third]
    };
    let gains: Vec<[f64; 2]> = (0..difference.lower.len()).map(at).collect();
    [0, 1].map(|class| {
        gains.iter().map(|&[pair, third]| pair * ids.of_pair(class) + third * ids.of_third(class)).collect()
    })
}

fn root(square: f64) -> f64 {
    if square > 0.0 { square.sqrt() } else { 0.0 }
}

fn sum_of(parts: &[(f64, &[f64]); 2]) -> Vec<f64> {
    let [(a, first), (b, second)] = parts;
    added(&scaled(first, *a), &scaled(second, *b))
}

fn scaled(of: &[f64], factor: f64) -> Vec<f64> {
    of.iter().map(|&value| value * factor).collect()
}
