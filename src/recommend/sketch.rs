//! Networks much like another whose predictions take milliseconds, for the many of a search.

use crate::architecture::{Architecture, Positions};
use crate::assemble::{AssembleError, Input, assemble};
use crate::compare::Setting;
use crate::predict::is_exchangeable;
use crate::schemes::Scheme;

/// The network itself and, where its positions differ, faster ones: with few tokens in one sequence; with nothing that
/// tells positions apart.
pub(super) fn models(setting: &Setting, scheme: &Scheme) -> Result<Vec<Setting>, AssembleError> {
    /// Positions that are followed pair by pair in a tenth of a second.
    const SOME: usize = 64;
    /// The same in milliseconds, where something that is neither masks nor scores tells them apart.
    const FEW: usize = 16;
    let is_fast = |setting: &Setting| {
        let Setting { architecture, input, run, options: _ } = setting;
        assemble(architecture, scheme, input, run).map(|assembled| is_exchangeable(&assembled.stack))
    };
    if is_fast(setting)? {
        return Ok(vec![setting.clone()]);
    }
    let some = shortened(setting, SOME);
    let unordered = unordered(setting);
    let fastest = if is_fast(&unordered)? { unordered } else { shortened(&unordered, FEW) };
    Ok(vec![setting.clone(), some, fastest])
}

/// One sequence of at most so many tokens.
fn shortened(setting: &Setting, longest: usize) -> Setting {
    let mut shortened = setting.clone();
    shortened.options.sequences = Some(1);
    for input in inputs(&mut shortened) {
        if let Input::Tokens { sequences } = input {
            sequences.truncate(1);
            for sequence in sequences {
                sequence.truncate(longest);
            }
        }
    }
    let shorter =
        |architecture: Architecture| Architecture { seq_len: architecture.seq_len.min(longest), ..architecture };
    shortened.architecture = everywhere(shortened.architecture, &shorter);
    shortened
}

/// Every token sees all others, and none knows where it is but by what is added to it.
fn unordered(setting: &Setting) -> Setting {
    let mut unordered = setting.clone();
    for input in inputs(&mut unordered) {
        if matches!(input, Input::Tokens { .. }) {
            *input = Input::Zipf;
        }
    }
    let without = |architecture: Architecture| {
        let positions = match architecture.positions {
            Positions::Rotary | Positions::Alibi | Positions::Relative => Positions::None,
            positions => positions,
        };
        Architecture { causal: false, windows: Vec::new(), positions, ..architecture }
    };
    unordered.architecture = everywhere(unordered.architecture, &without);
    unordered
}

fn inputs(setting: &mut Setting) -> impl Iterator<Item = &mut Input> {
    [Some(&mut setting.input), setting.run.decoder_input.as_mut()].into_iter().flatten()
}

/// Changes the streams of an encoder–decoder alike.
fn everywhere(architecture: Architecture, change: &dyn Fn(Architecture) -> Architecture) -> Architecture {
    let decoder = architecture.decoder.clone().map(|decoder| Box::new(everywhere(*decoder, change)));
    Architecture { decoder, ..change(architecture) }
}
