//! The choice of the rule of a component with one input.

use std::ops::Deref;
use std::sync::Arc;

use super::batch_norm::BatchNorm;
use super::component::MeanField;

/// The rule of a component with one input.
pub(crate) enum Rule<'c> {
    /// The component itself.
    Component(&'c dyn MeanField),
    /// A rule with a table, which several predictions share.
    Shared(Arc<dyn MeanField>),
    /// A norm over the tokens of a batch.
    BatchNorm(BatchNorm<'c>),
}

impl<'c> Deref for Rule<'c> {
    type Target = dyn MeanField + 'c;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Component(component) => *component,
            Self::Shared(rule) => &**rule,
            Self::BatchNorm(norm) => norm,
        }
    }
}
