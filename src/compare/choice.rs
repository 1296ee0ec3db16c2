//! The schemes that are compared by default.

use crate::architecture::{Architecture, ArchitectureError};
use crate::schemes::{SCHEMES, Scheme};

/// Families of schemes, each with its members in order of preference. The comment before a family names the quantity
/// that determines the scale of its weights.
const FAMILIES: &[&[&str]] = &[
    // The distributions that a config sets.
    &["hf"],
    // The shape of each matrix; its fan-in and activation; its fan-in alone.
    &["xavier"],
    &["kaiming"],
    &["pytorch"],
    // Nothing: a fixed number.
    &["normal:0.02"],
    // The number of blocks; the index of each block.
    &["gpt2"],
    &["olmo-core-depth", "olmo-mitchell"],
    // Where norms are placed.
    &["deepnorm"],
    &["admin-profiled", "admin"],
    &["subln"],
    &["ln-scaling"],
    &["layerscale"],
    &["zero-gain"],
    // None of these: the network has no norms.
    &["t-fixup", "fixup", "rezero"],
    // The width.
    &["u-mup"],
    // The signal.
    &["dslm"],
];

/// The first scheme of every family that is meant for the network, with its default arguments.
///
/// # Errors
///
/// The architecture is not valid.
///
/// # Panics
///
/// Never: the names are those of schemes.
///
/// ```
/// use sigprop::{architecture::Architecture, compare::default_schemes};
///
/// let schemes = default_schemes(&Architecture::default())?;
/// assert!(schemes.iter().any(|scheme| scheme.about().name == "gpt2"));
/// # Ok::<(), sigprop::architecture::ArchitectureError>(())
/// ```
pub fn default_schemes(architecture: &Architecture) -> Result<Vec<Scheme>, ArchitectureError> {
    let architecture = architecture.resolved()?;
    let scheme = |text: &&str| Scheme::parse(text).expect("a scheme with its arguments");
    let meant = |family: &&[&str]| family.iter().map(scheme).find(|scheme| scheme.is_meant_for(&architecture));
    Ok(FAMILIES.iter().filter_map(meant).collect())
}

/// Every scheme that can be used without an argument, and `normal` with std 0.02.
///
/// # Panics
///
/// Never: the names are those of schemes.
pub fn all_schemes() -> Vec<Scheme> {
    let with_defaults = SCHEMES.iter().filter_map(|about| Scheme::parse(about.name).ok());
    let common = Scheme::parse("normal:0.02").expect("a scheme with its argument");
    with_defaults.chain([common]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::{Activation, NormChoice, NormPlacement};

    fn names(architecture: &Architecture) -> Vec<String> {
        default_schemes(architecture).unwrap().iter().map(Scheme::label).collect()
    }

    #[test]
    fn a_family_shows_its_first_that_is_meant_for_the_network() {
        let always = ["xavier", "kaiming", "pytorch", "normal:std=0.02", "gpt2"];
        let with = |others: &[&'static str]| [&always[..], others].concat();
        let plain = Architecture::default;
        assert_eq!(names(&plain()), with(&["olmo-mitchell", "ln-scaling", "layerscale", "u-mup", "dslm"]));
        let gated = Architecture { activation: Activation::Swiglu, ..plain() };
        assert_eq!(names(&gated), with(&["olmo-core-depth", "ln-scaling", "layerscale", "u-mup", "dslm"]));
        let post = Architecture { norm_placement: NormPlacement::Post, ..plain() };
        assert_eq!(names(&post), with(&["olmo-mitchell", "deepnorm", "admin-profiled", "dslm"]));
        let bare = Architecture { norm: Some(NormChoice::None), ..plain() };
        assert_eq!(names(&bare), with(&["olmo-mitchell", "rezero", "dslm"]));
        let relu = Architecture { activation: Activation::Relu, ..bare };
        assert_eq!(names(&relu), with(&["olmo-mitchell", "fixup", "dslm"]));
    }
}
