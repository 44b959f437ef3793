//! Judges measurements against goals, the same way in every bench.
//!
//! A contestant is compared with a peer in turns: both run in each turn, and the comparison uses the
//! ratio or difference of each turn ([`paired`]). An [`Estimate`] is judged by its 95 % interval, so a
//! noisy machine makes a bench undecided, not wrong.

mod goal;
pub mod paired;

pub use goal::{Bound, Estimate, Judged, Outcome, Unit, conclude, median, table};
