//! Comparison of schemes on one network: the effect of each scheme, and a choice between them.

mod choice;
mod column;
mod summary;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use sigprop_stack::Stack;

use crate::architecture::Architecture;
use crate::assemble::{AssembleError, Assembled, Input, Run, assemble_in, initialise, outline};
use crate::caveat::Caveat;
use crate::predict::{Options, Sites, predict};
use crate::schemes::{Scheme, SchemeError};
pub use choice::{all_schemes, default_schemes};
pub use column::{Column, Value, sort};
pub use summary::{Growth, MARGIN_FORMATS, Summary, WorstTensor};

/// The network on which schemes are tried, and the options of predictions.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The network without the numbers that a scheme writes.
    pub subject: Subject,
    /// The options of predictions.
    pub options: Options,
}

/// A network on which schemes are tried.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// A network that is assembled anew for every scheme.
    Described {
        /// The shape of the network.
        architecture: Box<Architecture>,
        /// The input of the network.
        input: Input,
        /// The mode in which the network runs.
        run: Run,
    },
    /// A stack with the roles of its maps, which schemes initialise anew.
    Stack(Box<Stack>),
}

/// The setting of a network in evaluation, with token ids by Zipf's law.
impl From<Architecture> for Setting {
    fn from(architecture: Architecture) -> Self {
        Self::described(architecture, Input::default(), Run::default())
    }
}

/// The setting of a stack with roles. A stack without roles is refused when a scheme is tried.
impl From<Stack> for Setting {
    fn from(stack: Stack) -> Self {
        Self { subject: Subject::Stack(Box::new(stack)), options: Sites::Stream.into() }
    }
}

impl Setting {
    /// The setting of a network that is assembled from an architecture, an input and a mode.
    pub fn described(architecture: Architecture, input: Input, run: Run) -> Self {
        let subject = Subject::Described { architecture: Box::new(architecture), input, run };
        Self { subject, options: Sites::Stream.into() }
    }

    /// Returns the architecture of the network; for a stack, the one that resembles it.
    pub fn architecture(&self) -> Cow<'_, Architecture> {
        match &self.subject {
            Subject::Described { architecture, .. } => Cow::Borrowed(architecture),
            Subject::Stack(stack) => Cow::Owned(outline(stack)),
        }
    }

    /// Returns the network under `scheme`. A scheme that depends on the signal follows it in the theory that the
    /// options set.
    pub(crate) fn assemble(&self, scheme: &Scheme) -> Result<Assembled, AssembleError> {
        match &self.subject {
            Subject::Described { architecture, input, run } => {
                assemble_in(self.options.theory, architecture, scheme, input, run)
            }
            Subject::Stack(stack) => {
                let mut stack = Stack::clone(stack);
                let caveats = initialise(&mut stack, scheme, self.options.theory)?;
                Ok(Assembled { stack, caveats })
            }
        }
    }
}

/// One of the schemes that are compared.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The scheme.
    pub scheme: Scheme,
    /// The summary of the network under this scheme, or the reason why the scheme is not defined for it.
    pub outcome: Result<Summary, SchemeError>,
    /// Reasons why the scheme is not meant for the network.
    pub caveats: Vec<Caveat>,
}

/// Tries schemes on one network, in their order. Fails if the network itself is not valid.
///
/// ```
/// use sigprop::{architecture::Architecture, compare, compare::Setting, schemes::Scheme};
///
/// let setting = Setting::from(Architecture { n_layers: 48, ..Architecture::default() });
/// let schemes = Scheme::parse_list("xavier,gpt2,dslm:k=2,alpha=1")?;
/// for candidate in compare(&setting, &schemes)? {
///     let summary = candidate.outcome?;
///     println!("{}: ×{} forward, {}", candidate.scheme, summary.forward.total(), summary.verdict.headline);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn compare(setting: &Setting, schemes: &[Scheme]) -> Result<Vec<Candidate>, AssembleError> {
    schemes.iter().map(|scheme| candidate(setting, scheme, |_| {})).collect()
}

/// Tries a scheme on a network. `change` can modify the stack before the prediction.
pub(crate) fn candidate(
    setting: &Setting,
    scheme: &Scheme,
    change: impl FnOnce(&mut Stack),
) -> Result<Candidate, AssembleError> {
    let failed = |error| Ok(Candidate { scheme: scheme.clone(), outcome: Err(error), caveats: Vec::new() });
    let Assembled { mut stack, caveats } = match setting.assemble(scheme) {
        Err(AssembleError::Scheme(error)) => return failed(error),
        assembled => assembled?,
    };
    change(&mut stack);
    match predict(&stack, setting.options) {
        Ok(prediction) => {
            let outcome = Ok(Summary::of(&stack, &prediction));
            Ok(Candidate { scheme: scheme.clone(), outcome, caveats })
        }
        Err(error) => failed(error.into()),
    }
}
