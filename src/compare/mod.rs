//! Schemes side by side on one network: what each makes of it, and which one to take.

mod choice;
mod column;
mod summary;

use sigprop_stack::Stack;

use crate::architecture::Architecture;
use crate::assemble::{AssembleError, Assembled, Input, Run, assemble_in};
use crate::caveat::Caveat;
use crate::predict::{Options, Sites, predict};
use crate::schemes::{Scheme, SchemeError};
pub use choice::{all_schemes, default_schemes};
pub use column::{Column, Value, sort};
pub use summary::{Growth, MARGIN_FORMATS, Summary, WorstTensor};

/// The network that schemes are tried on, and how it is run.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Its shape.
    pub architecture: Architecture,
    /// What it reads.
    pub input: Input,
    /// How it runs.
    pub run: Run,
    /// What predictions average over.
    pub options: Options,
}

/// Zipf's law on the evaluated network.
impl From<Architecture> for Setting {
    fn from(architecture: Architecture) -> Self {
        Self { architecture, input: Input::default(), run: Run::default(), options: Sites::Stream.into() }
    }
}

impl Setting {
    /// The stack under `scheme`; a scheme that depends on the signal follows it in the theory of the options.
    pub(crate) fn assemble(&self, scheme: &Scheme) -> Result<Assembled, AssembleError> {
        assemble_in(self.options.theory, &self.architecture, scheme, &self.input, &self.run)
    }
}

/// A scheme beside others.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The scheme.
    pub scheme: Scheme,
    /// What it makes of the network, or why it is not defined for it.
    pub outcome: Result<Summary, SchemeError>,
    /// Why it is not meant for the network, if it is not.
    pub caveats: Vec<Caveat>,
}

/// Tries schemes on one network, in their order. Fails where the network itself does not hold together.
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

/// What a scheme makes of a network; `change` has the last word on its numbers.
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
