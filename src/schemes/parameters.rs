//! Arguments of schemes: `normal:0.02`, `dslm:k=2,alpha=1`.

use super::{About, LAYER_DECAY, SchemeError};

/// A numeric argument of a scheme.
#[derive(Debug)]
pub struct Parameter {
    /// Name of the argument.
    pub name: &'static str,
    /// Its default; `None` if a value must be given.
    pub default: Option<f64>,
    /// The allowed values, in words.
    pub expected: &'static str,
    /// The smallest allowed value.
    pub(super) low: f64,
    /// The largest allowed value.
    pub(super) high: f64,
}

impl Parameter {
    /// Creates a parameter that may be any number that is not negative.
    pub(super) const fn scale(name: &'static str, default: Option<f64>) -> Self {
        Self { name, default, expected: "finite and not negative", low: 0.0, high: f64::MAX }
    }

    /// Creates a parameter that may be any number above zero.
    pub(super) const fn positive(name: &'static str, default: f64) -> Self {
        let low = f64::MIN_POSITIVE;
        Self { name, default: Some(default), expected: "finite and positive", low, high: f64::MAX }
    }

    /// Creates a parameter that may be any number in (0, 1].
    pub(super) const fn share(name: &'static str, default: f64) -> Self {
        Self { name, default: Some(default), expected: "in (0, 1]", low: f64::MIN_POSITIVE, high: 1.0 }
    }

    fn allows(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// All parameters of a scheme: its own, and the parameter that every scheme has.
pub(super) fn all(about: &About) -> impl Iterator<Item = &Parameter> {
    about.parameters.iter().chain([&LAYER_DECAY])
}

/// Reads the values of all parameters of a scheme from the text after the colon. Values without names belong to the
/// scheme's own parameters, in their order.
pub(super) fn values(about: &About, arguments: Option<&str>) -> Result<Vec<f64>, SchemeError> {
    let mut values: Vec<Option<f64>> = vec![None; all(about).count()];
    for (position, argument) in arguments.into_iter().flat_map(|text| text.split(',')).enumerate() {
        let (found, text) = match argument.split_once('=') {
            Some((key, text)) => (all(about).enumerate().find(|(_, parameter)| parameter.name == key), text),
            None => (about.parameters.iter().enumerate().nth(position), argument),
        };
        let (index, parameter) = found.ok_or_else(|| unknown(about, argument))?;
        if values[index].is_some() {
            return Err(error(about, parameter.name, "given once", argument));
        }
        let value = text.parse().ok().filter(|value| parameter.allows(*value));
        values[index] = Some(value.ok_or_else(|| error(about, parameter.name, parameter.expected, text))?);
    }
    let filled = values.into_iter().zip(all(about));
    filled
        .map(|(value, parameter)| {
            value.or(parameter.default).ok_or_else(|| error(about, parameter.name, parameter.expected, "nothing"))
        })
        .collect()
}

/// Returns `values` with another value of the parameter `key`.
pub(super) fn with(about: &About, values: &[f64], key: &str, value: f64) -> Result<Vec<f64>, SchemeError> {
    let found = all(about).enumerate().find(|(_, parameter)| parameter.name == key);
    let (index, parameter) = found.ok_or_else(|| unknown(about, key))?;
    if !parameter.allows(value) {
        return Err(error(about, key, parameter.expected, &value.to_string()));
    }
    let mut values = values.to_vec();
    values[index] = value;
    Ok(values)
}

/// The error for an argument that the scheme does not have.
fn unknown(about: &About, argument: &str) -> SchemeError {
    let names: Vec<&str> = all(about).map(|parameter| parameter.name).collect();
    error(about, "argument", format!("among {}", names.join(", ")), argument)
}

fn error(about: &About, key: &str, expected: impl Into<String>, got: &str) -> SchemeError {
    SchemeError::Argument { scheme: about.name, key: key.to_owned(), expected: expected.into(), got: got.to_owned() }
}

#[cfg(test)]
mod tests {
    use crate::schemes::Scheme;

    fn message(text: &str) -> String {
        Scheme::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn positional_and_named_arguments() {
        assert_eq!(Scheme::parse("normal:0.5").unwrap().to_string(), "normal:std=0.5");
        assert_eq!(Scheme::parse("normal:std=0.5").unwrap().to_string(), "normal:std=0.5");
        assert_eq!(Scheme::parse("dslm:alpha=0.5").unwrap().to_string(), "dslm:k=2,alpha=0.5");
        let decayed = Scheme::parse("dslm:layer-decay=0.9").unwrap();
        assert_eq!(decayed.to_string(), "dslm:k=2,alpha=1,layer-decay=0.9");
        assert_eq!(decayed.label(), "dslm:layer-decay=0.9");
        assert_eq!(Scheme::parse("dslm-paper").unwrap().to_string(), "dslm-paper:r0=0.221,lambda2=0.995,beta2=0.005");
    }

    #[test]
    fn bad_arguments_say_what_is_wrong() {
        assert_eq!(message("normal"), "scheme normal: std must be finite and not negative, got nothing");
        assert_eq!(message("normal:x"), "scheme normal: std must be finite and not negative, got x");
        assert_eq!(message("normal:-1"), "scheme normal: std must be finite and not negative, got -1");
        assert_eq!(message("normal:nan"), "scheme normal: std must be finite and not negative, got nan");
        assert_eq!(message("normal:inf"), "scheme normal: std must be finite and not negative, got inf");
        assert_eq!(message("dslm:k=1,k=2"), "scheme dslm: k must be given once, got k=2");
        assert_eq!(message("dslm:q=1"), "scheme dslm: argument must be among k, alpha, layer-decay, got q=1");
        assert_eq!(message("xavier:1"), "scheme xavier: argument must be among layer-decay, got 1");
        let dslm = Scheme::parse("dslm").unwrap();
        assert_eq!(dslm.with("k", -1.0).unwrap_err().to_string(), message("dslm:k=-1"));
        let expected = "scheme dslm: argument must be among k, alpha, layer-decay, got q";
        assert_eq!(dslm.with("q", 1.0).unwrap_err().to_string(), expected);
        assert_eq!(message("dslm-paper:r0=0"), "scheme dslm-paper: r0 must be in (0, 1], got 0");
    }
}
