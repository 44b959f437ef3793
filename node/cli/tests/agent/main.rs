//! The agent as a process: its spool, its schedule and its pauses, with a worker as the carrier.

#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "other test programs use the rest")]
mod support;

mod carrier;
mod fixture;

mod files;
mod interruptions;
mod measuring;
mod schedules;
