//! The hub of a fleet: verifies the records of nodes, stores them with their receipts, and answers
//! queries. Applies schedules to nodes.
//!
//! [`ingest`] has the rules for records, [`store::HubStore`] is the seam to a database: [`SqliteStore`]
//! or [`PostgresStore`]. How records reach the hub is decided elsewhere: this crate opens no
//! connection to a node and reads no clock.

#![forbid(unsafe_code)]
#![warn(clippy::print_stderr)]

pub mod alert;
mod batch;
mod clock;
mod collect;
mod coverage;
mod dating;
mod error;
mod incarnation;
mod ingest;
mod mesh;
mod migrations;
mod object;
mod period;
mod postgres;
mod query;
mod row;
mod samples;
pub mod schedule;
mod spans;
mod sqlite;
pub mod store;
mod text;
mod verify;
mod window;
mod window_update;

pub use batch::{Committed, Rules};
pub use clock::accept_clock;
pub use collect::{CollectError, Collector, NodeSpool, Round, newest_schedule, schedule_of};
pub use coverage::{ExpectedProbes, FleetHistory};
pub use dating::{ClockPairing, is_plausible};
pub use error::{Cause, HubError};
pub use incarnation::{IncarnationState, SimultaneousAgents, Source, simultaneous_agents};
pub use ingest::{expire, ingest, store_unknown_versions};
pub use mesh::{MAX_CURRENT_NS, MAX_SHOWN_NS, Mesh, MeshFigures, MeshStream, ProbeCoverage, mesh};
pub use object::{
    NodeReport, nodes_object, query_object, samples_object, schedule_object, schedules_object,
    time_text,
};
pub use period::{DAY_NS, Horizons, Partition, Resolution, Retention};
pub use postgres::PostgresStore;
pub use query::{
    Answer, BAND_QUANTILES, DelayFigures, Figures, QUANTILES, Query, QueryError, measure, query,
};
pub use row::{NodeId, RecordKey, Row, StreamId};
pub use samples::{SampleRequest, SampleRequestState, add_request, expire_samples, requests};
pub use sqlite::SqliteStore;
pub use text::{bin_text, delay_text, query_csv};
pub use verify::{BadRecord, Decoder, Delivery, Verified, verify};
pub use window::{WINDOW_QUANTILES, Window, WindowDelays, WindowFigures};
