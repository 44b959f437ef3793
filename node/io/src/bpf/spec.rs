//! What to trace, and why it cannot be.

use std::io;
use std::net::IpAddr;

use super::event::Protocol;

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
        matches!(self, Self::NotPermitted(_) | Self::NotBuilt | Self::Refused { .. })
    }
}
