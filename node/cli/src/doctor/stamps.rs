//! Tests which kernel timestamps sockets deliver: sends packets until timestamps of both directions
//! arrive or the time-out expires.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::path::Path;

use dwell_io::clock::monotonic;
use dwell_io::datagram::DatagramSocket;
use dwell_io::icmp::{IcmpPort, IcmpSocketKind};
use dwell_io::netns;
use dwell_io::port::{Notice, Port, SocketOptions, StampRequest, Wait};
use dwell_io::tcp::{self, TcpConn, TcpPort};
use dwell_units::Nanos;
use dwell_wire::icmp::{self, Family};
use serde::{Deserialize, Serialize};

/// Time-out for timestamps, which the kernel enables asynchronously.
const STAMP_TIMEOUT: Nanos = Nanos::from_millis(200);

/// Kernel timestamps that a kind of socket delivers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StampSupport {
    /// `lo` or `veth`.
    pub(super) interface: Cow<'static, str>,
    pub(super) socket: Cow<'static, str>,
    pub(super) tx: bool,
    pub(super) rx: bool,
    /// Why the socket could not be tested.
    pub(super) reason: Option<String>,
}

/// The path of the test packets.
pub(super) struct TestPath<'a> {
    pub(super) interface: &'static str,
    pub(super) v4: Ipv4Addr,
    pub(super) v6: Ipv6Addr,
    /// Network namespace of the receiver; `None` is the current one.
    pub(super) far: Option<&'a File>,
}

pub(super) const LOOPBACK: TestPath<'static> =
    TestPath { interface: "lo", v4: Ipv4Addr::LOCALHOST, v6: Ipv6Addr::LOCALHOST, far: None };

/// All kinds of sockets.
const SOCKETS: [&str; 8] = [
    "UDP IPv4",
    "UDP IPv6",
    "TCP IPv4",
    "TCP IPv6",
    "ICMP ping, IPv4",
    "ICMP raw, IPv4",
    "ICMP ping, IPv6",
    "ICMP raw, IPv6",
];

/// Rows for a path that does not exist.
pub(super) fn untried(interface: &'static str, why: &str) -> Vec<StampSupport> {
    let row = |socket| StampSupport::of(interface, socket, Err(io::Error::other(why.to_owned())));
    SOCKETS.into_iter().map(row).collect()
}

impl StampSupport {
    fn of(interface: &'static str, socket: &'static str, tried: io::Result<(bool, bool)>) -> Self {
        let reason = tried.as_ref().err().map(io::Error::to_string);
        let (tx, rx) = tried.unwrap_or_default();
        Self { interface: interface.into(), socket: socket.into(), tx, rx, reason }
    }
}

impl TestPath<'_> {
    /// Tests all kinds of sockets.
    pub(super) fn stamps(&self) -> Vec<StampSupport> {
        let (v4, v6) = (IpAddr::from(self.v4), IpAddr::from(self.v6));
        let tried = [
            self.udp(v4),
            self.udp(v6),
            self.tcp(v4),
            self.tcp(v6),
            echo(v4, IcmpSocketKind::Ping),
            echo(v4, IcmpSocketKind::Raw),
            echo(v6, IcmpSocketKind::Ping),
            echo(v6, IcmpSocketKind::Raw),
        ];
        let row = |(socket, tried)| StampSupport::of(self.interface, socket, tried);
        SOCKETS.into_iter().zip(tried).map(row).collect()
    }

    /// Opens a socket in the receiver's namespace.
    fn at_receiver<T: Send>(&self, make: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        match self.far {
            None => make(),
            Some(far) => {
                let path = format!("/proc/self/fd/{}", far.as_raw_fd());
                netns::within(Path::new(&path), make)?
            }
        }
    }

    fn udp(&self, address: IpAddr) -> io::Result<(bool, bool)> {
        let options = SocketOptions { stamps: StampRequest::Kernel, ..SocketOptions::server() };
        let mut server =
            self.at_receiver(|| DatagramSocket::bind(SocketAddr::new(address, 0), &options))?;
        let mut port = DatagramSocket::connect(server.local_addr(), &stamped())?;
        let mut rx = false;
        let tx = send_until_stamped(&mut port, b"probe", |_| {
            let request = server.receive_from(&mut [0; 64], Wait::AtMost(Nanos::from_millis(10)));
            rx |= request.is_ok_and(|r| r.and_then(|r| r.rx?.kernel).is_some());
            rx
        });
        Ok((tx, rx))
    }

    fn tcp(&self, address: IpAddr) -> io::Result<(bool, bool)> {
        let listener =
            self.at_receiver(|| tcp::listen(SocketAddr::new(address, 0), Some(STAMP_TIMEOUT)))?;
        let mut port = TcpPort::connect(listener.local_addr()?, STAMP_TIMEOUT, &stamped())?;
        let (stream, peer) = listener.accept()?;
        let mut far = TcpConn::new(stream, peer, Some(STAMP_TIMEOUT))?;
        let mut buffer = [0; 64];
        let mut rx = false;
        let tx = send_until_stamped(&mut port, b"probe", |port| {
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
}

/// Options of a socket whose packets are timestamped.
fn stamped() -> SocketOptions {
    SocketOptions { stamps: StampRequest::Kernel, ..SocketOptions::default() }
}

/// Tests an ICMP socket; the far kernel answers.
fn echo(address: IpAddr, kind: IcmpSocketKind) -> io::Result<(bool, bool)> {
    let mut port = IcmpPort::connect(address, kind, &stamped())?;
    let family = if address.is_ipv4() { Family::V4 } else { Family::V6 };
    let mut message = [0; 64];
    icmp::emit_request(family, 0xd3e1, 1, &mut message);
    let mut rx = false;
    let tx = send_until_stamped(&mut port, &message, |port| {
        let reply = port.receive(&mut [0; 128], Wait::AtMost(Nanos::from_millis(10)));
        rx |= reply.is_ok_and(|r| r.is_some_and(|r| r.rx.kernel.is_some()));
        rx
    });
    Ok((tx, rx))
}

/// Sends repeatedly. Returns whether a TX timestamp arrived. `received` checks for an RX timestamp.
fn send_until_stamped<P: Port>(
    port: &mut P,
    message: &[u8],
    mut received: impl FnMut(&mut P) -> bool,
) -> bool {
    let end = monotonic() + STAMP_TIMEOUT;
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
