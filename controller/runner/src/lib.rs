//! Turns a plan into trials.
#![forbid(unsafe_code)]
