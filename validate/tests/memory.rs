//! The memory that a run really takes, compared with its plan, in a process of its own: the kernel counts its peak.
#![cfg(target_os = "linux")]

use std::{fs, sync::atomic::AtomicBool};

use sigprop_stack::{
    Activation, Attention, Branch, Component, Gaussian, GradientSeed, Init, Linear, Node, Norm, NormKind, Op, Source,
    Stack, Stream, Sum, Tensor,
};
use sigprop_validate::{MeasureError, Settings, measure};

const BLOCKS: usize = 32;
const WIDTH: usize = 256;
const BATCH: usize = 4;
const SEQ_LEN: usize = 128;

/// Bytes of one array of the stream.
const ARRAY: f64 = (4 * BATCH * SEQ_LEN * WIDTH) as f64;

/// Factor by which the allocator may exceed the plan.
const ALLOCATOR: f64 = 1.1;
/// Bytes of code, stacks of threads and the copies that products make.
const FIXED: f64 = 16e6;

/// Pre-LN blocks of attention and a feed-forward network.
fn encoder() -> Stack {
    let linear = |name: String, fan_in, fan_out| {
        let weight = Tensor { name: name.clone(), init: Init::Normal { std: 0.05 } };
        Node::apply(name, Component::Linear(Linear { fan_in, fan_out, weight, bias: None, standardised: None }))
    };
    let norm = || {
        let norm = Norm::plain(NormKind::LayerNorm, 1e-5);
        Node::apply("norm", Component::Norm(norm))
    };
    let residual = |name: &str, body| {
        let branch = |body| Branch::constant(1.0, body);
        Node::new(name, Op::Sum(Sum { branches: vec![branch(Vec::new()), branch(body)] }))
    };
    let block = |index: usize| {
        let map = |name: &str, fan_in, fan_out| linear(format!("{index}.{name}"), fan_in, fan_out);
        let states = ["query", "key", "value"].map(|name| vec![map(name, WIDTH, WIDTH)]);
        let heads = Node::new("heads", Op::Attention(Attention::plain(4, 4, WIDTH / 4, states)));
        let gelu = Node::apply("gelu", Component::Activation(Activation::Gelu));
        let attention = vec![norm(), heads, map("output", WIDTH, WIDTH)];
        let ffn = vec![norm(), map("up", WIDTH, 4 * WIDTH), gelu, map("down", 4 * WIDTH, WIDTH)];
        let body = vec![residual("attention", attention), residual("ffn", ffn)];
        Node::new(format!("blocks.{index}"), Op::Chain(body))
    };
    let source = Source::Gaussian(Gaussian { width: WIDTH, mean: 0.0, variance: 1.0, correlation: 0.0 });
    let body = (0..BLOCKS).map(block).collect();
    let stream = Stream { name: "main".to_owned(), seq_len: SEQ_LEN, source, body };
    Stack::new("test", vec![stream], GradientSeed { stream: 0, correlation: 0.0 })
}

fn status(field: &str) -> f64 {
    let text = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = text.lines().find_map(|line| line.strip_prefix(field)).expect("a field of every process");
    let kibibytes = line.trim_start_matches(':').trim().trim_end_matches("kB").trim();
    1024.0 * kibibytes.parse::<f64>().expect("a number")
}

/// Returns the peak memory of a run minus the memory before it, in bytes.
fn peak(stack: &Stack, memory: f64) -> Result<f64, MeasureError> {
    fs::write("/proc/self/clear_refs", "5").expect("the peak of a process is its own to reset");
    let before = status("VmRSS");
    let settings = Settings { replicates: 1, batch: BATCH, threads: Some(2), memory, ..Settings::default() };
    measure(stack, &settings, &|_| {}, &AtomicBool::new(false)).map(|_| status("VmHWM") - before)
}

/// The smallest budget comes first, because freed memory does not always leave the process.
#[test]
fn runs_take_what_their_plan_says() {
    let stack = encoder();
    let Err(MeasureError::Memory { bytes: least, .. }) = peak(&stack, 1.0) else { panic!("a byte is not enough") };
    // The stream after every block, one block with all it keeps, and the arrays of its widest step.
    let blocks = BLOCKS as f64;
    assert!(least < (blocks + 9.0 + 20.0) * ARRAY, "{least}");
    let taken = peak(&stack, least).expect("enough");
    assert!(taken < ALLOCATOR * least + FIXED, "{taken} where {least} were planned");

    // Nine arrays per block are little enough to be kept.
    let everything = (9.0 * blocks + 20.0) * ARRAY;
    let taken = peak(&stack, f64::INFINITY).expect("enough");
    assert!(taken < ALLOCATOR * everything + FIXED, "{taken} where {everything} are enough");
    assert!(taken > 0.8 * everything, "{taken} of {everything}: something was not kept");
}
