//! Turns a plan into trials: which jobs a trial needs, in which order they begin and end, and how a
//! run goes on after anything fails.
//!
//! [`Machine`] decides, as a state machine that takes events and the time; [`Runner`] carries out
//! what it decides, with a fleet, a store and a clock that are handed in. What the machines of a way
//! told of the same packets is joined before it is kept.

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
