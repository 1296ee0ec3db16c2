//! The values that schemes write, against formulas and numbers of their sources.

mod language_models;
mod learning_rates;
mod scaled_branches;

use sigprop_stack::Init;

use super::{Recipe, Role, SCHEMES, Scheme, Table};
use crate::architecture::{Activation, Architecture, NormChoice, NormPlacement, Resolved};
use crate::recipe::{Fans, Projection, Residual, Slot};

fn plain() -> Architecture {
    Architecture::default()
}

fn projection(scheme: &str, architecture: &Resolved, role: Role) -> Projection {
    let scheme = Scheme::parse(scheme).unwrap();
    let projections = scheme.recipe().projections(architecture, &|| unreachable!("it follows no signal")).unwrap();
    projections(&Slot { architecture, role, block: 3, fans: fans(architecture, role), cross: false })
}

/// The scales of the residual connection of attention in block 1.
fn residual(recipe: &dyn Recipe, architecture: &Resolved) -> Residual {
    recipe.residuals(architecture, &|| unreachable!("it follows no signal")).unwrap()(2)
}

/// The shape of the matrix with this role in a plain block.
fn fans(architecture: &Resolved, role: Role) -> Fans {
    let width = architecture.d_model;
    match role {
        Role::Key | Role::Value => Fans::new(width, architecture.n_kv_heads * architecture.d_head),
        Role::FfnIn | Role::FfnUp => Fans::new(width, architecture.d_ff),
        Role::FfnOut => Fans::new(architecture.d_ff, width),
        _ => Fans::new(width, width),
    }
}

/// The standard deviation of a weight in block 3.
fn std(scheme: &str, architecture: &Architecture, role: Role) -> f64 {
    projection(scheme, &architecture.resolved().unwrap(), role).weight.std()
}

fn embedding(scheme: &str, table: Table) -> f64 {
    Scheme::parse(scheme).unwrap().recipe().embedding(&plain().resolved().unwrap(), table).std()
}

fn assert_close(got: f64, expected: f64) {
    approx::assert_relative_eq!(got, expected, max_relative = 1e-9);
}

#[test]
fn xavier_has_the_fans_of_each_matrix() {
    for scheme in ["xavier", "xavier-uniform"] {
        assert_close(std(scheme, &plain(), Role::Query), 0.031_25);
        // The reference values' FFN std at width 1024.
        approx::assert_abs_diff_eq!(std(scheme, &plain(), Role::FfnIn), 0.019_764_24, epsilon = 5e-9);
        assert_close(std(scheme, &plain(), Role::FfnOut), (2.0 / 5120f64).sqrt());
        let grouped = Architecture { n_kv_heads: Some(4), ..plain() };
        assert_close(std(scheme, &grouped, Role::Key), (2.0 / 1280f64).sqrt());
        assert_close(embedding(scheme, Table::Token), 0.031_25);
    }
}

/// `xavier_uniform_` of a matrix of 3072 × 1024: bound √(6/4096).
#[test]
fn packed_xavier_has_the_fans_of_three() {
    assert_close(std("xavier-packed", &plain(), Role::Query), (1.0 / 2048f64).sqrt());
    assert_close(std("xavier-packed", &plain(), Role::Value), (1.0 / 2048f64).sqrt());
    assert_close(std("xavier-packed", &plain(), Role::AttentionOutput), 0.031_25);
    approx::assert_abs_diff_eq!(std("xavier-packed", &plain(), Role::FfnIn), 0.019_764_24, epsilon = 5e-9);
}

#[test]
fn kaiming_undoes_the_activation_that_follows() {
    for (activation, gain) in [
        (Activation::Identity, 1.0),
        (Activation::Relu, 2f64.sqrt()),
        (Activation::LeakyRelu, (2.0 / 1.0001f64).sqrt()),
        (Activation::Tanh, 5.0 / 3.0),
        (Activation::Sigmoid, 1.0),
        (Activation::Gelu, 2f64.sqrt()),
        (Activation::Selu, 0.75),
    ] {
        let architecture = Architecture { activation, ..plain() };
        assert_close(std("kaiming", &architecture, Role::FfnIn), gain / 32.0);
        assert_close(std("kaiming", &architecture, Role::FfnOut), 1.0 / 64.0);
        assert_close(std("kaiming", &architecture, Role::Value), 1.0 / 32.0);
    }
    assert_close(std("lecun", &plain(), Role::FfnOut), 1.0 / 64.0);
}

/// √(mean w²) after `nn.init.orthogonal_` of torch 2 with gain 1.4, on weights of 1024 × 256 and 256 × 256.
#[test]
fn orthogonal_has_the_size_of_pytorchs() {
    let narrow = Architecture { d_model: 256, d_ff: Some(1024), n_heads: Some(4), ..plain() };
    let resolved = narrow.resolved().unwrap();
    for (role, expected) in [(Role::FfnIn, 0.043_75), (Role::FfnOut, 0.043_75), (Role::Value, 0.0875)] {
        assert_close(std("orthogonal:1.4", &narrow, role), expected);
        assert!(matches!(projection("orthogonal", &resolved, role).weight, Init::Orthogonal { .. }), "{role:?}");
    }
    assert!(matches!(projection("orthogonal", &resolved, Role::Taps).weight, Init::Normal { .. }));
}

/// `nn.Linear` at fan-in 1024 and 4096: std .018 and .009 as printed by the framework.
#[test]
fn pytorch_packs_queries_keys_and_values() {
    let architecture = plain().resolved().unwrap();
    approx::assert_abs_diff_eq!(std("pytorch", &plain(), Role::FfnIn), 0.018, epsilon = 5e-4);
    approx::assert_abs_diff_eq!(std("pytorch", &plain(), Role::FfnOut), 0.009, epsilon = 5e-4);
    assert_close(std("pytorch", &plain(), Role::Query), (1.0 / 2048f64).sqrt());
    assert_close(std("pytorch", &plain(), Role::AttentionOutput), (1.0 / 3072f64).sqrt());
    let bias = |role| projection("pytorch", &architecture, role).bias;
    assert_eq!(bias(Role::FfnOut), Init::Uniform { bound: 1.0 / 64.0 });
    assert_eq!((bias(Role::Value), bias(Role::AttentionOutput)), (Init::Zero, Init::Zero));
    assert_close(embedding("pytorch", Table::Position), 1.0);
}

#[test]
fn schemes_of_one_distribution_touch_everything() {
    for (scheme, expected) in [
        ("normal:0.02", 0.02),
        ("uniform:1", 1.0 / 3f64.sqrt()),
        // 0.02 times the std of a normal truncated at two standard deviations.
        ("bert", 0.02 * 0.879_625_661_0),
    ] {
        for role in [Role::Query, Role::AttentionOutput, Role::FfnOut, Role::Hidden] {
            assert_close(std(scheme, &plain(), role), expected);
        }
        for table in [Table::Token, Table::Position, Table::Segment] {
            assert_close(embedding(scheme, table), expected);
        }
    }
}

#[test]
fn gpt2_and_megatron_scale_what_writes_to_the_stream() {
    for (scheme, sigma) in [("gpt2", 0.02), ("megatron", 0.02), ("megatron:0.006", 0.006)] {
        for role in [Role::AttentionOutput, Role::FfnOut] {
            assert_close(std(scheme, &plain(), role), sigma / 24f64.sqrt());
        }
        for role in [Role::Query, Role::Key, Role::Value, Role::FfnIn, Role::FfnUp] {
            assert_close(std(scheme, &plain(), role), sigma);
        }
        assert_close(embedding(scheme, Table::Position), sigma);
        assert_close(std(scheme, &Architecture::mlp(), Role::Hidden), sigma);
        let residual = Architecture { residual: Some(true), ..Architecture::mlp() };
        assert_close(std(scheme, &residual, Role::Hidden), sigma / 12f64.sqrt());
    }
}

/// α and β recomputed from the formulas, to the digits of the project's table of schemes.
#[test]
fn deepnorm_values() {
    for (n_layers, alpha, beta) in [
        (12, 2.213_36, 0.319_47),
        (24, 2.632_15, 0.268_64),
        (100, 3.760_60, 0.188_03),
        (200, 4.472_14, 0.158_11),
        (1000, 6.687_40, 0.105_74),
    ] {
        let architecture = Architecture { n_layers, norm_placement: NormPlacement::Post, ..plain() };
        let recipe = Scheme::parse("deepnorm").unwrap();
        let Residual { skip, branch, .. } = residual(recipe.recipe(), &architecture.resolved().unwrap());
        approx::assert_abs_diff_eq!(skip, alpha, epsilon = 5.1e-6);
        assert_close(branch, 1.0);
        for role in [Role::Value, Role::AttentionOutput, Role::FfnIn] {
            let gain = std("deepnorm", &architecture, role) / std("xavier", &architecture, role);
            approx::assert_abs_diff_eq!(gain, beta, epsilon = 5.1e-6);
        }
        assert_close(std("deepnorm", &architecture, Role::Key), std("xavier", &architecture, Role::Key));
    }
}

#[test]
fn schemes_say_where_they_are_not_meant_for() {
    let caveat = |scheme: &str, architecture: Architecture| {
        Scheme::parse(scheme).unwrap().recipe().caveat(&architecture.resolved().unwrap())
    };
    let post = || Architecture { norm_placement: NormPlacement::Post, ..plain() };
    assert_eq!(caveat("deepnorm", post()), None);
    assert!(caveat("deepnorm", plain()).is_some());
    assert!(caveat("deepnorm", Architecture { norm: Some(NormChoice::None), ..post() }).is_some());
    assert!(caveat("deepnorm", Architecture::mlp()).is_some());
    assert_eq!(caveat("dslm-paper", Architecture { activation: Activation::Relu, ..plain() }), None);
    assert!(caveat("dslm-paper", plain()).is_some());
    assert_eq!(caveat("xavier", plain()), None);
}

#[test]
fn every_scheme_is_found_by_the_text_it_prints() {
    for about in SCHEMES {
        let required: Vec<String> = about
            .parameters
            .iter()
            .filter(|parameter| parameter.default.is_none())
            .map(|parameter| format!("{}=0.5", parameter.name))
            .collect();
        let text = [about.name, &required.join(",")].join(if required.is_empty() { "" } else { ":" });
        let printed = Scheme::parse(&text).unwrap().to_string();
        assert_eq!(Scheme::parse(&printed).unwrap().to_string(), printed);
    }
}

#[test]
fn an_unknown_scheme_gets_the_nearest_and_the_list() {
    let got = Scheme::parse("kaming").unwrap_err().to_string();
    assert!(got.starts_with("unknown scheme \"kaming\"; did you mean kaiming?; the schemes are xavier, "), "{got}");
    let got = Scheme::parse("").unwrap_err().to_string();
    assert!(got.starts_with("unknown scheme \"\"; the schemes are "), "{got}");
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "([a-z0-9-]*:)?.*", name in 0..SCHEMES.len()) {
        let _ = (Scheme::parse(&text), Scheme::parse(&format!("{}:{text}", SCHEMES[name].name)));
    }
}
