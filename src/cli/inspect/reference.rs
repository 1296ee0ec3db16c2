//! The network that a checkpoint is compared with, or the reason why there is none.

use std::path::PathBuf;

use crate::{
    huggingface::ImportError,
    inspect::{AbsentBlocks, Inspection, some},
};
use anyhow::bail;

use super::{Arguments, Expected};

/// The network that a checkpoint is compared with, or none.
pub(super) enum Reference {
    /// The network that it should be.
    Network(Box<Expected>),
    /// No network, and the reason.
    Nothing(String),
}

impl Arguments {
    /// Returns the network of the config, or the reason why there is none. Fails if a flag or gate needs one.
    pub(super) fn reference(&self, is_adapter: bool) -> anyhow::Result<Reference> {
        let needing = self.needing_network(is_adapter);
        if is_adapter {
            return match needing {
                Some(flag) => bail!(
                    "{flag}: expected a network, got an adapter; name the config.json in the folder of its base model with \
                     --config"
                ),
                None => Ok(Reference::Nothing(
                    "an adapter alone is no network; --config with the config.json in the folder of its base model inspects \
                     their sum"
                        .to_owned(),
                )),
            };
        }
        if let Some(path) = &self.stack {
            return Ok(Reference::Network(Box::new(self.expected_of_stack(path)?)));
        }
        let Some(model) = self.model() else {
            return match needing {
                Some(flag) => bail!(
                    "{flag}: expected a network to compare with, got no config.json next to {}; name one with --config",
                    self.checkpoint.display()
                ),
                None => Ok(Reference::Nothing("there is no config; name one with --config".to_owned())),
            };
        };
        match (self.expected(&model), needing) {
            (Ok(expected), _) => Ok(Reference::Network(Box::new(expected))),
            (Err(error), None) if self.config.is_none() || is_of_another_kind(&error) => {
                Ok(Reference::Nothing(reason(&error)))
            }
            (Err(error), Some(flag)) if is_of_another_kind(&error) => {
                Err(error
                    .context(format!("{flag}: expected a network to compare with, got a config that is not computed")))
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Returns the first flag or gate that needs a network.
    fn needing_network(&self, is_adapter: bool) -> Option<String> {
        let flag = |file: &Option<PathBuf>, name: &str| file.as_ref().map(|_| name.to_owned());
        let scheme = self.scheme.given().map(str::to_owned);
        let files = flag(&self.names, "--names").or(flag(&self.dump_stack, "--dump-stack"));
        let files = files.or(flag(&self.stack, "--stack"));
        scheme.or(files).or(self.gate.needing_network(is_adapter))
    }
}

/// Returns true if the error says that the config is understood but its network is not computed.
fn is_of_another_kind(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<ImportError>() {
        Some(
            ImportError::Unsupported { .. }
            | ImportError::UnknownModelType { .. }
            | ImportError::NoModelType { .. }
            | ImportError::OtherFile { .. },
        ) => true,
        Some(ImportError::Json(_) | ImportError::Value { .. }) | None => false,
    }
}

/// Returns the error as a clause: without the advice after its first semicolon.
fn reason(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    text.split(';').next().unwrap_or_default().to_owned()
}

/// Returns the reason why few tensors match the network: their type, missing blocks, or other names.
pub(super) fn unmatched(inspection: &Inspection) -> String {
    let unread: Vec<String> = inspection
        .unread
        .iter()
        .filter(|(name, _)| !inspection.unknown.contains(name))
        .map(|(name, dtype)| format!("{name} ({dtype})"))
        .collect();
    if !unread.is_empty() {
        return format!("{} of its tensors have a type that is not read: {}", unread.len(), some(&unread));
    }
    let absent: Vec<String> = inspection.absent_blocks.iter().map(AbsentBlocks::place).collect();
    if inspection.coverage.found > 0 && inspection.unknown.is_empty() && !absent.is_empty() {
        return format!("all tensors of {} are missing; is the checkpoint whole?", absent.join(" and "));
    }
    let (expected, found) = inspection.unmatched();
    let expected = format!("is it the config of this checkpoint? Expected names such as {}", expected.join(", "));
    if found.is_empty() {
        return expected;
    }
    format!("{expected}; found {}; --names FILE maps others (lines `found = expected`)", found.join(", "))
}
