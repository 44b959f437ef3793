//! Timestamps of the kernel and of network cards: requesting them, the keys of sent packets, and
//! reading their timestamps from the error queue. Depends on `sys` and `clock`.

mod error_queue;
mod keys;
mod request;

pub use error_queue::Notice;
pub(crate) use error_queue::notices;
pub(crate) use keys::KeyCounter;
pub(crate) use request::request;
pub use request::{StampRequest, TxStampRequest};
