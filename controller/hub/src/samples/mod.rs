//! Samples on request: they stay on the node unless those of a pair and a span are requested.

mod collect;
mod request;

pub(crate) use collect::SampleCollector;
pub use request::{SampleRequest, SampleRequestState, add_request, expire_samples, requests};
pub(crate) use request::{alert_author, lock_requests};
