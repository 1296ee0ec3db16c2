//! Rotary positions: features i and i + n of every head are rotated by position · θ_i, backward by its negative.

use sigprop_stack::Rotary;

use crate::{array::Array, scalar::Scalar};

/// Rotates every token by the angles of its position, or by their negatives if `backward`.
pub(crate) fn apply<T: Scalar>(rotary: &Rotary, array: &mut Array<T>, backward: bool) {
    let n = rotary.frequencies.len();
    let seq_len = array.shape().seq_len;
    let direction = if backward { -1.0 } else { 1.0 };
    for (token, row) in array.rows_mut().enumerate() {
        let position = (token % seq_len) as f64;
        let turns: Vec<(T, T)> = rotary
            .frequencies
            .iter()
            .map(|frequency| {
                let (sine, cosine) = (direction * position * frequency).sin_cos();
                (T::from_f64(cosine), T::from_f64(sine))
            })
            .collect();
        for head in row.chunks_exact_mut(rotary.d_head) {
            for (i, &(cosine, sine)) in turns.iter().enumerate() {
                let (a, b) = (head[i], head[i + n]);
                head[i] = a * cosine - b * sine;
                head[i + n] = a * sine + b * cosine;
            }
        }
    }
}
