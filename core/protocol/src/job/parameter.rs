//! Errors about the options that plans, jobs and the command line share.

use std::fmt::Display;

/// A value outside its range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterError {
    /// Field of the options.
    pub field: &'static str,
    /// Value as given.
    pub value: String,
    /// Right values; reads after "must be".
    pub right: &'static str,
}

impl ParameterError {
    /// Fails if a value is given and `fits` refuses it.
    pub(super) fn unless<T: Copy + Display>(
        field: &'static str,
        value: Option<T>,
        fits: impl FnOnce(T) -> bool,
        right: &'static str,
    ) -> Result<(), Self> {
        match value {
            Some(value) if !fits(value) => Err(Self { field, value: value.to_string(), right }),
            _ => Ok(()),
        }
    }
}
