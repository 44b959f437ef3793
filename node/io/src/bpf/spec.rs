//! Parameters, results and errors of tracing and relaying.

use std::io;
use std::net::{IpAddr, SocketAddrV4};
use std::ops::RangeInclusive;

use dwell_units::Nanos;

use super::event::Protocol;

/// Allowed number of flows of an XDP relay; each uses a port from 61000 on.
pub const RELAY_FLOWS: RangeInclusive<u16> = 1..=4_536;

/// Which packets to timestamp, and where. Netfilter hooks are those of the current network
/// namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSpec {
    /// Protocol.
    pub protocol: Protocol,
    /// Source or destination address; `None` matches any.
    pub host: Option<IpAddr>,
    /// Source or destination port; `None` matches any. Ignored for echoes.
    pub port: Option<u16>,
    /// Hooks to use.
    pub hooks: Hooks,
    /// Indices of the interfaces for XDP and tcx.
    pub interfaces: Vec<u32>,
}

/// Hooks at which packets are timestamped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hooks {
    /// PRE_ROUTING and POST_ROUTING of IPv4 and IPv6.
    pub netfilter: bool,
    /// tcx ingress and egress of every interface.
    pub tcx: bool,
    /// XDP on every interface: in the driver, or just after it if the driver has no XDP.
    pub xdp: bool,
}

/// A kind of hook, whose programs the kernel loads or refuses together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookKind {
    /// PRE_ROUTING and POST_ROUTING.
    Netfilter,
    /// tcx ingress and egress.
    Tcx,
    /// XDP.
    Xdp,
}

impl HookKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Netfilter, Self::Tcx, Self::Xdp];

    /// Returns the name, as in `dwell trace --hooks`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Netfilter => "netfilter",
            Self::Tcx => "tcx",
            Self::Xdp => "xdp",
        }
    }
}

impl Hooks {
    /// No hook.
    pub const NONE: Self = Self { netfilter: false, tcx: false, xdp: false };

    /// Returns the hooks of one kind.
    pub fn only(kind: HookKind) -> Self {
        Self::NONE.with(kind)
    }

    /// Returns these hooks and those of `kind`.
    #[must_use]
    pub fn with(self, kind: HookKind) -> Self {
        match kind {
            HookKind::Netfilter => Self { netfilter: true, ..self },
            HookKind::Tcx => Self { tcx: true, ..self },
            HookKind::Xdp => Self { xdp: true, ..self },
        }
    }

    /// Whether the hooks of `kind` are among these.
    pub fn has(self, kind: HookKind) -> bool {
        self.with(kind) == self
    }
}

/// A difference of a tracer from its specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TracerNote {
    /// This kernel has no hooks of this kind, or refuses their programs.
    HooksUnavailable {
        /// Kind of the hooks.
        hooks: HookKind,
        /// Why.
        reason: String,
    },
    /// No XDP hook: another program is attached.
    XdpTaken {
        /// Name of the interface.
        interface: String,
    },
    /// The XDP hook is just after the driver, which has no XDP.
    XdpGeneric {
        /// Name of the interface.
        interface: String,
    },
    /// No XDP hook: attaching failed.
    XdpUnavailable {
        /// Name of the interface.
        interface: String,
        /// Error of the system call.
        error: String,
    },
}

/// What an XDP relay forwards: UDP over IPv4, without IP options, unfragmented.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpRelaySpec {
    /// Address that clients send to. The unspecified address means up to 8 addresses that this
    /// machine has at the start.
    pub listen: SocketAddrV4,
    /// Destination, reached from a separate port for each client.
    pub to: SocketAddrV4,
    /// Indices of the interfaces on which packets arrive, in both directions.
    pub interfaces: Vec<u32>,
    /// Maximum number of concurrent flows, within [`RELAY_FLOWS`].
    pub flows: u16,
    /// Idle time after which a flow may be replaced.
    pub idle: Nanos,
    /// How UDP checksums are kept valid.
    pub checksums: Checksums,
}

/// How UDP checksums are kept valid when addresses change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksums {
    /// Cleared if any interface is virtual, otherwise updated.
    #[default]
    ByDriver,
    /// Updated (RFC 1624). Requires a complete checksum, which every packet from a wire has.
    Updated,
    /// Cleared: the packet has no checksum any more (RFC 768). Packets from this machine, or from
    /// another guest of the same host, carry a partial sum that a card should complete
    /// (CHECKSUM_PARTIAL), and an XDP program cannot recognise them.
    Cleared,
}

/// Counters of an XDP relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpCounters {
    /// Packets forwarded from clients.
    pub forward: u64,
    /// Packets forwarded to clients.
    pub backward: u64,
    /// Flows created.
    pub flows: u64,
    /// Flows replaced before their idle time had passed.
    pub evicted: u64,
    /// Packets left to the kernel's stack: no known route, too long for it, or hop limit reached.
    pub no_way: u64,
}

/// A flow of an XDP relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpFlow {
    /// Client.
    pub client: SocketAddrV4,
    /// Address that it sends to.
    pub listen: SocketAddrV4,
    /// Source address of its forwarded packets.
    pub out: SocketAddrV4,
    /// Packets from the client, forwarded or not.
    pub packets: u64,
}

/// Why eBPF programs cannot trace or relay.
#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    /// The process may not load programs.
    #[error("loading eBPF programs needs root (CAP_BPF and CAP_NET_ADMIN)")]
    NotPermitted(#[source] io::Error),
    /// This build has no eBPF.
    #[error("this dwell was built without eBPF (cargo feature `bpf`)")]
    NotBuilt,
    /// The kernel refused a program. Holds the last lines of the verifier, if it ran.
    #[error("the kernel refused the eBPF programs: {reason}")]
    Refused {
        /// Last output of the kernel or libbpf.
        reason: String,
    },
    /// The kernel lacks a function that a program calls.
    #[error("this kernel lacks {0}, which the eBPF programs call")]
    NoFunction(String),
    /// None of several kinds of hooks is available. Holds the reasons.
    #[error("no hook is available: {0}")]
    NoHooks(String),
    /// A program was loaded but cannot be attached.
    #[error("cannot attach to {place}")]
    Attach {
        /// Hook and interface.
        place: String,
        /// Error of the kernel.
        #[source]
        error: io::Error,
    },
    /// The kernel has no tracepoints of its scheduler for eBPF programs. Holds the names of all
    /// missing ones.
    #[error(
        "this kernel lacks tp_btf tracepoints (it needs CONFIG_DEBUG_INFO_BTF): {}",
        .0.join(", ")
    )]
    NoTracepoints(Vec<String>),
    /// Ids of threads differ from those that eBPF programs see.
    #[error("this process is in a PID namespace of its own; run it outside of the container")]
    PidNamespace,
    /// The kernel is older than these hooks.
    #[error("{hooks} needs Linux {since}")]
    TooOld {
        /// Hooks.
        hooks: &'static str,
        /// First kernel version with these hooks.
        since: &'static str,
    },
    /// An interface does not forward. The XDP relay uses the kernel's forwarding table.
    #[error(
        "interface {0} does not forward packets, which the XDP relay needs; run: sysctl net.ipv4.conf.{0}.forwarding=1"
    )]
    NoForwarding(String),
    /// The event ring or a counter cannot be read.
    #[error("cannot read the results of the eBPF programs: {reason}")]
    Read {
        /// Error of libbpf.
        reason: String,
    },
}

impl BpfError {
    /// Whether another program occupies the place, for XDP in either mode.
    pub fn is_occupied(&self) -> bool {
        let Self::Attach { error, .. } = self else { return false };
        matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
    }

    /// Whether the privilege to load or attach a program is missing.
    pub fn is_permission(&self) -> bool {
        match self {
            Self::NotPermitted(_) => true,
            Self::Attach { error, .. } => error.kind() == io::ErrorKind::PermissionDenied,
            _ => false,
        }
    }

    /// Whether eBPF is unavailable on this machine or to this user, as opposed to a failure.
    pub fn is_unsupported(&self) -> bool {
        matches!(
            self,
            Self::NotPermitted(_)
                | Self::NotBuilt
                | Self::NoTracepoints(_)
                | Self::NoFunction(_)
                | Self::NoHooks(_)
                | Self::PidNamespace
                | Self::Refused { .. }
                | Self::TooOld { .. }
        )
    }
}
