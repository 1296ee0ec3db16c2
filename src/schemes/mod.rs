//! Initialisation schemes, which write the numbers of an initialisation into a stack.
//!
//! Every scheme has a file of its own. It holds the [`About`] of the scheme (name, parameters, rule, source) and a type
//! that implements `Recipe`: the distribution of every tensor from its role, its shape and its block. Once a stack is
//! assembled, the scheme is not used again.

mod admin;
mod admin_profiled;
mod bert;
mod branches;
mod completep;
mod deepnorm;
mod dslm;
mod dslm_paper;
mod elsewhere;
mod embeddings;
mod everywhere;
mod fixup;
mod gains;
mod gpt2;
mod hf;
mod kaiming;
mod layer_decay;
mod layerscale;
mod lecun;
mod ln_scaling;
mod megatron;
mod mup;
mod neox;
mod ngpt;
mod normal;
mod olmo;
mod olmo_core;
mod orthogonal;
mod parameters;
mod pytorch;
mod rezero;
mod skipinit;
mod standardised;
mod subln;
mod t_fixup;
#[cfg(test)]
mod tests;
mod torchtitan;
mod u_mup;
mod uniform;
mod unit;
mod xavier;
mod zero_gain;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use sigprop_stack::LearningRates;

use crate::architecture::Resolved;
use crate::nearest::nearest;
use crate::recipe::Rates;

pub use crate::recipe::SchemeError;
pub(crate) use crate::recipe::{Outer, Recipe, Role, Table};
pub use layer_decay::LAYER_DECAY;
pub use parameters::Parameter;

/// The description of a scheme, which `schemes` and `explain` print.
#[derive(Debug)]
pub struct About {
    /// Name of the scheme.
    pub name: &'static str,
    /// Its arguments, in addition to [`LAYER_DECAY`].
    pub parameters: &'static [Parameter],
    /// Its rule, as formulas.
    pub rule: &'static str,
    /// Its source: publication, equation, and deviations from it.
    pub source: &'static str,
    /// The tensors that it sets; the others get std `d_model`^(−1/2) (embeddings) or 0 (biases).
    pub touches: &'static str,
    /// Builds the scheme from the values of its parameters.
    build: fn(&[f64]) -> Box<dyn Recipe>,
}

/// Every scheme, in the order of the documentation.
pub const SCHEMES: &[&About] = &[
    &xavier::NORMAL,
    &xavier::UNIFORM,
    &xavier::PACKED,
    &kaiming::ABOUT,
    &lecun::ABOUT,
    &orthogonal::ABOUT,
    &pytorch::ABOUT,
    &normal::ABOUT,
    &uniform::ABOUT,
    &gpt2::ABOUT,
    &bert::ABOUT,
    &megatron::ABOUT,
    &neox::ABOUT,
    &olmo::NORMAL,
    &olmo::MITCHELL,
    &olmo::FULL_MEGATRON,
    &olmo_core::LLAMA,
    &olmo_core::LLAMA_DEPTH,
    &torchtitan::ABOUT,
    &ngpt::ABOUT,
    &deepnorm::ABOUT,
    &subln::ABOUT,
    &admin::ABOUT,
    &admin_profiled::ABOUT,
    &fixup::ABOUT,
    &t_fixup::ABOUT,
    &rezero::ABOUT,
    &skipinit::ABOUT,
    &layerscale::ABOUT,
    &zero_gain::ABOUT,
    &ln_scaling::ABOUT,
    &mup::ABOUT,
    &completep::ABOUT,
    &u_mup::ABOUT,
    &standardised::ABOUT,
    &dslm::ABOUT,
    &dslm_paper::ABOUT,
    &unit::ABOUT,
    &gains::ABOUT,
    &hf::ABOUT,
];

/// A scheme with its arguments.
///
/// ```
/// use sigprop::schemes::Scheme;
///
/// assert_eq!(Scheme::parse("normal:0.02")?.about().name, "normal");
/// assert_eq!(Scheme::parse("dslm:k=1")?.to_string(), "dslm:k=1,alpha=1");
/// assert!(Scheme::parse("xaver").unwrap_err().to_string().contains("did you mean xavier?"));
/// # Ok::<(), sigprop::schemes::SchemeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Scheme {
    about: &'static About,
    /// The values of its parameters, then the value of [`LAYER_DECAY`].
    values: Vec<f64>,
    recipe: Arc<dyn Recipe>,
}

impl Scheme {
    /// Reads `name`, `name:value` or `name:key=value,key=value`.
    pub fn parse(text: &str) -> Result<Self, SchemeError> {
        let (name, arguments) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
        if let Some((_, instead)) = elsewhere::INSTEAD.iter().find(|(known, _)| *known == name) {
            return Err(SchemeError::Elsewhere { got: name.to_owned(), instead });
        }
        let Some(about) = SCHEMES.iter().find(|about| about.name == name) else {
            let names = || SCHEMES.iter().map(|about| about.name);
            return Err(SchemeError::Unknown {
                got: name.to_owned(),
                nearest: nearest(name, names()),
                known: names().collect::<Vec<_>>().join(", "),
            });
        };
        Ok(Self::of(about, parameters::values(about, arguments)?))
    }

    /// Reads several schemes, separated by commas; `dslm:k=2,alpha=1` is one scheme.
    ///
    /// ```
    /// use sigprop::schemes::Scheme;
    ///
    /// assert_eq!(Scheme::parse_list("xavier,dslm:k=2,alpha=1,gpt2")?.len(), 3);
    /// # Ok::<(), sigprop::schemes::SchemeError>(())
    /// ```
    pub fn parse_list(text: &str) -> Result<Vec<Self>, SchemeError> {
        let mut names: Vec<String> = Vec::new();
        for piece in text.split(',') {
            match names.last_mut().filter(|name| name.contains(':') && piece.contains('=') && !piece.contains(':')) {
                Some(name) => {
                    name.push(',');
                    name.push_str(piece);
                }
                None => names.push(piece.to_owned()),
            }
        }
        names.iter().map(|name| Self::parse(name)).collect()
    }

    /// Returns the scheme with another value of its argument `key`.
    ///
    /// ```
    /// use sigprop::schemes::Scheme;
    ///
    /// assert_eq!(Scheme::parse("dslm")?.with("alpha", 0.5)?.to_string(), "dslm:k=2,alpha=0.5");
    /// # Ok::<(), sigprop::schemes::SchemeError>(())
    /// ```
    pub fn with(&self, key: &str, value: f64) -> Result<Self, SchemeError> {
        let values = parameters::with(self.about, &self.values, key, value)?;
        Ok(Self::of(self.about, values))
    }

    fn of(about: &'static About, values: Vec<f64>) -> Self {
        let recipe = (about.build)(&values[..about.parameters.len()]).into();
        Self { about, values, recipe }
    }

    /// The description of the scheme.
    pub fn about(&self) -> &'static About {
        self.about
    }

    /// The scheme as text for people: its name, and the arguments that differ from their defaults.
    pub fn label(&self) -> String {
        self.text(|_| false)
    }

    /// The scheme as text: its name, and those of its arguments that differ from their defaults or for which `tells`
    /// returns true.
    fn text(&self, tells: impl Fn(&Parameter) -> bool) -> String {
        let arguments = parameters::all(self.about).zip(&self.values);
        let is_default = |parameter: &Parameter, value: f64| {
            parameter.default.is_some_and(|default| default.total_cmp(&value).is_eq())
        };
        let told = arguments.filter(|(parameter, value)| tells(parameter) || !is_default(parameter, **value));
        let told: Vec<String> = told.map(|(parameter, value)| format!("{}={value}", parameter.name)).collect();
        if told.is_empty() { self.about.name.to_owned() } else { format!("{}:{}", self.about.name, told.join(",")) }
    }

    /// Returns true if the scheme is defined for a network and meant for it.
    pub(crate) fn is_meant_for(&self, architecture: &Resolved) -> bool {
        let sides = [architecture].into_iter().chain(architecture.decoder.as_deref());
        self.recipe.caveat(architecture).is_none() && sides.map(|side| self.recipe.fits(side)).all(|fits| fits.is_ok())
    }

    /// A function that returns the factors on the learning rates of every parameter; `None` if all learn at the same
    /// rate.
    pub(crate) fn learning_rates<'a>(&'a self, architecture: &'a Resolved) -> Option<Rates<'a>> {
        let decay = *self.values.last().expect("every scheme has a decay");
        let own = self.recipe.learning_rates(architecture);
        (own.is_some() || decay.total_cmp(&1.0).is_ne()).then(|| -> Rates<'a> {
            Box::new(move |trained| {
                let factor = layer_decay::factor(decay, architecture.n_layers, trained.place);
                own.as_ref().map_or_else(LearningRates::default, |own| own(trained)).scaled(factor)
            })
        })
    }

    pub(crate) fn recipe(&self) -> &dyn Recipe {
        self.recipe.as_ref()
    }
}

impl FromStr for Scheme {
    type Err = SchemeError;

    fn from_str(text: &str) -> Result<Self, SchemeError> {
        Self::parse(text)
    }
}

/// Writes the scheme with all its own arguments, as [`Scheme::parse`] reads it.
impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(|parameter| parameter.name != LAYER_DECAY.name))
    }
}
