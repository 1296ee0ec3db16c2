//! One run: the prediction from a config, compared with the measurement cell by cell.

use std::collections::HashMap;

use sigprop::{
    Options, Sites, Theory,
    architecture::Architecture,
    assemble::{Input, Run, StreamName, assemble},
    huggingface, predict,
    schemes::Scheme,
    tokens::read_tokens,
};
use sigprop_stack::{SiteTable, WeightRow};

use super::{
    case::{Case, Key, Measured, Reference},
    gate::Cell,
    names::{Group, Loss, Named, Place, named},
};

/// All cells of one run, or a message if the prediction fails.
pub(super) fn run(reference: &Reference, key: &Key, theory: Theory) -> Result<Vec<Cell>, String> {
    let case = &reference.cases[&(key.case.clone(), key.input.clone())];
    let architecture = architecture(reference, case)?;
    let measured = &reference.runs[key];
    let predicted = |loss_at| Predicted::of(reference, (key, theory), &architecture, loss_at);
    let mut tables: Vec<(Loss, Predicted)> = vec![(Loss::Last, predicted(None)?)];
    if measured.iter().any(|row| row.stat.ends_with("_encloss")) {
        tables.push((Loss::Encoder, predicted(Some(StreamName::Encoder))?));
    }
    let mut cells = Vec::new();
    for row in measured {
        let Some(named) = named(&row.site, row.layer_index, &row.stat) else { continue };
        if theory == Theory::MeanField && !named.is_leading() {
            continue;
        }
        let table = tables.iter().find(|(loss, _)| *loss == named.loss);
        let (_, table) = table.expect("every loss has a table");
        cells.push(table.cell(&named, row, case, measured)?);
    }
    Ok(cells)
}

fn architecture(reference: &Reference, case: &Case) -> Result<Architecture, String> {
    let imported = huggingface::import(&reference.config(&case.name), &huggingface::Options::default());
    let mut architecture = imported.map_err(|error| error.to_string())?.architecture;
    architecture.seq_len = case.seq_len;
    if let (Some(decoder), Some(seq_len)) = (&mut architecture.decoder, case.seq_len_dec) {
        decoder.seq_len = seq_len;
    }
    Ok(architecture)
}

/// The prediction of a run, with the index of every site.
struct Predicted {
    table: SiteTable,
    places: HashMap<String, usize>,
}

impl Predicted {
    fn of(
        reference: &Reference,
        (key, theory): (&Key, Theory),
        architecture: &Architecture,
        loss_at: Option<StreamName>,
    ) -> Result<Self, String> {
        let scheme =
            Scheme::parse(architecture.scheme.as_deref().unwrap_or("hf")).map_err(|error| error.to_string())?;
        let two_streams = architecture.decoder.is_some();
        let tokens = |stream| {
            let path = reference.tokens(&key.case, &key.input, stream);
            read_tokens(&path).map(|sequences| Input::Tokens { sequences }).map_err(|error| error.to_string())
        };
        let (input, decoder_input) = match key.input.as_str() {
            "u" => (Input::Uniform, None),
            "z" => (Input::Zipf, None),
            "n" => (Input::Zipf, two_streams.then_some(Input::Uniform)),
            _ if two_streams => (tokens("enc")?, Some(tokens("dec")?)),
            _ => (tokens("in")?, None),
        };
        let run = Run { train: key.mode == "train", decoder_input, loss_at, ..Run::default() };
        let assembled = assemble(architecture, &scheme, &input, &run).map_err(|error| error.to_string())?;
        let options = Options { theory, ..Sites::All.into() };
        let table = predict(&assembled.stack, options).map_err(|error| error.to_string())?.table;
        let places = table.sites.iter().enumerate().map(|(place, row)| (row.site.clone(), place)).collect();
        Ok(Self { table, places })
    }

    fn cell(&self, named: &Named, row: &Measured, case: &Case, measured: &[Measured]) -> Result<Cell, String> {
        let mut cell = Cell {
            group: named.group,
            layer: row.layer_index,
            site: String::new(),
            quantity: named.quantity,
            predicted: 0.0,
            observed: row.value,
            std_error: row.std_error,
            seeds: row.seed_count,
            unit: row.value.abs(),
        };
        match &named.place {
            Place::Tensors(tensors) => {
                let known: Vec<&WeightRow> =
                    self.table.weights.iter().filter(|weight| tensors.contains(&weight.tensor)).collect();
                if known.is_empty() {
                    return Err(format!("no tensor {}", tensors.join(" or ")));
                }
                cell.site.clone_from(&known[0].tensor);
                let value = |weight: &WeightRow| match named.group {
                    Group::Weight => weight.variance,
                    // The measured gradient is the sum over the sequences of a batch, which are independent.
                    _ => weight.grad_second_moment.value.value() * case.batch as f64,
                };
                cell.predicted = known.iter().copied().map(value).sum::<f64>() / known.len() as f64;
            }
            Place::Site(site) => {
                let (site, place) = self.place(site, row.layer_index)?;
                let value = named.compared.value(&self.table.sites[place]);
                let value = value.ok_or_else(|| format!("nothing is predicted of {} at {site}", named.quantity))?;
                cell.predicted = value.value();
                cell.site = site;
                if named.group == Group::Cross {
                    cell.unit = second_moment(row, measured);
                }
            }
        }
        Ok(cell)
    }

    /// The name and index of a site. Without a final norm the last block takes its place, and experts can take the
    /// place of a feed-forward network.
    fn place(&self, site: &str, layer: i64) -> Result<(String, usize), String> {
        let last_block = site.strip_suffix("final_norm").map(|prefix| format!("{prefix}blocks.{}", layer - 1));
        let experts = site.strip_suffix("ffn.out").map(|block| format!("{block}ffn.experts"));
        let mut candidates = [Some(site.to_owned()), last_block, experts].into_iter().flatten();
        candidates
            .find_map(|site| self.places.get(&site).map(|&place| (site, place)))
            .ok_or_else(|| format!("no site {site}"))
    }
}

/// The number by which deviations of a cross product are divided: the second moment at its site.
fn second_moment(row: &Measured, measured: &[Measured]) -> f64 {
    let stat = row.stat.replace("corr_raw", "m2");
    let same = |other: &&Measured| other.site == row.site && other.layer_index == row.layer_index && other.stat == stat;
    measured.iter().find(same).map_or(f64::NAN, |other| other.value)
}
