//! Comparison of schemes on one network: the effect of each scheme, and a choice between them.

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

/// The network on which schemes are tried, and the mode in which it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The shape of the network.
    pub architecture: Architecture,
    /// The input of the network.
    pub input: Input,
    /// The mode in which the network runs.
    pub run: Run,
    /// The options of predictions.
    pub options: Options,
}

/// The setting of a network in evaluation, with token ids by Zipf's law.
impl From<Architecture> for Setting {
    fn from(architecture: Architecture) -> Self {
        Self { architecture, input: Input::default(), run: Run::default(), options: Sites::Stream.into() }
    }
}

impl Setting {
    /// Assembles the stack under `scheme`. A scheme that depends on the signal follows it in the theory that the
    /// options set.
    pub(crate) fn assemble(&self, scheme: &Scheme) -> Result<Assembled, AssembleError> {
        assemble_in(self.options.theory, &self.architecture, scheme, &self.input, &self.run)
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
