//! Policy of the reflector in the network driver (`dwell reflect --engine xdp`). The program
//! itself is `node/bpf/reflect.bpf.c`; it applies the rules of this module's neighbours.

use std::net::{IpAddr, SocketAddr};

use dwell_units::Nanos;

use super::{RESERVED_PORTS, RateLimits};
use crate::protocol::DriverReply;

/// Maximum number of services of the program: SERVICES in node/bpf/reflect.bpf.h, less one for
/// measuring the program.
pub const MAX_SERVICES: usize = 63;

/// Frames that a driver may collect before it sends them: NAPI_POLL_WEIGHT (linux/netdevice.h).
/// Native XDP rings the card's doorbell at the end of a poll.
const POLL_WEIGHT: i64 = 64;

/// Allowance for the driver's own work between the program and the card.
const DRIVER_ALLOWANCE: Nanos = Nanos::from_micros(1);

/// A destination whose requests the program answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverService {
    /// Protocol.
    pub reply: DriverReply,
    /// Address, or the unspecified one for all addresses of its family. Port 0 for ICMP.
    pub listen: SocketAddr,
    /// Rate limits per source, if any.
    pub limits: Option<RateLimits>,
}

impl DriverService {
    /// The addresses that this service listens on, given those of the machine.
    pub fn addresses<'a>(&self, own: &'a [IpAddr]) -> impl Iterator<Item = IpAddr> + use<'a> {
        let listen = self.listen.ip();
        own.iter().copied().filter(move |address| match listen.is_unspecified() {
            true => address.is_ipv4() == listen.is_ipv4(),
            false => *address == listen,
        })
    }

    /// Nanoseconds between replies to a local and to a global source; 0 without a limit.
    pub fn gaps(&self) -> (u64, u64) {
        let Some(RateLimits { local, global }) = self.limits else { return (0, 0) };
        let [local, global] = [local, global]
            .map(|rate| rate.gap().map_or(0, |gap| gap.max(Nanos(1)).0.cast_unsigned()));
        (local, global)
    }
}

/// Bitmap of the source ports that get no reply: port N is bit N % 64 of word N / 64. `own_ports`
/// are those of this reflector; `None` answers any port.
pub fn unanswered_ports(own_ports: Option<&[u16]>) -> Box<[u64; 1_024]> {
    let mut bitmap = Box::new([0; 1_024]);
    let ports = own_ports.into_iter().flat_map(|own| own.iter().chain(&RESERVED_PORTS));
    for port in ports.copied() {
        bitmap[usize::from(port / 64)] |= 1 << (port % 64);
    }
    bitmap
}

/// Mode in which the program is attached first, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeChoice {
    /// Native mode, in the driver; otherwise generic mode, in the kernel.
    pub native: bool,
    /// Reason, for the output.
    pub reason: &'static str,
}

/// Chooses the mode for an interface with this driver. A driver without native support refuses it;
/// then the mode is generic.
pub fn preferred_mode(driver: Option<&str>) -> ModeChoice {
    match driver {
        // veth_xdp_xmit (drivers/net/veth.c) drops frames for a peer that has neither XDP nor NAPI.
        Some("veth") => ModeChoice {
            native: false,
            reason: "on veth, native replies are lost unless the peer has an XDP program too",
        },
        _ => ModeChoice { native: true, reason: "the driver has native XDP" },
    }
}

/// Upper bound of the time from T3 to the departure of a reply. `program` is the program's run time
/// for one packet. In native mode the frame may wait for the rest of its poll.
pub fn departure_bias(native: bool, program: Nanos) -> Nanos {
    let frames = if native { POLL_WEIGHT } else { 1 };
    program.saturating_mul(frames) + DRIVER_ALLOWANCE
}

/// Whether the interface fails to send the program's replies: since the last check it failed with at
/// least half as many packets as there were replies.
pub fn are_replies_lost(replies: u64, failures: u64) -> bool {
    replies > 0 && failures.saturating_mul(2) >= replies
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(listen: &str, limits: Option<RateLimits>) -> DriverService {
        DriverService { reply: DriverReply::Echo, listen: listen.parse().unwrap(), limits }
    }

    #[test]
    fn unspecified_address_expands_to_own_of_its_family() {
        let own = ["192.0.2.1", "2001:db8::1", "198.51.100.1"].map(|ip| ip.parse().unwrap());
        let found = |listen| {
            let addresses = service(listen, None).addresses(&own);
            addresses.map(|address| address.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(found("0.0.0.0:7"), ["192.0.2.1", "198.51.100.1"]);
        assert_eq!(found("[::]:7"), ["2001:db8::1"]);
        assert_eq!(found("192.0.2.1:7"), ["192.0.2.1"]);
        assert!(found("192.0.2.9:7").is_empty(), "an address that the machine has lost");
    }

    #[test]
    fn rate_limits_become_gaps_in_nanoseconds() {
        let limits =
            RateLimits { local: "1000pps".parse().unwrap(), global: "10pps".parse().unwrap() };
        assert_eq!(service("0.0.0.0:7", Some(limits)).gaps(), (1_000_000, 100_000_000));
        assert_eq!(service("0.0.0.0:7", None).gaps(), (0, 0));
    }

    #[test]
    fn reserved_and_own_ports_are_in_the_bitmap() {
        let is_set = |map: &[u64; 1_024], port: u16| map[usize::from(port / 64)] >> (port % 64) & 1;
        let map = unanswered_ports(Some(&[7_007, 65_535]));
        let set: Vec<_> = (0..=u16::MAX).filter(|port| is_set(&map, *port) == 1).collect();
        assert_eq!(set, [0, 7, 19, 862, 7_007, 65_535]);
        assert_eq!(*unanswered_ports(None), [0; 1_024], "--allow-any-port");
    }

    #[test]
    fn veth_is_generic_and_bias_grows_with_a_poll() {
        assert!(!preferred_mode(Some("veth")).native);
        assert!(preferred_mode(Some("mlx5_core")).native && preferred_mode(None).native);
        let program = Nanos(200);
        assert_eq!(departure_bias(false, program), Nanos(1_200));
        assert_eq!(departure_bias(true, program), Nanos(13_800));
    }

    #[test]
    fn few_failures_beside_many_replies_are_of_others() {
        assert!(are_replies_lost(100, 100) && are_replies_lost(1, 1) && are_replies_lost(100, 50));
        assert!(!are_replies_lost(100, 49) && !are_replies_lost(0, 7) && !are_replies_lost(9, 0));
    }
}
