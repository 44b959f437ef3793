//! Counters of a reflecting socket. Its thread writes them; another reads them at the end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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
    /// Packets that the kernel dropped because the socket's receive buffer was full.
    socket_drops: AtomicU64,
    /// Whether `socket_drops` is known.
    counts_drops: AtomicBool,
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

    /// Adds packets that the kernel dropped at this socket.
    pub(super) fn drop_at_socket(&self, packets: u64) {
        self.socket_drops.fetch_add(packets, Ordering::Relaxed);
        self.counts_drops.store(true, Ordering::Relaxed);
    }

    /// All counters by name; `None` if unknown for this socket.
    pub(super) fn read(&self) -> Vec<(&'static str, Option<u64>)> {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let known = self.counts_drops.load(Ordering::Relaxed);
        let socket_drops = ("socket_drops", known.then(|| load(&self.socket_drops)));
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
        .into_iter()
        .map(|(name, counter)| (name, Some(load(counter))))
        .chain([socket_drops])
        .collect()
    }
}

/// Increments a counter.
pub(super) fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
