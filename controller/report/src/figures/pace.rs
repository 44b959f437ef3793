//! Figures of send-time accuracy as in Mok 2015, with published senders for comparison, and gap errors.

pub(super) mod errors;
pub(super) mod largest;
pub(super) mod pairs;
mod panels;
pub(super) mod rates;
