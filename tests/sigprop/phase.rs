//! Maps over two parameters, compared with sampled networks on both sides of their edges.

use sigprop::architecture::{Activation, Architecture};
use sigprop::assemble::{Input, Run, assemble};
use sigprop::compare::Setting;
use sigprop::phase::{MapPoint, Phase, phase};
use sigprop::schemes::Scheme;
use sigprop::verdict::{Failure, Shape, Verdict};
use sigprop::{Prediction, Sites, predict};
use sigprop_stack::{Cell, Quantity, Stack};
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::support::{ALPHA, sample};

/// The distance of the sampled networks from an edge of the map, relative to the value of the varied number.
const BESIDE: f64 = 0.08;
const REPLICATES: usize = 24;

/// A map, and a function `turn` that applies the values on its axes to the architecture and the scheme, defined
/// independently of the map.
struct Plane {
    architecture: Architecture,
    input: Input,
    scheme: &'static str,
    axes: [&'static str; 2],
    turn: fn(MapPoint, &mut Architecture, Scheme) -> Scheme,
}

impl Plane {
    fn scheme(&self) -> Scheme {
        Scheme::parse(self.scheme).expect("known")
    }

    fn map(&self) -> Phase {
        let axes = self.axes.map(|axis| axis.parse().expect("an axis"));
        let setting = Setting::described(self.architecture.clone(), self.input.clone(), Run::default());
        phase(&setting, &self.scheme(), &axes, &|| {}).expect("a map")
    }

    fn stack(&self, at: MapPoint) -> Stack {
        let mut architecture = self.architecture.clone();
        let scheme = (self.turn)(at, &mut architecture, self.scheme());
        assemble(&architecture, &scheme, &self.input, &Run::default()).expect("a network").stack
    }

    /// Asserts that the networks on one side of every vertex of an edge fail, and those on the other side do not.
    fn assert_fails(&self, map: &Phase, failure: Failure, is_above: bool) {
        let region = map.regions.iter().find(|region| region.failure == failure).expect("it happens");
        let vertices: Vec<MapPoint> = region.edges.iter().flatten().copied().collect();
        assert!(vertices.len() >= 2, "{vertices:?}");
        for [x, y] in vertices {
            for (at, expected) in [([x * (1.0 - BESIDE), y], !is_above), ([x * (1.0 + BESIDE), y], is_above)] {
                let verdict = sampled(&self.stack(at));
                let fails = verdict.failures().iter().any(|(found, _)| *found == failure);
                assert_eq!(fails, expected, "{} at {at:?}: {}", failure.name(), verdict.headline);
            }
        }
    }
}

/// The verdict on sampled networks.
fn sampled(stack: &Stack) -> Verdict {
    let predicted = predict(stack, Sites::All).expect("valid");
    let table = sample(stack, REPLICATES).table;
    let mut attentions = predicted.attentions;
    for row in &mut attentions {
        row.attended = attended(&table, &row.site, stack.streams[0].seq_len).value.value();
    }
    Verdict::of(&Prediction { table, attentions, ..predicted }, Shape::of(stack), None)
}

/// The participation ratio 1/Σ A² over the keys of a query, from E A = 1/keys and the variance of the weights A.
fn attended(table: &sigprop_stack::SiteTable, heads: &str, keys: usize) -> Cell {
    let softmax = table.site(&heads.replace(".heads", ".softmax")).expect("attention has weights");
    let keys = keys as f64;
    let Cell { value, std_error } = *softmax.get(Quantity::Variance).expect("they vary");
    let attended = 1.0 / (keys * value.value() + 1.0 / keys);
    Cell { value: attended.into(), std_error: (keys * attended * attended * std_error.value()).into() }
}

fn encoder() -> Plane {
    let shape = Architecture { n_layers: 12, d_model: 64, n_heads: Some(2), seq_len: 16, ..Architecture::default() };
    let architecture = Architecture { vocab_size: 1000, dropout: 0.0, ..shape };
    Plane {
        architecture,
        input: Input::Uniform,
        scheme: "xavier",
        axes: ["skip-scale=0.6..1.5:3", "branch-scale=0.2..0.4:2"],
        turn: |[skip, branch], architecture, scheme| {
            (architecture.skip_scale, architecture.branch_scale) = (Some(skip), Some(branch));
            scheme
        },
    }
}

#[test]
fn sampled_encoders_explode_and_collapse_beyond_the_edges() {
    let plane = encoder();
    let map = plane.map();
    plane.assert_fails(&map, Failure::Explosion, true);
    plane.assert_fails(&map, Failure::Collapse, false);
}

#[test]
fn sampled_perceptrons_explode_and_vanish_beyond_the_edges() {
    let shape = Architecture { d_model: 128, seq_len: 8, activation: Activation::Relu, ..Architecture::mlp() };
    let plane = Plane {
        architecture: shape,
        input: Input::Correlation(0.2),
        scheme: "normal:std=0.1",
        axes: ["std=0.03..0.3:3", "layers=14..16:2"],
        turn: |[std, layers], architecture, scheme| {
            architecture.n_layers = layers as usize;
            scheme.with("std", std).expect("a size")
        },
    };
    let map = plane.map();
    plane.assert_fails(&map, Failure::Explosion, true);
    plane.assert_fails(&map, Failure::Vanishing, false);
}

#[test]
fn sampled_attention_collapses_beyond_the_edge() {
    let Plane { architecture, input, .. } = encoder();
    let plane = Plane {
        architecture: Architecture { n_layers: 1, ..architecture },
        input,
        scheme: "gains:1,1,1,1,1",
        axes: ["qk=1..16:3", "ratio=0.5..1:2"],
        turn: |[qk, ratio], _, scheme| scheme.with("qk", qk).and_then(|s| s.with("ratio", ratio)).expect("gains"),
    };
    plane.assert_fails(&plane.map(), Failure::EntropyCollapse, true);
}

/// A two-sided test at α = 1e-3 over the four numbers of a cell.
#[test]
fn a_cell_tells_what_sampled_networks_do() {
    let plane = encoder();
    let map = plane.map();
    let cell = &map.cells[1];
    let point = cell.outcome.as_ref().expect("a network");
    let stack = plane.stack(cell.at);
    let table = sample(&stack, 2 * REPLICATES).table;
    let value = |site, quantity| *table.site(site).and_then(|row| row.get(quantity)).expect("it is told");
    let growth = |quantity, from, to| {
        let [from, to] = [from, to].map(|site| value(site, quantity));
        let error = |cell: Cell| cell.std_error.value() / cell.value.value();
        (to.value.ln_abs() - from.value.ln_abs(), error(from).hypot(error(to)))
    };
    let plain = |Cell { value, std_error }| (value.value(), std_error.value());
    let sharpest = |site: &String| plain(attended(&table, site, stack.streams[0].seq_len));
    let heads = predict(&stack, Sites::All).expect("valid").attentions.into_iter().map(|row| row.site);
    let attended = heads.map(|site| sharpest(&site)).min_by(|one, other| one.0.total_cmp(&other.0));
    let numbers = [
        ("forward", point.ln_growth[0], growth(Quantity::Variance, "embeddings", "blocks.11")),
        ("backward", point.ln_growth[1], growth(Quantity::GradVariance, "blocks.11", "embeddings")),
        (
            "correlation",
            point.token_correlation.expect("tokens"),
            plain(value("blocks.11", Quantity::TokenCorrelation)),
        ),
        ("attended", point.attended.expect("attention"), attended.expect("attention")),
    ];
    let student = StudentsT::new(0.0, 1.0, (2 * REPLICATES - 1) as f64).expect("several networks");
    let bound = student.inverse_cdf(1.0 - ALPHA / 8.0);
    for (name, predicted, (measured, std_error)) in numbers {
        let z = (measured - predicted) / std_error;
        assert!(z.abs() < bound, "{name} at {:?}: told {predicted}, sampled {measured} ± {std_error}", cell.at);
    }
}
