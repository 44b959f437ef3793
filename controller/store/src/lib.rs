//! The catalogue of runs and their samples on disk.
#![forbid(unsafe_code)]
