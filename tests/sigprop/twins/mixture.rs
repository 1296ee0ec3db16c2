use sigprop_stack::{Activation, Mixture, Node, NormKind, Op, Weighting};

use crate::support::{activation, assert_twin, gaussian_stack, linear, norm, tensor};

/// Two of four experts, as the library's mixtures weigh them; the router's scores have a variance of ½.
#[test]
fn chosen_experts() {
    for (weighting, normalised) in [(Weighting::Softmax, true), (Weighting::Softmax, false), (Weighting::Sigmoid, true)]
    {
        let mixture = Mixture {
            n_experts: 4,
            top_k: 2,
            weighting,
            normalised,
            scale: 1.5,
            router: tensor("router", 0.5 / 128.0),
            expert: vec![
                linear("in", 128, 256, 1.0),
                activation("activation", Activation::Gelu),
                linear("out", 256, 128, 1.0),
            ],
        };
        let body = vec![norm("norm", NormKind::RmsNorm), Node::new("experts", Op::Mixture(mixture))];
        assert_twin(&gaussian_stack(128, 1.0, 6, body), 300);
    }
}
