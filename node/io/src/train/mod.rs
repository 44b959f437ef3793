//! Trains of packets that leave at given instants (S2.3), by several engines behind one face. Packets
//! are built before their train begins; a train is sent by one call, which allocates nothing and
//! returns when its last packet has been handed over. Stamps are collected afterwards.

mod cost;
mod course;
mod gso;
mod keys;
mod mapping;
mod outlet;
mod packet_ring;
mod payloads;
mod sendmmsg;
mod socket;
mod txtime;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
mod uring;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
#[path = "uring_absent.rs"]
mod uring;
mod warmth;
mod way;
mod witness;
mod xsk;

pub use course::Course;
pub use gso::Gso;
pub use packet_ring::PacketRing;
pub use payloads::{LEAD, Numbers, Payloads};
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

/// What is known of one packet's departure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Departure {
    /// `tx_app`: the clock just before the call that handed it over or, where that had happened, let it go; `None`: it
    /// was not sent.
    pub app: Option<Instant<Realtime>>,
    /// `tx_app_done`: the clock right after it.
    pub done: Option<Instant<Realtime>>,
    /// It was handed over before it was due, and lay ready.
    pub ahead: bool,
    /// `tx_sched`, if it came.
    pub sched: Option<Instant<Realtime>>,
    /// `tx_kernel`, if it came.
    pub kernel: Option<Instant<Realtime>>,
}

/// Where stamps of departures come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamping {
    /// The kernel stamps every packet for the socket that sent it.
    Socket,
    /// A tap on the outgoing interface sees every packet.
    Tap,
    /// Nobody at this end does: the far end has to, or the program's own clock reads are all there is.
    FarEnd,
}

/// Sends trains to one peer.
pub trait TrainSender: Send {
    /// Builds the packets of the next train, which carry these numbers.
    fn prepare(&mut self, numbers: Numbers);

    /// Lets every prepared packet leave when it is due and not earlier (but for some nanoseconds, as far as
    /// counting the last of the wait is off), and says in `left` (as many as are due) how that went. Packets
    /// due at the same instant leave together where the engine can. A packet that cannot be sent has no
    /// `app`; the rest is sent all the same. After a stop, nothing is sent any more.
    fn send(&mut self, course: Course<'_>, left: &mut [Departure]);

    /// Adds the stamps that the kernel has delivered to the departures of the last train, waiting for
    /// them up to `patience`.
    fn collect(&mut self, left: &mut [Departure], patience: Nanos);

    /// Where stamps come from.
    fn stamping(&self) -> Stamping;

    /// ICMP errors that were heard so far: nobody may listen there.
    fn refused(&self) -> u64;

    /// The last reason for which a packet could not be sent.
    fn failure(&self) -> Option<io::Error>;
}

/// Why an engine cannot be used here: what lacks, and what would help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Unavailable {
    /// A lower-case fragment for people.
    pub why: String,
}

impl Unavailable {
    fn because(why: impl Into<String>) -> Self {
        Self { why: why.into() }
    }

    /// What was being done when the kernel said no.
    fn failed(what: &str, error: &io::Error) -> Self {
        Self { why: format!("{what}: {error}") }
    }
}

/// The interface by which packets to `target` leave.
fn outgoing(target: SocketAddr, options: &PortOptions) -> Result<Interface, Unavailable> {
    let failed = |error| Unavailable::failed("the interface that leads to the target", &error);
    let found = match &options.interface {
        None => interface::towards(target).map_err(failed)?,
        Some(name) => {
            let mut all = interface::all().map_err(failed)?.into_iter();
            all.find(|interface| interface.name == *name)
        }
    };
    found.ok_or_else(|| Unavailable::because("no interface leads to the target"))
}
