//! Compares the engine with the matrix products of the same machine: `cargo bench --bench engine`.
//!
//! Every round times the product of two large matrices and then each case, so that a slower machine slows both.
//! The output lists medians over rounds. A case is one network: its weights are drawn, it runs forward and backward to
//! the input, and the statistics are computed, on all threads.
//!
//! `cargo bench --bench engine -- CASE` runs one case once and prints its seconds, for `benches/pytorch.py`.

#![allow(clippy::print_stdout)]

use std::{sync::atomic::AtomicBool, thread, time::Instant};

use gemm_common::Parallelism;
use sigprop::architecture::Architecture;
use sigprop::assemble::{Input, Run, assemble};
use sigprop::schemes::Scheme;
use sigprop_stack::Stack;
use sigprop_validate::{Settings, draw_normals, measure};

const ROUNDS: usize = 5;

/// An encoder: its blocks, width, number of sequences and their length. The feed-forward network is 4 × width wide.
struct Case {
    name: &'static str,
    blocks: usize,
    width: usize,
    batch: usize,
    seq_len: usize,
}

const CASES: [Case; 3] = [
    Case { name: "12x768", blocks: 12, width: 768, batch: 4, seq_len: 256 },
    Case { name: "24x1024", blocks: 24, width: 1024, batch: 4, seq_len: 256 },
    Case { name: "192x256", blocks: 192, width: 256, batch: 4, seq_len: 128 },
];

impl Case {
    /// The stack of the case: Xavier, Pre-LN, GELU, heads of 64.
    fn stack(&self) -> Stack {
        let architecture = Architecture {
            n_layers: self.blocks,
            d_model: self.width,
            n_heads: Some(self.width / 64),
            seq_len: self.seq_len,
            ..Architecture::default()
        };
        let scheme = Scheme::parse("xavier").expect("known");
        assemble(&architecture, &scheme, &Input::default(), &Run::default()).expect("a stack").stack
    }

    /// Floating-point operations of the matrix products, each counted once even if it is computed more often.
    fn operations(&self) -> f64 {
        let [blocks, width, batch, seq_len] = [self.blocks, self.width, self.batch, self.seq_len].map(|n| n as f64);
        let weights = 4.0 * batch * seq_len * 12.0 * width * width;
        // Each head has two products forward and four backward.
        let attention = 12.0 * batch * seq_len * seq_len * width;
        blocks * (weights + attention)
    }

    /// Runs the case once and returns its seconds.
    fn run(&self, stack: &Stack) -> f64 {
        let settings = Settings { replicates: 1, batch: self.batch, ..Settings::default() };
        let start = Instant::now();
        measure(stack, &settings, &|_| {}, &AtomicBool::new(false)).expect("small and valid");
        start.elapsed().as_secs_f64()
    }
}

/// Operations per second of products of two f32 matrices, one product on every thread.
fn peak() -> f64 {
    const SIZE: usize = 2048;
    let multiply = || {
        let (a, b, mut c) = (vec![1.0f32; SIZE * SIZE], vec![1.0f32; SIZE * SIZE], vec![0.0f32; SIZE * SIZE]);
        let size = SIZE as isize;
        let start = Instant::now();
        // SAFETY: the three matrices have SIZE × SIZE entries, and the result does not overlap the factors.
        #[allow(unsafe_code)]
        unsafe {
            gemm_f32::gemm::f32::get_gemm_fn()(
                SIZE,
                SIZE,
                SIZE,
                c.as_mut_ptr(),
                size,
                1,
                false,
                a.as_ptr(),
                size,
                1,
                b.as_ptr(),
                size,
                1,
                0.0,
                1.0,
                false,
                false,
                false,
                Parallelism::None,
            );
        }
        start.elapsed().as_secs_f64()
    };
    let slowest = (0..5).map(|_| rayon::broadcast(|_| multiply()).into_iter().fold(0.0, f64::max));
    let threads = rayon::current_num_threads() as f64;
    threads * 2.0 * (SIZE as f64).powi(3) / slowest.fold(f64::INFINITY, f64::min)
}

/// Nanoseconds per normal number in rows of 1024, on one thread.
fn nanoseconds_per_normal() -> f64 {
    const ROWS: usize = 20_000;
    let mut row = [0.0f32; 1024];
    let start = Instant::now();
    for index in 0..ROWS {
        draw_normals(1, index, &mut row);
    }
    start.elapsed().as_secs_f64() * 1e9 / (ROWS * row.len()) as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(case) = CASES.iter().find(|case| arguments.iter().any(|argument| argument == case.name)) {
        println!("{:.3}", case.run(&case.stack()));
        return;
    }
    let stacks: Vec<Stack> = CASES.iter().map(Case::stack).collect();
    let (mut normals, mut peaks) = (Vec::new(), Vec::new());
    let (mut seconds, mut shares) = (vec![Vec::new(); CASES.len()], vec![Vec::new(); CASES.len()]);
    for _ in 0..ROUNDS {
        normals.push(nanoseconds_per_normal());
        for (index, case) in CASES.iter().enumerate() {
            let peak = peak();
            let time = case.run(&stacks[index]);
            peaks.push(peak);
            seconds[index].push(time);
            shares[index].push(case.operations() / time / peak);
        }
    }
    println!("{} threads, medians of {ROUNDS} rounds", thread::available_parallelism().map_or(1, usize::from));
    println!("normals  {:6.2} ns each, one thread", median(normals));
    println!("product  {:6.0} GFLOP/s", median(peaks) / 1e9);
    for ((case, seconds), shares) in CASES.iter().zip(seconds).zip(shares) {
        let seconds = median(seconds);
        let speed = case.operations() / seconds / 1e9;
        let share = 100.0 * median(shares);
        println!("{:8} {seconds:6.2} s  {speed:4.0} GFLOP/s, {share:3.0} % of the product", case.name);
    }
}
