//! What other programs measured, as samples.
#![forbid(unsafe_code)]
