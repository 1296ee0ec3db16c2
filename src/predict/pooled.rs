//! The reported averages of a signal or a gradient.

/// Moments of a signal or a gradient, averaged over positions. Second moments are in units of e^`ln_unit`, and means in
/// units of its square root.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pooled {
    pub(crate) ln_unit: f64,
    pub(crate) mean: f64,
    pub(crate) second: f64,
    /// E x_a x_b, averaged over pairs of different positions a and b; `None` for a single position.
    pub(crate) cross: Option<f64>,
    /// Mean and second moment at the first and the last position; `None` where they are not reported.
    pub(crate) ends: Option<[(f64, f64); 2]>,
    /// Variance over networks of ln of a network's own variance, or of its own gradient variance; `None` where it is
    /// not predicted.
    pub(crate) spread: Option<f64>,
}

impl Pooled {
    /// Returns the average of `all`, which are pairs of a weight and moments. For `lost` see [`Self::average_spread`].
    pub(crate) fn average(all: &(impl Iterator<Item = (f64, Self)> + Clone), lost: f64) -> Self {
        let count: f64 = all.clone().map(|(weight, _)| weight).sum();
        let ln_unit = all.clone().map(|(_, pooled)| pooled.ln_unit).fold(f64::NEG_INFINITY, f64::max);
        let factor = |pooled: &Self| if pooled.ln_unit < ln_unit { (pooled.ln_unit - ln_unit).exp() } else { 1.0 };
        let mean =
            |of: &dyn Fn(&Self) -> f64| all.clone().map(|(weight, pooled)| weight * of(&pooled)).sum::<f64>() / count;
        let end = |index: usize| {
            let at = |pooled: &Self| pooled.ends.map_or((0.0, 0.0), |ends| ends[index]);
            let first = mean(&|pooled| at(pooled).0 * factor(pooled).sqrt());
            (first, mean(&|pooled| at(pooled).1 * factor(pooled)))
        };
        let has_ends = all.clone().all(|(_, pooled)| pooled.ends.is_some());
        let has_pairs = all.clone().all(|(_, pooled)| pooled.cross.is_some());
        Self {
            ln_unit,
            mean: mean(&|pooled| pooled.mean * factor(pooled).sqrt()),
            second: mean(&|pooled| pooled.second * factor(pooled)),
            cross: has_pairs.then(|| mean(&|pooled| pooled.cross.unwrap_or(0.0) * factor(pooled))),
            ends: has_ends.then(|| [end(0), end(1)]),
            spread: Self::average_spread(all, lost),
        }
    }

    /// Returns the average of the spreads of `all`, plus the variance of ln of their second moments. `lost` is the
    /// number of degrees of freedom that the estimated mean uses up: 1 for a sample, 0 for all cases with their
    /// probabilities.
    fn average_spread(all: &(impl Iterator<Item = (f64, Self)> + Clone), lost: f64) -> Option<f64> {
        let count: f64 = all.clone().map(|(weight, _)| weight).sum();
        let within = all.clone().map(|(weight, pooled)| Some(weight * pooled.spread?)).sum::<Option<f64>>()? / count;
        let levels = || all.clone().map(|(weight, pooled)| (weight, pooled.ln_unit + pooled.second.ln()));
        let mean = levels().map(|(weight, level)| weight * level).sum::<f64>() / count;
        let between = levels().map(|(weight, level)| weight * (level - mean).powi(2)).sum::<f64>() / (count - lost);
        Some(within + if between.is_finite() { between } else { 0.0 })
    }
}
