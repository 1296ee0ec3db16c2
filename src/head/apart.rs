//! Moments of a softmax in which one score has a different distribution, by 1/Σ^k = ∫ t^{k−1}/(k−1)! e^{−tΣ} dt.
//!
//! # Formula
//!
//! ```text
//! E ln Σ e^z = ∫ (e^{−t} − N_0 Π) d ln t
//! E A_o J^j = ∫ N_1 Π d ln t      E A_o² J² = ∫ N_2 Π d ln t
//! E Σ_group A² J² = n_group ∫ N_0 M_2 Π/M_0 d ln t
//! ```
//!
//! where E is the average over random weights and over features; z is a score, which is u, or C tanh(u/C) under a soft
//! cap C; u is a Gaussian variable, the score before the soft cap; J is the slope dz/du of the soft cap; Σ is the sum
//! over all scores; Σ_group is the sum over the scores of one group; n_group is the number of scores of a group, which
//! all have u ~ N(0, w); A is the softmax weight of a score; A_o is the weight of the distinguished score, which has u
//! ~ N(μ, w_o); t is the variable of integration; M_k is E J^j y^k e^{−y} of a score of a group, with y = t e^z; N_k is
//! the same expectation of the distinguished score; Π is the product of M_0^{n_group} over all groups; j, k are powers
//! of J and of y.
//!
//! # Assumption
//!
//! Scores whose standard deviations are beyond [`SHARPEST`] are so far apart that the largest has all the weight, as it
//! has at that deviation. They are scaled down to it, and ln Σ e^z is scaled up again. A mean beyond all other scores
//! only shifts ln Σ e^z.

use crate::mean_field::softmax::normal_nodes;

const STEP: f64 = 0.2;

/// Standard deviation of scores without a soft cap above which softmax weights are taken to be 0 or 1. In truth they
/// are neither in a fraction of cases of about the inverse of this number.
const SHARPEST: f64 = 64.0;
/// Standard deviation above which the step between nodes shrinks no further. It is larger than [`SHARPEST`] because J
/// under a soft cap needs finer nodes.
const SHARPEST_CAPPED: f64 = 4096.0;
/// Number of standard deviations beyond which no score lies.
const REACH: f64 = 10.0;

/// Moments of softmax weights A and of the scores from which they are computed. One score, the distinguished one, has a
/// distribution of its own.
pub(crate) struct Apart {
    /// E ln Σ e^z.
    pub(crate) ln_partition: f64,
    /// Moments of the weight of the distinguished score.
    pub(crate) own: Weights,
    /// Moments of the other weights, summed over all of them.
    pub(crate) others: Weights,
    /// Moments of the weights of each group, summed over the group.
    pub(crate) groups: Vec<Weights>,
    /// Moments of the distinguished score.
    pub(crate) own_score: SlopeMoments,
    /// Moments of one score of each group.
    pub(crate) group_scores: Vec<SlopeMoments>,
    /// Moments of one of the other scores, on average over the groups.
    pub(crate) other_score: SlopeMoments,
}

/// A group of scores with the same distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Group {
    /// The number of scores.
    pub(crate) count: f64,
    /// The variance of a score before the soft cap.
    pub(crate) variance: f64,
}

/// Moments of softmax weights A.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weights {
    /// E A.
    pub(crate) mean: f64,
    /// E A J.
    pub(crate) sloped: f64,
    /// E A J².
    pub(crate) sloped_twice: f64,
    /// E A² J².
    pub(crate) square: f64,
}

/// Moments of a score z and of J.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlopeMoments {
    /// E z.
    pub(crate) mean: f64,
    /// E z².
    pub(crate) square: f64,
    /// E J.
    pub(crate) slope: f64,
    /// E J².
    pub(crate) slope_square: f64,
}

impl Apart {
    /// Computes the moments for groups of scores and one distinguished score with this mean and variance before the
    /// soft cap.
    pub(crate) fn new(groups: &[Group], [mean, variance]: [f64; 2], softcap: Option<f64>) -> Self {
        /// The largest variance of scores: its square still is a number.
        const LARGEST: f64 = 1e150;
        let (mean, variance) = (mean.clamp(-LARGEST.sqrt(), LARGEST.sqrt()), variance.min(LARGEST));
        let limited = |group: &Group| Group { variance: group.variance.min(LARGEST), ..*group };
        let groups: &[Group] = &groups.iter().map(limited).collect::<Vec<_>>();
        let largest = groups.iter().map(|group| group.variance).fold(variance, f64::max);
        let factor = SHARPEST / largest.sqrt();
        if softcap.is_some() || factor >= 1.0 {
            return Self::within_reach(groups, [mean, variance], softcap);
        }
        let square = factor * factor;
        let scaled: Vec<Group> =
            groups.iter().map(|group| Group { variance: group.variance * square, ..*group }).collect();
        let found = Self::within_reach(&scaled, [mean * factor, variance * square], None);
        let moments = |moments: SlopeMoments| SlopeMoments {
            mean: moments.mean / factor,
            square: moments.square / square,
            ..moments
        };
        Self {
            ln_partition: found.ln_partition / factor,
            own_score: moments(found.own_score),
            other_score: moments(found.other_score),
            group_scores: found.group_scores.iter().copied().map(moments).collect(),
            ..found
        }
    }

    /// Computes the moments with the mean clamped to the range of the other scores. Beyond this range, only ln Σ e^z
    /// and the distinguished score itself depend on its mean.
    fn within_reach(groups: &[Group], [mean, variance]: [f64; 2], softcap: Option<f64>) -> Self {
        let n: f64 = groups.iter().map(|group| group.count).sum();
        let w = groups.iter().map(|group| group.variance).fold(0.0, f64::max);
        let reach = REACH * (w.sqrt() + variance.sqrt()) + n.ln().abs() + 2.0 * NEGLIGIBLE;
        let near = if softcap.is_some() { mean } else { mean.clamp(-reach, reach) };
        let found = Self::integrated(groups, [near, variance], softcap);
        let own_score = SlopeMoments {
            mean: found.own_score.mean + (mean - near),
            square: found.own_score.square + mean * mean - near * near,
            ..found.own_score
        };
        Self { ln_partition: found.ln_partition + (mean - near).max(0.0), own_score, ..found }
    }

    fn integrated(groups: &[Group], [mean, variance]: [f64; 2], softcap: Option<f64>) -> Self {
        let one = ScoreNodes::new(mean, variance, softcap);
        let scores: Vec<ScoreNodes> =
            groups.iter().map(|group| ScoreNodes::new(0.0, group.variance, softcap)).collect();
        let n: f64 = groups.iter().map(|group| group.count).sum();
        let largest = scores.iter().map(ScoreNodes::largest).fold(f64::NEG_INFINITY, f64::max);
        let smallest = scores.iter().map(ScoreNodes::smallest).fold(f64::INFINITY, f64::min);
        let lower = -(n.ln() + largest).max(one.largest()) - NEGLIGIBLE;
        let upper = 4.0 - smallest;
        let (mut ln_partition, mut own) = (0.0, Weights::default());
        let mut of_groups = vec![Weights::default(); groups.len()];
        for node in 0..=((upper - lower) / STEP).ceil() as usize {
            let ln_t = lower + STEP * node as f64;
            let of_one = one.at(ln_t);
            let at: Vec<At> = scores.iter().map(|scores| scores.at(ln_t)).collect();
            let rest = |except: Option<usize>| -> f64 {
                let power = |(index, (at, group)): (usize, (&At, &Group))| {
                    at.none.powf(group.count - f64::from(u8::from(except == Some(index))))
                };
                at.iter().zip(groups).enumerate().map(power).product()
            };
            let all = STEP * rest(None);
            ln_partition += STEP * (-ln_t.exp()).exp() - of_one.none * all;
            own.add(all, &of_one.weights);
            for (index, (sums, group)) in of_groups.iter_mut().zip(groups).enumerate() {
                sums.add(group.count * STEP * of_one.none * rest(Some(index)), &at[index].weights);
            }
        }
        let mut others = Weights::default();
        for sums in &of_groups {
            others.add(1.0, sums);
        }
        let group_scores: Vec<SlopeMoments> = scores.iter().map(ScoreNodes::moments).collect();
        let other_score = SlopeMoments::mean(groups.iter().zip(&group_scores).map(|(group, of)| (group.count / n, of)));
        Self { ln_partition, own, others, groups: of_groups, own_score: one.moments(), group_scores, other_score }
    }
}

impl SlopeMoments {
    fn mean<'m>(of: impl Iterator<Item = (f64, &'m Self)>) -> Self {
        let zero = Self { mean: 0.0, square: 0.0, slope: 0.0, slope_square: 0.0 };
        of.fold(zero, |sum, (share, of)| Self {
            mean: sum.mean + share * of.mean,
            square: sum.square + share * of.square,
            slope: sum.slope + share * of.slope,
            slope_square: sum.slope_square + share * of.slope_square,
        })
    }
}

impl Weights {
    fn add(&mut self, factor: f64, other: &Self) {
        self.mean += factor * other.mean;
        self.sloped += factor * other.sloped;
        self.sloped_twice += factor * other.sloped_twice;
        self.square += factor * other.square;
    }
}

/// Integrands are negligible where 1 − e^{−y} is at most e to the power of minus this number.
const NEGLIGIBLE: f64 = 25.0;

/// The distribution of a score as quadrature nodes in ascending order.
struct ScoreNodes {
    nodes: Vec<Node>,
}

struct Node {
    score: f64,
    /// The slope J of the soft cap.
    slope: f64,
    weight: f64,
}

/// Expectations for one score at one t: E e^{−y}, and the moments of [`Weights`] with y e^{−y} in place of A and y²
/// e^{−y} in place of A².
struct At {
    none: f64,
    weights: Weights,
}

impl ScoreNodes {
    fn new(mean: f64, variance: f64, softcap: Option<f64>) -> Self {
        let std = variance.sqrt();
        let node = |(x, weight): (f64, f64)| {
            let before = mean + std * x;
            let Some(cap) = softcap else { return Node { score: before, slope: 1.0, weight } };
            let part = (before / cap).tanh();
            Node { score: cap * part, slope: 1.0 - part * part, weight }
        };
        let step = (0.7 / std.min(SHARPEST_CAPPED)).min(0.8);
        Self { nodes: normal_nodes(step).into_iter().map(node).collect() }
    }

    fn largest(&self) -> f64 {
        self.nodes[self.nodes.len() - 1].score
    }

    fn smallest(&self) -> f64 {
        self.nodes[0].score
    }

    fn at(&self, ln_t: f64) -> At {
        let (mut none, mut weights) = (0.0, Weights::default());
        for &Node { score, slope, weight } in &self.nodes {
            let y = (ln_t + score).exp();
            // For larger y, e^{−y} and its product with y underflow.
            if y < 700.0 {
                let factor = weight * (-y).exp();
                let square = slope * slope;
                none += factor;
                weights
                    .add(factor * y, &Weights { mean: 1.0, sloped: slope, sloped_twice: square, square: y * square });
            }
        }
        At { none, weights }
    }

    fn moments(&self) -> SlopeMoments {
        let sum = |of: &dyn Fn(&Node) -> f64| self.nodes.iter().map(|node| node.weight * of(node)).sum();
        SlopeMoments {
            mean: sum(&|node| node.score),
            square: sum(&|node| node.score * node.score),
            slope: sum(&|node| node.slope),
            slope_square: sum(&|node| node.slope * node.slope),
        }
    }
}

#[cfg(test)]
mod tests {
    use approx::assert_relative_eq;
    use rand::{SeedableRng, rngs::Xoshiro256PlusPlus};
    use rand_distr::{Distribution, StandardNormal};

    use super::*;
    use crate::mean_field::softmax::overlaps;

    #[test]
    fn one_like_the_others_is_one_of_them() {
        for (n, w) in [(8.0_f64, 1.5), (1000.0, 0.05), (1000.0, 30.0)] {
            let Apart { own, others, .. } = Apart::new(&[Group { count: n - 1.0, variance: w }], [0.0, w], None);
            let [[s2, ..], _] = overlaps(n, w, 0.0);
            assert_relative_eq!(own.mean, 1.0 / n, max_relative = 1e-6);
            assert_relative_eq!(own.square, s2 / n, max_relative = 1e-6);
            assert_relative_eq!(others.square, s2 * (n - 1.0) / n, max_relative = 1e-6);
        }
    }

    /// Scores that hardly vary have weights A = e^μ/(e^μ + n).
    #[test]
    fn fixed_scores_are_a_plain_softmax() {
        let (n, mean) = (99.0_f64, 50.0_f64.ln());
        let found = Apart::new(&[Group { count: n, variance: 1e-12 }], [mean, 1e-12], None);
        assert_relative_eq!(found.ln_partition, (50.0 + n).ln(), max_relative = 1e-6);
        assert_relative_eq!(found.own.mean, 50.0 / 149.0, max_relative = 1e-6);
        assert_relative_eq!(found.own.square, (50.0_f64 / 149.0).powi(2), max_relative = 1e-6);
        assert_relative_eq!(found.others.mean, n / 149.0, max_relative = 1e-6);
        assert_relative_eq!(found.others.square, n / 149.0_f64.powi(2), max_relative = 1e-6);
    }

    /// No moment overflows if scores are far apart.
    #[test]
    fn one_far_above_takes_it_all() {
        let found = Apart::new(&[Group { count: 1000.0, variance: 0.5 }], [2000.0, 4.0], None);
        assert_relative_eq!(found.ln_partition, 2000.0, max_relative = 1e-6);
        assert_relative_eq!(found.own.mean, 1.0, max_relative = 1e-6);
    }

    /// E ln Σ e^z of huge scores is the mean of the largest: √(w/π) for two N(0, w). Weights are 0 and 1.
    #[test]
    fn huge_scores_have_one_largest() {
        for w in [1e4, 1e12, 1e60] {
            let found = Apart::new(&[Group { count: 1.0, variance: w }], [0.0, w], None);
            assert_relative_eq!(found.ln_partition, (w / std::f64::consts::PI).sqrt(), max_relative = 1e-3);
            assert_relative_eq!(found.own.mean, 0.5, max_relative = 1e-6);
            assert_relative_eq!(found.own.square, 0.5, max_relative = 0.02);
            assert_relative_eq!(found.other_score.square, w, max_relative = 1e-6);
            let far = Apart::new(&[Group { count: 9.0, variance: w }], [1e3 * w.sqrt(), w], None);
            assert_relative_eq!(far.ln_partition, far.own_score.mean, max_relative = 1e-9);
            assert_relative_eq!(far.own_score.mean, 1e3 * w.sqrt(), max_relative = 1e-6);
        }
    }

    /// The moments are continuous at the standard deviation from which scores are scaled down.
    #[test]
    fn scaled_scores_join_the_others() {
        let at =
            |std: f64| Apart::new(&[Group { count: 31.0, variance: std * std }], [0.5 * std, 2.0 * std * std], None);
        let (below, above) = (at(0.999 * SHARPEST / 2f64.sqrt()), at(1.001 * SHARPEST / 2f64.sqrt()));
        assert_relative_eq!(below.ln_partition, above.ln_partition, max_relative = 4e-3);
        assert_relative_eq!(below.own.square, above.own.square, max_relative = 1e-4);
        assert_relative_eq!(below.others.square, above.others.square, max_relative = 1e-4);
    }

    /// 200 000 softmaxes of 20 scores of variance 9 and one ~ N(5, 4) under a cap of 3; |z| < 4.5 (α = 1e-4 over ten).
    #[test]
    fn capped_scores_are_as_sampled() {
        const SAMPLES: usize = 200_000;
        const OTHERS: usize = 20;
        let cap = 3.0;
        let expected = Apart::new(&[Group { count: OTHERS as f64, variance: 9.0 }], [5.0, 4.0], Some(cap));
        let mut generator = Xoshiro256PlusPlus::seed_from_u64(5);
        let mut sums = [[0.0; 2]; 10];
        for _ in 0..SAMPLES {
            let mut normal = || -> f64 { StandardNormal.sample(&mut generator) };
            let scores: [f64; OTHERS + 1] = std::array::from_fn(|index| {
                let before = if index == 0 { 5.0 + 2.0 * normal() } else { 3.0 * normal() };
                cap * (before / cap).tanh()
            });
            let total: f64 = scores.iter().map(|score| score.exp()).sum();
            let parts = scores.map(|score| (score.exp() / total, 1.0 - (score / cap).powi(2)));
            let of = |parts: &[(f64, f64)]| {
                let sum = |f: &dyn Fn(f64, f64) -> f64| parts.iter().map(|&(a, j)| f(a, j)).sum::<f64>();
                [sum(&|a, j| a * j), sum(&|a, j| a * j * j), sum(&|a, j| a * a * j * j)]
            };
            let ([own, others], (_, slope)) = ([of(&parts[..1]), of(&parts[1..])], parts[0]);
            let values = [&own[..], &others, &[total.ln(), scores[0], slope, slope * slope]].concat();
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum = [sum[0] + value, sum[1] + value * value];
            }
        }
        let of = |weights: &Weights| [weights.sloped, weights.sloped_twice, weights.square];
        let SlopeMoments { mean, slope, slope_square, .. } = expected.own_score;
        let (own, others) = (of(&expected.own), of(&expected.others));
        let expected = [&own[..], &others, &[expected.ln_partition, mean, slope, slope_square]].concat();
        for ([sum, squares], expected) in sums.into_iter().zip(expected) {
            let mean = sum / SAMPLES as f64;
            let std_error = ((squares / SAMPLES as f64 - mean * mean) / SAMPLES as f64).sqrt();
            assert!(((mean - expected) / std_error).abs() < 4.5, "expected {expected}, got {mean} ± {std_error}");
        }
    }

    /// Two groups of one distribution equal one group. For groups of different distributions the moments are as
    /// sampled, |z| < 4.5 (α = 7e-6 each).
    #[test]
    fn groups_are_as_sampled() {
        const SAMPLES: usize = 100_000;
        let of = |count, variance| Group { count, variance };
        let [two, one] = [vec![of(30.0, 2.0), of(9.0, 2.0)], vec![of(39.0, 2.0)]]
            .map(|groups| Apart::new(&groups, [0.0, 2.0], None));
        assert_relative_eq!(two.ln_partition, one.ln_partition, max_relative = 1e-9);
        assert_relative_eq!(two.others.square, one.others.square, max_relative = 1e-9);
        assert_relative_eq!(two.groups[1].mean, one.others.mean * 9.0 / 39.0, max_relative = 1e-9);
        let expected = Apart::new(&[of(60.0, 0.1), of(4.0, 25.0)], [0.0, 0.1], None);
        let mut generator = Xoshiro256PlusPlus::seed_from_u64(5);
        let mut sums = [[0.0; 2]; 4];
        for _ in 0..SAMPLES {
            let mut normal = || -> f64 { StandardNormal.sample(&mut generator) };
            let scores: [f64; 65] =
                std::array::from_fn(|index| if index < 4 { 5.0 * normal() } else { 0.1f64.sqrt() * normal() });
            let total: f64 = scores.iter().map(|score| score.exp()).sum();
            let parts = scores.map(|score| score.exp() / total);
            let large: f64 = parts[..4].iter().sum();
            let squares: f64 = parts[..4].iter().map(|part| part * part).sum();
            for (sum, value) in sums.iter_mut().zip([total.ln(), large, squares, parts[64]]) {
                *sum = [sum[0] + value, sum[1] + value * value];
            }
        }
        let expected = [expected.ln_partition, expected.groups[1].mean, expected.groups[1].square, expected.own.mean];
        for ([sum, squares], expected) in sums.into_iter().zip(expected) {
            let mean = sum / SAMPLES as f64;
            let std_error = ((squares / SAMPLES as f64 - mean * mean) / SAMPLES as f64).sqrt();
            assert!(((mean - expected) / std_error).abs() < 4.5, "expected {expected}, got {mean} ± {std_error}");
        }
    }
}
