//! End-to-end tests of `dwell relay`: forwarded data and reported values.

#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "other test programs use the rest")]
mod support;

#[path = "../support/pause.rs"]
mod pause;

mod authentic;
mod datagrams;
mod fixture;
mod measured;
mod mistakes;
mod streams;
mod transfer;
