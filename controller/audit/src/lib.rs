//! Audits published tables of measurements: finds numbers that do not follow from their rows, and
//! properties of the data that limit what may be concluded.
//!
//! A table is a CSV file ([`read_file`]), a run, or described by a TABLE.toml
//! ([`audit_description`]). Checks are functions of [`Table`]s; a number is contradicted only if
//! neither rounding nor cutting digits explains it. `docs/audit.md` lists every finding.

#![forbid(unsafe_code)]
#![warn(clippy::print_stderr)]

mod audit;
mod block;
mod build;
mod cell;
mod checks;
mod columns;
mod csv;
mod decimal;
mod document;
mod error;
mod expression;
mod finding;
mod header;
mod layout;
mod printed;
mod records;
mod report;
mod scope;
mod statistic;
mod table;
mod timestamp;
mod unit;

pub use audit::{audit, audit_description, audit_tables};
pub use build::TableBuilder;
pub use columns::Mapping;
pub use csv::{read, read_file};
pub use document::{Document, PrintedStatistic};
pub use error::AuditError;
pub use finding::{CannotTell, Finding, Severity};
pub use printed::{Printed, Reading};
pub use report::{ColumnSummary, Report, TableSummary};
pub use statistic::Statistic;
pub use table::{
    Column, Content, Extreme, Limit, MAX_LISTED_ROWS, Malformed, MalformedCell, OddTime, Role,
    StampComparison, StampDifference, Table, Totals,
};
pub use unit::Unit;
