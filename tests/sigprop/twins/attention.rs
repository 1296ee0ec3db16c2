use sigprop_stack::{Attention, Node, NormKind, Op};

use crate::support::{assert_twin, gaussian_stack, linear, norm};

struct Shape {
    n_heads: usize,
    n_kv_heads: usize,
    score_std: f64,
    dropout_rate: f64,
}

/// Normalised tokens of width 256 through attention with heads of width 64.
fn attention(shape: &Shape, seq_len: usize) -> sigprop_stack::Stack {
    let (width, d_head) = (256, 64);
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
    let body = vec![
        norm("norm", NormKind::RmsNorm),
        Node::new("heads", Op::Attention(core)),
        linear("output", queries, width, 1.0),
    ];
    gaussian_stack(width, 1.0, seq_len, body)
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
    assert_twin(&attention(&Shape { n_heads: 4, n_kv_heads: 4, score_std: 1.0, dropout_rate: 0.3 }, 32), 200);
}
