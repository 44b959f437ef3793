//! Sample segments: what a node writes while it measures, and a controller reads afterwards.
//!
//! Append-only and framed, so that whatever was written before a power cut can be read, and a
//! damaged frame costs itself only. Every stamp of every sample is kept, with the pairings of the
//! clocks, so that all figures can be computed again. `docs/formats.md` describes the bytes.

mod flow;
mod frame;
mod passage;
mod read;
mod sample;
mod varint;
mod write;

pub use flow::FlowEntry;
pub use read::{Record, SegmentEnd, SegmentError, read};
pub use write::SegmentWriter;

use dwell_engine::passage::Point;
use serde::{Deserialize, Serialize};

/// The name and version of the format.
pub const SCHEMA: &str = "dwell.segment/1";

/// The first bytes of a segment.
pub const MAGIC: [u8; 8] = *b"DWELLSEG";

/// Version of the frames.
const VERSION: u16 = 1;

/// What a segment says of itself in its first frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version of dwell that wrote it.
    pub dwell: String,
    /// The command, such as `ping`.
    pub kind: String,
    /// What was measured: a URL.
    pub target: String,
    /// Which clock each stamp was read from, by the names of columns.
    pub clocks: Vec<ClockOf>,
}

/// The clock of some stamps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOf {
    /// Names of columns, such as `tx_app_ns`.
    pub columns: Vec<String>,
    /// `CLOCK_REALTIME`, `CLOCK_MONOTONIC`, the card's or the far end's.
    pub clock: String,
}

impl ClockOf {
    fn new(columns: &[&str], clock: &str) -> Self {
        let columns = columns.iter().map(|&name| name.to_owned()).collect();
        Self { columns, clock: clock.to_owned() }
    }
}

impl Header {
    /// The header of a segment with the samples of a pinger.
    pub fn of_ping(target: String) -> Self {
        Self::of_samples("ping", target)
    }

    /// The header of a segment with packets that were to leave on time; `t2_ns` is when the far end had
    /// them.
    pub fn of_pace(target: String) -> Self {
        Self::of_samples("pace", target)
    }

    fn of_samples(kind: &str, target: String) -> Self {
        let clocks = vec![
            ClockOf::new(&["intended_ns"], "CLOCK_MONOTONIC"),
            ClockOf::new(
                &["tx_app_ns", "tx_sched_ns", "tx_kernel_ns", "rx_kernel_ns", "rx_app_ns"],
                "CLOCK_REALTIME",
            ),
            ClockOf::new(&["tx_hw_ns", "rx_hw_ns"], "card"),
            ClockOf::new(&["t2_ns", "t3_ns"], "far end"),
        ];
        Self::new(kind, target, clocks)
    }

    /// The header of a segment with the passages that a command (`relay`, `trace`, `load traffic`,
    /// `load sink`) saw at `target`.
    pub fn of_passages(kind: &str, target: String) -> Self {
        let columns = Point::ALL.map(|point| format!("{}_ns", point.name()));
        let clocks = vec![ClockOf { columns: columns.into(), clock: "CLOCK_REALTIME".to_owned() }];
        Self::new(kind, target, clocks)
    }

    fn new(kind: &str, target: String, clocks: Vec<ClockOf>) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            dwell: env!("CARGO_PKG_VERSION").to_owned(),
            kind: kind.to_owned(),
            target,
            clocks,
        }
    }
}

/// What the last frame of a whole segment says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Samples in the segment; passages, if it holds those.
    pub samples: u64,
    /// Samples that never got here, because the ring to the recording thread was full.
    pub ring_dropped: u64,
}
