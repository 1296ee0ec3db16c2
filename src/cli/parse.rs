//! Parsers of numbers on the command line. Their errors name the expected values.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command};
use sigprop_stack::GIBIBYTE;
use sigprop_validate::Shard;

use crate::architecture::Activation;

/// Larger counts are refused as typing errors.
const MAX_COUNT: usize = 1_000_000;
/// Longer ranges of seeds are refused as typing errors.
const MAX_SEEDS: u64 = 1000;

/// Parses a size: a whole number from 1.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&size| size > 0).ok_or_else(|| "expected a whole number from 1".to_owned())
}

/// Parses an activation: one of its words, which help and completions list, or a formula.
pub(crate) fn activation() -> impl TypedValueParser<Value = Activation> {
    Activations
}

#[derive(Clone)]
struct Activations;

impl TypedValueParser for Activations {
    type Value = Activation;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Activation, clap::Error> {
        StringValueParser::new().try_map(|text| text.parse()).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Activation::WORDS.iter().map(PossibleValue::new)))
    }
}

/// Parses a probability of dropping something, in [0, 1).
pub(crate) fn dropout_rate(text: &str) -> Result<f64, String> {
    within(text, |rate| (0.0..1.0).contains(&rate), "expected a probability in [0, 1)")
}

/// Parses a correlation or a share, in [0, 1].
pub(crate) fn share(text: &str) -> Result<f64, String> {
    within(text, |share| (0.0..=1.0).contains(&share), "expected a number in [0, 1]")
}

/// Parses the probability that two positions carry the same id, in (0, 1].
pub(crate) fn repeat_probability(text: &str) -> Result<f64, String> {
    within(text, |share| share > 0.0 && share <= 1.0, "expected a probability in (0, 1]")
}

/// Parses a finite number from 0.
pub(crate) fn not_negative(text: &str) -> Result<f64, String> {
    within(text, |value| value >= 0.0 && value.is_finite(), "expected a finite number, not negative")
}

/// Parses a share above 0, which may be a percentage.
pub(crate) fn error(text: &str) -> Result<f64, String> {
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |percent| (percent, 0.01));
    let value = within(number, |value| value > 0.0 && value.is_finite(), "expected a number above 0, as 0.01 or 1%");
    value.map(|value| value * unit)
}

/// Parses a finite number.
pub(crate) fn finite(text: &str) -> Result<f64, String> {
    within(text, f64::is_finite, "expected a finite number")
}

/// Parses a finite number above 0.
pub(crate) fn positive(text: &str) -> Result<f64, String> {
    within(text, |value| value > 0.0 && value.is_finite(), "expected a finite number above 0")
}

fn within(text: &str, allowed: impl Fn(f64) -> bool, expected: &str) -> Result<f64, String> {
    text.parse().ok().filter(|&value| allowed(value)).ok_or_else(|| expected.to_owned())
}

/// Parses a number of replicates or sequences.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=MAX_COUNT).contains(count));
    count.ok_or_else(|| "expected a whole number from 1 to 1000000".to_owned())
}

/// Parses a size in GiB or MiB. Returns bytes.
pub(crate) fn memory(text: &str) -> Result<f64, String> {
    let units = [("GiB", GIBIBYTE), ("MiB", GIBIBYTE / 1024.0)];
    let bytes =
        units.iter().find_map(|(unit, bytes)| Some(bytes * text.strip_suffix(unit)?.trim().parse::<f64>().ok()?));
    bytes
        .filter(|bytes| *bytes > 0.0 && bytes.is_finite())
        .ok_or_else(|| "expected a size such as 4GiB or 500MiB".to_owned())
}

/// A number of sequences; `None` means all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sequences(pub(crate) Option<usize>);

/// Parses `all`, or a number from 1.
pub(crate) fn sequences(text: &str) -> Result<Sequences, String> {
    if text == "all" {
        return Ok(Sequences(None));
    }
    let count = text.parse().ok().filter(|&count| count > 0);
    count.map(|count| Sequences(Some(count))).ok_or_else(|| "expected a whole number from 1, or `all`".to_owned())
}

/// A number of threads; `None` means all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Threads(pub(crate) Option<usize>);

/// Parses `all`, or a number from 1.
pub(crate) fn threads(text: &str) -> Result<Threads, String> {
    if text == "all" {
        return Ok(Threads(None));
    }
    let threads = text.parse().ok().filter(|threads| (1..=MAX_COUNT).contains(threads));
    threads.map(|threads| Threads(Some(threads))).ok_or_else(|| "expected `all` or a whole number from 1".to_owned())
}

/// Parses a part of a run, such as `2/4`.
pub(crate) fn shard(text: &str) -> Result<Shard, String> {
    text.parse()
}

/// Seeds of several runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seeds(pub(crate) Vec<u64>);

/// Parses seeds and ranges of seeds, ends included, separated by commas. No seed may occur twice.
pub(crate) fn seeds(text: &str) -> Result<Seeds, String> {
    let seed = |text: &str| text.parse::<u64>().map_err(|_| format!("expected seeds such as 3,11..16, got {text:?}"));
    let mut seeds = Vec::new();
    for part in text.split(',') {
        let (low, high) = part.split_once("..").unwrap_or((part, part));
        let range = seed(low)?..=seed(high)?;
        if range.is_empty() {
            return Err(format!("expected a range from the smaller to the larger seed, got {part}"));
        }
        if range.end() - range.start() >= MAX_SEEDS {
            return Err(format!("expected at most {MAX_SEEDS} seeds, got {part}"));
        }
        if let Some(twice) = range.clone().find(|seed| seeds.contains(seed)) {
            return Err(format!("expected every seed once, got {twice} twice"));
        }
        seeds.extend(range);
    }
    Ok(Seeds(seeds))
}

/// A limit; `None` means no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limit(pub(crate) Option<f64>);

/// Parses a factor above 1, or `none`.
pub(crate) fn factor_limit(text: &str) -> Result<Limit, String> {
    limit(text, |value| value > 1.0 && value.is_finite(), "expected a finite number above 1, or none")
}

/// Parses a number above 0 and below 1, or `none`.
pub(crate) fn share_limit(text: &str) -> Result<Limit, String> {
    limit(text, |value| value > 0.0 && value < 1.0, "expected a number above 0 and below 1, or none")
}

/// Parses a number above 0, or `none`.
pub(crate) fn positive_limit(text: &str) -> Result<Limit, String> {
    limit(text, |value| value > 0.0 && value.is_finite(), "expected a finite number above 0, or none")
}

fn limit(text: &str, allowed: impl Fn(f64) -> bool, expected: &str) -> Result<Limit, String> {
    if text == "none" { Ok(Limit(None)) } else { within(text, allowed, expected).map(|value| Limit(Some(value))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_listed_once() {
        assert_eq!(seeds("3,11..13"), Ok(Seeds(vec![3, 11, 12, 13])));
        for (text, expected) in [
            ("", "such as 3,11..16"),
            ("1,,2", "such as 3,11..16"),
            ("-1", "such as 3,11..16"),
            ("4..2", "from the smaller"),
            ("0..18446744073709551615", "at most 1000"),
            ("5,3..7", "5 twice"),
        ] {
            let error = seeds(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    type Parser = fn(&str) -> Result<f64, String>;

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config { failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(1), ..proptest::test_runner::Config::default() })]

        /// Every text is either refused or parsed to a number within its bounds.
        #[test]
        fn what_is_taken_is_within_its_bounds(
            text in "[-+]?[0-9]{1,20}(\\.[0-9]{0,3})?(e-?[0-9]{1,3})?(%|GiB|MiB)?|-?(nan|inf|NaN|infinity)|.{0,6}|none|all"
        ) {
            assert!(size(&text).is_ok_and(|size| size > 0) || size(&text).is_err());
            assert!(count(&text).is_ok_and(|count| (1..=MAX_COUNT).contains(&count)) || count(&text).is_err());
            let bounds: [(Parser, f64, f64); 7] = [
                (dropout_rate, 0.0, 1.0 - f64::EPSILON / 2.0),
                (share, 0.0, 1.0),
                (repeat_probability, f64::MIN_POSITIVE * f64::EPSILON, 1.0),
                (not_negative, 0.0, f64::MAX),
                (finite, f64::MIN, f64::MAX),
                (memory, f64::MIN_POSITIVE * f64::EPSILON, f64::MAX),
                (error, 0.0, f64::MAX),
            ];
            for (parser, low, high) in bounds {
                if let Ok(value) = parser(&text) {
                    assert!((low..=high).contains(&value), "{text}: {value}");
                }
            }
            for parser in [factor_limit, share_limit, positive_limit] {
                if let Ok(Limit(Some(value))) = parser(&text) {
                    assert!(value > 0.0 && value.is_finite(), "{text}: {value}");
                }
            }
            if let Ok(Threads(Some(count))) = threads(&text) {
                assert!((1..=MAX_COUNT).contains(&count), "{text}");
            }
        }
    }
}
