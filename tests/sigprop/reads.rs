//! Stacks with parts that read earlier sites or other streams agree with sampled networks, forward and backward.

use sigprop_stack::{
    Activation, Attention, Branch, Concat, ConcatPart, Embedding, EmbeddingTerm, Gaussian, GradientSeed, Ids, Mask,
    Node, NormKind, Op, PowerLaw, Product, Read, Source, Stack, Stream, Sum,
};

use crate::support::{activation, assert_twin_but_for, gaussian_stack, linear, norm, residual, tensor};

const WIDTH: usize = 256;

fn site(path: &str) -> Node {
    Node::new("read", Op::Read(Read::Site(path.to_owned())))
}

fn stream(index: usize) -> Node {
    Node::new("read", Op::Read(Read::Stream(index)))
}

fn sum(name: &str, branches: Vec<(f64, Vec<Node>)>) -> Node {
    let branches = branches.into_iter().map(|(scale, body)| Branch::constant(scale, body)).collect();
    Node::new(name, Op::Sum(Sum { branches }))
}

fn product(name: &str, factors: Vec<Vec<Node>>) -> Node {
    Node::new(name, Op::Product(Product { factors }))
}

fn chain(name: &str, body: Vec<Node>) -> Node {
    Node::new(name, Op::Chain(body))
}

/// A pre-norm feed-forward branch with weights of its own.
fn ffn(block: &str) -> Node {
    let body = vec![
        norm("norm", NormKind::RmsNorm),
        linear(&format!("{block}.in"), WIDTH, 2 * WIDTH, 1.0),
        activation("activation", Activation::Gelu),
        linear(&format!("{block}.out"), 2 * WIDTH, WIDTH, 2.0),
    ];
    let body =
        body.into_iter().map(|node| Node { name: node.name.rsplit('.').next().expect("a name").to_owned(), ..node });
    residual("ffn", [1.0, 1.0], 0.0, body.collect())
}

/// A causal attention branch.
fn attention(block: &str, value: Vec<Node>) -> Node {
    let map =
        |name: &str| vec![Node { name: name.to_owned(), ..linear(&format!("{block}.{name}"), WIDTH, WIDTH, 1.0) }];
    let heads =
        Attention { mask: Mask::CAUSAL, ..Attention::plain(4, 4, WIDTH / 4, [map("query"), map("key"), value]) };
    let body =
        [vec![norm("norm", NormKind::RmsNorm), Node::new("heads", Op::Attention(heads))], map("output")].concat();
    residual("attention", [1.0, 1.0], 0.0, body)
}

fn assert_sampled(stack: &Stack, replicates: usize) {
    assert_twin_but_for(&["read_width"], stack, replicates);
}

/// The first signal is added before every block (nanochat): it is correlated with the stream, and so are their
/// gradients.
#[test]
fn first_signal_before_every_block() {
    let block = |index: usize| {
        let mixed = sum("mixed", vec![(0.8, vec![]), (0.6, vec![site("embeddings")])]);
        chain(&format!("blocks.{index}"), vec![mixed, ffn(&format!("{index}"))])
    };
    assert_sampled(&gaussian_stack(WIDTH, 1.0, 6, (0..4).map(block).collect()), 60);
}

/// The tokens of a causal attention differ by position.
#[test]
fn first_signal_before_causal_blocks() {
    let block = |index: usize| {
        let mixed = sum("mixed", vec![(0.8, vec![]), (0.6, vec![site("embeddings")])]);
        let own = index.to_string();
        let value = vec![Node { name: "value".to_owned(), ..linear(&format!("{own}.value"), WIDTH, WIDTH, 1.0) }];
        chain(&format!("blocks.{index}"), vec![mixed, attention(&own, value), ffn(&own)])
    };
    assert_sampled(&gaussian_stack(WIDTH, 1.0, 12, (0..3).map(block).collect()), 60);
}

/// Block 3 − i adds the output of block i (U-shaped skips).
#[test]
fn skips_of_a_u_are_added() {
    let block = |index: usize| {
        let skip =
            (index > 1).then(|| sum("skip", vec![(0.7, vec![]), (0.7, vec![site(&format!("blocks.{}", 3 - index))])]));
        chain(&format!("blocks.{index}"), skip.into_iter().chain([ffn(&format!("{index}"))]).collect())
    };
    assert_sampled(&gaussian_stack(WIDTH, 1.0, 6, (0..4).map(block).collect()), 60);
}

/// Block 3 − i maps its stream together with the output of block i.
#[test]
fn skips_of_a_u_are_concatenated() {
    let block = |index: usize| {
        let part = |body| ConcatPart { shared: false, body };
        let both = || {
            let parts = vec![part(vec![]), part(vec![site(&format!("blocks.{}", 3 - index))])];
            let both = Node::new("both", Op::Concat(Concat { n_heads: 1, parts }));
            vec![both, Node { name: "map".to_owned(), ..linear(&format!("{index}.map"), 2 * WIDTH, WIDTH, 1.0) }]
        };
        let skip = if index > 1 { both() } else { vec![] };
        chain(&format!("blocks.{index}"), skip.into_iter().chain([ffn(&format!("{index}"))]).collect())
    };
    assert_sampled(&gaussian_stack(WIDTH, 1.0, 6, (0..4).map(block).collect()), 60);
}

/// The stream of conditions: equal tokens. Blocks have x + gate(c) f((1 + scale(c)) norm(x) + shift(c)).
fn conditioned(gate: f64) -> Stack {
    let of = |name: &str, variance: f64| {
        let map = linear(&format!("c.{name}"), WIDTH, WIDTH, variance);
        vec![stream(0), Node { name: name.to_owned(), ..map }]
    };
    let one = Node::new("one", Op::Chain(Vec::new()));
    let block = |index: usize| {
        let of = |name: &str, variance| of(&format!("{index}{name}"), variance);
        let scaled = product("scaled", vec![vec![], of("scale", 0.5)]);
        let modulated = sum("modulated", vec![(1.0, vec![]), (1.0, vec![scaled]), (1.0, of("shift", 0.5))]);
        let body = vec![
            norm("norm", NormKind::LayerNorm),
            modulated,
            Node { name: "in".to_owned(), ..linear(&format!("{index}.in"), WIDTH, 2 * WIDTH, 1.0) },
            activation("activation", Activation::Gelu),
            Node { name: "out".to_owned(), ..linear(&format!("{index}.out"), 2 * WIDTH, WIDTH, 2.0) },
        ];
        let gated = product("gated", vec![body, of("gate", gate)]);
        residual(&format!("blocks.{index}"), [1.0, 1.0], 0.0, vec![gated])
    };
    let source = |correlation| Source::Gaussian(Gaussian { width: WIDTH, mean: 0.0, variance: 1.0, correlation });
    let silu = activation("silu", Activation::Silu);
    let named =
        |name: &str, correlation, body| Stream { name: name.to_owned(), seq_len: 6, source: source(correlation), body };
    let condition = named("condition", 1.0, vec![linear("c.in", WIDTH, WIDTH, 1.0), silu, one]);
    let main = named("main", 0.3, (0..3).map(block).collect());
    Stack::new("test", vec![condition, main], GradientSeed { stream: 1, correlation: 0.25 })
}

#[test]
fn conditions_shift_scale_and_gate() {
    assert_sampled(&conditioned(0.5), 60);
}

/// Gates of zero close the branches and leave the stream as it is (adaLN-zero).
#[test]
fn gates_of_zero() {
    assert_sampled(&conditioned(0.0), 20);
}

/// Values are sums of a map and of a second table of embeddings of the same ids (nanochat).
#[test]
fn a_second_table_of_the_same_ids() {
    let source = |name: &str, same_ids_as| {
        let law = PowerLaw { vocab_size: 20, exponent: 1.0 };
        let terms = vec![EmbeddingTerm::Token { table: tensor(&format!("{name}.token"), 1.0) }];
        Source::Embedding(Embedding { same_ids_as, ..Embedding::new(WIDTH, Ids::PowerLaw(law), terms) })
    };
    let block = |index: usize| {
        let own = index.to_string();
        let value = Node { name: "value".to_owned(), ..linear(&format!("{own}.value"), WIDTH, WIDTH, 1.0) };
        let value = sum("values", vec![(0.7, vec![value]), (0.7, vec![stream(0)])]);
        chain(&format!("blocks.{index}"), vec![attention(&own, vec![value]), ffn(&own)])
    };
    let named = |name: &str, same_ids_as, body| Stream {
        name: name.to_owned(),
        seq_len: 10,
        source: source(name, same_ids_as),
        body,
    };
    let values = named("values", None, vec![chain("embeddings", vec![])]);
    let main = named("main", Some(0), (0..3).map(block).collect());
    let stack = Stack::new("test", vec![values, main], GradientSeed { stream: 1, correlation: 0.25 });
    assert_sampled(&stack, 60);
}
