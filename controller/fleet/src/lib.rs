//! Reaching nodes.
#![forbid(unsafe_code)]
