use sigprop_stack::{
    Activation, Component, Decay, Gaussian, GradientSeed, Node, Norm, NormKind, Op, Quantity, Rates, Recurrence, Scale,
    Source, Stack, StepBias, Stepped, Stream, Write,
};

use crate::support::{activation, assert_twin_known, linear};

/// The numbers of heads and their widths.
#[derive(Clone, Copy)]
struct Sizes {
    n_heads: usize,
    n_key_heads: usize,
    d_key: usize,
    d_value: usize,
}

/// The width of the input and of the output.
const WIDTH: usize = 512;
/// The steps without input at the start of models: softplus of the bias is log-uniform.
const LOG_UNIFORM: StepBias = StepBias::LogUniform { low: 1e-3, high: 0.1 };
const CORRELATIONS: [f64; 2] = [0.0, 0.5];
/// Not predicted, as the caveat says: fluctuations between networks, whose heads are few, and products of the gradients of
/// two steps or strengths.
const NOT_PREDICTED: [(&str, Quantity); 4] = [
    ("", Quantity::LnVarianceStd),
    ("", Quantity::LnGradVarianceStd),
    ("step", Quantity::GradTokenCorrelation),
    ("strength", Quantity::GradTokenCorrelation),
];

/// A recurrence that writes with the strength 1, on linear maps of the input.
fn recurrence(heads: Sizes, decay: Decay) -> Recurrence {
    let Sizes { n_heads, n_key_heads, d_key, d_value } = heads;
    Recurrence {
        n_heads,
        n_key_heads,
        d_key,
        d_value,
        scale: (d_key as f64).powf(-0.5),
        decay,
        write: Write::One,
        delta: false,
        skip: None,
        query: vec![linear("query", WIDTH, n_key_heads * d_key, 1.0)],
        key: vec![linear("key", WIDTH, n_key_heads * d_key, 1.0)],
        value: vec![linear("value", WIDTH, n_heads * d_value, 1.0)],
    }
}

/// A decay with this number of steps in all.
fn stepped(steps: usize, bias: StepBias, rates: Rates) -> Stepped {
    let step = vec![linear("step", WIDTH, steps, 0.25)];
    Stepped { step, step_per_channel: false, bias, rates, rate_per_channel: false }
}

fn sigmoid(n_heads: usize) -> Write {
    Write::Sigmoid { factor: 1.0, strength: vec![linear("strength", WIDTH, n_heads, 1.0)] }
}

/// Appends SiLU to the chains of queries and keys, so that scores have a mean, and to the chain of values.
fn behind_silu(mut recurrence: Recurrence) -> Recurrence {
    let chains = [&mut recurrence.query, &mut recurrence.key, &mut recurrence.value];
    for (chain, name) in chains.into_iter().zip(["query_silu", "key_silu", "value_silu"]) {
        chain.push(activation(name, Activation::Silu));
    }
    recurrence
}

/// Divides queries and keys of every head by their length.
fn of_length_one(mut recurrence: Recurrence) -> Recurrence {
    let d_key = recurrence.d_key as f64;
    let norm = Norm { groups: recurrence.n_key_heads, ..Norm::plain(NormKind::RmsNorm, 1e-6 / d_key) };
    for (chain, name) in [(&mut recurrence.query, "query"), (&mut recurrence.key, "key")] {
        chain.push(Node::apply(format!("{name}_norm"), Component::Norm(norm)));
        chain.push(Node::apply(format!("{name}_scale"), Component::Scale(Scale { factor: d_key.powf(-0.5) })));
    }
    recurrence
}

/// Compares with sampled networks for tokens of each correlation.
fn assert_twins(recurrence: &Recurrence, seq_len: usize, replicates: usize) {
    for correlation in CORRELATIONS {
        let stack = between_maps(recurrence, seq_len, correlation);
        assert_twin_known(&["recurrence_width"], &NOT_PREDICTED, &stack, replicates);
    }
}

/// A recurrence on tokens of one correlation, and a linear map.
fn between_maps(recurrence: &Recurrence, seq_len: usize, correlation: f64) -> Stack {
    let width = recurrence.n_heads * recurrence.d_value;
    let source = Source::Gaussian(Gaussian { width: WIDTH, mean: 0.0, variance: 1.0, correlation });
    let body = vec![
        Node::new("embeddings", Op::Chain(Vec::new())),
        Node::new("heads", Op::Recurrence(recurrence.clone())),
        linear("output", width, WIDTH, 1.0),
    ];
    let stream = Stream { name: "main".to_owned(), seq_len, source, body };
    Stack::new("test", vec![stream], GradientSeed { stream: 0, correlation: 0.25 })
}

/// Lightning attention: a fixed decay per head. One head remembers everything, as in plain linear attention.
#[test]
fn fixed_decays() {
    let heads = Sizes { n_heads: 4, n_key_heads: 4, d_key: 32, d_value: 32 };
    let fixed = recurrence(heads, Decay::Fixed { rates: vec![0.0, 0.1, 0.4, 1.0] });
    assert_twins(&fixed, 16, 200);
    assert_twins(&behind_silu(fixed), 16, 200);
}

/// Mamba-2: the step is the strength of a write, heads have rates of their own and share queries and keys.
#[test]
fn steps_that_write() {
    let heads = Sizes { n_heads: 8, n_key_heads: 2, d_key: 32, d_value: 32 };
    let decay = Decay::Stepped(stepped(heads.n_heads, LOG_UNIFORM, Rates::Counted));
    let centred = Recurrence { write: Write::Step, skip: Some(1.0), scale: 1.0, ..recurrence(heads, decay) };
    assert_twins(&centred, 24, 200);
    assert_twins(&behind_silu(centred), 24, 200);
}

/// Mamba-2 with steps and scores so large that the output is mostly due to the state.
#[test]
fn states_without_a_skip() {
    let heads = Sizes { n_heads: 8, n_key_heads: 8, d_key: 32, d_value: 32 };
    let decay = Decay::Stepped(stepped(heads.n_heads, StepBias::Value(-2.0), Rates::Uniform { low: 0.5, high: 2.0 }));
    assert_twins(&Recurrence { write: Write::Step, ..recurrence(heads, decay) }, 16, 200);
}

/// Gated DeltaNet: keys of length one, erasing, and strengths behind a sigmoid.
#[test]
fn gated_delta_rule() {
    let heads = Sizes { n_heads: 16, n_key_heads: 8, d_key: 64, d_value: 16 };
    let decay = Decay::Stepped(stepped(heads.n_heads, StepBias::Value(1.0), Rates::Uniform { low: 0.01, high: 16.0 }));
    let gated = Recurrence { write: sigmoid(heads.n_heads), delta: true, ..recurrence(heads, decay) };
    assert_twins(&of_length_one(gated), 12, 100);
}

/// Kimi delta attention: every channel of the keys has a step.
fn kimi() -> Recurrence {
    let heads = Sizes { n_heads: 8, n_key_heads: 8, d_key: 64, d_value: 32 };
    let rates = Rates::Uniform { low: 1.0, high: 16.0 };
    let stepped = stepped(heads.n_heads * heads.d_key, LOG_UNIFORM, rates);
    let decay = Decay::Stepped(Stepped { step_per_channel: true, ..stepped });
    of_length_one(Recurrence { write: sigmoid(heads.n_heads), delta: true, ..recurrence(heads, decay) })
}

#[test]
fn steps_per_channel() {
    assert_twin_known(&["recurrence_width"], &NOT_PREDICTED, &between_maps(&kimi(), 12, 0.0), 100);
}

/// Not reached: gradients at strengths are 31 % too large, those of the weights of steps 55 % too small. Channels with
/// slow decays share memories, and erasing is computed with the mean decay of all channels.
#[test]
#[should_panic(expected = "of all cells")]
fn correlated_tokens_with_steps_per_channel() {
    let kinds = ["long_erasing", "recurrence_width"];
    assert_twin_known(&kinds, &NOT_PREDICTED, &between_maps(&kimi(), 12, 0.5), 100);
}

/// Mamba-1: every feature is a head with values of width 1, and every channel of the state has a rate.
#[test]
fn rates_per_channel() {
    let heads = Sizes { n_heads: 256, n_key_heads: 1, d_key: 32, d_value: 1 };
    let stepped = stepped(heads.n_heads, LOG_UNIFORM, Rates::Counted);
    let decay = Decay::Stepped(Stepped { rate_per_channel: true, ..stepped });
    let selective = Recurrence { write: Write::Step, skip: Some(1.0), scale: 1.0, ..recurrence(heads, decay) };
    assert_twins(&selective, 16, 200);
}
