use sigprop::{Sites, predict};
use sigprop_stack::{Attention, Node, Op, Quantity};

use crate::support::{gaussian_stack, linear, sample};

/// The variance of the probabilities is S2/L − 1/L². It agrees with a sample within 2 %, sampling error included
/// (standard errors are below 1 %), from flat to condensed rows of wide heads.
#[test]
fn probabilities_from_flat_to_condensed() {
    let (width, seq_len) = (256, 64);
    for score_variance in [0.1, 1.0, 4.0, 16.0, 400.0] {
        let std = f64::sqrt(score_variance);
        let core = Attention::plain(
            1,
            1,
            width,
            [
                vec![linear("query", width, width, std)],
                vec![linear("key", width, width, std)],
                vec![linear("value", width, width, 1.0)],
            ],
        );
        let stack = gaussian_stack(width, 1.0, seq_len, vec![Node::new("heads", Op::Attention(core))]);
        let predicted = predict(&stack, Sites::All).expect("valid").table;
        let observed = sample(&stack, 400).table;
        let variance = |table: &sigprop_stack::SiteTable| {
            table.site("softmax").and_then(|row| row.value(Quantity::Variance)).expect("told").value()
        };
        let error = observed.site("softmax").and_then(|row| row.get(Quantity::Variance)).expect("told").std_error;
        assert!(error.value() < 0.01 * variance(&observed), "variance {score_variance}: sample too small");
        approx::assert_relative_eq!(variance(&predicted), variance(&observed), max_relative = 0.02);
    }
}
