//! What a file says beside its samples.

use std::collections::BTreeMap;

use dwell_record::{Figures, Packets, Scalar};
use serde_json::Value;

use crate::Format;

/// What a file says beside its samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// Its format.
    pub format: Format,
    /// What was measured, as far as the file says; else empty. Of several flows, all, separated by
    /// blanks.
    pub target: String,
    /// How it was measured, by name and with the unit in the name.
    pub parameters: BTreeMap<String, Value>,
    /// The data sets, in the order of their first rows. A format that holds one kind of probe only
    /// has one.
    pub flows: Vec<Flow>,
    /// What a reader of the figures should know, of all flows.
    pub warnings: Vec<String>,
    /// Rows that could not be read: lines, or records of a binary format.
    pub skipped_lines: u64,
    /// The first of them.
    pub skipped_example: Option<SkippedRow>,
}

/// One data set of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flow {
    /// What tells it from the others of the file; empty where there can be one only.
    pub name: String,
    /// What it went to, where that differs between flows: a URL.
    pub target: String,
    /// How many rows were handed over.
    pub rows: u64,
    /// What became of the probes: counted from the rows, and where rows cannot hold it, as stated
    /// by the file. `None` where neither says.
    pub packets: Option<Packets>,
    /// Whether its rows say nothing of what became of the packets: requests, which are answered in
    /// another flow, or what a sender noted. `packets` is `None` then.
    pub fates_unknown: bool,
    /// Distributions that the file states and its rows cannot give.
    pub metrics: BTreeMap<String, Figures>,
    /// Scalars that the file states and its rows cannot give.
    pub values: BTreeMap<String, Option<Scalar>>,
    /// What the file says about parts of the time (iperf2), in order.
    pub intervals: Vec<Interval>,
    /// What a reader of its figures should know, beside what is so of all flows.
    pub warnings: Vec<String>,
}

/// What a file says about a part of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Interval {
    /// Its start, nanoseconds since that of the flow.
    pub start_ns: i64,
    /// Its end.
    pub end_ns: i64,
    /// Payload carried in it, to the precision stated.
    pub bytes: Option<u64>,
    /// Bits per second, to the precision stated.
    pub rate_bps: Option<f64>,
    /// Jitter by RFC 3550.
    pub jitter_ns: Option<i64>,
    /// Packets that were expected in it.
    pub total: Option<u64>,
    /// Those of them that did not come.
    pub lost: Option<u64>,
    /// Smallest, mean and largest one-way delay, and its standard deviation.
    pub latency: Option<Figures>,
}

/// A row that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedRow {
    /// The number of the line, or of the record in a binary format, from 1.
    pub row: u64,
    /// Its beginning, made printable.
    pub text: String,
}

impl Imported {
    /// All warnings, those of one of several flows behind its name.
    pub fn all_warnings(&self) -> Vec<String> {
        let of_flow = |flow: &Flow| {
            let named = |text: &String| [&flow.name, text].map(String::as_str).join(": ");
            let own = |text: &String| if flow.name.is_empty() { text.clone() } else { named(text) };
            flow.warnings.iter().map(own).collect::<Vec<_>>()
        };
        self.warnings.iter().cloned().chain(self.flows.iter().flat_map(of_flow)).collect()
    }

    /// The probes of all flows together; `None` where no flow says.
    pub fn packets(&self) -> Option<Packets> {
        self.flows.iter().filter_map(|flow| flow.packets).reduce(sum)
    }
}

/// A file may state any counts, so sums saturate.
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
