//! STAMP messages that look like replies but are not, or that contain impossible values.

use std::net::SocketAddr;

use dwell_engine::pinger::{Config, Counts, Pinger, ProbeSchedule};
use dwell_engine::protocol::{Protocol, Reject, Session, Stamp};
use dwell_engine::reflector::{RequestMeta, StampConfig, StampReflector};
use dwell_sample::{Remote, RxStamps, Sample};
use dwell_units::{Instant, Nanos, Realtime};
use dwell_wire::hmac::Key;

const MS: i64 = 1_000_000;
const T1: i64 = 1_700_000_000_000_000_000;
/// Time from a probe to the delivery of its reply.
const RTT: i64 = 2 * MS;

/// A pinger whose probes the test answers itself.
struct Bench {
    pinger: Pinger<Stamp>,
    reflector: StampReflector,
    samples: Vec<Sample>,
    probes: i64,
}

const CONFIG: Config = Config {
    departures: ProbeSchedule::Open { interval: Nanos(10 * MS) },
    count: Some(100),
    duration: None,
    timeout: Nanos(1_000 * MS),
    warm_up: 0,
    warm_up_interval: Nanos(MS),
};

fn session(key: Option<Key>, size: usize) -> Session {
    Session { ssid: 9, key, clock: None, utc_error: None, size, path_slots: 0 }
}

fn bench(with_key: bool) -> Bench {
    let key = || with_key.then(|| Key::new(b"0123456789abcdef"));
    let size = if with_key { 112 } else { 44 };
    let config_there = StampConfig { key: key(), ..StampConfig::default() };
    Bench {
        pinger: Pinger::new(Stamp::new(session(key(), size), &[]), CONFIG, Instant::from_nanos(0)),
        reflector: StampReflector::new(config_there),
        samples: Vec::new(),
        probes: 0,
    }
}

fn real(after_t1: i64) -> Instant<Realtime> {
    Instant::from_nanos(T1 + after_t1)
}

impl Bench {
    /// Sends the next probe and returns its message.
    fn probe(&mut self) -> Vec<u8> {
        let at = self.probes * 10 * MS;
        self.probes += 1;
        let out = &mut |sample| self.samples.push(sample);
        let token = self.pinger.transmit(Instant::from_nanos(at), real(at), out).expect("due");
        self.pinger.sent(token, real(at), None);
        self.pinger.message().to_vec()
    }

    /// Returns the reflector's reply to `probe`, with T2 and T3 given relative to the last probe.
    fn reflect(&mut self, mut probe: Vec<u8>, t2: i64, t3: i64) -> Vec<u8> {
        let left = (self.probes - 1) * 10 * MS;
        let meta = RequestMeta {
            from: SocketAddr::from(([192, 0, 2, 1], 4_000)),
            rx: real(left + t2),
            ttl: None,
            tos: None,
            now: Instant::from_nanos(0),
        };
        let unfinished = self.reflector.answer(&mut probe, &meta, || Ok(())).unwrap();
        self.reflector.finish(unfinished, &mut probe, real(left + t3));
        probe
    }

    /// Delivers a message `RTT` after the last probe was sent.
    fn deliver(&mut self, message: &[u8]) -> Result<u64, Reject> {
        let at = (self.probes - 1) * 10 * MS + RTT;
        let rx = RxStamps { hw: None, driver: None, kernel: None, app: real(at) };
        let out = &mut |sample| self.samples.push(sample);
        self.pinger.receive(message, 0, rx, Instant::from_nanos(at), out)
    }

    fn counts(&self) -> Counts {
        self.pinger.counts()
    }
}

#[test]
fn echoed_request_is_not_a_reply() {
    for with_key in [false, true] {
        let mut bench = bench(with_key);
        for _ in 0..3 {
            let probe = bench.probe();
            assert_eq!(bench.deliver(&probe), Err(Reject::Unknown), "key {with_key}");
        }
        let counts = bench.counts();
        assert_eq!((counts.received, counts.duplicate, counts.rejected.unknown), (0, 0, 3));
        assert_eq!(bench.samples, []);
    }
}

#[test]
fn reply_with_wrong_t1_is_rejected() {
    let mut bench = bench(false);
    let probe = bench.probe();
    let mut forged = bench.reflect(probe.clone(), MS, MS + 1);
    forged[28] ^= 1;
    assert_eq!(bench.deliver(&forged), Err(Reject::Unknown));
    // The sequence number of one probe with the T1 of another.
    let second = bench.probe();
    let mut mixed = bench.reflect(second, MS, MS + 1);
    mixed[24..28].copy_from_slice(&0_u32.to_be_bytes());
    assert_eq!(bench.deliver(&mixed), Err(Reject::Unknown));
    let true_reply = bench.reflect(probe, MS, MS + 1);
    assert_eq!(bench.deliver(&true_reply), Ok(0));
    assert_eq!((bench.counts().received, bench.counts().duplicate), (1, 0));
}

#[test]
fn reply_without_timestamps_is_rejected() {
    for stamp in [4..12, 16..24] {
        let mut bench = bench(false);
        let probe = bench.probe();
        let mut reply = bench.reflect(probe, MS, MS + 1);
        reply[stamp].fill(0);
        assert_eq!(bench.deliver(&reply), Err(Reject::Unknown));
    }
}

#[test]
fn shortest_twamp_light_reply_is_accepted() {
    let mut bench = bench(false);
    let probe = bench.probe();
    let reply = bench.reflect(probe, MS, MS);
    assert_eq!(bench.deliver(&reply[..38]), Ok(0));
    assert_eq!(bench.counts().received, 1);
}

#[test]
fn impossible_remote_timestamps_are_void_and_counted() {
    let mut bench = bench(false);
    // T2, T3 and whether they are possible. The round-trip delay is 2 ms, so an excess of 2 us is
    // within the error of two clocks and 4 us is not. A clock that jumps by days contradicts
    // earlier replies.
    let cases = [
        (MS, MS, true),
        (MS, 2 * MS, true),
        (MS, MS - 1_000, false),
        (0, RTT + 2_000, true),
        (0, RTT + 4_000, false),
        (0, 1_000 * MS, false),
        (-300_000_000 * MS, -300_000_000 * MS + MS, false),
        (300_000_000 * MS, 300_000_000 * MS + RTT + MS, false),
    ];
    let mut void = 0;
    for (t2, t3, can_be) in cases {
        let probe = bench.probe();
        let reply = bench.reflect(probe, t2, t3);
        let id = bench.deliver(&reply).expect("the reply still answers its probe");
        void += u64::from(!can_be);
        let reported = bench.samples.last().unwrap();
        assert_eq!((reported.id, reported.remote.is_some()), (id, can_be), "T2 {t2}, T3 {t3}");
        assert_eq!(bench.counts().remote_void, void);
    }
    assert_eq!(bench.counts().received, cases.len() as u64);
}

#[test]
fn remote_clock_that_is_years_off_is_accepted() {
    let mut bench = bench(false);
    for _ in 0..10 {
        let probe = bench.probe();
        let reply = bench.reflect(probe, 300_000_000 * MS, 300_000_000 * MS + 1);
        bench.deliver(&reply).unwrap();
    }
    assert!(bench.samples.iter().all(|sample| sample.remote.is_some()));
}

#[test]
fn equal_false_timestamps_yield_no_huge_ipdv() {
    // Each function gives T2 = T3 of the n-th reply.
    let lies: [fn(i64) -> i64; 4] = [
        |n| if n % 2 == 0 { MS } else { 2_000_000_000_000 * MS },
        |n| (n - 5) * 100_000_000_000 * MS,
        |n| if n == 0 { 2_000_000_000_000 * MS } else { MS },
        |n| if n < 8 { MS } else { 2_000_000_000_000 * MS },
    ];
    let accepted = [10, 1, 19, 18];
    for (number, (lie, accepted)) in lies.into_iter().zip(accepted).enumerate() {
        let mut bench = bench(false);
        for n in 0..20 {
            let probe = bench.probe();
            let reply = bench.reflect(probe, lie(n), lie(n));
            bench.deliver(&reply).unwrap();
        }
        let known: Vec<_> = bench.samples.iter().filter_map(|s| s.remote.map(|r| (s, r))).collect();
        assert_eq!(known.len(), accepted, "lie {number}");
        assert_eq!(bench.counts().remote_void, 20 - accepted as u64, "lie {number}");
        for pair in known.windows(2).filter(|pair| pair[0].0.id + 1 == pair[1].0.id) {
            let forward = |(sample, remote): (&Sample, Remote)| remote.rx - sample.tx.app;
            let ipdv = forward(pair[1]) - forward(pair[0]);
            assert!(ipdv.abs() <= Nanos(2 * RTT), "lie {number}: {ipdv}");
        }
    }
}

#[test]
fn late_warm_up_replies_answer_the_warm_up_session() {
    let mut bench = bench(false);
    let config = Config { warm_up: 3, ..CONFIG };
    bench.pinger = Pinger::new(Stamp::new(session(None, 44), &[]), config, Instant::from_nanos(0));
    let send = |bench: &mut Bench, at: i64| {
        let out = &mut |sample| bench.samples.push(sample);
        let token = bench.pinger.transmit(Instant::from_nanos(at), real(at), out).expect("due");
        bench.pinger.sent(token, real(at), None);
        bench.pinger.message().to_vec()
    };
    let probes: Vec<_> = (0..5).map(|n| send(&mut bench, n * 10 * MS)).collect();
    let field = |probe: &[u8]| {
        let seq = u32::from_be_bytes(probe[..4].try_into().unwrap());
        (seq, u16::from_be_bytes(probe[14..16].try_into().unwrap()))
    };
    let fields: Vec<_> = probes.iter().map(|probe| field(probe)).collect();
    let below_0 = [u32::MAX - 2, u32::MAX - 1, u32::MAX].map(|seq| (seq, 10));
    assert_eq!(fields, [&below_0[..], &[(0, 9), (1, 9)]].concat());
    // All replies arrive in mixed order after the first counted probes were sent.
    bench.probes = 6;
    for (n, expected) in [(4, 1), (0, u64::MAX - 2), (3, 0), (2, u64::MAX), (1, u64::MAX - 1)] {
        let reply = bench.reflect(probes[n].clone(), 0, 1);
        assert_eq!(bench.deliver(&reply), Ok(expected));
        // A peer without RFC 8972 returns no session identifier.
        let mut reply = bench.reflect(probes[n].clone(), 0, 1);
        reply[14..16].fill(0);
        assert_eq!(bench.deliver(&reply), Ok(expected), "no session identifier");
    }
    let counts = bench.counts();
    assert_eq!((counts.received, counts.warm_up_received, counts.duplicate), (2, 3, 2));
    let warm_up = bench.pinger.protocol().warm_up_session();
    assert!(warm_up.stateful && warm_up.separate, "{warm_up:?}");
}
