//! The first packet of a train is about as punctual as the others.

use dwell_io::clock::{self, monotonic};
use dwell_io::pacer::{Manner, sleep_until};
use dwell_io::port::{Port, PortOptions, StampRequest};
use dwell_io::train::{Course, Departure, Numbers, SocketSender, TrainSender};
use dwell_io::udp::UdpPort;
use dwell_units::{Instant, Monotonic, Nanos};

use crate::fixture::{Ends, PORT, payloads};

const LEN: usize = 1_472;
const PACKETS: usize = 5;
const GAP: i64 = 100_000;
/// Rounds that tell something, and those in which so many have to be.
const ROUNDS: usize = 300;
const MOST: usize = 3_000;

/// Each of those that have no stamps takes two seconds.
const UNSTAMPED: usize = 60;

/// Of the rounds. If warming up were nothing, one test in three thousand would find it in so many.
const LEAST: f64 = 0.6;

/// In a round in which a packet is later than this, somebody else had the processor: it tells nothing of caches.
const HELD_UP: i64 = GAP;

/// More than a processor's own caches hold.
const CACHES: usize = 16 << 20;

#[test]
fn the_first_packet_of_a_train_is_less_late_than_one_that_is_sent_after_a_pause_as_it_is() {
    let Some(ends) = Ends::up() else { return };
    let options = PortOptions { stamps: StampRequest::Kernel, ..Default::default() };
    let target = ([198, 19, 7, 2], PORT).into();
    let (warm, cold) = ends.near(|| {
        let manner = Some(Manner::SleepSpin);
        let mut engine = SocketSender::new(target, &options, payloads(LEN), manner).unwrap();
        let port = UdpPort::connect(target, &options).unwrap();
        let mut plain = Plain { port, payload: vec![0; LEN] };
        let (mut warm, mut cold) = (Vec::new(), Vec::new());
        let mut unstamped = 0;
        let mut memory = vec![0_u8; CACHES];
        let soon = |memory: &mut [u8]| {
            // What others do in a pause, the kernel's way of a packet does not survive.
            memory.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(1));
            let start = monotonic() + Nanos::from_millis(10);
            (0..PACKETS as i64).map(|n| start + Nanos(n * GAP)).collect::<Vec<_>>()
        };
        for _ in 0..MOST {
            // One after the other, so that both have the same machine.
            let by_engine = by_engine(&mut engine, &soon(&mut memory));
            let both = (by_engine, plain.send(&soon(&mut memory)));
            unstamped += usize::from(both.0.is_none() || both.1.is_none());
            assert!(unstamped < UNSTAMPED, "stamps do not come");
            if let (Some(by_engine), Some(as_it_is)) = both
                && by_engine[0].max(as_it_is[0]) < HELD_UP
            {
                warm.push(by_engine);
                cold.push(as_it_is);
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
    println!("late by (ns, first deciles): the first {warm}, as it is {cold}, the others {others}");
    let share = less as f64 / rounds as f64;
    println!("the first is less late than as it is in {less} of {rounds} rounds");
    assert_eq!(rounds, ROUNDS, "of {MOST}, no more were not held up");
    assert!(share > LEAST, "the first packet is {warm} ns late, and {cold} ns without warming up");
}

/// What a tenth of them does not exceed: a host that takes the processors for most of the time makes most
/// packets late, and not these.
fn decile(mut late: Vec<i64>) -> i64 {
    late.sort_unstable();
    late[(late.len() - 1) / 10]
}

/// Sends as an engine would that does nothing before the first packet.
struct Plain {
    port: UdpPort,
    payload: Vec<u8>,
}

impl Plain {
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
                    && let dwell_engine::stamps::TxStamp::Kernel(at) = stamp
                    && let Some(n) = keys.iter().position(|taken| *taken == Some(key))
                {
                    stamps[n] = Some(at);
                }
            });
        }
        late(due, stamps.into_iter())
    }
}

fn by_engine(engine: &mut SocketSender, due: &[Instant<Monotonic>]) -> Option<Vec<i64>> {
    engine.prepare(Numbers::new(0, due.len()));
    let mut left = vec![Departure::default(); due.len()];
    engine.send(Course::unstopped(due), &mut left);
    engine.collect(&mut left, Nanos::from_secs(1));
    late(due, left.iter().map(|left| left.kernel))
}

/// How late each packet passed to the driver; `None` if a stamp lacks.
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
