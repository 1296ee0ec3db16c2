use sigprop_stack::{
    Attention, Component, Embedding, EmbeddingTerm, GivenIds, Ids, Mask, Node, NormKind, Op, PositionBias, Quantity,
    Rotary, Source,
};

use crate::support::{assert_twin, assert_twin_but_for, gaussian_stack, linear, norm, tensor};

struct Shape {
    n_heads: usize,
    n_kv_heads: usize,
    score_std: f64,
    dropout_rate: f64,
}

const WIDTH: usize = 256;
const D_HEAD: usize = 64;

/// Normalised tokens of width 256 through attention with heads of width 64.
fn attention(shape: &Shape, seq_len: usize) -> sigprop_stack::Stack {
    gaussian_stack(WIDTH, 1.0, seq_len, body(shape))
}

fn body(shape: &Shape) -> Vec<Node> {
    let (width, d_head) = (WIDTH, D_HEAD);
    let (queries, keys) = (shape.n_heads * d_head, shape.n_kv_heads * d_head);
    let core = Attention {
        dropout_rate: shape.dropout_rate,
        ..Attention::plain(
            shape.n_heads,
            shape.n_kv_heads,
            d_head,
            [
                vec![linear("query", width, queries, shape.score_std)],
                vec![linear("key", width, keys, shape.score_std)],
                vec![linear("value", width, keys, 1.0)],
            ],
        )
    };
    vec![
        norm("norm", NormKind::RmsNorm),
        Node::new("heads", Op::Attention(core)),
        linear("output", queries, width, 1.0),
    ]
}

#[test]
fn flat_attention() {
    assert_twin(&attention(&Shape { n_heads: 4, n_kv_heads: 4, score_std: 0.2, dropout_rate: 0.0 }, 32), 200);
}

#[test]
fn ordinary_attention() {
    assert_twin(&attention(&Shape { n_heads: 4, n_kv_heads: 4, score_std: 1.0, dropout_rate: 0.0 }, 48), 200);
}

#[test]
fn grouped_keys_and_values() {
    assert_twin(&attention(&Shape { n_heads: 4, n_kv_heads: 2, score_std: 1.0, dropout_rate: 0.0 }, 32), 200);
    assert_twin(&attention(&Shape { n_heads: 4, n_kv_heads: 1, score_std: 0.5, dropout_rate: 0.0 }, 32), 200);
}

#[test]
fn attention_dropout() {
    let shape = Shape { n_heads: 4, n_kv_heads: 4, score_std: 1.0, dropout_rate: 0.3 };
    assert_twin(&attention(&shape, 32), 200);
    // Masks of single values move no score that all keys share: gradients of keys sum to zero.
    assert_twin(&with(&shape, 32, |attention| attention.mask = Mask::CAUSAL), 200);
}

/// A head with as many keys as features. Half of an output is due to products of two keys, which dropout does not
/// enlarge.
/// Not reached (expected failure): gradients of queries are predicted 4 % too large.
#[test]
#[should_panic(expected = "heads.query grad_variance")]
fn dropout_among_many_keys() {
    assert_twin(&attention(&Shape { n_heads: 4, n_kv_heads: 4, score_std: 1.0, dropout_rate: 0.3 }, 256), 200);
}

/// After their norm, gradients of keys sum to zero. Before it they do not, because each gradient has lost its part
/// along its own key (the sum is predicted 11 % too large). If this part lay along a direction that other keys do not
/// share, the sum would be predicted as 0 with masks, and twice too large without.
/// Not reached (expected failure): gradients of key biases before norms are predicted as zero.
#[test]
#[should_panic(expected = "assert_relative_eq")]
fn normed_keys() {
    let shape = Shape { n_heads: 4, n_kv_heads: 4, score_std: 0.5, dropout_rate: 0.0 };
    for mask in [Mask::FULL, Mask::CAUSAL] {
        let stack = with(&shape, 32, |attention| {
            attention.mask = mask;
            attention.key.push(norm("key_norm", NormKind::RmsNorm));
        });
        let sum = |table: &sigprop_stack::SiteTable| {
            let key = table.site("heads.key").expect("a site");
            1.0 + 31.0 * key.value(Quantity::GradTokenCorrelation).expect("told").value()
        };
        let predicted = sum(&sigprop::predict(&stack, sigprop::Sites::All).expect("valid").table);
        let sampled = sum(&crate::support::sample(&stack, 200).table);
        approx::assert_relative_eq!(predicted, sampled, max_relative = 0.15);
    }
}

/// Causal masks and windows, and the gradient of a token that many queries attend to.
/// Not reached (expected failure): the mean product of attention weights of two queries, a thousandth of their mean
/// square, is predicted 17 % too large.
#[test]
#[should_panic(expected = "of all cells")]
fn masked_attention() {
    for mask in [Mask::CAUSAL, Mask { before: Some(5), after: Some(0) }, Mask { before: Some(4), after: Some(4) }] {
        for score_std in [0.3, 1.0] {
            let shape = Shape { n_heads: 4, n_kv_heads: 2, score_std, dropout_rate: 0.0 };
            assert_twin(&with(&shape, 24, |attention| attention.mask = mask), 200);
        }
    }
}

/// The part that all tokens share differs between rotated keys. The correlation of keys with queries, and with products
/// of their inputs, depends on the difference of the angles.
/// Not reached (expected failure): the correlation of attention weights is predicted 4 % too large.
#[test]
#[should_panic(expected = "of all cells")]
fn rotated_queries_and_keys() {
    for (score_std, base) in [(0.1, 10_000.0), (0.5, 10_000.0), (0.5, 100.0), (1.0, 10_000.0)] {
        let shape = Shape { n_heads: 4, n_kv_heads: 2, score_std, dropout_rate: 0.0 };
        let rotated = |name: &str| Node::apply(name, Component::Rotary(Rotary::new(D_HEAD, D_HEAD, base)));
        let stack = with(&shape, 48, |attention| {
            attention.mask = Mask::CAUSAL;
            attention.query.push(rotated("query_rotary"));
            attention.key.push(rotated("key_rotary"));
        });
        assert_twin(&stack, 200);
    }
}

/// Embeddings of 32 features that a linear map widens, with positions that are much larger. Differences of tokens then
/// have as many directions as differences of positions.
/// Not reached (expected failure): a ± of 0.2 % after a norm is predicted as 1.8 %.
#[test]
#[should_panic(expected = "norm ln_variance_std")]
fn positions_beside_narrow_embeddings() {
    let position = EmbeddingTerm::LearnedPosition { table: tensor("position", 1.0) };
    let before = [linear("project", 32, WIDTH, 1.0), Node::apply("position", Component::Embedding(position))];
    let shape = Shape { n_heads: 4, n_kv_heads: 4, score_std: 0.2, dropout_rate: 0.0 };
    let body = before.into_iter().chain(body(&shape)).collect();
    assert_twin(&gaussian_stack(32, 0.01, 32, body), 200);
}

/// Attention with biases and a cap on the scores.
/// Not reached (expected failure): the variance of attention weights is predicted 6 % too large.
#[test]
#[should_panic(expected = "of all cells")]
fn biased_and_capped_attention() {
    let shape = Shape { n_heads: 4, n_kv_heads: 4, score_std: 0.7, dropout_rate: 0.0 };
    let slopes = vec![1.0, 0.5, 0.25, 0.125];
    let alibi = with(&shape, 24, |attention| {
        attention.mask = Mask::CAUSAL;
        attention.bias = Some(PositionBias::Alibi { slopes });
    });
    assert_twin(&alibi, 200);
    assert_twin(&with(&shape, 24, |attention| attention.softcap = Some(8.0)), 200);
}

/// Attention sinks under causal masks and windows, with alike tokens and with sharp rows. The gradient of the sinks is
/// one of the cells. The part that all keys have in common moves the share of the sink.
#[test]
fn attention_sinks() {
    let window = Mask { before: Some(3), after: Some(0) };
    for (mask, score_std, correlation) in [
        (Mask::CAUSAL, 0.14, 0.0),
        (window, 0.14, 0.5),
        (Mask::CAUSAL, 0.8, 0.0),
        (Mask::CAUSAL, 0.8, 0.5),
        (Mask::CAUSAL, 1.2, 0.0),
    ] {
        assert_twin_but_for(&["sink_width"], &with_sinks(mask, score_std, [correlation, 0.02]), 200);
    }
}

/// Sinks where every query attends to all keys.
/// Not reached (expected failure): the correlation of gradients at the embeddings is predicted 0.15 % too large.
#[test]
#[should_panic(expected = "1 of all cells:\nembeddings grad_token_correlation")]
fn sinks_with_all_keys() {
    assert_twin_but_for(&["sink_width"], &with_sinks(Mask::FULL, 0.14, [0.5, 0.02]), 200);
}

/// Sinks and windows to both sides.
/// Not reached (expected failure): the correlation of gradients at keys, -0.06, is predicted 1 % too small.
#[test]
#[should_panic(expected = "1 of all cells:\nheads.key grad_token_correlation")]
fn sinks_in_windows_to_both_sides() {
    let mask = Mask { before: Some(4), after: Some(4) };
    assert_twin_but_for(&["sink_width"], &with_sinks(mask, 0.8, [0.2, 0.02]), 200);
}

/// Sinks of a wide distribution, as trained ones have: heads differ in the share that they leave to the keys.
/// Not reached (expected failure): networks differ more than predicted, because few heads have different sinks.
#[test]
#[should_panic(expected = "3 of all cells:\nembeddings ln_grad_variance_std")]
fn sinks_that_differ() {
    assert_twin_but_for(&["sink_width"], &with_sinks(Mask::CAUSAL, 0.5, [0.2, 1.0]), 200);
}

/// The ordinary network with sinks; `inputs` are the correlation of its tokens and the std of the sinks.
fn with_sinks(mask: Mask, score_std: f64, inputs: [f64; 2]) -> sigprop_stack::Stack {
    let [correlation, sink_std] = inputs;
    let shape = Shape { n_heads: 4, n_kv_heads: 2, score_std, dropout_rate: 0.0 };
    let mut stack = with(&shape, 16, |attention| {
        attention.mask = mask;
        attention.sink = Some(tensor("heads.sink", sink_std));
    });
    if let Source::Gaussian(gaussian) = &mut stack.streams[0].source {
        gaussian.correlation = correlation;
    }
    stack
}

/// Tokens with repeated ids: groups of equal keys, of unequal size.
#[test]
fn repeated_ids() {
    let ids: Vec<u32> = (0..32).map(|i| if i % 3 == 0 { 0 } else { i }).collect();
    let given = Ids::Given(GivenIds { vocab_size: 32, sequences: vec![ids] });
    let terms = vec![EmbeddingTerm::Token { table: tensor("token", 1.0) }];
    let shape = Shape { n_heads: 4, n_kv_heads: 4, score_std: 0.2, dropout_rate: 0.0 };
    let mut stack = attention(&shape, 32);
    stack.streams[0].source = Source::Embedding(Embedding::new(256, given, terms));
    assert_twin(&stack, 200);
}

/// Up to sixteen keys at a score variance of 1.5. Most of them are half correlated, because they have one id at
/// different positions. Averages over queries follow from pairs of keys as long as the sum over pairs hardly
/// fluctuates. (If this rule is used up to fluctuations of 3/2 with any number of keys, the averages are fifteen times
/// too large.)
#[test]
fn few_keys_beside_a_group() {
    let ids: Vec<u32> = (0..16).map(|i| if i % 3 == 2 { i } else { 0 }).collect();
    let given = Ids::Given(GivenIds { vocab_size: 16, sequences: vec![ids] });
    let terms = vec![
        EmbeddingTerm::Token { table: tensor("token", 1.0) },
        EmbeddingTerm::LearnedPosition { table: tensor("position", 1.0) },
    ];
    let shape = Shape { n_heads: 4, n_kv_heads: 4, score_std: 1.22, dropout_rate: 0.0 };
    let mut stack = with(&shape, 16, |attention| attention.mask = Mask::CAUSAL);
    stack.streams[0].source = Source::Embedding(Embedding::new(256, given, terms));
    let variance = |table: &sigprop_stack::SiteTable| {
        table.site("heads").expect("a site").value(Quantity::Variance).expect("told").value()
    };
    let predicted = variance(&sigprop::predict(&stack, sigprop::Sites::All).expect("valid").table);
    let sampled = variance(&crate::support::sample(&stack, 400).table);
    approx::assert_relative_eq!(predicted, sampled, max_relative = 0.02);
}

/// A third of the tokens are equal, at score variances of ¼ and 1: averages over single keys and values, within 5
/// standard errors. (By the share that groups receive, 42 % of keys would be missing; if pairs of queries sent it,
/// 9 %.)
/// Not reached (expected failure): a key by itself has 15 % too little.
#[test]
#[should_panic(expected = "heads.key")]
fn single_keys_beside_a_group() {
    for score_std in [0.5, 1.0] {
        let ids: Vec<u32> = (0..32).map(|i| if i % 3 == 0 { 0 } else { i }).collect();
        let given = Ids::Given(GivenIds { vocab_size: 32, sequences: vec![ids] });
        let terms = vec![EmbeddingTerm::Token { table: tensor("token", 1.0) }];
        let shape = Shape { n_heads: 4, n_kv_heads: 4, score_std, dropout_rate: 0.0 };
        let mut stack = attention(&shape, 32);
        stack.streams[0].source = Source::Embedding(Embedding::new(256, given, terms));
        let predicted = sigprop::predict(&stack, sigprop::Sites::All).expect("valid");
        let sampled = crate::support::sample(&stack, 200);
        for (predicted, observed) in predicted.table.sites.iter().zip(&sampled.table.sites) {
            if ["heads.key", "heads.value"].contains(&predicted.site.as_str()) {
                let cell = observed.get(Quantity::GradVariance).expect("told");
                let expected = predicted.value(Quantity::GradVariance).expect("told").value();
                let z = (cell.value.value() - expected) / cell.std_error.value();
                assert!(z.abs() < 5.0, "{} {score_std}: {expected} beside {}, z {z:.1}", predicted.site, cell.value);
            }
        }
    }
}

/// The ordinary network, with its attention changed.
fn with(shape: &Shape, seq_len: usize, change: impl FnOnce(&mut Attention)) -> sigprop_stack::Stack {
    let mut stack = attention(shape, seq_len);
    for node in &mut stack.streams[0].body {
        if let Op::Attention(attention) = &mut node.op {
            return {
                change(attention);
                stack
            };
        }
    }
    unreachable!("the network has attention")
}
