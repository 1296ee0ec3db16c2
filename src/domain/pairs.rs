//! Symmetric matrices of pairs of positions, row by row: built, and summed.

use std::iter::repeat_n;
use std::sync::Arc;

use rayon::join;
use rayon::prelude::*;

/// Rows of this length that are worth a thread of their own.
pub(crate) fn rows_at_a_time(length: usize) -> usize {
    /// Entries, each a few nanoseconds.
    const GRAIN: usize = 8192;
    GRAIN.div_ceil(length.max(1))
}

/// A matrix of `count`² cosines, 1 on the diagonal, from those below it.
pub(crate) fn symmetric(count: usize, cosine: impl Fn(usize, usize) -> f64 + Sync) -> Arc<[f64]> {
    let mut matrix: Arc<[f64]> = repeat_n(1.0, count * count).collect();
    let entries = Arc::get_mut(&mut matrix).expect("nobody else has it yet");
    let rows = entries.par_chunks_exact_mut(count.max(1)).enumerate().with_min_len(rows_at_a_time(count));
    rows.for_each(|(i, row)| {
        for (j, entry) in row[..i].iter_mut().enumerate() {
            *entry = cosine(i, j);
        }
    });
    mirror(entries, count, 0);
    matrix
}

/// Copies what is below the diagonal to above it, in rows of length `count`, the first of them number `first` of
/// the matrix: what is right of half of the rows is below the other half.
pub(crate) fn mirror(rows: &mut [f64], count: usize, first: usize) {
    /// Rows that stay in a cache.
    const SMALL: usize = 64;
    let height = rows.len() / count.max(1);
    if height <= SMALL {
        for i in 0..height {
            for j in i + 1..height {
                rows[i * count + first + j] = rows[j * count + first + i];
            }
        }
        return;
    }
    let half = height / 2;
    let (upper, lower) = rows.split_at_mut(half * count);
    upper.par_chunks_mut(TILE * count).enumerate().for_each(|(band, rows)| {
        transpose((rows, count), first + half, (lower, count), first + band * TILE);
    });
    join(|| mirror(upper, count, first), || mirror(lower, count, first + half));
}

/// Rows of a transpose that are written at a time: whole cache lines of a row are read, and a tile stays in a cache.
pub(crate) const TILE: usize = 32;

/// Writes columns of `source`, from number `left`, as the at most [`TILE`] rows of `target`, from column `first`; both
/// with the length of their rows. Tiles pass through a small array: rows a power of two long share places in a cache.
pub(crate) fn transpose(
    (target, columns): (&mut [f64], usize),
    first: usize,
    (source, source_columns): (&[f64], usize),
    left: usize,
) {
    let height = target.len() / columns;
    let mut tile = [[0.0; TILE]; TILE];
    for (top, rows) in source.chunks(TILE * source_columns).enumerate() {
        let mut width = 0;
        for (tile, row) in tile.iter_mut().zip(rows.chunks_exact(source_columns)) {
            tile[..height].copy_from_slice(&row[left..left + height]);
            width += 1;
        }
        for (j, row) in target.chunks_exact_mut(columns).enumerate() {
            for (entry, tile) in row[first + top * TILE..].iter_mut().zip(&tile[..width]) {
                *entry = tile[j];
            }
        }
    }
}

/// Σ_ij w_i w_j f_ij of functions of the entries of symmetric `matrices`, which are `own` on the diagonal; in the same
/// order at any number of threads.
pub(super) fn pair_sums<const M: usize, const N: usize>(
    weights: &[f64],
    matrices: [&[f64]; M],
    own: [f64; N],
    pair: impl Fn([f64; M]) -> [f64; N] + Sync,
) -> [f64; N] {
    /// Sums side by side, which need not wait for each other.
    const LANES: usize = 8;
    let count = weights.len();
    let row = |i: usize| {
        let rows = matrices.map(|matrix| &matrix[i * count..i * count + i]);
        let mut lanes = [[0.0; LANES]; N];
        let blocks = i / LANES;
        for block in 0..blocks {
            let at = |row: &[f64]| -> [f64; LANES] {
                row[block * LANES..(block + 1) * LANES].try_into().expect("as many as there are lanes")
            };
            let (entries, weights) = (rows.map(at), at(weights));
            for lane in 0..LANES {
                let f = pair(entries.map(|entries| entries[lane]));
                for k in 0..N {
                    lanes[k][lane] += weights[lane] * f[k];
                }
            }
        }
        let mut below = lanes.map(|lanes| lanes.iter().sum::<f64>());
        for j in blocks * LANES..i {
            let f = pair(rows.map(|row| row[j]));
            for k in 0..N {
                below[k] += weights[j] * f[k];
            }
        }
        std::array::from_fn(|k| weights[i] * (2.0 * below[k] + weights[i] * own[k]))
    };
    let rows: Vec<[f64; N]> = (0..count).into_par_iter().with_min_len(rows_at_a_time(count)).map(row).collect();
    rows.iter().fold([0.0; N], |sums, row| std::array::from_fn(|k| sums[k] + row[k]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes with and without halves, bands and leftovers.
    #[test]
    fn symmetric_matrices_have_their_entries_on_both_sides() {
        for count in [0, 1, 7, 64, 65, 203] {
            let entry = |i: usize, j: usize| (i * 1000 + j) as f64;
            let matrix = symmetric(count, entry);
            for i in 0..count {
                assert!((matrix[i * count + i] - 1.0).abs() < f64::EPSILON);
                for j in 0..i {
                    let [below, above] = [matrix[i * count + j], matrix[j * count + i]];
                    assert_eq!([below, above].map(|x| x as usize), [i * 1000 + j; 2]);
                }
            }
        }
    }

    /// Sizes with and without leftovers; of whole numbers, so that every order of summing gives the same.
    #[test]
    fn sums_go_over_all_pairs() {
        for count in [0, 1, 7, 8, 41] {
            let entry = |i: usize, j: usize| ((3 * i.max(j) + 5 * i.min(j)) % 7) as f64;
            let (one, other) = (symmetric(count, entry), symmetric(count, |i, j| 2.0 * entry(i, j)));
            let weights: Vec<f64> = (0..count).map(|i| (i % 3) as f64).collect();
            let sums = pair_sums(&weights, [&one, &other], [1.0, 4.0], |[x, y]| [x, x * y]);
            let mut expected = [0.0; 2];
            for i in 0..count {
                for j in 0..count {
                    let own = i == j;
                    let (x, y) = (one[i * count + j], other[i * count + j]);
                    expected[0] += weights[i] * weights[j] * x;
                    expected[1] += weights[i] * weights[j] * if own { 4.0 } else { x * y };
                }
            }
            assert_eq!(sums.map(|sum| sum as i64), expected.map(|sum| sum as i64));
        }
    }
}
