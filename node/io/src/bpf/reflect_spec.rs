//! Parameters and results of the reflector in the network driver, in the encoding of
//! node/bpf/reflect.bpf.h.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use dwell_units::Nanos;

/// Configuration of a program, fixed when it is loaded.
#[derive(Clone, Debug)]
pub struct XdpReflectorSpec {
    /// Index of the interface.
    pub interface: u32,
    /// Its state at the start.
    pub link: DriverLink,
    /// It is the loopback interface, where all sources are addresses of this machine.
    pub is_loopback: bool,
    /// STAMP: copy the sender's sequence number.
    pub stateless: bool,
    /// STAMP: identity of the clock.
    pub clock: Option<[u8; 12]>,
    /// Bitmap of source ports that get no reply: port N is bit N % 64 of word N / 64.
    pub unanswered_ports: Box<[u64; 1_024]>,
    /// Recognise datagrams that the kernel merged, in generic mode. Needs Linux 6.2 with type
    /// information (CONFIG_DEBUG_INFO_BTF).
    pub recognise_merged: bool,
}

/// State of the interface that the program depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverLink {
    /// MTU in bytes. Longer packets, which the kernel has merged, are left to sockets.
    pub mtu: u32,
    /// Ethernet address. Frames to others are left alone.
    pub mac: [u8; 6],
}

/// A destination whose requests the program answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverDestination {
    /// Address and port; port 0 for ICMP.
    pub to: SocketAddr,
    /// Protocol, as in `enum kind`: 1 STAMP, 2 echo, 3 round trip, 4 ICMP echo.
    pub kind: u32,
    /// Number of its counters.
    pub service: u32,
    /// Nanoseconds between replies to one source with a local address; 0: no limit.
    pub local_gap: u64,
    /// The same for other sources.
    pub global_gap: u64,
}

/// struct service_key.
pub(super) type DestinationKey = [u8; 20];

impl DriverDestination {
    /// Encodes struct service_key and struct service.
    #[cfg_attr(not(feature = "bpf"), expect(dead_code, reason = "no program to configure"))]
    pub(super) fn encoded(&self) -> (DestinationKey, [u8; 24]) {
        const ICMP: u32 = 4;
        let protocol = match (self.kind, self.to.is_ipv4()) {
            (ICMP, true) => libc::IPPROTO_ICMP,
            (ICMP, false) => libc::IPPROTO_ICMPV6,
            _ => libc::IPPROTO_UDP,
        };
        let (mut key, mut value) = ([0; 20], [0; 24]);
        key[..16].copy_from_slice(&octets(self.to.ip()));
        key[16..18].copy_from_slice(&self.to.port().to_be_bytes());
        key[18..].copy_from_slice(&(protocol as u16).to_ne_bytes());
        value[..8].copy_from_slice(&self.local_gap.to_ne_bytes());
        value[8..16].copy_from_slice(&self.global_gap.to_ne_bytes());
        value[16..20].copy_from_slice(&self.service.to_ne_bytes());
        value[20..].copy_from_slice(&self.kind.to_ne_bytes());
        (key, value)
    }
}

/// Clock that T2 and T3 are read from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverClock {
    /// CLOCK_TAI minus CLOCK_REALTIME.
    pub tai_offset: Nanos,
    /// STAMP's error estimate.
    pub error_estimate: u16,
}

/// Packets of one service. A packet has one outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverCounters {
    /// Answered.
    pub replies: u64,
    /// Left to the socket.
    pub to_socket: u64,
    /// Dropped: no request of the protocol, or truncated.
    pub malformed: u64,
    /// Dropped: wrong checksum.
    pub bad_checksum: u64,
    /// Dropped: beyond the rate limit.
    pub limited: u64,
    /// Dropped: a reply could loop or reach a group.
    pub looping: u64,
    /// Dropped: of a silenced source.
    pub silenced: u64,
}

impl DriverCounters {
    /// Reads struct reflect_counters.
    #[cfg_attr(not(feature = "bpf"), expect(dead_code, reason = "no program that counts"))]
    pub(super) fn from_array(of: [u64; 8]) -> Self {
        let [replies, to_socket, malformed, bad_checksum, limited, looping, silenced, _] = of;
        Self { replies, to_socket, malformed, bad_checksum, limited, looping, silenced }
    }

    /// Requests that the program decided itself.
    pub fn requests(&self) -> u64 {
        let Self { replies, to_socket: _, malformed, bad_checksum, limited, looping, silenced } =
            *self;
        replies + malformed + bad_checksum + limited + looping + silenced
    }
}

/// Decision of the program about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Dropped.
    Drop,
    /// Left to the kernel.
    Pass,
    /// Changed to a reply, which leaves through the same interface.
    Reply,
}

/// Result of a test run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverRun {
    /// Decision.
    pub verdict: Verdict,
    /// The frame after the last run.
    pub frame: Vec<u8>,
    /// Mean time of one run.
    pub duration: Duration,
}

/// The bytes of an IPv6 address, or of an IPv4 address mapped to IPv6.
pub(super) fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}
