//! Samples of probes and observations of packets: the data that engines produce and every later
//! stage consumes. Also the engines that send trains, because an engine decides which timestamps its packets
//! have.

#![forbid(unsafe_code)]

mod observation;
mod pace_engine;
mod probe;
mod stamps;

pub use observation::{PacketObservation, PacketOutcome, Point, PointStamps};
pub use pace_engine::{Capabilities, DepartureStamps, PaceEngine, QdiscBypass, UnknownEngine};
pub use probe::{Hop, Remote, Sample, State, WarmUpSession};
pub use stamps::{RxStamps, TimestampSource, TxPoint, TxStamp, TxStamps};
