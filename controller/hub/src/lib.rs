//! The hub of a fleet: verifies the records of nodes, stores them with their receipts, and answers
//! queries. Applies schedules to nodes.
//!
//! [`ingest`] has the rules for records, [`store::HubStore`] is the seam to a database, and
//! [`SqliteStore`] one of them. How records reach the hub is decided elsewhere: this crate opens no
//! connection to a node and reads no clock.

#![forbid(unsafe_code)]
#![warn(clippy::print_stderr)]

mod clock;
mod collect;
mod coverage;
mod dating;
mod error;
mod incarnation;
mod ingest;
mod object;
mod period;
mod query;
mod row;
pub mod schedule;
mod spans;
mod sqlite;
pub mod store;
mod verify;

pub use clock::accept_clock;
pub use collect::{CollectError, Collector, NodeSpool, Round, newest_schedule};
pub use coverage::ExpectedProbes;
pub use dating::{ClockPairing, is_plausible};
pub use error::{Cause, HubError};
pub use incarnation::{IncarnationState, SimultaneousAgents, Source, simultaneous_agents};
pub use ingest::{Committed, Rules, expire, ingest, store_unknown_versions};
pub use object::{
    NodeReport, nodes_object, query_object, schedule_object, schedules_object, time_text,
};
pub use period::{DAY_NS, Horizons, Partition, Resolution, Retention};
pub use query::{Answer, DelayFigures, Figures, QUANTILES, Query, QueryError, measure, query};
pub use row::{NodeId, RecordKey, Row, StreamId};
pub use sqlite::SqliteStore;
pub use verify::{BadRecord, Decoder, Delivery, Verified, verify};
