//! The mean, variance, kurtosis and range of many numbers, computed piece by piece.
//!
//! # Formula
//!
//! Two sets of n_a and n_b numbers with the central sums M_k = Σ (x − mean)^k are combined, with δ = mean_b − mean_a
//! and n = n_a + n_b, by
//!
//! ```text
//! M2 = M2a + M2b + δ² n_a n_b/n
//! M3 = M3a + M3b + δ³ n_a n_b (n_a − n_b)/n² + 3δ (n_a M2b − n_b M2a)/n
//! M4 = M4a + M4b + δ⁴ n_a n_b (n_a² − n_a n_b + n_b²)/n³ + 6δ² (n_a² M2b + n_b² M2a)/n² + 4δ (n_a M3b − n_b M3a)/n
//! ```
//!
//! # Source
//!
//! Pébay 2008, Formulas for robust, one-pass parallel computation of covariances and arbitrary-order statistical
//! moments, eqs. 2.1 to 3.

/// Statistics of a set of numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// The number of finite numbers.
    pub count: u64,
    /// The number of numbers that are not finite.
    pub not_finite: u64,
    /// The mean of the finite numbers.
    pub mean: f64,
    /// The smallest finite number.
    pub smallest: f64,
    /// The largest finite number.
    pub largest: f64,
    squares: f64,
    cubes: f64,
    fourths: f64,
}

impl Spread {
    /// Computes the statistics of a few numbers, in two passes.
    pub fn of(entries: &[f32]) -> Self {
        let finite = || entries.iter().filter(|x| x.is_finite()).map(|&x| f64::from(x));
        let count = finite().count();
        let not_finite = (entries.len() - count) as u64;
        if count == 0 {
            return Self { not_finite, ..Self::default() };
        }
        let mean = finite().sum::<f64>() / count as f64;
        let [mut squares, mut cubes, mut fourths] = [0.0; 3];
        let [mut smallest, mut largest] = [f64::INFINITY, f64::NEG_INFINITY];
        for x in finite() {
            smallest = smallest.min(x);
            largest = largest.max(x);
            let distance = x - mean;
            let square = distance * distance;
            squares += square;
            cubes += square * distance;
            fourths += square * square;
        }
        Self { count: count as u64, not_finite, mean, smallest, largest, squares, cubes, fourths }
    }

    /// Returns the statistics of both sets together.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        let not_finite = self.not_finite + other.not_finite;
        if self.count == 0 || other.count == 0 {
            let all = if self.count == 0 { other } else { self };
            return Self { not_finite, ..all };
        }
        let (a, b) = (self.count as f64, other.count as f64);
        let n = a + b;
        let delta = other.mean - self.mean;
        let square = delta * delta;
        Self {
            count: self.count + other.count,
            not_finite,
            mean: self.mean + delta * b / n,
            smallest: self.smallest.min(other.smallest),
            largest: self.largest.max(other.largest),
            squares: self.squares + other.squares + square * a * b / n,
            cubes: self.cubes
                + other.cubes
                + square * delta * a * b * (a - b) / (n * n)
                + 3.0 * delta * (a * other.squares - b * self.squares) / n,
            fourths: self.fourths
                + other.fourths
                + square * square * a * b * (a * a - a * b + b * b) / (n * n * n)
                + 6.0 * square * (a * a * other.squares + b * b * self.squares) / (n * n)
                + 4.0 * delta * (a * other.cubes - b * self.cubes) / n,
        }
    }

    /// Returns the standard deviation about the mean; `None` without finite numbers.
    pub fn std(&self) -> Option<f64> {
        (self.count > 0).then(|| (self.squares / self.count as f64).sqrt())
    }

    /// Returns the largest distance of a number from `centre`; `None` without finite numbers.
    pub fn reach(&self, centre: f64) -> Option<f64> {
        (self.count > 0).then(|| (self.largest - centre).max(centre - self.smallest))
    }

    /// Returns √E x²; `None` without finite numbers.
    pub fn root_mean_square(&self) -> Option<f64> {
        self.std().map(|std| std.hypot(self.mean))
    }

    /// Returns E (x − mean)⁴ over the square of the variance; `None` for a constant.
    pub fn kurtosis(&self) -> Option<f64> {
        (self.squares > 0.0).then(|| self.fourths * self.count as f64 / (self.squares * self.squares))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1, 2, 3, 4, 100: mean 22, central sums 7610, 443 772 and 37 175 618 … by hand: distances −21, −20, −19, −18, 78.
    const NUMBERS: [f32; 5] = [1.0, 2.0, 3.0, 4.0, 100.0];

    #[test]
    fn moments_are_those_by_hand() {
        let spread = Spread::of(&NUMBERS);
        let squares = 441.0 + 400.0 + 361.0 + 324.0 + 6084.0_f64;
        let fourths = 194_481.0 + 160_000.0 + 130_321.0 + 104_976.0 + 37_015_056.0;
        assert!((spread.mean - 22.0).abs() < 1e-12);
        assert_eq!((spread.reach(22.0), spread.reach(60.0)), (Some(78.0), Some(59.0)));
        assert!((spread.std().expect("numbers") - (squares / 5.0).sqrt()).abs() < 1e-12);
        assert!((spread.kurtosis().expect("no constant") - 5.0 * fourths / (squares * squares)).abs() < 1e-12);
    }

    #[test]
    fn a_constant_has_no_kurtosis_and_nothing_no_std() {
        let constant = Spread::of(&[0.3; 7]).with(Spread::of(&[0.3; 4]));
        assert_eq!((constant.count, constant.std(), constant.kurtosis()), (11, Some(0.0), None));
        let nothing = Spread::of(&[f32::NAN, f32::INFINITY]);
        assert_eq!((nothing.not_finite, nothing.std(), nothing.root_mean_square()), (2, None, None));
    }

    proptest::proptest! {
        #[test]
        fn pieces_together_are_the_whole(numbers in proptest::collection::vec(-1e3f32..1e3, 2..60), cut in 0usize..60) {
            let (first, second) = numbers.split_at(cut % numbers.len());
            let (whole, pieces) = (Spread::of(&numbers), Spread::of(first).with(Spread::of(second)));
            let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * (1.0 + a.abs());
            proptest::prop_assert!(close(whole.mean, pieces.mean));
            proptest::prop_assert!(whole.reach(1.0) == pieces.reach(1.0));
            proptest::prop_assert!(close(whole.squares, pieces.squares));
            proptest::prop_assert!((whole.cubes - pieces.cubes).abs() <= 1e-9 * (1.0 + whole.squares * 2e3));
            proptest::prop_assert!(close(whole.fourths, pieces.fourths));
        }
    }
}
