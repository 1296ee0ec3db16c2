//! Recommendations, checked with sampled networks.

use std::sync::atomic::{AtomicUsize, Ordering};

use sigprop::architecture::{Architecture, NormPlacement, Positions};
use sigprop::assemble::{Input, Run};
use sigprop::compare::Setting;
use sigprop::recommend::{Demand, Demands, Outcome};
use sigprop::{compare, recommend};
use sigprop_stack::Quantity;

use super::support::sample_stream;

fn small(norm_placement: NormPlacement) -> Setting {
    uniform(shape(norm_placement))
}

fn shape(norm_placement: NormPlacement) -> Architecture {
    let shape = Architecture { n_layers: 6, d_model: 64, n_heads: Some(2), seq_len: 32, ..Architecture::default() };
    Architecture { vocab_size: 1000, norm_placement, ..shape }
}

fn uniform(architecture: Architecture) -> Setting {
    Setting::described(architecture, Input::Uniform, Run::default())
}

/// The number of standard errors by which a sampled value may exceed its limit.
const Z: f64 = 4.0;

/// Growth and token correlation of sampled networks are within the limits, and the correlation is at its limit.
#[test]
fn sampled_networks_keep_to_what_was_demanded() {
    for placement in [NormPlacement::Pre, NormPlacement::Post] {
        let demands = Demands { max_forward_growth: Some(1.5), max_correlation: Some(0.3), ..Demands::default() };
        let recommendation = recommend(&small(placement), &demands, &|| {}).expect("a network");
        assert!(recommendation.is_feasible(), "{placement}: {:?}", recommendation.outcomes);
        let without: Vec<Demand> = recommendation.without.iter().map(|(demand, _)| *demand).collect();
        assert!(!without.is_empty(), "{placement}: nothing is at its limit");

        let sampled = sample_stream(&recommendation.stack, 48).table;
        let [first, last] = ["embeddings", "blocks.5"].map(|site| sampled.site(site).expect("a site"));
        let cell = |row: &sigprop_stack::SiteRow, quantity| *row.get(quantity).expect("a quantity");
        let [start, end] = [first, last].map(|row| cell(row, Quantity::Variance));
        let growth = end.value.ratio(&start.value).ln().abs();
        let error = end.std_error.ratio(&end.value).hypot(start.std_error.ratio(&start.value));
        assert!(growth <= 1.5_f64.ln() + Z * error, "{placement}: ln growth {growth} ± {error}");
        let correlation = cell(last, Quantity::TokenCorrelation);
        let (value, error) = (correlation.value.value(), correlation.std_error.value());
        assert!(value <= 0.3 + Z * error, "{placement}: correlation {value} ± {error}");
    }
}

/// If every position is followed, the network itself is predicted a few times only, not hundreds of times, and still
/// meets the demands.
#[test]
fn causal_networks_take_few_predictions() {
    let setting = uniform(Architecture { causal: true, seq_len: 80, ..shape(NormPlacement::Pre) });
    let predictions = AtomicUsize::new(0);
    let demands = Demands { max_correlation: Some(0.5), ..Demands::default() };
    let recommendation =
        recommend(&setting, &demands, &|| _ = predictions.fetch_add(1, Ordering::Relaxed)).expect("a network");
    assert!(recommendation.is_feasible(), "{:?}", recommendation.outcomes);
    assert!(!recommendation.without.is_empty(), "{:?}", recommendation.outcomes);
    assert!(predictions.into_inner() <= 12, "too many predictions");
}

/// The search uses the mean-field theory, but the demands hold at finite width. Values at their limits are within 3 %
/// of them.
#[test]
fn demands_hold_at_finite_width() {
    for (placement, causal) in [(NormPlacement::Pre, false), (NormPlacement::Pre, true), (NormPlacement::Post, true)] {
        let setting = uniform(Architecture { causal, ..shape(placement) });
        let recommendation = recommend(&setting, &Demands::default(), &|| {}).expect("a network");
        let candidates = compare(&setting, std::slice::from_ref(&recommendation.scheme)).expect("a network");
        let summary = candidates[0].outcome.as_ref().expect("a prediction");
        let outcomes: Vec<Outcome> = Demands::default().all().iter().map(|demand| demand.outcome(summary)).collect();
        assert_eq!(outcomes, recommendation.outcomes, "{placement}, causal {causal}");
        assert!(outcomes.iter().all(Outcome::is_met), "{placement}, causal {causal}: {outcomes:?}");
        assert!(outcomes.iter().any(Outcome::is_binding), "{placement}, causal {causal}: {outcomes:?}");
    }
}

/// Tokens that are all equal cannot be made distinct by any weights.
#[test]
fn what_cannot_be_gives_way() {
    let architecture = Architecture { positions: Positions::None, ..shape(NormPlacement::Pre) };
    let setting = Setting::described(architecture, Input::TokenRepeat(1.0), Run::default());
    // Queries and keys of copies have no gradients that could be balanced.
    let demands = Demands { max_gradient_ratio: None, ..Demands::default() };
    let recommendation = recommend(&setting, &demands, &|| {}).expect("a network");
    let unmet: Vec<Demand> =
        recommendation.outcomes.iter().filter(|outcome| !outcome.is_met()).map(|outcome| outcome.demand).collect();
    assert_eq!(unmet, [Demand::Correlation(0.9)]);
}

/// A plain network that meets all demands keeps its gains, except those of its branches.
#[test]
fn what_is_not_asked_for_is_not_changed() {
    let demands = Demands { max_gradient_ratio: None, max_score_std: Some(2.0), ..Demands::default() };
    let recommendation = recommend(&small(NormPlacement::Pre), &demands, &|| {}).expect("a network");
    let text = recommendation.scheme.to_string();
    let gain = |name: &str| {
        let (_, rest) = text.split_once(&format!("{name}=")).expect("an argument");
        rest.split(',').next().expect("a value").parse::<f64>().expect("a number")
    };
    assert!((gain("qk") - 1.0).abs() < 0.05, "{text}");
}
