//! Sans-I/O state machines: they take `now` and bytes and return actions. Nothing here opens a
//! socket, reads a clock or sleeps, so tests run them in virtual time.

#![forbid(unsafe_code)]

pub mod burner;
pub mod departures;
pub mod driver_join;
pub mod join;
pub mod link;
pub mod node_sim;
pub mod order_match;
pub mod pinger;
pub mod protocol;
pub mod reflector;
pub mod relay;
pub mod remote_drops;
pub mod replay;
pub mod schedule;
