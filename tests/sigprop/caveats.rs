//! A prediction has a caveat exactly where the validity of a rule ends. The caveat names its kind, the site and the
//! value that exceeds the limit.

use sigprop::architecture::Architecture;
use sigprop::assemble::{Input, Run, assemble};
use sigprop::huggingface::{Options, import};
use sigprop::schemes::Scheme;
use sigprop::{CaveatKind, Sites, predict};
use sigprop_stack::{
    Activation, Attention, Component, Decay, Gaussian, Mask, Mixture, Multiplied, Node, Norm, NormKind, Op, Recurrence,
    Scale, Source, Stack, Weighting, Write,
};

use crate::support::{activation, gaussian_stack, linear, norm, residual, stack, tensor};

/// Asserts that the first stack has one caveat of this kind, at `site` and with a size, and the second stack has none.
fn assert_fires(kind: &str, site: &str, outside: &Stack, inside: &Stack) {
    let found = |stack: &Stack| {
        let caveats = predict(stack, Sites::Stream).expect("the stack is valid").caveats;
        caveats.into_iter().filter(|caveat| caveat.kind().name == kind).collect::<Vec<_>>()
    };
    let fired = found(outside);
    assert_eq!(fired.len(), 1, "{kind}");
    assert_eq!(fired[0].site, site, "{}", fired[0].text());
    assert!(fired[0].condition.size().is_some_and(|size| size > 0.0), "{kind}");
    assert_eq!(found(inside), [], "{kind}");
}

/// Names are unique, and every kind has the texts that a reader needs.
#[test]
fn kinds_explain_themselves() {
    let mut names: Vec<&str> = CaveatKind::ALL.iter().map(|kind| kind.name).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
    for CaveatKind { name, quantity, about, advice, .. } in CaveatKind::ALL {
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name}");
        assert!(!quantity.is_empty() && about.ends_with('.') && advice.ends_with('.'), "{name}");
    }
}

fn gaussian(width: usize, mean: f64, variance: f64, correlation: f64) -> Source {
    Source::Gaussian(Gaussian { width, mean, variance, correlation })
}

/// Normalised tokens through heads whose scores have the variance `score_std`².
fn attending(source: Source, score_std: f64, change: impl Fn(&mut Attention)) -> Stack {
    let width = source.width();
    let parts = [
        vec![linear("query", width, width, score_std)],
        vec![linear("key", width, width, score_std)],
        vec![linear("value", width, width, 1.0)],
    ];
    let mut attention = Attention::plain(2, 2, width / 2, parts);
    change(&mut attention);
    let body = vec![
        norm("norm", NormKind::RmsNorm),
        Node::new("heads", Op::Attention(attention)),
        linear("output", width, width, 1.0),
    ];
    stack(source, 12, body)
}

fn plain(_: &mut Attention) {}

/// Normalised branches of this `scale` added to the stream, each dropped with probability 0.1.
fn dropping(blocks: usize, scale: f64) -> Stack {
    let block = |i: usize| {
        let branch = vec![norm("norm", NormKind::RmsNorm), linear(&format!("map{i}"), 64, 64, 1.0)];
        residual(&format!("sum{i}"), [1.0, scale], 0.1, branch)
    };
    let last = std::iter::once(norm("norm", NormKind::RmsNorm));
    gaussian_stack(64, 1.0, 4, (0..blocks).map(block).chain(last).collect())
}

/// Ever larger branches. There are too many combinations of kept and dropped branches to follow each one.
#[test]
fn branches_that_are_most_of_a_stream_and_dropped() {
    let growing = |blocks: usize| {
        let mut stack = dropping(blocks, 2.0);
        for (i, node) in stack.streams[0].body.iter_mut().enumerate() {
            if let Op::Sum(sum) = &mut node.op {
                sum.branches[1].scale = 2.0_f64.powi(i as i32);
            }
        }
        stack
    };
    assert_fires("averaged_branches", "sum4", &growing(30), &growing(3));
}

/// All three branches are dropped in one sequence of a thousand. There the norm scales up the small remaining stream.
#[test]
fn sequences_that_are_few_and_have_most_of_the_gradients() {
    assert_fires("rare_sequences", "sum2", &dropping(3, 100.0), &dropping(3, 1.0));
}

/// Weights between 0.2 and 1, and weights of ½.
#[test]
fn experts_whose_inputs_are_weighed() {
    let experts = |score_std: f64| {
        let mixture = Mixture {
            n_experts: 4,
            top_k: 1,
            weighting: Weighting::Sigmoid,
            weights_multiply: Multiplied::Inputs,
            normalised: false,
            scale: 1.0,
            router: tensor("router", score_std / 8.0),
            expert: vec![linear("in", 64, 64, 1.0), activation("activation", Activation::Relu)],
        };
        gaussian_stack(64, 1.0, 4, vec![Node::new("experts", Op::Mixture(mixture))])
    };
    assert_fires("weighed_inputs", "experts", &experts(1.5), &experts(0.01));
}

/// MLPs whose second moments fluctuate between networks, by a fraction (`second_order`) and by a factor
/// (`infinite_width`).
#[test]
fn signals_that_fluctuate() {
    let layers = |width: usize| {
        let layer =
            |i: usize| [linear(&format!("map{i}"), width, width, 2.0), activation(&format!("a{i}"), Activation::Relu)];
        gaussian_stack(width, 1.0, 4, (0..20).flat_map(layer).collect())
    };
    assert_fires("second_order", "map19", &layers(256), &layers(1024));
    assert_fires("infinite_width", "map19", &layers(48), &layers(256));
}

/// A norm after linear attention with this number of heads, on tokens of this correlation.
fn normed_heads(n_heads: usize, eps: f64, correlation: f64, change: impl Fn(&mut Recurrence)) -> Stack {
    let mut recurrence = Recurrence {
        n_heads,
        n_key_heads: n_heads,
        d_key: 32,
        d_value: 32,
        scale: 1.0 / 32.0,
        decay: Decay::Fixed { rates: vec![0.1; n_heads] },
        write: Write::One,
        delta: false,
        skip: None,
        query: vec![linear("query", 64, 32 * n_heads, 1.0)],
        key: vec![linear("key", 64, 32 * n_heads, 1.0)],
        value: vec![linear("value", 64, 32 * n_heads, 1.0)],
    };
    change(&mut recurrence);
    let norm = Norm::plain(NormKind::RmsNorm, eps);
    let body = vec![
        Node::new("heads", Op::Recurrence(recurrence)),
        Node::apply("norm", Component::Norm(norm)),
        linear("output", 32 * n_heads, 64, 1.0),
    ];
    stack(gaussian(64, 0.0, 1.0, correlation), 16, body)
}

/// Scores of few heads decide about a norm, unless there are many heads, or a skip or ε is nearly all that it divides by.
#[test]
fn norms_of_few_heads() {
    let few = normed_heads(2, 1e-5, 0.5, |_| ());
    assert_fires("few_heads", "norm", &few, &normed_heads(64, 1e-5, 0.5, |_| ()));
    assert_fires("few_heads", "norm", &few, &normed_heads(2, 1e-5, 0.5, |recurrence| recurrence.skip = Some(30.0)));
    assert_fires("few_heads", "norm", &few, &normed_heads(2, 1e3, 0.5, |_| ()));
}

/// A delta rule among correlated tokens and among uncorrelated ones.
#[test]
fn erasing_that_lasts() {
    let erasing = |correlation| {
        normed_heads(64, 1e-5, correlation, |recurrence| {
            recurrence.delta = true;
            recurrence.key.push(Node::apply("key_scale", Component::Scale(Scale { factor: 32f64.powf(-0.5) })));
        })
    };
    assert_fires("long_erasing", "heads", &erasing(0.5), &erasing(0.0));
}

/// Published models start with queries, keys and values so small that ε or the skip decides.
#[test]
#[ignore = "minutes without optimisation"]
fn published_recurrences_have_heads_enough() {
    for model_type in ["qwen3_next", "olmo_hybrid", "falcon_h1"] {
        let config = format!(r#"{{"model_type": "{model_type}", "num_hidden_layers": 2}}"#);
        let imported = import(&config, &Options::default()).expect("the config is valid");
        let architecture = Architecture { seq_len: 8, ..imported.architecture };
        let scheme = Scheme::parse("hf").expect("it is a scheme");
        let assembled = assemble(&architecture, &scheme, &Input::Zipf, &Run::default());
        let stack = assembled.expect("the architecture is valid").stack;
        for caveat in predict(&stack, Sites::Stream).expect("the stack is valid").caveats {
            let name = caveat.kind().name;
            assert!(!["few_heads", "long_erasing"].contains(&name), "{model_type}: {} {}", caveat.site, caveat.text());
        }
    }
}

#[test]
fn activations_of_what_is_not_gaussian() {
    let twice = |between: Vec<Node>| {
        let first = vec![linear("map", 256, 256, 1.0), activation("first", Activation::Relu)];
        gaussian_stack(256, 1.0, 4, [first, between, vec![activation("second", Activation::Relu)]].concat())
    };
    let through = twice(vec![linear("between", 256, 256, 1.0)]);
    assert_fires("mean_at_activation", "second", &twice(Vec::new()), &through);
}

/// A norm without ε maps zero to NaN. The error names the site.
#[test]
fn norms_of_zero() {
    let of = |eps| {
        let kind = NormKind::RmsNorm;
        let norm = Node::apply("norm", Component::Norm(Norm::plain(kind, eps)));
        gaussian_stack(64, 1.0, 4, vec![linear("map", 64, 64, 0.0), norm])
    };
    let error = predict(&of(0.0), Sites::Stream).expect_err("zero by zero").to_string();
    assert!(error.contains("map"), "{error}");
    predict(&of(1e-5), Sites::Stream).expect("a prediction");
}

#[test]
fn sharp_attention() {
    let at = |score_std| attending(gaussian(64, 0.0, 1.0, 0.3), score_std, plain);
    assert_fires("sharp_attention", "heads", &at(20.0), &at(1.0));
    let window = |attention: &mut Attention| attention.mask = Mask { before: Some(4), after: None };
    let at = |score_std| attending(gaussian(64, 0.0, 1.0, 0.3), score_std, window);
    assert_fires("sharp_attention", "heads", &at(20.0), &at(1.0));
}

/// Streams that consist mostly of outputs of causal attention, and sharp scores computed from them.
#[test]
fn sharp_scores_of_averages() {
    let at = |qk: &str| {
        let architecture = Architecture {
            n_layers: 4,
            d_model: 256,
            n_heads: Some(4),
            seq_len: 128,
            causal: true,
            ..Architecture::default()
        };
        let scheme = Scheme::parse(&format!("gains:qk={qk},value=1,ffn=0.3,embedding=0.03,ratio=1")).expect("known");
        assemble(&architecture, &scheme, &Input::Zipf, &Run::default()).expect("a stack").stack
    };
    assert_fires("smooth_scores", "blocks.3.attention.heads", &at("1.95"), &at("1"));
}
