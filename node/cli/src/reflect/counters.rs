//! Counters of a reflecting socket. Its thread writes them; another reads them at the end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use dwell_engine::reflector::Refusal;
use dwell_io::bpf::DriverCounters;
use dwell_sample::RxStamps;
use dwell_stats::Distribution;

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
    /// Time of requests in the socket, if the protocol names lags.
    server_lag: Mutex<Distribution>,
    /// Counters of the program in the driver; `None` without one.
    driver: Option<OnceLock<DriverCounters>>,
}

impl Counters {
    /// Counters of a service of the engine in the driver, which may have a socket too.
    pub(super) fn with_driver() -> Self {
        Self { driver: Some(OnceLock::new()), ..Self::default() }
    }

    /// Adds what the program in the driver counted, once.
    pub(super) fn add_driver(&self, counted: DriverCounters) {
        let DriverCounters { replies, malformed, limited, looping, silenced, .. } = counted;
        let sums = [
            (&self.requests, counted.requests()),
            (&self.replies, replies),
            (&self.malformed, malformed),
            (&self.limited, limited),
            (&self.looping, looping),
            (&self.silenced, silenced),
        ];
        for (counter, more) in sums {
            counter.fetch_add(more, Ordering::Relaxed);
        }
        if let Some(driver) = &self.driver {
            let _ = driver.set(counted);
        }
    }

    /// What the program in the driver counted.
    pub(super) fn driver(&self) -> Option<DriverCounters> {
        self.driver.as_ref()?.get().copied()
    }

    /// Counts requests and sent replies.
    pub(super) fn count(&self, requests: u64, replies: u64) {
        self.requests.fetch_add(requests, Ordering::Relaxed);
        self.replies.fetch_add(replies, Ordering::Relaxed);
    }

    /// Records the time of a request in the socket, if the kernel timestamped it.
    pub(super) fn record_lag(&self, rx: &RxStamps) {
        let Some(kernel) = rx.kernel else { return };
        // Only this socket's thread records; the lock is free until the end.
        let mut lags = self.server_lag.lock().unwrap_or_else(PoisonError::into_inner);
        lags.record(rx.app - kernel);
    }

    /// Times of requests in the socket.
    pub(super) fn server_lag(&self) -> Distribution {
        self.server_lag.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

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
        .chain(self.read_driver())
        .collect()
    }

    /// Counters that only the program in the driver has; none without it.
    fn read_driver(&self) -> Vec<(&'static str, Option<u64>)> {
        let Some(driver) = &self.driver else { return Vec::new() };
        let counted = driver.get();
        vec![
            ("bad_checksum", counted.map(|counted| counted.bad_checksum)),
            ("to_socket", counted.map(|counted| counted.to_socket)),
        ]
    }
}

/// Increments a counter.
pub(super) fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
