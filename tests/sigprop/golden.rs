//! Numbers that stay put: what is predicted of every preset, and under every scheme, is what was committed.
//!
//! `SIGPROP_GOLDEN=write` writes them anew. Whoever does so explains it in CHANGELOG under *Numbers changed*.

use std::collections::BTreeMap;
use std::env;
use std::iter::once;

use rayon::ThreadPoolBuilder;
use sigprop::architecture::{Architecture, NormChoice, NormPlacement};
use sigprop::assemble::{AssembleError, Input, Run, assemble};
use sigprop::presets::PRESETS;
use sigprop::schemes::{SCHEMES, Scheme};
use sigprop::{Options, Sites, predict};
use sigprop_stack::{Quantity, SiteRow, SiteTable, Stack};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sigprop/golden/predictions.csv");
/// Of variances relative, and of their logarithms where those are larger than 1; of correlations absolute. Processors
/// differ in the last bits of their elementary functions.
const TOLERANCE: f64 = 1e-10;
/// What is written is rounded to so many per 1: finer than what is compared, coarser than what processors differ in.
const STEPS: f64 = 1e12;
/// Tokens of a sequence: few, so that all networks take seconds.
const TOKENS: usize = 16;
/// What a scheme gets for every argument that must be given.
const ARGUMENT: f64 = 0.1;
const ADVICE: &str = "if they are meant to change, `SIGPROP_GOLDEN=write cargo test --test sigprop golden` writes them \
                      anew, and CHANGELOG explains it under *Numbers changed*";

/// A network that is followed.
struct Network {
    name: String,
    scheme: Scheme,
    stack: Stack,
}

/// Network, scheme, site.
type Key = (String, String, String);
/// Variance, token correlation, and those of the gradient.
type Numbers = [Option<f64>; 4];

/// Columns of the file.
const COLUMNS: [&str; 7] =
    ["network", "scheme", "site", "ln_variance", "token_correlation", "ln_grad_variance", "grad_token_correlation"];

/// Every preset under the scheme it brings; every scheme on plain encoders of each kind on which it is defined.
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

/// Every network, on so many threads.
fn tables(networks: &[Network], threads: usize) -> Vec<SiteTable> {
    let options = Options { sequences: Some(2), ..Options::from(Sites::Stream) };
    let table = |network: &Network| match predict(&network.stack, options) {
        Ok(prediction) => prediction.table,
        Err(error) => panic!("{}, {}: {error}", network.name, network.scheme),
    };
    let pool = ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
    pool.install(|| networks.iter().map(table).collect())
}

/// What enters the first block of every stream, a block in the middle, and the last.
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

/// What is committed of a site.
fn numbers(row: &SiteRow) -> Numbers {
    let ln = |quantity| row.value(quantity).map(|number| number.ln_abs());
    let plain = |quantity| row.value(quantity).map(|number| number.value());
    [
        ln(Quantity::Variance),
        plain(Quantity::TokenCorrelation),
        ln(Quantity::GradVariance),
        plain(Quantity::GradTokenCorrelation),
    ]
}

/// Whether both are the same to [`TOLERANCE`].
fn agree(committed: Option<f64>, got: Option<f64>) -> bool {
    match (committed, got) {
        // Equal infinities are logarithms of zero.
        (Some(committed), Some(got)) => {
            let close = (got - committed).abs() <= TOLERANCE * committed.abs().max(1.0);
            (committed.is_finite() && close) || committed.total_cmp(&got).is_eq()
        }
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// One line per number that is not what was committed.
fn changes(committed: &BTreeMap<Key, Numbers>, got: &BTreeMap<Key, Numbers>) -> Vec<String> {
    let tell = |number: Option<f64>| number.map_or("none".to_owned(), |value| value.to_string());
    let keys = committed.keys().chain(got.keys().filter(|key| !committed.contains_key(*key)));
    let changed = keys.flat_map(|key| {
        let [before, now] = [committed, got].map(|table| table.get(key).copied().unwrap_or_default());
        let (network, scheme, site) = key;
        let cells = COLUMNS[3..].iter().zip(before.into_iter().zip(now));
        cells.filter(|(_, (before, now))| !agree(*before, *now)).map(move |(quantity, (before, now))| {
            format!("{network}, {scheme}, {site}, {quantity}: committed {}, got {}", tell(before), tell(now))
        })
    });
    changed.collect()
}

fn read() -> BTreeMap<Key, Numbers> {
    let lines = csv::Reader::from_path(FILE).expect(ADVICE).into_deserialize();
    lines.map(|line: Result<(Key, Numbers), _>| line.expect(ADVICE)).collect()
}

fn write(got: Vec<(Key, Numbers)>) {
    // Adding zero makes −0 a plain one.
    let rounded = |value: f64| (value * STEPS).round() / STEPS + 0.0;
    let mut writer = csv::Writer::from_path(FILE).expect("the file can be written");
    writer.write_record(COLUMNS).expect("the file can be written");
    for (key, numbers) in got {
        writer.serialize((key, numbers.map(|number| number.map(rounded)))).expect("the file can be written");
    }
    writer.flush().expect("the file can be written");
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
            ((name.clone(), scheme.clone(), site), numbers(row))
        }));
    }
    match env::var("SIGPROP_GOLDEN").as_deref() {
        Ok("write") => write(got),
        Ok(other) => panic!("SIGPROP_GOLDEN is `write` or not there, got {other:?}"),
        Err(_) => {
            let changes = changes(&read(), &got.into_iter().collect());
            assert!(changes.is_empty(), "{} numbers changed; {ADVICE}\n{}", changes.len(), changes.join("\n"));
        }
    }
}

#[test]
fn a_change_is_told_by_its_place() {
    let key = |site: &str| ("gpt2".to_owned(), "hf".to_owned(), site.to_owned());
    let committed = [Some(30.0), Some(0.5), Some(f64::NEG_INFINITY), None];
    let within = [Some(30.0 + 2e-9), Some(0.5 - 5e-11), Some(f64::NEG_INFINITY), None];
    let beyond = [Some(30.0 + 4e-9), Some(0.5 - 2e-10), Some(-1e9), Some(0.0)];
    let told = |got| changes(&BTreeMap::from([(key("a"), committed)]), &BTreeMap::from([got]));
    assert_eq!(told((key("a"), within)), [""; 0]);
    let lines = told((key("a"), beyond));
    assert_eq!(lines.len(), 4);
    assert_eq!(lines[2], "gpt2, hf, a, ln_grad_variance: committed -inf, got -1000000000");
    let elsewhere = told((key("b"), committed));
    assert_eq!(elsewhere.len(), 6);
    assert_eq!(elsewhere[3], "gpt2, hf, b, ln_variance: committed none, got 30");
}
