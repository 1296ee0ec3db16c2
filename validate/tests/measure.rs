//! The engine through its public interface: it is reproducible, correct where the answer is known exactly, and robust
//! where numbers leave the range of f32.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use sigprop_stack::{
    Activation, Attention, Branch, Cell, Component, Decay, Dropout, Embedding, EmbeddingTerm, Gaussian, GradientSeed,
    Ids, Init, Linear, Node, Norm, NormKind, Op, PowerLaw, Product, Quantity, Rates, Recurrence, Source, Stack,
    StepBias, Stepped, Stream, Sum, Tensor, Write,
};
use sigprop_validate::{MeasureError, Measurement, Progress, Sampling, Settings, Target, measure, measure_softmax};

/// Two-sided α = 1e-4 per check at 200 replicates (Student's t, 199 degrees of freedom).
const Z: f64 = 3.97;
const REPLICATES: usize = 200;

fn run(stack: &Stack, settings: &Settings) -> Measurement {
    measure(stack, settings, &|_| {}, &AtomicBool::new(false)).expect("a sound stack")
}

fn many(batch: usize) -> Settings {
    Settings { replicates: REPLICATES, batch, all_sites: true, weights: true, ..Settings::default() }
}

fn assert_z(what: &str, cell: &Cell, expected: f64) {
    let z = (cell.value.value() - expected) / cell.std_error.value();
    assert!(z.abs() < Z, "{what}: expected {expected}, got {} ± {}: z = {z}", cell.value, cell.std_error);
}

fn cell<'m>(measurement: &'m Measurement, site: &str, quantity: Quantity) -> &'m Cell {
    let row = measurement.table.site(site).unwrap_or_else(|| panic!("no row {site}"));
    row.get(quantity).unwrap_or_else(|| panic!("{site}: no {}", quantity.name()))
}

fn stack(seq_len: usize, source: Source, body: Vec<Node>, correlation: f64) -> Stack {
    let stream = Stream { name: "main".to_owned(), seq_len, source, body };
    Stack::new("test", vec![stream], GradientSeed { stream: 0, correlation })
}

fn gaussian(width: usize, variance: f64, correlation: f64) -> Source {
    Source::Gaussian(Gaussian { width, mean: 0.0, variance, correlation })
}

fn normal(name: &str, std: f64) -> Tensor {
    Tensor { name: name.to_owned(), init: Init::Normal { std } }
}

fn linear(name: &str, fan_in: usize, fan_out: usize, std: f64) -> Node {
    Node::apply(
        name,
        Component::Linear(Linear { fan_in, fan_out, weight: normal(name, std), bias: None, standardised: None }),
    )
}

fn activation(name: &str, activation: Activation) -> Node {
    Node::apply(name, Component::Activation(activation))
}

/// A small network with every component.
fn everything() -> Stack {
    const WIDTH: usize = 12;
    let norm = |name: &str, kind| Node::apply(name, Component::Norm(Norm::plain(kind, 1e-5)));
    let dropout = || Node::apply("dropout", Component::Dropout(Dropout { rate: 0.1 }));
    let residual = |name: &str, body| {
        let skip = Branch::constant(1.0, Vec::new());
        Node::new(name, Op::Sum(Sum { branches: vec![skip, Branch { drop_rate: 0.2, ..Branch::constant(0.7, body) }] }))
    };
    let block = |index: usize| {
        let part = |name: &str, fan_in, fan_out| linear(&format!("{index}.{name}"), fan_in, fan_out, 0.3);
        let attention = Attention {
            dropout_rate: 0.1,
            scale: 0.6,
            ..Attention::plain(
                4,
                2,
                3,
                [vec![part("query", WIDTH, 12)], vec![part("key", WIDTH, 6)], vec![part("value", WIDTH, 6)]],
            )
        };
        let gate = vec![part("gate", WIDTH, 20), activation("silu", Activation::Silu)];
        let product = Product { factors: vec![gate, vec![part("up", WIDTH, 20)]] };
        let attended = vec![
            norm("attention_norm", NormKind::LayerNorm),
            Node::new("attention", Op::Attention(attention)),
            part("output", 12, WIDTH),
            dropout(),
        ];
        let fed = vec![
            norm("ffn_norm", NormKind::RmsNorm),
            Node::new("product", Op::Product(product)),
            part("down", 20, WIDTH),
        ];
        Node::new(
            format!("blocks.{index}"),
            Op::Chain(vec![residual("attention_residual", attended), residual("ffn_residual", fed)]),
        )
    };
    let embedding = Embedding {
        width: WIDTH,
        ids: Ids::PowerLaw(PowerLaw { vocab_size: 50, exponent: 1.0 }),
        same_ids_as: None,
        terms: vec![
            EmbeddingTerm::Token { table: normal("tokens", 1.0) },
            EmbeddingTerm::LearnedPosition { table: normal("positions", 0.5) },
            EmbeddingTerm::Segment { table: normal("segments", 0.5) },
            EmbeddingTerm::SinusoidalPosition { scale: 0.5 },
        ],
    };
    let body = vec![dropout(), block(0), block(1), norm("final_norm", NormKind::LayerNorm)];
    stack(7, Source::Embedding(embedding), body, 0.2)
}

/// A state-space model with more heads than are added up at a time, in front of a gated delta rule.
fn recurrences() -> Stack {
    const WIDTH: usize = 12;
    let mixer = |name: &str, [n_heads, n_key_heads, d_key, d_value]: [usize; 4]| {
        let map = |part: &str, width| vec![linear(&format!("{name}.{part}"), WIDTH, width, 0.3)];
        let stepped = Stepped {
            step: map("step", n_heads),
            step_per_channel: false,
            bias: StepBias::LogUniform { low: 1e-3, high: 0.1 },
            rates: Rates::Uniform { low: 1.0, high: 16.0 },
            rate_per_channel: false,
        };
        Recurrence {
            n_heads,
            n_key_heads,
            d_key,
            d_value,
            scale: 1.0,
            decay: Decay::Stepped(stepped),
            write: Write::Step,
            delta: false,
            skip: Some(1.0),
            query: map("query", n_key_heads * d_key),
            key: map("key", n_key_heads * d_key),
            value: map("value", n_heads * d_value),
        }
    };
    let space = mixer("space", [70, 1, 3, 1]);
    let strength = vec![linear("delta.strength", WIDTH, 4, 0.3)];
    let write = Write::Sigmoid { factor: 1.0, strength };
    let delta = Recurrence { delta: true, write, skip: None, ..mixer("delta", [4, 2, 3, 3]) };
    let body = vec![
        Node::new("space", Op::Recurrence(space)),
        linear("map", 70, WIDTH, 0.1),
        Node::new("delta", Op::Recurrence(delta)),
    ];
    stack(7, gaussian(WIDTH, 1.0, 0.3), body, 0.2)
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let settings = Settings { replicates: 9, batch: 2, all_sites: true, weights: true, ..Settings::default() };
    for stack in [everything(), recurrences()] {
        let one = run(&stack, &Settings { threads: Some(1), ..settings.clone() });
        for threads in [Some(2), Some(5), None] {
            assert_eq!(one, run(&stack, &Settings { threads, ..settings.clone() }));
        }
        assert_ne!(one, run(&stack, &Settings { seed: 1, ..settings.clone() }));
    }
}

/// The gradient of D is the only one of the parameters of a recurrence that is reported.
#[test]
fn recurrences_have_finite_numbers() {
    let measurement = run(&recurrences(), &many(1));
    assert_eq!(measurement.overflow, None);
    for row in &measurement.table.sites {
        for quantity in &Quantity::ALL[..9] {
            let cell = row.get(*quantity).unwrap_or_else(|| panic!("{}: no {}", row.site, quantity.name()));
            assert!(cell.value.is_finite() && cell.std_error.is_finite(), "{}: {cell:?}", row.site);
        }
    }
    let tensors: Vec<&str> = measurement.table.weights.iter().map(|row| row.tensor.as_str()).collect();
    assert_eq!(tensors[3..6], ["space.step", "space.skip", "map"]);
    assert_eq!(tensors.len(), 4 + 1 + 1 + 5, "{tensors:?}");
}

#[test]
fn every_site_and_every_tensor_has_finite_numbers() {
    let settings = Settings { all_sites: true, weights: true, ..Settings::default() };
    let measurement = run(&everything(), &settings);
    assert_eq!((measurement.replicates, &measurement.overflow), (16, &None));
    for row in &measurement.table.sites {
        // Attention weights have no numbers for single positions.
        let told = if row.site.ends_with("softmax") { 5 } else { 9 };
        for quantity in &Quantity::ALL[..told] {
            let cell = row.get(*quantity).unwrap_or_else(|| panic!("{}: no {}", row.site, quantity.name()));
            assert!(cell.value.is_finite() && cell.std_error.is_finite(), "{}: {cell:?}", row.site);
        }
    }
    let tensors = measurement.table.weights.iter().map(|row| row.tensor.as_str());
    let (gains, named): (Vec<&str>, Vec<&str>) = tensors.partition(|name| name.rsplit('.').next() == Some("gain"));
    assert_eq!(named[..6], ["tokens", "positions", "segments", "0.query", "0.key", "0.value"]);
    assert_eq!((named.len(), gains.len()), (3 + 2 * 7, 5), "{gains:?}");
    let layers: Vec<i64> = measurement.table.stream_sites().map(|row| row.layer).collect();
    assert_eq!(layers, [-1, 0, 1, 2]);
}

#[test]
fn stream_sites_are_the_same_with_and_without_the_others() {
    let all = run(&everything(), &Settings { all_sites: true, ..Settings::default() });
    let few = run(&everything(), &Settings::default());
    assert_eq!(all.table.stream_sites().cloned().collect::<Vec<_>>(), few.table.sites);
}

/// There is one row per attention, just before the row of the attention itself; its mean is 1/L.
#[test]
fn softmax_has_a_row_before_its_attention() {
    let measurement = run(&everything(), &Settings { all_sites: true, ..Settings::default() });
    let sites: Vec<&str> = measurement.table.sites.iter().map(|row| row.site.as_str()).collect();
    let softmax = "blocks.1.attention_residual.softmax";
    let place = sites.iter().position(|&site| site == softmax).expect("a row");
    assert_eq!(sites[place + 1], "blocks.1.attention_residual.attention");
    let mean = cell(&measurement, softmax, Quantity::Mean).value.value();
    assert!((mean - 1.0 / 7.0).abs() < 1e-6, "{mean}");
}

#[test]
fn gaussian_source_and_gradient_are_as_asked_for() {
    let body = vec![activation("identity", Activation::Identity)];
    let measurement = run(&stack(5, gaussian(8, 2.5, 0.3), body, 0.6), &many(2));
    let at = |quantity| cell(&measurement, "identity", quantity);
    assert_z("mean", at(Quantity::Mean), 0.0);
    assert_z("variance", at(Quantity::Variance), 2.5);
    assert_z("correlation", at(Quantity::TokenCorrelation), 0.3);
    assert_z("gradient variance", at(Quantity::GradVariance), 1.0);
    assert_z("gradient correlation", at(Quantity::GradTokenCorrelation), 0.6);
}

/// E x² through y = W x + b is exactly `fan_in` · std² · E x² + E b², for weights of any width and
/// distribution; backward with `fan_out`; E dW² = Σ_ab K_ab Γ_ab and E db² = Σ_ab Γ_ab over the
/// tokens of a sequence.
#[test]
fn linear_stack_is_exact() {
    let (seq_len, variance, correlation, grad_correlation) = (3, 1.5, 0.4, 0.25);
    let bias = Some(normal("b.bias", 0.7));
    let last = Linear { fan_in: 9, fan_out: 4, weight: normal("b", 0.3), bias, standardised: None };
    let body = vec![linear("a", 6, 9, 0.5), Node::apply("b", Component::Linear(last))];
    let measurement = run(&stack(seq_len, gaussian(6, variance, correlation), body, grad_correlation), &many(2));
    let first = 6.0 * 0.25 * variance;
    let second = 9.0 * 0.09 * first;
    assert_z("a", cell(&measurement, "a", Quantity::Variance), first);
    assert_z("b", cell(&measurement, "b", Quantity::Variance), second + 0.49);
    let shared = (correlation * second + 0.49) / (second + 0.49);
    assert_z("b, correlation", cell(&measurement, "b", Quantity::TokenCorrelation), shared);
    assert_z("a, gradient", cell(&measurement, "a", Quantity::GradVariance), 4.0 * 0.09);
    assert_z("a, gradient correlation", cell(&measurement, "a", Quantity::GradTokenCorrelation), grad_correlation);
    let tokens = seq_len as f64;
    let pairs = |correlation: f64| tokens + tokens * (tokens - 1.0) * correlation;
    let weights = [
        ("a", variance * 4.0 * 0.09 * pairs(correlation * grad_correlation)),
        ("b", first * pairs(correlation * grad_correlation)),
        ("b.bias", pairs(grad_correlation)),
    ];
    assert_eq!(measurement.table.weights.len(), weights.len());
    for (row, (tensor, expected)) in measurement.table.weights.iter().zip(weights) {
        assert_eq!(row.tensor, tensor);
        assert_z(tensor, &row.grad_second_moment, expected);
    }
}

/// Embeddings of ids with repeat probability Σp² have correlation Σp²; each of the V·d entries of
/// the table gets E g² · L/V from a gradient without correlation.
#[test]
fn embedding_is_exact() {
    let law = PowerLaw { vocab_size: 20, exponent: 1.0 };
    let ids = Ids::PowerLaw(law);
    let table = Tensor { name: "tokens".to_owned(), init: Init::Uniform { bound: 0.9 } };
    let source = Source::Embedding(Embedding::new(16, ids, vec![EmbeddingTerm::Token { table: table.clone() }]));
    let body = vec![activation("embeddings", Activation::Identity)];
    let measurement = run(&stack(6, source, body, 0.0), &many(2));
    assert_z("variance", cell(&measurement, "embeddings", Quantity::Variance), table.init.variance());
    let correlation = cell(&measurement, "embeddings", Quantity::TokenCorrelation);
    assert_z("correlation", correlation, law.repeat_probability(2));
    assert_z("table", &measurement.table.weights[0].grad_second_moment, 6.0 / 20.0);
}

/// A dropout mask doubles the second moment at a rate of one half, forward and backward, and so does stochastic depth.
#[test]
fn dropout_and_stochastic_depth_are_exact() {
    let branch = Branch { drop_rate: 0.5, ..Branch::constant(3.0, Vec::new()) };
    let body = vec![
        activation("input", Activation::Identity),
        Node::apply("dropout", Component::Dropout(Dropout { rate: 0.5 })),
        Node::new("sum", Op::Sum(Sum { branches: vec![branch] })),
    ];
    let measurement = run(&stack(4, gaussian(8, 1.0, 0.5), body, 0.0), &many(4));
    assert_z("dropout", cell(&measurement, "dropout", Quantity::Variance), 2.0);
    assert_z("dropout, correlation", cell(&measurement, "dropout", Quantity::TokenCorrelation), 0.25);
    assert_z("sum", cell(&measurement, "sum", Quantity::Variance), 2.0 * 18.0);
    assert_z("gradient", cell(&measurement, "input", Quantity::GradVariance), 2.0 * 18.0);
}

/// Zero queries and keys make every weight 1/L: the output is the average value. The gradient at a weight is dy_a·v_b,
/// in which only v is common to all queries.
#[test]
fn uniform_attention_is_exact() {
    let (tokens, d_head, value_variance, correlation) = (5, 3, 6.0 * 0.25 * 1.5, 0.4);
    let zero = |name: &str, fan_out| {
        let weight = Tensor { name: name.to_owned(), init: Init::Zero };
        vec![Node::apply(
            name,
            Component::Linear(Linear { fan_in: 6, fan_out, weight, bias: None, standardised: None }),
        )]
    };
    let attention = Attention {
        dropout_rate: 0.25,
        scale: 1.0,
        ..Attention::plain(4, 2, d_head, [zero("query", 12), zero("key", 6), vec![linear("value", 6, 6, 0.5)]])
    };
    let body = vec![Node::new("attention", Op::Attention(attention))];
    let measurement = run(&stack(tokens, gaussian(6, 1.5, correlation), body, 0.0), &many(4));
    let length = tokens as f64;
    let survival = 0.75;
    let average = value_variance * (1.0 / survival + (length - 1.0) * correlation) / length;
    assert_z("attention", cell(&measurement, "attention", Quantity::Variance), average);
    let softmax = measurement.table.site("softmax").expect("a row");
    assert!(softmax.get(Quantity::TokenCorrelation).is_none(), "constants have no correlation");
    let gradient = cell(&measurement, "softmax", Quantity::GradVariance);
    assert_z("softmax, gradient", gradient, d_head as f64 * value_variance / survival);
    assert_z("softmax, correlation", cell(&measurement, "softmax", Quantity::GradTokenCorrelation), 0.0);
    // Two query heads share a value head: twice Σ_a A_ab² dy_a².
    let value = cell(&measurement, "attention.value", Quantity::GradVariance);
    assert_z("value, gradient", value, 2.0 / (length * survival));
}

/// Rows of a stream that the gradient does not reach have no gradient.
#[test]
fn the_gradient_belongs_to_its_stream() {
    let mut stack = stack(3, gaussian(4, 1.0, 0.0), vec![linear("linear", 4, 4, 0.5)], 0.0);
    let last = vec![linear("other", 2, 2, 0.5), activation("relu", Activation::Relu)];
    stack.streams.push(Stream {
        name: "second".to_owned(),
        seq_len: stack.streams[0].seq_len,
        source: gaussian(2, 1.0, 0.0),
        body: last,
    });
    for (seeded, sites) in [(0, vec!["main.linear"]), (1, vec!["second.other", "second.relu"])] {
        stack.gradient.stream = seeded;
        let measurement = run(&stack, &many(1));
        let rows = measurement.table.sites.iter();
        let reached = rows.filter(|row| row.get(Quantity::GradVariance).is_some()).map(|row| row.site.as_str());
        assert_eq!(reached.collect::<Vec<_>>(), sites);
        assert_z("end", cell(&measurement, sites[sites.len() - 1], Quantity::GradVariance), 1.0);
        assert_eq!(measurement.table.weights.len(), 1);
    }
}

/// Linear maps, each of which multiplies the signal by a factor of about `gain`.
fn exploding(gain: f64) -> Stack {
    let block = |index: usize| {
        Node::new(format!("blocks.{index}"), Op::Chain(vec![linear(&format!("linear.{index}"), 16, 16, gain / 4.0)]))
    };
    stack(1, gaussian(16, 1.0, 0.0), (0..40).map(block).collect(), 0.0)
}

#[test]
fn leaving_the_range_of_f32_is_reported_and_leaves_blanks() {
    for gain in [100.0, 0.01] {
        let settings = Settings { weights: true, ..Settings::default() };
        let measurement = run(&exploding(gain), &settings);
        // 10³⁸ and 10⁻³⁶ are 19 and 18 factors of 100 away, up to the fluctuations of 16 features.
        let site = measurement.overflow.as_deref().expect("a site");
        assert!((16..=20).any(|index| site == format!("blocks.{index}.linear.{index}")), "{site}");
        let rows = &measurement.table.sites;
        assert_eq!(rows.len(), 40);
        assert!(rows[10].get(Quantity::Variance).is_some() && rows[10].get(Quantity::GradVariance).is_none());
        assert!(rows[30].cells.iter().all(Option::is_none));
        assert_eq!(measurement.table.weights, []);
        let mut cells = rows.iter().flat_map(|row| row.cells.iter().flatten());
        assert!(cells.all(|cell| cell.value.is_finite() && cell.std_error.is_finite()));
    }
}

/// Biases keep the signal moderate while weights of 1e-10 shrink the gradient.
#[test]
fn gradients_that_leave_the_range_leave_the_signal_alone() {
    let layer = |layer: usize| {
        let name = format!("linear.{layer}");
        let bias = Some(normal(&format!("{name}.bias"), 1.0));
        let weight = normal(&format!("{name}.weight"), 1e-10);
        Node::apply(name, Component::Linear(Linear { fan_in: 16, fan_out: 16, weight, bias, standardised: None }))
    };
    let settings = Settings { weights: true, ..Settings::default() };
    let measurement = run(&stack(2, gaussian(16, 1.0, 0.0), (0..12).map(layer).collect(), 0.0), &settings);
    assert_eq!(measurement.overflow.as_deref(), Some("linear.7"));
    for (layer, row) in measurement.table.sites.iter().enumerate() {
        assert!(row.get(Quantity::Variance).is_some());
        assert_eq!(row.get(Quantity::GradVariance).is_some(), layer > 7, "{}", row.site);
    }
    assert_eq!(measurement.table.weights[0].tensor, "linear.8.weight");
}

#[test]
fn cancelling_keeps_the_replicates_that_are_done() {
    let settings = Settings { replicates: 50, threads: Some(1), ..Settings::default() };
    let cancelled = AtomicBool::new(false);
    let calls = AtomicUsize::new(0);
    let progress = |Progress { done, goal }| {
        assert_eq!((calls.fetch_add(1, Ordering::Relaxed) + 1, 50), (done, goal));
        cancelled.store(done == 4, Ordering::Relaxed);
    };
    let measurement = measure(&everything(), &settings, &progress, &cancelled).expect("four are done");
    assert_eq!((measurement.replicates, measurement.goal), (4, 50));
    let four = run(&everything(), &Settings { replicates: 4, ..settings.clone() });
    assert_eq!(measurement, Measurement { goal: 50, ..four });

    let none = measure(&everything(), &settings, &|_| {}, &AtomicBool::new(true));
    assert!(matches!(none, Err(MeasureError::Cancelled)));
}

#[test]
fn impossible_settings_are_refused() {
    let refused = |stack: &Stack, settings: Settings| {
        measure(stack, &settings, &|_| {}, &AtomicBool::new(false)).expect_err("refused").to_string()
    };
    let none = Settings { replicates: 0, ..Settings::default() };
    assert_eq!(refused(&everything(), none), "replicates must be at least 1, got 0");
    let idle = Settings { threads: Some(0), ..Settings::default() };
    assert_eq!(refused(&everything(), idle), "threads must be at least 1, got 0");

    let huge = stack(1 << 20, gaussian(1 << 20, 1.0, 0.0), vec![activation("identity", Activation::Identity)], 0.0);
    let error = refused(&huge, Settings { threads: Some(1), ..Settings::default() });
    assert!(error.starts_with("about 16384.00 GiB of memory needed, 4.00 GiB allowed"), "{error}");
    let wide = stack(4, gaussian(8, 1.0, 0.0), vec![linear("linear", 9, 9, 1.0)], 0.0);
    assert_eq!(refused(&wide, Settings::default()), "linear: expected width 9, got 8");
}

/// Blocks that are computed again, and replicates that wait for others, do not change the results.
#[test]
fn memory_changes_nothing_but_time() {
    for weights in [false, true] {
        let settings = Settings { replicates: 3, batch: 2, threads: Some(2), weights, ..Settings::default() };
        let expected = run(&everything(), &settings);
        let within = |memory: f64| {
            let settings = Settings { memory, ..settings.clone() };
            measure(&everything(), &settings, &|_| {}, &AtomicBool::new(false)).ok()
        };
        let allowed = (0..200).map(|step| 1e6 * 0.95f64.powi(step));
        let measured: Vec<_> = allowed.map_while(within).collect();
        assert!((20..200).contains(&measured.len()), "{}", measured.len());
        assert!(measured.iter().all(|measurement| *measurement == expected));
    }
}

/// The network is wide enough for products to be shared by threads, and for several tiles of weights.
#[test]
fn threads_inside_a_replicate_change_nothing() {
    let body =
        vec![linear("up", 64, 20_000, 0.1), activation("gelu", Activation::Gelu), linear("down", 20_000, 64, 0.01)];
    let stack = stack(100, gaussian(64, 1.0, 0.3), body, 0.1);
    let measured = [1, 2, 3].map(|threads| {
        let settings = Settings {
            replicates: 1,
            batch: 2,
            threads: Some(threads),
            all_sites: true,
            weights: true,
            ..Settings::default()
        };
        run(&stack, &settings)
    });
    assert_eq!(measured[0], measured[1]);
    assert_eq!(measured[0], measured[2]);
}

#[test]
fn one_replicate_has_no_standard_error() {
    let measurement = run(&everything(), &Settings { replicates: 1, ..Settings::default() });
    assert!(cell(&measurement, "blocks.0", Quantity::Variance).std_error.is_zero());
}

/// ReLU of correlated Gaussian tokens with a mean: E max(0, x)² and E g²/2 are known.
fn relu_of_a_mean() -> Stack {
    let source = Source::Gaussian(Gaussian { width: 32, mean: 0.5, variance: 1.0, correlation: 0.4 });
    let body = vec![Node::new("input", Op::Chain(Vec::new())), activation("relu", Activation::Relu)];
    stack(8, source, body, 0.3)
}

/// Control variates make moments of the input exact, and bring moments that depend on the input closer to their
/// expectations; α = 1e-4 per check.
#[test]
fn controls_take_off_what_the_input_deviates() {
    let settings = many(1);
    let plain = run(&relu_of_a_mean(), &settings);
    let controlled = run(&relu_of_a_mean(), &Settings { controls: true, ..settings });
    let input = cell(&controlled, "input", Quantity::Variance);
    assert!((input.value.value() - 1.0).abs() < 1e-9 && input.std_error.value() < 1e-9, "{input:?}");
    let seed = cell(&controlled, "relu", Quantity::GradVariance);
    assert!((seed.value.value() - 1.0).abs() < 1e-9, "{seed:?}");
    // E max(0, x) = Φ(½)/2 + φ(½), and half of the gradient passes: E g² Φ(½).
    let (below, density) = (0.691_462_461_274_013_1, 0.352_065_326_764_299_5);
    for measurement in [&plain, &controlled] {
        assert_z("mean", cell(measurement, "relu", Quantity::Mean), 0.5 * below + density);
        assert_z("gradient", cell(measurement, "input", Quantity::GradVariance), below);
    }
    let error = |measurement, quantity| cell(measurement, "relu", quantity).std_error.value();
    for quantity in [Quantity::Mean, Quantity::Variance] {
        assert!(error(&controlled, quantity) < 0.5 * error(&plain, quantity), "{}", quantity.name());
    }
}

/// Sampling goes on until the errors are below the target; the result is that of a run with as many replicates.
#[test]
fn a_target_is_reached_and_no_more() {
    let target = |std_error, replicates| Some(Target { std_error, sites: vec!["relu".to_owned()], replicates });
    let settings = Settings { replicates: 16, target: target(0.01, 10_000), ..Settings::default() };
    let reached = run(&relu_of_a_mean(), &settings);
    let error = cell(&reached, "relu", Quantity::Variance);
    assert!(reached.replicates > 16 && reached.replicates < 10_000, "{}", reached.replicates);
    assert!(error.std_error.ratio(&error.value) <= 0.01, "{error:?}");
    let fixed = Settings { replicates: reached.replicates, ..Settings::default() };
    assert_eq!(reached, run(&relu_of_a_mean(), &fixed));
    let limited = Settings { target: target(1e-6, 20), ..settings };
    assert_eq!(run(&relu_of_a_mean(), &limited).replicates, 20);
}

/// For a softmax of constant scores every probability is 1/n, without variance; the gradient variance is (1 − 1/n)/n².
#[test]
fn a_softmax_by_itself() {
    let measurement = measure_softmax(4096, 0.0, 0.0, 128, 1, None, &AtomicBool::new(false)).expect("not cancelled");
    let n = 4096.0;
    assert!((cell(&measurement, "softmax", Quantity::Mean).value.value() * n - 1.0).abs() < 1e-6);
    assert!(cell(&measurement, "softmax", Quantity::Variance).value.value() < 1e-12 / n);
    assert_z("gradient", cell(&measurement, "softmax", Quantity::GradVariance), (1.0 - 1.0 / n) / (n * n));
}

/// Both samplers have one distribution if all weights are Gaussian and used once. The test compares every moment of
/// every site and every weight gradient of a network with all components that tokens go through, with fewer and with
/// more tokens than features. α = 1e-3 per network over all of its cells (Bonferroni; two times 600 replicates).
#[test]
fn both_samplers_agree() {
    for seq_len in [7, 40] {
        let mut stack = everything();
        stack.streams[0].seq_len = seq_len;
        let settings = Settings { replicates: 600, all_sites: true, weights: true, ..Settings::default() };
        let direct = run(&stack, &settings).table;
        let conditional = run(&stack, &Settings { sampler: Sampling::Conditional, seed: 1, ..settings }).table;
        let of_sites = direct.sites.iter().zip(&conditional.sites).flat_map(|(one, other)| {
            Quantity::ALL.into_iter().filter_map(|quantity| {
                let name = format!("{} {}", one.site, quantity.name());
                Some((name, *one.get(quantity)?, *other.get(quantity)?))
            })
        });
        let of_weights = direct.weights.iter().zip(&conditional.weights).map(|(one, other)| {
            assert_eq!(one.tensor, other.tensor);
            (one.tensor.clone(), one.grad_second_moment, other.grad_second_moment)
        });
        let cells: Vec<(String, Cell, Cell)> = of_sites.chain(of_weights).collect();
        assert!((300..1000).contains(&cells.len()), "{}", cells.len());
        // Two-sided, 1e-6 each.
        let bound = 4.89;
        for (name, one, other) in cells {
            let error = one.std_error.value().hypot(other.std_error.value());
            let difference = one.value.value() - other.value.value();
            let rounding = 1e-6 * one.value.value().abs();
            assert!(difference.abs() < bound * error + rounding, "{name}: {one:?}, {other:?}, {seq_len} tokens");
        }
    }
}

/// The conditional sampler gives exactly equal measurements with any number of threads and any memory limit that
/// suffices. It refuses networks that it cannot sample.
#[test]
fn the_conditional_sampler_is_reproducible_and_refuses_what_it_cannot_do() {
    let settings = Settings { replicates: 3, batch: 2, sampler: Sampling::Conditional, ..Settings::default() };
    let one = run(&everything(), &Settings { threads: Some(1), ..settings.clone() });
    assert_eq!(one, run(&everything(), &Settings { threads: Some(3), ..settings.clone() }));
    let little = (0..200).map(|step| 1e6 * 0.95f64.powi(step)).map_while(|memory| {
        let settings = Settings { memory, ..settings.clone() };
        measure(&everything(), &settings, &|_| {}, &AtomicBool::new(false)).ok()
    });
    assert!(little.last().is_some_and(|measurement| measurement == one));

    let refused = |body: Vec<Node>| {
        let stack = stack(4, gaussian(8, 1.0, 0.0), body, 0.0);
        measure(&stack, &settings, &|_| {}, &AtomicBool::new(false)).expect_err("refused").to_string()
    };
    let uniform = Tensor { name: "w".to_owned(), init: Init::Uniform { bound: 0.1 } };
    let map = Linear { fan_in: 8, fan_out: 8, weight: uniform, bias: None, standardised: None };
    let error = refused(vec![Node::apply("map", Component::Linear(map))]);
    assert!(error.starts_with("map: its weights are not Gaussian; "), "{error}");
    let map = Linear { fan_in: 8, fan_out: 8, weight: normal("w", 0.1), bias: None, standardised: Some(1.0) };
    let error = refused(vec![Node::apply("map", Component::Linear(map))]);
    assert!(error.starts_with("map: its weights are standardised"), "{error}");
    let again = |name: &str| {
        let map = Linear { fan_in: 8, fan_out: 8, weight: normal("w", 0.1), bias: None, standardised: None };
        Node::apply(name, Component::Linear(map))
    };
    let error = refused(vec![again("first"), again("second")]);
    assert!(error.starts_with("first: its weights are used more than once; "), "{error}");
}
