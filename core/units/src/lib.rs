//! Quantities of a delay measurement: integer nanoseconds, instants typed by clock, rates, sizes
//! and ratios, and their common text format.
//!
//! All other crates depend on this one; it depends on none, reads no clock and knows no packet
//! formats. A bare number is never a time, rate or size; only a ratio may be a bare percentage
//! (`50`). The `ping` command line, where bare numbers keep their usual meaning, converts them
//! itself.

#![forbid(unsafe_code)]

mod named;
mod quantity;
mod serde_text;
mod text;
mod time;
mod time_range;

pub use quantity::{BitRate, Bytes, PacketRate, Rate, Ratio};
pub use text::UnitError;
pub use time::{Card, Clock, Instant, Monotonic, Nanos, Pairing, Realtime};
pub use time_range::TimeRange;
