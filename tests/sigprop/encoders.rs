//! Whole encoders of width 256 on Gaussian tokens: absolute levels without fitted constants, forward and backward.

use sigprop::agreement::{Compared, Comparison, compare, summarise};
use sigprop::architecture::Architecture;
use sigprop::assemble::{Input, Run, assemble};
use sigprop::schemes::Scheme;
use sigprop::{Sites, predict};
use sigprop_stack::Quantity;

use crate::support::{assert_within, compared, sample_stream};

/// Scheme, architecture file and number of blocks of each encoder.
const CASES: [(&str, &str, usize); 8] = [
    ("xavier", "activation = 'relu'", 12),
    ("xavier", "activation = 'gelu'", 12),
    ("xavier", "activation = 'relu'\nnorm_placement = 'post'", 12),
    ("xavier", "activation = 'gelu'\nnorm_placement = 'post'", 12),
    ("dslm", "norm_placement = 'post'", 24),
    ("dslm", "", 24),
    ("gpt2", "", 24),
    ("deepnorm", "norm_placement = 'post'", 24),
];

/// The tolerance for 95 % of the cells: 1 %, or three standard errors if that is more.
const CLOSE: f64 = 0.01;
const ERRORS: f64 = 3.0;
/// The smallest allowed R² of logarithms, for logarithms that span more than 1.
const R2: f64 = 0.999;

fn comparisons(scheme: &str, file: &str, blocks: usize, replicates: usize) -> Vec<Comparison> {
    let text = format!("n_layers = {blocks}\nd_model = 256\nn_heads = 4\nseq_len = 128\n{file}");
    let architecture = Architecture::from_file_text(&text, sigprop::architecture::Format::Toml).expect("valid");
    let scheme = Scheme::parse(scheme).expect("known");
    let assembled = assemble(&architecture, &scheme, &Input::Correlation(0.2), &Run::default()).expect("a stack");
    let predicted = predict(&assembled.stack, Sites::Stream).expect("a prediction");
    compare(&predicted.table, &sample_stream(&assembled.stack, replicates).table, replicates)
}

/// Returns the number of numbers whose error exceeds [`CLOSE`] and [`ERRORS`] standard errors, and the number of all.
/// The standard error of a covariance includes those of its correlation and of its variance.
fn far_off(comparisons: &[Comparison]) -> (usize, usize) {
    let relative = |site: &str, quantity: Quantity| {
        let row = comparisons.iter().find(|row| row.site == site && row.quantity == Compared::Site(quantity));
        row.map_or(0.0, |row| row.std_error.value() / row.observed.value())
    };
    let (mut far, mut all) = (0, 0);
    for row in comparisons {
        let error = match row.quantity {
            Compared::Site(Quantity::Variance | Quantity::GradVariance) => row.std_error.value() / row.observed.value(),
            Compared::Site(Quantity::TokenCorrelation) => {
                row.std_error.value().hypot(row.observed.value() * relative(&row.site, Quantity::Variance))
            }
            Compared::Site(Quantity::GradTokenCorrelation) => {
                row.std_error.value().hypot(row.observed.value() * relative(&row.site, Quantity::GradVariance))
            }
            // Single positions show nothing that the average does not.
            Compared::Site(
                Quantity::Mean
                | Quantity::VarianceFirst
                | Quantity::VarianceLast
                | Quantity::GradVarianceFirst
                | Quantity::GradVarianceLast
                | Quantity::LnVarianceStd
                | Quantity::LnGradVarianceStd,
            )
            | Compared::SecondMoment
            | Compared::CrossProduct
            | Compared::GradCrossProduct
            | Compared::WeightGradient => continue,
        };
        all += 1;
        let off = row.relative_error.expect("nothing overflows").abs();
        far += usize::from(off > CLOSE.max(ERRORS * error));
    }
    (far, all)
}

/// The relative tolerance for ±, the standard deviation between networks, in addition to [`SPREAD_ERRORS`] standard
/// errors.
const SPREAD: f64 = 0.3;
const SPREAD_ERRORS: f64 = 4.0;

fn assert_agreement(cases: &[(&str, &str, usize)], replicates: usize) {
    let mut pooled = Vec::new();
    for (scheme, file, blocks) in cases {
        let rows = comparisons(scheme, file, *blocks, replicates);
        for (quantity, fit) in summarise(&rows).quantities {
            // A single position is 128 times noisier than the average over positions, and a standard deviation is
            // noisier still.
            let name = quantity.name();
            let averaged = !["_first", "_last", "_std"].iter().any(|end| name.ends_with(end));
            let spans = averaged && fit.ln_range.is_some_and(|range| range > 1.0);
            assert!(!spans || fit.r2_log > Some(R2), "{scheme} {file} {}: {fit:?}", quantity.name());
        }
        for row in rows.iter().filter(|row| row.quantity.name().ends_with("_std")) {
            let (predicted, observed, error) = (row.predicted.value(), row.observed.value(), row.std_error.value());
            let allowed = SPREAD * observed + SPREAD_ERRORS * error;
            assert!((predicted - observed).abs() < allowed, "{scheme} {file} {}: {row:?}", row.quantity.name());
        }
        pooled.extend(rows);
    }
    assert!(summarise(&pooled).pooled.r2_log > Some(R2));
    let (far, all) = far_off(&pooled);
    assert!(20 * far <= all, "{far} of {all} cells are off by more than 1 % and three standard errors");
}

/// Three of the eight encoders, with fewer blocks.
#[test]
fn shallow_encoders_agree() {
    let shallow: Vec<(&str, &str, usize)> = [0, 3, 6].map(|i| (CASES[i].0, CASES[i].1, 5)).to_vec();
    assert_agreement(&shallow, 24);
}

/// Encoders whose values, attention outputs and feed-forward maps are standardised.
#[test]
fn encoders_with_standardised_weights_agree() {
    let cases = ["activation = 'relu'", "activation = 'gelu'"].map(|file| ("standardised", file, 5));
    assert_agreement(&cases, 24);
}

/// About two minutes on two cores.
#[test]
#[ignore = "long: eight encoders of 12 and 24 blocks at 64 replicates"]
fn eight_encoders_agree() {
    assert_agreement(&CASES, 64);
}

/// Post-LN makes all tokens copies of each other up to the precision of f64; the prediction stays finite.
#[test]
fn copies_of_one_token_have_predictions() {
    for activation in ["relu", "gelu"] {
        let file = format!(
            "n_layers = 768\nd_model = 1024\nn_heads = 16\nsegments = true\nactivation = '{activation}'\n\
             norm_placement = 'post'"
        );
        let architecture = Architecture::from_file_text(&file, sigprop::architecture::Format::Toml).expect("valid");
        let scheme = Scheme::parse("xavier").expect("known");
        let stack = assemble(&architecture, &scheme, &Input::Zipf, &Run::default()).expect("a stack").stack;
        let table = predict(&stack, Sites::Stream).expect("a prediction").table;
        // Six of 48 such blocks were sampled: about 0.5. The value grows as the square root of the depth.
        let std = table.sites[0].get(Quantity::LnGradVarianceStd).expect("it strays").value.value();
        assert!(std < 4.0, "{activation}: {std}");
    }
}

/// A hundred blocks have a prediction with every scheme, weights included.
#[test]
fn deep_encoders_have_predictions() {
    for scheme in ["xavier", "kaiming", "deepnorm", "dslm", "uniform:1"] {
        let scheme = Scheme::parse(scheme).expect("known");
        for placement in ["pre", "post"] {
            for norm in ["layernorm", "none"] {
                let file = format!("n_layers = 100\nnorm = '{norm}'\nnorm_placement = '{placement}'");
                let architecture =
                    Architecture::from_file_text(&file, sigprop::architecture::Format::Toml).expect("valid");
                let stack = assemble(&architecture, &scheme, &Input::Zipf, &Run::default()).expect("a stack").stack;
                let prediction = predict(&stack, Sites::All);
                let table = prediction.unwrap_or_else(|error| panic!("{scheme} {placement} {norm}: {error}")).table;
                assert!(table.weights.iter().all(|row| row.grad_second_moment.value.is_finite()));
            }
        }
    }
}

/// Sinusoidal positions make neighbours more correlated than distant tokens, and gradients of queries and keys depend
/// on that. With one correlation for all pairs, gradients of queries were predicted 49 and 56 % too small. With all
/// pairs followed, they were 1.6 and 11.1 ± 0.8 % too small (the largest; 6000 networks).
/// Not reached (expected failure): gradients of queries are predicted 12 % and of attention weights 16 % too large.
#[test]
#[should_panic(expected = "numbers")]
fn sinusoidal_positions_are_told_apart() {
    const WITHIN: f64 = 0.05;
    let text = "n_layers = 2\nd_model = 64\nn_heads = 2\nseq_len = 32\nvocab_size = 1000\npositions = 'sinusoidal'";
    let rows = compared(text, "xavier", (&Input::Uniform, &Run::default()), Sites::All, 400);
    let gradients = rows.iter().filter(|row| row.quantity == Compared::Site(Quantity::GradVariance));
    assert_within(WITHIN, gradients, 20);
}

/// In cross-attention, the values of an encoder's output are correlated with their average. Norms after attention
/// remove the gradient along this average. Without this effect, gradients of probabilities are predicted 64 % too large
/// and, through attention dropout, also gradients of queries and keys are too large.
#[test]
fn gradients_of_cross_attention_know_its_outputs() {
    const WITHIN: f64 = 0.02;
    let keys = "n_layers = 1\nd_model = 128\nn_heads = 2\nseq_len = 32\nvocab_size = 1000\nactivation = 'relu'\n\
                norm_placement = 'reordered'\nattention_dropout = 0.1\npositions = 'learned'\n";
    let text = format!("{keys}[decoder]\ncausal = true\n{keys}");
    let run = Run { train: true, ..Run::default() };
    let rows = compared(&text, "gpt2", (&Input::Uniform, &run), Sites::All, 300);
    let gradients = rows.iter().filter(|row| row.quantity == Compared::Site(Quantity::GradVariance));
    assert_within(WITHIN, gradients.filter(|row| row.site.ends_with("cross_attention.softmax")), 1);
}

/// Gradients at the end of an encoder include terms of order 1/width of the attentions that read it, and the common
/// part of the gradients of keys and values along their input. The theory of infinite width predicts them 7 % too small
/// here.
#[test]
fn gradients_at_the_end_of_an_encoder_know_finite_width() {
    const WITHIN: f64 = 0.02;
    let keys = "n_layers = 2\nd_model = 64\nn_heads = 4\nseq_len = 16\nvocab_size = 1000\nactivation = 'relu'\n\
                norm = 'rmsnorm'\nbiases = false\npositions = 'relative'\n";
    let text = format!("{keys}[decoder]\ncausal = true\n{keys}");
    let rows = compared(&text, "lecun", (&Input::Uniform, &Run::default()), Sites::Stream, 1500);
    let gradients = rows.iter().filter(|row| row.quantity == Compared::Site(Quantity::GradVariance));
    assert_within(WITHIN, gradients.filter(|row| row.site.starts_with("encoder.")), 4);
}
