//! Runs plans: derives the jobs of each trial, starts and stops them in order, and continues the
//! run after failures.
//!
//! [`TrialMachine`] decides, as a state machine driven by events and time. [`Runner`] executes its
//! decisions, with a fleet, a store and a clock that the caller provides. What the machines along a
//! flow recorded of the same packets is joined before it is stored.

#![forbid(unsafe_code)]
#![warn(clippy::print_stderr)]

mod incoming;
mod jobs;
mod join;
mod persist;
mod links;
mod trial;
mod quotas;
mod runner;
mod flow_summary;

pub use jobs::{Peer, PlannedJob, TrialJobs, jobs};
pub use trial::{Action, TrialMachine, Outcome};
pub use runner::{Clock, RunEnd, Runner, RunnerError, ProgressReporter, TrialEnd, new_trials};
