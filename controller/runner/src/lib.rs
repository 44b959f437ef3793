//! Runs plans: derives the jobs of each trial, starts and stops them in order, and continues the
//! run after failures.
//!
//! [`Machine`] decides, as a state machine driven by events and time. [`Runner`] executes its
//! decisions, with a fleet, a store and a clock that the caller provides. What the machines along a
//! flow recorded of the same packets is joined before it is stored.

#![forbid(unsafe_code)]
#![warn(clippy::print_stderr)]

mod incoming;
mod jobs;
mod join;
mod keep;
mod links;
mod machine;
mod quotas;
mod runner;
mod way;

pub use jobs::{Peer, Planned, Servers, jobs};
pub use machine::{Action, Machine, Outcome};
pub use runner::{Clock, End, Runner, RunnerError, Talk, TrialEnd, new_trials};
