//! Sample segments: what a node writes while it measures, and a controller reads afterwards.
//!
//! Append-only and framed, so that whatever was written before a power cut can be read, and a
//! damaged frame costs itself only. Every stamp of every sample is kept, with the pairings of the
//! clocks, so that all figures can be computed again. `docs/formats.md` describes the bytes.

mod frame;
mod read;
mod sample;
mod write;

pub use read::{Record, SegmentEnd, SegmentError, read};
pub use write::SegmentWriter;

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

impl Header {
    /// The header of a segment with the samples of a pinger.
    pub fn of_ping(target: String) -> Self {
        let clock = |columns: &[&str], clock: &str| ClockOf {
            columns: columns.iter().map(|&name| name.to_owned()).collect(),
            clock: clock.to_owned(),
        };
        Self {
            schema: SCHEMA.to_owned(),
            dwell: env!("CARGO_PKG_VERSION").to_owned(),
            kind: "ping".to_owned(),
            target,
            clocks: vec![
                clock(&["intended_ns"], "CLOCK_MONOTONIC"),
                clock(
                    &["tx_app_ns", "tx_sched_ns", "tx_kernel_ns", "rx_kernel_ns", "rx_app_ns"],
                    "CLOCK_REALTIME",
                ),
                clock(&["tx_hw_ns", "rx_hw_ns"], "card"),
                clock(&["t2_ns", "t3_ns"], "far end"),
            ],
        }
    }
}

/// What the last frame of a whole segment says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Samples in the segment.
    pub samples: u64,
    /// Samples that never got here, because the ring to the recording thread was full.
    pub ring_dropped: u64,
}
