//! What a reflecting socket counts. Written by its thread, read at the end by another.

use std::sync::atomic::{AtomicU64, Ordering};

use dwell_engine::reflector::Refusal;

/// Counters of one socket.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) requests: AtomicU64,
    pub(super) replies: AtomicU64,
    malformed: AtomicU64,
    unauthentic: AtomicU64,
    replayed: AtomicU64,
    limited: AtomicU64,
    looping: AtomicU64,
    silenced: AtomicU64,
    /// Replies that could not be sent, and connections that ended before they read all replies.
    pub(super) send_failed: AtomicU64,
    /// Connections that could not be accepted.
    pub(super) not_accepted: AtomicU64,
}

impl Counters {
    /// Counts a request that gets no reply.
    pub(super) fn refuse(&self, refusal: Refusal) {
        add(match refusal {
            Refusal::Malformed => &self.malformed,
            Refusal::Unauthentic => &self.unauthentic,
            Refusal::Replayed => &self.replayed,
            Refusal::Limited => &self.limited,
            Refusal::Loop => &self.looping,
            Refusal::Silenced => &self.silenced,
        });
    }

    /// All of them, by name.
    pub(super) fn read(&self) -> [(&'static str, u64); 10] {
        [
            ("requests", &self.requests),
            ("replies", &self.replies),
            ("malformed", &self.malformed),
            ("unauthentic", &self.unauthentic),
            ("replayed", &self.replayed),
            ("limited", &self.limited),
            ("looping", &self.looping),
            ("silenced", &self.silenced),
            ("send_failed", &self.send_failed),
            ("not_accepted", &self.not_accepted),
        ]
        .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
    }
}

/// Adds one.
pub(super) fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
