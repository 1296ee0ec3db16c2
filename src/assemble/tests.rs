//! The names, structure and numbers of assembled stacks.

mod layouts;
mod streams;

use sigprop_stack::{EmbeddingTerm, Ids, Init, Node, Op, PowerLaw, Source, Stack, check};

use super::{AssembleError, Assembled, Input, Run, assemble};
use crate::architecture::{
    Activation, Architecture, DropPathSchedule, Head, InitTable, NormChoice, NormPlacement, Positions,
};
use crate::schemes::{SCHEMES, Scheme};

const TRAIN: Run = Run { train: true, grad_correlation: 0.0, decoder_input: None, loss_at: None };

/// Two blocks of width 8.
fn small() -> Architecture {
    let shape = Architecture { n_layers: 2, d_model: 8, n_heads: Some(2), seq_len: 16, ..Architecture::default() };
    let init = InitTable::everywhere(Init::Normal { std: 0.02 });
    Architecture { vocab_size: 50, hf_init: Some(init), ..shape }
}

fn assembled(architecture: &Architecture, scheme: &str, input: &Input, run: &Run) -> Assembled {
    assemble(architecture, &Scheme::parse(scheme).unwrap(), input, run).unwrap()
}

fn stack(architecture: &Architecture) -> Stack {
    assembled(architecture, "xavier", &Input::Zipf, &Run::default()).stack
}

fn message(architecture: &Architecture, scheme: &str, input: &Input) -> String {
    assemble(architecture, &Scheme::parse(scheme).unwrap(), input, &Run::default()).unwrap_err().to_string()
}

/// The paths of all nodes.
fn paths(nodes: &[Node]) -> Vec<String> {
    let mut all = Vec::new();
    for node in nodes {
        let inside = match &node.op {
            Op::Apply(_) | Op::Read(_) => Vec::new(),
            Op::Chain(body) => paths(body),
            Op::Sum(sum) => sum.branches.iter().flat_map(|branch| paths(&branch.body)).collect(),
            Op::Product(product) => product.factors.iter().flat_map(|factor| paths(factor)).collect(),
            Op::Concat(concat) => concat.parts.iter().flat_map(|part| paths(&part.body)).collect(),
            Op::Mixture(mixture) => paths(&mixture.expert),
            Op::Recurrence(recurrence) => recurrence.parts().flat_map(|part| paths(part)).collect(),
            Op::Attention(attention) => {
                [&attention.query, &attention.key, &attention.value].into_iter().flat_map(|body| paths(body)).collect()
            }
        };
        all.push(node.name.clone());
        all.extend(inside.into_iter().map(|path| format!("{}.{path}", node.name)));
    }
    all
}

fn block_paths(architecture: &Architecture) -> String {
    let stack = stack(architecture);
    let all = paths(&stack.streams[0].body);
    let inside = all.iter().filter_map(|path| path.strip_prefix("blocks.0."));
    inside.collect::<Vec<_>>().join(" ")
}

const HEADS: &str = "attention.heads attention.heads.query attention.heads.key attention.heads.value";

#[test]
fn the_stream_has_the_documented_sites() {
    let sites = |architecture: &Architecture| {
        let stack = stack(architecture);
        stack.streams[0].body.iter().map(|node| node.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(sites(&small()), ["embeddings", "blocks.0", "blocks.1", "final_norm"]);
    let post = Architecture { norm_placement: NormPlacement::Post, ..small() };
    assert_eq!(sites(&post), ["embeddings", "blocks.0", "blocks.1"]);
}

#[test]
fn blocks_have_the_documented_nodes() {
    let ffn = "ffn.in ffn.activation ffn.out";
    let pre = format!("attention attention.norm {HEADS} attention.output ffn ffn.norm {ffn}");
    assert_eq!(block_paths(&small()), pre);
    let post = Architecture { norm_placement: NormPlacement::Post, ..small() };
    let expected = format!("attention {HEADS} attention.output attention_norm ffn {ffn} ffn_norm");
    assert_eq!(block_paths(&post), expected);
    let none = Architecture { norm: Some(NormChoice::None), activation: Activation::Swiglu, ..small() };
    let gated = "ffn.gated ffn.gated.gate ffn.gated.activation ffn.gated.up ffn.out";
    assert_eq!(block_paths(&none), format!("attention {HEADS} attention.output ffn {gated}"));
    let mlp = Architecture { norm: Some(NormChoice::Rmsnorm), ..Architecture::mlp() };
    assert_eq!(block_paths(&mlp), "norm linear activation");
    let residual = Architecture { residual: Some(true), ..mlp };
    assert_eq!(block_paths(&residual), "layer layer.norm layer.linear layer.activation");
}

#[test]
fn dropout_is_there_in_training_only() {
    let architecture = Architecture {
        dropout: 0.1,
        attention_dropout: 0.2,
        drop_path: 0.3,
        embedding_norm: true,
        segments: true,
        ..small()
    };
    let dropped = |run: &Run| {
        let stack = assembled(&architecture, "xavier", &Input::Zipf, run).stack;
        let json = serde_json::to_string(&stack).unwrap();
        let names = paths(&stack.streams[0].body);
        let dropouts: Vec<String> = names.into_iter().filter(|path| path.ends_with("dropout")).collect();
        (dropouts, json.matches("\"dropout_rate\":0.2").count(), json.matches("\"drop_rate\":0.3").count())
    };
    assert_eq!(dropped(&Run::default()), (Vec::new(), 0, 0));
    let (dropouts, attentions, paths) = dropped(&TRAIN);
    let block = ["attention.dropout", "ffn.dropout"];
    let expected = ["blocks.0", "blocks.1"].iter().flat_map(|name| block.map(|path| format!("{name}.{path}")));
    assert_eq!(dropouts, ["embeddings.dropout".to_owned()].into_iter().chain(expected).collect::<Vec<_>>());
    assert_eq!((attentions, paths), (2, 4));
}

/// Huang et al. 2016, eq. 4: block l of L is dropped with probability p l/L.
#[test]
fn stochastic_depth_grows_with_depth() {
    let architecture = Architecture { drop_path: 0.3, drop_path_schedule: DropPathSchedule::Linear, ..small() };
    let json = serde_json::to_string(&assembled(&architecture, "xavier", &Input::Zipf, &TRAIN).stack).unwrap();
    for rate in ["0.15", "0.3"] {
        assert_eq!(json.matches(&format!("\"drop_rate\":{rate},")).count(), 2, "{rate}");
    }
}

#[test]
fn tensors_are_named_after_their_sites() {
    let architecture = Architecture { activation: Activation::Reglu, segments: true, ..small() };
    let json = serde_json::to_string(&stack(&architecture)).unwrap();
    for name in [
        "embeddings.token",
        "embeddings.position",
        "embeddings.segment",
        "blocks.1.attention.heads.query.weight",
        "blocks.1.attention.output.bias",
        "blocks.0.ffn.gated.gate.weight",
        "blocks.0.ffn.out.bias",
    ] {
        assert!(json.contains(&format!("\"{name}\"")), "{name} is missing");
    }
}

#[test]
fn every_scheme_on_every_network_passes_the_check() {
    for scheme in (0..SCHEMES.len()).map(scheme) {
        for activation in Activation::WORDS {
            // Encoders have no batchnorm.
            for norm in NormChoice::WORDS.iter().filter(|&&norm| norm != NormChoice::Batchnorm.name()) {
                for placement in ["pre", "post"] {
                    let architecture = Architecture {
                        activation: activation.parse().unwrap(),
                        norm: Some(norm.parse().unwrap()),
                        norm_placement: placement.parse().unwrap(),
                        dropout: 0.1,
                        ..small()
                    };
                    for run in [Run::default(), TRAIN] {
                        let stack = assembled(&architecture, &scheme, &Input::Correlation(0.2), &run).stack;
                        assert_eq!(check(&stack), Ok(()), "{scheme} {activation} {norm} {placement}");
                    }
                }
            }
        }
    }
}

#[test]
fn inputs_become_sources() {
    let exponent =
        |input: &Input| match assembled(&small(), "xavier", input, &Run::default()).stack.streams[0].source.clone() {
            Source::Embedding(embedding) => match embedding.ids {
                Ids::PowerLaw(law) => law.exponent,
                Ids::Given(_) => f64::NAN,
            },
            Source::Gaussian(_) => f64::NAN,
        };
    approx::assert_relative_eq!(exponent(&Input::Zipf), 1.0);
    approx::assert_relative_eq!(exponent(&Input::Uniform), 0.0);
    for probability in [1.0 / 50.0, 0.03, 0.3, 0.99, 1.0] {
        let ids = PowerLaw { vocab_size: 50, exponent: exponent(&Input::TokenRepeat(probability)) };
        approx::assert_relative_eq!(ids.repeat_probability(2), probability, max_relative = 1e-12);
    }
    let got = message(&small(), "xavier", &Input::TokenRepeat(0.01));
    assert_eq!(got, "token repeat probability must be between 1/vocab_size = 0.02 and 1, got 0.01");
    assert!(message(&small(), "xavier", &Input::TokenRepeat(f64::NAN)).ends_with("got NaN"));
    assert_eq!(message(&small(), "xavier", &Input::Correlation(1.5)), "input correlation must be in [0, 1], got 1.5");
    assert!(message(&Architecture::mlp(), "xavier", &Input::Uniform).starts_with("input must be a correlation"));
}

#[test]
fn correlated_vectors_have_the_variance_of_the_embeddings() {
    let variance = |architecture: &Architecture, scheme, run| match assembled(
        architecture,
        scheme,
        &Input::Correlation(0.2),
        &run,
    )
    .stack
    .streams[0]
        .source
    {
        Source::Gaussian(gaussian) => gaussian.variance,
        Source::Embedding(_) => f64::NAN,
    };
    let architecture = Architecture { dropout: 0.1, segments: true, ..small() };
    approx::assert_relative_eq!(variance(&architecture, "normal:0.5", Run::default()), 0.75, max_relative = 1e-12);
    approx::assert_relative_eq!(variance(&architecture, "dslm", Run::default()), 0.9, max_relative = 1e-12);
    approx::assert_relative_eq!(variance(&architecture, "dslm", TRAIN), 1.0, max_relative = 1e-12);
    let sinusoidal = Architecture { positions: Positions::Sinusoidal, ..architecture };
    approx::assert_relative_eq!(variance(&sinusoidal, "dslm", TRAIN), 1.0, max_relative = 1e-12);
    approx::assert_relative_eq!(variance(&Architecture::mlp(), "normal:0.5", TRAIN), 1.0);
}

#[test]
fn what_is_computed_as_something_else_has_a_caveat() {
    let texts = |architecture: Architecture, scheme: &str| {
        let caveats = assembled(&architecture, scheme, &Input::Zipf, &Run::default()).caveats;
        caveats.into_iter().map(|caveat| caveat.text()).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(texts(Architecture { head: Head::Tied, ..small() }, "xavier"), "");
    let causal = Architecture { causal: true, positions: Positions::Rotary, ..small() };
    assert_eq!(texts(causal.clone(), "xavier"), "");
    let got = texts(causal, "deepnorm");
    assert!(got.starts_with("DeepNorm is defined for Transformers that normalise"), "{got}");
}

#[test]
fn scales_of_the_architecture_replace_those_of_the_scheme() {
    let scales = |architecture: &Architecture| {
        let stack = assembled(architecture, "dslm", &Input::Zipf, &Run::default()).stack;
        let Op::Chain(block) = &stack.streams[0].body[1].op else { unreachable!("a block is a chain") };
        let Op::Sum(sum) = &block[0].op else { unreachable!("attention is a sum") };
        (sum.branches[0].scale, sum.branches[1].scale)
    };
    // n = 4 residual connections: branch_scale² = 2/4.
    assert_eq!(scales(&small()), (0.5f64.sqrt(), 0.5f64.sqrt()));
    assert_eq!(scales(&Architecture { branch_scale: Some(0.1), ..small() }), (0.5f64.sqrt(), 0.1));
}

#[test]
fn a_scheme_that_is_not_defined_says_so() {
    let got = message(&Architecture::mlp(), "dslm", &Input::Zipf);
    assert_eq!(got, "scheme dslm needs the attention and feed-forward branches of an encoder, got an MLP");
    let got = message(&small(), "dslm:k=5", &Input::Zipf);
    assert_eq!(got, "scheme dslm needs branch_scale² = k/n^alpha of at most 1, got 1.25 with n = 4");
    let run = Run { grad_correlation: -0.5, ..Run::default() };
    let error = assemble(&small(), &Scheme::parse("xavier").unwrap(), &Input::Zipf, &run).unwrap_err();
    assert!(matches!(error, AssembleError::Input { field: "grad_correlation", .. }));
}

/// The error is not reached: the rules take a LayerNorm of one feature as a wide one.
#[test]
#[should_panic(expected = "Ok")]
fn dslm_without_a_signal_is_an_error() {
    let architecture = Architecture { n_layers: 2, d_model: 1, seq_len: 1, vocab_size: 1, ..Architecture::default() };
    let scheme = Scheme::parse("dslm").unwrap();
    let error = assemble(&architecture, &scheme, &Input::Zipf, &Run::default()).unwrap_err();
    assert!(error.to_string().contains("lets a signal through"), "{error}");
}

#[test]
fn sinusoids_have_the_amplitude_of_the_scheme() {
    let scale = |scheme| {
        let architecture = Architecture { positions: Positions::Sinusoidal, ..small() };
        match assembled(&architecture, scheme, &Input::Zipf, &TRAIN).stack.streams.remove(0).source {
            Source::Embedding(embedding) => match embedding.terms[1] {
                EmbeddingTerm::SinusoidalPosition { scale } => scale,
                _ => f64::NAN,
            },
            Source::Gaussian(_) => f64::NAN,
        }
    };
    assert_eq!((scale("xavier"), scale("dslm")), (1.0, 1.0));
}

/// A scheme by its index, with its required arguments.
fn scheme(index: usize) -> String {
    let about = SCHEMES[index];
    let required: Vec<String> = about
        .parameters
        .iter()
        .filter(|parameter| parameter.default.is_none())
        .map(|parameter| format!("{}=0.5", parameter.name))
        .collect();
    if required.is_empty() { about.name.to_owned() } else { format!("{}:{}", about.name, required.join(",")) }
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(1), ..proptest::test_runner::Config::with_cases(300) })]

    #[test]
    fn what_is_assembled_passes_the_check(
        (n_layers, d_model, seq_len, vocab_size) in (1..4usize, 1..9usize, 1..6usize, 1..4usize),
        (index, activation, norm, placement) in (0..SCHEMES.len(), 0..16usize, 0..3usize, 0..2usize),
        (mlp, train, drop, input) in (proptest::bool::ANY, proptest::bool::ANY, 0.0..0.999f64, 0..4usize),
        number in 0.0..=1.0f64,
    ) {
        let architecture = Architecture {
            n_layers,
            d_model,
            seq_len,
            vocab_size,
            activation: Activation::WORDS[activation].parse().unwrap(),
            norm: Some(NormChoice::WORDS[norm].parse().unwrap()),
            norm_placement: NormPlacement::WORDS[placement].parse().unwrap(),
            dropout: drop,
            attention_dropout: drop,
            drop_path: drop,
            ..if mlp { Architecture::mlp() } else { Architecture::default() }
        };
        let input = [Input::Zipf, Input::Uniform, Input::TokenRepeat(number), Input::Correlation(number)][input].clone();
        let run = Run { train, grad_correlation: number, ..Run::default() };
        if let Ok(assembled) = assemble(&architecture, &Scheme::parse(&scheme(index)).unwrap(), &input, &run) {
            proptest::prop_assert_eq!(check(&assembled.stack), Ok(()));
        }
    }
}
