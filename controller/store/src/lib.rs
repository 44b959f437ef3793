//! Stores results on disk: a catalogue in SQLite (plans, runs, trials, summaries, series for
//! figures, notes, devices and their leases) and samples as Parquet, one file per trial.
//!
//! ```text
//! DIR/catalogue.sqlite          WAL; numbered migrations, the version in user_version
//! DIR/runner.lock               held by the process that runs a plan here
//! DIR/waiting/                  one file per process that waits for the runner's lock
//! DIR/samples/RUN/TRIAL.parquet a column per stamp and delay, see docs/formats.md
//! DIR/samples/RUN/host/TRIAL.parquet  host activity during the trial, if recorded
//! DIR/samples/RUN/spikes/TRIAL.parquet  causes of long delays in the trial, if divided
//! DIR/samples/DAY/NODE-INCARNATION-SEQUENCE.parquet  samples of continuous measurement, see `FleetSamples`
//! DIR/incoming/                 segments being received from nodes
//! ```
//!
//! The catalogue marks a trial as finished only after everything else is stored. Data that a killed
//! runner leaves before that is overwritten by the next.

#![forbid(unsafe_code)]
#![warn(clippy::print_stderr)]

mod catalogue;
mod device;
mod error;
mod fleet_samples;
mod ingest;
mod lock;
mod migrations;
mod parquet;
mod queue;
mod run;
mod run_names;
mod scan;
mod signed;
mod stage;
mod stored_version;
mod views;

pub use catalogue::Store;
pub use device::{CheckResult, DeviceCheck, DeviceRow, LastCheck, Lease};
pub use dwell_record::TrialState;
pub use error::StoreError;
pub use fleet_samples::{
    FleetSampleFile, FleetSamples, fleet_samples, is_whole_segment, remove_fleet_samples,
    remove_partial_samples,
};
pub use ingest::{Ingest, Ingested};
pub use lock::{HubLock, ImportLock, RunnerLock};
pub use parquet::{HostRow, HostWriter, SpikeWriter};
pub use queue::QueuePlace;
pub use run::{
    BoundDevice, Counts, NewRun, NewTrial, Role, RunFilter, RunKind, RunNode, RunRow, RunState,
    TrialRow,
};
pub use stored_version::stored_version;
