//! The backward pass against finite differences of the forward pass, in f64.
//!
//! The loss is L = Σ g·y, with g the sampled gradient at the last site y. Central differences of
//! fourth order, so that the step can be large enough for rounding not to matter.

use std::sync::atomic::AtomicBool;

use sigprop_stack::{
    Activation, Attention, Branch, Component, Dropout, Embedding, EmbeddingTerm, Fan, Gaussian, GradientSeed, Ids,
    Init, Interpreter, Linear, Node, Norm, NormKind, Op, Product, Site, Source, Stack, Stream, Sum, Tensor, check, run,
};

use crate::{
    Settings,
    array::Array,
    plan::Plan,
    sample::{Sampler, Stop},
};

/// Largest error of a derivative, relative to the largest one.
const TOLERANCE: f64 = 1e-7;
const STEP: f64 = 1e-3;
const WIDTH: usize = 6;

/// A sampler whose input is changed in one entry.
struct Probe<'a> {
    sampler: Sampler<'a, f64>,
    /// Entry and change.
    nudge: (usize, f64),
    keeps: bool,
    output: Option<Array<f64>>,
    seed: Option<Array<f64>>,
    input_gradient: Option<Array<f64>>,
}

impl<'a> Probe<'a> {
    fn run(stack: &'a Stack, plan: &'a Plan, settings: &'a Settings, nudge: (usize, f64), keeps: bool) -> Self {
        static RUNNING: AtomicBool = AtomicBool::new(false);
        let sampler = Sampler::new(plan, settings, 0, &RUNNING);
        let mut probe = Self { sampler, nudge, keeps, output: None, seed: None, input_gradient: None };
        run(stack, &mut probe).expect("a network of moderate size stays in range");
        probe
    }

    fn loss(&self) -> f64 {
        let (seed, output) = (self.seed.as_ref().expect("seeded"), self.output.as_ref().expect("seeded"));
        seed.entries().iter().zip(output.entries()).map(|(g, y)| g * y).sum()
    }
}

type Sampled<'a> = Sampler<'a, f64>;
type Signal<'a> = <Sampled<'a> as Interpreter>::Signal;
type Kept<'a> = <Sampled<'a> as Interpreter>::Kept;

impl<'a> Interpreter for Probe<'a> {
    type Signal = Signal<'a>;
    type Gradient = Array<f64>;
    type Kept = Kept<'a>;
    type Error = Stop;

    fn source(&mut self, at: &Site, source: &Source) -> Result<Signal<'a>, Stop> {
        let mut input = (*self.sampler.source(at, source)?).clone();
        input.entries_mut()[self.nudge.0] += self.nudge.1;
        Ok(input.into())
    }

    fn source_backward(&mut self, at: &Site, source: &Source, gradient: Array<f64>) -> Result<(), Stop> {
        self.input_gradient = Some(gradient.clone());
        self.sampler.source_backward(at, source, gradient)
    }

    fn seed(&mut self, at: &Site, seed: &GradientSeed, output: &Signal<'a>) -> Result<Array<f64>, Stop> {
        let gradient = self.sampler.seed(at, seed, output)?;
        self.output = Some((**output).clone());
        self.seed = Some(gradient.clone());
        Ok(gradient)
    }

    fn apply(&mut self, at: &Site, component: &Component, input: Signal<'a>) -> Result<(Signal<'a>, Kept<'a>), Stop> {
        self.sampler.apply(at, component, input)
    }

    fn apply_backward(
        &mut self,
        at: &Site,
        component: &Component,
        kept: Kept<'a>,
        gradient: Array<f64>,
    ) -> Result<Array<f64>, Stop> {
        self.sampler.apply_backward(at, component, kept, gradient)
    }

    fn fork(&mut self, at: &Site, input: &Signal<'a>) -> Signal<'a> {
        self.sampler.fork(at, input)
    }

    fn merge(
        &mut self,
        at: &Site,
        fan: Fan,
        input: Signal<'a>,
        parts: Vec<Signal<'a>>,
    ) -> Result<(Signal<'a>, Kept<'a>), Stop> {
        self.sampler.merge(at, fan, input, parts)
    }

    fn split(
        &mut self,
        at: &Site,
        fan: Fan,
        kept: &mut Kept<'a>,
        gradient: Array<f64>,
    ) -> Result<Vec<Array<f64>>, Stop> {
        self.sampler.split(at, fan, kept, gradient)
    }

    fn join(&mut self, at: &Site, fan: Fan, kept: Kept<'a>, parts: Vec<Array<f64>>) -> Result<Array<f64>, Stop> {
        self.sampler.join(at, fan, kept, parts)
    }

    fn observe(&mut self, at: &Site, signal: &Signal<'a>) {
        self.sampler.observe(at, signal);
    }

    fn observe_gradient(&mut self, at: &Site, gradient: &Array<f64>) {
        self.sampler.observe_gradient(at, gradient);
    }

    fn keeps(&self, _: &Site) -> bool {
        self.keeps
    }
}

/// dL/dt at t = 0 by central differences of fourth order.
fn derivative(loss: impl Fn(f64) -> f64) -> f64 {
    let slope = |step: f64| (loss(step) - loss(-step)) / (2.0 * step);
    (4.0 * slope(STEP) - slope(2.0 * STEP)) / 3.0
}

fn settings() -> Settings {
    Settings { batch: 2, seed: 5, all_sites: true, weights: true, ..Settings::default() }
}

fn stack_of(source: Source, seq_len: usize, body: Vec<Node>) -> Stack {
    Stack {
        name: "test".to_owned(),
        seq_len,
        streams: vec![Stream { name: "main".to_owned(), source, body }],
        gradient: GradientSeed { stream: 0, correlation: 0.3 },
    }
}

fn gaussian(width: usize) -> Source {
    Source::Gaussian(Gaussian { width, variance: 1.5, correlation: 0.4 })
}

fn assert_gradient(what: &str, body: Vec<Node>) {
    let stack = stack_of(gaussian(WIDTH), 4, body);
    check(&stack).expect("a stack that fits");
    let settings = settings();
    let plan = Plan::new(&stack, &settings);
    let probe = Probe::run(&stack, &plan, &settings, (0, 0.0), true);
    let gradient = probe.input_gradient.as_ref().expect("a backward pass");
    let largest = gradient.entries().iter().fold(0.0f64, |largest, g| largest.max(g.abs()));
    assert!(largest > 0.0, "{what}: no gradient");
    for (entry, &got) in gradient.entries().iter().enumerate() {
        let expected = derivative(|change| Probe::run(&stack, &plan, &settings, (entry, change), true).loss());
        assert!((got - expected).abs() < TOLERANCE * largest, "{what}, entry {entry}: expected {expected}, got {got}");
    }
    assert_recomputed(what, &stack, &plan, &settings, probe);
}

/// Running chains again instead of keeping them changes no bit of any result.
fn assert_recomputed(what: &str, stack: &Stack, plan: &Plan, settings: &Settings, kept: Probe) {
    let again = Probe::run(stack, plan, settings, (0, 0.0), false);
    assert_eq!(kept.input_gradient, again.input_gradient, "{what}");
    let (kept, again) = (kept.sampler.finish(), again.sampler.finish());
    assert_eq!(kept.signals.len(), plan.rows.len(), "{what}");
    assert_eq!(kept.gradients.len(), plan.rows.len(), "{what}");
    assert_eq!(kept.signals, again.signals, "{what}");
    assert_eq!(kept.gradients, again.gradients, "{what}");
    assert_eq!(kept.weights, again.weights, "{what}");
}

fn tensor(name: &str, std: f64) -> Tensor {
    Tensor { name: name.to_owned(), init: Init::Normal { std } }
}

fn linear(name: &str, fan_in: usize, fan_out: usize) -> Node {
    let bias = Some(tensor(&format!("{name}.bias"), 0.5));
    let weight = tensor(&format!("{name}.weight"), (fan_in as f64).powf(-0.5));
    Node::apply(name, Component::Linear(Linear { fan_in, fan_out, weight, bias }))
}

fn attention(n_kv_heads: usize, dropout_rate: f64) -> Node {
    let (n_heads, d_head) = (4, 3);
    Node::new(
        "attention",
        Op::Attention(Attention {
            n_heads,
            n_kv_heads,
            d_head,
            scale: 0.8,
            dropout_rate,
            query: vec![linear("query", WIDTH, n_heads * d_head)],
            key: vec![linear("key", WIDTH, n_kv_heads * d_head)],
            value: vec![linear("value", WIDTH, n_kv_heads * d_head)],
        }),
    )
}

#[test]
fn every_smooth_activation() {
    for activation in [
        Activation::Identity,
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::Silu,
        Activation::Tanh,
        Activation::Sigmoid,
        Activation::Erf,
        Activation::Softplus,
    ] {
        assert_gradient(&format!("{activation:?}"), vec![Node::apply("activation", Component::Activation(activation))]);
    }
}

/// No input of these lies within two steps of the kink at zero.
#[test]
fn every_activation_with_a_kink() {
    for activation in
        [Activation::Relu, Activation::LeakyRelu { slope: 0.1 }, Activation::Relu2, Activation::Elu, Activation::Selu]
    {
        assert_gradient(&format!("{activation:?}"), vec![Node::apply("activation", Component::Activation(activation))]);
    }
}

#[test]
fn both_norms() {
    for kind in [NormKind::LayerNorm, NormKind::RmsNorm] {
        let norm = Norm { kind, eps: 0.1, gain: 1.3 };
        assert_gradient(&format!("{kind:?}"), vec![Node::apply("norm", Component::Norm(norm))]);
    }
}

#[test]
fn linear_with_bias_and_dropout() {
    let dropout = Node::apply("dropout", Component::Dropout(Dropout { rate: 0.4 }));
    assert_gradient("linear, dropout", vec![linear("linear", WIDTH, 5), dropout]);
}

#[test]
fn attention_with_groups_and_dropout() {
    for (n_kv_heads, dropout_rate) in [(4, 0.0), (2, 0.0), (1, 0.0), (2, 0.3)] {
        let what = format!("{n_kv_heads} key and value heads, dropout {dropout_rate}");
        assert_gradient(&what, vec![attention(n_kv_heads, dropout_rate)]);
    }
}

#[test]
fn product_of_three() {
    let factors = ["gate", "up", "third"].map(|name| vec![linear(name, WIDTH, 4)]);
    assert_gradient("product", vec![Node::new("product", Op::Product(Product { factors: factors.into() }))]);
}

#[test]
fn sum_with_dropped_branches_in_a_chain() {
    let branch = |scale, drop_rate, body| Branch { scale, drop_rate, body };
    let sum = Sum {
        branches: vec![
            branch(0.9, 0.0, Vec::new()),
            branch(1.7, 0.5, vec![linear("first", WIDTH, WIDTH)]),
            branch(-0.4, 0.5, vec![attention(2, 0.2), linear("second", 12, WIDTH)]),
        ],
    };
    let gelu = Node::apply("gelu", Component::Activation(Activation::Gelu));
    let block = |name: &str| Node::new(name, Op::Chain(vec![Node::new("sum", Op::Sum(sum.clone())), gelu.clone()]));
    assert_gradient("sum", vec![block("blocks.0"), block("blocks.1")]);
}

/// Tensors of one entry: their gradient is dL/dw, found by scaling w. The first is used twice.
#[test]
fn weight_gradients() {
    let body = |factor: f64| {
        let one = |name: &str, weight: &str, factor: f64| {
            let weight = tensor(weight, 0.7 * factor);
            Node::apply(name, Component::Linear(Linear { fan_in: 1, fan_out: 1, weight, bias: None }))
        };
        let tanh = |name: &str| Node::apply(name, Component::Activation(Activation::Tanh));
        vec![one("a", "shared", factor), tanh("b"), one("c", "own", 1.0), tanh("d"), one("e", "shared", factor)]
    };
    assert_weight_gradient("shared", |factor| stack_of(gaussian(1), 3, body(factor)));
}

/// One id, one feature, also used as the weight of a linear map: all tokens add to one entry.
#[test]
fn tied_table_gradient() {
    assert_weight_gradient("table", |factor| {
        let table = || tensor("table", 0.7 * factor);
        let terms = vec![EmbeddingTerm::Token { table: table() }, EmbeddingTerm::SinusoidalPosition { scale: 1.0 }];
        let source = Source::Embedding(Embedding { width: 1, ids: Ids { vocab_size: 1, exponent: 1.0 }, terms });
        let tanh = Node::apply("tanh", Component::Activation(Activation::Tanh));
        let head = Linear { fan_in: 1, fan_out: 1, weight: table(), bias: None };
        stack_of(source, 3, vec![tanh, Node::apply("head", Component::Linear(head))])
    });
}

/// `stack` of 1 + t has all weights of the tensor multiplied by it, so that dL/dt = w dL/dw.
fn assert_weight_gradient(name: &str, stack: impl Fn(f64) -> Stack) {
    let settings = Settings { batch: 1, ..settings() };
    let measured = stack(1.0);
    let plan = Plan::new(&measured, &settings);
    let replicate = Probe::run(&measured, &plan, &settings, (0, 0.0), true).sampler.finish();
    let got = replicate.weights[plan.tensor_index[name]].expect("a gradient").second_moment();

    let slope = derivative(|change| {
        let stack = stack(1.0 + change);
        Probe::run(&stack, &Plan::new(&stack, &settings), &settings, (0, 0.0), true).loss()
    });
    let mut weight = [0.0];
    crate::random::Random::new(settings.seed, 0).tensor(&tensor(name, 0.7), 1, &mut weight);
    let expected = (slope / weight[0]).powi(2);
    assert!((got - expected).abs() < TOLERANCE * expected, "{name}: expected {expected}, got {got}");
}
