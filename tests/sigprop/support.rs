//! Small stacks for tests, and comparisons of predictions with measurements.

use std::{env, fs, path::Path, sync::atomic::AtomicBool, thread};

use sigprop::agreement::{Comparison, compare};
use sigprop::architecture::{Architecture, Format};
use sigprop::assemble::{Input, Run, assemble};
use sigprop::schemes::Scheme;
use sigprop::stack_file::{stack_hash, stack_json};
use sigprop::{Sites, predict};
use sigprop_stack::{
    Activation, Branch, Cell, Component, Dropout, Gaussian, GradientSeed, Init, Linear, Node, Norm, NormKind, Number,
    Op, Quantity, Source, Stack, Stream, Sum, Tensor,
};
use sigprop_validate::{Measurement, Settings, measure};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// The probability that a comparison with samples ([`assert_twin`]) fails although the prediction is right.
pub(crate) const ALPHA: f64 = 1e-3;
/// Cells with a relative standard error below this count as constants, and must agree to [`CONSTANT`].
const EXACT: f64 = 1e-4;
const CONSTANT: f64 = 1e-3;

pub(crate) fn tensor(name: &str, std: f64) -> Tensor {
    Tensor { name: name.to_owned(), init: Init::Normal { std } }
}

/// A linear map with `variance` = fan_in · weight variance.
pub(crate) fn linear(name: &str, fan_in: usize, fan_out: usize, variance: f64) -> Node {
    let weight = tensor(&format!("{name}.weight"), (variance / fan_in as f64).sqrt());
    Node::apply(name, Component::Linear(Linear { fan_in, fan_out, weight, bias: None, standardised: None }))
}

/// A linear map whose standardised weight has rows of this length.
pub(crate) fn standardised(name: &str, fan_in: usize, fan_out: usize, length: f64) -> Node {
    let weight = tensor(&format!("{name}.weight"), 0.3);
    let map = Linear { fan_in, fan_out, weight, bias: None, standardised: Some(length) };
    Node::apply(name, Component::Linear(map))
}

pub(crate) fn norm(name: &str, kind: NormKind) -> Node {
    Node::apply(name, Component::Norm(Norm::plain(kind, 1e-5)))
}

pub(crate) fn activation(name: &str, activation: Activation) -> Node {
    Node::apply(name, Component::Activation(activation))
}

pub(crate) fn dropout(name: &str, rate: f64) -> Node {
    Node::apply(name, Component::Dropout(Dropout { rate }))
}

/// The residual sum skip_scale · x + branch_scale · body(x).
pub(crate) fn residual(name: &str, scales: [f64; 2], drop_rate: f64, body: Vec<Node>) -> Node {
    let skip = Branch::constant(scales[0], Vec::new());
    let branch = Branch { drop_rate, ..Branch::constant(scales[1], body) };
    Node::new(name, Op::Sum(Sum { branches: vec![skip, branch] }))
}

/// Gaussian tokens of correlation 0.3 through `body`; gradients of correlation 0.25.
pub(crate) fn gaussian_stack(width: usize, variance: f64, seq_len: usize, body: Vec<Node>) -> Stack {
    stack(Source::Gaussian(Gaussian { width, mean: 0.0, variance, correlation: 0.3 }), seq_len, body)
}

pub(crate) fn stack(source: Source, seq_len: usize, body: Vec<Node>) -> Stack {
    let mut nodes = vec![Node::new("embeddings", Op::Chain(Vec::new()))];
    nodes.extend(body);
    let stream = Stream { name: "encoder".to_owned(), seq_len, source, body: nodes };
    Stack::new("test", vec![stream], GradientSeed { stream: 0, correlation: 0.25 })
}

/// Samples every site and weight.
pub(crate) fn sample(stack: &Stack, replicates: usize) -> Measurement {
    sample_with(stack, &Settings { replicates, seed: 1, all_sites: true, weights: true, ..Settings::default() })
}

/// Samples the sites of the stream.
pub(crate) fn sample_stream(stack: &Stack, replicates: usize) -> Measurement {
    sample_with(stack, &Settings { replicates, seed: 1, ..Settings::default() })
}

fn sample_with(stack: &Stack, settings: &Settings) -> Measurement {
    if let Ok(folder) = env::var("SIGPROP_STACKS") {
        write_down(stack, Path::new(&folder));
    }
    measure(stack, settings, &|_| {}, &AtomicBool::new(false)).expect("the stack is valid and small")
}

/// Writes the stack as a file for programs in other languages, such as python/tests/stacks.py.
fn write_down(stack: &Stack, folder: &Path) {
    let test = thread::current().name().unwrap_or_default().replace("::", ".");
    let mut text = Vec::new();
    stack_json(stack, &mut text).expect("memory takes everything");
    let path = folder.join(format!("{test}-{}.json", &stack_hash(stack)[..8]));
    fs::write(path, text).expect("a folder to write into");
}

/// The relative tolerance for ±, the fluctuations between networks, which are predicted to leading order in 1/width.
const SPREAD: f64 = 0.3;
const SPREADS: [Quantity; 2] = [Quantity::LnVarianceStd, Quantity::LnGradVarianceStd];

/// Compares every moment of every site and weight of `stack` with `replicates` sampled networks. No |z| may exceed the
/// two-sided quantile of Student's t at [`ALPHA`] over all cells.
pub(crate) fn assert_twin(stack: &Stack, replicates: usize) {
    assert_twin_but_for(&[], stack, replicates);
}

/// Compares like [`assert_twin`], for a prediction whose caveats are of these kinds. ± is left out if a caveat is about
/// ±.
pub(crate) fn assert_twin_but_for(kinds: &[&str], stack: &Stack, replicates: usize) {
    assert_twin_known(kinds, &[], stack, replicates);
}

/// Compares like [`assert_twin_but_for`], but for `known` deviations: quantities at sites whose path ends like this.
pub(crate) fn assert_twin_known(kinds: &[&str], known: &[(&str, Quantity)], stack: &Stack, replicates: usize) {
    let prediction = predict(stack, Sites::All).expect("the stack is valid");
    let found: Vec<&str> = prediction.caveats.iter().map(|caveat| caveat.kind().name).collect();
    assert_eq!(found, kinds, "the twin is to be within the range of the rules");
    let measurement = sample(stack, replicates);
    assert_eq!(measurement.overflow, None);

    let (mut cells, mut spreads) = (Vec::new(), Vec::new());
    assert_eq!(prediction.table.sites.len(), measurement.table.sites.len());
    for (predicted, observed) in prediction.table.sites.iter().zip(&measurement.table.sites) {
        assert_eq!(predicted.site, observed.site);
        for quantity in Quantity::ALL {
            let name = format!("{} {}", predicted.site, quantity.name());
            if known.iter().any(|(site, of)| *of == quantity && predicted.site.ends_with(site)) {
                continue;
            }
            match (predicted.value(quantity), observed.get(quantity)) {
                // Known to leading order. There is none for attention weights, nor if some networks have a zero.
                (..) if SPREADS.contains(&quantity) && kinds.contains(&"weighed_inputs") => {}
                (predicted, observed) if SPREADS.contains(&quantity) => {
                    spreads.extend(predicted.zip(observed.copied()).map(|(predicted, cell)| (name, predicted, cell)));
                }
                (Some(predicted), Some(cell)) => cells.push((name, predicted, cell.value, cell.std_error)),
                (None, None) => {}
                (predicted, observed) => panic!("{name}: predicted {predicted:?}, observed {observed:?}"),
            }
        }
    }
    assert_eq!(prediction.table.weights.len(), measurement.table.weights.len());
    for predicted in &prediction.table.weights {
        let observed = measurement.table.weights.iter().find(|observed| observed.tensor == predicted.tensor);
        let observed = observed.unwrap_or_else(|| panic!("{} was not measured", predicted.tensor));
        let observed_moment = observed.grad_second_moment;
        cells.push((
            format!("{} gradient", predicted.tensor),
            predicted.grad_second_moment.value,
            observed_moment.value,
            observed_moment.std_error,
        ));
    }
    let student = StudentsT::new(0.0, 1.0, (replicates - 1) as f64).expect("replicates is larger than 1");
    let bound = student.inverse_cdf(1.0 - ALPHA / (2.0 * cells.len() as f64));
    let mut failures = Vec::new();
    for (name, predicted, Cell { value, std_error }) in spreads {
        let allowed = SPREAD * value.value() + bound * std_error.value();
        let difference = value.value() - predicted.value();
        if difference.abs() >= allowed {
            failures.push(format!("{name}: predicted {predicted}, observed {value} ± {std_error}"));
        }
    }
    for (name, predicted, observed, std_error) in cells {
        let difference = observed.value() - predicted.value();
        let is_exact = std_error.value() <= EXACT * observed.value().abs();
        let scale = observed.value().abs().max(predicted.value().abs());
        let allowed = if is_exact { CONSTANT * scale } else { bound * std_error.value() };
        if difference.abs() > allowed {
            let (error, off) = (Number::from(std_error.value()), -100.0 * difference / scale);
            failures.push(format!(
                "{name}: predicted {predicted}, observed {observed} ± {error}: {off:+.2} %, allowed {:.2} %",
                100.0 * allowed / scale
            ));
        }
    }
    assert!(failures.is_empty(), "{} of all cells:\n{}", failures.len(), failures.join("\n"));
}

/// Compares the prediction for an architecture file with sampled networks.
pub(crate) fn compared(
    file: &str,
    scheme: &str,
    (input, run): (&Input, &Run),
    sites: Sites,
    replicates: usize,
) -> Vec<Comparison> {
    let architecture = Architecture::from_file_text(file, Format::Toml).expect("valid");
    let scheme = Scheme::parse(scheme).expect("known");
    let stack = assemble(&architecture, &scheme, input, run).expect("a stack").stack;
    let predicted = predict(&stack, sites).expect("a prediction").table;
    let sampled = if sites == Sites::All { sample(&stack, replicates) } else { sample_stream(&stack, replicates) };
    compare(&predicted, &sampled.table, replicates)
}

/// Asserts that the prediction of every row with a standard error is within a share `part` of the sampled value, plus
/// four standard errors (α = 6e-5 per number). At least `at_least` rows must have a standard error.
pub(crate) fn assert_within<'a>(part: f64, rows: impl Iterator<Item = &'a Comparison>, at_least: usize) {
    const LARGEST_Z: f64 = 4.0;
    let (mut seen, mut failures) = (0, Vec::new());
    for row in rows {
        let Some(error) = row.relative_error.filter(|_| row.z.is_some()) else { continue };
        if error.abs() >= part + LARGEST_Z * row.relative_std_error {
            failures.push(format!("{error:+.4} ± {:.4}: {row:?}", row.relative_std_error));
        }
        seen += 1;
    }
    assert!(failures.is_empty(), "{} of {seen} numbers:\n{}", failures.len(), failures.join("\n"));
    assert!(seen >= at_least, "{seen} numbers");
}
