//! Reflectors in the comparison, and the clients that measure them.

/// A reflector on the second core, or in the kernel of its node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Reflector {
    /// `dwell reflect --engine xdp --xdp-mode native`.
    DwellXdp,
    /// `dwell reflect` with this protocol.
    DwellSocket { scheme: &'static str, wait: Wait },
    /// `sockperf server`.
    Sockperf { wait: Wait },
    /// recvmmsg() and sendmmsg(), and nothing else.
    C,
    /// Swapped addresses in XDP, and nothing else.
    CXdp,
    /// ICMP echo of the kernel.
    Kernel,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wait {
    Busy,
    Blocking,
}

/// A way to measure round trips, on the first core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Client {
    /// The C program, polling, in a closed loop.
    C,
    /// `dwell ping`, polling, in a closed loop.
    Dwell,
    /// `dwell ping` every millisecond beside a load on both cores.
    Loaded,
}

/// A reflector measured by a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Timed {
    /// Unique; used in goals and in the JSON object.
    pub(super) name: &'static str,
    pub(super) reflector: Reflector,
    pub(super) client: Client,
}

const fn timed(name: &'static str, reflector: Reflector, client: Client) -> Timed {
    Timed { name, reflector, client }
}

const UDP_BUSY: Reflector = Reflector::DwellSocket { scheme: "udp", wait: Wait::Busy };
const UDP: Reflector = Reflector::DwellSocket { scheme: "udp", wait: Wait::Blocking };
const STAMP: Reflector = Reflector::DwellSocket { scheme: "stamp", wait: Wait::Blocking };

/// Contestants whose round trips are measured; those that are compared are neighbours.
pub(super) const TIMED: [Timed; 8] = [
    timed("dwell xdp", Reflector::DwellXdp, Client::C),
    timed("C xdp", Reflector::CXdp, Client::C),
    timed("sockperf busy", Reflector::Sockperf { wait: Wait::Busy }, Client::C),
    timed("dwell socket busy", UDP_BUSY, Client::C),
    timed("dwell xdp, by dwell ping", Reflector::DwellXdp, Client::Dwell),
    timed("kernel ICMP, by dwell ping", Reflector::Kernel, Client::Dwell),
    timed("dwell xdp beside a load", Reflector::DwellXdp, Client::Loaded),
    timed("dwell socket beside a load", UDP, Client::Loaded),
];

/// A reflector whose capacity is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Flooded {
    /// Unique; used in goals and in the JSON object.
    pub(super) name: &'static str,
    pub(super) reflector: Reflector,
}

/// Contestants that are flooded.
pub(super) const FLOODED: [Flooded; 5] = [
    Flooded { name: "dwell udp", reflector: UDP },
    Flooded { name: "C", reflector: Reflector::C },
    Flooded { name: "dwell stamp", reflector: STAMP },
    Flooded { name: "sockperf", reflector: Reflector::Sockperf { wait: Wait::Blocking } },
    Flooded { name: "dwell xdp", reflector: Reflector::DwellXdp },
];

impl Reflector {
    /// Bytes of a 64-byte message after its 8-byte number, as hexadecimal digits. sockperf answers
    /// messages with its header only: flags (from a client, answer requested) and length.
    pub(super) const fn fill(self) -> &'static str {
        match self {
            Self::Sockperf { .. } => "000300000040",
            _ => "",
        }
    }
}
