use sigprop_stack::{Activation, Gaussian, Mixture, Node, NormKind, Op, Source, Weighting};

use crate::support::{activation, assert_twin, linear, norm, stack, tensor};

/// Two of four experts, as the library's mixtures weigh them; the router's scores have a variance of ½. Tokens that are
/// almost copies go to other experts all the same.
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
        for correlation in [0.3, 0.95] {
            let source = Gaussian { width: 128, mean: 0.0, variance: 1.0, correlation };
            assert_twin(&stack(Source::Gaussian(source), 6, body.clone()), 300);
        }
    }
}
