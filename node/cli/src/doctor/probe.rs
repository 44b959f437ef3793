//! Tests of this process and its clocks. Each performs an operation once and reports the outcome.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::thread;

use dwell_io::clock::{monotonic, realtime};
use dwell_io::cpu::{self, RealTime};
use dwell_io::cpu_idle::{self, IdleLimit};
use dwell_io::datagram::DatagramSocket;
use dwell_io::icmp::{IcmpPort, IcmpSocketKind};
use dwell_io::pacer::{self, WaitMode};
use dwell_io::port::SocketOptions;
use dwell_stats::Distribution;
use dwell_units::Nanos;
use serde::Serialize;

/// Number of methods in [`timers`].
pub(super) const TIMER_METHODS: usize = 5;

/// Number of sleeps per method.
const SLEEPS_PER_METHOD: i64 = 200;

/// Lateness of one method to wait.
#[derive(Debug, Serialize)]
pub(super) struct Lateness {
    pub(super) method: &'static str,
    pub(super) count: u64,
    pub(super) p50_ns: Option<i64>,
    pub(super) p99_ns: Option<i64>,
    pub(super) max_ns: Option<i64>,
}

/// Median duration of a read of CLOCK_REALTIME.
pub(super) fn clock_read() -> Nanos {
    const READS_PER_BATCH: i64 = 100;
    let mut costs: Vec<_> = (0..1_000)
        .map(|_| {
            let start = monotonic();
            for _ in 0..READS_PER_BATCH {
                std::hint::black_box(realtime());
            }
            (monotonic() - start).0 / READS_PER_BATCH
        })
        .collect();
    costs.sort_unstable();
    Nanos(costs[costs.len() / 2])
}

/// Measures the lateness of 1 ms sleeps by five methods. A method that is not permitted has count
/// 0. `begin` is called with the name of each method.
pub(super) fn timers(begin: &dyn Fn(&str)) -> [Lateness; TIMER_METHODS] {
    let lateness = |method, scheduling: Option<RealTime>, mode: WaitMode| {
        begin(method);
        let sleeper = thread::spawn(move || {
            if let Some(real_time) = scheduling
                && cpu::place_thread(None, real_time).is_err()
            {
                return Distribution::default().figures();
            }
            let mut late = Distribution::default();
            for _ in 0..SLEEPS_PER_METHOD {
                let until = monotonic() + Nanos::from_millis(1);
                let _ = pacer::wait(mode, until, || false);
                late.record(monotonic() - until);
            }
            late.figures()
        });
        let figures = sleeper.join().expect("the thread does not panic");
        Lateness {
            method,
            count: figures.count,
            p50_ns: figures.p50.map(|ns| ns.0),
            p99_ns: figures.p99.map(|ns| ns.0),
            max_ns: figures.max.map(|ns| ns.0),
        }
    };
    [
        lateness("sleep", None, WaitMode::CatchUp),
        lateness("sleep, timer slack 1 ns", Some(RealTime::No), WaitMode::CatchUp),
        lateness("sleep, slack 1 ns, SCHED_FIFO", Some(RealTime::Required), WaitMode::CatchUp),
        lateness("sleep to 150 us before, then spin", Some(RealTime::No), WaitMode::SleepSpin),
        lateness("the same, SCHED_FIFO", Some(RealTime::Required), WaitMode::SleepSpin),
    ]
}

/// Tests SCHED_FIFO on a short-lived thread.
pub(super) fn real_time() -> io::Result<()> {
    thread::spawn(cpu::set_real_time).join().expect("the thread does not panic")
}

pub(super) fn locked_memory() -> io::Result<()> {
    match thread::spawn(|| cpu::place_thread(None, RealTime::No))
        .join()
        .expect("the thread does not panic")?
        .locked
    {
        true => Ok(()),
        false => Err(io::Error::other("the limit on locked memory is too low (ulimit -l)")),
    }
}

/// Tests whether the processors can be kept out of idle states.
pub(super) fn no_idle() -> io::Result<()> {
    IdleLimit::hold()?;
    match cpu_idle::states().driver {
        Some(_) => Ok(()),
        None => Err(io::Error::other("the kernel has no driver of idle states")),
    }
}

/// Driver and names of the idle states, in words.
pub(super) fn idle_states() -> Option<String> {
    let found = cpu_idle::states();
    Some(format!("{}: {}", found.driver?, found.states.join(", ")))
}

pub(super) fn ping_socket() -> io::Result<()> {
    let loopback = IpAddr::from([127, 0, 0, 1]);
    IcmpPort::connect(loopback, IcmpSocketKind::Ping, &SocketOptions::default()).map(drop)
}

pub(super) fn raw_socket() -> io::Result<()> {
    let loopback = IpAddr::from([127, 0, 0, 1]);
    IcmpPort::connect(loopback, IcmpSocketKind::Raw, &SocketOptions::default()).map(drop)
}

/// Tests whether any of three ports below 1024 can be bound.
pub(super) fn low_port() -> io::Result<()> {
    let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let mut last = Ok(());
    for port in [862, 863, 861] {
        last = DatagramSocket::bind(address(port), &SocketOptions::server()).map(drop);
        if last.is_ok() {
            break;
        }
    }
    last
}
