//! Common parts of relay tests: relays that stop with their test, sockets, payloads.

use std::net::UdpSocket;
use std::process::Command;
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use serde_json::Value;

use crate::support::{DWELL, Server, free_port, json};

pub(crate) const HOST: &str = "127.0.0.3";
pub(crate) const KEY: &str = "000102030405060708090a0b0c0d0e0f";

/// Exceeds the time of any step, so that a hang fails the test.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Tests that measure run alone; the others run in parallel.
pub(crate) static MACHINE: RwLock<()> = RwLock::new(());

pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(|failed| failed.into_inner())
}

pub(crate) fn beside_others() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(|failed| failed.into_inner())
}

pub(crate) fn socket() -> UdpSocket {
    let socket = UdpSocket::bind((HOST, 0)).unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    socket
}

/// A running relay with its address.
pub(crate) struct Relay {
    pub(crate) server: Server,
    pub(crate) listen: String,
}

impl Relay {
    pub(crate) fn to(to: impl std::fmt::Display, more: &[&str]) -> Self {
        Self::of("udp", to, more)
    }

    pub(crate) fn of(scheme: &str, to: impl std::fmt::Display, more: &[&str]) -> Self {
        let listen = format!("{HOST}:{}", free_port(HOST));
        let mut command = Command::new(DWELL);
        command.args(["relay", "--listen", &format!("{scheme}://{listen}"), "--json"]);
        command.args(["--to", &format!("{scheme}://{to}")]).args(more).env("DWELL_KEY", KEY);
        Self { server: Server::ready(command, "relaying", 1), listen }
    }

    pub(crate) fn to_socket(to: &UdpSocket, more: &[&str]) -> Self {
        Self::to(to.local_addr().unwrap(), more)
    }

    /// Stops the relay; returns its summary.
    pub(crate) fn end(self) -> Value {
        let output = self.server.stop();
        assert!(output.status.success(), "{output:?}");
        json(&output)
    }
}

pub(crate) fn value(summary: &Value, name: &str) -> u64 {
    summary["values"][name].as_u64().unwrap_or_else(|| panic!("no {name}: {summary}"))
}

pub(crate) fn receive(socket: &UdpSocket) -> (Vec<u8>, std::net::SocketAddr) {
    let mut buffer = vec![0; 65_536];
    let (len, from) = socket.recv_from(&mut buffer).unwrap();
    buffer.truncate(len);
    (buffer, from)
}

pub(crate) fn payload(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|n| (n as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}
