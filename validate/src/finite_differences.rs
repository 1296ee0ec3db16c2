//! The backward pass against finite differences of the forward pass, in f64.
//!
//! The loss is L = Σ g·y, with g the sampled gradient at the last site y. Derivatives are central differences of fourth
//! order, so that the step can be large enough for rounding not to matter.

use std::sync::atomic::AtomicBool;

use sigprop_stack::{
    Activation, Attention, Branch, Component, Concat, ConcatPart, Convolution, Decay, Disentangled, Dropout, Embedding,
    EmbeddingTerm, Fan, Gaussian, GradientSeed, Ids, Image, Init, Interpreter, Linear, Mask, Mixture, Multiplied, Node,
    Norm, NormKind, Op, Pool, PoolKind, PositionBias, PowerLaw, Prepend, Product, Rates, Read, Recurrence, Rotary,
    Scale, Select, Site, Source, Stack, StepBias, Stepped, Stream, Sum, Tensor, Unary, Weighting, Write, check, run,
};

use crate::{
    Settings,
    array::Array,
    plan::Plan,
    random::{Purpose, Random},
    sample::{Sampler, Stop},
};

/// Largest allowed error of a derivative, relative to the largest derivative.
const TOLERANCE: f64 = 1e-7;
const STEP: f64 = 1e-3;
const WIDTH: usize = 6;
/// Name of the stream whose input is changed.
const FIRST: &str = "main";

/// A sampler whose input is changed in one entry.
struct Probe<'a> {
    sampler: Sampler<'a, f64>,
    /// Index of the changed entry, and the number added to it.
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
type Signal<'a> = <Sampled<'a> as Interpreter<'a>>::Signal;
type Kept<'a> = <Sampled<'a> as Interpreter<'a>>::Kept;

impl<'a> Interpreter<'_> for Probe<'a> {
    type Signal = Signal<'a>;
    type Gradient = Array<f64>;
    type Kept = Kept<'a>;
    type Error = Stop;

    fn source(&mut self, at: &Site, stream: &Stream) -> Result<Signal<'a>, Stop> {
        let mut input = (*self.sampler.source(at, stream)?).clone();
        if stream.name == FIRST {
            input.entries_mut()[self.nudge.0] += self.nudge.1;
        }
        Ok(input.into())
    }

    fn source_backward(&mut self, at: &Site, stream: &Stream, gradient: Array<f64>) -> Result<(), Stop> {
        if stream.name == FIRST {
            self.input_gradient = Some(gradient.clone());
        }
        self.sampler.source_backward(at, stream, gradient)
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

    fn fork(&mut self, at: &Site, fan: Fan, input: &Signal<'a>, part: usize) -> Signal<'a> {
        self.sampler.fork(at, fan, input, part)
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

    fn arrive(&mut self, sum: Option<Array<f64>>, more: Array<f64>) -> Result<Array<f64>, Stop> {
        self.sampler.arrive(sum, more)
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
    let stream = Stream { name: "main".to_owned(), seq_len, source, body };
    Stack::new("test", vec![stream], GradientSeed { stream: 0, correlation: 0.3 })
}

fn gaussian(width: usize) -> Source {
    Source::Gaussian(Gaussian { width, mean: 0.0, variance: 1.5, correlation: 0.4 })
}

fn assert_gradient(what: &str, body: Vec<Node>) {
    assert_stack_gradient(what, &stack_of(gaussian(WIDTH), 4, body));
}

fn assert_stack_gradient(what: &str, stack: &Stack) {
    check(stack).expect("a stack that fits");
    let settings = settings();
    let plan = Plan::new(stack, &settings, f64::INFINITY);
    let probe = Probe::run(stack, &plan, &settings, (0, 0.0), true);
    let gradient = probe.input_gradient.as_ref().expect("a backward pass");
    let largest = gradient.entries().iter().fold(0.0f64, |largest, g| largest.max(g.abs()));
    assert!(largest > 0.0, "{what}: no gradient");
    for (entry, &got) in gradient.entries().iter().enumerate() {
        let expected = derivative(|change| Probe::run(stack, &plan, &settings, (entry, change), true).loss());
        assert!((got - expected).abs() < TOLERANCE * largest, "{what}, entry {entry}: expected {expected}, got {got}");
    }
    assert_recomputed(what, stack, &plan, &settings, probe);
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
    Node::apply(name, Component::Linear(Linear { fan_in, fan_out, weight, bias, standardised: None }))
}

/// A linear map with a standardised weight.
fn standardised(name: &str, fan_in: usize, fan_out: usize, length: f64) -> Node {
    let mut node = linear(name, fan_in, fan_out);
    if let Op::Apply(Component::Linear(linear)) = &mut node.op {
        linear.standardised = Some(length);
    }
    node
}

fn attention(n_kv_heads: usize, dropout_rate: f64) -> Node {
    let (n_heads, d_head) = (4, 3);
    Node::new(
        "attention",
        Op::Attention(Attention {
            dropout_rate,
            scale: 0.8,
            ..Attention::plain(
                n_heads,
                n_kv_heads,
                d_head,
                [
                    vec![linear("query", WIDTH, n_heads * d_head)],
                    vec![linear("key", WIDTH, n_kv_heads * d_head)],
                    vec![linear("value", WIDTH, n_kv_heads * d_head)],
                ],
            )
        }),
    )
}

#[test]
fn every_smooth_activation() {
    for activation in [
        Activation::Identity,
        Activation::PlusOne,
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::Silu,
        Activation::QuickGelu,
        Activation::Mish,
        Activation::Tanh,
        Activation::Sigmoid,
        Activation::Erf,
        Activation::Softplus,
    ] {
        assert_gradient(&format!("{activation:?}"), vec![Node::apply("activation", Component::Activation(activation))]);
    }
}

/// No input of these lies within two steps of a kink.
#[test]
fn every_activation_with_a_kink() {
    for activation in [
        Activation::Relu,
        Activation::LeakyRelu { slope: 0.1 },
        Activation::Relu2,
        Activation::Relu6,
        Activation::HardSwish,
        Activation::Elu,
        Activation::Selu,
        Activation::Xielu,
    ] {
        assert_gradient(&format!("{activation:?}"), vec![Node::apply("activation", Component::Activation(activation))]);
    }
}

/// No input of these lies within two steps of a kink.
#[test]
fn formulas_as_activations() {
    let functions = Unary::ALL.iter().map(|(name, _)| match *name {
        "sqrt" | "log" => format!("{name}(x^2 + 1)"),
        "log1p" => "log1p(x^2)".to_owned(),
        name => format!("{name}(x)"),
    });
    let others = ["relu(x)^3", "sin(3*x)/(1 + x^2)", "-min(x, 0.3*x) - 2", "max(x, x^2)", "2^-x", "(1 + x^2)^sin(x)"];
    for text in functions.chain(others.map(str::to_owned)) {
        let formula = Activation::Expression(text.parse().expect("a formula"));
        assert_gradient(&text, vec![Node::apply("activation", Component::Activation(formula))]);
    }
}

#[test]
fn both_norms() {
    for kind in [NormKind::LayerNorm, NormKind::RmsNorm] {
        for groups in [1, 2] {
            let norm = Norm { kind, eps: 0.1, gain: 1.3, bias: Init::Zero, groups };
            let what = format!("{kind:?} of {groups} groups");
            assert_gradient(&what, vec![Node::apply("norm", Component::Norm(norm))]);
        }
    }
}

/// Only training is tested: in evaluation the statistics are constants, unlike in differences of the forward pass.
#[test]
fn batch_norm_in_training() {
    let kind = NormKind::BatchNorm { training: true };
    let norm = Norm { kind, eps: 0.1, gain: 1.3, bias: Init::Zero, groups: 1 };
    assert_gradient("batch norm", vec![Node::apply("norm", Component::Norm(norm))]);
}

#[test]
fn functions_in_place_of_norms() {
    for kind in [NormKind::Dyt { alpha: 0.7 }, NormKind::Derf { alpha: 1.2 }] {
        let norm = Norm { kind, eps: 0.0, gain: 1.3, bias: Init::Zero, groups: 1 };
        assert_gradient(&format!("{kind:?}"), vec![Node::apply("norm", Component::Norm(norm))]);
    }
}

#[test]
fn linear_with_bias_and_dropout() {
    let dropout = Node::apply("dropout", Component::Dropout(Dropout { rate: 0.4 }));
    assert_gradient("linear, dropout", vec![linear("linear", WIDTH, 5), dropout]);
}

#[test]
fn standardised_weights() {
    let gelu = Node::apply("gelu", Component::Activation(Activation::Gelu));
    assert_gradient(
        "standardised",
        vec![standardised("first", WIDTH, 5, 1.7), gelu, standardised("second", 5, 4, 0.8)],
    );
}

#[test]
fn attention_with_groups_and_dropout() {
    for (n_kv_heads, dropout_rate) in [(4, 0.0), (2, 0.0), (1, 0.0), (2, 0.3)] {
        let what = format!("{n_kv_heads} key and value heads, dropout {dropout_rate}");
        assert_gradient(&what, vec![attention(n_kv_heads, dropout_rate)]);
    }
}

/// Masks, caps and biases of scores, and value heads of a width of their own.
#[test]
fn attention_that_is_not_plain() {
    let plain = |d_value: usize| {
        let states = [linear("query", WIDTH, 12), linear("key", WIDTH, 6), linear("value", WIDTH, 2 * d_value)];
        Attention { d_value, ..Attention::plain(4, 2, 3, states.map(|state| vec![state])) }
    };
    let relative = |bidirectional| PositionBias::Relative {
        table: tensor("relative", 0.7),
        buckets: 4,
        max_distance: 8,
        bidirectional,
    };
    let positions = |keys: bool, queries: bool| {
        let map =
            |name, fan_out| Linear { fan_in: 5, fan_out, weight: tensor(name, 0.5), bias: None, standardised: None };
        let norm = Norm { gain: 0.8, ..Norm::plain(NormKind::LayerNorm, 0.1) };
        PositionBias::Disentangled(Box::new(Disentangled {
            table: tensor("positions", 0.7),
            span: 4,
            max_distance: Some(6),
            norm: Some(norm),
            dropout_rate: 0.2,
            key: keys.then(|| map("position_key", 6)),
            query: queries.then(|| map("position_query", 12)),
        }))
    };
    for (what, attention) in [
        ("causal", Attention { mask: Mask::CAUSAL, ..plain(3) }),
        ("window", Attention { mask: Mask { before: Some(1), after: Some(1) }, ..plain(3) }),
        ("cap", Attention { softcap: Some(0.7), ..plain(3) }),
        ("alibi", Attention { bias: Some(PositionBias::Alibi { slopes: vec![1.0, 0.5, 0.25, 0.0] }), ..plain(3) }),
        ("relative", Attention { bias: Some(relative(true)), softcap: Some(1.5), ..plain(3) }),
        ("relative, causal", Attention { bias: Some(relative(false)), mask: Mask::CAUSAL, ..plain(3) }),
        ("positions", Attention { bias: Some(positions(true, true)), ..plain(3) }),
        (
            "positions of queries alone",
            Attention { bias: Some(positions(false, true)), mask: Mask::CAUSAL, ..plain(3) },
        ),
        ("positions of keys alone", Attention { bias: Some(positions(true, false)), dropout_rate: 0.3, ..plain(3) }),
        ("sink", Attention { sink: Some(tensor("sink", 0.7)), ..plain(3) }),
        ("sink, causal", Attention { sink: Some(tensor("sink", 0.7)), mask: Mask::CAUSAL, ..plain(3) }),
        ("values of width 5", plain(5)),
    ] {
        assert_gradient(what, vec![Node::new("attention", Op::Attention(attention))]);
    }
}

#[test]
fn positions_behind_the_source() {
    let position = EmbeddingTerm::LearnedPosition { table: tensor("position", 0.5) };
    let rotary = Rotary { d_head: 3, frequencies: vec![0.8] };
    let body = vec![
        Node::apply("scale", Component::Scale(Scale { factor: -1.7 })),
        Node::apply("position", Component::Embedding(position)),
        Node::apply("rotary", Component::Rotary(rotary)),
        Node::apply("gelu", Component::Activation(Activation::Gelu)),
    ];
    assert_gradient("scale, positions, rotation", body);
}

fn convolution(name: &str, [fan_in, fan_out]: [usize; 2], kernel: usize) -> Convolution {
    let (weight, bias) = (tensor(&format!("{name}.weight"), 0.5), Some(tensor(&format!("{name}.bias"), 0.5)));
    Convolution { fan_in, fan_out, kernel, stride: 1, padding: 0, groups: 1, causal: false, image: None, weight, bias }
}

/// Every output reads one or two features, and the output of the first two tokens lacks taps.
#[test]
fn convolutions_of_groups() {
    let causal = |name: &str, groups, fans| {
        let convolution = Convolution { groups, causal: true, padding: 2, ..convolution(name, fans, 3) };
        Node::apply(name, Component::Convolution(convolution))
    };
    let body = vec![
        causal("groups", WIDTH / 2, [WIDTH, 2 * WIDTH]),
        Node::apply("gelu", Component::Activation(Activation::Gelu)),
        causal("depthwise", 2 * WIDTH, [2 * WIDTH, 2 * WIDTH]),
        causal("all", 1, [2 * WIDTH, WIDTH]),
    ];
    assert_gradient("convolutions of groups", body);
}

/// Two images of 2 × 3 pixels: groups, a stride, a maximum and an average.
#[test]
fn images() {
    let image = Image { height: 2, width: 3 };
    let conv = |name: &str, image, stride, groups| {
        let convolution = convolution(name, [WIDTH, WIDTH], 3);
        let convolution = Convolution { image: Some(image), stride, padding: 1, groups, ..convolution };
        Node::apply(name, Component::Convolution(convolution))
    };
    let pool = |name: &str, kind, kernel, padding, image| {
        Node::apply(name, Component::Pool(Pool { kind, kernel, stride: kernel, padding, image }))
    };
    let body = vec![
        conv("stem", image, 1, WIDTH),
        pool("max", PoolKind::Max { activation: Activation::Relu }, 2, 1, image),
        conv("second", Image { height: 2, width: 2 }, 1, 1),
        pool("average", PoolKind::Average, 2, 0, Image { height: 2, width: 2 }),
    ];
    assert_stack_gradient("images", &stack_of(gaussian(WIDTH), 12, body));
}

#[test]
fn tokens_that_come_and_go() {
    let convolution = |name: &str, stride, fan_in, fan_out| {
        let convolution = convolution(name, [fan_in, fan_out], 3);
        Node::apply(name, Component::Convolution(Convolution { stride, padding: 1, ..convolution }))
    };
    let token = Prepend { token: tensor("class", 1.0) };
    let body = vec![
        convolution("first", 1, WIDTH, 5),
        Node::apply("gelu", Component::Activation(Activation::Gelu)),
        convolution("second", 2, 5, WIDTH),
        Node::apply("class", Component::Prepend(token)),
        attention(2, 0.0),
    ];
    assert_gradient("convolutions and a class token", body);
}

#[test]
fn chains_side_by_side() {
    let part = |shared, body| ConcatPart { shared, body };
    let parts = vec![part(false, vec![linear("own", WIDTH, 6)]), part(true, vec![linear("shared", WIDTH, 4)])];
    let body = vec![
        Node::new("concat", Op::Concat(Concat { n_heads: 3, parts })),
        Node::apply("gelu", Component::Activation(Activation::Gelu)),
    ];
    assert_gradient("concat", body);
}

/// The choice of experts does not change within the steps.
#[test]
fn mixtures_of_experts() {
    for weights_multiply in [Multiplied::Outputs, Multiplied::Inputs] {
        for (weighting, normalised) in [
            (Weighting::Softmax, true),
            (Weighting::Softmax, false),
            (Weighting::Sigmoid, true),
            (Weighting::Sigmoid, false),
            (Weighting::Sparsemixer, true),
            (Weighting::Sparsemixer, false),
        ] {
            let mixture = Mixture {
                n_experts: 3,
                top_k: 2,
                weighting,
                weights_multiply,
                normalised,
                scale: 1.4,
                router: tensor("router", 0.8),
                expert: vec![linear("in", WIDTH, 4), Node::apply("gelu", Component::Activation(Activation::Gelu))],
            };
            let what = format!("{weighting:?} of {weights_multiply:?}, normalised: {normalised}");
            assert_gradient(&what, vec![Node::new("experts", Op::Mixture(mixture))]);
        }
    }
}

/// Four heads of values of width 2, two heads of queries and keys of width 3.
fn recurrence(decay: Decay, write: Write) -> Recurrence {
    Recurrence {
        n_heads: 4,
        n_key_heads: 2,
        d_key: 3,
        d_value: 2,
        scale: 0.8,
        decay,
        write,
        delta: false,
        skip: None,
        query: vec![linear("query", WIDTH, 6)],
        key: vec![linear("key", WIDTH, 6)],
        value: vec![linear("value", WIDTH, 8)],
    }
}

/// A decay with steps, which are per channel of the keys if a head has three of them.
fn stepped(steps: usize, rates: Rates, rate_per_channel: bool) -> Decay {
    let step = vec![linear("step", WIDTH, 4 * steps)];
    let bias = StepBias::LogUniform { low: 0.1, high: 1.0 };
    Decay::Stepped(Stepped { step, step_per_channel: steps == 3, bias, rates, rate_per_channel })
}

/// Every decay with every write, with and without erasing; five positions are two segments of states and one more.
#[test]
fn recurrences() {
    let sigmoid = || Write::Sigmoid { factor: 1.7, strength: vec![linear("strength", WIDTH, 4)] };
    let uniform = Rates::Uniform { low: 0.2, high: 2.0 };
    for (what, decay, write, skip) in [
        ("fixed", Decay::Fixed { rates: vec![0.0, 0.3, 0.7, 1.5] }, Write::One, None),
        ("fixed, sigmoid", Decay::Fixed { rates: vec![0.0, 0.3, 0.7, 1.5] }, sigmoid(), None),
        ("steps that write", stepped(1, Rates::Counted, false), Write::Step, Some(0.6)),
        ("rates per channel", stepped(1, Rates::Counted, true), Write::Step, Some(-1.3)),
        ("uniform rates", stepped(1, uniform, false), sigmoid(), None),
        ("steps per channel", stepped(3, uniform, false), sigmoid(), None),
        ("steps and rates per channel", stepped(3, uniform, true), Write::One, Some(1.0)),
    ] {
        for delta in [false, true] {
            let recurrence = Recurrence { delta, skip, ..recurrence(decay.clone(), write.clone()) };
            let body = vec![Node::new("mixer", Op::Recurrence(recurrence))];
            assert_stack_gradient(&format!("{what}, delta: {delta}"), &stack_of(gaussian(WIDTH), 5, body));
        }
    }
}

/// The gradient at the end of a decoder reaches the input of the encoder through two cross-attentions.
#[test]
fn a_memory_gathers_gradients() {
    let cross = |name: &str| {
        let state = |part: &str, width| vec![linear(&format!("{name}.{part}"), WIDTH, width)];
        let states = [state("query", 6), state("key", 6), state("value", 6)];
        let attention = Attention { memory: Some(0), ..Attention::plain(2, 2, 3, states) };
        Node::new(name, Op::Attention(attention))
    };
    let skip = |body| Branch::constant(1.0, body);
    let body = vec![
        Node::new("first", Op::Sum(Sum { branches: vec![skip(Vec::new()), skip(vec![cross("cross")])] })),
        cross("second"),
    ];
    let encoder = Stream {
        name: FIRST.to_owned(),
        seq_len: 4,
        source: gaussian(WIDTH),
        body: vec![attention(4, 0.0), linear("back", 12, WIDTH)],
    };
    let decoder = Stream { name: "decoder".to_owned(), seq_len: 3, source: gaussian(WIDTH), body };
    let gradient = GradientSeed { stream: 1, correlation: 0.0 };
    let stack = Stack::new("two streams", vec![encoder, decoder], gradient);
    assert_stack_gradient("cross-attention", &stack);
}

fn read(read: Read) -> Node {
    Node::new("read", Op::Read(read))
}

/// A sum, a product and a concatenation read sites before them, one of them inside a branch.
#[test]
fn earlier_sites_gather_gradients() {
    let site = |path: &str| read(Read::Site(path.to_owned()));
    let skip = |body| Branch::constant(1.0, body);
    let gelu = |name: &str| Node::apply(name, Component::Activation(Activation::Gelu));
    let branch = vec![linear("in", WIDTH, WIDTH), gelu("gelu"), linear("out", WIDTH, WIDTH)];
    let factors = vec![vec![site("sum.gelu"), linear("gate", WIDTH, WIDTH)], vec![], vec![site("first")]];
    let part = |body| ConcatPart { shared: false, body };
    let parts = vec![part(vec![site("sum")]), part(vec![]), part(vec![site("first"), gelu("end")])];
    let body = vec![
        linear("first", WIDTH, WIDTH),
        Node::new("sum", Op::Sum(Sum { branches: vec![skip(vec![]), skip(branch)] })),
        Node::new("mixed", Op::Sum(Sum { branches: vec![skip(vec![]), Branch::constant(-0.7, vec![site("first")])] })),
        Node::new("product", Op::Product(Product { factors })),
        Node::new("concat", Op::Concat(Concat { n_heads: 1, parts })),
    ];
    assert_gradient("reads of sites", body);
}

/// A second stream reads the first in a sum and in a product.
#[test]
fn a_stream_that_is_read_gathers_gradients() {
    let first = |body: Vec<Node>| [vec![read(Read::Stream(0))], body].concat();
    let skip = |body| Branch::constant(0.8, body);
    let sum = Sum { branches: vec![skip(vec![]), skip(first(vec![linear("shift", WIDTH, WIDTH)]))] };
    let factors = vec![vec![], first(vec![linear("scale", WIDTH, WIDTH)]), first(vec![])];
    let body = vec![Node::new("sum", Op::Sum(sum)), Node::new("product", Op::Product(Product { factors }))];
    let of = |name: &str, body| Stream { name: name.to_owned(), seq_len: 3, source: gaussian(WIDTH), body };
    let condition = of(FIRST, vec![linear("condition", WIDTH, WIDTH)]);
    let gradient = GradientSeed { stream: 1, correlation: 0.0 };
    assert_stack_gradient("reads of a stream", &Stack::new("test", vec![condition, of("second", body)], gradient));
}

#[test]
fn selected_features() {
    let select = Select { start: 2, width: 3, of: WIDTH };
    assert_gradient("select", vec![Node::apply("select", Component::Select(select)), linear("map", 3, WIDTH)]);
}

#[test]
fn product_of_three() {
    let factors = ["gate", "up", "third"].map(|name| vec![linear(name, WIDTH, 4)]);
    assert_gradient("product", vec![Node::new("product", Op::Product(Product { factors: factors.into() }))]);
}

#[test]
fn sum_with_dropped_branches_in_a_chain() {
    let branch = |scale, drop_rate, body| Branch { drop_rate, ..Branch::constant(scale, body) };
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
            Node::apply(
                name,
                Component::Linear(Linear { fan_in: 1, fan_out: 1, weight, bias: None, standardised: None }),
            )
        };
        let tanh = |name: &str| Node::apply(name, Component::Activation(Activation::Tanh));
        vec![one("a", "shared", factor), tanh("b"), one("c", "own", 1.0), tanh("d"), one("e", "shared", factor)]
    };
    assert_weight_gradient("shared", drawn("shared"), |factor| stack_of(gaussian(1), 3, body(factor)));
}

/// A single head has a single D.
#[test]
fn skip_gradient() {
    let skip = 0.6;
    assert_weight_gradient("mixer.skip", skip, |factor| {
        let one = |name: &str| vec![linear(name, 1, 1)];
        let single = Recurrence {
            n_heads: 1,
            n_key_heads: 1,
            d_key: 1,
            d_value: 1,
            skip: Some(skip * factor),
            query: one("query"),
            key: one("key"),
            value: one("value"),
            ..recurrence(Decay::Fixed { rates: vec![0.4] }, Write::One)
        };
        stack_of(gaussian(1), 3, vec![Node::new("mixer", Op::Recurrence(single))])
    });
}

/// One id, one feature, also used as the weight of a linear map: all tokens add to one entry.
#[test]
fn tied_table_gradient() {
    assert_weight_gradient("table", drawn("table"), |factor| {
        let table = || tensor("table", 0.7 * factor);
        let terms = vec![EmbeddingTerm::Token { table: table() }, EmbeddingTerm::SinusoidalPosition { scale: 1.0 }];
        let source = Source::Embedding(Embedding {
            width: 1,
            ids: Ids::PowerLaw(PowerLaw { vocab_size: 1, exponent: 1.0 }),
            same_ids_as: None,
            terms,
        });
        let tanh = Node::apply("tanh", Component::Activation(Activation::Tanh));
        let head = Linear { fan_in: 1, fan_out: 1, weight: table(), bias: None, standardised: None };
        stack_of(source, 3, vec![tanh, Node::apply("head", Component::Linear(head))])
    });
}

/// The only entry of a tensor whose distribution has a standard deviation of 0.7.
fn drawn(name: &str) -> f64 {
    let mut weight = [0.0];
    Random::new(settings().seed, 0).rows(Purpose::Weight, &tensor(name, 0.7), 1, &mut weight);
    weight[0]
}

/// `stack(1 + t)` has the only entry of the parameter, `weight`, multiplied by 1 + t, so that dL/dt = w dL/dw.
fn assert_weight_gradient(name: &str, weight: f64, stack: impl Fn(f64) -> Stack) {
    let settings = Settings { batch: 1, ..settings() };
    let measured = stack(1.0);
    let plan = Plan::new(&measured, &settings, f64::INFINITY);
    let replicate = Probe::run(&measured, &plan, &settings, (0, 0.0), true).sampler.finish();
    let got = replicate.weights[plan.tensor_index[&(name.to_owned(), None)]].expect("a gradient").second_moment();

    let slope = derivative(|change| {
        let stack = stack(1.0 + change);
        Probe::run(&stack, &Plan::new(&stack, &settings, f64::INFINITY), &settings, (0, 0.0), true).loss()
    });
    let expected = (slope / weight).powi(2);
    assert!((got - expected).abs() < TOLERANCE * expected, "{name}: expected {expected}, got {got}");
}
