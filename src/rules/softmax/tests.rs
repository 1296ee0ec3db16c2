use approx::assert_relative_eq;

use super::*;

/// Sampled values of refinements §3 and theory §2 (PyTorch, L = 1024, w = 16).
#[test]
fn condensed_phase_is_right() {
    let [s2, ..] = row_overlaps(1024.0, 16.0);
    assert_relative_eq!(s2, 0.273, max_relative = 5e-3);
}

/// ln n + w/2 less (e^w − 1)/(2n) while the sum does not fluctuate; of two scores E ln(e^a + e^b) = E ln 2cosh((a −
/// b)/2) of variance 1, from the trapezoidal sum of e^(−x²/4)/√(4π) · ln 2cosh(x/2) in Python's math, step 0.001.
#[test]
fn the_partition_function_has_its_logarithm() {
    let ln_partition = |n: f64, w| Apart::new(n - 1.0, w, [0.0, w], None).ln_partition;
    assert_relative_eq!(ln_partition(32_000.0, 1e-8), 32_000_f64.ln(), max_relative = 1e-7);
    let (n, w) = (50_000.0, 1.0_f64);
    assert_relative_eq!(ln_partition(n, w), n.ln() + 0.5 * w - w.exp_m1() / (2.0 * n), max_relative = 1e-7);
    assert_relative_eq!(ln_partition(2.0, 1.0), 0.902_661_907_720, max_relative = 1e-7);
}

#[test]
fn flat_limit_is_one_over_n() {
    let [s2, s3, s4, s22, tilt, t_s2, ..] = row_overlaps(64.0, 1e-6);
    assert_relative_eq!(s2, 1.0 / 64.0, max_relative = 1e-5);
    assert_relative_eq!(s3, 1.0 / 64f64.powi(2), max_relative = 1e-5);
    assert_relative_eq!(s4, 1.0 / 64f64.powi(3), max_relative = 1e-5);
    assert_relative_eq!(s22, 1.0 / 64f64.powi(2), max_relative = 1e-5);
    let t = s2 - 2.0 * s3 + s22;
    assert_relative_eq!(tilt, t, max_relative = 1e-4);
    assert_relative_eq!(t_s2, t * s2, max_relative = 1e-4);
}

/// U and E T ΣA² by Monte-Carlo: 200 000 rows of 32 scores of variance 4 and 16; α = 1e-4.
#[test]
fn tilt_and_sharpness_agree_with_samples() {
    use rand::{SeedableRng, rngs::Xoshiro256PlusPlus};
    use rand_distr::{Distribution, StandardNormal};
    const ROWS: usize = 200_000;
    let mut generator = Xoshiro256PlusPlus::seed_from_u64(3);
    for w in [4.0, 16.0] {
        let mut sums = [(0.0, 0.0); 2];
        for _ in 0..ROWS {
            let scores: [f64; 32] = std::array::from_fn(|_| {
                let z: f64 = StandardNormal.sample(&mut generator);
                f64::sqrt(w) * z
            });
            let total: f64 = scores.iter().map(|s| s.exp()).sum();
            let mean = scores.iter().map(|s| s * s.exp() / total).sum::<f64>();
            let tilt = scores.iter().map(|s| ((s - mean) * s.exp() / total).powi(2)).sum::<f64>() / w;
            let [s2, s3] = [2, 3].map(|k| scores.iter().map(|s| (s.exp() / total).powi(k)).sum::<f64>());
            for (sum, value) in sums.iter_mut().zip([tilt, (s2 - 2.0 * s3 + s2 * s2) * s2]) {
                *sum = (sum.0 + value, sum.1 + value * value);
            }
        }
        let row = Overlaps::new(32.0).sharp_row(32.0, w);
        for ((sum, squares), exact) in sums.into_iter().zip([row.tilt, row.t_s2]) {
            let mean = sum / ROWS as f64;
            let error = ((squares / ROWS as f64 - mean * mean) / ROWS as f64).sqrt();
            assert!((exact - mean).abs() < 3.9 * error, "w {w}: {exact}, sampled {mean} ± {error}");
        }
    }
}

#[test]
fn equal_rows_overlap_like_one_row() {
    for (n, w) in [(16.0, 0.1), (128.0, 1.0), (128.0, 4.0), (1024.0, 16.0)] {
        assert_relative_eq!(cross_overlap(n, w, 1.0), row_overlaps(n, w)[0], max_relative = 1e-4);
    }
}

/// Price's theorem and Stein's lemma: w T = dS11/dρ at ρ = 1, w (1 − S2)²/(n − 1) at ρ = 0, and the
/// second coefficient W_2.
#[test]
fn series_coefficients_match_the_double_integral() {
    for (n, w) in [(16.0, 0.5), (128.0, 1.0), (64.0, 4.0)] {
        let [s2, s3, ..] = row_overlaps(n, w);
        let at = |rho| cross_overlap(n, w, rho);
        assert_relative_eq!(at(0.0), 1.0 / n, max_relative = 1e-5);
        let first = w * (1.0 - s2).powi(2) / (n - 1.0);
        assert_relative_eq!((at(0.05) - at(-0.05)) / 0.1, first, max_relative = 1e-2);
        let bend = 1.0 - 3.0 * s2 + 2.0 * s3;
        let second = 0.5 * w * w * bend * bend / n * (1.0 + 3.0 / (n - 1.0) + 4.0 / ((n - 1.0) * (n - 2.0)));
        assert_relative_eq!((at(0.2) + at(-0.2) - 2.0 * at(0.0)) / 0.08, second, max_relative = 1e-2);
    }
}

/// The series and the table against the double integral, at the error the header states.
#[test]
fn cross_overlaps_are_exact_at_every_sharpness() {
    for n in [16.0, 128.0, 512.0] {
        let mut overlaps = Overlaps::new(n);
        for w in [0.1, 0.5, 1.0, 2.0, 2.3, 5.0, 16.0] {
            for rho in [0.1, 0.4, 0.8, 0.99] {
                let exact = cross_overlap(n, w, rho) - 1.0 / n;
                let got = overlaps.sharp_cross(n, w, rho).excess;
                assert_relative_eq!(got, exact, max_relative = 0.012);
            }
        }
    }
}

#[test]
fn table_of_rows_is_exact() {
    let mut overlaps = Overlaps::new(128.0);
    for (n, w) in [(128.0, 0.37), (128.0, 1.0), (128.0, 7.7), (40.0, 0.9), (90.0, 3.0)] {
        let exact = row_overlaps(n, w);
        let row = overlaps.sharp_row(n, w);
        for (got, exact) in [row.s2, row.s3, row.s4, row.s22, row.tilt, row.t_s2].into_iter().zip(exact) {
            assert_relative_eq!(got, exact, max_relative = 1e-4);
        }
    }
}

#[test]
fn chi_square_nodes_have_the_moments() {
    let n = 30.0;
    let nodes = chi_square_nodes(n);
    let moment = |k: i32| nodes.iter().map(|(x, weight)| weight * x.powi(k)).sum::<f64>();
    assert_relative_eq!(moment(0), 1.0, max_relative = 1e-12);
    assert_relative_eq!(moment(1), 1.0, max_relative = 1e-12);
    assert_relative_eq!(moment(2), 1.0 + 2.0 / n, max_relative = 1e-12);
    assert_relative_eq!(moment(3), (1.0 + 2.0 / n) * (1.0 + 4.0 / n), max_relative = 1e-12);
}

/// Sampled S11 − 1/n with finite heads (refinements §3: width 128, head width 64, 128 keys, r = 0):
/// 0.00319 ± 0.00005 at w = 16, 0.00103 ± 0.00002 at w = 4.
#[test]
fn finite_heads_make_uncorrelated_rows_overlap() {
    let freedom = 1.0 / (1.0 / 64.0 + 2.0 / 128.0);
    let mut overlaps = Overlaps::new(128.0);
    assert_relative_eq!(
        overlaps.cross(128.0, 16.0, 0.0, [freedom, 1.0, 1.0], 0.0).excess,
        0.00319,
        max_relative = 0.08
    );
    assert_relative_eq!(overlaps.cross(128.0, 4.0, 0.0, [freedom, 1.0, 1.0], 0.0).excess, 0.00103, max_relative = 0.08);
}

/// Beyond the table: 1 − S2 and T fall as w^(−½); at w = 400 they are 12 % off the integrals.
#[test]
fn sharper_than_the_table() {
    let [s2, s3, _, s22, ..] = row_overlaps(64.0, 400.0);
    let row = Overlaps::new(64.0).sharp_row(64.0, 400.0);
    assert_relative_eq!(1.0 - row.s2, 1.0 - s2, max_relative = 0.13);
    assert_relative_eq!(row.t(), s2 - 2.0 * s3 + s22, max_relative = 0.13);
}

/// Scores of a sphere of tokens lack 6/width of kurtosis: S2, T and S11 of 64 uncorrelated tokens of width 128, w = 1
/// (PyTorch and NumPy: 400 networks of head width 64, S2 0.03859 ± 0.00012, T 0.03383 ± 0.00007, S11 0.015777 ± 6e-6).
#[test]
fn light_tails_make_rows_flatter() {
    let (n, kurtosis) = (64.0, -6.0 / 128.0);
    let drawn = 1.0 / 64.0 + 1.0 / 128.0;
    let mut overlaps = Overlaps::new(n);
    let row = overlaps.row(n, 1.0, 1.0 / drawn, kurtosis);
    assert_relative_eq!(row.s2, 0.03859, max_relative = 0.006);
    assert_relative_eq!(row.t(), 0.03383, max_relative = 0.004);
    let cross = overlaps.cross(n, 1.0, 0.0, [1.0 / (drawn + 1.0 / 128.0), 1.0, 1.0], kurtosis);
    assert_relative_eq!(cross.excess, 0.015_777 - 1.0 / n, max_relative = 0.08);
}

/// Of 64 keys on a sphere of 64 dimensions over that of Gaussian ones, what S2, S3, S4, S22 and E ΣA⁴ ΣA² have beyond flat
/// attention, and what sharp rows pass (NumPy: 400 000 rows each).
#[test]
fn scores_of_a_sphere_stray_less() {
    let n: f64 = 64.0;
    let kurtosis = -6.0 / 66.0;
    for (w, sampled) in
        [(1.0, [0.5224, 1.408, 3.031, 1.216, 6.033, 0.6453]), (4.0, [0.7417, 1.450, 2.132, 1.725, 3.149, 0.5630])]
    {
        let gaussian = Overlaps::new(n).sharp_row(n, w);
        let sphere = gaussian.of_kurtosis(n, kurtosis);
        let beyond = |row: &Row| {
            let [s2, s3, s4] = [row.s2 - 1.0 / n, row.s3 - n.powi(-2), row.s4 - n.powi(-3)];
            [s2, s3, s4, row.s22 - n.powi(-2), row.s42 - n.powi(-4), row.t_s2]
        };
        for ((sphere, gaussian), sampled) in beyond(&sphere).iter().zip(beyond(&gaussian)).zip(sampled) {
            assert_relative_eq!((sphere / gaussian).ln() / kurtosis, sampled, max_relative = 0.1);
        }
    }
}

/// The pull of tokens on spheres, over its first order in 1/dimensions (NumPy: n keys, d dimensions, score variance w).
#[test]
fn pulls_saturate_on_spheres() {
    for (n, d, w, sampled, error) in [
        (64.0, 128.0, 9.0, 0.961, 0.007),
        (256.0, 64.0, 1.0, 0.972, 0.002),
        (256.0, 64.0, 4.0, 0.921, 0.002),
        (256.0, 64.0, 9.0, 0.881, 0.002),
        (1024.0, 32.0, 1.0, 0.939, 0.005),
        (1024.0, 32.0, 4.0, 0.821, 0.003),
        (1024.0, 32.0, 9.0, 0.737, 0.002),
    ] {
        let row = Overlaps::new(n).sharp_row(n, w).of_kurtosis(n, -6.0 / d);
        let neglected = if w > 4.0 { 0.035 } else { 0.015 };
        assert!((row.leant - sampled).abs() < neglected + 4.0 * error, "{n} {d} {w}: {}", row.leant);
    }
}

/// Of flat attention S2 gains 7 w²/(12 n) per kurtosis; scores that pass T have (s²/w − 1) = 4 w.
#[test]
fn kurtosis_of_flat_attention() {
    let (n, w) = (1000.0, 0.01);
    let [s2, s3, _, s22, _, _, outlying, _, more, ..] = row_overlaps(n, w);
    assert_relative_eq!(more, 7.0 / 12.0 * w * w / n, max_relative = 0.01);
    assert_relative_eq!(outlying, 4.0 * w * (s2 - 2.0 * s3 + s22), max_relative = 0.01);
}
