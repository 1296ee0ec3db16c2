//! The initialisation of weights in the library.

use sigprop_stack::Init;

use super::keys::Keys;
use super::{ImportError, Version};
use crate::architecture::InitTable;

/// Returns N(0, `std`²).
pub(super) fn normal(std: f64) -> Init {
    Init::Normal { std }
}

/// Returns the standard deviation that the library's base class uses: `initializer_range`, else `init_std`, else
/// `initializer_factor`. Since release 5.0 a value of 0 means 0.02.
pub(super) fn base_std(keys: &Keys, default: f64) -> Result<f64, ImportError> {
    let std = keys.number("init std", &["initializer_range", "init_std", "initializer_factor"], default)?;
    if !(0.0..=1e6).contains(&std) {
        let got = serde_json::Value::from(std);
        return Err(ImportError::value("initializer_range", "a number between 0 and 1e6", &got, ""));
    }
    match keys.options.version {
        Version::V4 => Ok(std),
        Version::V5Early | Version::V5 => Ok(if std > 0.0 { std } else { 0.02 }),
    }
}

/// Returns a table with one standard deviation for all parameters.
pub(super) fn base(keys: &Keys, default: f64) -> Result<InitTable, ImportError> {
    Ok(InitTable::everywhere(normal(base_std(keys, default)?)))
}
