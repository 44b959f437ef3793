//! Packet trains with given departure times (Mok 2015), sent by several engines with a common
//! interface. Packets are built before their train begins. One call sends a train, allocates
//! nothing and returns when its last packet has been handed over. Timestamps are collected
//! afterwards.

mod cache_warming;
mod cost;
mod frame_route;
mod gso;
mod mapping;
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
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
#[path = "uring_absent.rs"]
mod uring;
mod xsk;

pub use gso::Gso;
pub use packet_ring::PacketRing;
pub use payloads::{FIRST_LEAD_NUMBER, Numbers, Payloads};
pub use progress::TrainProgress;
pub use sendmmsg::Sendmmsg;
pub use socket::SocketSender;
pub use txtime::Txtime;
pub use uring::Uring;
pub use xsk::Xsk;

use std::io;
use std::net::SocketAddr;

use dwell_units::{Instant, Nanos, Realtime};

use crate::interface::{self, Interface};
use crate::port::PortOptions;

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

/// Sends trains to one peer.
pub trait TrainSender: Send {
    /// Builds the packets of the next train, which carry these numbers.
    fn prepare(&mut self, numbers: Numbers);

    /// Sends every prepared packet when it is due, at most a few nanoseconds early
    /// ([`crate::pacer::wait`]). Records the departures in `left`, which has one entry per packet.
    /// Packets due at the same instant leave together if the engine supports it. A packet that
    /// cannot be sent has no `app`; the others are sent nevertheless. After a stop, no more packets
    /// are sent.
    fn send(&mut self, progress: TrainProgress<'_>, left: &mut [Departure]);

    /// Adds the kernel's timestamps to the departures of the last train, waiting for them up to
    /// `timeout`.
    fn collect(&mut self, left: &mut [Departure], timeout: Nanos);

    /// Returns the number of ICMP errors received so far, for instance because the port is closed.
    fn refused(&self) -> u64;

    /// Returns the last reason why a packet could not be sent.
    fn failure(&self) -> Option<io::Error>;
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
fn outgoing(target: SocketAddr, options: &PortOptions) -> Result<Interface, Unavailable> {
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
