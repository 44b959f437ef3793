//! The metadata of an imported file.

use std::collections::BTreeMap;

use dwell_record::{Figures, Packets, Scalar};
use serde_json::Value;

use crate::{Format, ImportWarning};

/// The metadata of an imported file.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// Format of the file.
    pub format: Format,
    /// The measured targets, separated by spaces; empty if the file states none.
    pub target: String,
    /// Measurement parameters, by name. Names include the unit.
    pub parameters: BTreeMap<String, Value>,
    /// The data sets, in the order of their first rows. A format with one kind of probe has one.
    pub flows: Vec<ImportedFlow>,
    /// Warnings that concern all flows.
    pub warnings: Vec<ImportWarning>,
    /// Number of unreadable rows: lines, or records of a binary format.
    pub skipped_lines: u64,
    /// The first unreadable row.
    pub skipped_example: Option<SkippedRow>,
}

/// One data set of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImportedFlow {
    /// Distinguishes it from the other flows of the file; empty if there can be only one.
    pub name: String,
    /// Target URL, if it differs between flows.
    pub target: String,
    /// Number of rows delivered.
    pub rows: u64,
    /// Packet counts, from the rows or, where rows cannot hold them, from the file's totals. `None`
    /// if neither is available.
    pub packets: Option<Packets>,
    /// Whether the rows do not distinguish received from lost packets: requests, which are answered
    /// in another flow, or the log of a sender. `packets` is `None` then.
    pub outcomes_unknown: bool,
    /// Distributions that the file states and that cannot be computed from its rows.
    pub metrics: BTreeMap<String, Figures>,
    /// Scalars that the file states and that cannot be computed from its rows.
    pub values: BTreeMap<String, Option<Scalar>>,
    /// Totals of intervals (iperf2, iperf3), in order.
    pub intervals: Vec<Interval>,
    /// Warnings that concern this flow only.
    pub warnings: Vec<ImportWarning>,
}

/// Totals of one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Interval {
    /// Start, in nanoseconds since the start of the flow.
    pub start_ns: i64,
    /// End, in nanoseconds since the start of the flow.
    pub end_ns: i64,
    /// Payload bytes, to the stated precision.
    pub bytes: Option<u64>,
    /// Bits per second, to the stated precision.
    pub rate_bps: Option<f64>,
    /// Jitter (RFC 3550).
    pub jitter_ns: Option<i64>,
    /// Packets expected.
    pub total: Option<u64>,
    /// Packets lost.
    pub lost: Option<u64>,
    /// Minimum, mean, maximum and standard deviation of the one-way delay.
    pub latency: Option<Figures>,
}

/// An unreadable row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedRow {
    /// Line number, or record number in a binary format, from 1.
    pub row: u64,
    /// Its beginning, made printable.
    pub text: String,
}

impl Imported {
    /// Returns the texts of all warnings. Those of a flow are prefixed with its name.
    pub fn all_warnings(&self) -> Vec<String> {
        let of_flow = |flow: &ImportedFlow| {
            let prefix = if flow.name.is_empty() { "" } else { ": " };
            let own = |warning: &ImportWarning| format!("{}{prefix}{warning}", flow.name);
            flow.warnings.iter().map(own).collect::<Vec<_>>()
        };
        let of_file = self.warnings.iter().map(ImportWarning::to_string);
        of_file.chain(self.flows.iter().flat_map(of_flow)).collect()
    }

    /// Returns the packet counts of all flows together; `None` if no flow has any.
    pub fn packets(&self) -> Option<Packets> {
        self.flows.iter().filter_map(|flow| flow.packets).reduce(sum)
    }
}

/// Adds two counts. Sums saturate because a file may state any numbers.
pub(crate) fn sum(a: Packets, b: Packets) -> Packets {
    Packets {
        sent: a.sent.saturating_add(b.sent),
        received: a.received.saturating_add(b.received),
        lost: a.lost.saturating_add(b.lost),
        late: a.late.saturating_add(b.late),
        duplicate: a.duplicate.saturating_add(b.duplicate),
        reordered: a.reordered.saturating_add(b.reordered),
        send_failed: a.send_failed.saturating_add(b.send_failed),
    }
}
