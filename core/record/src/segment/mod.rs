//! Sample segments, written by a node during a measurement and read by a controller afterwards.
//!
//! Segments are append-only and framed: everything written before a power failure is readable, and
//! a damaged frame affects only itself. They keep every timestamp of every sample and the clock
//! pairings, so that all figures can be recomputed. `docs/formats.md` describes the format.

mod flow;
mod frame;
mod observation;
mod read;
mod sample;
mod varint;
mod write;

pub use flow::FlowEntry;
pub use read::{Record, SegmentEnd, SegmentError, read};
pub use write::SegmentWriter;

use dwell_sample::Point;
use serde::{Deserialize, Serialize};

/// Name and version of the format.
pub const SCHEMA: &str = "dwell.segment/1";

/// The first bytes of a segment.
pub const MAGIC: [u8; 8] = *b"DWELLSEG";

/// Version of the frames.
const VERSION: u16 = 1;

/// Contents of the first frame of a segment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of dwell that wrote it.
    pub dwell: String,
    /// The command, such as `ping`.
    pub kind: String,
    /// Measured URL.
    pub target: String,
    /// Clock of each timestamp, by column name.
    pub clocks: Vec<ClockOf>,
}

/// Clock of some timestamps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOf {
    /// Column names, such as `tx_app_ns`.
    pub columns: Vec<String>,
    /// `CLOCK_REALTIME`, `CLOCK_MONOTONIC`, `card` or `far end`.
    pub clock: String,
}

impl ClockOf {
    fn new(columns: &[&str], clock: &str) -> Self {
        let columns = columns.iter().map(|&name| name.to_owned()).collect();
        Self { columns, clock: clock.to_owned() }
    }
}

impl Header {
    /// Header of a segment with samples of a pinger.
    pub fn of_ping(target: String) -> Self {
        Self::of_samples("ping", target)
    }

    /// Header of a segment with paced packets; `t2_ns` is the far end's receive timestamp.
    pub fn of_pace(target: String) -> Self {
        Self::of_samples("pace", target)
    }

    fn of_samples(kind: &str, target: String) -> Self {
        let clocks = vec![
            ClockOf::new(&["intended_ns"], "CLOCK_MONOTONIC"),
            ClockOf::new(
                &[
                    "tx_app_ns",
                    "tx_sched_ns",
                    "tx_tcx_ns",
                    "tx_kernel_ns",
                    "rx_driver_ns",
                    "rx_kernel_ns",
                    "rx_app_ns",
                ],
                "CLOCK_REALTIME",
            ),
            ClockOf::new(&["tx_hw_ns", "rx_hw_ns"], "card"),
            ClockOf::new(&["t2_ns", "t3_ns"], "far end"),
        ];
        Self::new(kind, target, clocks)
    }

    /// Header of a segment with the packet observations that a command (`relay`, `trace`, `load
    /// traffic`, `load sink`) recorded at `target`.
    pub fn of_observations(kind: &str, target: String) -> Self {
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

/// Contents of the last frame of a complete segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Number of samples, or of packet observations, in the segment.
    pub samples: u64,
    /// Samples lost because the ring to the recording thread was full.
    pub ring_dropped: u64,
}
