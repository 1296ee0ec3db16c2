use sigprop_stack::{Embedding, EmbeddingTerm, Ids, PowerLaw, Source};

use crate::support::{assert_twin, linear, stack, tensor};

fn source(terms: Vec<EmbeddingTerm>, exponent: f64) -> Source {
    Source::Embedding(Embedding::new(24, Ids::PowerLaw(PowerLaw { vocab_size: 50, exponent }), terms))
}

#[test]
fn repeated_ids_correlate_tokens() {
    for exponent in [0.0, 1.0] {
        let terms = vec![EmbeddingTerm::Token { table: tensor("token", 0.7) }];
        assert_twin(&stack(source(terms, exponent), 12, vec![linear("map", 24, 24, 1.0)]), 4000);
    }
}

#[test]
fn sums_of_token_position_and_segment() {
    let terms = vec![
        EmbeddingTerm::Token { table: tensor("token", 0.7) },
        EmbeddingTerm::LearnedPosition { table: tensor("position", 0.4) },
        EmbeddingTerm::Segment { table: tensor("segment", 0.5) },
    ];
    assert_twin(&stack(source(terms, 1.0), 12, vec![linear("map", 24, 24, 1.0)]), 4000);
}

#[test]
fn sinusoids_have_a_mean_and_a_correlation() {
    let terms = vec![EmbeddingTerm::SinusoidalPosition { scale: 1.3 }];
    let stack = stack(source(terms, 1.0), 12, Vec::new());
    let prediction = sigprop::predict(&stack, sigprop::Sites::Stream).expect("valid");
    assert_eq!(prediction.caveats, []);
    let sampled = crate::support::sample(&stack, 2);
    let (predicted, observed) = (&prediction.table.sites[0], &sampled.table.sites[0]);
    for quantity in &sigprop_stack::Quantity::ALL[..3] {
        let value = |row: &sigprop_stack::SiteRow| row.value(*quantity).expect("told").value();
        approx::assert_relative_eq!(value(predicted), value(observed), max_relative = 1e-5);
    }
}
