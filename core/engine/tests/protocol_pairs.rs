//! Pinger and reflector of every protocol as a pair, in virtual time. The network delays, loses,
//! duplicates and reorders in either direction; the responder stalls and the clock steps.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;

use dwell_engine::pinger::{Config, Counts, Pinger, ProbeSchedule};
use dwell_engine::protocol::{
    self, IcmpEcho, PlainEcho, Protocol, RoundTrip, Session, TextStream, TextUdp,
};
use dwell_engine::reflector::{self, Refusal, RequestMeta, StampConfig, StampReflector};
use dwell_sample::{RxStamps, Sample, State};
use dwell_units::{Instant, Monotonic, Nanos, Realtime};
use dwell_wire::hmac::Key;
use dwell_wire::icmp::{self, Family};

const MS: i64 = 1_000_000;
/// CLOCK_REALTIME minus CLOCK_MONOTONIC.
const OFFSET: i64 = 1_700_000_000_000_000_000;
const CLOCK: [u8; 12] = *b"this machine";
/// Residence time that the STAMP responder reports.
const RESIDENCE: i64 = 7_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Direction {
    Forward,
    Backward,
}

/// Maps the n-th message of a direction to the delay of each copy that arrives.
type Network = fn(direction: Direction, n: u64) -> Vec<i64>;

/// Faults of a scenario.
#[derive(Clone, Copy)]
struct Scenario {
    network: Network,
    /// The responder handles messages that arrive in this interval only at its end.
    stall: Option<(i64, i64)>,
    /// From this time on CLOCK_REALTIME is an hour ahead.
    step_at: i64,
}

const CALM: Scenario = Scenario { network: |_, _| vec![2 * MS], stall: None, step_at: i64::MAX };

type Buffer = [u8; 256];

/// Turns a request into its reply, in place. Returns the length of the reply.
trait Responder {
    fn answer(&mut self, buffer: &mut Buffer, len: usize, now: i64, real: i64) -> Option<usize>;
}

/// A responder without state or clock.
struct Plain(fn(&mut Buffer, usize) -> Result<usize, Refusal>);

impl Responder for Plain {
    fn answer(&mut self, buffer: &mut Buffer, len: usize, _: i64, _: i64) -> Option<usize> {
        (self.0)(buffer, len).ok()
    }
}

impl Responder for StampReflector {
    fn answer(&mut self, buffer: &mut Buffer, len: usize, now: i64, real: i64) -> Option<usize> {
        let from = SocketAddr::from(([192, 0, 2, 1], 4_000));
        let (rx, now) = (Instant::from_nanos(real), Instant::from_nanos(now));
        let meta = RequestMeta { from, rx, ttl: Some(64), tos: Some(0), now };
        let unfinished = StampReflector::answer(self, &mut buffer[..len], &meta, || Ok(())).ok()?;
        self.finish(unfinished, &mut buffer[..len], rx + Nanos(RESIDENCE));
        Some(len)
    }
}

/// A message in flight: arrival time, a number that keeps the order, direction, channel and bytes.
type MessageInFlight = Reverse<(i64, u64, Direction, u64, Vec<u8>)>;

struct Pair<Q, R> {
    pinger: Pinger<Q>,
    responder: R,
    scenario: Scenario,
    now: i64,
    in_flight: BinaryHeap<MessageInFlight>,
    /// Messages sent by direction.
    sent: [u64; 2],
    /// Number of the next message in flight.
    next_order: u64,
    samples: Vec<Sample>,
    departures: Vec<i64>,
}

impl<Q: Protocol, R: Responder> Pair<Q, R> {
    fn real(&self) -> i64 {
        let step = if self.now >= self.scenario.step_at { 3_600_000 * MS } else { 0 };
        OFFSET + self.now + step
    }

    fn send(&mut self, direction: Direction, channel: u64, message: &[u8]) {
        let n = self.sent[direction as usize];
        self.sent[direction as usize] += 1;
        for delay in (self.scenario.network)(direction, n) {
            let flight = (self.now + delay, self.next_order, direction, channel, message.to_vec());
            self.in_flight.push(Reverse(flight));
            self.next_order += 1;
        }
    }

    fn deliver_due(&mut self) {
        while self.in_flight.peek().is_some_and(|Reverse((at, ..))| *at <= self.now) {
            let Some(Reverse((_, order, direction, channel, message))) = self.in_flight.pop()
            else {
                break;
            };
            let stalled =
                self.scenario.stall.filter(|(from, until)| (*from..*until).contains(&self.now));
            match (direction, stalled) {
                (Direction::Forward, Some((_, until))) => {
                    self.in_flight.push(Reverse((until, order, direction, channel, message)));
                }
                (Direction::Forward, None) => self.respond(channel, &message),
                (Direction::Backward, _) => self.receive(channel, &message),
            }
        }
    }

    fn respond(&mut self, channel: u64, message: &[u8]) {
        let mut buffer = [0; 256];
        buffer[..message.len()].copy_from_slice(message);
        let (now, real) = (self.now, self.real());
        if let Some(len) = self.responder.answer(&mut buffer, message.len(), now, real) {
            self.send(Direction::Backward, channel, &buffer[..len]);
        }
    }

    fn receive(&mut self, channel: u64, message: &[u8]) {
        let rx = RxStamps {
            hw: None,
            driver: None,
            kernel: None,
            app: Instant::from_nanos(self.real()),
        };
        let now = Instant::from_nanos(self.now);
        let out = &mut |sample| self.samples.push(sample);
        self.pinger.receive(message, channel, rx, now, out).expect("a reply of this run");
    }

    fn depart(&mut self) {
        let now: Instant<Monotonic> = Instant::from_nanos(self.now);
        let real: Instant<Realtime> = Instant::from_nanos(self.real());
        let out = &mut |sample| self.samples.push(sample);
        self.pinger.expire(now, out);
        if let Some(token) = self.pinger.transmit(now, real, out) {
            let message = self.pinger.message().to_vec();
            self.pinger.sent(token, real, None);
            self.departures.push(self.now);
            let channel = self.sent[Direction::Forward as usize];
            self.send(Direction::Forward, channel, &message);
        }
    }

    /// Runs until the pinger waits for nothing and no message is in flight.
    fn run(mut self) -> Self {
        for _ in 0..100_000 {
            self.deliver_due();
            self.depart();
            let next_arrival = self.in_flight.peek().map(|Reverse((at, ..))| *at);
            let wake = self.pinger.wake().map(|wake| wake.as_nanos());
            let Some(next) = [next_arrival, wake].into_iter().flatten().min() else { return self };
            self.now = self.now.max(next);
        }
        panic!("the pair does not finish");
    }

    fn ids(&self, state: State) -> Vec<u64> {
        self.samples.iter().filter(|s| s.state == state).map(|s| s.id).collect()
    }

    fn counts(&self) -> Counts {
        self.pinger.counts()
    }

    fn is_on_schedule(&self) -> bool {
        self.departures.iter().enumerate().all(|(n, at)| *at == n as i64 * 10 * MS)
    }
}

const OPEN: ProbeSchedule = ProbeSchedule::Open { interval: Nanos(10 * MS) };
const CLOSED: ProbeSchedule = ProbeSchedule::Closed { pause: Nanos(3 * MS), spacing: Nanos::ZERO };

/// Runs a new pair through a scenario.
fn pair<Q: Protocol, R: Responder>(
    ends: impl Fn() -> (Q, R),
    count: u64,
    departures: ProbeSchedule,
    scenario: Scenario,
) -> Pair<Q, R> {
    let (protocol, responder) = ends();
    let config = Config {
        departures,
        count: Some(count),
        duration: None,
        timeout: Nanos(100 * MS),
        warm_up: 0,
        warm_up_interval: Nanos(MS),
    };
    let pair = Pair {
        pinger: Pinger::new(protocol, config, Instant::from_nanos(0)),
        responder,
        scenario,
        now: 0,
        in_flight: BinaryHeap::new(),
        sent: [0; 2],
        next_order: 0,
        samples: Vec::new(),
        departures: Vec::new(),
    };
    pair.run()
}

fn rtt(sample: &Sample) -> i64 {
    (sample.rx.expect("a reply").app - sample.tx.app).0
}

/// Checks that apply to datagrams and streams.
fn assert_exact_delays<Q: Protocol, R: Responder>(ends: impl Fn() -> (Q, R)) {
    let network: Network =
        |direction, _| vec![if direction == Direction::Forward { 2 * MS } else { 3 * MS }];
    for departures in [OPEN, CLOSED] {
        let calm = pair(&ends, 20, departures, Scenario { network, ..CALM });
        assert_eq!(calm.ids(State::Received), (0..20).collect::<Vec<_>>());
        assert!(calm.samples.iter().all(|sample| rtt(sample) == 5 * MS));
    }
    let scenario = Scenario { stall: Some((55 * MS, 95 * MS)), ..CALM };
    let stalled = pair(&ends, 20, OPEN, scenario);
    assert_eq!(stalled.counts().received, 20);
    assert!(stalled.is_on_schedule(), "an open loop does not wait for replies");
    // The probe sent at 60 ms arrives at 62 ms, is answered at 95 ms and returns at 97 ms.
    assert_eq!(stalled.samples.iter().map(rtt).max(), Some(37 * MS));
}

fn assert_clock_step_ignored<Q: Protocol, R: Responder>(ends: impl Fn() -> (Q, R)) {
    let stepped = pair(ends, 20, OPEN, Scenario { step_at: 52 * MS + 1, ..CALM });
    assert_eq!(stepped.ids(State::Received), (0..20).collect::<Vec<_>>());
    assert!(stepped.is_on_schedule());
    let odd: Vec<_> = stepped.samples.iter().filter(|s| rtt(s) != 4 * MS).map(|s| s.id).collect();
    assert_eq!(odd, [5], "only the probe in flight spans the step");
}

/// Checks that apply to datagrams only: loss, duplication, reordering, late replies.
fn assert_every_outcome<Q: Protocol, R: Responder>(ends: impl Fn() -> (Q, R)) {
    // Requests 0, 3, 6 ... are lost, and every fourth reply to the others.
    let network: Network = |direction, n| match direction {
        Direction::Forward if n % 3 == 0 => vec![],
        Direction::Backward if n % 4 == 1 => vec![],
        _ => vec![2 * MS],
    };
    let lossy = pair(&ends, 30, OPEN, Scenario { network, ..CALM });
    let answered = (0..30).filter(|id| id % 3 != 0).enumerate();
    let received: Vec<u64> = answered.filter(|(n, _)| n % 4 != 1).map(|(_, id)| id).collect();
    assert_eq!(lossy.ids(State::Received), received);
    assert_eq!(lossy.counts().lost, 30 - received.len() as u64);

    // The network duplicates request 4 and every fifth reply.
    let network: Network = |direction, n| match direction {
        Direction::Forward if n == 4 => vec![2 * MS, 3 * MS],
        Direction::Backward if n % 5 == 0 => vec![2 * MS, 2 * MS],
        _ => vec![2 * MS],
    };
    let doubled = pair(&ends, 20, OPEN, Scenario { network, ..CALM });
    // 21 replies, five of them duplicated; the sixth extra reply answers the duplicate of request
    // 4.
    assert_eq!((doubled.counts().received, doubled.counts().duplicate), (20, 6));
    assert_eq!(doubled.ids(State::Duplicate).iter().filter(|id| **id == 4).count(), 2);

    let network: Network = |direction, n| {
        vec![if direction == Direction::Forward && n == 3 { 25 * MS } else { 2 * MS }]
    };
    let overtaken = pair(&ends, 10, OPEN, Scenario { network, ..CALM });
    assert_eq!(overtaken.counts().received, 10);
    let reordered = overtaken.samples.iter().filter(|s| s.reordered).map(|s| (s.id, rtt(s)));
    assert_eq!(reordered.collect::<Vec<_>>(), [(3, 27 * MS)]);

    // The master of Roedlach/Vock never recovers from this.
    let network: Network = |direction, n| {
        vec![if direction == Direction::Backward && n == 5 { 130 * MS } else { 2 * MS }]
    };
    for departures in [OPEN, CLOSED] {
        let late = pair(&ends, 40, departures, Scenario { network, ..CALM });
        assert_eq!((late.ids(State::Late), late.ids(State::Lost)), (vec![5], vec![5]));
        assert_eq!((late.counts().received, late.counts().late, late.counts().lost), (39, 1, 0));
        let others = late.samples.iter().filter(|s| s.state == State::Received);
        assert!(others.map(rtt).all(|rtt| rtt == 4 * MS), "no other cycle is affected");
    }
}

fn datagrams<Q: Protocol, R: Responder>(ends: impl Fn() -> (Q, R)) {
    assert_exact_delays(&ends);
    assert_clock_step_ignored(&ends);
    assert_every_outcome(&ends);
}

fn stamp(key: bool, stateless: bool) -> (protocol::Stamp, StampReflector) {
    let key = || key.then(|| Key::new(b"0123456789abcdef"));
    let size = if key().is_some() { 152 } else { 64 };
    let session =
        Session { ssid: 9, key: key(), clock: Some(CLOCK), utc_error: None, size, path_slots: 0 };
    let config =
        StampConfig { key: key(), stateless, clock: Some(CLOCK), ..StampConfig::default() };
    (protocol::Stamp::new(session, &[0; 200]), StampReflector::new(config))
}

#[test]
fn stamp_pairs_report_every_outcome_in_all_modes() {
    for (key, stateless) in [(false, false), (false, true), (true, false), (true, true)] {
        datagrams(|| stamp(key, stateless));
    }
}

#[test]
fn stamp_reports_one_way_delays_and_residence() {
    let network: Network =
        |direction, _| vec![if direction == Direction::Forward { 2 * MS } else { 3 * MS }];
    let measured = pair(|| stamp(false, false), 10, OPEN, Scenario { network, ..CALM });
    for (n, sample) in measured.samples.iter().enumerate() {
        let remote = sample.remote.expect("a STAMP reply has timestamps");
        let back = sample.rx.expect("a reply").app - remote.tx;
        // NTP's fraction of a second rounds by less than a nanosecond.
        assert!(((remote.rx - sample.tx.app).0 - 2 * MS).abs() <= 1);
        assert!(((remote.tx - remote.rx).0 - RESIDENCE).abs() <= 1);
        assert!((back.0 - (3 * MS - RESIDENCE)).abs() <= 1);
        assert!(remote.same_clock);
        assert_eq!(remote.seq, n as u32);
    }
}

#[test]
fn stateful_stamp_reflector_counts_received_requests() {
    // Every third request is lost; the reflector's own numbers have no gap.
    let network: Network = |direction, n| match direction {
        Direction::Forward if n % 3 == 0 => vec![],
        _ => vec![2 * MS],
    };
    let numbers = |stateless| -> Vec<u32> {
        let lossy = pair(|| stamp(false, stateless), 9, OPEN, Scenario { network, ..CALM });
        lossy.samples.iter().filter_map(|sample| sample.remote).map(|remote| remote.seq).collect()
    };
    assert_eq!(numbers(false), [0, 1, 2, 3, 4, 5]);
    assert_eq!(numbers(true), [1, 2, 4, 5, 7, 8]);
}

#[test]
fn plain_echo_pairs_report_every_outcome() {
    datagrams(|| {
        let pinger = PlainEcho::new(0xfeed, vec![0xa5; 64].into());
        (pinger, Plain(|buffer, len| reflector::echo(&buffer[..len])))
    });
}

#[test]
fn round_trip_pairs_report_every_outcome() {
    datagrams(|| (RoundTrip, Plain(|buffer, len| reflector::roundtrip(&mut buffer[..len]))));
}

#[test]
fn text_udp_pairs_report_every_outcome_by_port() {
    datagrams(|| (TextUdp::default(), Plain(|buffer, len| reflector::text(buffer, len))));
}

#[test]
fn text_tcp_replies_are_matched_by_order() {
    let ends = || (TextStream::default(), Plain(|buffer, len| reflector::text(buffer, len)));
    assert_exact_delays(ends);
    assert_clock_step_ignored(ends);
}

#[test]
fn icmp_echo_pairs_report_every_outcome() {
    // A kernel changes the type of a request, and for IPv4 the checksum.
    let v4 = Plain(|buffer, len| {
        buffer[0] = 0;
        buffer[2..4].fill(0);
        let sum = icmp::checksum(&buffer[..len]);
        buffer[2..4].copy_from_slice(&sum.to_be_bytes());
        Ok(len)
    });
    let v6 = Plain(|buffer, len| {
        buffer[0] = 129;
        Ok(len)
    });
    for size in [0, 56] {
        let pinger = |family| IcmpEcho::new(family, 0xfeed, 77, vec![0; size].into());
        datagrams(|| (pinger(Family::V4), Plain(v4.0)));
        datagrams(|| (pinger(Family::V6), Plain(v6.0)));
    }
}
