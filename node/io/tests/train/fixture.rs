//! Two network namespaces joined by a veth pair, with a capture at the far end that checks what an
//! engine reports.

use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dwell_io::clock::{self, monotonic};
use dwell_io::netns;
use dwell_io::port::SocketOptions;
use dwell_io::train::{
    Departure, FIRST_LEAD_NUMBER, Numbers, Payloads, TrainProgress, TrainSender, TrainSenderConfig,
    Unavailable,
};
use dwell_sample::PaceEngine;
use dwell_units::{Instant, Monotonic, Nanos, Realtime};
use dwell_wire::traffic::Mark;

use crate::capture::{self, Capture};
use crate::punctual::{LATE_NS, Lateness, assert_punctual, watch};

/// Time-out of all waits.
const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// Flow id of every test.
pub(crate) const FLOW: u32 = 7;

/// Port that trains are sent to.
pub(crate) const PORT: u16 = 7_007;

/// Two ends of a link: `198.19.7.1`, `fd00:7::1` near and `.2`, `::2` far, interfaces `near` and
/// `far`.
pub(crate) struct Ends {
    pub(crate) near: PathBuf,
    pub(crate) far: PathBuf,
    /// Receivers of the packets: the kernel delivers only packets with correct checksums.
    sinks: Vec<UdpSocket>,
    /// One test at a time, because each keeps a CPU busy.
    _alone: MutexGuard<'static, ()>,
}

static TEST_LOCK: Mutex<()> = Mutex::new(());

impl Ends {
    /// Sets up both ends. Where namespaces cannot be created, prints why and returns `None`.
    pub(crate) fn up() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !netns::may_create() {
            skip("needs root");
            return None;
        }
        let unique = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let name = |end: &str| format!("dwell-train-{unique}-{end}");
        let path = |end: &str| Path::new("/run/netns").join(name(end));
        let alone = TEST_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ends = Self { near: path("near"), far: path("far"), sinks: vec![], _alone: alone };
        for end in ["near", "far"] {
            ip(&["netns", "add", &name(end)]);
        }
        let (near, far) = (name("near"), name("far"));
        let link = ["link", "add", "near", "netns", &near, "type", "veth", "peer", "far", "netns"];
        ip(&[&link[..], &[&far]].concat());
        for (name, end, number) in [(&near, "near", 1), (&far, "far", 2)] {
            ip(&["-n", name, "link", "set", "lo", "up"]);
            ip(&["-n", name, "link", "set", end, "up"]);
            ip(&["-n", name, "addr", "add", &format!("198.19.7.{number}/24"), "dev", end]);
            let v6 = format!("fd00:7::{number}/64");
            ip(&["-n", name, "addr", "add", &v6, "dev", end, "nodad"]);
        }
        for address in ["198.19.7.2", "fd00:7::2"] {
            let bind = || UdpSocket::bind((address, PORT)).unwrap();
            let sink = netns::within(&ends.far, bind).unwrap();
            sink.set_nonblocking(true).unwrap();
            ends.sinks.push(sink);
        }
        Some(ends)
    }

    /// Runs `work` at the near end.
    pub(crate) fn near<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        netns::within(&self.near, work).unwrap()
    }

    /// Gives the near end this queueing discipline; returns tc's output if it is unavailable.
    pub(crate) fn qdisc(&self, qdisc: &[&str]) -> Result<(), String> {
        let name = self.near.file_name().unwrap().to_str().unwrap();
        let add = ["-n", name, "qdisc", "replace", "dev", "near", "root"];
        let output = Command::new("tc").args(add).args(qdisc).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(said) }
    }

    /// Returns the numbers of the packets that the far end's sockets received, in order of arrival,
    /// once there are at least `packets`.
    pub(crate) fn numbers(&self, packets: usize) -> Vec<u64> {
        let mut numbers = Vec::new();
        let mut buffer = [0; 2_000];
        let since = std::time::Instant::now();
        while numbers.len() < packets && since.elapsed() < WAIT_TIMEOUT {
            for sink in &self.sinks {
                while let Ok(len) = sink.recv(&mut buffer) {
                    numbers.push(Mark::parse(&buffer[..len]).expect("a mark").seq);
                }
            }
        }
        numbers
    }

    /// Returns how many packets the far end's sockets have received since the last call.
    pub(crate) fn arrived(&self) -> usize {
        let arrived =
            |sink: &UdpSocket| (0..).take_while(|_| sink.recv(&mut [0; 2_000]).is_ok()).count();
        self.sinks.iter().map(arrived).sum()
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        for end in [&self.near, &self.far] {
            let name = end.file_name().unwrap().to_str().unwrap();
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

/// A captured packet: time in nanoseconds, mark, and length of the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Captured {
    pub(crate) at: i64,
    pub(crate) mark: Mark,
    pub(crate) len: usize,
}

/// Captures all UDP that arrives at the far end. Without tcpdump, prints why and returns `None`.
pub(crate) fn capture(ends: &Ends) -> Option<Capture> {
    if Command::new("tcpdump").arg("--version").output().is_err() {
        skip("needs the program tcpdump");
        return None;
    }
    // All but packets that resolve neighbours; nothing else may leave.
    Some(Capture::start(&ends.far, "far", "udp and not dst port 9"))
}

/// Returns the captured packets once there are `packets` of them. Asserts that the payload behind
/// each mark is that of [`open`].
pub(crate) fn captured(capture: Capture, packets: usize) -> Vec<Captured> {
    let came = capture.end(|came| came.len() >= packets);
    let marked = came.into_iter().map(|capture::Captured { at, payload }| {
        assert!(payload[Mark::LEN..].iter().all(|byte| *byte == FILL));
        Captured { at, mark: Mark::parse(&payload).expect("a mark"), len: payload.len() }
    });
    marked.collect()
}

const FILL: u8 = 0x5a;

/// Opens an engine for trains of up to [`MAX_TRAIN_LEN`] packets with payloads of `len` bytes.
pub(crate) fn open(
    engine: PaceEngine,
    target: SocketAddr,
    options: &SocketOptions,
    len: usize,
) -> Result<TrainSender, Unavailable> {
    TrainSender::open(engine, config(target, options, len))
}

/// Like [`open`], for an engine that bypasses the queueing discipline if it can.
pub(crate) fn open_bypassing(
    engine: PaceEngine,
    target: SocketAddr,
    options: &SocketOptions,
    len: usize,
) -> Result<TrainSender, Unavailable> {
    let config = TrainSenderConfig { bypass_qdisc: true, ..config(target, options, len) };
    TrainSender::open(engine, config)
}

fn config(target: SocketAddr, options: &SocketOptions, len: usize) -> TrainSenderConfig<'_> {
    let payloads = Payloads::new(FLOW, len, vec![FILL; len]);
    TrainSenderConfig { target, options, payloads, max_packets: MAX_TRAIN_LEN, bypass_qdisc: false }
}

/// Departures that an engine reported, and packets that the far end captured, by train.
pub(crate) struct Report {
    trains: Vec<(Vec<Departure>, Vec<Captured>)>,
    /// Lateness as reported, and for each train the lateness of the machine with nothing sent.
    late: Vec<Lateness>,
    watched: Vec<Lateness>,
}

/// Number of trains of [`send`] that are evaluated.
pub(crate) const TRAINS: usize = 11;

/// Packets of each train: first single ones, then pairs.
const SINGLES: usize = 40;
const PAIRS: usize = 20;

/// Instants at which packets of a train are due.
pub(crate) const SLOTS: usize = SINGLES + PAIRS;
const PACKETS: usize = SINGLES + 2 * PAIRS;

/// Number of lead-in packets, which are not evaluated.
const LEADS: usize = 2;

/// Number of packets in the first train, which has no lead-in.
const FIRST_TRAIN_LEN: usize = 5;

/// Maximum number of packets in a train of [`send`].
const MAX_TRAIN_LEN: usize = LEADS + PACKETS;

/// Interval between instants.
pub(crate) const GAP: Nanos = Nanos::from_micros(300);

/// Like [`send`], but also asserts that the engine is punctual.
pub(crate) fn run(
    ends: &Ends,
    len: usize,
    open: impl FnOnce() -> TrainSender + Send,
) -> Option<Report> {
    let report = send(ends, len, open)?;
    assert_punctual(&report.late, &report.watched);
    Some(report)
}

/// Sends a short train and then several with a lead-in, [`SINGLES`] single packets and [`PAIRS`]
/// pairs, and captures all. Asserts what every engine must guarantee, except punctuality.
pub(crate) fn send(
    ends: &Ends,
    len: usize,
    open: impl FnOnce() -> TrainSender + Send,
) -> Option<Report> {
    let all = FIRST_TRAIN_LEN + TRAINS * MAX_TRAIN_LEN;
    let capture = capture(ends)?;
    let alone = 0..(LEADS + SINGLES) as i64;
    let pairs = (alone.end..).take(PAIRS).flat_map(|slot| [slot, slot]);
    let slots: Vec<_> = alone.chain(pairs).collect();
    let (before, sent, watched, arrived) = ends.near(|| {
        let mut engine = open();
        let mut train = |leads: usize, first: usize, slots: &[i64]| {
            engine.prepare(Numbers::new(first as u64, slots.len() - leads).led_by(leads));
            let due = schedule(slots);
            let mut left = vec![Departure::default(); slots.len()];
            engine.send(TrainProgress::unstopped(&due), &mut left);
            engine.collect(&mut left, Nanos::from_secs(2));
            assert_eq!(engine.failure().map(|error| error.to_string()), None);
            assert_eq!(engine.refused(), 0);
            let left = left[leads..].to_vec();
            let late = lateness(&due[leads..], left.iter().map(|left| left.kernel.or(left.app)));
            (left, late)
        };
        let before = train(0, 0, &(0..FIRST_TRAIN_LEN as i64).collect::<Vec<_>>());
        let (mut sent, mut watched, mut arrived) = (Vec::new(), Vec::new(), 0);
        for n in 0..TRAINS {
            // A socket has no room for all trains.
            arrived += ends.arrived();
            // Alternating, so that both see the same state of the machine.
            let watch_once = || watch(&schedule(&(0..SLOTS as i64).collect::<Vec<_>>()));
            if n % 2 == 0 {
                watched.push(watch_once());
            }
            sent.push(train(LEADS, FIRST_TRAIN_LEN + n * PACKETS, &slots));
            if n % 2 == 1 {
                watched.push(watch_once());
            }
        }
        (before, sent, watched, arrived)
    });
    let came = captured(capture, all);
    let numbers: Vec<_> = came.iter().map(|packet| packet.mark.seq).collect();
    let of_a_train = |first: usize| {
        let leads = (first..first + LEADS).map(|n| FIRST_LEAD_NUMBER | n as u64);
        leads.chain((first..first + PACKETS).map(|n| n as u64))
    };
    let trains = (0..TRAINS).flat_map(|n| of_a_train(FIRST_TRAIN_LEN + n * PACKETS));
    let expected: Vec<_> = (0..FIRST_TRAIN_LEN as u64).chain(trains).collect();
    assert_eq!(numbers, expected, "count and order");
    assert_eq!(arrived + ends.arrived(), all, "checksums");
    assert!(came.iter().all(|packet| packet.len == len && packet.mark.flow == FLOW));
    let left = || sent.iter().chain([&before]).flat_map(|(left, _)| left);
    assert!(left().all(|left| left.app.is_some() && left.app <= left.done));
    let (left, late): (Vec<_>, Vec<_>) = sent.into_iter().unzip();
    let came = came[FIRST_TRAIN_LEN..].chunks(MAX_TRAIN_LEN).map(|train| train[LEADS..].to_vec());
    let report = Report { trains: left.into_iter().zip(came).collect(), late, watched };
    report.assert_gaps();
    Some(report)
}

/// Returns when these slots are due, starting soon.
fn schedule(slots: &[i64]) -> Vec<Instant<Monotonic>> {
    let start = monotonic() + Nanos::from_millis(2);
    slots.iter().map(|slot| start + Nanos(GAP.0 * slot)).collect()
}

fn lateness(
    due: &[Instant<Monotonic>],
    left: impl Iterator<Item = Option<Instant<Realtime>>>,
) -> Lateness {
    let pairing = clock::pair();
    let to_real = pairing.real.as_nanos() - pairing.mono.as_nanos();
    let late: Vec<_> = due
        .iter()
        .zip(left)
        .map(|(due, left)| (due, left.unwrap().as_nanos() - due.as_nanos() - to_real))
        .collect();
    assert!(late.iter().all(|(_, late)| *late >= 0), "packets left before they were due: {late:?}");
    late.chunk_by(|(a, _), (b, _)| a == b).map(|together| together[0].1).collect()
}

impl Report {
    /// Returns each packet's reported departure with the captured packet.
    fn packets(&self) -> impl Iterator<Item = (&Departure, &Captured)> {
        self.trains.iter().flat_map(|(left, came)| left.iter().zip(came))
    }

    /// Returns the reported departures of the packets sent.
    pub(crate) fn left(&self) -> impl Iterator<Item = &Departure> {
        self.packets().map(|(left, _)| left)
    }

    /// On a busy machine many packets are late, but what is reported must be right.
    fn assert_gaps(&self) {
        let off = self.trains.iter().flat_map(|(left, came)| {
            let report = |n: usize| left[n].kernel.or(left[n].app).unwrap().as_nanos();
            (1..SINGLES)
                .map(move |n| (came[n].at - came[n - 1].at - (report(n) - report(n - 1))).abs())
        });
        let off = median(off);
        assert!(
            off < LATE_NS,
            "half of the gaps differ by {off} ns or more from the reported ones"
        );
    }

    /// Returns the median gap between packets due together.
    pub(crate) fn pair_gap(&self) -> i64 {
        let pairs = self.trains.iter().flat_map(|(_, came)| came[SINGLES..].chunks(2));
        median(pairs.map(|pair| pair[1].at - pair[0].at))
    }

    /// Asserts that packets due together left by one call.
    pub(crate) fn assert_pairs_left_by_one_call(&self) {
        let pairs = self.trains.iter().flat_map(|(left, _)| left[SINGLES..].chunks(2));
        pairs.for_each(|pair| assert_eq!(pair[0].app, pair[1].app));
    }

    /// Asserts that every packet has a kernel timestamp between the call that sent it and its
    /// arrival, close to the latter.
    pub(crate) fn assert_stamped(&self) {
        for (n, (left, came)) in self.packets().enumerate() {
            let kernel =
                left.kernel.unwrap_or_else(|| panic!("packet {n} has no timestamp: {left:?}"));
            assert!(left.app <= Some(kernel), "{n}: {left:?}");
            assert!(kernel.as_nanos() <= came.at, "{n}: {left:?} came at {}", came.at);
        }
        let delays = self.packets().map(|(left, came)| came.at - left.kernel.unwrap().as_nanos());
        let delay = median(delays);
        assert!(
            delay < 50_000,
            "half of the packets took {delay} ns or more from stamp to capture"
        );
    }
}

/// Returns the median by nearest rank.
fn median(values: impl IntoIterator<Item = i64>) -> i64 {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_unstable();
    values[(values.len() - 1) / 2]
}

pub(crate) fn skip(reason: &str) {
    // The test runner names threads after their tests.
    println!("SKIP {}: {reason}", std::thread::current().name().unwrap_or("train"));
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "ip {arguments:?}: {output:?}");
}
