//! The first packet of a train is about as punctual as the others.

use dwell_io::clock::{self, monotonic};
use dwell_io::datagram::DatagramSocket;
use dwell_io::pacer::sleep_until;
use dwell_io::port::{SocketOptions, StampRequest};
use dwell_io::train::{Departure, Numbers, TrainProgress, TrainSender};
use dwell_sample::PaceEngine;
use dwell_units::{Instant, Monotonic, Nanos};

use crate::fixture::{Ends, PORT, open};

const LEN: usize = 1_472;
const PACKETS: usize = 5;
const GAP: i64 = 100_000;
/// Number of rounds to evaluate, and maximum number of rounds to obtain them.
const ROUNDS: usize = 300;
const MAX_ROUNDS: usize = 3_000;

/// Maximum number of rounds without timestamps; each takes two seconds.
const MAX_UNSTAMPED: usize = 60;

/// Minimum share of the rounds. If warming up had no effect, one test in three thousand would reach
/// it.
const MIN_SHARE: f64 = 0.6;

/// Lateness at which a round is discarded: another thread had the CPU, so it says nothing about
/// caches.
const MAX_LATENESS: i64 = GAP;

/// Size in bytes that exceeds a CPU's own caches.
const CACHE_BYTES: usize = 16 << 20;

#[test]
fn warming_up_makes_first_packet_less_late() {
    let Some(ends) = Ends::up() else { return };
    let options = SocketOptions { stamps: StampRequest::Kernel, ..Default::default() };
    let target = ([198, 19, 7, 2], PORT).into();
    let (warm, cold) = ends.near(|| {
        let mut engine = open(PaceEngine::SleepSpin, target, &options, LEN).unwrap();
        let port = DatagramSocket::connect(target, &options).unwrap();
        let mut plain = UnwarmedSender { port, payload: vec![0; LEN] };
        let (mut warm, mut cold) = (Vec::new(), Vec::new());
        let mut unstamped = 0;
        let mut memory = vec![0_u8; CACHE_BYTES];
        let soon = |memory: &mut [u8]| {
            // As after a pause in which other programs ran, this evicts the kernel's path of a
            // packet.
            memory.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(1));
            let start = monotonic() + Nanos::from_millis(10);
            (0..PACKETS as i64).map(|n| start + Nanos(n * GAP)).collect::<Vec<_>>()
        };
        for _ in 0..MAX_ROUNDS {
            // Alternating, so that both see the same state of the machine.
            let by_engine = by_engine(&mut engine, &soon(&mut memory));
            let both = (by_engine, plain.send(&soon(&mut memory)));
            unstamped += usize::from(both.0.is_none() || both.1.is_none());
            assert!(unstamped < MAX_UNSTAMPED, "timestamps do not arrive");
            if let (Some(by_engine), Some(unwarmed)) = both
                && by_engine[0].max(unwarmed[0]) < MAX_LATENESS
            {
                warm.push(by_engine);
                cold.push(unwarmed);
            }
            if warm.len() == ROUNDS {
                break;
            }
        }
        (warm, cold)
    });
    let less = warm.iter().zip(&cold).filter(|(warm, cold)| warm[0] < cold[0]).count();
    let rounds = warm.len();
    let first = |trains: &[Vec<i64>]| decile(trains.iter().map(|late| late[0]).collect());
    let others = decile(warm.iter().flat_map(|late| late[1..].to_vec()).collect());
    let (warm, cold) = (first(&warm), first(&cold));
    println!(
        "late by (ns, first deciles): first packet {warm}, without warming up {cold}, others {others}"
    );
    let share = less as f64 / rounds as f64;
    println!("the first packet is less late than without warming up in {less} of {rounds} rounds");
    assert_eq!(rounds, ROUNDS, "too many of {MAX_ROUNDS} rounds were interrupted");
    assert!(
        share > MIN_SHARE,
        "the first packet is {warm} ns late, and {cold} ns without warming up"
    );
}

/// Returns the lateness that a tenth of the packets do not exceed. A host that takes the CPUs for
/// most of the time makes most packets late, but not these.
fn decile(mut late: Vec<i64>) -> i64 {
    late.sort_unstable();
    late[(late.len() - 1) / 10]
}

/// Sends like an engine that does nothing before the first packet.
struct UnwarmedSender {
    port: DatagramSocket,
    payload: Vec<u8>,
}

impl UnwarmedSender {
    fn send(&mut self, due: &[Instant<Monotonic>]) -> Option<Vec<i64>> {
        sleep_until(due[0] - Nanos::from_micros(300));
        let mut keys = Vec::with_capacity(due.len());
        for due in due {
            while monotonic() < *due {}
            keys.push(self.port.send(&self.payload).unwrap().key);
        }
        let mut stamps = vec![None; due.len()];
        let until = monotonic() + Nanos::from_secs(1);
        while stamps.contains(&None) && monotonic() < until {
            self.port.notices(32, &mut |notice| {
                if let dwell_io::port::Notice::TxStamp { key, stamp } = notice
                    && let dwell_sample::TxStamp::Kernel(at) = stamp
                    && let Some(n) = keys.iter().position(|taken| *taken == Some(key))
                {
                    stamps[n] = Some(at);
                }
            });
        }
        late(due, stamps.into_iter())
    }
}

fn by_engine(engine: &mut TrainSender, due: &[Instant<Monotonic>]) -> Option<Vec<i64>> {
    engine.prepare(Numbers::new(0, due.len()));
    let mut left = vec![Departure::default(); due.len()];
    engine.send(TrainProgress::unstopped(due), &mut left);
    engine.collect(&mut left, Nanos::from_secs(1));
    late(due, left.iter().map(|left| left.kernel))
}

/// Returns how late each packet passed to the driver; `None` if a timestamp is missing.
fn late(
    due: &[Instant<Monotonic>],
    stamps: impl Iterator<Item = Option<Instant<dwell_units::Realtime>>>,
) -> Option<Vec<i64>> {
    let pairing = clock::pair();
    let to_real = pairing.real.as_nanos() - pairing.mono.as_nanos();
    due.iter()
        .zip(stamps)
        .map(|(due, at)| Some(at?.as_nanos() - due.as_nanos() - to_real))
        .collect()
}
