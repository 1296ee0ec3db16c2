//! Golden numbers: the predictions of every preset and under every scheme equal the committed ones.
//!
//! Sites inside blocks, weights and steps of small networks are in `golden/inside.rs`.
//!
//! `SIGPROP_GOLDEN=write` writes the numbers anew. Whoever does so explains it in CHANGELOG under *Numbers changed*.

mod inside;
mod table;

use std::iter::once;

use rayon::ThreadPoolBuilder;
use sigprop::architecture::{Architecture, NormChoice, NormPlacement};
use sigprop::assemble::{AssembleError, Input, Run, assemble};
use sigprop::presets::PRESETS;
use sigprop::schemes::{SCHEMES, Scheme};
use sigprop::{Options, Sites, predict};
use sigprop_stack::{Quantity, SiteRow, SiteTable, Stack};
use table::Table;

/// The number of tokens of a sequence, small so that all networks take seconds.
const TOKENS: usize = 16;
/// The value of every required argument of a scheme.
const ARGUMENT: f64 = 0.1;

const TABLE: Table = Table {
    file: "predictions.csv",
    names: &["network", "scheme", "site"],
    numbers: &["ln_variance", "token_correlation", "ln_grad_variance", "grad_token_correlation"],
};

/// A network whose predictions are committed.
struct Network {
    name: String,
    scheme: Scheme,
    stack: Stack,
}

/// Every preset under its own scheme, and every scheme on plain encoders of each kind for which it is defined.
fn networks() -> Vec<Network> {
    let presets = PRESETS.iter().map(|preset| {
        let mut architecture = Architecture { seq_len: TOKENS, ..preset.architecture() };
        if let Some(decoder) = &mut architecture.decoder {
            decoder.seq_len = TOKENS;
        }
        let scheme = Scheme::parse(architecture.scheme.as_deref().expect("presets bring one")).expect("a scheme");
        (preset.name, architecture, scheme)
    });
    let plain = || Architecture { n_layers: 4, d_model: 128, seq_len: TOKENS, ..Architecture::default() };
    let kinds = [
        ("pre", plain()),
        ("post", Architecture { norm_placement: NormPlacement::Post, ..plain() }),
        ("no norms", Architecture { norm: Some(NormChoice::None), ..plain() }),
    ];
    let schemes = SCHEMES.iter().flat_map(|about| {
        let required = about.parameters.iter().filter(|parameter| parameter.default.is_none());
        let arguments: Vec<String> = required.map(|parameter| format!("{}={ARGUMENT}", parameter.name)).collect();
        let text = [about.name, &arguments.join(",")].join(if arguments.is_empty() { "" } else { ":" });
        let scheme = Scheme::parse(&text).expect("a scheme with its arguments");
        kinds.clone().map(|(name, architecture)| (name, architecture, scheme.clone()))
    });
    let run = Run { grad_correlation: 0.2, ..Run::default() };
    let network = |(name, architecture, scheme): (&str, Architecture, Scheme)| {
        let assembled = assemble(&architecture, &scheme, &Input::Zipf, &run);
        match assembled {
            Ok(assembled) => Some(Network { name: name.to_owned(), scheme, stack: assembled.stack }),
            Err(AssembleError::Scheme(_)) => None,
            Err(error) => panic!("{name}, {scheme}: {error}"),
        }
    };
    presets.chain(schemes).filter_map(network).collect()
}

/// Predicts every network on this number of threads.
fn tables(networks: &[Network], threads: usize) -> Vec<SiteTable> {
    let options = Options::from(Sites::Stream);
    let table = |network: &Network| match predict(&network.stack, options) {
        Ok(prediction) => prediction.table,
        Err(error) => panic!("{}, {}: {error}", network.name, network.scheme),
    };
    let pool = ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
    pool.install(|| networks.iter().map(table).collect())
}

/// The sites with committed numbers: the input of the first block of every stream, a block in the middle, and the last
/// block.
fn chosen(stack: &Stack) -> Vec<String> {
    let several = stack.streams.len() > 1;
    let sites = stack.streams.iter().flat_map(|stream| {
        let blocks: Vec<&str> =
            stream.body.iter().map(|node| node.name.as_str()).filter(|name| name.starts_with("blocks.")).collect();
        let path = |name: &str| if several { format!("{}.{name}", stream.name) } else { name.to_owned() };
        let [middle, last] = [blocks.len() / 2, blocks.len() - 1].map(|index| path(blocks[index]));
        once(path(&stream.body[0].name)).chain([middle, last])
    });
    sites.collect()
}

/// The numbers of a site that are compared with the committed ones; `None` for a quantity that does not exist there.
fn numbers(row: &SiteRow) -> Vec<Option<f64>> {
    let ln = |quantity| row.value(quantity).map(|number| number.ln_abs());
    let plain = |quantity| row.value(quantity).map(|number| number.value());
    vec![
        ln(Quantity::Variance),
        plain(Quantity::TokenCorrelation),
        ln(Quantity::GradVariance),
        plain(Quantity::GradTokenCorrelation),
    ]
}

#[test]
fn predictions_are_those_committed() {
    let networks = networks();
    for about in SCHEMES {
        assert!(networks.iter().any(|network| network.scheme.about().name == about.name), "{} is nowhere", about.name);
    }
    let [one, two] = [1, 2].map(|threads| tables(&networks, threads));
    let mut got = Vec::new();
    for (network, (one, two)) in networks.iter().zip(one.iter().zip(&two)) {
        let (name, scheme) = (&network.name, network.scheme.label());
        assert!(one == two, "{name}, {scheme}: one thread and two do not say the same");
        got.extend(chosen(&network.stack).into_iter().map(|site| {
            let row = one.site(&site).unwrap_or_else(|| panic!("{name} has no {site}"));
            (vec![name.clone(), scheme.clone(), site], numbers(row))
        }));
    }
    TABLE.check(got);
}
