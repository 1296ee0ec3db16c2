//! The grids of Kedia et al. (2024), `simulations/` of their repository, and a grid of attention beyond them.
//!
//! Factors that scale results exactly are not sampled: the standard deviations of gradients everywhere, of weights in
//! linear maps, of values in attention, of the input of ReLU. ReLU and GELU act on single entries. The published grid
//! has one entry per token; here there are [`WIDTH`], so that one replicate holds many of its cases.

use sigprop_stack::{
    Activation, Attention, Cell, Component, Dropout, Gaussian, GradientSeed, Init, Linear, Node, Norm, NormKind, Op,
    Quantity, SiteRow, SiteTable, Source, Stack, Stream, Tensor,
};

use super::grid::{SAMPLE, points};
use super::{Case, Look, Sample};
use crate::mean_field::softmax::SoftmaxRow;

/// Three levels around 1, a factor of √10 apart.
const DECADE: [f64; 3] = [0.316_227_766_016_837_94, 1.0, 3.162_277_660_168_379_4];
const FACTOR_100: [f64; 3] = [0.1, 1.0, 10.0];
const THIRDS: [f64; 3] = [0.0, 1.0 / 3.0, 2.0 / 3.0];
const FIFTHS: [f64; 5] = [0.0, 0.2, 0.4, 0.6, 0.8];
const WIDTHS: [usize; 3] = [100, 316, 1000];
const LENGTHS: [usize; 2] = [100, 1000];
/// Number of entries per token; the published grid has one.
const WIDTH: usize = 64;
/// Number of points of the stratified sample of the attention grid, which is smaller because attention is slow.
const ATTENTION_SAMPLE: usize = 36;
/// The largest number of replicates of a case.
const MOST: usize = 100_000;
/// The largest number of replicates in the attention suite. Cases with sharp rows of a thousand keys need all of them.
const ATTENTION_MOST: usize = 2000;

/// The comparison for attention. The mean is observed after the map W of values, W (Σ A x) = Σ A (W x); other moments
/// of the signal are observed before W, where the average over W is exact.
const AVERAGE: Look = Look::Component { signal: "average", mean: "value", gradient: "input", scales: &DECADE };

/// A row of equally correlated Gaussian scores, the input of a softmax.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GaussianScores {
    /// Number of scores.
    pub count: usize,
    /// Variance of each score.
    pub variance: f64,
    /// Correlation of any two scores.
    pub correlation: f64,
}

impl GaussianScores {
    /// The variance of a score without the part that all scores share, which cancels in a softmax: variance · (1 −
    /// correlation).
    pub fn contrast(&self) -> f64 {
        self.variance * (1.0 - self.correlation)
    }

    /// The prediction for the softmax of these scores, under a gradient of independent entries of variance 1.
    pub(super) fn predict(&self) -> SiteTable {
        let (n, w) = (self.count as f64, self.contrast());
        let row = SoftmaxRow::new(n, w);
        let first = (1.0 - 1.0 / n) / (n * n);
        let told = [
            (Quantity::Mean, 1.0 / n),
            (Quantity::Variance, row.squares * w * first),
            (Quantity::GradVariance, row.passed * first),
        ];
        let mut cells = [None; Quantity::ALL.len()];
        for (quantity, value) in told {
            cells[quantity as usize] = Some(Cell::exact(value));
        }
        let row = SiteRow { layer: 0, site: "softmax".to_owned(), is_stream_site: true, cells };
        SiteTable { sites: vec![row], weights: Vec::new() }
    }
}

/// Returns the cases of all components, over the published grids.
pub(super) fn cases(full: bool, seed: u64) -> Vec<Case> {
    [linear, relu, gelu, layernorm, dropout, softmax, sha]
        .iter()
        .enumerate()
        .flat_map(|(index, component)| component(full, seed.wrapping_add(index as u64)))
        .collect()
}

fn linear(full: bool, seed: u64) -> Vec<Case> {
    let levels = [3, 3, 3, 3, 3, 3, 2];
    let case = |point: Vec<usize>| {
        let [mean, std, r, r_g, fan_in, fan_out, n] = point[..] else { unreachable!("seven factors") };
        let (fan_in, fan_out, seq_len) = (WIDTHS[fan_in], WIDTHS[fan_out], LENGTHS[n]);
        let input =
            Input { width: fan_in, mean: FACTOR_100[mean], std: DECADE[std], r: THIRDS[r], r_g: THIRDS[r_g], seq_len };
        Case {
            name: format!("fan_out {fan_out}, {input}"),
            look: look("linear", &FACTOR_100),
            ..input.case("linear", vec![projection("linear", fan_in, fan_out, 1.0)], 0.004)
        }
    };
    points(&levels, SAMPLE, full, seed).into_iter().map(case).collect()
}

fn relu(full: bool, seed: u64) -> Vec<Case> {
    let case = |point: Vec<usize>| {
        let [r, r_g, n] = point[..] else { unreachable!("three factors") };
        let input = Input { width: WIDTH, mean: 0.0, std: 1.0, r: FIFTHS[r], r_g: FIFTHS[r_g], seq_len: LENGTHS[n] };
        let body = vec![Node::apply("relu", Component::Activation(Activation::Relu))];
        Case { look: look("relu", &DECADE), ..input.case("relu", body, 0.0025) }
    };
    points(&[5, 5, 2], SAMPLE, full, seed).into_iter().map(case).collect()
}

fn gelu(full: bool, seed: u64) -> Vec<Case> {
    let case = |point: Vec<usize>| {
        let [std, r, r_g, n] = point[..] else { unreachable!("four factors") };
        let input =
            Input { width: WIDTH, mean: 0.0, std: DECADE[std], r: FIFTHS[r], r_g: FIFTHS[r_g], seq_len: LENGTHS[n] };
        let body = vec![Node::apply("gelu", Component::Activation(Activation::Gelu))];
        Case { look: look("gelu", &[1.0]), ..input.case("gelu", body, 0.002) }
    };
    points(&[3, 5, 5, 2], SAMPLE, full, seed).into_iter().map(case).collect()
}

fn layernorm(full: bool, seed: u64) -> Vec<Case> {
    /// Means of the input: `linspace(-10, 10, 3, endpoint=False)`.
    const MEANS: [f64; 3] = [-10.0, -10.0 / 3.0, 10.0 / 3.0];
    let case = |point: Vec<usize>| {
        let [mean, std, r, r_g, width, n] = point[..] else { unreachable!("six factors") };
        let input = Input {
            width: WIDTHS[width],
            mean: MEANS[mean],
            std: DECADE[std],
            r: FIFTHS[r],
            r_g: FIFTHS[r_g],
            seq_len: LENGTHS[n],
        };
        Case { look: look("layernorm", &[1.0]), ..input.case("layernorm", vec![layer_norm()], 0.0012) }
    };
    points(&[3, 3, 5, 5, 3, 2], SAMPLE, full, seed).into_iter().map(case).collect()
}

fn dropout(full: bool, seed: u64) -> Vec<Case> {
    const MEANS: [f64; 3] = [-10.0, 0.0, 10.0];
    let case = |point: Vec<usize>| {
        let [mean, std, r, r_g, p, width, n] = point[..] else { unreachable!("seven factors") };
        let (rate, seq_len) = (THIRDS[p], LENGTHS[n]);
        let input = Input {
            width: WIDTHS[width],
            mean: MEANS[mean],
            std: DECADE[std],
            r: THIRDS[r],
            r_g: THIRDS[r_g],
            seq_len,
        };
        Case {
            name: format!("p {rate:.2}, {input}"),
            look: look("dropout", &[1.0]),
            ..input.case("dropout", vec![Node::apply("dropout", Component::Dropout(Dropout { rate }))], 0.0012)
        }
    };
    points(&[3, 3, 3, 3, 3, 3, 2], SAMPLE, full, seed).into_iter().map(case).collect()
}

fn softmax(full: bool, seed: u64) -> Vec<Case> {
    /// `logspace(-2, 0, 5)` and `logspace(log10(300), 4, 5)`.
    const STDS: [f64; 5] = [0.01, 0.031_622_776_601_683_79, 0.1, 0.316_227_766_016_837_94, 1.0];
    const COUNTS: [usize; 5] = [300, 720, 1732, 4161, 10_000];
    let case = |point: Vec<usize>| {
        let [std, r, n] = point[..] else { unreachable!("three factors") };
        let scores = GaussianScores { count: COUNTS[n], variance: STDS[std].powi(2), correlation: FIFTHS[r] };
        Case {
            group: "softmax",
            name: format!("scores {}, std {:.3}, r {:.2}", scores.count, STDS[std], scores.correlation),
            sample: Sample::Softmax { scores, replicates: 128 },
            look: Look::Component { signal: "softmax", mean: "softmax", gradient: "softmax", scales: &[1.0] },
        }
    };
    points(&[5, 5, 5], SAMPLE, full, seed).into_iter().map(case).collect()
}

/// The cases of single-head attention over the published grid.
fn sha(full: bool, seed: u64) -> Vec<Case> {
    /// `logspace(-1, log10(0.6), 3)` and `logspace(log10(300), 3, 3)`.
    const STDS: [f64; 3] = [0.1, 0.244_948_974_278_317_8, 0.6];
    const LENGTHS: [usize; 3] = [300, 547, 1000];
    const HEADS: [usize; 4] = [32, 64, 128, 256];
    let case = |point: Vec<usize>| {
        let [r, std, p, r_g, width, head, n] = point[..] else { unreachable!("seven factors") };
        let (d, d_head, std, dropout_rate) = (WIDTHS[width], HEADS[head], STDS[std], THIRDS[p]);
        let input = Input { width: d, mean: 0.0, std: 1.0, r: THIRDS[r], r_g: THIRDS[r_g], seq_len: LENGTHS[n] };
        Case {
            name: format!("d_out {d_head}, σ_q√d {std:.2}, p {dropout_rate:.2}, {input}"),
            look: AVERAGE,
            ..input.case("sha", single_head(d, d_head, std, dropout_rate), 0.005)
        }
    };
    points(&[3, 3, 3, 3, 3, 4, 3], ATTENTION_SAMPLE, full, seed).into_iter().map(case).collect()
}

/// The cases of single-head attention from flat to sharp, for Gaussian and for normalised tokens, beyond the published
/// grid.
pub(super) fn attention(full: bool, seed: u64) -> Vec<Case> {
    const SCORE_VARIANCES: [f64; 4] = [0.1, 1.0, 4.0, 16.0];
    const CORRELATIONS: [f64; 4] = [0.0, 0.3, 0.6, 0.9];
    const LENGTHS: [usize; 3] = [16, 128, 1024];
    const HEADS: [usize; 3] = [32, 64, 256];
    const WIDTHS: [usize; 2] = [256, 1024];
    const GRADIENT: [f64; 2] = [0.0, 0.3];
    const DROPOUT: [f64; 2] = [0.0, 0.3];
    let case = |point: Vec<usize>| {
        let [v, r, n, head, width, p, r_g, norm] = point[..] else { unreachable!("eight factors") };
        let (d, d_head, v, dropout_rate) = (WIDTHS[width], HEADS[head], SCORE_VARIANCES[v], DROPOUT[p]);
        let input =
            Input { width: d, mean: 0.0, std: 1.0, r: CORRELATIONS[r], r_g: GRADIENT[r_g], seq_len: LENGTHS[n] };
        let (tokens, norm) = if norm == 0 { ("Gaussian", None) } else { ("normalised", Some(layer_norm())) };
        // The variance of scores is σ_q² σ_k² d².
        let body = norm.into_iter().chain(single_head(d, d_head, v.sqrt().sqrt(), dropout_rate)).collect();
        Case {
            name: format!("score variance {v}, d_out {d_head}, p {dropout_rate:.2}, {tokens}, {input}"),
            look: AVERAGE,
            ..input.at_most(ATTENTION_MOST, "attention", body, 0.005)
        }
    };
    points(&[4, 4, 3, 3, 2, 2, 2, 2], ATTENTION_SAMPLE, full, seed).into_iter().map(case).collect()
}

/// Single-head attention with `std` = σ_w √fan_in for queries and keys.
fn single_head(d: usize, d_head: usize, std: f64, dropout_rate: f64) -> Vec<Node> {
    let parts = [vec![projection("query", d, d_head, std)], vec![projection("key", d, d_head, std)], Vec::new()];
    let attention = Attention { d_value: d, dropout_rate, ..Attention::plain(1, 1, d_head, parts) };
    vec![Node::new("average", Op::Attention(attention)), projection("value", d, d_head, 1.0)]
}

fn layer_norm() -> Node {
    Node::apply("layernorm", Component::Norm(Norm::plain(NormKind::LayerNorm, 1e-5)))
}

/// A linear map without bias, with `std` = σ_w √fan_in.
fn projection(name: &str, fan_in: usize, fan_out: usize, std: f64) -> Node {
    let weight = Tensor { name: name.to_owned(), init: Init::Normal { std: std / (fan_in as f64).sqrt() } };
    Node::apply(name, Component::Linear(Linear { fan_in, fan_out, weight, bias: None, standardised: None }))
}

fn look(output: &'static str, scales: &'static [f64]) -> Look {
    Look::Component { signal: output, mean: output, gradient: "input", scales }
}

/// The input of a component.
struct Input {
    width: usize,
    mean: f64,
    std: f64,
    r: f64,
    r_g: f64,
    seq_len: usize,
}

impl std::fmt::Display for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { width, mean, std, r, r_g, seq_len } = self;
        write!(f, "width {width}, {seq_len} tokens, mean {mean:.2}, std {std:.2}, r {r:.2}, r_g {r_g:.2}")
    }
}

impl Input {
    /// A case: this input, then the nodes of `component`. It is sampled until the standard error is at most
    /// `std_error`.
    fn case(&self, group: &'static str, component: Vec<Node>, std_error: f64) -> Case {
        self.at_most(MOST, group, component, std_error)
    }

    /// A case like [`Input::case`], with at most `most` networks.
    fn at_most(&self, most: usize, group: &'static str, component: Vec<Node>, std_error: f64) -> Case {
        let gaussian =
            Gaussian { width: self.width, mean: self.mean, variance: self.std * self.std, correlation: self.r };
        let mut body = vec![Node::new("input", Op::Chain(Vec::new()))];
        body.extend(component);
        let stream =
            Stream { name: "component".to_owned(), seq_len: self.seq_len, source: Source::Gaussian(gaussian), body };
        let stack = Stack::new(group, vec![stream], GradientSeed { stream: 0, correlation: self.r_g });
        Case {
            group,
            name: self.to_string(),
            sample: Sample::Stack { stack: Box::new(stack), std_error, replicates: [96, most] },
            look: look(group, &[1.0]),
        }
    }
}
