//! Timestamps of the kernel and of network cards: requesting them, and reading those of sent packets
//! from the error queue. Depends on `sys` only.

mod error_queue;
mod request;

pub use error_queue::Notice;
pub(crate) use error_queue::notices;
pub use request::StampRequest;
pub(crate) use request::{request, restart_key_counter};
