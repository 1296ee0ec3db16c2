//! Low-rank adapters (LoRA), as the library PEFT saves them.
//!
//! # Formula
//!
//! ```text
//! W' = W + c B A     c = α/r, or α/√r with use_rslora
//! A ~ U(−1/√in, 1/√in)     B = 0
//! ```
//!
//! where A is [r, in], B [out, r] and α is `lora_alpha`. At the start B is zero, so that W' = W. The first step moves B
//! alone, because the gradient of A is a multiple of B. For an embedding, A is zero and B is N(0, 1).
//!
//! # Source
//!
//! Hu et al. 2021, LoRA, section 4.1; Kalajdzievski 2023 for α/√r; PEFT, `tuners/lora/layer.py`,
//! `reset_lora_parameters`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;

use serde::Deserialize;
use serde_json::Value;
use sigprop_stack::{Init, LearningRates};

use super::finding::{Finding, Problem, range};
use super::{Inspection, Reading, starred};
use crate::checkpoint::{Checkpoint, CheckpointError, Entry, LowRank};
use crate::huggingface::{Held, Part, Start};

/// The initialisation that fresh adapters are compared with.
const SCHEME: &str = "PEFT";

/// A LoRA adapter: pairs of matrices A and B for modules of another model, the base model.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapter {
    config: Config,
    pairs: Vec<Pair>,
}

/// Keys of `adapter_config.json`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Config {
    base_model_name_or_path: Option<String>,
    lora_alpha: Option<f64>,
    use_rslora: Option<bool>,
    fan_in_fan_out: Option<bool>,
    init_lora_weights: Value,
    alpha_pattern: Option<BTreeMap<String, f64>>,
}

/// The matrices A and B of one module.
#[derive(Clone, Debug, PartialEq)]
struct Pair {
    /// Path of the module in the base model.
    module: String,
    a: Entry,
    b: Entry,
    /// The factor c on the product B A.
    scaling: f64,
    /// True if the module is an embedding.
    is_table: bool,
}

impl Adapter {
    /// Returns the adapter that a checkpoint holds; `None` for other checkpoints.
    pub fn of(checkpoint: &Checkpoint) -> Result<Option<Self>, CheckpointError> {
        let by_name: HashMap<&str, &Entry> =
            checkpoint.entries.iter().map(|entry| (entry.name.as_str(), entry)).collect();
        let halves = checkpoint.entries.iter().filter(|entry| entry.is_float()).filter_map(|entry| {
            let (end, other, is_table) = [("lora_A", "lora_B", false), ("lora_embedding_A", "lora_embedding_B", true)]
                .into_iter()
                .find(|(end, ..)| entry.name.split('.').any(|part| part == *end))?;
            let b = *by_name.get(entry.name.replace(end, other).as_str())?;
            let module = entry.name.split_once(&format!(".{end}"))?.0;
            let module = module.strip_prefix("base_model.model.").unwrap_or(module).to_owned();
            Some((module, entry.clone(), b.clone(), is_table))
        });
        let halves: Vec<(String, Entry, Entry, bool)> = halves.collect();
        if halves.is_empty() {
            return Ok(None);
        }
        let config = Config::next_to(checkpoint)?;
        let pairs = halves.into_iter().map(|(module, a, b, is_table)| {
            let scaling = config.scaling(&module, a.matrix()[0]);
            Pair { module, a, b, scaling, is_table }
        });
        Ok(Some(Self { pairs: pairs.collect(), config }))
    }

    /// Describes the adapter in a sentence: base model, modules, rank and scaling.
    pub fn description(&self) -> String {
        let base = self.config.base_model_name_or_path.as_deref().unwrap_or("another model");
        let extent = |values: &dyn Fn(&Pair) -> f64| {
            let values = self.pairs.iter().map(values);
            values.fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), value| (low.min(value), high.max(value)))
        };
        let rank = range(extent(&|pair| pair.a.matrix()[0] as f64));
        let scaling = range(extent(&|pair| pair.scaling));
        let rule = if self.config.use_rslora == Some(true) { "lora_alpha/√r" } else { "lora_alpha/r" };
        format!(
            "This is a LoRA adapter of {base}: {} modules, rank {rank}, scaling {scaling} ({rule}).",
            self.pairs.len()
        )
    }

    /// Returns A and B of all modules, each with the initialisation by which PEFT creates it. The list is empty if the
    /// config asks for an initialisation that is neither the default nor Gaussian.
    pub fn held(&self) -> Vec<Held> {
        let halves =
            |pair: &'_ Pair| [(pair.a.clone(), self.start_of_a(pair)), (pair.b.clone(), self.start_of_b(pair))];
        self.pairs.iter().flat_map(halves).filter_map(|(entry, init)| Some(held(&entry, init?))).collect()
    }

    fn start_of_a(&self, pair: &Pair) -> Option<Init> {
        let [rank, inputs] = pair.a.matrix();
        match &self.config.init_lora_weights {
            Value::Null | Value::Bool(_) if pair.is_table => Some(Init::Zero),
            Value::Null | Value::Bool(_) => Some(Init::Uniform { bound: 1.0 / (inputs as f64).sqrt() }),
            Value::String(name) if name.eq_ignore_ascii_case("gaussian") && !pair.is_table => {
                Some(Init::Normal { std: 1.0 / rank as f64 })
            }
            Value::String(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }

    fn start_of_b(&self, pair: &Pair) -> Option<Init> {
        let start = self.start_of_a(pair)?;
        Some(if pair.is_table && start == Init::Zero { Init::Normal { std: 1.0 } } else { Init::Zero })
    }

    /// Returns the findings about the tensors of the adapter. There is one finding for all matrices that must be zero
    /// in a fresh adapter and are not, and one for all modules whose two matrices are zero.
    pub fn findings(&self, inspection: &Inspection) -> Vec<Finding> {
        let zeros: HashSet<String> = self.pairs.iter().map(|pair| starred(&pair.zero().name)).collect();
        let is_own = |finding: &Finding| match finding.problem {
            Problem::Deviation => !finding.tensors.iter().all(|tensor| zeros.contains(tensor)),
            Problem::NotFinite | Problem::Copies | Problem::Rows | Problem::Tails => true,
            Problem::Fresh | Problem::Missing | Problem::Unknown => false,
        };
        let mut findings = inspection.findings(SCHEME);
        findings.retain(is_own);
        let graver = findings.iter().filter(|finding| finding.problem < Problem::Deviation).count();
        let of_zeros = self.moved(inspection).into_iter().chain(self.dead(inspection));
        findings.splice(graver..graver, of_zeros);
        findings
    }

    /// Returns the finding about matrices that must be zero in a fresh adapter and are not; `None` if there are none.
    fn moved(&self, inspection: &Inspection) -> Option<Finding> {
        let sizes = sizes(inspection);
        let size = |pair: &Pair| sizes.get(pair.zero().name.as_str()).copied().filter(|size| *size > 0.0);
        let moved: Vec<(&Pair, f64)> = self.pairs.iter().filter_map(|pair| Some((pair, size(pair)?))).collect();
        let low = moved.iter().map(|(_, size)| *size).fold(f64::INFINITY, f64::min);
        let high = moved.iter().map(|(_, size)| *size).fold(0.0, f64::max);
        let text = format!(
            "lora_B is not zero in {} of {} modules (size {}): a fresh adapter starts with B = 0 and leaves the model as it \
             is, so this one was trained, or was initialised wrongly",
            moved.len(),
            self.pairs.len(),
            range((low, high))
        );
        let tensors = moved.iter().map(|(pair, _)| pair.zero().name.clone()).collect();
        (!moved.is_empty()).then_some(Finding {
            problem: Problem::Deviation,
            tensors,
            blocks: Vec::new(),
            text,
            value: f64::INFINITY,
        })
    }

    /// Returns the finding about modules whose matrices A and B are both zero; `None` if there are none.
    fn dead(&self, inspection: &Inspection) -> Option<Finding> {
        let sizes = sizes(inspection);
        let is_zero = |entry: &Entry| sizes.get(entry.name.as_str()).is_some_and(|size| *size <= 0.0);
        let dead: Vec<&Pair> = self.pairs.iter().filter(|pair| is_zero(&pair.a) && is_zero(&pair.b)).collect();
        let text = format!(
            "lora_A and lora_B are both zero in {} of {} modules: neither gets a gradient, these modules never learn",
            dead.len(),
            self.pairs.len()
        );
        let tensors = dead.iter().map(|pair| pair.a.name.clone()).collect();
        (!dead.is_empty()).then_some(Finding {
            problem: Problem::Deviation,
            tensors,
            blocks: Vec::new(),
            text,
            value: 1.0,
        })
    }

    /// Returns a sentence about the start of training; `None` if the adapter is not like a fresh one.
    pub fn opening(&self, inspection: &Inspection) -> Option<String> {
        let is_fresh = self.moved(inspection).is_none() && self.dead(inspection).is_none();
        is_fresh.then(|| {
            "lora_B is zero in all modules, as it must be: the model starts as it is. The first step moves B alone; A gets \
             a gradient from the second step on."
                .to_owned()
        })
    }

    /// Adds the product c B A of every pair to the weight of its module in the base model.
    pub fn merge_into(&self, base: &mut Checkpoint) -> Result<(), CheckpointError> {
        for Pair { module, a, b, scaling, is_table } in &self.pairs {
            let name = format!("{module}.weight");
            // The names in a base checkpoint may lack the beginning of the path of the module.
            let is_end = |entry: &&Entry| entry.name == name || name.ends_with(&format!(".{}", entry.name));
            let found = base.entries.iter().find(is_end).map_or(name.clone(), |entry| entry.name.clone());
            let transposed = *is_table || self.config.fan_in_fan_out == Some(true);
            base.add_low_rank(&found, LowRank { a: a.clone(), b: b.clone(), scaling: *scaling, transposed })?;
        }
        Ok(())
    }
}

impl Pair {
    /// Returns the matrix of the pair that is zero in a fresh adapter.
    fn zero(&self) -> &Entry {
        if self.is_table { &self.a } else { &self.b }
    }
}

impl Config {
    /// Reads the config next to the tensors; without one all keys have PEFT's defaults.
    fn next_to(checkpoint: &Checkpoint) -> Result<Self, CheckpointError> {
        let path = checkpoint.path.with_file_name("adapter_config.json");
        let Ok(text) = fs::read_to_string(&path) else { return Ok(Self::default()) };
        serde_json::from_str(&text).map_err(|error| CheckpointError::format(&path, "the config of an adapter", &error))
    }

    fn scaling(&self, module: &str, rank: usize) -> f64 {
        /// PEFT's default of `lora_alpha`.
        const ALPHA: f64 = 8.0;
        let own = self.alpha_pattern.iter().flatten().find(|(end, _)| module.ends_with(end.as_str()));
        let alpha = own.map(|(_, alpha)| *alpha).or(self.lora_alpha).unwrap_or(ALPHA);
        let rank = rank as f64;
        alpha / if self.use_rslora == Some(true) { rank.sqrt() } else { rank }
    }
}

/// Returns √E w² of every tensor, by its name.
fn sizes(inspection: &Inspection) -> HashMap<&str, f64> {
    let size = |reading: &'_ Reading| reading.spread.root_mean_square();
    inspection.readings.iter().filter_map(|reading| Some((reading.tensor.as_str(), size(reading)?))).collect()
}

fn held(entry: &Entry, init: Init) -> Held {
    let part = Part {
        parameters: vec![entry.name.clone()],
        pattern: starred(&entry.name),
        expert: None,
        shape: entry.matrix(),
        start: Start::Drawn(init),
        offset: 0.0,
        learning_rates: LearningRates::default(),
    };
    let (name, pattern, shape) = (entry.name.clone(), starred(&entry.name), entry.shape.clone());
    Held { name, base: None, pattern, shape, axis: 0, groups: 1, parts: vec![part] }
}
