//! Policy of the reflector in the network driver (`dwell reflect --engine xdp`). The program
//! itself is `node/bpf/reflect.bpf.c`; it applies the rules of this module's neighbours.

use std::net::{IpAddr, SocketAddr};

use dwell_units::Nanos;

use super::{RESERVED_PORTS, RateLimits};
use crate::protocol::DriverReply;

/// Maximum number of services of the program: SERVICES in node/bpf/reflect.bpf.h, less one for
/// measuring the program.
pub const MAX_SERVICES: usize = 63;

/// Maximum number of destinations (address, port and protocol), and of own addresses: half of
/// DESTINATIONS in node/bpf/reflect.bpf.h.
pub const MAX_DESTINATIONS: usize = 4_096;

/// Minimum number of replies of a window of [`ReplyLoss`], so that one failure of another packet does
/// not count as a lost reply.
const MIN_WINDOW_REPLIES: u64 = 10;

/// Number of consecutive windows that change the judgement of [`ReplyLoss`].
const JUDGED_WINDOWS: u32 = 3;

/// Maximum number of observations of a window. A window that is still too small is discarded.
const MAX_WINDOW_OBSERVATIONS: u32 = 600;

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
        // veth_xdp_xmit (drivers/net/veth.c) drops frames for a peer that has neither XDP nor NAPI. A
        // peer with NAPI alone (Linux 6.18) gets none either.
        Some("veth") => ModeChoice {
            native: false,
            reason: "on veth, native replies are lost unless the peer has an XDP program too",
        },
        _ => ModeChoice { native: true, reason: "the driver has native XDP" },
    }
}

/// Upper bound of the time from T3 to the departure of a reply, in a poll that holds only probes.
/// `program` is the program's run time for the longest packet. In native mode the frame may wait for the
/// rest of its poll; packets for the stack in that poll take time that is not in the bound.
pub fn departure_bias(native: bool, program: Nanos) -> Nanos {
    let frames = if native { POLL_WEIGHT } else { 1 };
    program.saturating_mul(frames) + DRIVER_ALLOWANCE
}

/// Replies, and packets that the interface failed to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendCounts {
    /// Replies of the program.
    pub replies: u64,
    /// Packets of any origin that failed.
    pub failures: u64,
}

impl SendCounts {
    /// Whether at least half as many packets failed as there were replies.
    fn is_lossy(self) -> bool {
        self.failures.saturating_mul(2) >= self.replies
    }

    fn add(&mut self, more: Self) {
        self.replies = self.replies.saturating_add(more.replies);
        self.failures = self.failures.saturating_add(more.failures);
    }
}

/// Notices that the interface fails to send the program's replies: in three consecutive windows of at
/// least ten replies, it failed with at least half as many packets. After three windows without
/// that, a new loss is noticed again.
#[derive(Debug, Default)]
pub struct ReplyLoss {
    window: SendCounts,
    observations: u32,
    /// Sums of the consecutive windows that contradict the judgement, and their number.
    contrary: SendCounts,
    windows: u32,
    is_lossy: bool,
}

impl ReplyLoss {
    /// Takes the counts since the last call. Returns those of the windows that show a loss, once per
    /// loss.
    pub fn observe(&mut self, counts: SendCounts) -> Option<SendCounts> {
        self.window.add(counts);
        self.observations += 1;
        if self.window.replies < MIN_WINDOW_REPLIES {
            if self.observations >= MAX_WINDOW_OBSERVATIONS {
                *self = Self { is_lossy: self.is_lossy, ..Self::default() };
            }
            return None;
        }
        let window = std::mem::take(&mut self.window);
        self.observations = 0;
        if window.is_lossy() == self.is_lossy {
            (self.contrary, self.windows) = (SendCounts::default(), 0);
            return None;
        }
        self.contrary.add(window);
        self.windows += 1;
        if self.windows < JUDGED_WINDOWS {
            return None;
        }
        let is_lossy = !self.is_lossy;
        let seen = self.contrary;
        *self = Self { is_lossy, ..Self::default() };
        is_lossy.then_some(seen)
    }
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

    /// Observes these replies and failures in turn; returns the number of each observation that
    /// shows a loss.
    fn losses(of: impl IntoIterator<Item = (u64, u64)>) -> Vec<(usize, SendCounts)> {
        let mut loss = ReplyLoss::default();
        let observed = of.into_iter().map(|(replies, failures)| SendCounts { replies, failures });
        let observed = observed.map(|counts| loss.observe(counts)).enumerate();
        observed.filter_map(|(n, seen)| Some((n, seen?))).collect()
    }

    #[test]
    fn unrelated_send_failures_are_no_lost_replies() {
        assert!(losses([(1, 1), (0, 0), (1, 0)]).is_empty(), "one failure at a low rate");
        assert!(losses(vec![(100, 49); 50]).is_empty(), "fewer than half");
        assert!(losses(vec![(0, 7); 5_000]).is_empty(), "no replies");
        assert!(losses([(100, 100), (100, 100), (100, 0)].repeat(9)).is_empty(), "two windows");
        let slow = (0..6_000).map(|n| (u64::from(n % 100 == 0), u64::from(n % 100 == 0)));
        assert!(losses(slow).is_empty(), "too few replies in a minute");
    }

    #[test]
    fn lost_replies_are_noticed_once_per_loss() {
        let counts = |replies, failures| SendCounts { replies, failures };
        let one_by_one = losses(vec![(1, 1); 100]);
        assert_eq!(one_by_one, [(29, counts(30, 30))]);
        let twice = [vec![(100, 50); 20], vec![(100, 0); 3], vec![(100, 100); 9]].concat();
        assert_eq!(losses(twice), [(2, counts(300, 150)), (25, counts(300, 300))]);
        let flapping = [vec![(100, 50); 20], vec![(100, 0); 2], vec![(100, 100); 9]].concat();
        assert_eq!(losses(flapping).len(), 1);
    }
}
