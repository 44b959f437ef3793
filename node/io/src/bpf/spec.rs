//! What to trace and what to relay, what came of it, and why it cannot be.

use std::io;
use std::net::{IpAddr, SocketAddrV4};
use std::ops::RangeInclusive;

use dwell_units::Nanos;

use super::event::Protocol;

/// How many flows a relay in the driver may have: each has a port from 61000 on.
pub const RELAY_FLOWS: RangeInclusive<u16> = 1..=4_536;

/// Which packets to stamp, and where. Netfilter's hooks are those of the current network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSpec {
    /// Of this protocol.
    pub protocol: Protocol,
    /// With this source or destination; none is any.
    pub host: Option<IpAddr>,
    /// With this port as source or destination; none is any. Echoes have no ports.
    pub port: Option<u16>,
    /// Where.
    pub hooks: Hooks,
    /// Numbers of the interfaces for XDP and tcx.
    pub interfaces: Vec<u32>,
}

/// Where packets can be stamped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hooks {
    /// PRE_ROUTING and POST_ROUTING of IPv4 and IPv6.
    pub netfilter: bool,
    /// tcx ingress and egress of every interface.
    pub tcx: bool,
    /// XDP of every interface: in the driver, or right after it where the driver cannot.
    pub xdp: bool,
}

/// What a relay in the driver sends on: UDP over IPv4, without IP options, unfragmented.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpRelaySpec {
    /// Where clients send to; the unspecified address stands for those that this machine has at
    /// the start, up to 8.
    pub listen: SocketAddrV4,
    /// Where it goes, from another port for each client.
    pub to: SocketAddrV4,
    /// Numbers of the interfaces by which packets come, both ways.
    pub interfaces: Vec<u32>,
    /// Most flows at a time, within [`RELAY_FLOWS`].
    pub flows: u16,
    /// A flow that was idle for so long may make room for another.
    pub idle: Nanos,
    /// How UDP checksums stay right.
    pub checksums: Checksums,
}

/// How UDP checksums stay right while addresses change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksums {
    /// Cleared if any of the interfaces is virtual, else updated.
    #[default]
    ByDriver,
    /// Updated (RFC 1624), which needs packets that carry a whole one, as on every wire.
    Updated,
    /// Cleared: the packet has none any more (RFC 768). Packets that were made on this machine, or
    /// beside it on the same one, carry half of one, for a card to finish (CHECKSUM_PARTIAL), and a
    /// program in the driver cannot tell.
    Cleared,
}

/// What a relay in the driver has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpCounters {
    /// Packets sent on from clients.
    pub forward: u64,
    /// Packets sent on to clients.
    pub backward: u64,
    /// Flows begun.
    pub flows: u64,
    /// Flows that had to make room before they were idle for long enough.
    pub evicted: u64,
    /// Packets that went to the kernel's stack as they came, because no way to send them on was
    /// known, because they were too long for it, or because their hop count was at its end.
    pub no_way: u64,
}

/// A flow of a relay in the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpFlow {
    /// The client.
    pub client: SocketAddrV4,
    /// Where it sends to.
    pub listen: SocketAddrV4,
    /// What its packets leave from.
    pub out: SocketAddrV4,
    /// Its packets that were sent on, or could not be.
    pub packets: u64,
}

/// Why packets cannot be stamped.
#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    /// The process may not load programs.
    #[error("loading eBPF programs needs root (CAP_BPF and CAP_NET_ADMIN)")]
    NotPermitted(#[source] io::Error),
    /// dwell was built without it.
    #[error("this dwell was built without eBPF (cargo feature `bpf`)")]
    NotBuilt,
    /// The kernel does not take a program. Holds the verifier's last lines, if it got that far.
    #[error("the kernel refused the eBPF programs: {reason}")]
    Refused {
        /// What the kernel, or libbpf for it, said last.
        reason: String,
    },
    /// A program is loaded but cannot be where it should be.
    #[error("cannot attach to {place}")]
    Attach {
        /// Which hook, of which interface.
        place: String,
        /// The kernel's answer.
        #[source]
        error: io::Error,
    },
    /// The kernel came before these hooks.
    #[error("{hooks} needs Linux {since}")]
    TooOld {
        /// Which hooks.
        hooks: &'static str,
        /// The first kernel that has them.
        since: &'static str,
    },
    /// A relay in the driver asks the kernel's forwarding for the way.
    #[error(
        "interface {0} does not forward, which the XDP relay needs: sysctl net.ipv4.conf.{0}.forwarding=1"
    )]
    NoForwarding(String),
    /// The ring of events, or a counter, cannot be read.
    #[error("cannot read what eBPF programs found: {reason}")]
    Read {
        /// What libbpf said.
        reason: String,
    },
}

impl BpfError {
    /// Whether it is this machine or its user that cannot have eBPF, rather than something that
    /// went wrong.
    pub fn is_unsupported(&self) -> bool {
        matches!(
            self,
            Self::NotPermitted(_) | Self::NotBuilt | Self::Refused { .. } | Self::TooOld { .. }
        )
    }
}
