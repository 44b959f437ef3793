//! Samples of probes and observations of packets: the data that engines produce and every later
//! stage consumes.

#![forbid(unsafe_code)]

mod observation;
mod probe;
mod stamps;

pub use observation::{PacketObservation, PacketOutcome, Point, PointStamps};
pub use probe::{Hop, Remote, Sample, State, WarmUpSession};
pub use stamps::{RxStamps, TimestampSource, TxPoint, TxStamp, TxStamps};
