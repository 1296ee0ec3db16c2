//! Predictions from a `config.json` alone, compared with measurements of the model that Hugging Face transformers
//! builds from it.

mod accuracy;
mod case;
mod counts;
mod gate;
mod names;
mod report;
mod run;

use std::{
    collections::HashSet,
    env,
    path::{Path, PathBuf},
};

use case::{Key, Reference};
use report::Report;
use run::run;
use sigprop::Theory;

/// Compares the chosen runs of the measurements in `folder`. Fails if a run deviates that is not `known` to, or if a
/// known one no longer does.
fn compare(folder: &Path, chosen: &Chosen, report: Option<&Path>, theory: Theory, known: &[&str]) {
    let reference = Reference::read(folder);
    let mut report = Report::new(report);
    for key in reference.runs.keys().filter(|key| chosen.has(&key.case, &key.input)) {
        report.add(key, &reference.cases[&(key.case.clone(), key.input.clone())], run(&reference, key, theory));
    }
    let compared = || reference.runs.keys().filter(|key| chosen.has(&key.case, &key.input));
    let is_of = |run: &str, key: &Key| run.starts_with(&format!("{} {} {}:", key.case, key.mode, key.input));
    let is_compared = |run: &&&str| compared().any(|key| is_of(run, key));
    report.finish(&known.iter().filter(is_compared).copied().collect::<Vec<_>>());
}

/// The chosen cases and kinds of input. An empty set means all.
#[derive(Default)]
struct Chosen {
    cases: HashSet<String>,
    inputs: HashSet<String>,
}

impl Chosen {
    fn has(&self, case: &str, input: &str) -> bool {
        let has = |chosen: &HashSet<String>, name| chosen.is_empty() || chosen.contains(name);
        has(&self.cases, case) && has(&self.inputs, input)
    }
}

/// Not reached (known deviations): gradients of query and key weights are predicted 39 and 48 % too large in one block
/// each. Other blocks of mixtral are within their errors. Other blocks of qwen3, whose scores have variance 1 among
/// tokens of a text, are 10 to 36 % too large.
const SHARP: [&str; 2] = ["mixtral_8x256 eval u: weight_grad", "qwen3_12x512 eval t: weight_grad"];

/// Not reached (known deviations): products of the gradients of two tokens, where learned tokens start at zero and
/// their gradients are 10⁹ times as large as those of other tokens.
const STARTED_AT_ZERO: [&str; 4] =
    ["beit eval n: cross", "deit eval n: cross", "vit_mae eval n: cross", "vit_msn eval n: cross"];

#[test]
fn a_selection_of_models_is_as_measured() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/huggingface");
    compare(&folder, &Chosen::default(), None, Theory::FiniteWidth, &SHARP);
}

/// Not reached (known deviations): gradients of query and key weights are predicted 14 to 17 % too large in two of three
/// blocks; two of the six cells are beyond their bounds, 15.55 for 15.47 % and 17.5 for 16.1 %. The cause is not known.
const ROTATED: [&str; 1] = ["dynamic eval u: weight_grad"];

/// Rope types, masks and projections, each tested in a small model.
#[test]
fn variants_of_layouts_are_as_measured() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/huggingface/variants");
    compare(&folder, &Chosen::default(), None, Theory::FiniteWidth, &ROTATED);
}

/// Not reached (known deviations) in stacks of recurrences, measured with 40 networks but MiniMax with 10. Gradients at the
/// input of Mamba-2 are 22 % too large, where a norm follows heads that share keys and queries (caveat `few_heads`); those
/// of Jamba 5.2 %, in the block after the embeddings alone; those of Qwen3.5-MoE 2.2 %, where 1.9 % are allowed. Gradients
/// of MiniMax are 1.3 % too small per block with lightning attention. Second moments of Mamba are 6 to 7 % and gradients up
/// to 10 % too small: features after a convolution of four taps are not Gaussian.
const STATES: [&str; 5] = [
    "jamba eval u: stream",
    "mamba eval u: stream",
    "mamba2 eval u: stream",
    "minimax eval u: stream",
    "qwen3_5_moe_text eval u: stream",
];

/// Not reached (known deviations) in other sizes: gradients of Mamba-2 are up to 92 % too large at the input, those of
/// the other two up to 5 % off, and second moments of gated delta rules 2.4 % too large.
const HELD_OUT: [&str; 4] =
    ["lfm2 eval u: stream", "mamba2 eval u: cross", "mamba2 eval u: stream", "qwen3_next eval u: stream"];

/// Families of models, each tested in a small model.
#[test]
fn families_are_as_measured() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/huggingface/families");
    let known = [STARTED_AT_ZERO.as_slice(), STATES.as_slice()].concat();
    compare(&folder, &Chosen::default(), None, Theory::FiniteWidth, &known);
}

/// Families of models in other widths, depths, heads and numbers of tokens: 40 networks of each.
#[test]
fn families_of_other_sizes_are_as_measured() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/huggingface/held_out");
    compare(&folder, &Chosen::default(), None, Theory::FiniteWidth, &HELD_OUT);
}

/// Variables: `SIGPROP_HF_TRUTH` names a folder of measurements, by default `data/measured/huggingface`.
/// `SIGPROP_HF_REPORT` names one for results.csv and summary.csv. `SIGPROP_HF_CASES` and `SIGPROP_HF_KINDS` choose
/// runs: `gpt2_48x256,t5_small_6x512` and `u,t`. With `SIGPROP_HF_MEAN_FIELD`, second moments of the stream are
/// compared with the theory of infinite width.
#[test]
#[ignore = "minutes: 125 runs of 26 models"]
fn all_models_are_as_measured() {
    let kept = || Path::new(env!("CARGO_MANIFEST_DIR")).join("data/measured/huggingface");
    let folder = env::var_os("SIGPROP_HF_TRUTH").map_or_else(kept, PathBuf::from);
    let list = |name| env::var(name).map(|text| text.split(',').map(str::to_owned).collect()).unwrap_or_default();
    let chosen = Chosen { cases: list("SIGPROP_HF_CASES"), inputs: list("SIGPROP_HF_KINDS") };
    let theory = if env::var_os("SIGPROP_HF_MEAN_FIELD").is_some() { Theory::MeanField } else { Theory::FiniteWidth };
    let known = if theory == Theory::FiniteWidth { SHARP.as_slice() } else { &[] };
    compare(&folder, &chosen, env::var_os("SIGPROP_HF_REPORT").map(PathBuf::from).as_deref(), theory, known);
}

/// Second moments of the stream and of its pairs of tokens, predicted by the theory of infinite width. Images are left
/// out, because dropped branches (DINOv2) are averaged too early there.
#[test]
fn an_infinitely_wide_selection_is_as_measured() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/huggingface");
    let inputs = ["u", "z", "r", "t"].map(str::to_owned).into_iter().collect();
    compare(&folder, &Chosen { inputs, ..Chosen::default() }, None, Theory::MeanField, &[]);
}
