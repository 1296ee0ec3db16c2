//! Which known families have the shape of a config that names none of them: by its keys.

use serde_json::{Map, Value};

use super::families::FAMILIES;
use super::keys::Keys;
use super::{Options, families};

/// Families named at most.
const SHOWN: usize = 4;
/// Keys that a family must read.
const FEWEST: usize = 3;

/// The families that read most keys of a config and leave fewest behind that may matter, the nearest first: those that
/// read equally many, in the order of the table.
pub(super) fn similar(config: &Map<String, Value>, options: Options) -> Vec<&'static str> {
    let model_types = FAMILIES.iter().flat_map(|family| family.model_types.iter().copied());
    let scored: Vec<(usize, &str)> =
        model_types.filter_map(|name| Some((score(config, name, options)?, name))).collect();
    let Some(best) = scored.iter().map(|(score, _)| *score).max().filter(|best| *best >= FEWEST) else {
        return Vec::new();
    };
    let nearest = scored.into_iter().filter(|(score, _)| *score == best);
    nearest.map(|(_, name)| name).take(SHOWN).collect()
}

/// Keys that the family reads less those it leaves behind; none if it cannot read the config at all.
fn score(config: &Map<String, Value>, name: &str, options: Options) -> Option<usize> {
    let family = families::find(name)?;
    let keys = Keys::new(config, name, options);
    (family.read)(&keys).ok()?.resolved().ok()?;
    let (read, missed) = keys.coverage();
    Some(read.saturating_sub(missed))
}
