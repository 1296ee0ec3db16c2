//! Where a rule's validity ends, and only there, the result says so: the site, what is assumed, what was met.

use sigprop::architecture::{Architecture, Format};
use sigprop::assemble::{Input, Run, assemble};
use sigprop::presets::PRESETS;
use sigprop::schemes::Scheme;
use sigprop::{Sites, predict};
use sigprop_stack::{
    Activation, Attention, Component, Embedding, EmbeddingTerm, Gaussian, Ids, Linear, Mask, Mixture, Node, Norm,
    NormKind, Op, PositionBias, PowerLaw, Source, Stack, Weighting,
};

use crate::support::{activation, gaussian_stack, linear, norm, residual, stack, tensor};

/// The caveat with `words` stands at `site` of the first stack, and nowhere in the second.
fn assert_fires(words: &str, site: &str, outside: &Stack, inside: &Stack) {
    let found = |stack: &Stack| {
        let caveats = predict(stack, Sites::Stream).expect("the stack is valid").caveats;
        caveats.into_iter().filter(|caveat| caveat.text.contains(words)).collect::<Vec<_>>()
    };
    let fired = found(outside);
    assert_eq!(fired.len(), 1, "{words}");
    assert_eq!(fired[0].site, site, "{}", fired[0].text);
    let (_, got) = fired[0].text.rsplit_once(": ").expect("what was met stands behind a colon");
    assert!(!got.is_empty());
    assert_eq!(found(inside), [], "{words}");
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

fn embedded(ids: Ids, terms: Vec<EmbeddingTerm>) -> Source {
    Source::Embedding(Embedding { width: 64, ids, terms })
}

fn tokens() -> EmbeddingTerm {
    EmbeddingTerm::Token { table: tensor("tokens", 1.0) }
}

fn plain(_: &mut Attention) {}

/// Averages of more and more tokens, of which ε leaves the first alone long.
#[test]
fn norms_whose_eps_is_near_the_variance_of_some_tokens() {
    let normed = |eps| {
        let mut stack = attending(gaussian(64, 0.0, 1.0, 0.0), 0.1, |attention| attention.mask = Mask::CAUSAL);
        let end = Norm::plain(NormKind::RmsNorm, eps);
        stack.streams[0].body.push(Node::apply("end", Component::Norm(end)));
        stack
    };
    assert_fires("ε of a norm", "end", &normed(0.3), &normed(1e-6));
}

#[test]
fn narrow_norms() {
    let normed = |width| gaussian_stack(width, 1.0, 4, vec![norm("norm", NormKind::LayerNorm)]);
    assert_fires("order 1/width²", "norm", &normed(12), &normed(64));
}

#[test]
fn norms_that_drift_apart() {
    let layers = |count: usize| {
        let layer =
            |i: usize| [linear(&format!("map{i}"), 128, 128, 2.0), activation(&format!("a{i}"), Activation::Relu)];
        gaussian_stack(128, 1.0, 4, (0..count).flat_map(layer).collect())
    };
    assert_fires("norms of tokens drift apart", "a2", &layers(6), &layers(2));
}

/// Normalised branches of this `scale` beside the stream, each dropped one time in ten.
fn dropping(blocks: usize, scale: f64) -> Stack {
    let block = |i: usize| {
        let branch = vec![norm("norm", NormKind::RmsNorm), linear(&format!("map{i}"), 64, 64, 1.0)];
        residual(&format!("sum{i}"), [1.0, scale], 0.1, branch)
    };
    let last = std::iter::once(norm("norm", NormKind::RmsNorm));
    gaussian_stack(64, 1.0, 4, (0..blocks).map(block).chain(last).collect())
}

/// Ever larger branches, which are too many for each way to keep and drop them to be walked.
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
    assert_fires("a branch that is dropped", "sum4", &growing(30), &growing(3));
}

/// Layers x + φ(W x), each dropped one time in ten.
fn dropping_layers(function: Activation) -> Stack {
    let layer = |block: usize| {
        let map = linear(&format!("map{block}"), 64, 64, 1.0);
        let name = format!("layer{block}");
        residual(&name, [1.0, 1.0], 0.1, vec![map, activation(&format!("activation{block}"), function)])
    };
    gaussian_stack(64, 1.0, 4, (0..6).map(layer).collect())
}

/// A ReLU has a mean and a tanh has none; the masks of the first layers are told apart.
#[test]
fn branches_that_have_means_and_are_dropped() {
    assert_fires("has a mean", "layer3", &dropping_layers(Activation::Relu), &dropping_layers(Activation::Tanh));
}

/// Blocks x + ReLU(W x) of width 64 stray by more than 0.2 from the fourth on, of width 512 by less; tanh has no mean.
#[test]
fn means_that_grow_with_a_stream_that_strays() {
    let layers = |width: usize, function: Activation| {
        let layer = |block: usize| {
            let map = linear(&format!("map{block}"), width, width, 1.0);
            let function = activation(&format!("activation{block}"), function);
            residual(&format!("layer{block}"), [1.0, 1.0], 0.0, vec![map, function])
        };
        gaussian_stack(width, 1.0, 4, (0..8).map(layer).collect())
    };
    let outside = layers(64, Activation::Relu);
    for inside in [layers(512, Activation::Relu), layers(64, Activation::Tanh)] {
        assert_fires("means of branches grow", "layer3", &outside, &inside);
    }
}

/// All three are dropped in one sequence of a thousand, where the norm stretches what is left.
#[test]
fn sequences_that_are_few_and_have_most_of_the_gradients() {
    assert_fires("few sequences, which drop", "sum2", &dropping(3, 100.0), &dropping(3, 1.0));
}

#[test]
fn levels_that_stray() {
    let layers = |width: usize| {
        let layer =
            |i: usize| [linear(&format!("map{i}"), width, width, 2.0), activation(&format!("a{i}"), Activation::Relu)];
        gaussian_stack(width, 1.0, 4, (0..20).flat_map(layer).collect())
    };
    assert_fires("strays by more than the factor e", "map13", &layers(48), &layers(256));
}

#[test]
fn activations_of_what_is_not_gaussian() {
    let twice = |between: Vec<Node>| {
        let first = vec![linear("map", 256, 256, 1.0), activation("first", Activation::Relu)];
        gaussian_stack(256, 1.0, 4, [first, between, vec![activation("second", Activation::Relu)]].concat())
    };
    let through = twice(vec![linear("between", 256, 256, 1.0)]);
    assert_fires("taken as Gaussian with mean 0", "second", &twice(Vec::new()), &through);
}

#[test]
fn norms_of_what_is_all_mean() {
    let of = |variance| stack(gaussian(64, 1.0, variance, 0.0), 4, vec![norm("norm", NormKind::LayerNorm)]);
    assert_fires("all mean leaves rounding", "norm", &of(1e-12), &of(1.0));
}

#[test]
fn norms_of_zero() {
    let of = |eps| {
        let kind = NormKind::RmsNorm;
        let norm = Node::apply("norm", Component::Norm(Norm::plain(kind, eps)));
        gaussian_stack(64, 1.0, 4, vec![linear("map", 64, 64, 0.0), norm])
    };
    assert_fires("divides a zero signal by zero", "norm", &of(0.0), &of(1e-5));
}

#[test]
fn sharp_attention() {
    let at = |score_std| attending(gaussian(64, 0.0, 1.0, 0.3), score_std, plain);
    assert_fires("sharper than the rules were sampled", "heads", &at(20.0), &at(1.0));
    let window = |attention: &mut Attention| attention.mask = Mask { before: Some(4), after: None };
    let at = |score_std| attending(gaussian(64, 0.0, 1.0, 0.3), score_std, window);
    assert_fires("sharper than the rules were sampled", "heads", &at(20.0), &at(1.0));
}

#[test]
fn attention_between_alike_tokens() {
    let of = |correlation| attending(gaussian(64, 0.0, 1.0, correlation), 0.5, plain);
    assert_fires("hang on few directions where tokens are alike", "heads", &of(0.7), &of(0.3));
}

/// Three blocks of causal attention over a stream that is nothing else, of so many features.
#[test]
fn differences_that_stray() {
    let of = |width| {
        let block = |index: usize| {
            let parts =
                ["query", "key", "value"].map(|name| vec![linear(&format!("{name}{index}"), width, width, 1.0)]);
            let mut attention = Attention::plain(2, 2, width / 2, parts);
            attention.mask = Mask::CAUSAL;
            let body = vec![norm("norm", NormKind::RmsNorm), Node::new("heads", Op::Attention(attention))];
            Node::new(format!("blocks.{index}"), Op::Chain(body))
        };
        stack(gaussian(width, 0.0, 1.0, 0.0), 12, (0..3).map(block).collect())
    };
    assert_fires("what tokens differ in strays", "blocks.1.heads", &of(32), &of(512));
}

#[test]
fn scores_that_reach_their_cap() {
    let capped = |cap| {
        let change = move |attention: &mut Attention| attention.softcap = Some(cap);
        attending(gaussian(64, 0.0, 1.0, 0.3), 1.0, change)
    };
    assert_fires("scores reach their cap", "heads", &capped(2.0), &capped(50.0));
}

#[test]
fn learned_relative_positions() {
    let biased = |std| {
        let change = move |attention: &mut Attention| {
            let table = tensor("bias", std);
            attention.bias = Some(PositionBias::Relative { table, buckets: 8, max_distance: 16, bidirectional: true });
        };
        attending(gaussian(64, 0.0, 1.0, 0.3), 1.0, change)
    };
    assert_fires("learned relative positions are left out", "heads", &biased(0.5), &biased(0.1));
}

#[test]
fn segments() {
    let zipf = || Ids::PowerLaw(PowerLaw { vocab_size: 50, exponent: 1.5 });
    let segment = || EmbeddingTerm::Segment { table: tensor("segments", 1.0) };
    let of = |score_std| attending(embedded(zipf(), vec![tokens(), segment()]), score_std, plain);
    assert_fires("make their own segment larger", "heads", &of(2.5), &of(1.0));
}

#[test]
fn few_directions() {
    let behind = |width| {
        let mut stack = attending(gaussian(256, 0.0, 1.0, 0.0), 1.0, plain);
        let stream = &mut stack.streams[0];
        stream.source = gaussian(width, 0.0, 1.0, 0.0);
        stream.body.insert(0, linear("projection", width, 256, 1.0));
        stack
    };
    assert_fires("few directions", "heads", &behind(64), &behind(128));
}

#[test]
fn gates_of_one_expert() {
    let of = |score_std: f64| {
        let router = linear("router", 64, 1, score_std);
        let Op::Apply(Component::Linear(Linear { weight: router, .. })) = router.op else {
            unreachable!("a linear map")
        };
        let mixture = Mixture {
            n_experts: 1,
            top_k: 1,
            weighting: Weighting::Sigmoid,
            normalised: false,
            scale: 1.0,
            router,
            expert: vec![linear("expert", 64, 64, 1.0)],
        };
        let body = vec![norm("norm", NormKind::RmsNorm), Node::new("shared", Op::Mixture(mixture))];
        stack(gaussian(64, 0.0, 1.0, 0.2), 12, body)
    };
    assert_fires("the gate of the shared expert", "shared", &of(1.1), &of(0.5));
}

/// Sharp attention behind sharp attention of four heads, masked and not; one block of it, and score variances of 1, are inside.
#[test]
fn sharp_attention_of_few_heads() {
    let of = |qk: f64, n_layers: usize, causal: bool| {
        let text = format!("n_layers = {n_layers}\nd_model = 256\nn_heads = 4\nseq_len = 128\ncausal = {causal}");
        let architecture = Architecture::from_file_text(&text, Format::Toml).expect("valid");
        let scheme = Scheme::parse(&format!("gains:qk={qk},value=1,ffn=0.3,embedding=0.03,ratio=1")).expect("known");
        assemble(&architecture, &scheme, &Input::Zipf, &Run::default()).expect("a stack").stack
    };
    for causal in [true, false] {
        for (qk, n_layers) in [(1.95, 1), (1.0, 4)] {
            assert_fires(
                SHARP_BEHIND_SHARP,
                "blocks.1.attention.heads",
                &of(1.95, 4, causal),
                &of(qk, n_layers, causal),
            );
        }
    }
}

#[test]
fn narrow_latents() {
    let of = |seq_len: usize| {
        let text = format!(
            "n_layers = 1\nd_model = 256\nn_heads = 4\nseq_len = {seq_len}\ncausal = true\n\
             [latent]\nkv_rank = 64\nd_nope = 32\nd_rope = 16\nd_value = 32\n"
        );
        let architecture = Architecture::from_file_text(&text, Format::Toml).expect("valid");
        let scheme = Scheme::parse("normal:0.05").expect("known");
        assemble(&architecture, &scheme, &Input::Zipf, &Run::default()).expect("a stack").stack
    };
    assert_fires("are made of one latent", "blocks.0.attention.heads", &of(16), &of(4));
}

const SHARP_BEHIND_SHARP: &str = "outputs of sharp attention of few heads";

#[test]
fn presets_are_not_that_sharp() {
    const TOKENS: usize = 32;
    for preset in PRESETS {
        let mut architecture = Architecture { seq_len: TOKENS, ..preset.architecture() };
        if let Some(decoder) = &mut architecture.decoder {
            decoder.seq_len = TOKENS;
        }
        let scheme = Scheme::parse(architecture.scheme.as_deref().expect("presets bring one")).expect("a scheme");
        let stack = assemble(&architecture, &scheme, &Input::Zipf, &Run::default()).expect("a stack").stack;
        let caveats = predict(&stack, Sites::Stream).expect("a prediction").caveats;
        assert!(caveats.iter().all(|caveat| !caveat.text.contains(SHARP_BEHIND_SHARP)), "{}: {caveats:?}", preset.name);
    }
}
