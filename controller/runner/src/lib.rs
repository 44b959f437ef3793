//! Turns a plan into trials: which jobs a trial needs, in which order they begin and end, and how a
//! run goes on after anything fails.
//!
//! [`Machine`] decides, as a state machine that takes events and the time; [`Runner`] carries out
//! what it decides, with a fleet, a store and a clock that are handed in.

#![forbid(unsafe_code)]

mod jobs;
mod machine;
mod runner;

pub use jobs::{Planned, Servers, jobs};
pub use machine::{Action, Machine, Outcome};
pub use runner::{Clock, End, Runner, RunnerError, Talk, TrialEnd};
