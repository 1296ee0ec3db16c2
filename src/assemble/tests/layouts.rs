//! The layouts of model families: the contents of their stacks, which pass the check.

use sigprop_stack::{Attention, Component, Mask, Multiplied, Node, Op, PositionBias, Stream, Weighting, check};

use super::streams::two_streams;
use super::*;
use crate::architecture::{Experts, Latent, Parallel, QkNorm, Stem};

/// The stack under the scheme `hf`, checked.
pub(super) fn checked(architecture: &Architecture, run: &Run) -> Stack {
    let stack = assemble(architecture, &Scheme::parse("hf").unwrap(), &Input::Zipf, run).unwrap().stack;
    assert_eq!(check(&stack), Ok(()));
    stack
}

fn block(architecture: &Architecture) -> String {
    checked(architecture, &TRAIN);
    block_paths(architecture)
}

/// The attention at `branch` of block `index`.
pub(super) fn attention(stream: &Stream, index: usize, branch: &str) -> Attention {
    fn find(nodes: &[Node]) -> Option<&Attention> {
        nodes.iter().find_map(|node| match &node.op {
            Op::Attention(attention) => Some(attention),
            Op::Chain(body) => find(body),
            Op::Sum(sum) => sum.branches.iter().find_map(|branch| find(&branch.body)),
            Op::Apply(_) | Op::Product(_) | Op::Concat(_) | Op::Recurrence(_) | Op::Mixture(_) | Op::Read(_) => None,
        })
    }
    let sub_layers = match &stream.body[1 + index].op {
        Op::Chain(body) => body.clone(),
        Op::Sum(sum) => sum.branches.iter().flat_map(|branch| branch.body.clone()).collect(),
        _ => Vec::new(),
    };
    let sub_layer = sub_layers.into_iter().find(|node| node.name == branch).expect("a branch of this name");
    find(&[sub_layer]).expect("a branch with attention").clone()
}

pub(super) fn names(nodes: &[Node]) -> Vec<&str> {
    nodes.iter().map(|node| node.name.as_str()).collect()
}

#[test]
fn norms_stand_where_the_placement_says() {
    let ffn = "ffn.in ffn.activation";
    let placed = |norm_placement| block(&Architecture { norm_placement, ..small() });
    assert_eq!(
        placed(NormPlacement::Sandwich),
        format!(
            "attention attention.norm {HEADS} attention.output attention.output_norm ffn ffn.norm {ffn} ffn.out \
             ffn.output_norm"
        )
    );
    assert_eq!(
        placed(NormPlacement::Reordered),
        format!("attention {HEADS} attention.output attention.output_norm ffn {ffn} ffn.out ffn.output_norm")
    );
    assert_eq!(
        placed(NormPlacement::Sub),
        format!(
            "attention attention.norm {HEADS} attention.inner_norm attention.output ffn ffn.norm {ffn} ffn.inner_norm \
             ffn.out"
        )
    );
    let from_norm = block(&Architecture { skip_from_norm: true, ..small() });
    let expected = format!("attention_norm attention {HEADS} attention.output ffn_norm ffn {ffn} ffn.out");
    assert_eq!(from_norm, expected);
    let unnormed = block(&Architecture { first_norm: false, ..small() });
    assert_eq!(unnormed, format!("attention {HEADS} attention.output ffn ffn.norm {ffn} ffn.out"));
}

#[test]
fn parallel_branches_are_three_terms_of_a_sum() {
    for parallel in [Parallel::SharedNorm, Parallel::OwnNorms] {
        let architecture = Architecture { parallel, positions: Positions::Rotary, causal: true, ..small() };
        let inside = "ffn ffn.norm ffn.in ffn.activation ffn.out";
        let rotary = "attention.heads attention.heads.query attention.heads.query_rotary attention.heads.key \
                      attention.heads.key_rotary attention.heads.value";
        let expected = format!("attention attention.norm {rotary} attention.output {inside}");
        assert_eq!(block(&architecture), expected);
        let stack = checked(&architecture, &Run::default());
        let Op::Sum(sum) = &stack.streams[0].body[1].op else { panic!("a parallel block is a sum") };
        assert_eq!(sum.branches.len(), 3);
    }
}

#[test]
fn queries_and_keys_are_normalised_then_rotated() {
    let architecture = Architecture {
        n_kv_heads: Some(1),
        d_head: Some(6),
        qk_norm: QkNorm::Head,
        positions: Positions::Rotary,
        rotary_dim: Some(4),
        ..small()
    };
    let heads = attention(&checked(&architecture, &TRAIN).streams[0], 0, "attention");
    assert_eq!(names(&heads.query), ["query", "query_norm", "query_rotary"]);
    assert_eq!(names(&heads.key), ["key", "key_norm", "key_rotary"]);
    let groups = |node: &Node| match &node.op {
        Op::Apply(Component::Norm(norm)) => norm.groups,
        _ => 0,
    };
    assert_eq!((groups(&heads.query[1]), groups(&heads.key[1])), (2, 1));
    let Op::Apply(Component::Rotary(rotary)) = &heads.key[2].op else { panic!("keys are rotated") };
    assert_eq!((rotary.d_head, rotary.frequencies.len()), (6, 2));
    approx::assert_relative_eq!(heads.scale, 6f64.powf(-0.5));
    let whole = Architecture { qk_norm: QkNorm::Projection, ..architecture };
    let heads = attention(&checked(&whole, &TRAIN).streams[0], 1, "attention");
    assert_eq!((groups(&heads.query[1]), groups(&heads.key[1])), (1, 1));
}

#[test]
fn windows_are_before_the_query_or_around_it() {
    let windowed = |causal| Architecture {
        causal,
        windows: vec![6, 0],
        positions: Positions::Rotary,
        rotary_window_base: Some(100.0),
        attention_scale_by_layer: true,
        attention_softcap: Some(50.0),
        ..small()
    };
    let heads = |causal, index| attention(&checked(&windowed(causal), &TRAIN).streams[0], index, "attention");
    assert_eq!(heads(true, 0).mask, Mask { before: Some(5), after: Some(0) });
    assert_eq!(heads(true, 1).mask, Mask::CAUSAL);
    assert_eq!(heads(false, 0).mask, Mask { before: Some(3), after: Some(3) });
    assert_eq!(heads(false, 1).mask, Mask::FULL);
    assert_eq!(heads(false, 1).softcap, Some(50.0));
    approx::assert_relative_eq!(heads(false, 1).scale, 0.25);
    let frequency = |index| match &heads(false, index).query[1].op {
        Op::Apply(Component::Rotary(rotary)) => rotary.frequencies[1],
        _ => f64::NAN,
    };
    approx::assert_relative_eq!(frequency(0), 0.1);
    approx::assert_relative_eq!(frequency(1), 0.01);
}

/// Cosines and sines have a factor m: q·k gets m² if all features are rotated, the root of (m⁴ + 1)/2 if half are.
#[test]
fn rotations_have_a_factor_on_scores() {
    let rotated = Architecture {
        windows: vec![6, 0],
        positions: Positions::Rotary,
        rotary_scale: 2.0,
        rotary_window_scale: Some(1.0),
        rotary_window_frequencies: Some(vec![0.5]),
        ..small()
    };
    let heads =
        |architecture: &Architecture, index| attention(&checked(architecture, &TRAIN).streams[0], index, "attention");
    let frequencies = |heads: &Attention| match &heads.key[1].op {
        Op::Apply(Component::Rotary(rotary)) => rotary.frequencies.clone(),
        _ => Vec::new(),
    };
    let [local, global] = [0, 1].map(|index| heads(&rotated, index));
    assert_eq!(frequencies(&local), [0.5]);
    approx::assert_relative_eq!(local.scale, 0.5);
    approx::assert_relative_eq!(global.scale, 0.5 * 4.0);
    let half = heads(&Architecture { rotary_dim: Some(2), ..rotated.clone() }, 1);
    approx::assert_relative_eq!(half.scale, 0.5 * 8.5f64.sqrt());
    let unrotated = heads(&Architecture { rotated: vec![true, false], ..rotated }, 1);
    assert_eq!((names(&unrotated.query), unrotated.scale), (vec!["query"], 0.5));
}

#[test]
fn scores_have_slopes_or_a_table() {
    let bias = |architecture: &Architecture, index| {
        attention(&checked(architecture, &TRAIN).streams[0], index, "attention").bias
    };
    let alibi = Architecture { positions: Positions::Alibi, ..small() };
    assert_eq!(bias(&alibi, 1), Some(PositionBias::Alibi { slopes: vec![0.0625, 0.003_906_25] }));
    let flatter = Architecture { alibi_scale: 0.5, ..alibi };
    assert_eq!(bias(&flatter, 1), Some(PositionBias::Alibi { slopes: vec![0.031_25, 0.001_953_125] }));
    let relative = Architecture { positions: Positions::Relative, ..small() };
    let table = |architecture: &Architecture| match bias(architecture, 1) {
        Some(PositionBias::Relative { table, bidirectional, .. }) => (table.name, bidirectional),
        _ => panic!("a table"),
    };
    assert_eq!(table(&relative), ("relative_bias".to_owned(), true));
    let own = Architecture { relative_shared: false, causal: true, ..relative };
    assert_eq!(table(&own), ("blocks.1.attention.heads.relative_bias".to_owned(), false));
}

#[test]
fn latents_give_queries_keys_and_values() {
    let latent = Latent { query_rank: Some(6), kv_rank: 4, d_nope: 4, d_rope: 2, d_value: 3 };
    let architecture = Architecture {
        latent: Some(latent),
        positions: Positions::Rotary,
        norm: Some(NormChoice::Rmsnorm),
        n_heads: Some(3),
        ..small()
    };
    let heads = attention(&checked(&architecture, &TRAIN).streams[0], 0, "attention");
    assert_eq!((heads.d_head, heads.d_value), (6, 3));
    approx::assert_relative_eq!(heads.scale, 6f64.powf(-0.5));
    assert_eq!(names(&heads.query), ["query_down", "query_down_norm", "query"]);
    assert_eq!(paths(&heads.query[2..]), ["query", "query.nope", "query.rope", "query.rotary"]);
    assert_eq!(paths(&heads.key), ["key", "key.down", "key.down_norm", "key.nope", "key.rope", "key.rotary"]);
    assert_eq!(names(&heads.value), ["value_down", "value_down_norm", "value"]);
    let json = serde_json::to_string(&heads).unwrap();
    assert_eq!(json.matches("\"blocks.0.attention.heads.kv_down.weight\"").count(), 2);
    let straight = Architecture { latent: Some(Latent { query_rank: None, ..latent }), ..architecture };
    let heads = attention(&checked(&straight, &TRAIN).streams[0], 0, "attention");
    assert_eq!(names(&heads.query), ["query"]);
}

#[test]
fn experts_stand_in_place_of_the_feed_forward_network() {
    let experts = Experts {
        n_experts: 4,
        top_k: 2,
        d_ff: 12,
        shared_d_ff: 0,
        shared_gate: false,
        weighting: Weighting::Softmax,
        weights_multiply: Multiplied::Outputs,
        router_scale: 1.0,
        own_norms: false,
        normalised: true,
        scale: 1.0,
        first_dense: 1,
        every: 1,
    };
    let architecture = |experts| Architecture { experts: Some(experts), activation: Activation::Swiglu, ..small() };
    let in_block = |architecture: &Architecture, index: usize| {
        let all = paths(&checked(architecture, &Run::default()).streams[0].body);
        let prefix = format!("blocks.{index}.ffn.");
        all.iter().filter_map(|path| path.strip_prefix(&prefix)).collect::<Vec<_>>().join(" ")
    };
    let ffn = |experts, index| in_block(&architecture(experts), index);
    let gated = "norm gated gated.gate gated.activation gated.up out";
    assert_eq!(ffn(experts, 0), gated);
    let inside = "experts.gated experts.gated.gate experts.gated.activation experts.gated.up experts.out";
    assert_eq!(ffn(experts, 1), format!("norm experts {inside}"));
    let every_other = Experts { first_dense: 0, every: 2, ..experts };
    assert_eq!((ffn(every_other, 0), ffn(every_other, 1)), (gated.to_owned(), format!("norm experts {inside}")));
    let dense = Architecture { dense_blocks: vec![1], ..architecture(Experts { first_dense: 0, ..experts }) };
    assert_eq!((in_block(&dense, 0), in_block(&dense, 1)), (format!("norm experts {inside}"), gated.to_owned()));
    let beside = ffn(Experts { shared_d_ff: 5, ..experts }, 1);
    assert!(beside.starts_with("norm experts experts.routed experts.routed.gated "), "{beside}");
    assert!(beside.ends_with(" experts.shared.gated.up experts.shared.out"), "{beside}");
}

#[test]
fn the_scheme_hf_takes_every_distribution_from_the_table() {
    let got = message(&Architecture { hf_init: None, ..small() }, "hf", &Input::Zipf);
    assert_eq!(got, "scheme hf needs the table `hf_init`, which a Hugging Face config brings, got no table");
    let table = InitTable { ffn_out: Init::Zero, ..InitTable::everywhere(Init::Normal { std: 0.5 }) };
    let json = serde_json::to_string(&checked(&Architecture { hf_init: Some(table), ..small() }, &TRAIN)).unwrap();
    assert_eq!(json.matches("out.weight\",\"init\":\"zero\"").count(), 2, "{json}");
    assert!(json.contains("\"blocks.1.ffn.in.weight\",\"init\":{\"normal\":{\"std\":0.5}}"), "{json}");
}

#[test]
fn every_scheme_that_fits_builds_every_layout() {
    let experts = Experts {
        n_experts: 3,
        top_k: 1,
        d_ff: 8,
        shared_d_ff: 4,
        shared_gate: false,
        weighting: Weighting::Sigmoid,
        weights_multiply: Multiplied::Outputs,
        router_scale: 1.0,
        own_norms: false,
        normalised: true,
        scale: 2.5,
        first_dense: 0,
        every: 1,
    };
    let latent = Latent { query_rank: None, kv_rank: 4, d_nope: 2, d_rope: 2, d_value: 3 };
    let patches = Stem::Patches {
        patch_width: 12,
        class_token: true,
        distillation_token: false,
        registers: 0,
        bias: true,
        norm: true,
    };
    let layouts = vec![
        Architecture { causal: true, positions: Positions::Rotary, ..small() },
        Architecture { positions: Positions::Relative, windows: vec![4, 0], ..small() },
        Architecture { experts: Some(experts), ..small() },
        Architecture { latent: Some(latent), positions: Positions::Rotary, ..small() },
        Architecture { stem: Some(patches), ..small() },
        Architecture { stem: Some(Stem::Audio { n_mels: 3 }), ..small() },
        Architecture { parallel: Parallel::SharedNorm, positions: Positions::Alibi, causal: true, ..small() },
        Architecture { norm_placement: NormPlacement::Sandwich, ..small() },
        Architecture { norm_placement: NormPlacement::Sub, skip_scale: Some(2.0), ..small() },
        Architecture { embedding_width: Some(4), embedding_scale: 2.0, ..small() },
        Architecture { shared_blocks: true, ..small() },
        Architecture { block_kv_heads: vec![1, 0], block_d_ff: vec![0, 8], ..small() },
        Architecture { block_kv_heads: vec![1, 0], block_d_ff: vec![8, 0], ..small() },
        two_streams(),
    ];
    for scheme in (0..SCHEMES.len()).map(scheme) {
        for (index, layout) in layouts.iter().enumerate() {
            for input in [Input::Zipf, Input::Correlation(0.3)] {
                match assemble(layout, &Scheme::parse(&scheme).unwrap(), &input, &TRAIN) {
                    Ok(assembled) => assert_eq!(check(&assembled.stack), Ok(()), "{scheme} {index}"),
                    Err(AssembleError::Scheme(_)) => {
                        let refuse = ["dslm", "admin-profiled", "u-mup"];
                        assert!(refuse.iter().any(|name| scheme.starts_with(name)), "{scheme} {index}");
                    }
                    Err(error) => panic!("{scheme} {index}: {error}"),
                }
            }
        }
    }
}
