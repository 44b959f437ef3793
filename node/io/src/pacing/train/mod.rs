//! Packet trains with given departure times (Mok 2015), sent by several engines with a common
//! interface. Packets are built before their train begins. One call sends a train, allocates
//! nothing and returns when its last packet has been handed over. Timestamps are collected
//! afterwards.
//!
//! Each engine is a module with a function `open`; [`TrainSender::open`] maps names to them.

mod cache_warming;
mod cost;
mod frame_route;
mod gso;
mod packet_ring;
mod packet_tap;
mod payloads;
mod progress;
mod sendmmsg;
mod socket;
mod timestamp_ids;
mod tx_socket;
mod txtime;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
mod uring;
mod xsk;

pub use payloads::{FIRST_LEAD_NUMBER, Numbers, Payloads};
pub use progress::TrainProgress;

use std::io;
use std::net::SocketAddr;

use dwell_sample::PaceEngine;
use dwell_units::{Instant, Nanos, Realtime};

use crate::host::interface::{self, Interface};
use crate::pacing::pacer::WaitMode;
use crate::sockets::port::SocketOptions;
use tx_socket::TxSocket;

/// Times of one packet's departure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Departure {
    /// `tx_app`: clock read just before the call that handed the packet over or, if it was corked,
    /// released it; `None` if it was not sent.
    pub app: Option<Instant<Realtime>>,
    /// `tx_app_done`: clock read right after that call.
    pub done: Option<Instant<Realtime>>,
    /// The packet was corked before it was due.
    pub ahead: bool,
    /// `tx_sched`, if it arrived.
    pub sched: Option<Instant<Realtime>>,
    /// `tx_kernel`, if it arrived.
    pub kernel: Option<Instant<Realtime>>,
}

/// Target, options and payloads of a sender.
pub struct TrainSenderConfig<'a> {
    /// Destination.
    pub target: SocketAddr,
    /// Options of the socket, and the timestamps to request.
    pub options: &'a SocketOptions,
    /// Payloads of the flow.
    pub payloads: Payloads,
    /// Maximum number of packets in a train, lead-in included.
    pub max_packets: usize,
    /// Bypass the queueing discipline, if the engine can.
    pub bypass_qdisc: bool,
}

/// Sends trains to one peer.
pub struct TrainSender(Box<dyn Engine>);

impl TrainSender {
    /// Opens an engine; for [`PaceEngine::Auto`], which has to be resolved by measuring, the
    /// fallback.
    ///
    /// # Errors
    /// The engine is unavailable here or for this target.
    pub fn open(engine: PaceEngine, config: TrainSenderConfig<'_>) -> Result<Self, Unavailable> {
        let opened = match engine {
            PaceEngine::Auto => return Self::open(PaceEngine::FALLBACK, config),
            PaceEngine::Sleep => socket::open(config, None),
            PaceEngine::Spin => socket::open(config, Some(WaitMode::Spin)),
            PaceEngine::SleepSpin => socket::open(config, Some(WaitMode::SleepSpin)),
            PaceEngine::Sendmmsg => sendmmsg::open(config),
            PaceEngine::Gso => gso::open(config),
            PaceEngine::PacketRing => packet_ring::open(config),
            PaceEngine::Xsk => xsk::open(config),
            PaceEngine::Txtime => txtime::open(config),
            PaceEngine::Uring => uring::open(config),
        };
        opened.map(Self)
    }

    /// Builds the packets of the next train, which carry these numbers.
    pub fn prepare(&mut self, numbers: Numbers) {
        self.0.prepare(numbers);
    }

    /// Sends every prepared packet when it is due, at most a few nanoseconds early
    /// ([`crate::pacer::wait`]). Records the departures in `left`, which has one entry per packet.
    /// Packets due at the same instant leave together if the engine supports it. A packet that
    /// cannot be sent has no `app`; the others are sent nevertheless. After a stop, no more packets
    /// are sent.
    pub fn send(&mut self, progress: TrainProgress<'_>, left: &mut [Departure]) {
        self.0.send(progress, left);
    }

    /// Adds the kernel's timestamps to the departures of the last train, waiting for them up to
    /// `timeout`.
    pub fn collect(&mut self, left: &mut [Departure], timeout: Nanos) {
        self.0.collect(left, timeout);
    }

    /// Returns the number of ICMP errors received so far, for instance because the port is closed.
    pub fn refused(&mut self) -> u64 {
        self.0.tx_socket().keys.refused()
    }

    /// Returns the last reason why a packet could not be sent.
    pub fn failure(&mut self) -> Option<io::Error> {
        self.0.tx_socket().failure()
    }
}

/// Mechanism of one engine; the methods are those of [`TrainSender`].
trait Engine: Send {
    fn prepare(&mut self, numbers: Numbers);

    fn send(&mut self, progress: TrainProgress<'_>, left: &mut [Departure]);

    /// Returns the socket that receives ICMP errors, and whose timestamps [`Self::collect`] reads.
    fn tx_socket(&mut self) -> &mut TxSocket;

    fn collect(&mut self, left: &mut [Departure], timeout: Nanos) {
        self.tx_socket().collect(left, timeout);
    }
}

/// Why an engine is unavailable: what is missing, and what would help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Unavailable {
    /// Lower-case fragment for messages.
    pub why: String,
}

impl Unavailable {
    fn because(why: impl Into<String>) -> Self {
        Self { why: why.into() }
    }

    /// Describes a failed operation, with the kernel's error.
    fn failed(what: &str, error: &io::Error) -> Self {
        Self { why: format!("{what}: {error}") }
    }
}

/// Returns the interface through which packets to `target` leave.
fn outgoing(target: SocketAddr, options: &SocketOptions) -> Result<Interface, Unavailable> {
    let failed = |error| Unavailable::failed("finding the interface to the target", &error);
    let found = match &options.interface {
        None => interface::towards(target).map_err(failed)?,
        Some(name) => {
            let mut all = interface::all().map_err(failed)?.into_iter();
            all.find(|interface| interface.name == *name)
        }
    };
    found.ok_or_else(|| Unavailable::because("no interface leads to the target"))
}

/// Stand-in for io_uring on processors that the io-uring crate does not support.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
mod uring {
    use super::{Engine, TrainSenderConfig, Unavailable};

    pub(super) fn open(_: TrainSenderConfig<'_>) -> Result<Box<dyn Engine>, Unavailable> {
        Err(Unavailable::because(
            "this program was built without io_uring, which lacks support for this processor",
        ))
    }
}
