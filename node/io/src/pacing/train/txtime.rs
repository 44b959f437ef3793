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

/// Allowed earliness of the test packet: etf hands packets to the driver `delta` before their time.
const TEST_TOLERANCE: Nanos = Nanos::from_millis(1);

/// Time-out for timestamps after a departure.
const TIMESTAMP_TIMEOUT: Nanos = Nanos::from_millis(20);

/// Maximum number of test packets, sent until one is handed over in time.
const MAX_TRIES: usize = 5;

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
}

/// Opens a sender, whose packets the kernel timestamps if requested. Sends a few datagrams to the
/// target's discard port and checks when they leave. Takes up to 70 ms, longer on a busy machine.
///
/// # Errors
/// They left at once, or not at all.
pub(super) fn open(config: TrainSenderConfig<'_>) -> Result<Box<dyn Engine>, Unavailable> {
    let TrainSenderConfig { target, options, payloads, .. } = config;
    let tried = [Timebase::Monotonic, Timebase::Tai].map(|timebase| {
        let kept = is_held_by_qdisc(target, options, timebase);
        (timebase, kept)
    });
    let found = tried.iter().find(|(_, kept)| matches!(kept, Ok(true)));
    let Some(&(timebase, _)) = found else {
        let interface = outgoing(target, options)?;
        let (name, qdisc) = (&interface.name, interface.qdisc.as_deref().unwrap_or("unknown"));
        let refused = tried.iter().find_map(|(_, kept)| kept.as_ref().err());
        return Err(Unavailable::because(match refused {
            Some(error) if tried.iter().all(|(_, kept)| kept.is_err()) => {
                format!("SO_TXTIME is refused: {error}")
            }
            _ => format!(
                "SO_TXTIME is accepted and ignored: no fq or etf qdisc on {name}, but {qdisc}"
            ),
        }));
    };
    let tx_socket = TxSocket::open(target, options)?;
    ask(&tx_socket.socket, timebase)
        .map_err(|error| Unavailable::failed("enabling SO_TXTIME", &error))?;
    Ok(Box::new(Txtime { tx_socket, payloads, timebase }))
}

impl Txtime {
    /// Hands over a packet that is to leave at `at`, by the clock of this timebase.
    fn hand_over(&mut self, n: usize, at: i64, left: &mut [Departure]) {
        let mut failed = 0;
        loop {
            let app = realtime();
            match send_at(&self.tx_socket.socket, self.payloads.at(n), at) {
                Ok(()) => return self.tx_socket.note(n..n + 1, app, realtime(), left),
                Err(error) => {
                    if !self.tx_socket.should_retry(syscall::errno(&error), failed) {
                        return;
                    }
                    failed += 1;
                }
            }
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
            which.for_each(|n| self.hand_over(n, due.as_nanos() + ahead, left));
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

/// Whether a packet with a later departure time by this clock leaves later.
fn is_held_by_qdisc(
    target: SocketAddr,
    options: &SocketOptions,
    timebase: Timebase,
) -> io::Result<bool> {
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
    let mut tries = MAX_TRIES;
    loop {
        let ahead = timebase.ahead();
        let asked = realtime();
        let due = monotonic() + TEST_DELAY;
        send_at(&port, &[], due.as_nanos() + ahead)?;
        let handed_over = realtime() - asked;
        // A packet that never left counts as not kept: it was dropped because of its clock or time.
        let left = departure(&mut port, due + TIMESTAMP_TIMEOUT);
        tries -= 1;
        // If handing over took nearly as long, the result is inconclusive.
        if handed_over < TEST_DELAY - TEST_TOLERANCE || tries == 0 {
            return Ok(left.is_some_and(|left| left - asked >= TEST_DELAY - TEST_TOLERANCE));
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
