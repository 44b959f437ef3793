//! In-band telemetry of `dwell relay`: the slots of a packet agree with the relays' own
//! observations.

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use dwell_record::segment::{self, Record};
use dwell_sample::{PacketObservation, Point};
use dwell_wire::stamp::{Mode, Request};
use dwell_wire::telemetry::{self, Slot};
use dwell_wire::tlv::{self, kind};

mod support;
use support::{DWELL, Server, dwell, free_port, json, said};

const HOST: &str = "127.0.0.5";
const KEY: &str = "000102030405060708090a0b0c0d0e0f";

/// Exceeds the time of any step, so that a hang fails the test.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A running relay with its address and its samples file.
struct Relay {
    server: Server,
    listen: String,
    samples: PathBuf,
}

/// Result of a relay: observations by id for each direction, and the number of filled slots.
struct RelayResult {
    directions: [BTreeMap<u64, PacketObservation>; 2],
    filled: u64,
}

impl Relay {
    fn to(to: &str, directory: &Path, more: &[&str]) -> Self {
        let listen = format!("{HOST}:{}", free_port(HOST));
        let samples = directory.join(format!("relay-{}", listen.replace(':', "-")));
        let mut command = Command::new(DWELL);
        command.args(["relay", "--listen", &format!("udp://{listen}"), "--json"]);
        command.args(["--to", &format!("udp://{to}"), "--id", "stamp", "--samples"]).arg(&samples);
        command.args(more).env("DWELL_KEY", KEY);
        Self { server: Server::ready(command, "relaying", 1), listen, samples }
    }

    fn end(self) -> RelayResult {
        let output = self.server.stop();
        assert!(output.status.success(), "{output:?}");
        let filled = json(&output)["values"]["telemetry_filled"].as_u64().unwrap();
        let mut directions = [BTreeMap::new(), BTreeMap::new()];
        let mut file = fs::File::open(&self.samples).unwrap();
        segment::read(&mut file, &mut |record| {
            if let Record::PacketObservation(observation) = record {
                // With one client, flow 0 is forward and flow 1 backward.
                directions[observation.flow as usize].insert(observation.id, *observation);
            }
        })
        .unwrap();
        RelayResult { directions, filled }
    }
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind((HOST, 0)).unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    socket
}

/// Builds a STAMP packet with empty slots, followed by an HMAC TLV if `signed`.
fn packet(seq: u32, slots: usize, signed: bool) -> Vec<u8> {
    let base = Mode::Unauthenticated.base();
    let tag = if signed { tlv::HEADER + 16 } else { 0 };
    let mut packet = vec![0; base + tlv::HEADER + telemetry::value_len(slots) + tag];
    Request { seq, timestamp: 0xeb01_78f1_8000_1234, error: 0x0001, ssid: 77 }
        .emit(&mut packet, Mode::Unauthenticated);
    let len = telemetry::value_len(slots) as u16;
    let (value, rest) = tlv::begin(&mut packet[base..], kind::PATH, len);
    telemetry::begin(value);
    if signed {
        tlv::begin(rest, kind::HMAC, 16);
    }
    packet
}

fn slots(packet: &[u8]) -> Vec<Slot> {
    telemetry::slots(&packet[Mode::Unauthenticated.base() + tlv::HEADER..]).collect()
}

fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = vec![0; 65_536];
    let (len, _) = socket.recv_from(&mut buffer).unwrap();
    buffer.truncate(len);
    buffer
}

/// Returns the time from the slot's `tx_app` to that of the observation. The relay reads the clock
/// before it writes the slot and again before the send call, and encrypts in between.
fn lag(observation: &PacketObservation, slot: &Slot) -> i64 {
    observation.stamps.get(Point::TxApp).unwrap().as_nanos() - i64::try_from(slot.tx_app).unwrap()
}

#[test]
fn telemetry_slots_equal_relay_observations() {
    const PACKETS: u32 = 200;
    let translate: [&[&str]; 2] = [&["--mode", "translate"]; 2];
    let tunnel: [&[&str]; 2] = [&["--mode", "encrypt"], &["--mode", "decrypt"]];
    for (modes, engine) in
        [(translate, "socket"), (translate, "batch"), (tunnel, "socket"), (tunnel, "batch")]
    {
        let directory = tempfile::tempdir().unwrap();
        let (_reflector, urls) = Server::reflect(&["stamp"], HOST, &[]);
        let options = ["--telemetry", "--engine", engine, "--hold", "program:50us", "--node-id"];
        let start = |to: &str, mode: &[&str], node: &str| {
            Relay::to(to, directory.path(), &[mode, &options, &[node]].concat())
        };
        let far = start(urls[0].strip_prefix("stamp://").unwrap(), modes[1], "22");
        let near = start(&far.listen, modes[0], "11");
        let client = socket();
        let mut slots_by_id: BTreeMap<u64, Vec<Slot>> = BTreeMap::new();
        for seq in 0..PACKETS {
            let sent = packet(seq, 5, false);
            client.send_to(&sent, &near.listen).unwrap();
            let reply = receive(&client);
            assert_eq!(reply.len(), sent.len(), "the packet never grows");
            slots_by_id.insert(seq.into(), slots(&reply));
        }
        let (near, far) = (near.end(), far.end());
        assert_eq!((near.filled, far.filled), (2 * u64::from(PACKETS), 2 * u64::from(PACKETS)));
        let places = [
            (11, false, &near, 0),
            (22, false, &far, 0),
            (22, true, &far, 1),
            (11, true, &near, 1),
        ];
        for (place, (node, back, relay, direction)) in places.into_iter().enumerate() {
            let mut lags = Vec::new();
            for (id, slots) in &slots_by_id {
                assert_eq!(slots.len(), 4, "{slots:?}");
                let (slot, observation) = (&slots[place], &relay.directions[direction][id]);
                assert_eq!((slot.node, slot.back), (node, back));
                let nanos = |point| observation.stamps.get(point).map(|at| at.as_nanos() as u64);
                assert_eq!(Some(slot.rx_app), nanos(Point::RxApp));
                assert_eq!(slot.rx_kernel, nanos(Point::RxKernel));
                assert!(slot.tx_app - slot.rx_app >= 50_000, "the hold is in between: {slot:?}");
                let lag = lag(observation, slot);
                assert!(lag >= 0, "{slot:?} {observation:?}");
                lags.push(lag);
            }
            lags.sort_unstable();
            let decile = lags[lags.len() / 10];
            println!(
                "{engine} {:?} place {place}: {decile} ns before the observation's tx_app",
                modes[0]
            );
            // Packets are interrupted between the two clock readings, often on a busy machine. A
            // slot filled before the hold would be 50 us off.
            assert!(decile < 40_000, "{engine} {modes:?} {place}: {lags:?}");
        }
    }
}

#[test]
fn gcm_relays_fill_slots_in_both_directions() {
    const PACKETS: u32 = 10;
    for engine in ["socket", "batch"] {
        let directory = tempfile::tempdir().unwrap();
        let (_reflector, urls) = Server::reflect(&["stamp"], HOST, &[]);
        let start = |to: &str, mode: &str, node: &str| {
            let how = ["--telemetry", "--engine", engine, "--cipher", "aes-128-gcm"];
            let which = ["--mode", mode, "--node-id", node];
            Relay::to(to, directory.path(), &[&how[..], &which].concat())
        };
        let far = start(urls[0].strip_prefix("stamp://").unwrap(), "decrypt", "22");
        let near = start(&far.listen, "encrypt", "11");
        let client = socket();
        for seq in 0..PACKETS {
            client.send_to(&packet(seq, 5, false), &near.listen).unwrap();
            let nodes: Vec<_> =
                slots(&receive(&client)).iter().map(|slot| (slot.node, slot.back)).collect();
            assert_eq!(nodes, [(11, false), (22, false), (22, true), (11, true)], "{engine}");
        }
        let filled = [near.end().filled, far.end().filled];
        assert_eq!(filled, [2 * u64::from(PACKETS); 2], "{engine}");
    }
}

#[test]
fn telemetry_changes_only_empty_unsigned_slots() {
    let directory = tempfile::tempdir().unwrap();
    let far = socket();
    let far_address = far.local_addr().unwrap().to_string();
    let client = socket();
    let silent = Relay::to(&far_address, directory.path(), &[]);
    let filling = Relay::to(&far_address, directory.path(), &["--telemetry", "--node-id", "7"]);
    let mut full = packet(3, 1, false);
    let slot = Slot { node: 9, back: false, rx_kernel: None, rx_app: 5, tx_app: 6 };
    assert!(telemetry::fill(&mut full, &slot));
    let mut plain = vec![0; Mode::Unauthenticated.base()];
    plain[..4].copy_from_slice(&[0, 0, 0, 9]);
    let cases = [packet(2, 3, true), full, plain, vec![0x5a; 1_000], packet(4, 2, false)];
    for (n, sent) in cases.iter().enumerate() {
        client.send_to(sent, &silent.listen).unwrap();
        assert_eq!(&receive(&far), sent, "without --telemetry");
        client.send_to(sent, &filling.listen).unwrap();
        let received = receive(&far);
        if n < cases.len() - 1 {
            assert_eq!(&received, sent, "case {n}");
        } else {
            let slots = slots(&received);
            assert_eq!((slots.len(), slots[0].node, slots[0].back), (1, 7, false));
            assert_eq!(received[..44], sent[..44]);
        }
    }
    assert_eq!((silent.end().filled, filling.end().filled), (0, 1));
}

#[test]
fn telemetry_without_room_is_refused() {
    for (arguments, says) in [
        (&["ping", "stamp://127.0.0.1:9", "--path", "4", "-s", "100"][..], "needs"),
        (&["ping", "udp://127.0.0.1:9", "--path", "4"], "--path is for stamp://"),
        (
            &["relay", "--listen", "tcp://127.0.0.1:7", "--to", "tcp://127.0.0.1:9", "--telemetry"],
            "udp:// only",
        ),
    ] {
        let output = dwell(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?} {}", said(&output));
        assert!(said(&output).contains(says), "{arguments:?}: {}", said(&output));
    }
}
