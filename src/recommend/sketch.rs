//! Models of a network whose predictions take milliseconds, for the many predictions of a search.

use std::collections::BTreeSet;

use sigprop_stack::{Ids, Mask, Named, Source, Stack, check};

use crate::architecture::{Architecture, Positions, Stem};
use crate::assemble::{AssembleError, Input, Run};
use crate::compare::{Setting, Subject};
use crate::cost::tensor_entries;
use crate::predict::{Options, Positions as Grid, Theory, is_exchangeable};
use crate::schemes::Scheme;
use crate::verdict::{is_matrix, over_blocks};

/// The models of a network in a search, as settings.
pub(super) struct Models {
    /// The settings, from slow to fast: the network itself in the requested theory first, the fastest model last.
    pub(super) settings: Vec<Setting>,
    /// Names of the weight matrices that occur in all blocks, with a `*` for the number of the block.
    pub(super) matrices: Vec<String>,
}

impl Models {
    /// The models of a network: the network itself; the network in the mean-field theory; and, if positions differ, a
    /// network in which they do not.
    pub(super) fn new(setting: &Setting, scheme: &Scheme) -> Result<Self, AssembleError> {
        let stack = assembled(setting, scheme)?;
        let wide = wide(setting);
        let mut settings = vec![setting.clone()];
        settings.extend((wide != *setting).then(|| wide.clone()));
        if !is_exchangeable(&stack) {
            settings.push(without_positions(&wide, scheme));
        }
        // Models that cannot be assembled are left out: latent attention, for example, always needs rotated features.
        settings.retain(|setting| assembled(setting, scheme).is_ok_and(|stack| check(&stack).is_ok()));
        let names = tensor_entries(&stack).into_keys().filter(|name| is_matrix(name));
        let matrices: BTreeSet<String> = names.filter_map(|name| over_blocks(&name)).collect();
        Ok(Self { settings, matrices: matrices.into_iter().collect() })
    }
}

fn assembled(setting: &Setting, scheme: &Scheme) -> Result<Stack, AssembleError> {
    Ok(setting.assemble(scheme)?.stack)
}

/// The network in the mean-field theory, on a coarse grid.
fn wide(setting: &Setting) -> Setting {
    let positions = Some(setting.options.positions.unwrap_or(Grid::Coarse));
    let options = Options { theory: Theory::MeanField, positions, ..setting.options };
    Setting { options, ..setting.clone() }
}

/// A similar network whose predictions take milliseconds. Its tokens are exchangeable if possible; otherwise it has few
/// tokens.
fn without_positions(setting: &Setting, scheme: &Scheme) -> Setting {
    /// The number of tokens of a network in which more than masks and scores distinguishes positions.
    const FEW: usize = 16;
    let unordered = unordered(setting);
    match assembled(&unordered, scheme) {
        Ok(stack) if is_exchangeable(&stack) => unordered,
        Ok(_) | Err(_) => shortened(&unordered, FEW),
    }
}

/// The network with one sequence of at most `longest` tokens.
fn shortened(setting: &Setting, longest: usize) -> Setting {
    let mut shortened = setting.clone();
    match &mut shortened.subject {
        Subject::Described { architecture, input, run } => {
            for input in inputs(input, run) {
                if let Input::Tokens { sequences } = input {
                    shorten(sequences, longest);
                }
            }
            let shorter = |architecture: Architecture| Architecture {
                seq_len: architecture.seq_len.min(longest),
                ..architecture
            };
            **architecture = everywhere((**architecture).clone(), &shorter);
        }
        Subject::Stack(stack) => {
            for stream in &mut stack.streams {
                stream.seq_len = stream.seq_len.min(longest);
                if let Source::Embedding(embedding) = &mut stream.source
                    && let Ids::Given(given) = &mut embedding.ids
                {
                    shorten(&mut given.sequences, longest);
                }
            }
        }
    }
    shortened
}

fn shorten(sequences: &mut Vec<Vec<u32>>, longest: usize) {
    sequences.truncate(1);
    for sequence in sequences {
        sequence.truncate(longest);
    }
}

/// The network without an order of tokens: every token attends to all others, there are no class tokens, and positions
/// have an effect only through embeddings. A stack keeps everything but its masks.
fn unordered(setting: &Setting) -> Setting {
    let mut unordered = setting.clone();
    match &mut unordered.subject {
        Subject::Described { architecture, input, run } => {
            for input in inputs(input, run) {
                if matches!(input, Input::Tokens { .. }) {
                    *input = Input::Zipf;
                }
            }
            **architecture = everywhere((**architecture).clone(), &without_order);
        }
        Subject::Stack(stack) => stack.change(|named| match named {
            Named::Attention(attention) => attention.mask = Mask::FULL,
            Named::Tensor(_) | Named::Norm(..) | Named::Sum(..) => {}
        }),
    }
    unordered
}

fn without_order(architecture: Architecture) -> Architecture {
    // With a stem, positions are added after the stem and separately from it.
    let added = match architecture.positions {
        Positions::LearnedRelative => Positions::Learned,
        added @ (Positions::Learned | Positions::Sinusoidal) => added,
        _ => Positions::None,
    };
    let positions = if architecture.stem.is_none() { added } else { Positions::None };
    let stem = architecture.stem.map(|stem| match stem {
        Stem::Patches { patch_width, class_token: _, distillation_token: _, registers: _, bias, norm } => {
            Stem::Patches { patch_width, class_token: false, distillation_token: false, registers: 0, bias, norm }
        }
        Stem::Audio { .. } => stem,
    });
    Architecture { causal: false, windows: Vec::new(), positions, stem, ..architecture }
}

fn inputs<'s>(input: &'s mut Input, run: &'s mut Run) -> impl Iterator<Item = &'s mut Input> {
    [Some(input), run.decoder_input.as_mut()].into_iter().flatten()
}

/// Applies `change` to all streams of an encoder–decoder.
fn everywhere(mut architecture: Architecture, change: &dyn Fn(Architecture) -> Architecture) -> Architecture {
    let decoder = architecture.decoder.take().map(|decoder| Box::new(everywhere(*decoder, change)));
    Architecture { decoder, ..change(architecture) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets::PRESETS;
    use crate::recommend::Gains;

    /// The models are the network at finite width, the network in the mean-field theory, and, where positions differ,
    /// one with exchangeable tokens. Tokens of two streams are never exchangeable.
    #[test]
    fn presets_are_searched_in_the_mean_field_theory() {
        for preset in PRESETS {
            let setting = Setting::from(preset.architecture());
            let architecture = setting.architecture();
            let scheme = Gains::start(architecture.n_layers).scheme();
            let Models { settings, matrices: _ } = Models::new(&setting, &scheme).expect("a network");
            let is_plain = ["bert", "dslm"].iter().any(|name| preset.name.starts_with(name));
            assert_eq!(settings.len(), if is_plain { 2 } else { 3 }, "{}", preset.name);
            let theories = settings.iter().map(|setting| setting.options.theory == Theory::MeanField);
            assert!(theories.skip(1).all(|is_wide| is_wide), "{}", preset.name);
            let fastest = assembled(&settings[settings.len() - 1], &scheme).expect("a network");
            assert_eq!(is_exchangeable(&fastest), architecture.decoder.is_none(), "{}", preset.name);
        }
    }
}
