//! The inside of small networks: every quantity of every site, the gradient of every weight and its first steps.

use rayon::ThreadPoolBuilder;
use sigprop::architecture::{Architecture, Format};
use sigprop::assemble::{Input, Run, assemble};
use sigprop::first_step::{FirstUpdate, Optimizer};
use sigprop::schemes::Scheme;
use sigprop::{Options, Prediction, Sites, predict};
use sigprop_stack::{Number, Quantity, SiteRow, Stack};

use super::table::{Row, Table};

/// Keys of every network, unless it sets them itself.
const COMMON: &str = "d_model = 32\nn_heads = 2\nseq_len = 8\nvocab_size = 40\n";

const SITES: Table = Table {
    file: "sites.csv",
    names: &["network", "site"],
    numbers: &[
        "mean",
        "ln_variance",
        "token_correlation",
        "ln_grad_variance",
        "grad_token_correlation",
        "ln_variance_first",
        "ln_variance_last",
        "ln_grad_variance_first",
        "ln_grad_variance_last",
        "ln_variance_std",
        "ln_grad_variance_std",
    ],
};

const WEIGHTS: Table = Table {
    file: "weights.csv",
    names: &["network", "tensor"],
    numbers: &["ln_grad_second_moment", "ln_sgd_change", "ln_adam_change", "ln_sgd_loss_drop", "ln_adam_loss_drop"],
};

struct Network {
    name: &'static str,
    /// Lines of an architecture file.
    keys: &'static str,
    scheme: &'static str,
    input: Input,
    /// True if dropout masks are sampled.
    train: bool,
}

fn evaluated(name: &'static str, keys: &'static str, scheme: &'static str, input: Input) -> Network {
    Network { name, keys, scheme, input, train: false }
}

fn networks() -> Vec<Network> {
    let given = Input::Tokens { sequences: vec![vec![1, 2, 3, 1, 4, 5, 1, 2], vec![6, 6, 7, 8, 9, 9, 9, 3]] };
    vec![
        evaluated("biases", "n_layers = 2\nbiases = true", "pytorch", Input::Zipf),
        Network {
            train: true,
            ..evaluated(
                "training",
                "n_layers = 1\nnorm_placement = 'post'\nactivation = 'relu'\ndropout = 0.1\nattention_dropout = 0.1\n\
                 drop_path = 0.2",
                "xavier",
                Input::Correlation(0.2),
            )
        },
        evaluated("causal", "n_layers = 2\ncausal = true\nbiases = false", "xavier", Input::Zipf),
        evaluated(
            "rotary",
            "n_layers = 1\ncausal = true\npositions = 'rotary'\nn_kv_heads = 1\nqk_norm = 'head'\nnorm = 'rmsnorm'\n\
             activation = 'swiglu'\nqkv_biases = true",
            "normal:0.1",
            Input::Uniform,
        ),
        evaluated(
            "window",
            "n_layers = 1\ncausal = true\npositions = 'alibi'\nwindows = [3]\nnorm_placement = 'sandwich'\nbiases = false",
            "lecun",
            given,
        ),
        evaluated(
            "experts",
            "n_layers = 1\nnorm = 'rmsnorm'\nactivation = 'silu'\nbiases = false\nexperts = { n_experts = 4, top_k = 2, \
             d_ff = 32, shared_d_ff = 32, shared_gate = false, weighting = 'softmax', normalised = true, scale = 1.0, \
             first_dense = 0, every = 1 }",
            "xavier",
            Input::Zipf,
        ),
        evaluated("standardised", "n_layers = 1\nbiases = true", "standardised", Input::Correlation(0.3)),
        evaluated(
            "decoder",
            "n_layers = 1\nnorm = 'rmsnorm'\npositions = 'relative'\nbiases = false\ndecoder = { n_layers = 1, d_model = 32, \
             n_heads = 2, seq_len = 6, vocab_size = 40, norm = 'rmsnorm', positions = 'relative', biases = false, causal \
             = true }",
            "xavier",
            Input::TokenRepeat(0.2),
        ),
        evaluated(
            "patches",
            "n_layers = 1\nstem = { patches = { patch_width = 48, class_token = true, bias = true, norm = false } }",
            "bert",
            Input::Zipf,
        ),
        evaluated(
            "sharp",
            "n_layers = 1\nattention_scale = 1.5\nnorm = 'none'\nbiases = false",
            "lecun",
            Input::Correlation(0.4),
        ),
        evaluated(
            "mlp",
            "kind = 'mlp'\nn_layers = 3\nactivation = 'tanh'\nbiases = true",
            "pytorch",
            Input::Correlation(0.3),
        ),
        Network {
            train: true,
            ..evaluated(
                "residual mlp",
                "kind = 'mlp'\nn_layers = 3\nresidual = true\nactivation = 'gelu'\nnorm = 'layernorm'\ndropout = 0.2\n\
                 drop_path = 0.1",
                "kaiming",
                Input::Correlation(0.0),
            )
        },
    ]
}

impl Network {
    fn stack(&self) -> Stack {
        let own: Vec<&str> = self.keys.lines().filter_map(|line| line.split(" = ").next()).collect();
        let common = COMMON.lines().filter(|line| own.iter().all(|key| line.split(" = ").next() != Some(key)));
        let common: Vec<&str> = common.filter(|line| !own.contains(&"kind") || !line.starts_with("n_heads")).collect();
        let file = common.join("\n") + "\n" + self.keys;
        let architecture = Architecture::from_file_text(&file, Format::Toml);
        let architecture = architecture.unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let scheme = Scheme::parse(self.scheme).expect("a scheme");
        let run = Run { train: self.train, grad_correlation: 0.2, ..Run::default() };
        let assembled = assemble(&architecture, &scheme, &self.input, &run);
        assembled.unwrap_or_else(|error| panic!("{}: {error}", self.name)).stack
    }
}

fn predicted(name: &str, stack: &Stack, threads: usize) -> Prediction {
    let options = Options { steps: true, ..Options::from(Sites::All) };
    let pool = ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
    pool.install(|| predict(stack, options)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The columns of [`SITES`].
fn numbers(row: &SiteRow) -> Vec<Option<f64>> {
    let number = |quantity| {
        row.value(quantity).map(|number| match quantity {
            Quantity::Mean
            | Quantity::TokenCorrelation
            | Quantity::GradTokenCorrelation
            | Quantity::LnVarianceStd
            | Quantity::LnGradVarianceStd => number.value(),
            Quantity::Variance
            | Quantity::GradVariance
            | Quantity::VarianceFirst
            | Quantity::VarianceLast
            | Quantity::GradVarianceFirst
            | Quantity::GradVarianceLast => number.ln_abs(),
        })
    };
    Quantity::ALL.map(number).to_vec()
}

/// The rows of [`WEIGHTS`], for a learning rate of 1.
fn weights(name: &str, stack: &Stack, prediction: &Prediction) -> Vec<Row> {
    let steps =
        [Optimizer::Sgd, Optimizer::Adam].map(|optimizer| FirstUpdate::of(prediction, (stack, None), optimizer, 1.0));
    let rows = prediction.table.weights.iter().zip(steps[0].rows.iter().zip(&steps[1].rows));
    let ln = |number: &Number| Some(number.ln_abs());
    let numbers = rows.map(|(weight, (sgd, adam))| {
        assert!(weight.tensor == sgd.tensor && weight.tensor == adam.tensor);
        let changes = [&sgd.output_change, &adam.output_change].map(|change| change.as_ref().and_then(ln));
        let drops = [&sgd.loss_drop, &adam.loss_drop].map(ln);
        let numbers = [ln(&weight.grad_second_moment.value)].into_iter().chain(changes).chain(drops).collect();
        (vec![name.to_owned(), weight.tensor.clone()], numbers)
    });
    numbers.collect()
}

#[test]
fn small_networks_are_those_committed_at_every_site() {
    let (mut sites, mut tensors) = (Vec::new(), Vec::new());
    for network in networks() {
        let (name, stack) = (network.name, network.stack());
        let [prediction, other] = [1, 2].map(|threads| predicted(name, &stack, threads));
        assert!(prediction.table == other.table, "{name}: one thread and two do not say the same");
        sites.extend(prediction.table.sites.iter().map(|row| (vec![name.to_owned(), row.site.clone()], numbers(row))));
        tensors.extend(weights(name, &stack, &prediction));
    }
    SITES.check(sites);
    WEIGHTS.check(tensors);
}
