//! A softmax by itself: rows of correlated Gaussian scores, and a gradient of independent entries.

use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;
use sigprop_stack::{Gaussian, Quantity, SiteRow, SiteTable};

use crate::{
    MeasureError, Measurement,
    array::Shape,
    components::{embedding, softmax},
    measure::number_of_threads,
    random::{Purpose, Random},
    statistics::{Moments, jackknife},
};

/// Approximate number of scores sampled per replicate.
const SCORES: usize = 1 << 18;

/// Samples the softmax of `count` scores with this `variance` and `correlation`. The table has one row, `softmax`. It
/// holds the mean and the variance of a probability, and the variance of the gradient of a score if the gradients at
/// the probabilities have variance 1.
///
/// A replicate samples as many independent rows of `count` scores as hold about 2·10⁵ scores.
pub fn measure_softmax(
    count: usize,
    variance: f64,
    correlation: f64,
    replicates: usize,
    seed: u64,
    threads: Option<usize>,
    cancelled: &AtomicBool,
) -> Result<Measurement, MeasureError> {
    let shape = Shape { batch: 1, seq_len: count };
    let rows = SCORES.div_ceil(count);
    let replicate = |index: usize| {
        let random = Random::new(seed, index);
        let mut moments = [Moments::default(); 2];
        for row in 0..rows {
            if cancelled.load(Ordering::Relaxed) {
                return None;
            }
            let draw = |purpose, variance, correlation| {
                let gaussian = Gaussian { width: 1, mean: 0.0, variance, correlation };
                embedding::gaussian::<f32>(shape, &gaussian, &random.streams(purpose, &row.to_string()))
            };
            let mut scores = draw(Purpose::Input, variance, correlation);
            let mut gradients = draw(Purpose::Gradient, 1.0, 0.0);
            softmax::forward(scores.entries_mut(), count, None);
            softmax::backward(scores.entries(), gradients.entries_mut(), count);
            moments[0] += Moments::of(&scores);
            moments[1] += Moments::of(&gradients);
        }
        Some(moments)
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(number_of_threads(threads)?).build()?;
    let sampled = pool.install(|| (0..replicates).into_par_iter().map(replicate).collect::<Option<Vec<_>>>());
    let sampled = sampled.ok_or(MeasureError::Cancelled)?;
    let part = |index: usize| sampled.iter().map(|moments: &[Moments; 2]| moments[index]).collect::<Vec<_>>();
    let (probabilities, gradients) = (part(0), part(1));
    let mut cells = [None; Quantity::ALL.len()];
    cells[Quantity::Mean as usize] = jackknife(&probabilities, |pooled| Some(pooled.mean()));
    cells[Quantity::Variance as usize] = jackknife(&probabilities, |pooled| Some(pooled.variance()));
    cells[Quantity::GradVariance as usize] = jackknife(&gradients, |pooled| Some(pooled.second_moment()));
    let row = SiteRow { layer: 0, site: "softmax".to_owned(), is_stream_site: true, cells };
    let table = SiteTable { sites: vec![row], weights: Vec::new() };
    Ok(Measurement { table, replicates, goal: replicates, overflow: None })
}
