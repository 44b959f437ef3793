//! The probes: each does the thing once and says what came of it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::thread;

use dwell_io::clock::{monotonic, realtime};
use dwell_io::cpu::{self, RealTime};
use dwell_io::icmp::{IcmpPort, IcmpRung};
use dwell_io::port::{Notice, Port, PortOptions, StampRequest, Wait};
use dwell_io::tcp::{TcpConn, TcpPort};
use dwell_io::udp::{ServerOptions, UdpPort, UdpServer};
use dwell_stats::Distribution;
use dwell_units::Nanos;
use dwell_wire::icmp::{self, Family};
use serde::Serialize;

/// Sleeps per method.
const SLEEPS: i64 = 200;

/// How long to wait for a stamp: switching them on is asynchronous.
const PATIENCE: Nanos = Nanos::from_millis(200);

/// Lateness of one way to wait.
#[derive(Debug, Serialize)]
pub(super) struct Lateness {
    pub(super) method: &'static str,
    pub(super) count: u64,
    pub(super) p50_ns: Option<i64>,
    pub(super) p99_ns: Option<i64>,
    pub(super) max_ns: Option<i64>,
}

/// Which kernel stamps a kind of socket delivers.
#[derive(Debug, Serialize)]
pub(super) struct StampsSeen {
    pub(super) socket: &'static str,
    pub(super) tx: bool,
    pub(super) rx: bool,
    /// Why the socket could not be tried.
    pub(super) reason: Option<String>,
}

/// Median cost of reading CLOCK_REALTIME.
pub(super) fn clock_read() -> Nanos {
    const READS: i64 = 100;
    let mut costs: Vec<_> = (0..1_000)
        .map(|_| {
            let start = monotonic();
            for _ in 0..READS {
                std::hint::black_box(realtime());
            }
            (monotonic() - start).0 / READS
        })
        .collect();
    costs.sort_unstable();
    Nanos(costs[costs.len() / 2])
}

/// Sleeps until a time 1 ms ahead, in five ways; one that is not allowed has count 0.
pub(super) fn timers() -> Vec<Lateness> {
    let spin = Nanos::from_micros(150);
    let lateness = |method, precise: Option<RealTime>, spin: Nanos| {
        let sleeper = thread::spawn(move || {
            if let Some(real_time) = precise
                && cpu::settle(None, real_time).is_err()
            {
                return Distribution::default().figures();
            }
            let mut late = Distribution::default();
            for _ in 0..SLEEPS {
                let until = monotonic() + Nanos::from_millis(1);
                thread::sleep((until - spin - monotonic()).to_std());
                while monotonic() < until {
                    std::hint::spin_loop();
                }
                late.record(monotonic() - until);
            }
            late.figures()
        });
        let figures = sleeper.join().expect("a sleeper does not panic");
        Lateness {
            method,
            count: figures.count,
            p50_ns: figures.p50.map(|ns| ns.0),
            p99_ns: figures.p99.map(|ns| ns.0),
            max_ns: figures.max.map(|ns| ns.0),
        }
    };
    vec![
        lateness("sleep", None, Nanos::ZERO),
        lateness("sleep, timer slack 1 ns", Some(RealTime::No), Nanos::ZERO),
        lateness("sleep, slack 1 ns, SCHED_FIFO", Some(RealTime::Required), Nanos::ZERO),
        lateness("sleep to 150 us before, then spin", Some(RealTime::No), spin),
        lateness("the same, SCHED_FIFO", Some(RealTime::Required), spin),
    ]
}

/// Sends packets over loopback until stamps of both directions came, or patience ends.
pub(super) fn stamps() -> Vec<StampsSeen> {
    let v4 = IpAddr::from([127, 0, 0, 1]);
    let v6 = IpAddr::from(std::net::Ipv6Addr::LOCALHOST);
    vec![
        seen("UDP IPv4", udp(v4)),
        seen("UDP IPv6", udp(v6)),
        seen("TCP IPv4", tcp(v4)),
        seen("TCP IPv6", tcp(v6)),
        seen("ICMP ping, IPv4", echo(v4, IcmpRung::Ping)),
        seen("ICMP raw, IPv4", echo(v4, IcmpRung::Raw)),
        seen("ICMP ping, IPv6", echo(v6, IcmpRung::Ping)),
        seen("ICMP raw, IPv6", echo(v6, IcmpRung::Raw)),
    ]
}

fn seen(socket: &'static str, tried: io::Result<(bool, bool)>) -> StampsSeen {
    match tried {
        Ok((tx, rx)) => StampsSeen { socket, tx, rx, reason: None },
        Err(error) => StampsSeen { socket, tx: false, rx: false, reason: Some(error.to_string()) },
    }
}

const STAMPED: PortOptions = PortOptions {
    source: None,
    interface: None,
    ttl: None,
    dscp: None,
    stamps: StampRequest::Kernel,
    sched_stamps: false,
};

fn udp(address: IpAddr) -> io::Result<(bool, bool)> {
    let options = ServerOptions { stamps: StampRequest::Kernel, metadata: false };
    let mut server = UdpServer::bind(SocketAddr::new(address, 0), options)?;
    let mut port = UdpPort::connect(server.local_addr(), &STAMPED)?;
    let mut rx = false;
    let tx = until_stamped(&mut port, b"probe", |_| {
        let request = server.receive(&mut [0; 64], Wait::AtMost(Nanos::from_millis(10)));
        rx |= request.is_ok_and(|r| r.and_then(|r| r.rx?.kernel).is_some());
        rx
    });
    Ok((tx, rx))
}

fn tcp(address: IpAddr) -> io::Result<(bool, bool)> {
    let listener = dwell_io::tcp::listen(SocketAddr::new(address, 0), Some(PATIENCE))?;
    let mut port = TcpPort::connect(listener.local_addr()?, PATIENCE, &STAMPED)?;
    let (stream, peer) = listener.accept()?;
    let mut far = TcpConn::new(stream, peer, Some(PATIENCE))?;
    let mut buffer = [0; 64];
    let mut rx = false;
    let tx = until_stamped(&mut port, b"probe", |port| {
        if let Ok(Some(len)) = far.receive(&mut buffer)
            && far.send(&buffer[..len]).is_ok()
        {
            let reply = port.receive(&mut buffer, Wait::AtMost(Nanos::from_millis(10)));
            rx |= reply.is_ok_and(|r| r.is_some_and(|r| r.rx.kernel.is_some()));
        }
        rx
    });
    Ok((tx, rx))
}

fn echo(address: IpAddr, rung: IcmpRung) -> io::Result<(bool, bool)> {
    let mut port = IcmpPort::connect(address, rung, &STAMPED)?;
    let family = if address.is_ipv4() { Family::V4 } else { Family::V6 };
    let mut message = [0; 64];
    icmp::emit_request(family, 0xd3e1, 1, &mut message);
    let mut rx = false;
    let tx = until_stamped(&mut port, &message, |port| {
        let reply = port.receive(&mut [0; 128], Wait::AtMost(Nanos::from_millis(10)));
        rx |= reply.is_ok_and(|r| r.is_some_and(|r| r.rx.kernel.is_some()));
        rx
    });
    Ok((tx, rx))
}

/// Sends again and again; returns whether a TX stamp came. `received` looks for the RX stamp.
fn until_stamped<P: Port>(
    port: &mut P,
    message: &[u8],
    mut received: impl FnMut(&mut P) -> bool,
) -> bool {
    let end = monotonic() + PATIENCE;
    let mut tx = false;
    while monotonic() < end {
        if port.send(message).is_err() {
            break;
        }
        let rx = received(port);
        port.notices(32, &mut |notice| tx |= matches!(notice, Notice::TxStamp { .. }));
        if tx && rx {
            break;
        }
    }
    tx
}

/// SCHED_FIFO, on a thread that ends at once.
pub(super) fn real_time() -> io::Result<()> {
    thread::spawn(cpu::go_first).join().expect("asking does not panic")
}

pub(super) fn locked_memory() -> io::Result<()> {
    match thread::spawn(|| cpu::settle(None, RealTime::No))
        .join()
        .expect("asking does not panic")?
        .locked
    {
        true => Ok(()),
        false => Err(io::Error::other("the limit of locked memory is too low (ulimit -l)")),
    }
}

pub(super) fn ping_socket() -> io::Result<()> {
    let loopback = IpAddr::from([127, 0, 0, 1]);
    IcmpPort::connect(loopback, IcmpRung::Ping, &PortOptions::default()).map(drop)
}

pub(super) fn raw_socket() -> io::Result<()> {
    let loopback = IpAddr::from([127, 0, 0, 1]);
    IcmpPort::connect(loopback, IcmpRung::Raw, &PortOptions::default()).map(drop)
}

/// Any free port below 1024 will do.
pub(super) fn low_port() -> io::Result<()> {
    let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let mut last = Ok(());
    for port in [862, 863, 861] {
        last = UdpServer::bind(address(port), ServerOptions::default()).map(drop);
        if last.is_ok() {
            break;
        }
    }
    last
}

pub(super) fn tap() -> io::Result<()> {
    std::fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun").map(drop)
}
