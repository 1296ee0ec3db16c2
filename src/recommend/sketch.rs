//! Networks much like another whose predictions take milliseconds, for the many of a search.

use crate::architecture::{Architecture, Positions, Stem};
use crate::assemble::{AssembleError, Input, assemble};
use crate::compare::Setting;
use crate::predict::is_exchangeable;
use crate::schemes::Scheme;

/// The network itself and, where its positions differ, faster ones: with few tokens in one sequence; with nothing that
/// tells positions apart. Those that cannot be (latent attention rotates) are left out.
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
    let unordered = unordered(setting);
    let fastest = if let Ok(true) = is_fast(&unordered) { unordered } else { shortened(&unordered, FEW) };
    let faster = [shortened(setting, SOME), fastest].into_iter().filter(|setting| is_fast(setting).is_ok());
    Ok([setting.clone()].into_iter().chain(faster).collect())
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

/// Every token sees all others, none is there for its class, and none knows where it is but by what is added to it.
fn unordered(setting: &Setting) -> Setting {
    let mut unordered = setting.clone();
    for input in inputs(&mut unordered) {
        if matches!(input, Input::Tokens { .. }) {
            *input = Input::Zipf;
        }
    }
    let without = |architecture: Architecture| {
        // Those behind a stem are added apart from it.
        let added = match architecture.positions {
            Positions::LearnedRelative => Positions::Learned,
            added @ (Positions::Learned | Positions::Sinusoidal) => added,
            _ => Positions::None,
        };
        let positions = if architecture.stem.is_none() { added } else { Positions::None };
        let stem = architecture.stem.map(|stem| match stem {
            Stem::Patches { patch_width, class_token: _, distillation_token: _, bias, norm } => {
                Stem::Patches { patch_width, class_token: false, distillation_token: false, bias, norm }
            }
            Stem::Audio { .. } => stem,
        });
        Architecture { causal: false, windows: Vec::new(), positions, stem, ..architecture }
    };
    unordered.architecture = everywhere(unordered.architecture, &without);
    unordered
}

fn inputs(setting: &mut Setting) -> impl Iterator<Item = &mut Input> {
    [Some(&mut setting.input), setting.run.decoder_input.as_mut()].into_iter().flatten()
}

/// Changes the streams of an encoder–decoder alike.
fn everywhere(mut architecture: Architecture, change: &dyn Fn(Architecture) -> Architecture) -> Architecture {
    let decoder = architecture.decoder.take().map(|decoder| Box::new(everywhere(*decoder, change)));
    Architecture { decoder, ..change(architecture) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets::PRESETS;
    use crate::recommend::Gains;

    /// Those whose tokens are exchangeable need none; all others have both, of which one without a decoder has
    /// exchangeable tokens.
    #[test]
    fn every_preset_has_a_model_without_order() {
        for preset in PRESETS {
            let setting = Setting::from(preset.architecture());
            let scheme = Gains::start(setting.architecture.n_layers).scheme();
            let models = models(&setting, &scheme).expect("a network");
            let is_plain = ["bert", "dslm"].iter().any(|name| preset.name.starts_with(name));
            assert_eq!(models.len(), if is_plain { 1 } else { 3 }, "{}", preset.name);
            let Setting { architecture, input, run, options: _ } = &models[models.len() - 1];
            let fastest = assemble(architecture, &scheme, input, run).expect("a network").stack;
            assert_eq!(is_exchangeable(&fastest), architecture.decoder.is_none(), "{}", preset.name);
        }
    }
}
