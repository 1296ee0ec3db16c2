//! A key that changes nothing is refused: each key alone in networks of many kinds, assembled with and without it.

use serde_json::{Map, Value};
use sigprop::architecture::{Architecture, ArchitectureError, Format, ModelFile};
use sigprop::assemble::{Input, Run, assemble};
use sigprop::schemes::Scheme;
use sigprop_stack::Stack;

use super::examples::{AROUND, examples, table};
use super::{PATH, Page};

/// Networks to which each key is added.
const NETWORKS: &[&str] = &[
    "",
    "kind = \"mlp\"",
    "kind = \"mlp\"\nresidual = true\nnorm = \"layernorm\"",
    "kind = \"mlp\"\nresidual = true\nbranch_depth = 2",
    "norm = \"none\"",
    "norm = \"dyt\"",
    "norm_placement = \"post\"",
    "positions = \"rotary\"",
    "positions = \"rotary\"\nwindows = [8, 0]",
    "positions = \"rotary\"\nrotary_frequencies = [0.5]",
    "positions = \"rotary\"\nwindows = [8, 4]\nrotary_window_base = 100.0\nrotary_window_scale = 1.1",
    "positions = \"rotary\"\nlatent = {kv_rank = 16, d_nope = 16, d_rope = 8, d_value = 16}",
    "positions = \"alibi\"",
    "positions = \"relative\"",
    "positions = \"sinusoidal\"",
    "head = \"tied\"",
    "embedding_width = 32\nhead = \"untied\"",
    "embedding_norm = true",
    "drop_path = 0.1",
    "branch_scale = 0.5",
    "stem = {audio = {n_mels = 20}}",
    "stem = {patches = {patch_width = 48, class_token = true, bias = true, norm = false}}\nhead = \"untied\"",
    "decoder = {n_layers = 2, d_model = 64, vocab_size = 100}",
    "parallel = \"own_norms\"",
    "experts = {n_experts = 4, top_k = 2, d_ff = 64, shared_d_ff = 0, shared_gate = false, weighting = \"softmax\", \
     normalised = true, scale = 1.0, first_dense = 0, every = 1}",
    "experts = {n_experts = 4, top_k = 2, d_ff = 64, shared_d_ff = 0, shared_gate = false, weighting = \"softmax\", \
     normalised = true, scale = 1.0, first_dense = 1, every = 1}",
];

/// Keys that do not show in the stack. Learned factors start at the size of fixed ones, and the examples of the other
/// keys state the default of some networks.
const NOT_IN_STACKS: [&str; 3] = ["layer_scale", "residual", "final_norm"];

/// The stack of a file in training mode; `None` if it is refused.
fn assembled(architecture: &Architecture) -> Option<Stack> {
    let scheme = Scheme::parse(architecture.scheme.as_deref().unwrap_or("xavier")).ok()?;
    let run = Run { train: true, ..Run::default() };
    Some(assemble(architecture, &scheme, &Input::default(), &run).ok()?.stack)
}

fn read(file: &Map<String, Value>) -> ModelFile {
    ModelFile::read(&Value::Object(file.clone()).to_string(), Format::Json).expect("examples are read by another test")
}

#[test]
fn a_key_is_refused_where_it_changes_nothing() {
    let page = Page::read(PATH.into());
    let (mut wrong, mut refused, mut accepted) = (Vec::new(), 0, 0);
    for network in NETWORKS {
        let mut around = table(network);
        for (name, value) in AROUND.into_iter().filter(|(name, _)| *name != "vocab_size") {
            around.entry(name).or_insert(value.into());
        }
        let without = assembled(&read(&around).architecture).expect("a network");
        for (key, example) in examples(&page.text) {
            let Some(value) = table(&example).remove(key).filter(|_| !NOT_IN_STACKS.contains(&key)) else { continue };
            let mut file = around.clone();
            if file.insert(key.to_owned(), value).is_some() && !AROUND.iter().any(|(name, _)| *name == key) {
                continue;
            }
            let file = read(&file);
            let Some(with) = assembled(&file.architecture) else { continue };
            match (file.check_effects(&file.architecture), with == without) {
                (Ok(()), false) => accepted += 1,
                (Err(ArchitectureError::NoEffect { key: got, .. }), true) if got == key => refused += 1,
                // The key takes away the effect of another key.
                (Err(ArchitectureError::NoEffect { key: got, .. }), false) if got != key => {}
                (got, same) => wrong.push(format!("{key} with {network:?}: {got:?}, the same network: {same}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(refused > 200 && accepted > 700, "{refused} refused, {accepted} accepted");
}

#[test]
fn flags_may_give_a_key_its_effect_and_take_it() {
    let file = |text| ModelFile::read(text, Format::Toml).expect("a file");
    let alibi = file("positions = \"alibi\"\nalibi_scale = 0.5");
    let lonely = file("alibi_scale = 0.5");
    assert_eq!(alibi.check_effects(&lonely.architecture), Ok(()));
    assert!(lonely.check_effects(&lonely.architecture).is_err());
    assert_eq!(lonely.check_effects(&alibi.architecture), Ok(()));
    // A file may state a default explicitly.
    let stated = file("alibi_scale = 1.0");
    assert_eq!(stated.check_effects(&stated.architecture), Ok(()));
    let inside = file("[decoder]\nrotary_base = 5.0\n");
    let error = inside.check_effects(&inside.architecture).unwrap_err().to_string();
    assert!(error.starts_with("`decoder.rotary_base` has no effect without positions = \"rotary\""), "{error}");
}
