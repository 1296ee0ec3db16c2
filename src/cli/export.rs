//! `--export`: the initialisation as a plan, a PyTorch function or a checkpoint.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use crate::{
    architecture::Architecture,
    export::{Plan, checkpoint, init_py, plan_json},
    huggingface::{Held, Names},
    report::{Drawn, write_file},
    schemes::Scheme,
};
use anyhow::{Context, bail};
use sigprop_stack::{Stack, parameters};
use sigprop_validate::Draws;

use super::{model::Network, names::with_file};

/// The kind of an exported file, given by its extension.
enum Kind {
    Plan,
    Function,
    Checkpoint,
}

impl Kind {
    fn of(path: &Path) -> anyhow::Result<Self> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("json") => Ok(Self::Plan),
            Some("py") => Ok(Self::Function),
            Some("safetensors") => Ok(Self::Checkpoint),
            Some(_) | None => bail!("--export {}: expected a file named *.json, *.py or *.safetensors", path.display()),
        }
    }
}

/// Writes the initialisation of every parameter of a network into files; the extension of a path gives the kind of the
/// file. A checkpoint holds the first network that `sigprop validate` samples with this seed. `names` is a file with
/// the user's own names of parameters.
pub(crate) fn export(paths: &[PathBuf], network: &Network, names: Option<&Path>, seed: u64) -> anyhow::Result<()> {
    let kinds = paths.iter().map(|path| Kind::of(path)).collect::<anyhow::Result<Vec<_>>>()?;
    if paths.is_empty() {
        return Ok(());
    }
    let parameters = parameters(&network.stack)?;
    let architecture = network.described().map_or_else(Architecture::default, |(architecture, _)| architecture.clone());
    let names = with_file(&network.names, names, &architecture, &parameters)?;
    let held = names.held(&parameters);
    let plan = plan(&network.stack, network.described().map(|(_, scheme)| scheme), &held);
    for (path, kind) in paths.iter().zip(kinds) {
        write_file(path, |out| match kind {
            Kind::Plan => plan_json(&plan, out),
            Kind::Function => init_py(&plan, out),
            Kind::Checkpoint => {
                let draws = RefCell::new(Draws::new(seed));
                let draw = |tensor: &_, expert, rows, row, entries: &mut [f32]| {
                    draws.borrow_mut().row(tensor, expert, rows, row, entries);
                };
                checkpoint(&names.whole(&parameters), &draw, out)
            }
        })
        .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Returns the plan: the initialisation of every parameter.
fn plan(stack: &Stack, scheme: Option<&Scheme>, held: &[Held]) -> Plan {
    Plan::new(stack, scheme.map(ToString::to_string), held)
}

/// Returns a network and its plan, for a report.
pub(crate) fn drawn(stack: &Stack, scheme: Option<&Scheme>, names: &Names) -> anyhow::Result<Drawn> {
    let held = names.held(&parameters(stack)?);
    Ok(Drawn { scheme: scheme.cloned(), stack: stack.clone(), plan: plan(stack, scheme, &held) })
}
