//! The learning rates of all parameters of a stack.

use std::collections::BTreeMap;

use sigprop_stack::{LearningRates, Parameter, Stack, StackError, Values, parameters};

use crate::architecture::Resolved;
use crate::recipe::{Fans, Growth, StreamPosition, Trained};
use crate::schemes::Scheme;

/// The factors on learning rates that are not 1, by the name of the tensor. Tensors of a decoder have a prefix.
pub(super) fn learning_rates(
    stack: &Stack,
    scheme: &Scheme,
    encoder: &Resolved,
) -> Result<BTreeMap<String, LearningRates>, StackError> {
    let Some(of_encoder) = scheme.learning_rates(encoder) else { return Ok(BTreeMap::new()) };
    let of_decoder = encoder.decoder.as_deref().and_then(|decoder| scheme.learning_rates(decoder));
    let of = |parameter: &Parameter| {
        let own = of_decoder.as_ref().filter(|_| parameter.name.starts_with("decoder."));
        own.unwrap_or(&of_encoder)(&trained(parameter))
    };
    let learns = |parameter: &Parameter| !matches!(parameter.values, Values::Scale(_));
    let rates = parameters(stack)?.into_iter().filter(learns).map(|parameter| (of(&parameter), parameter.name));
    Ok(rates.filter(|(rates, _)| *rates != LearningRates::default()).map(|(rates, name)| (name, rates)).collect())
}

/// The name of the weight of a head over the vocabulary.
const HEAD: &str = "head.weight";

/// Returns true for the name of a tensor in a block.
pub(super) fn is_in_block(name: &str) -> bool {
    inside_stream(name).starts_with("blocks.")
}

/// Returns the name of a tensor without that of its stream.
fn inside_stream(name: &str) -> &str {
    ["encoder.", "decoder."].iter().find_map(|side| name.strip_prefix(side)).unwrap_or(name)
}

/// A parameter as schemes see it, derived from its name.
fn trained(parameter: &Parameter) -> Trained {
    let Parameter { name, shape: [rows, columns], values, .. } = parameter;
    let name = inside_stream(name);
    let (place, inner) = match name.split_once('.') {
        Some(("embeddings", inner)) => (StreamPosition::Embeddings, inner),
        Some(("blocks", inner)) => {
            let (block, inner) = inner.split_once('.').expect("tensors of blocks begin with the block's number");
            (StreamPosition::Block(block.parse().expect("blocks are numbered")), inner)
        }
        Some(_) | None => (StreamPosition::End, name),
    };
    let is_map = inner.ends_with(".weight");
    let growth = if inner == HEAD {
        Growth::Output
    } else if !is_map && *columns == 1 {
        Growth::Vector
    } else if !is_map || (place == StreamPosition::Embeddings && inner != "projection.weight") {
        Growth::Input
    } else {
        Growth::Hidden
    };
    // The rows of a table correspond to its inputs.
    let is_table = growth == Growth::Input && !is_map;
    let fans = if is_table { Fans::new(*rows, *columns) } else { Fans::new(*columns, *rows) };
    let std = match values {
        Values::Drawn(init) => init.std(),
        Values::Gains(norm) => norm.gain.abs(),
        Values::Scale(value) | Values::Skip(value) => value.abs(),
        // They are no maps, so that a scheme has no factor that depends on their size.
        Values::LogRates(_) | Values::StepBiases(_) => 1.0,
    };
    Trained { growth, place, fans, std }
}
