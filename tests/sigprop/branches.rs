//! Branches of two linear maps in MLPs, x + W₂ φ(W₁ x): predictions compared with sampled networks, and the rules of
//! schemes.

use sigprop::Sites;
use sigprop::architecture::{Architecture, Format};
use sigprop::assemble::{Input, Run, assemble};
use sigprop::schemes::Scheme;
use sigprop_stack::{Named, Stack};

use crate::support::{assert_within, compared};

const SHAPE: &str = "kind = 'mlp'\nresidual = true\nbranch_depth = 2\nn_layers = 8\nd_model = 128\nseq_len = 8\n\
                     activation = 'relu'\n";

/// Eight blocks of width 128, among them branches of width 96. The tolerance is 2 % and four standard errors of 96
/// networks.
#[test]
fn branches_of_two_maps_are_those_of_sampled_networks() {
    const PART: f64 = 0.02;
    for (keys, scheme) in [
        ("d_ff = 96", "kaiming"),
        ("norm = 'layernorm'", "xavier"),
        ("norm_placement = 'post'\nnorm = 'rmsnorm'", "lecun"),
    ] {
        let file = format!("{SHAPE}{keys}");
        let rows = compared(&file, scheme, (&Input::Correlation(0.0), &Run::default()), Sites::Stream, 96);
        assert_within(PART, rows.iter(), 20);
    }
}

fn assembled(scheme: &str) -> Stack {
    let architecture = Architecture::from_file_text(SHAPE, Format::Toml).expect("valid");
    let scheme = Scheme::parse(scheme).expect("known");
    assemble(&architecture, &scheme, &Input::Correlation(0.0), &Run::default()).expect("a stack").stack
}

/// The standard deviation of a weight, and the factor on the branch of block 0.
fn start(scheme: &str, weight: &str) -> (f64, f64) {
    let (mut std, mut factor) = (None, None);
    assembled(scheme).change(|named| match named {
        Named::Tensor(tensor) if tensor.name == weight => std = Some(tensor.init.std()),
        Named::Sum(site, sum) if site == "blocks.0.layer" => factor = Some(sum.branches[1].scale),
        Named::Tensor(_) | Named::Sum(..) | Named::Norm(..) | Named::Attention(_) => {}
    });
    (std.expect("the weight exists"), factor.expect("the branch exists"))
}

/// The rules of three papers. Zhang et al. 2019: L^(−1/(2m − 2)) times He's std for the first of m = 2 maps in L
/// branches, 0 for the last. He et al. 2015: gain √2 where ReLU follows, 1 for the other. Bachlechner et al. 2021:
/// branches of factor 0.
#[test]
fn schemes_know_the_first_map_of_a_branch_from_the_last() {
    let he = (2.0_f64 / 128.0).sqrt();
    for (scheme, weight, std, factor) in [
        ("fixup", "blocks.0.layer.in.weight", he / 8f64.sqrt(), 1.0),
        ("fixup", "blocks.0.layer.out.weight", 0.0, 1.0),
        ("kaiming", "blocks.0.layer.in.weight", he, 1.0),
        ("kaiming", "blocks.0.layer.out.weight", he / 2f64.sqrt(), 1.0),
        ("rezero", "blocks.7.layer.out.weight", start("rezero", "blocks.7.layer.out.weight").0, 0.0),
    ] {
        let got = start(scheme, weight);
        approx::assert_relative_eq!(got.0, std, max_relative = 1e-12);
        approx::assert_relative_eq!(got.1, factor);
    }
}

#[test]
fn branches_of_two_maps_need_residual_connections_in_an_mlp() {
    for file in
        ["branch_depth = 2", "kind = 'mlp'\nbranch_depth = 2", "kind = 'mlp'\nresidual = true\nbranch_depth = 3"]
    {
        let architecture = Architecture::from_file_text(file, Format::Toml).expect("valid");
        let error = architecture.resolved().expect_err("refused").to_string();
        assert!(error.starts_with("branch_depth must be "), "{error}");
    }
}
