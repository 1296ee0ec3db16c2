//! Networks drawn at random from all that can be described, whether anyone would train them or not. Combinations that
//! are not valid are drawn again.

use rand::rngs::ChaCha8Rng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use super::{Case, Look, Sample};
use crate::architecture::{Architecture, Format};
use crate::assemble::{Input, Run, assemble};
use crate::schemes::Scheme;

/// The name of a kind of network, and the function that draws its keys.
type Group = (&'static str, fn(&mut Draw));

const GROUPS: [Group; 8] = [
    ("encoder", encoder),
    ("causal", causal),
    ("rotary", rotary),
    ("distance", distance),
    ("experts", experts),
    ("vision", vision),
    ("encoder-decoder", encoder_decoder),
    ("mlp", mlp),
];

/// Number of random networks per group, in a sample and in the full suite.
const COUNTS: [usize; 2] = [6, 40];
/// Number of initialisations that are sampled for each random network.
const REPLICATES: usize = 400;

const SCHEMES: [&str; 18] = [
    "xavier",
    "xavier-packed",
    "kaiming",
    "lecun",
    "pytorch",
    "normal:0.02",
    "normal:0.1",
    "gpt2",
    "bert",
    "olmo-mitchell",
    "torchtitan",
    "deepnorm",
    "subln",
    "layerscale:0.1",
    "u-mup",
    "standardised",
    "t-fixup",
    "dslm",
];

/// The cases of every group, drawn with `seed`.
pub(super) fn cases(full: bool, seed: u64) -> Vec<Case> {
    let count = COUNTS[usize::from(full)];
    let group = |(index, group): (usize, &'static Group)| {
        let mut generator = ChaCha8Rng::seed_from_u64(seed);
        generator.set_stream(index as u64);
        std::iter::from_fn(move || Some(Draw::new(generator.random()).case(*group))).flatten().take(count)
    };
    GROUPS.iter().enumerate().flat_map(group).collect()
}

/// A random network that is being drawn, as lines of an architecture file.
struct Draw {
    generator: ChaCha8Rng,
    keys: Vec<String>,
}

impl Draw {
    fn new(seed: u64) -> Self {
        Self { generator: ChaCha8Rng::seed_from_u64(seed), keys: Vec::new() }
    }

    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        *values.choose(&mut self.generator).expect("there are some")
    }

    /// Adds a key with one of these values, drawn at random.
    fn key(&mut self, key: &str, values: &[&str]) {
        let value = self.one_of(values);
        self.keys.push(format!("{key} = {value}"));
    }

    /// Adds a key with one of these values, on average in one of `many` networks.
    fn rarely(&mut self, many: usize, key: &str, values: &[&str]) {
        if self.generator.random_range(0..many) == 0 {
            self.key(key, values);
        }
    }

    /// The network of a group; `None` if the drawn keys are not valid together.
    fn case(mut self, (group, draw): Group) -> Option<Case> {
        draw(&mut self);
        let scheme = Scheme::parse(self.one_of(&SCHEMES)).expect("the scheme is ours");
        let repeated = [Input::Zipf, Input::Uniform, Input::TokenRepeat(0.2)];
        let input = match group {
            "encoder" if self.generator.random() => Input::Correlation(self.one_of(&[0.0, 0.2, 0.6])),
            "mlp" => Input::Correlation(self.one_of(&[0.0, 0.2, 0.6])),
            "vision" => Input::Zipf,
            _ => repeated[self.generator.random_range(0..repeated.len())].clone(),
        };
        let grad_correlation = self.one_of(&[0.0, 0.0, 0.2, 0.6]);
        let architecture =
            Architecture::from_file_text(&self.keys.join("\n"), Format::Toml).expect("the keys are ours");
        let run = Run { train: true, grad_correlation, ..Run::default() };
        let stack = assemble(&architecture, &scheme, &input, &run).ok()?.stack;
        let keys = self.keys.join(", ").replace(" = ", "=");
        let sample =
            Sample::Stack { stack: Box::new(stack), std_error: f64::MIN_POSITIVE, replicates: [REPLICATES; 2] };
        let name = format!("{scheme}, {keys}, {}, r_g {grad_correlation}", words(&input));
        Some(Case { group, name, sample, look: Look::Everything })
    }
}

/// The input in words, for the name of a case.
fn words(input: &Input) -> String {
    match input {
        Input::Zipf => "zipf".to_owned(),
        Input::Uniform => "uniform".to_owned(),
        Input::TokenRepeat(share) => format!("token-repeat {share}"),
        Input::Correlation(r) => format!("r {r}"),
        Input::Tokens { .. } => unreachable!("no ids are drawn"),
    }
}

/// Draws the keys that all Transformers have.
fn transformer(draw: &mut Draw) {
    draw.key("n_layers", &["2", "3", "4", "6"]);
    let [width, heads] = draw.one_of(&[["64", "1"], ["64", "2"], ["128", "2"], ["128", "4"], ["256", "4"]]);
    draw.key("d_model", &[width]);
    draw.key("n_heads", &[heads]);
    draw.key("seq_len", &["16", "32", "48"]);
    draw.key("vocab_size", &["100", "1000", "32000"]);
    let activations = ["'gelu'", "'relu'", "'silu'", "'tanh'", "'relu2'", "'swiglu'", "'geglu'"];
    if draw.one_of(&[true, false, false, false, false, false]) {
        draw.key("norm", &["'none'"]);
        // The other activations square their input: after a few blocks f32 does not hold the values.
        draw.key("activation", &activations[..4]);
    } else {
        draw.key("norm", &["'layernorm'", "'layernorm'", "'rmsnorm'", "'rmsnorm'", "'dyt'"]);
        draw.key("norm_placement", &["'pre'", "'pre'", "'pre'", "'post'", "'sandwich'", "'reordered'", "'sub'"]);
        draw.key("activation", &activations);
    }
    draw.key("biases", &["true", "false"]);
    draw.rarely(3, "dropout", &["0.1", "0.3"]);
    draw.rarely(4, "attention_dropout", &["0.1"]);
    draw.rarely(6, "drop_path", &["0.1", "0.3"]);
    draw.rarely(4, "embedding_norm", &["true"]);
    draw.rarely(6, "parallel", &["'shared_norm'", "'own_norms'"]);
    draw.rarely(8, "skip_from_norm", &["true"]);
    draw.rarely(6, "attention_scale", &["0.03", "0.3"]);
}

fn encoder(draw: &mut Draw) {
    transformer(draw);
    draw.key("positions", &["'learned'", "'none'"]);
    draw.rarely(3, "segments", &["true"]);
    draw.rarely(6, "attention_softcap", &["5.0"]);
}

fn causal(draw: &mut Draw) {
    transformer(draw);
    draw.key("causal", &["true"]);
    draw.key("positions", &["'learned'", "'none'"]);
    draw.rarely(6, "attention_softcap", &["5.0"]);
    draw.rarely(6, "attention_scale_by_layer", &["true"]);
}

fn rotary(draw: &mut Draw) {
    transformer(draw);
    draw.key("causal", &["true", "true", "false"]);
    draw.key("positions", &["'rotary'"]);
    draw.rarely(3, "qk_norm", &["'head'", "'projection'"]);
    draw.rarely(3, "n_kv_heads", &["1", "2"]);
    draw.rarely(4, "qkv_biases", &["true", "false"]);
    draw.rarely(6, "rotary_dim", &["16"]);
}

fn distance(draw: &mut Draw) {
    transformer(draw);
    draw.key("causal", &["true", "false"]);
    draw.key("positions", &["'sinusoidal'", "'alibi'", "'relative'"]);
    draw.rarely(4, "relative_shared", &["false"]);
}

fn experts(draw: &mut Draw) {
    transformer(draw);
    draw.key("causal", &["true", "false"]);
    draw.key("positions", &["'rotary'", "'learned'"]);
    let [shared, normalised] = [draw.one_of(&["0", "64"]), draw.one_of(&["true", "false"])];
    let (top_k, weighting) = (draw.one_of(&["1", "2", "4"]), draw.one_of(&["softmax", "sigmoid"]));
    draw.keys.push(format!(
        "experts = {{ n_experts = 8, top_k = {top_k}, d_ff = 128, shared_d_ff = {shared}, shared_gate = false, weighting = \
         '{weighting}', normalised = {normalised}, scale = 1.0, first_dense = 1, every = 1 }}"
    ));
}

fn vision(draw: &mut Draw) {
    transformer(draw);
    let [class_token, norm] = [draw.one_of(&["true", "false"]), draw.one_of(&["true", "false"])];
    draw.keys.push(format!(
        "stem = {{ patches = {{ patch_width = 48, class_token = {class_token}, bias = true, norm = {norm} }} }}"
    ));
}

fn encoder_decoder(draw: &mut Draw) {
    transformer(draw);
    draw.key("positions", &["'learned'", "'relative'", "'none'"]);
    draw.keys.push(format!("decoder = {{ causal = true, {} }}", draw.keys.join(", ")));
}

fn mlp(draw: &mut Draw) {
    draw.key("kind", &["'mlp'"]);
    draw.key("n_layers", &["4", "8", "16"]);
    draw.key("d_model", &["64", "128", "256"]);
    draw.key("seq_len", &["4", "16", "64"]);
    draw.key("activation", &["'gelu'", "'relu'", "'silu'", "'tanh'", "'elu'", "'selu'", "'mish'", "'sigmoid'"]);
    draw.key("norm", &["'none'", "'layernorm'", "'rmsnorm'"]);
    draw.rarely(2, "norm_placement", &["'post'"]);
    draw.key("residual", &["true", "false"]);
    draw.key("biases", &["true", "false"]);
    draw.rarely(3, "dropout", &["0.1", "0.3"]);
    draw.rarely(6, "drop_path", &["0.1"]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_networks_of_every_group() {
        let names = |seed| -> Vec<String> {
            cases(false, seed).into_iter().map(|case| format!("{} {}", case.group, case.name)).collect()
        };
        let drawn = names(1);
        assert_eq!(drawn, names(1));
        assert_ne!(drawn, names(2));
        for (group, _) in GROUPS {
            assert_eq!(drawn.iter().filter(|name| name.split(' ').next() == Some(group)).count(), COUNTS[0]);
        }
        let mut distinct = drawn.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), drawn.len());
    }
}
