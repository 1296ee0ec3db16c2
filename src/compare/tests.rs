use super::*;
use crate::architecture::{Activation, NormChoice, NormPlacement, Positions};
use crate::assemble::{assemble, with_roles};

/// The setting of the stack that is assembled from an architecture with some scheme.
fn of_stack(architecture: &Architecture) -> Setting {
    let scheme = Scheme::parse("uniform:0.3").expect("a scheme");
    let assembled = assemble(architecture, &scheme, &Input::default(), &Run::default()).expect("a network");
    Setting::from(with_roles(assembled.stack))
}

/// A stack with roles is compared like the architecture from which it was assembled.
#[test]
fn a_stack_is_compared_like_its_architecture() {
    let shape = Architecture { n_layers: 2, d_model: 64, seq_len: 8, vocab_size: 50, ..Architecture::default() };
    let gpt2 = Architecture { causal: true, ..shape.clone() };
    let llama = Architecture {
        activation: Activation::Swiglu,
        norm: Some(NormChoice::Rmsnorm),
        positions: Positions::Rotary,
        embedding_scale: 8.0,
        attention_scale: Some(0.1),
        n_heads: Some(4),
        n_kv_heads: Some(2),
        ..gpt2.clone()
    };
    let bert = Architecture { norm_placement: NormPlacement::Post, segments: true, ..shape.clone() };
    let mlp = Architecture { n_layers: 3, d_model: 64, seq_len: 8, ..Architecture::mlp() };
    for architecture in [&gpt2, &llama, &bert, &mlp] {
        let (setting, of_stack) = (Setting::from(architecture.clone()), of_stack(architecture));
        let schemes = default_schemes(architecture).expect("a network");
        let labels = |schemes: &[Scheme]| schemes.iter().map(Scheme::label).collect::<Vec<_>>();
        let of_outline = default_schemes(&of_stack.architecture()).expect("a network");
        assert_eq!(labels(&of_outline), labels(&schemes));
        let more =
            ["gains:0.5,1.5,1,0.8,0.3", "deepnorm", "hf", "normal:0.1"].map(|text| text.parse().expect("a scheme"));
        let schemes = [schemes, more.to_vec()].concat();
        let [expected, found] = [&setting, &of_stack].map(|setting| compare(setting, &schemes).expect("a network"));
        for (expected, found) in expected.iter().zip(&found) {
            assert_eq!(found.outcome, expected.outcome, "{}", found.scheme);
        }
    }
}

#[test]
fn a_stack_without_roles_is_refused() {
    let Subject::Stack(mut stack) = of_stack(&Architecture::mlp()).subject else { panic!("a stack") };
    stack.roles.clear();
    let scheme = Scheme::parse("xavier").expect("a scheme");
    assert_eq!(compare(&Setting::from(*stack), &[scheme]).expect_err("no roles"), AssembleError::NoRoles);
}
