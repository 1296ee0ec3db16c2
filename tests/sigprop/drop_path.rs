//! Stochastic depth: the effect of a mask on the level of a whole sequence, and the gradients that depend on it.

use sigprop::Sites;
use sigprop::agreement::{Compared, Comparison};
use sigprop::assemble::{Input, Run};
use sigprop_stack::Quantity;

use crate::support::{assert_within, compared};

const ENCODER: &str = "n_layers = 4\nd_model = 64\nn_heads = 2\nseq_len = 16\nvocab_size = 1000\ndrop_path = 0.2\n";

fn rows(text: &str, scheme: &str, sites: Sites, replicates: usize) -> Vec<Comparison> {
    let run = Run { train: true, ..Run::default() };
    compared(&format!("{ENCODER}{text}"), scheme, (&Input::Correlation(0.0), &run), sites, replicates)
}

fn of(rows: &[Comparison], quantity: Quantity) -> impl Iterator<Item = &Comparison> {
    rows.iter().filter(move |row| row.quantity == Compared::Site(quantity))
}

/// Gradients of a branch are averages over the samples that keep it. In these samples the stream is longer and the
/// tokens are more correlated.
/// Not reached (expected failure): gradients of queries are predicted 12 % too large, of attention weights 11 % too
/// small.
#[test]
#[should_panic(expected = "numbers")]
fn gradients_know_which_branches_are_kept() {
    /// The tolerance for variances of ln |x|² of 0.02 per mask. Errors were up to 9 % beyond the sampling error when
    /// the gradient of a token responded only to the length of this token.
    const WITHIN: f64 = 0.02;
    assert_within(WITHIN, of(&rows("", "dslm", Sites::All, 2000), Quantity::GradVariance), 50);
}

/// After small embeddings the first branches are most of the stream, so sequences that keep these branches and
/// sequences that drop them are followed separately. If one variance of lengths represents both, gradients are
/// predicted up to 62 % too small, and ± is up to 34 % off.
/// Not reached (expected failure): gradients at the embeddings are predicted 6.5 % too large.
#[test]
#[should_panic(expected = "numbers")]
fn branches_that_are_most_of_the_stream_are_told_apart() {
    /// The tolerance. The largest error with 3000 networks was 2.5 %, at two standard errors.
    const WITHIN: f64 = 0.02;
    let rows = rows("", "xavier", Sites::Stream, 3000);
    assert_within(WITHIN, of(&rows, Quantity::GradVariance), 4);
    assert_within(WITHIN, of(&rows, Quantity::LnGradVarianceStd), 4);
}

/// Two effects of the masks on gradients partly cancel: their own fluctuation, and the response of gradients to the
/// lengths of tokens. Without this, ± would be predicted 45 to 170 % too large. The test covers exchangeable tokens and
/// tokens of which every position is followed.
/// Not reached (expected failure): ± of the last block is predicted 15 % too small.
#[test]
#[should_panic(expected = "numbers")]
fn masks_stray_gradients_less_than_each_by_itself() {
    /// The tolerance. The largest error with 1000 to 2000 networks was 0.7 % beyond the sampling error.
    const WITHIN: f64 = 0.02;
    for (text, scheme) in [("", "dslm"), ("norm_placement = 'post'", "xavier"), ("causal = true", "gpt2")] {
        assert_within(WITHIN, of(&rows(text, scheme, Sites::Stream, 1000), Quantity::LnGradVarianceStd), 4);
    }
}
