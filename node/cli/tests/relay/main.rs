//! End-to-end tests of `dwell relay`: forwarded data and reported values.

#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "other test programs use the rest")]
mod support;

#[path = "../support/pause.rs"]
mod pause;

mod datagrams;
mod delay_components;
mod fixture;
mod gcm;
mod iperf_transfer;
mod streams;
mod usage_errors;
