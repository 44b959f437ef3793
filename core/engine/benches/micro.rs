//! Micro-benches of code that runs once per packet. docs/performance.md states what each measures.

use divan::counter::BytesCount;
use divan::{Bencher, black_box, black_box_drop};
use dwell_engine::pinger::{Config, Pinger, ProbeSchedule};
use dwell_engine::protocol::{PlainEcho, Scheme};
use dwell_engine::reflector::{Datagram, Host, Refusal, Responder, ResponderConfig};
use dwell_engine::relay::cipher::Key;
use dwell_engine::relay::datagram_ctr::{NONCE_LEN, Prefix, Sealer};
use dwell_sample::{RxStamps, Sample};
use dwell_units::{Instant, Monotonic, Nanos, Realtime};

/// CLOCK_REALTIME minus CLOCK_MONOTONIC.
const OFFSET: Nanos = Nanos(1_700_000_000_000_000_000);

fn main() {
    divan::main();
}

/// One open-loop probe of plain echo: departure, send timestamp, reply, sample.
#[divan::bench]
fn pinger_step(bencher: Bencher) {
    let interval = Nanos::from_micros(10);
    let config = Config {
        departures: ProbeSchedule::Open { interval },
        count: None,
        duration: None,
        timeout: Nanos::from_millis(10),
        warm_up: 0,
        warm_up_interval: interval,
    };
    let mut now = Instant::<Monotonic>::EPOCH;
    let mut pinger = Pinger::new(PlainEcho::new(7, Box::new([0; 64])), config, now);
    let mut message = [0; 64];
    bencher.bench_local(|| {
        let real = Instant::<Realtime>::from_nanos(now.as_nanos()) + OFFSET;
        let mut out = |sample: Sample| black_box_drop(sample);
        let token = pinger.transmit(now, real, &mut out).expect("a probe is due");
        message.copy_from_slice(pinger.message());
        pinger.sent(token, real, None);
        let rx = RxStamps {
            hw: None,
            driver: None,
            kernel: Some(real + Nanos(900)),
            app: real + Nanos(1_000),
        };
        now = now + interval;
        pinger.receive(black_box(&message), 0, rx, now, &mut out)
    });
}

/// A host whose clocks advance with every request, without a rate limit.
struct StepClock(Instant<Monotonic>);

impl Host for StepClock {
    fn monotonic(&self) -> Instant<Monotonic> {
        self.0
    }

    fn realtime(&self) -> Instant<Realtime> {
        Instant::<Realtime>::from_nanos(self.0.as_nanos()) + OFFSET
    }

    fn utc_error(&self) -> Option<Nanos> {
        None
    }

    fn admit(&mut self, _from: std::net::SocketAddr) -> Result<(), Refusal> {
        Ok(())
    }
}

/// A request of 64 bytes turned into its reply, without clock reads.
#[divan::bench(args = ["udp", "stamp"])]
fn reflector_answer(bencher: Bencher, scheme: &str) {
    let scheme: Scheme = scheme.parse().expect("the name of a protocol");
    let mut responder = Responder::new(scheme, ResponderConfig::default()).expect("a responder");
    let mut host = StepClock(Instant::EPOCH);
    let mut buffer = [0; 64];
    let mut seq = 0_u32;
    let from = "192.0.2.1:40000".parse().expect("an address");
    bencher.bench_local(|| {
        seq += 1;
        host.0 = host.0 + Nanos::from_micros(1);
        // What the last reply left.
        buffer.fill(0);
        buffer[..4].copy_from_slice(&seq.to_be_bytes());
        buffer[4..14].copy_from_slice(&[1; 10]);
        let rx = Some(host.realtime());
        let request = Datagram { len: 64, from, rx, ttl: Some(64), tos: Some(0) };
        responder.answer(black_box(&mut buffer), &request, &mut host)
    });
}

/// Encrypts a payload with AES-128-CTR whose keystream was not prepared in idle time.
#[divan::bench(args = [100, 1_400])]
fn ctr_seal(bencher: Bencher, payload: usize) {
    let mut sealer = Sealer::new(Key::new([7; 16]), Prefix::Fixed(20), Box::new(|| [5; 8]));
    let mut buffer = vec![0xa5; NONCE_LEN + payload];
    bencher
        .counter(BytesCount::new(payload))
        .bench_local(|| sealer.seal(black_box(&mut buffer), NONCE_LEN..NONCE_LEN + payload));
}
