//! Schemes that make branches small at the start, and schemes that depend on the width.

use sigprop_stack::{Init, Named, Quantity, ScaleParameter, Stack};

use super::{Role, Scheme, Table, projection};
use crate::architecture::{Activation, Architecture, NormChoice, NormPlacement};
use crate::assemble::{Input, Run, assemble};
use crate::recipe::{Fans, Outer, Residual};
use crate::{Sites, predict};

fn sized(d_model: usize, n_layers: usize) -> Architecture {
    Architecture { d_model, n_layers, activation: Activation::Relu, ..Architecture::default() }
}

fn bare(n_layers: usize) -> Architecture {
    Architecture { norm: Some(NormChoice::None), ..sized(64, n_layers) }
}

fn residual(scheme: &str, architecture: &Architecture) -> Residual {
    super::residual(Scheme::parse(scheme).unwrap().recipe(), &architecture.resolved().unwrap())
}

fn std(scheme: &str, architecture: &Architecture, role: Role) -> f64 {
    projection(scheme, &architecture.resolved().unwrap(), role).weight.std()
}

fn caveat(scheme: &str, architecture: &Architecture) -> Option<String> {
    Scheme::parse(scheme).unwrap().recipe().caveat(&architecture.resolved().unwrap())
}

fn stack(scheme: &str, architecture: &Architecture) -> Stack {
    assemble(architecture, &Scheme::parse(scheme).unwrap(), &Input::Zipf, &Run::default()).unwrap().stack
}

fn assert_near(got: f64, expected: f64) {
    approx::assert_abs_diff_eq!(got, expected, epsilon = 5.1e-6);
}

/// ω to the digits of the project's table of schemes: 6, 12 and 100 blocks have 12, 24 and 200 residual connections.
#[test]
fn admin_weighs_the_skip() {
    for (n_layers, omega) in [(6, 2.017_01), (12, 2.601_29), (100, 6.074_61)] {
        let architecture = Architecture { norm_placement: NormPlacement::Post, ..sized(1024, n_layers) };
        let Residual { skip, branch, .. } = residual("admin", &architecture);
        assert_near(skip, omega);
        assert_near(branch, 1.0);
        assert_eq!(caveat("admin", &architecture), None);
        assert_near(std("admin", &architecture, Role::Value), 0.022_097);
    }
    assert!(caveat("admin", &sized(64, 2)).is_some());
}

/// The paper's 6 + 6 blocks: 0.67 · 6^(−1/4) = 0.428092, 54^(−1/4) = 0.368894.
#[test]
fn t_fixup_values() {
    let encoder = Architecture { decoder: Some(Box::new(bare(6))), ..bare(6) }.resolved().unwrap();
    let decoder = encoder.decoder.as_ref().unwrap();
    let recipe = Scheme::parse("t-fixup").unwrap();
    assert_eq!(recipe.recipe().caveat(&encoder), None);
    for (side, gain) in [(&encoder, 0.428_092), (&**decoder, 0.368_894)] {
        // Xavier's std is 1/8 at width 64.
        for role in [Role::Value, Role::AttentionOutput] {
            assert_near(projection("t-fixup", side, role).weight.std(), gain / 8.0);
        }
        assert_near(projection("t-fixup", side, Role::Query).weight.std(), 0.088_388);
        assert_near(recipe.recipe().embedding(side, Table::Token).std(), 0.368_894 / 8.0);
        assert_near(recipe.recipe().embedding(side, Table::Position).std(), 0.125);
    }
    assert!(caveat("t-fixup", &bare(6)).is_some());
}

/// He's std over fan_out times L^(−1/2) of basic blocks, L^(−1/4) of three layers: 8 blocks have 16 branches.
#[test]
fn fixup_starts_branches_at_zero() {
    let architecture = Architecture { d_model: 128, ..bare(8) };
    assert_near(std("fixup", &architecture, Role::Value), 0.125 / 4.0);
    assert_near(std("fixup", &architecture, Role::FfnIn), 0.0625 / 4.0);
    let gated = Architecture { activation: Activation::Swiglu, ..architecture.clone() };
    assert_near(std("fixup", &gated, Role::FfnUp), 0.0625 / 2.0);
    let resolved = architecture.resolved().unwrap();
    for role in [Role::AttentionOutput, Role::FfnOut] {
        assert_eq!(projection("fixup", &resolved, role).weight, Init::Zero);
    }
    let head = Scheme::parse("fixup").unwrap().recipe().outer(&resolved, Outer::Head, Fans::new(128, 1000));
    assert_eq!(head.weight, Init::Zero);
    assert_eq!(caveat("fixup", &architecture), None);
    assert!(caveat("fixup", &gated).is_some_and(|text| text.contains("ReLU")));
    assert!(caveat("fixup", &sized(64, 2)).is_some_and(|text| text.contains("place of norms")));
}

/// CaiT-S24 has ε = 1e-5.
#[test]
fn learned_scales_start_where_they_are_said_to() {
    assert_near(residual("rezero", &bare(12)).branch, 0.0);
    assert_near(residual("skipinit", &bare(12)).branch, 0.0);
    assert_eq!(
        residual("layerscale:1e-5", &sized(384, 24)),
        Residual { skip: 1.0, branch: 1e-5, parameter: ScaleParameter::PerFeature }
    );
    assert_eq!(
        residual("layerscale", &sized(384, 24)),
        Residual { skip: 1.0, branch: 1e-4, parameter: ScaleParameter::PerFeature }
    );
    for scheme in ["rezero", "skipinit"] {
        assert_eq!(caveat(scheme, &bare(12)), None);
        assert!(caveat(scheme, &sized(64, 12)).is_some_and(|text| text.contains("place of norms")));
        assert!(caveat(scheme, &Architecture::mlp()).is_some());
    }
    assert_eq!(caveat("layerscale", &sized(384, 24)), None);
    assert!(caveat("layerscale", &bare(24)).is_some());
}

/// The gains of all norms, by name.
fn gains(scheme: &str, architecture: &Architecture) -> Vec<(String, f64)> {
    let mut found = Vec::new();
    stack(scheme, architecture).change(|named| {
        if let Named::Norm(name, norm) = named {
            found.push((name, norm.gain));
        }
    });
    found
}

/// 1/√l of blocks 1, 4, 9, 16 of the paper.
#[test]
fn layernorm_scaling_falls_with_the_root_of_the_block() {
    let architecture = sized(64, 16);
    assert_eq!(caveat("ln-scaling", &architecture), None);
    let gains = gains("ln-scaling", &architecture);
    for (block, expected) in [(0, 1.0), (3, 0.5), (8, 1.0 / 3.0), (15, 0.25)] {
        let of_block: Vec<f64> = gains
            .iter()
            .filter(|(name, _)| name.starts_with(&format!("blocks.{block}.")))
            .map(|(_, gain)| *gain)
            .collect();
        assert_eq!(of_block.len(), 2);
        for gain in of_block {
            assert_near(gain, expected);
        }
    }
    assert_near(gains.last().unwrap().1, 1.0);
    assert!(caveat("ln-scaling", &bare(2)).is_some());
}

#[test]
fn zero_gain_is_that_of_the_last_norm() {
    let architecture = Architecture { norm_placement: NormPlacement::Sandwich, ..sized(64, 2) };
    for (name, gain) in gains("zero-gain", &architecture) {
        assert_near(gain, if name.ends_with("output_norm.gain") { 0.0 } else { 1.0 });
    }
    assert_eq!(caveat("zero-gain", &architecture), None);
    assert!(caveat("zero-gain", &sized(64, 2)).is_some());
}

/// Blocks that start as identities pass everything on unchanged, forward and backward.
#[test]
fn identities_are_predicted_as_identities() {
    let reordered = Architecture { norm_placement: NormPlacement::Reordered, ..sized(64, 4) };
    for (scheme, architecture) in
        [("rezero", bare(4)), ("skipinit", bare(4)), ("fixup", bare(4)), ("zero-gain", reordered)]
    {
        let architecture = Architecture { seq_len: 32, ..architecture };
        let table = predict(&stack(scheme, &architecture), Sites::Stream).unwrap().table;
        let blocks: Vec<_> = table.stream_sites().filter(|row| !row.site.starts_with("final")).collect();
        for quantity in [Quantity::Variance, Quantity::GradVariance] {
            let values: Vec<f64> = blocks.iter().map(|row| row.value(quantity).unwrap().value()).collect();
            for value in &values {
                approx::assert_relative_eq!(*value, values[0], max_relative = 1e-12);
            }
        }
    }
}

/// nanoGPT-mup: width 1024 from 256, 12 blocks.
#[test]
fn mup_knows_the_width() {
    let architecture = sized(1024, 12);
    assert_near(std("mup", &architecture, Role::Query), 0.01);
    assert_near(std("mup", &architecture, Role::FfnOut), 0.002_041);
    let resolved = architecture.resolved().unwrap();
    let recipe = Scheme::parse("mup").unwrap();
    assert_near(recipe.recipe().embedding(&resolved, Table::Token).std(), 0.02);
    assert_near(recipe.recipe().outer(&resolved, Outer::Head, Fans::new(1024, 50_000)).weight.std(), 0.005);
    assert!(caveat("mup", &architecture).is_some_and(|text| text.contains("1/d_head")));
}

/// The paper's base of width 256 and 2 blocks: 64 blocks are 32 times as deep.
#[test]
fn completep_divides_branches_by_the_depth() {
    let architecture = sized(1024, 64);
    assert_near(residual("completep", &architecture).branch, 0.031_25);
    assert_near(residual("completep:alpha=0.5", &architecture).branch, 0.176_777);
    for role in [Role::Value, Role::FfnOut] {
        assert_near(std("completep", &architecture, role), 0.01);
    }
    assert!(caveat("completep", &bare(2)).is_some_and(|text| text.contains("start with a norm")));
}
