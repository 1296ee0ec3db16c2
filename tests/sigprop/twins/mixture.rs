use sigprop::agreement::{Compared, compare};
use sigprop::{Options, Sites, Theory, predict};
use sigprop_stack::{
    Activation, Gaussian, Mixture, Multiplied, Node, NormKind, Op, Product, Quantity, Source, Weighting,
};

use crate::support::{
    activation, assert_twin, assert_twin_but_for, assert_within, linear, norm, sample, stack, tensor,
};

/// Two of four experts, weighted as in the library's mixtures; the router's scores have a variance of ½. Tokens that
/// are almost copies still go to different experts.
#[test]
fn chosen_experts() {
    for (weighting, normalised) in [
        (Weighting::Softmax, true),
        (Weighting::Softmax, false),
        (Weighting::Sigmoid, true),
        (Weighting::Sparsemixer, false),
    ] {
        let mixture = Mixture {
            n_experts: 4,
            top_k: 2,
            weighting,
            weights_multiply: Multiplied::Outputs,
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
            let stack = stack(Source::Gaussian(source), 6, body.clone());
            assert_twin(&stack, 300);
        }
    }
}

/// Experts of Llama 4, which read inputs that are multiplied by their weights. The scores have a variance of 2, so that
/// weights lie between 0.5 and 1.
#[test]
fn weights_that_multiply_inputs() {
    for (top_k, correlation) in [(1, 0.3), (2, 0.3), (1, 0.95)] {
        let source = Gaussian { width: 128, mean: 0.0, variance: 1.0, correlation };
        let mixture = of_inputs(top_k, Activation::Silu, Multiplied::Inputs);
        let body = vec![norm("norm", NormKind::RmsNorm), Node::new("experts", Op::Mixture(mixture))];
        assert_twin_but_for(&["weighed_inputs"], &stack(Source::Gaussian(source), 6, body), 200);
    }
}

fn of_inputs(top_k: usize, activation: Activation, weights_multiply: Multiplied) -> Mixture {
    let gate = vec![linear("gate", 128, 256, 2.0), self::activation("activation", activation)];
    let gated = Product { factors: vec![gate, vec![linear("up", 128, 256, 2.0)]] };
    Mixture {
        n_experts: 4,
        top_k,
        weighting: Weighting::Sigmoid,
        weights_multiply,
        normalised: false,
        scale: 1.0,
        router: tensor("router", (2.0f64 / 128.0).sqrt()),
        expert: vec![Node::new("gated", Op::Product(gated)), linear("out", 256, 128, 1.0)],
    }
}

/// A network of ReLUs without biases multiplies its output by the factor on its input, so that weights may act on either
/// side. With weights of inputs, three numbers represent the weights of all experts.
#[test]
fn weights_may_act_on_either_side_of_ramps() {
    let second_moments = |weights_multiply| {
        let source = Gaussian { width: 128, mean: 0.0, variance: 1.0, correlation: 0.3 };
        let expert = vec![linear("in", 128, 256, 1.0), activation("activation", Activation::Relu)];
        let expert = expert.into_iter().chain([linear("out", 256, 128, 1.0)]).collect();
        let mixture = Mixture { expert, ..of_inputs(2, Activation::Silu, weights_multiply) };
        let mut stack = stack(Source::Gaussian(source), 6, vec![Node::new("experts", Op::Mixture(mixture))]);
        stack.gradient.correlation = 0.5;
        let options = Options { theory: Theory::MeanField, ..Options::from(Sites::Stream) };
        predict(&stack, options).expect("a prediction").table
    };
    let [outputs, inputs] = [Multiplied::Outputs, Multiplied::Inputs].map(second_moments);
    for quantity in [Quantity::Variance, Quantity::TokenCorrelation, Quantity::GradVariance] {
        for (one, other) in outputs.sites.iter().zip(&inputs.sites) {
            let [one, other] = [one, other].map(|row| row.value(quantity).expect("a value").value());
            approx::assert_relative_eq!(one, other, max_relative = 1e-3, epsilon = 1e-9);
        }
    }
    for (one, other) in outputs.weights.iter().zip(&inputs.weights) {
        assert_eq!(one.tensor, other.tensor);
        let [one, other] = [one, other].map(|row| row.grad_second_moment.value.value());
        approx::assert_relative_eq!(one, other, max_relative = 1e-3);
    }
}

/// Gated experts of width 64 before a norm, which removes the gradient along the output. The gradient of an expert has
/// lost part of its component along the output of this expert, and the router collects the remainder. The norm divides
/// by the fluctuating lengths of experts and of their weights. Without these effects, gradients at the experts are
/// predicted 18 % too small, of the router 71 % too large (sigmoid), and of the last map 14 % too small (all). The
/// tolerance is 7 % for terms of second order: with one expert, which is a plain gated network, the gate is 6.5 % off.
/// Not reached (expected failure): gradients of routers before a norm are predicted 60 % too large.
#[test]
#[should_panic(expected = "numbers")]
fn what_lies_along_the_output() {
    const REPLICATES: usize = 3000;
    const WIDTH: usize = 64;
    const NEGLECTED: f64 = 0.07;
    for (top_k, weighting, normalised) in
        [(1, Weighting::Softmax, true), (2, Weighting::Softmax, true), (2, Weighting::Sigmoid, false)]
    {
        let gate = vec![linear("gate", WIDTH, 2 * WIDTH, 1.0), activation("activation", Activation::Silu)];
        let gated = Product { factors: vec![gate, vec![linear("up", WIDTH, 2 * WIDTH, 1.0)]] };
        let expert = vec![Node::new("gated", Op::Product(gated)), linear("out", 2 * WIDTH, WIDTH, 1.0)];
        let router = tensor("router", (WIDTH as f64).sqrt().recip());
        let mixture = Mixture {
            n_experts: 4,
            top_k,
            weighting,
            weights_multiply: Multiplied::Outputs,
            normalised,
            scale: 1.0,
            router,
            expert,
        };
        let body = vec![
            norm("norm", NormKind::RmsNorm),
            Node::new("experts", Op::Mixture(mixture)),
            norm("output_norm", NormKind::LayerNorm),
        ];
        let source = Source::Gaussian(Gaussian { width: WIDTH, mean: 0.0, variance: 1.0, correlation: 0.3 });
        let stack = stack(source, 6, body);
        let predicted = predict(&stack, Sites::All).expect("a prediction").table;
        let rows = compare(&predicted, &sample(&stack, REPLICATES).table, REPLICATES);
        let is_gradient =
            |quantity| matches!(quantity, Compared::Site(Quantity::GradVariance) | Compared::WeightGradient);
        assert_within(NEGLECTED, rows.iter().filter(|row| is_gradient(row.quantity)), 14);
    }
}

/// Tokens that happen to be correlated go to the same experts, so the gradients of these experts and of the router are
/// larger. Without this effect, they are predicted 13 and 21 % too small. The outputs of two tokens have a correlation
/// of 0.005. The tolerance is 3.5 %, because the router is 3 % off through terms of second order.
#[test]
fn alike_tokens_are_sent_together() {
    const REPLICATES: usize = 600;
    const WIDTH: usize = 64;
    const NEGLECTED: f64 = 0.035;
    let expert = vec![
        linear("in", WIDTH, 2 * WIDTH, 0.1),
        activation("activation", Activation::Tanh),
        linear("out", 2 * WIDTH, WIDTH, 1.0),
    ];
    let router = tensor("router", 0.01);
    let (weighting, normalised) = (Weighting::Softmax, false);
    let mixture = Mixture {
        n_experts: 8,
        top_k: 4,
        weighting,
        weights_multiply: Multiplied::Outputs,
        normalised,
        scale: 1.0,
        router,
        expert,
    };
    let source = Source::Gaussian(Gaussian { width: WIDTH, mean: 0.0, variance: 1.0, correlation: 0.0 });
    let mut stack = stack(source, 48, vec![Node::new("experts", Op::Mixture(mixture))]);
    stack.gradient.correlation = 0.6;
    let predicted = predict(&stack, Sites::All).expect("a prediction").table;
    let rows = compare(&predicted, &sample(&stack, REPLICATES).table, REPLICATES);
    assert_within(NEGLECTED, rows.iter().filter(|row| row.quantity == Compared::WeightGradient), 3);
    let output =
        rows.iter().find(|row| row.site == "experts" && row.quantity == Compared::Site(Quantity::TokenCorrelation));
    let output = output.expect("told");
    assert!(output.predicted.value() > 0.004, "{output:?}");
    assert!(output.z.is_some_and(|z| z.abs() < 4.0), "{output:?}");
}
