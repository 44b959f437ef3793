//! Quantities of a delay measurement: integer nanoseconds, instants that know their clock, rates,
//! sizes and ratios, and the one grammar in which people write them.
//!
//! Everything else in dwell stands on this crate and it stands on nothing: it reads no clock and
//! knows no packet. A bare number is never a time, rate or size here; a share
//! may be a bare percentage (`50`). The `ping` command line, where bare numbers keep their usual meaning,
//! converts them itself.

#![forbid(unsafe_code)]

mod quantity;
mod serial;
mod text;
mod time;

pub use quantity::{BitRate, Bytes, PacketRate, Rate, Ratio};
pub use text::UnitError;
pub use time::{Card, Clock, Instant, Monotonic, Nanos, Pairing, Realtime};
