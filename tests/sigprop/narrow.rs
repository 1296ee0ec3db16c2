//! Narrow encoders with few tokens. Their token correlation fluctuates between networks, and the size of the tokens
//! fluctuates with it: a term of order 1/width that stays with the stream. (The effect on gradients: docs/accuracy.md.)

use sigprop::agreement::{Compared, Comparison, compare};
use sigprop::architecture::{Architecture, Format};
use sigprop::assemble::{Input, Run, assemble};
use sigprop::schemes::Scheme;
use sigprop::{Sites, predict};
use sigprop_stack::{
    Activation, Attention, Component, Gaussian, Mask, Node, NormKind, Op, Quantity, Rotary, SiteRow, SiteTable, Source,
    Stack,
};

use crate::support::{
    activation, assert_within, compared, dropout, gaussian_stack, linear, norm, sample, sample_stream, stack,
};

const REPLICATES: usize = 3000;
/// The largest allowed deviation in standard errors: α = 6e-5 per number, of which there are 8. If lengths and
/// correlations did not fluctuate jointly, the predictions would be 3 to 9 standard errors off.
const LARGEST_Z: f64 = 4.0;

#[test]
fn tokens_that_are_alike_are_large() {
    let text = "n_layers = 3\nd_model = 64\nn_heads = 4\nseq_len = 16\nvocab_size = 1000\nnorm_placement = 'post'";
    let architecture = Architecture::from_file_text(text, Format::Toml).expect("valid");
    for scheme in ["xavier", "gains:qk=0.01,value=1,ffn=0,embedding=1,ratio=1"] {
        let scheme = Scheme::parse(scheme).expect("known");
        let stack = assemble(&architecture, &scheme, &Input::Correlation(0.2), &Run::default()).expect("a stack").stack;
        let predicted = predict(&stack, Sites::Stream).expect("a prediction");
        let sampled = sample_stream(&stack, REPLICATES).table;
        let mut seen = 0;
        for row in compare(&predicted.table, &sampled, REPLICATES) {
            let Compared::Site(Quantity::TokenCorrelation) = row.quantity else { continue };
            let Some(z) = row.z else { continue };
            seen += 1;
            assert!(z.abs() < LARGEST_Z, "{scheme}: {row:?}");
        }
        assert!(seen >= 4, "{seen} numbers");
    }
}

/// Norms before and after small branches, whose variance is little above ε. Tokens are almost copies of each other from
/// the first branch on. Terms of order 1/(tokens · heads) in the output of attention are neglected: 1/32 here.
#[test]
fn almost_copies_differ_as_much_as_predicted() {
    const NEGLECTED: f64 = 1.0 / 32.0;
    const REPLICATES: usize = 300;
    let text = "n_layers = 2\nd_model = 64\nn_heads = 1\nseq_len = 32\nvocab_size = 1000\nnorm_placement = 'sandwich'\n\
                activation = 'swiglu'\nnorm = 'rmsnorm'";
    let architecture = Architecture::from_file_text(text, Format::Toml).expect("valid");
    let scheme = Scheme::parse("normal:0.02").expect("known");
    let stack = assemble(&architecture, &scheme, &Input::Correlation(0.0), &Run::default()).expect("a stack").stack;
    let predicted = predict(&stack, Sites::Stream).expect("a prediction").table;
    let sampled = sample_stream(&stack, REPLICATES).table;
    let apart =
        |row: &SiteRow| row.get(Quantity::TokenCorrelation).map(|cell| (1.0 - cell.value.value(), cell.std_error));
    let mut seen = 0;
    for (predicted, sampled) in predicted.sites.iter().zip(&sampled.sites).filter(|(row, _)| row.site != "embeddings") {
        let ((expected, _), (got, std_error)) = (apart(predicted).expect("tokens"), apart(sampled).expect("tokens"));
        let allowed = NEGLECTED * got + LARGEST_Z * std_error.value();
        assert!(got < 0.1 && (expected - got).abs() < allowed, "{}: {expected} {got}", predicted.site);
        seen += 1;
    }
    assert_eq!(seen, 3);
}

/// Uncorrelated tokens after a norm, with correlated gradients. The test compares gradients at queries, keys, values
/// and embeddings, with a tolerance of 2/width for neglected terms of attention and a norm (queries and keys are
/// predicted 0.8 ± 0.2 % too small). Without the effect of sharp rows of attention weights and of long tokens,
/// gradients at queries and keys are predicted 11 % too large.
#[test]
fn gradients_know_sharp_rows_and_long_tokens() {
    const REPLICATES: usize = 500;
    const WIDTH: f64 = 128.0;
    let text = "n_layers = 1\nd_model = 128\nn_heads = 2\nseq_len = 64\nvocab_size = 1000";
    let architecture = Architecture::from_file_text(text, Format::Toml).expect("valid");
    let scheme = Scheme::parse("xavier").expect("known");
    let run = Run { grad_correlation: 0.2, ..Run::default() };
    let stack = assemble(&architecture, &scheme, &Input::Correlation(0.0), &run).expect("a stack").stack;
    let predicted = predict(&stack, Sites::All).expect("a prediction").table;
    let sampled = sample(&stack, REPLICATES).table;
    for name in ["embeddings", "heads.query", "heads.key", "heads.value"] {
        let (ratio, noise) = beside([&predicted, &sampled], name, Quantity::GradVariance);
        assert!((ratio - 1.0).abs() < 2.0 / WIDTH + LARGEST_Z * noise, "{name}: {ratio} ± {noise}");
    }
}

/// Gradients of weights that are mostly due to pairs of tokens; the tolerance is 10/width.
/// In the first case, masks contribute to the differences of tokens. Without their effect on the directions of these
/// differences, query and key weights are predicted a third too large.
/// In the second case, tokens are uncorrelated and gradients are correlated, more so for tokens that happen to be
/// correlated. Without this effect, query weights are predicted 12 % and feed-forward weights 5 % too small, and gains
/// of norms three times too large.
#[test]
fn weights_know_which_tokens_happen_to_be_alike() {
    const REPLICATES: usize = 400;
    const WIDTH: f64 = 128.0;
    let tensors = ["query.weight", "key.weight", "value.weight", "norm.gain", "in.weight", "out.weight"];
    for (n_layers, rate, [correlation, grad_correlation]) in [(2, 0.1, [0.2, 0.2]), (1, 0.0, [0.0, 0.5])] {
        let text = format!(
            "n_layers = {n_layers}\nd_model = 128\nn_heads = 2\nseq_len = 64\nvocab_size = 1000\ndropout = {rate}\n\
             attention_dropout = {rate}"
        );
        let architecture = Architecture::from_file_text(&text, Format::Toml).expect("valid");
        let scheme = Scheme::parse("xavier").expect("known");
        let run = Run { grad_correlation, train: rate > 0.0, ..Run::default() };
        let stack = assemble(&architecture, &scheme, &Input::Correlation(correlation), &run).expect("a stack").stack;
        let predicted = predict(&stack, Sites::Stream).expect("a prediction").table;
        let sampled = sample(&stack, REPLICATES).table;
        let last = format!("blocks.{}.", n_layers - 1);
        let mut seen = 0;
        for row in compare(&predicted, &sampled, REPLICATES) {
            let wanted = row.site.starts_with(&last) && tensors.iter().any(|tensor| row.site.ends_with(tensor));
            if row.quantity != Compared::WeightGradient || !wanted {
                continue;
            }
            let error = row.relative_error.expect("a gradient");
            let noise = row.std_error.ratio(&row.observed);
            assert!(error.abs() < 10.0 / WIDTH + LARGEST_Z * noise, "{}: {error} ± {noise}", row.site);
            seen += 1;
        }
        assert_eq!(seen, 7);
    }
}

/// Keys and values respond to products of tokens, and the gains of the norm before them collect this response: without
/// it, gains are predicted 8 % too small, 4 % with a causal mask. Gradients of the softmax depend on the common part of
/// values and output: without this, they are 9 and 6 % too large. The tolerance is 2 % for terms of higher order in the
/// scores.
/// Not reached (expected failure): gains are predicted 7 % too small.
#[test]
#[should_panic(expected = "norm.gain")]
fn gains_meet_products_of_tokens_and_the_softmax_knows_the_output() {
    const REPLICATES: usize = 500;
    for causal in [false, true] {
        let text =
            format!("n_layers = 2\nd_model = 128\nn_heads = 2\nseq_len = 64\nvocab_size = 1000\ncausal = {causal}");
        let stack = correlated(&text, "xavier", 0.0);
        let predicted = predict(&stack, Sites::All).expect("a prediction").table;
        let mut seen = 0;
        for row in compare(&predicted, &sample(&stack, REPLICATES).table, REPLICATES) {
            let wanted = match row.quantity {
                Compared::WeightGradient => row.site.ends_with("norm.gain"),
                Compared::Site(Quantity::GradVariance) => row.site.ends_with("softmax"),
                _ => false,
            };
            if wanted {
                let (error, noise) = (row.relative_error.expect("a gradient"), row.std_error.ratio(&row.observed));
                assert!(error.abs() < 0.02 + LARGEST_Z * noise, "causal {causal}, {}: {error} ± {noise}", row.site);
                seen += 1;
            }
        }
        assert_eq!(seen, 7);
    }
}

/// Pairs of tokens that happen to be correlated contribute to each other's gradients. Back through a layer, only the
/// part of this contribution passes that is due to the correlation before the layer. If all of it passed, weights of
/// the first layer would be predicted 16 % too large. Predictions are 3 to 6 % too large, also for samples of other
/// seeds.
#[test]
fn layers_make_tokens_alike_by_themselves() {
    const NEGLECTED: f64 = 0.06;
    const REPLICATES: usize = 1500;
    let text = "kind = 'mlp'\nn_layers = 8\nd_model = 64\nseq_len = 16\nactivation = 'elu'\nnorm = 'rmsnorm'\n\
                norm_placement = 'post'\nresidual = false\nbiases = false";
    let architecture = Architecture::from_file_text(text, Format::Toml).expect("valid");
    let scheme = Scheme::parse("xavier").expect("known");
    let run = Run { grad_correlation: 0.6, ..Run::default() };
    let stack = assemble(&architecture, &scheme, &Input::Correlation(0.0), &run).expect("a stack").stack;
    let predicted = predict(&stack, Sites::Stream).expect("a prediction").table;
    let rows = compare(&predicted, &sample(&stack, REPLICATES).table, REPLICATES);
    assert_within(NEGLECTED, rows.iter().filter(|row| row.site.ends_with("linear.weight")), 8);
}

/// Gains of queries and of keys multiply the same products, so their gradients are equal. The two predictions differ by
/// 1 to 5.2 %, as do the gradients at queries and at keys. Without the common part of the gradients of keys along the
/// keys, and with a symmetric T, they differ by 12 %.
/// Not reached (expected failure): the two predictions differ by 7 %.
#[test]
#[should_panic(expected = "xavier")]
fn gains_of_queries_and_keys_collect_the_same() {
    const WITHIN: f64 = 0.06;
    let text = "n_layers = 2\nd_model = 128\nn_heads = 4\nseq_len = 32\nvocab_size = 1000\nqk_norm = 'projection'";
    for scheme in ["xavier", "normal:0.12"] {
        let table = predict(&correlated(text, scheme, 0.0), Sites::All).expect("a prediction").table;
        let gains = |name: &str| -> Vec<f64> {
            let rows = table.weights.iter().filter(|row| row.tensor.ends_with(name));
            rows.map(|row| row.grad_second_moment.value.value()).collect()
        };
        let [queries, keys] = ["query_norm.gain", "key_norm.gain"].map(gains);
        assert_eq!(queries.len(), 2);
        for (query, key) in queries.iter().zip(&keys) {
            assert!((key / query - 1.0).abs() < WITHIN, "{scheme}: {key} {query}");
        }
    }
}

/// Outputs of attention for two queries differ because the queries differ. A third of this difference is of order
/// 1/width: the average of the keys leans towards the query. The tolerance is 2 % for terms of order 1/width² and
/// 1/d_head, with a d_head of 64. Without the terms of order 1/tokens, the prediction is 6 % off.
#[test]
fn keys_lean_towards_the_query() {
    const REPLICATES: usize = 1500;
    let text = "n_layers = 1\nd_model = 64\nn_heads = 1\nseq_len = 64\nvocab_size = 1000";
    let stack = correlated(text, "xavier", 0.4);
    let predicted = predict(&stack, Sites::All).expect("a prediction").table;
    let [(expected, _), (got, noise)] =
        [&predicted, &sample(&stack, REPLICATES).table].map(|table| apart(table, "heads"));
    assert!((expected / got - 1.0).abs() < 0.02 + LARGEST_Z * noise / got, "{expected} {got} ± {noise}");
}

/// A gated network on a stream that fluctuates by ±40 %, because the norm before it has an input variance near ε. Both
/// factors are large in the same networks. Without this effect, E y² is predicted 8 % too small, and the differences of
/// tokens 8 % too large.
#[test]
fn factors_of_one_input_grow_together() {
    const REPLICATES: usize = 2000;
    let text = "n_layers = 1\nd_model = 64\nn_heads = 1\nseq_len = 32\nvocab_size = 1000\nactivation = 'swiglu'\n\
                norm = 'rmsnorm'\nnorm_placement = 'reordered'";
    let stack = correlated(text, "normal:0.02", 0.2);
    let predicted = predict(&stack, Sites::All).expect("a prediction").table;
    let sampled = sample(&stack, REPLICATES).table;
    let (ratio, noise) = beside([&predicted, &sampled], "ffn.gated", Quantity::Variance);
    assert!((ratio - 1.0).abs() < LARGEST_Z * noise, "{ratio} ± {noise}");
    let [(expected, _), (got, noise)] = [&predicted, &sampled].map(|table| apart(table, "ffn.gated"));
    assert!((expected / got - 1.0).abs() < LARGEST_Z * noise / got, "{expected} {got} ± {noise}");
}

/// Twelve blocks. Norms divide by more in networks with more correlated tokens, and gradients respond to that. Without
/// this effect, the gradient at the embeddings is predicted 5.6 % too small with Pre-LN. With Post-LN, gradients become
/// correlated: their correlations respond too, and gradients lose less along the signals of other tokens and along (1,
/// …, 1). Without this, correlations of gradients are predicted up to 0.016 too large.
#[test]
fn gradients_answer_to_how_alike_tokens_are() {
    /// The tolerance for correlations: the size of their neglected terms.
    const NEGLECTED: f64 = 0.004;
    let text = |norm_placement: &str| {
        format!(
            "n_layers = 12\nd_model = 64\nn_heads = 1\nseq_len = 16\nvocab_size = 1000\n\
             norm_placement = '{norm_placement}'"
        )
    };
    let compared = |norm_placement: &str, replicates: usize, quantity: Quantity| {
        let stack = correlated(&text(norm_placement), "xavier", 0.2);
        let predicted = predict(&stack, Sites::Stream).expect("a prediction").table;
        let sampled = sample_stream(&stack, replicates).table;
        let rows = compare(&predicted, &sampled, replicates).into_iter();
        rows.filter(|row| row.quantity == Compared::Site(quantity)).collect::<Vec<_>>()
    };
    let pre = compared("pre", 6000, Quantity::GradVariance);
    assert!(pre.len() == 14 && pre.iter().all(|row| row.z.is_none_or(|z| z.abs() < LARGEST_Z)), "{pre:?}");
    let post = compared("post", 3000, Quantity::GradTokenCorrelation);
    let of_all = |row: &Comparison| row.predicted.value() - row.observed.value();
    assert!(
        post.len() == 13 && post.iter().all(|row| of_all(row).abs() < NEGLECTED + LARGEST_Z * row.std_error.value()),
        "{post:?}"
    );
}

/// Networks with more correlated tokens have smaller gradients. Weights sum products of both, so without this effect
/// the gradients of value and attention output weights are predicted 3 % too large with DSLM, and 4 to 5 % in the first
/// blocks of Post-LN.
#[test]
fn weights_collect_less_where_alike_tokens_have_smaller_gradients() {
    const REPLICATES: usize = 6000;
    for (n_layers, norm_placement, scheme, first) in [(8, "pre", "dslm", 8), (4, "post", "xavier", 2)] {
        let text = format!(
            "n_layers = {n_layers}\nd_model = 64\nn_heads = 1\nseq_len = 16\nvocab_size = 1000\n\
             norm_placement = '{norm_placement}'"
        );
        let stack = correlated(&text, scheme, 0.0);
        let predicted = predict(&stack, Sites::Stream).expect("a prediction").table;
        let (mut error, mut noise, mut seen) = (0.0, 0.0, 0.0);
        for row in compare(&predicted, &sample(&stack, REPLICATES).table, REPLICATES) {
            let wanted = row.site.ends_with("value.weight") || row.site.ends_with("attention.output.weight");
            let early = (0..first).any(|block| row.site.starts_with(&format!("blocks.{block}.")));
            if row.quantity == Compared::WeightGradient && wanted && early {
                error += row.relative_error.expect("a gradient");
                noise += row.std_error.ratio(&row.observed);
                seen += 1.0;
            }
        }
        assert!(
            seen > 3.0 && f64::abs(error) < LARGEST_Z * noise,
            "{norm_placement}: {} ± {}",
            error / seen,
            noise / seen
        );
    }
}

/// Norms after branches that read the stream itself, which fluctuates by ±30 %. Gradients inside a branch respond to
/// the scale of the stream, which the skip connection passes on, and the effects of this scale on queries, keys and
/// values occur together. Without this, gradients of query and key weights are predicted 37 % and those of value
/// weights 12 % too large. The tolerance is 3 % for terms of second order, and 6 % for query and key weights.
#[test]
fn branches_know_what_others_make_of_their_scale() {
    const REPLICATES: usize = 2000;
    let text = "n_layers = 3\nd_model = 64\nn_heads = 1\nseq_len = 16\nvocab_size = 1000\nactivation = 'swiglu'\n\
                norm = 'rmsnorm'\nnorm_placement = 'reordered'";
    let stack = correlated(text, "normal:0.02", 0.2);
    let predicted = predict(&stack, Sites::Stream).expect("a prediction").table;
    let mut seen = 0;
    for row in compare(&predicted, &sample(&stack, REPLICATES).table, REPLICATES) {
        if row.quantity != Compared::WeightGradient || !row.site.starts_with("blocks.2.") || row.site.ends_with("bias")
        {
            continue;
        }
        let met = row.site.ends_with("query.weight") || row.site.ends_with("key.weight");
        let neglected = if met { 0.06 } else { 0.03 };
        let (error, noise) = (row.relative_error.expect("a gradient"), row.std_error.ratio(&row.observed));
        assert!(error.abs() < neglected + LARGEST_Z * noise, "{}: {error} ± {noise}", row.site);
        seen += 1;
    }
    assert_eq!(seen, 9);
}

/// One head of width 64 on 32 normalised, uncorrelated tokens of width 64, with score variance 1. If the score of a
/// token is far from the average, less of the token is left for other directions, because its length is fixed. Without
/// this effect, gradients at queries are predicted 3 % and at keys 5 % too large. The tolerance is 1 % for terms of
/// order 1/width².
#[test]
fn far_scores_leave_less_of_normalised_tokens() {
    const REPLICATES: usize = 3000;
    const WIDTH: usize = 64;
    let map = |name: &str| linear(name, WIDTH, WIDTH, 1.0);
    let parts = ["query", "key", "value"].map(|name| vec![map(name)]);
    let heads = Node::new("heads", Op::Attention(Attention::plain(1, 1, WIDTH, parts)));
    let source = Source::Gaussian(Gaussian { width: WIDTH, mean: 0.0, variance: 1.0, correlation: 0.0 });
    let stack = stack(source, 32, vec![norm("norm", NormKind::LayerNorm), heads, map("output")]);
    let predicted = predict(&stack, Sites::All).expect("a prediction").table;
    let sampled = sample(&stack, REPLICATES).table;
    for name in ["heads.query", "heads.key", "heads.value"] {
        let (ratio, noise) = beside([&predicted, &sampled], name, Quantity::GradVariance);
        assert!((ratio - 1.0).abs() < 0.01 + LARGEST_Z * noise, "{name}: {ratio} ± {noise}");
    }
}

/// Long queries have sharp rows of attention weights, and the gradients of key weights after a mask depend on both.
/// They also depend on queries that happen to be correlated, because gradients have a correlation of ¼; so do query
/// weights. Without these effects, key weights are predicted 12 % and query weights 2.5 % too small. Terms of order
/// 1/width² are neglected; the tolerance is 2 %.
/// Not reached (expected failure): key weights are predicted 12 % too small.
#[test]
#[should_panic(expected = "key.weight")]
fn key_weights_know_long_queries_behind_masks() {
    const REPLICATES: usize = 2000;
    const WIDTH: usize = 64;
    let map = |name: &str| linear(name, WIDTH, WIDTH, 1.0);
    for rotated in [false, true] {
        let part = |name: &str| {
            let rotary = Rotary::new(WIDTH / 4, WIDTH / 4, 10_000.0);
            let turn = Node::apply(format!("{name}_rotary"), Component::Rotary(rotary));
            std::iter::once(map(name)).chain(rotated.then_some(turn)).collect()
        };
        let parts = [part("query"), part("key"), vec![map("value")]];
        let attention = Attention { mask: Mask::CAUSAL, ..Attention::plain(4, 4, WIDTH / 4, parts) };
        let heads = Node::new("heads", Op::Attention(attention));
        let source = Source::Gaussian(Gaussian { width: WIDTH, mean: 0.0, variance: 1.0, correlation: 0.0 });
        let stack = stack(source, 32, vec![norm("norm", NormKind::RmsNorm), heads, map("output")]);
        let predicted = predict(&stack, Sites::All).expect("a prediction").table;
        let rows = compare(&predicted, &sample(&stack, REPLICATES).table, REPLICATES);
        let met = |row: &&Comparison| {
            row.quantity == Compared::WeightGradient
                && ["query.weight", "key.weight"].iter().any(|tensor| row.site.ends_with(tensor))
        };
        let rows: Vec<&Comparison> = rows.iter().filter(met).collect();
        assert_eq!(rows.len(), 2);
        for row in rows {
            let (error, noise) = (row.relative_error.expect("a gradient"), row.std_error.ratio(&row.observed));
            assert!(error.abs() < 0.02 + LARGEST_Z * noise, "{rotated}, {}: {error} ± {noise}", row.site);
        }
    }
}

/// Six causal blocks that make tokens correlated. Differences of tokens then fluctuate as values do, which masked rows
/// average, and gradients at queries depend on differences of keys and of values. Without this, they are predicted 32 %
/// too small in the last block. The tolerance is a fifth, because the relation of gradients at the output to these
/// fluctuations is neglected.
#[test]
fn differences_stray_behind_masks() {
    const REPLICATES: usize = 3000;
    const NEGLECTED: f64 = 0.2;
    let text = "n_layers = 6\nd_model = 64\nn_heads = 4\nseq_len = 32\nvocab_size = 1000\nnorm = 'rmsnorm'\ncausal = true\n\
                positions = 'none'";
    let stack = correlated(text, "gains:qk=1,value=1,ffn=1,embedding=1,ratio=1", 0.0);
    let predicted = predict(&stack, Sites::All).expect("a prediction").table;
    let sampled = sample(&stack, REPLICATES).table;
    let (ratio, noise) = beside([&predicted, &sampled], "blocks.5.attention.heads.query", Quantity::GradVariance);
    assert!((ratio - 1.0).abs() < NEGLECTED + LARGEST_Z * noise, "{ratio} ± {noise}");
}

/// Gradients of pairs of tokens that happen to be correlated have a common part. It passes through the sums of the
/// stream, and the responses of a branch to its input combine with the responses of other branches. Predictions are 4 %
/// too small at most. Without this, they are too small by 11 and 12 % for feed-forward weights, 14 % for the gains of
/// their norm, and 8 % for the weights of the patches.
#[test]
fn responses_of_pairs_pass_sums() {
    const NEGLECTED: f64 = 0.04;
    let text = "n_layers = 2\nd_model = 64\nn_heads = 2\nseq_len = 48\nvocab_size = 100\nnorm = 'rmsnorm'\n\
                activation = 'tanh'\nskip_from_norm = true\nattention_scale = 0.3\n\
                stem = { patches = { patch_width = 48, class_token = false, bias = true, norm = true } }";
    let rows = compared(text, "dslm", (&Input::Zipf, &Run::default()), Sites::All, 1500);
    let met =
        ["embeddings.patches.weight", "blocks.0.ffn_norm.gain", "blocks.0.ffn.in.weight", "blocks.0.ffn.out.weight"];
    assert_within(NEGLECTED, rows.iter().filter(|row| met.contains(&row.site.as_str())), met.len());
}

/// A class token that starts much smaller than the patches has large gradients before the first norm, which come through
/// the branch of the attention; those of the patches come through the skip connection. The terms of finite width of the
/// skip connection and of the branch are those of the site, with the fluctuations of the variables there. If the
/// fluctuations are left out where both are weighed, gradients of the patches are predicted 7 % too large.
#[test]
fn small_class_tokens_leave_the_gradients_of_patches() {
    const NEGLECTED: f64 = 0.02;
    let text = "n_layers = 2\nd_model = 96\nn_heads = 4\nseq_len = 17\n\
                stem = { patches = { patch_width = 192, class_token = true, bias = false, norm = false } }\n\
                [init]\n'embeddings.class_token' = { std = 0.0 }\n'embeddings.position' = { std = 0.02 }";
    let rows = compared(text, "xavier", (&Input::Zipf, &Run::default()), Sites::All, 1000);
    let patches =
        |row: &&Comparison| row.site == "embeddings.patches" && row.quantity == Compared::Site(Quantity::GradVariance);
    assert_within(NEGLECTED, rows.iter().filter(patches), 1);
}

/// Where every position is followed by itself, correlations fluctuate too, and the curvature of activations makes
/// tokens more correlated. Without this effect, correlations were predicted 0.015 to 0.018 too small; now they are
/// 0.005 to 0.010 too large (3000 networks, ± 0.002).
#[test]
fn activations_bend_correlations_behind_masks() {
    const NEGLECTED: f64 = 0.006;
    let text = "n_layers = 3\nd_model = 64\nn_heads = 2\nseq_len = 16\nvocab_size = 100\nnorm_placement = 'sub'\n\
                activation = 'relu2'\ncausal = true\npositions = 'none'";
    let rows = compared(text, "xavier", (&Input::Correlation(0.0), &Run::default()), Sites::Stream, REPLICATES);
    let mut seen = 0;
    for row in rows.iter().filter(|row| row.quantity == Compared::Site(Quantity::TokenCorrelation)) {
        let (error, noise) = (row.predicted.value() - row.observed.value(), row.std_error.value());
        assert!(error.abs() < NEGLECTED + LARGEST_Z * noise, "{}: {error} ± {noise}", row.site);
        seen += 1;
    }
    assert!(seen >= 4, "{seen} numbers");
}

/// Activations affect the gradients of the gains before a linear map, less so if the entries of its weight are uniform
/// and not Gaussian. Predictions are 1 and 6 % too large. If both kinds of weight are treated alike, the gains before
/// uniform ones are predicted 28 % too large.
/// Not reached (expected failure): the gains before uniform weights are predicted 25 % too large.
#[test]
#[should_panic(expected = "numbers")]
fn gains_know_uniform_maps() {
    const NEGLECTED: f64 = 0.06;
    let text = "n_layers = 1\nd_model = 64\nn_heads = 2\nseq_len = 48\nvocab_size = 100\nnorm = 'rmsnorm'\n\
                activation = 'relu2'";
    let run = Run { grad_correlation: 0.6, ..Run::default() };
    for scheme in ["gpt2", "pytorch"] {
        let rows = compared(text, scheme, (&Input::Correlation(0.0), &run), Sites::All, 800);
        assert_within(NEGLECTED, rows.iter().filter(|row| row.site == "blocks.0.ffn.norm.gain"), 1);
    }
}

/// Gains of DyT multiply the tanh of a signal. As in norms, these outputs are correlated with gradients entry by entry.
/// Predictions are within 3 %. With products of averages they are 14 and 17 % too small.
/// Not reached (expected failure): gains are predicted 13 to 19 % too small.
#[test]
#[should_panic(expected = "numbers")]
fn gains_of_dyt_meet_entries() {
    const NEGLECTED: f64 = 0.04;
    let text =
        "n_layers = 2\nd_model = 64\nn_heads = 2\nseq_len = 48\nvocab_size = 100\nnorm = 'dyt'\nactivation = 'relu'";
    let run = Run { grad_correlation: 0.6, ..Run::default() };
    let rows = compared(text, "xavier", (&Input::Correlation(0.0), &run), Sites::All, 800);
    assert_within(NEGLECTED, rows.iter().filter(|row| row.site.ends_with("norm.gain")), 5);
}

/// After norms of queries and keys, scores are products of vectors on spheres, and all rows of attention weights are
/// equally sharp. Predictions are within 7 %. With the rule for Gaussian keys and correlated gradients, gains are
/// predicted 17 and 20 % and key weights 13 % too small.
/// Not reached (expected failure): gains of norms of queries are predicted 20 % and of keys 39 % too small.
#[test]
#[should_panic(expected = "numbers")]
fn queries_and_keys_behind_norms() {
    const NEGLECTED: f64 = 0.075;
    let text = "n_layers = 1\nd_model = 128\nn_heads = 4\nseq_len = 48\nvocab_size = 100000\nnorm = 'rmsnorm'\nnorm_placement = 'post'\n\
                activation = 'swiglu'\npositions = 'rotary'\nqk_norm = 'projection'";
    let run = Run { grad_correlation: 0.6, ..Run::default() };
    let rows = compared(text, "normal:0.02", (&Input::Uniform, &run), Sites::All, 400);
    let told = ["query.weight", "key.weight", "query_norm.gain", "key_norm.gain"];
    assert_within(NEGLECTED, rows.iter().filter(|row| told.iter().any(|site| row.site.ends_with(site))), 4);
}

/// If a branch does not begin with a norm, long tokens have small gradients through the stream. Without this effect,
/// weights after products and the gains after them are predicted 6 and 7 % too large. After DyT, products were
/// predicted 3 % too large when the length of the stream was counted twice.
#[test]
fn longer_tokens_have_smaller_gradients_beside_the_stream() {
    const NEGLECTED: f64 = 0.006;
    let placed = |norm: &str| {
        format!(
            "n_layers = 1\nd_model = 64\nn_heads = 2\nseq_len = 16\nactivation = 'geglu'\nbiases = false\npositions = 'none'\n{norm}"
        )
    };
    for (norm, scheme) in
        [("norm = 'layernorm'\nnorm_placement = 'reordered'", "layerscale:0.1"), ("norm = 'dyt'", "xavier")]
    {
        let input = (&Input::Correlation(0.0), &Run::default());
        let rows = compared(&placed(norm), scheme, input, Sites::All, 600);
        let of_maps = |row: &&Comparison| row.site.contains("ffn.") && row.site.ends_with(".weight");
        assert_within(NEGLECTED, rows.iter().filter(of_maps), 3);
    }
}

/// The outputs of branches have a part that all tokens share. It has independent random directions, unlike narrow
/// patches. Correlations of squares of tokens, 0.036 to 0.042, are predicted within 0.0012. If the common part is
/// sampled like differences of tokens, they are 0.0033 and 0.0035 too large.
#[test]
fn branches_share_directions_of_their_own() {
    const NEGLECTED: f64 = 0.0014;
    let text = "n_layers = 4\nd_model = 64\nn_heads = 2\nseq_len = 48\nnorm = 'layernorm'\nnorm_placement = 'reordered'\n\
                activation = 'geglu'\nbiases = false\nstem = { patches = { patch_width = 48, class_token = false, bias = true, norm = false } }";
    let rows = compared(text, "layerscale:0.1", (&Input::Zipf, &Run::default()), Sites::All, 1000);
    let told = ["blocks.2.ffn.gated", "blocks.3.ffn.gated"];
    let alike = |row: &&Comparison| {
        row.quantity == Compared::Site(Quantity::TokenCorrelation) && told.contains(&row.site.as_str())
    };
    assert_within(NEGLECTED, rows.iter().filter(alike), told.len());
}

/// An encoder of Gaussian tokens.
fn correlated(text: &str, scheme: &str, correlation: f64) -> Stack {
    let architecture = Architecture::from_file_text(text, Format::Toml).expect("valid");
    let scheme = Scheme::parse(scheme).expect("known");
    assemble(&architecture, &scheme, &Input::Correlation(correlation), &Run::default()).expect("a stack").stack
}

fn site<'a>(table: &'a SiteTable, name: &str) -> &'a SiteRow {
    table.sites.iter().find(|row| row.site.ends_with(name)).expect("a site")
}

/// The ratio of the prediction to the sampled value at the site whose path ends with `name`, and its relative standard
/// error.
fn beside([predicted, sampled]: [&SiteTable; 2], name: &str, quantity: Quantity) -> (f64, f64) {
    let [expected, got] = [predicted, sampled].map(|table| *site(table, name).get(quantity).expect("told of the site"));
    (expected.value.ratio(&got.value), got.std_error.ratio(&got.value))
}

/// 1 minus the correlation of tokens at the site whose path ends with `name`, and its standard error.
fn apart(table: &SiteTable, name: &str) -> (f64, f64) {
    let cell = *site(table, name).get(Quantity::TokenCorrelation).expect("tokens");
    (1.0 - cell.value.value(), cell.std_error.value())
}

/// Gradients of keys after their norm sum to zero. Before the norm they sum to the contribution of pairs of tokens that
/// happen to be correlated.
/// Not reached (expected failure): gradients of key biases before norms are predicted as zero.
#[test]
#[should_panic(expected = "numbers")]
fn biases_before_norms_of_keys_collect_what_pairs_leave() {
    /// The tolerance for the last blocks, which are predicted within 8 %. Without the contribution of pairs they are
    /// predicted 80 to 84 % too small.
    const WITHIN: f64 = 0.25;
    let text = "n_layers = 8\nd_model = 128\nn_heads = 2\nseq_len = 32\nvocab_size = 1000\nqk_norm = 'projection'";
    let rows = compared(text, "xavier", (&Input::Uniform, &Run::default()), Sites::All, 300);
    let of_biases = |row: &&Comparison| row.quantity == Compared::WeightGradient && row.site.ends_with("key.bias");
    assert_within(WITHIN, rows.iter().filter(of_biases).filter(|row| row.layer >= 4), 4);
}

/// Masks and large factors multiply the same entries in signals and in gradients, together with the effects of
/// activations. If these effects are taken as independent, gradients before eight layers are predicted 20 % too large.
/// Not reached (expected failure): gradients are predicted 14 to 21 % too large.
#[test]
#[should_panic(expected = "numbers")]
fn masked_entries_share_their_draws() {
    const NEGLECTED: f64 = 0.012;
    let layer = |i: usize| {
        let [map, act, masks, divided] = ["map", "activation", "dropout", "norm"].map(|name| format!("{name}{i}"));
        let act = activation(&act, Activation::Gelu);
        [linear(&map, 64, 64, 1.0), act, dropout(&masks, 0.3), norm(&divided, NormKind::RmsNorm)]
    };
    let stack = gaussian_stack(64, 1.0, 16, (0..8).flat_map(layer).collect());
    let predicted = predict(&stack, Sites::Stream).expect("a prediction");
    let rows = compare(&predicted.table, &sample_stream(&stack, REPLICATES).table, REPLICATES);
    let gradient = |row: &&Comparison| row.quantity == Compared::Site(Quantity::GradVariance);
    assert_within(NEGLECTED, rows.iter().filter(gradient), 8);
}

/// The gradient of each factor of a product is multiplied by the other factor. The weights of gates, which have an
/// activation, were predicted 8 % too large relative to the weights of the other factor.
/// Not reached (expected failure): gate weights are predicted 9 % too large.
#[test]
#[should_panic(expected = "left")]
fn gates_share_their_draws() {
    const NEGLECTED: f64 = 0.015;
    let text = "n_layers = 1\nd_model = 64\nd_ff = 64\nn_heads = 2\nseq_len = 16\nvocab_size = 32000\nbiases = false\n\
                activation = 'geglu'\nnorm = 'rmsnorm'\nnorm_placement = 'sub'\npositions = 'none'";
    let rows = compared(text, "kaiming", (&Input::Correlation(0.2), &Run::default()), Sites::All, REPLICATES);
    let off = |factor: &str| {
        let tensor = format!("blocks.0.ffn.gated.{factor}.weight");
        let row = rows.iter().find(|row| row.site == tensor).expect("a weight");
        row.predicted.ln_abs() - row.observed.ln_abs()
    };
    approx::assert_abs_diff_eq!(off("gate"), off("up"), epsilon = NEGLECTED);
}

/// Tokens that happen to be correlated go to the same experts and have correlated gradients. The gains before the
/// mixture collect this. Predictions are 2 % too small, and 9 % if only the weights of experts include the effect.
#[test]
fn gains_before_experts() {
    const NEGLECTED: f64 = 0.025;
    let text = "n_layers = 1\nd_model = 64\nn_heads = 1\nseq_len = 32\nvocab_size = 32000\nnorm = 'rmsnorm'\nbiases = false\n\
                positions = 'none'\nactivation = 'tanh'\n\
                experts = { n_experts = 8, top_k = 4, d_ff = 128, weighting = 'softmax', normalised = false, first_dense = 0, every = 1,\
                scale = 1.0, shared_d_ff = 0, shared_gate = false }";
    let run = Run { grad_correlation: 0.6, ..Run::default() };
    let rows = compared(text, "gpt2", (&Input::Uniform, &run), Sites::All, 1500);
    assert_within(NEGLECTED, rows.iter().filter(|row| row.site == "blocks.0.ffn.norm.gain"), 1);
}
