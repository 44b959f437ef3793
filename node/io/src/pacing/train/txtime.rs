//! Packets that carry their departure time (SO_TXTIME), until which the queueing discipline keeps
//! them. Without such a discipline the kernel accepts the time and ignores it, so a sender first
//! checks that a packet is kept.

use std::io;
use std::net::SocketAddr;

use dwell_sample::TxStamp;
use dwell_units::{Instant, Monotonic, Nanos, Realtime};

use super::tx_socket::TxSocket;
use super::{
    Departure, Engine, Numbers, Payloads, TrainProgress, TrainSenderConfig, Unavailable, outgoing,
};
use crate::clock::{self, monotonic, realtime};
use crate::host::interface::Interface;
use crate::host::neighbour;
use crate::pacing::pacer::sleep_until;
use crate::sockets::datagram::DatagramSocket;
use crate::sockets::port::{Notice, SocketOptions, StampRequest, TxStampRequest};
use crate::sys::address::DISCARD_PORT;
use crate::sys::control::{self, OutgoingControl};
use crate::sys::{sockopt, syscall};

/// Time before a departure at which its packet is handed over: more than a sleep is late by, and
/// more than etf's usual `delta`.
const HANDOVER_LEAD: Nanos = Nanos::from_millis(2);

/// Delay of the test packet. Leaving this much later proves that it was kept.
const TEST_DELAY: Nanos = Nanos::from_millis(5);

/// Allowed earliness of the test packet. etf hands packets to the driver `delta` before their time: if
/// that is more than [`HANDOVER_LEAD`], it does so at once.
const TEST_TOLERANCE: Nanos = Nanos::from_millis(1);
const ETF_TOLERANCE: Nanos = HANDOVER_LEAD;

/// Time-out for timestamps after a departure.
const TIMESTAMP_TIMEOUT: Nanos = Nanos::from_millis(20);

/// Maximum number of test packets, sent until one is handed over in time and, with etf, not dropped.
const MAX_TRIES: usize = 5;
const MAX_ETF_TRIES: usize = 20;

/// Minimum time before a departure at which etf gets its packet: longer than a send call. It drops
/// packets whose time has passed (net/sched/sch_etf.c, `is_packet_valid`). A dropped packet is handed
/// over again with a longer lead, up to the maximum.
const MIN_ETF_LEAD: Nanos = Nanos::from_micros(200);
const MAX_ETF_LEAD: Nanos = Nanos(MIN_ETF_LEAD.0 * LEAD_GROWTH * LEAD_GROWTH * LEAD_GROWTH);
const LEAD_GROWTH: i64 = 4;

/// Name of the queueing discipline that drops packets without a valid time.
const ETF: &str = "etf";

/// Clocks of queueing disciplines: fq's and, usually, etf's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timebase {
    Monotonic,
    Tai,
}

/// A sender that hands packets over ahead of their time, for the queueing discipline to keep.
/// `tx_app` is the time of handing over; only timestamps show when they left.
struct Txtime {
    tx_socket: TxSocket,
    payloads: Payloads,
    timebase: Timebase,
    /// Departure time of the last packet.
    last: Instant<Monotonic>,
}

/// Result of a test packet with a later departure time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It left at its time.
    Held,
    /// It left at once, or well before its time.
    Early,
    /// No timestamp shows that it left.
    Dropped,
}

/// Opens a sender, whose packets the kernel timestamps if requested. Sends a few datagrams to the
/// target's discard port and checks when they leave. Takes 5 ms with fq, up to 90 ms without
/// timestamps, and up to 0.6 s if etf drops them; on a busy machine longer.
///
/// # Errors
/// They left at once, or not at all.
pub(super) fn open(config: TrainSenderConfig<'_>) -> Result<Box<dyn Engine>, Unavailable> {
    let TrainSenderConfig { target, options, payloads, .. } = config;
    let interface = outgoing(target, options)?;
    let is_etf = interface.qdisc.as_deref() == Some(ETF);
    let tried = [Timebase::Monotonic, Timebase::Tai]
        .map(|timebase| (timebase, test(target, options, timebase, is_etf)));
    let found = tried.iter().find(|(_, outcome)| matches!(outcome, Ok(Outcome::Held)));
    let Some(&(timebase, _)) = found else {
        let outcomes = tried.map(|(_, outcome)| outcome);
        return Err(Unavailable::because(unusable(&interface, target, &outcomes)));
    };
    let tx_socket = TxSocket::open(target, options)?;
    ask(&tx_socket.socket, timebase)
        .map_err(|error| Unavailable::failed("enabling SO_TXTIME", &error))?;
    let last = monotonic();
    Ok(Box::new(Txtime { tx_socket, payloads, timebase, last }))
}

/// Returns why departure times have no effect on this interface, and the remedy.
fn unusable(
    interface: &Interface,
    target: SocketAddr,
    outcomes: &[io::Result<Outcome>; 2],
) -> String {
    let (name, qdisc) = (&interface.name, interface.qdisc.as_deref().unwrap_or("unknown"));
    // Some drivers take timestamps that they do not claim.
    let is_stamped = outcomes.iter().any(|outcome| matches!(outcome, Ok(Outcome::Early)));
    match outcomes {
        [Err(_), Err(error)] => format!("SO_TXTIME is refused: {error}"),
        _ if !is_stamped
            && interface.stamping.is_some_and(|able| !able.tx_software && !able.tx_hardware) =>
        {
            format!(
                "departure times cannot be tested: the driver of {name} does not timestamp sent \
                 packets"
            )
        }
        [_, Ok(Outcome::Early)] if qdisc == ETF => format!(
            "{ETF} of {name} sends packets more than {ETF_TOLERANCE} before their time; lower its \
             delta"
        ),
        _ if qdisc == ETF && !is_resolved(interface, target) => format!(
            "{ETF} of {name} drops packets without a departure time, so the address of the next \
             hop cannot be resolved; enter it by hand (ip neighbour replace ADDRESS lladdr MAC dev \
             {name} nud permanent)"
        ),
        _ if qdisc == ETF => format!(
            "{ETF} of {name} drops packets: its timer is later than its delta allows; raise the delta"
        ),
        _ => {
            format!("SO_TXTIME is accepted and ignored: no fq or etf qdisc on {name}, but {qdisc}")
        }
    }
}

/// Whether the kernel knows the link-layer address of the next hop, or needs none.
fn is_resolved(interface: &Interface, target: SocketAddr) -> bool {
    let mac =
        neighbour::next_hop(target).and_then(|hop| neighbour::neighbour_mac(interface.index, hop));
    !matches!(mac, Ok(None))
}

impl Txtime {
    /// Hands over a packet that is due at `due`. `ahead` is how far the clock of this timebase is
    /// ahead of CLOCK_MONOTONIC.
    fn hand_over(&mut self, n: usize, due: Instant<Monotonic>, ahead: i64, left: &mut [Departure]) {
        let (mut failed, mut lead) = (0, MIN_ETF_LEAD);
        loop {
            let app = realtime();
            let leaves = departure_time(self.timebase, due, monotonic() + lead, self.last);
            self.last = leaves;
            let at = leaves.as_nanos() + ahead;
            let Err(error) = send_at(&self.tx_socket.socket, self.payloads.at(n), at) else {
                return self.tx_socket.note(n..n + 1, app, realtime(), left);
            };
            let errno = syscall::errno(&error);
            let failure = self.tx_socket.socket.failed(errno, failed);
            // This thread was interrupted for longer than the lead.
            let was_late = errno == libc::ENOBUFS && self.timebase == Timebase::Tai;
            if was_late && lead < MAX_ETF_LEAD {
                lead = Nanos(lead.0 * LEAD_GROWTH);
            } else if let Some(failure) = failure {
                return self.tx_socket.fail(failure);
            }
            failed += 1;
        }
    }
}

impl Engine for Txtime {
    fn prepare(&mut self, numbers: Numbers) {
        self.payloads.prepare(numbers);
        self.tx_socket.begin(numbers.len());
    }

    fn send(&mut self, mut progress: TrainProgress<'_>, left: &mut [Departure]) {
        let ahead = self.timebase.ahead();
        while let Some((which, due)) = progress.next_ahead(HANDOVER_LEAD) {
            which.for_each(|n| self.hand_over(n, due, ahead, left));
        }
    }

    fn collect(&mut self, left: &mut [Departure], timeout: Nanos) {
        self.tx_socket.collect(left, timeout + HANDOVER_LEAD);
    }

    fn tx_socket(&mut self) -> &mut TxSocket {
        &mut self.tx_socket
    }
}

impl Timebase {
    fn id(self) -> libc::clockid_t {
        match self {
            Self::Monotonic => libc::CLOCK_MONOTONIC,
            Self::Tai => libc::CLOCK_TAI,
        }
    }

    /// Returns how far the clock is ahead of CLOCK_MONOTONIC now, in nanoseconds.
    fn ahead(self) -> i64 {
        match self {
            Self::Monotonic => 0,
            Self::Tai => {
                let pairing = clock::pair();
                pairing.real.as_nanos() - pairing.mono.as_nanos() + clock::tai_offset().0
            }
        }
    }
}

/// Makes a socket accept departure times by this clock. Clocks other than CLOCK_MONOTONIC need
/// CAP_NET_ADMIN.
fn ask(port: &DatagramSocket, timebase: Timebase) -> io::Result<()> {
    let value = libc::sock_txtime { clockid: timebase.id(), flags: 0 };
    sockopt::set(&port.fd, libc::SOL_SOCKET, libc::SO_TXTIME, value)
}

fn send_at(port: &DatagramSocket, message: &[u8], at: i64) -> io::Result<()> {
    let mut control = OutgoingControl::empty();
    control.leave_at(at as u64);
    control::send(&port.fd, message, None, &mut control, libc::MSG_DONTWAIT).map(drop)
}

/// Returns the time to ask for. fq sends a late packet at once, and packets of one time in order.
/// etf would drop the first and reverse the others, so there every packet gets a time that is not
/// before `earliest` and later than that of the packet before (`last`).
fn departure_time(
    timebase: Timebase,
    due: Instant<Monotonic>,
    earliest: Instant<Monotonic>,
    last: Instant<Monotonic>,
) -> Instant<Monotonic> {
    match timebase {
        Timebase::Monotonic => due,
        Timebase::Tai => due.max(earliest).max(last + Nanos(1)),
    }
}

/// Tests when a packet with a later departure time by this clock leaves.
fn test(
    target: SocketAddr,
    options: &SocketOptions,
    timebase: Timebase,
    is_etf: bool,
) -> io::Result<Outcome> {
    let mut discard = target;
    discard.set_port(DISCARD_PORT);
    let options = SocketOptions {
        stamps: StampRequest::Kernel,
        tx_stamps: TxStampRequest::Driver,
        ..options.clone()
    };
    let mut port = DatagramSocket::connect(discard, &options)?;
    // A packet that waits for its neighbour to be resolved looks as if it were kept, so one is sent
    // ahead. Whether it arrives does not matter.
    let _ = port.send(&[]);
    departure(&mut port, monotonic() + TIMESTAMP_TIMEOUT);
    ask(&port, timebase)?;
    let tolerance = if is_etf { ETF_TOLERANCE } else { TEST_TOLERANCE };
    let mut tries = if is_etf { MAX_ETF_TRIES } else { MAX_TRIES };
    loop {
        let ahead = timebase.ahead();
        let asked = realtime();
        let due = monotonic() + TEST_DELAY;
        let sent = send_at(&port, &[], due.as_nanos() + ahead);
        let handed_over = realtime() - asked;
        let left = match sent {
            Ok(()) => departure(&mut port, due + TIMESTAMP_TIMEOUT),
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => None,
            Err(error) => return Err(error),
        };
        let outcome = match left {
            // Dropped because of its clock or its time, or the driver takes no timestamps (`unusable`).
            None => Outcome::Dropped,
            Some(left) if left - asked >= TEST_DELAY - tolerance => Outcome::Held,
            Some(_) => Outcome::Early,
        };
        tries -= 1;
        // If handing over took nearly as long, the result is inconclusive. etf drops a packet if its
        // timer is late, for instance on a busy machine.
        let is_conclusive = handed_over < TEST_DELAY - tolerance;
        let may_be_late = is_etf && timebase == Timebase::Tai && outcome == Outcome::Dropped;
        if tries == 0 || is_conclusive && !may_be_late {
            return Ok(outcome);
        }
    }
}

/// Returns the timestamp of the next departure, if it arrives before `until`.
fn departure(port: &mut DatagramSocket, until: Instant<Monotonic>) -> Option<Instant<Realtime>> {
    let mut left = None;
    loop {
        // Read before the queue, so that a timestamp that arrived in time is found, however late
        // this runs.
        let over = monotonic() >= until;
        port.notices(8, &mut |notice| {
            if let Notice::TxStamp { stamp: TxStamp::Kernel(at), .. } = notice {
                left = Some(at);
            }
        });
        if over || left.is_some() {
            return left;
        }
        sleep_until(monotonic() + super::timestamp_ids::POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::interface::Stamping;

    #[test]
    fn etf_gets_ascending_future_times_and_fq_the_schedule() {
        let at = Instant::from_nanos;
        let asked = |timebase, due, earliest, last| {
            departure_time(timebase, at(due), at(earliest), at(last)).as_nanos()
        };
        let ms = 1_000_000;
        assert_eq!(asked(Timebase::Tai, 10 * ms, 8 * ms, 9 * ms), 10 * ms);
        // Due together with the packet before, and late.
        assert_eq!(asked(Timebase::Tai, 10 * ms, 8 * ms, 10 * ms), 10 * ms + 1);
        assert_eq!(asked(Timebase::Tai, 10 * ms, 12 * ms, 9 * ms), 12 * ms);
        assert_eq!(asked(Timebase::Tai, 10 * ms, 12 * ms, 13 * ms), 13 * ms + 1);
        assert_eq!(asked(Timebase::Monotonic, 10 * ms, 12 * ms, 13 * ms), 10 * ms);
    }

    #[test]
    fn missing_timestamps_are_not_blamed_on_the_discipline() {
        let reason = |qdisc: &str, tx_software, outcomes: [Outcome; 2]| {
            let interface = Interface {
                index: 1,
                name: "wlan0".into(),
                up: true,
                mtu: None,
                qdisc: Some(qdisc.into()),
                driver: None,
                offloads: None,
                stamping: Some(Stamping { tx_software, tx_hardware: false, rx_hardware: false }),
            };
            unusable(&interface, "127.0.0.1:9".parse().unwrap(), &outcomes.map(Ok))
        };
        let dropped = [Outcome::Dropped; 2];
        for qdisc in ["fq", ETF] {
            let unstamped = reason(qdisc, false, dropped);
            assert!(unstamped.contains("driver of wlan0 does not timestamp"), "{unstamped}");
        }
        assert!(reason("noqueue", true, dropped).contains("no fq or etf"));
        assert!(reason("noqueue", false, [Outcome::Early; 2]).contains("no fq or etf"));
    }
}
