//! Runs plans: derives the jobs of each trial, starts and stops them in order, and continues the
//! run after failures.
//!
//! [`TrialMachine`] decides, as a state machine driven by events and time. [`Runner`] executes its
//! decisions, with a fleet, a store and a clock that the caller provides. For a flow, the records
//! of all machines along its path are joined before they are stored.

#![forbid(unsafe_code)]
#![warn(clippy::print_stderr)]

mod far_clock;
mod flow_summary;
mod incoming;
mod jobs;
mod join;
mod links;
mod path_clocks;
mod persist;
mod quotas;
mod runner;
mod trial;
mod trial_clocks;

pub use jobs::{Peer, PlannedJob, TrialJobs, jobs};
pub use runner::{Clock, ProgressReporter, RunEnd, Runner, RunnerError, TrialEnd, new_trials};
pub use trial::{Action, Outcome, TrialMachine};
