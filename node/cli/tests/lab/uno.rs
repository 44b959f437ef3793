//! The sketch for the Arduino Uno on a simulated processor (simavr) with a model of the W5500, whose sockets
//! are those of a node. Needs `make firmware` and root.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use dwell_io::netns;
use serde_json::Value;

use crate::fixture::{DWELL, TestLab, WAIT_TIMEOUT, as_root, kill, skip};

const ADDRESS: &str = "198.19.0.2";
const PORT: u16 = 7_100;

/// The sketch in node n2 of a line; ended with its test.
struct Uno {
    lab: TestLab,
    simulator: Child,
}

impl Uno {
    /// Starts the sketch, or prints why that is impossible here.
    fn start(test: &str) -> Option<Self> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/firmware");
        let [simulator, sketch] =
            ["simulate-uno", "arduino/dwell-uno.elf"].map(|it| folder.join(it));
        if !simulator.is_file() || !sketch.is_file() {
            skip("needs the firmware: make firmware");
            return None;
        }
        if !as_root() {
            return None;
        }
        let lab = TestLab::up(test, &["line:2"]);
        let mut simulator = Command::new(DWELL)
            .args(["lab", "exec", "--lab", &lab.name, "n2", "--"])
            .args([&simulator, &sketch])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // simavr prints what the sketch prints to standard error.
        let mut lines = BufReader::new(simulator.stderr.take().unwrap()).lines();
        assert!(
            lines.any(|line| line.unwrap_or_default().contains("ready at")),
            "the sketch starts"
        );
        Some(Self { lab, simulator })
    }

    fn udp(&self) -> UdpSocket {
        let socket = self.lab.socket("n1", "0.0.0.0:0");
        socket.connect((ADDRESS, PORT)).unwrap();
        socket
    }

    fn tcp(&self) -> TcpStream {
        let connect = || TcpStream::connect((ADDRESS, PORT));
        let stream = netns::within(&self.lab.netns("n1"), connect).unwrap().unwrap();
        stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        stream
    }
}

impl Drop for Uno {
    fn drop(&mut self) {
        kill(&mut self.simulator);
    }
}

#[test]
fn sketch_answers_every_exchange() {
    let Some(uno) = Uno::start("uno-exchange") else { return };
    for scheme in ["text+udp", "text+tcp"] {
        let url = format!("{scheme}://{ADDRESS}:{PORT}");
        let ping = [DWELL, "ping", &url, "--json", "-c", "200", "-i", "0", "-W", "20"];
        let output = uno.lab.exec("n1", &ping);
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(summary["packets"]["received"], 200, "{url}: {output:?}");
    }
}

#[test]
fn sketch_returns_its_time_and_serves_seven_clients() {
    let Some(uno) = Uno::start("uno-times") else { return };
    let request = b"request 0000000000000000 0000000000000000";
    let times = |reply: &[u8]| {
        let text = std::str::from_utf8(reply).unwrap();
        let words: Vec<_> = text.split(' ').collect();
        assert_eq!((words[0], words.len()), ("acknowledge", 3), "{text}");
        [1, 2].map(|at| u64::from_str_radix(words[at], 16).unwrap())
    };
    let udp = uno.udp();
    let mut clients: Vec<_> = (0..7).map(|_| uno.tcp()).collect();
    let mut before = 0;
    for _ in 0..20 {
        let mut reply = [0; 64];
        udp.send(request).unwrap();
        let len = udp.recv(&mut reply).unwrap();
        let [received, sent] = times(&reply[..len]);
        assert!(before < received && received < sent, "{before} {received} {sent}");
        before = sent;
        for client in &mut clients {
            client.write_all(request).unwrap();
            let mut reply = [0; 45];
            client.read_exact(&mut reply).unwrap();
            let [received, sent] = times(&reply);
            assert!(before < received && received < sent, "{before} {received} {sent}");
            before = sent;
        }
    }
    // A connection that ends makes room for another.
    drop(clients);
    let mut client = uno.tcp();
    client.write_all(&b"request\n".repeat(100)).unwrap();
    let mut replies = [0; 1_100];
    client.read_exact(&mut replies).unwrap();
    assert_eq!(&replies[..], &b"acknowledge".repeat(100)[..]);
}

#[test]
fn sketch_skips_malformed_requests() {
    let Some(uno) = Uno::start("uno-malformed") else { return };
    let udp = uno.udp();
    let long = [b'r'; 1_400];
    let refused: [&[u8]; 5] = [b"", b"req", b"requests", &long, b"request 0000000000000000 "];
    for request in refused {
        udp.send(request).unwrap();
    }
    udp.send(b"request").unwrap();
    let mut reply = [0; 64];
    let len = udp.recv(&mut reply).unwrap();
    assert_eq!(&reply[..len], b"acknowledge");
    let mut tcp = uno.tcp();
    tcp.write_all(&long).unwrap();
    tcp.write_all(b"xxreqrequest 00zz request\n").unwrap();
    let mut replies = [0; 22];
    tcp.read_exact(&mut replies).unwrap();
    assert_eq!(&replies, b"acknowledgeacknowledge");
}
