//! The summary of a validation: the run, and how well prediction and measurement agree.

use std::io::{self, Write};

use serde::{Serialize, Serializer};

use super::SCHEMA_VERSION;
use crate::agreement::{Compared, Fit, Summary};

/// The stack, and the source of the observations.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// Name of the stack.
    pub stack: String,
    /// Its fingerprint, [`stack_hash`](crate::stack_file::stack_hash).
    pub stack_hash: String,
    /// The observations that the prediction was compared with.
    #[serde(flatten)]
    pub observed: Observed,
}

/// The source of the observations.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Observed {
    /// Sampled networks.
    Sampled {
        /// Seed of the samples.
        seed: u64,
        /// Sequences per replicate.
        batch: usize,
        /// Number of replicates that were completed.
        replicates: usize,
        /// How linear maps were sampled.
        sampler: &'static str,
        /// First site that left the range of f32, if one did; nothing is observed from there on.
        overflow: Option<String>,
    },
    /// A file of the user's measurements.
    File {
        /// Its path.
        observed: String,
    },
}

/// The contents of `summary.json`.
#[derive(Serialize)]
pub(super) struct SummaryDocument<'a> {
    schema_version: u32,
    version: &'static str,
    #[serde(flatten)]
    run: &'a Run,
    #[serde(serialize_with = "by_name")]
    quantities: &'a [(Compared, Fit)],
    pooled: &'a Fit,
}

impl<'a> SummaryDocument<'a> {
    pub(super) fn new(run: &'a Run, summary: &'a Summary) -> Self {
        let Summary { quantities, pooled } = summary;
        Self { schema_version: SCHEMA_VERSION, version: env!("CARGO_PKG_VERSION"), run, quantities, pooled }
    }
}

/// Writes the summary as JSON. Numbers that do not exist are null.
pub fn summary_json(run: &Run, summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &SummaryDocument::new(run, summary))?;
    writeln!(out)
}

fn by_name<S: Serializer>(quantities: &&[(Compared, Fit)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(quantities.iter().map(|(quantity, fit)| (quantity.name(), fit)))
}
