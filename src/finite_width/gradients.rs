//! Gradients of all live streams: |g_a|² and g_a·g_b given the signals, their products with signals, and their
//! fluctuations.
//!
//! W is the covariance of the levels (mean_a |g_a|², mean_{a≠b} g_a·g_b)/E |g_a|² that the variables U and R of signals
//! do not explain. A is the derivative of both levels with respect to U and R of all streams (`answers`). Noise of
//! signals of covariance Ξ adds A Ξ Aᵀ to W, and entries of gradients add theirs. Where a component makes both kinds of
//! noise, their covariance adds too. The variance of ln mean |g_a|² at a site is the first entry of W + A S Aᵀ, where S
//! is the covariance of the variables; its root is the ± of a gradient.

use nalgebra::{DMatrix, Matrix2};

use super::backward::Conditional;
use super::component::{Answer, GradientEntries};
use super::forward::{Fluctuations, Step};
use super::map::Gain;
use super::mixed::Mixed;
use super::noise::{Covariances, FourPoint};
use super::quadratic::Vectors;
use super::variables::{Matrix, R, R_A, R_AB, R_B, U, U_A, U_B, Vector};

/// Gradients of all live streams.
#[derive(Clone, Debug)]
pub(crate) struct Gradients {
    length: f64,
    /// The gradient of every stream.
    pub(crate) of: Vec<Both>,
    /// The covariance W of the levels mean |g_a|² and mean g_a·g_b; two rows and columns per stream.
    levels: DMatrix<f64>,
    /// Covariances of the cosine of the gradients of one pair of tokens; one row and column per stream.
    cosines: DMatrix<f64>,
}

/// The cosine E g_a·g_b/E |g_a|² at infinite width, at the output of a component and at its input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cosines {
    pub(crate) output: f64,
    pub(crate) input: f64,
}

/// ln E |g_a|² of gradients at infinite width, at both ends of a sum or product of branches.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    /// ln E |g_a|² at the common input, of the gradient that comes back through each branch.
    pub(crate) parts: Vec<f64>,
    /// ln E |g_a|² at the output minus ln E |g_a|² at the common input.
    pub(crate) ln_ratio: f64,
}

/// The gradient of a stream: its moments given the signals, and its products with signals.
#[derive(Clone, Debug)]
pub(crate) struct Both {
    pub(crate) given: Conditional,
    pub(crate) mixed: Mixed,
    /// The covariance that the entries of this gradient have not yet added to W.
    pending: Matrix2<f64>,
    /// The covariance of Gaussian entries that W has since before a map that preserved it.
    preserved: Matrix2<f64>,
}

/// The part along the common input that the gradients of two branches of a sum or product have in common. It arises
/// because the products c_ab = x_a·g_b of both branches come from the same c_ab of the output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Common {
    /// 2 E c_aa c_aa' over n E x² of the input, per E g_a² of the output; c and c' belong to the two branches.
    pub(crate) own: f64,
    /// The addition to the number α of the input (see `mixed.rs`), per E g_a·g_b of the output.
    pub(crate) cross: f64,
    /// n times the addition to g_a·g_b, per E g_a·g_b of the output.
    pub(crate) pair: f64,
    /// The addition to the excess of c_aa c_bb, per E g_a² of the output: from E c_aa c_bb' and E c_ab c_ba' on
    /// average.
    pub(crate) pairs: f64,
    /// The product of the factors of both branches on the cosine of gradients.
    pub(crate) cosine_factor: f64,
}

impl Both {
    /// The gradient whose entries have added all of their covariance to W.
    fn of(given: Conditional, mixed: Mixed) -> Self {
        Self { given, mixed, pending: Matrix2::zeros(), preserved: Matrix2::zeros() }
    }

    /// Returns E g_a·g_b/E |g_a|².
    fn cosine(&self) -> f64 {
        self.given.cosine.value
    }

    /// Returns the derivatives of mean |g_a|² and of mean g_a·g_b, both relative to E |g_a|², with respect to U and R
    /// of all streams.
    fn answers(&self) -> [Vec<f64>; 2] {
        let of_all = |gradient: &Vectors| -> Vec<f64> {
            let of_stream = |r: &Vector| [r[U_A] + r[U_B] + r[U], r[R_AB] + r[R_A] + r[R_B] + r[R]];
            gradient.iter().flat_map(of_stream).collect()
        };
        let Conditional { ln_own, cosine } = &self.given;
        let own = of_all(&ln_own.gradient);
        let pair = own.iter().zip(of_all(&cosine.gradient)).map(|(own, of_cosine)| cosine.value * own + of_cosine);
        [own.clone(), pair.collect()]
    }
}

impl Gradients {
    /// The gradient at the end of one stream of this width and `length` tokens, independent of all signals.
    pub(crate) fn seed(cosine: f64, width: f64, length: f64) -> Self {
        let given = Conditional::independent(cosine);
        let both = Both::of(given, Mixed::ISOTROPIC);
        let mut gradients =
            Self { length, of: vec![both], levels: DMatrix::zeros(2, 2), cosines: DMatrix::zeros(1, 1) };
        gradients.of[0].pending = gradients.entries(0, width);
        gradients
    }

    /// Returns the covariance that Gaussian entries add to the levels of a gradient.
    fn entries(&self, stream: usize, width: f64) -> Matrix2<f64> {
        let cosine = self.of[stream].cosine();
        self.added(FourPoint::gaussian(cosine, self.cosines[(stream, stream)]), cosine, width)
    }

    fn added(&self, entries: FourPoint, cosine: f64, width: f64) -> Matrix2<f64> {
        let moments = entries.covariances(cosine).matrix(self.length) / width;
        moments.fixed_view::<2, 2>(U, U).into()
    }

    /// Returns A, the derivatives of the levels of all gradients (two rows per gradient) with respect to U and R of all
    /// streams (two columns per stream).
    fn answers(&self) -> DMatrix<f64> {
        let rows: Vec<Vec<f64>> = self.of.iter().flat_map(Both::answers).collect();
        DMatrix::from_fn(rows.len(), 2 * self.of.len(), |row, column| rows[row][column])
    }

    /// Adds the pending covariance of a gradient's entries to W.
    fn draw(&mut self, stream: usize) {
        let pending = std::mem::replace(&mut self.of[stream].pending, Matrix2::zeros());
        let mut block = self.levels.fixed_view_mut::<2, 2>(2 * stream, 2 * stream);
        block += pending;
    }

    /// Goes back through noise of this covariance that was added to the signal of a stream.
    pub(crate) fn noise(&mut self, stream: usize, noise: &Matrix) {
        let answers = self.answers();
        let answers = answers.columns(2 * stream, 2);
        let covariance: Matrix2<f64> = noise.fixed_view::<2, 2>(U, U).into();
        self.levels += answers * covariance * answers.transpose();
        self.of.iter_mut().for_each(|gradient| gradient.given.noise(stream, noise));
    }

    /// Goes back through a component that acts on one stream. `width` is the width of its input.
    pub(crate) fn apply(
        &mut self,
        stream: usize,
        step: &Step,
        (gain, cosines): (&Gain, Cosines),
        answer: &Answer,
        width: f64,
    ) {
        let before = self.of[stream].cosine();
        let answers: DMatrix<f64> = self.answers().columns(2 * stream, 2).into();
        if matches!(answer.gradient, GradientEntries::Drawn { .. }) {
            self.draw(stream);
        }
        let entries = FourPoint::gaussian(before, self.cosines[(stream, stream)]);
        let responses = self.of[stream].given.responses(stream);
        self.of.iter_mut().for_each(|gradient| gradient.given.map(step));
        let cosine_factor = self.times(stream, &step.parts, (gain, cosines), answer, &responses);
        self.meet(stream, &answers, &answer.with_gains, cosine_factor);
        match answer.gradient {
            GradientEntries::Kept => {}
            GradientEntries::Drawn { preserved } => {
                self.cosines[(stream, stream)] += (1.0 - preserved) * (1.0 - before * before).powi(2) / width;
                let entries = self.entries(stream, width);
                self.of[stream].preserved = entries * preserved;
                self.of[stream].pending = entries - self.of[stream].preserved;
            }
            GradientEntries::Times(factors) => {
                let added = self.added(entries.times(factors), self.of[stream].cosine(), width);
                let turned = Matrix2::from_diagonal(&[1.0, cosine_factor].into());
                let gradient = &mut self.of[stream];
                gradient.preserved = turned * gradient.preserved * turned;
                gradient.pending = added - gradient.preserved;
            }
        }
    }

    /// Multiplies the gradient of `stream` by the gain of a component. `responses` are the derivatives of this gradient
    /// with respect to the variables of the component's output. Returns the factor on cosines.
    fn times(
        &mut self,
        stream: usize,
        parts: &[usize],
        (gain, cosines): (&Gain, Cosines),
        answer: &Answer,
        responses: &[Vector; 2],
    ) -> f64 {
        let Both { given, mixed, .. } = &mut self.of[stream];
        let (after, cosine_factor) = (given.cosine.value, gain.cosine.value);
        given.meet(&answer.with_gains, responses);
        given.add(mixed.added(&answer.transport));
        given.ln_own.add_placed(&gain.ln_own, parts);
        given.cosine = given.cosine.times(&gain.cosine.placed(parts, given.ln_own.streams()));
        // At infinite width the rule for two tokens gives the cosine `cosines.output` · `gain.leading`, but the pass
        // over all positions gives `cosines.input`.
        given.cosine.value += cosines.input - cosines.output * gain.leading;
        *mixed = mixed.through(&answer.transport, [after, cosine_factor * after]);
        self.cosines.row_mut(stream).scale_mut(cosine_factor);
        self.cosines.column_mut(stream).scale_mut(cosine_factor);
        self.levels.row_mut(2 * stream + 1).scale_mut(cosine_factor);
        self.levels.column_mut(2 * stream + 1).scale_mut(cosine_factor);
        cosine_factor
    }

    /// Adds to W the covariances of the gains of one gradient with the noise of the signal (`own` and `pair`). All
    /// levels respond to this noise by `answers`.
    fn meet(&mut self, stream: usize, answers: &DMatrix<f64>, [own, pair]: &[Vector; 2], cosine_factor: f64) {
        let cosine = self.of[stream].cosine();
        let with = Matrix2::new(own[U], cosine * pair[U], own[R], cosine * pair[R]);
        let mut both = answers * with;
        both.row_mut(2 * stream + 1).scale_mut(cosine_factor);
        let mut columns = self.levels.columns_mut(2 * stream, 2);
        columns += &both;
        let mut rows = self.levels.rows_mut(2 * stream, 2);
        rows += both.transpose();
    }

    /// Goes back through a sum or product of branches. Before the call the gradient of its output is at index
    /// `parts[0]` of `of`. Afterwards each branch has a gradient: that of the first branch is at this index, and those
    /// of the other branches are appended to `of`.
    pub(crate) fn split(&mut self, parts: &[usize], step: &Step, gains: &[(Gain, Cosines)], answers: &[Answer]) {
        let first = parts[0];
        self.draw(first);
        let responses = self.of[first].given.responses(first);
        let to_output: DMatrix<f64> = self.answers().columns(2 * first, 2).into();
        self.of.iter_mut().for_each(|gradient| gradient.given.map(step));
        let (before, after) = (self.of.len(), self.of.len() + parts.len() - 1);
        let source = |index: usize| if index < before { index } else { first };
        self.of.extend((before..after).map(|_| self.of[first].clone()).collect::<Vec<_>>());
        let level = |index: usize| 2 * source(index / 2) + index % 2;
        self.levels = DMatrix::from_fn(2 * after, 2 * after, |i, j| self.levels[(level(i), level(j))]);
        self.cosines = DMatrix::from_fn(after, after, |i, j| self.cosines[(source(i), source(j))]);
        let to_output = DMatrix::from_fn(2 * after, 2, |row, column| to_output[(level(row), column)]);
        let cosine = self.of[first].cosine();
        let entries = FourPoint::gaussian(cosine, self.cosines[(first, first)]);
        for ((&part, (gain, cosines)), answer) in parts.iter().zip(gains).zip(answers) {
            let cosine_factor = self.times(part, &step.parts, (gain, *cosines), answer, &responses);
            if let GradientEntries::Times(factors) = answer.gradient {
                // W already contains the noise of the output's entries, times the gain.
                let turned = Matrix2::from_diagonal(&[1.0, cosine_factor].into());
                let before = turned * self.added(entries, cosine, answer.width) * turned;
                let pending = self.added(entries.times(factors), self.of[part].cosine(), answer.width) - before;
                self.of[part].pending = pending;
            }
            self.meet(part, &to_output, &answer.with_gains, cosine_factor);
        }
    }

    /// Goes back through the forks before a sum or product: the gradients of the branches are summed, and the sum is
    /// stored at index `parts[0]` of `of`.
    pub(crate) fn join(
        &mut self,
        parts: &[usize],
        forks: &[usize],
        width: f64,
        common: &[Common],
        (output, ends): (&Both, &Ends),
    ) {
        for &part in parts {
            self.draw(part);
        }
        for &stream in forks.iter().rev() {
            self.of.iter_mut().for_each(|gradient| gradient.given.join_copy(stream));
        }
        let first = parts[0];
        let given: Vec<&Conditional> = parts.iter().map(|&part| &self.of[part].given).collect();
        let cosines: Vec<f64> = given.iter().map(|given| given.cosine.value).collect();
        let (given, shares) = Conditional::sum(&given, &ends.parts);
        let mixed = Mixed::joined(shares.iter().copied().zip(parts.iter().map(|&part| self.of[part].mixed)));
        let drawn = self.crossed(parts, &shares, &cosines, width);
        let (kept, count) = (self.of.len() - parts.len() + 1, self.of.len());
        let weight = |row: usize, column: usize| {
            let share = parts.iter().position(|&part| row == first && part == column).map(|part| shares[part]);
            share.unwrap_or(f64::from(u8::from(row == column && row != first)))
        };
        let sum = DMatrix::from_fn(kept, count, weight);
        let levels = sum.kronecker(&Matrix2::identity());
        self.levels = &levels * &self.levels * levels.transpose();
        let mut block = self.levels.fixed_view_mut::<2, 2>(2 * first, 2 * first);
        block += drawn.0;
        self.cosines = &sum * &self.cosines * sum.transpose();
        self.cosines[(first, first)] += drawn.1;
        self.of.truncate(kept);
        self.of[first] = Both::of(given, mixed);
        for common in common {
            self.of[first].common(common, (output, ends.ln_ratio), width);
        }
    }

    /// Goes back through an attention. The gradient of the stream becomes `given`; `levels` maps the levels at the
    /// output to those at the input.
    pub(crate) fn attend(&mut self, stream: usize, given: Conditional, mixed: Mixed, levels: Matrix2<f64>, width: f64) {
        self.draw(stream);
        let mut map = DMatrix::identity(self.levels.nrows(), self.levels.nrows());
        map.fixed_view_mut::<2, 2>(2 * stream, 2 * stream).copy_from(&levels);
        self.levels = &map * &self.levels * map.transpose();
        self.cosines.row_mut(stream).fill(0.0);
        self.cosines.column_mut(stream).fill(0.0);
        self.cosines[(stream, stream)] = width.recip();
        self.of[stream] = Both::of(given, mixed);
        self.of[stream].pending = self.entries(stream, width);
    }

    /// Returns the covariance that products of the gradients of different branches add to the levels of the summed
    /// gradient, and the variance that they add to its cosine.
    fn crossed(&self, parts: &[usize], shares: &[f64], cosines: &[f64], width: f64) -> (Matrix2<f64>, f64) {
        let (mut levels, mut variance) = (Matrix2::zeros(), 0.0);
        for i in 0..parts.len() {
            for j in 0..i {
                let both = shares[i] * shares[j];
                let [a, b] = [cosines[i], cosines[j]];
                let moments = Covariances::crossed(both, [a, b], self.cosines[(parts[i], parts[j])]);
                levels += moments.matrix(self.length).fixed_view::<2, 2>(U, U) / width;
                variance += 2.0 * both * (1.0 - a * b).powi(2) / width;
            }
        }
        (levels, variance)
    }

    /// Returns three numbers of the gradient of one stream: ln E |g_a|² relative to infinite width, the cosine E
    /// g_a·g_b/E |g_a|², and the variance of ln mean |g_a|². `fluctuations` are those of the signals.
    pub(crate) fn at(&self, stream: usize, fluctuations: &Fluctuations) -> (f64, f64, f64) {
        let gradient = &self.of[stream];
        let (ln, cosine) = gradient.given.at(fluctuations);
        let [own, _] = gradient.answers();
        let variable = |index: usize| (index / 2, [U, R][index % 2]);
        let mut variance = self.levels[(2 * stream, 2 * stream)] + gradient.pending[(0, 0)];
        for (i, &a) in own.iter().enumerate() {
            for (j, &b) in own.iter().enumerate() {
                variance += a * b * fluctuations.covariance.entry(variable(i), variable(j));
            }
        }
        (ln, cosine, variance.max(0.0))
    }
}

impl Both {
    /// Adds the part along the input that the gradients of two branches have in common. `output` is the gradient at the
    /// output of the sum or product.
    fn common(&mut self, common: &Common, (output, ln_ratio): (&Self, f64), width: f64) {
        let Conditional { ln_own, cosine } = &mut self.given;
        if !ln_ratio.is_finite() {
            return;
        }
        let unit = (ln_ratio + output.given.ln_own.value - ln_own.value).exp();
        let own = common.own * unit;
        let pair = output.cosine() * unit;
        cosine.value += common.pair * pair / width;
        ln_own.value += (own / width).ln_1p();
        self.mixed.pairs += common.pairs * unit;
        self.mixed.squares += 2.0 * own;
        self.mixed.radial = (self.mixed.radial + own) / (1.0 + own / width);
        if cosine.value != 0.0 {
            self.mixed.cross += common.cross * pair / cosine.value;
        }
    }
}
