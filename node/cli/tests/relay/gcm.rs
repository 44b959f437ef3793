//! Relays with aes-128-gcm: which packets they accept and reject.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use dwell_io::process::Signal;

use crate::fixture::{
    HOST, KEY, Relay, TEST_TIMEOUT, beside_others, payload, receive, socket, value,
};
use crate::support::{DWELL, Server, free_port, signal};

const GCM: [&str; 2] = ["--cipher", "aes-128-gcm"];

/// Bytes that encryption adds to a datagram.
const TRAILER: usize = 28;

/// Bytes of `--clear`.
const CLEAR: usize = 12;

/// Two relays with a link between them that the test controls.
struct Tunnel {
    encrypt: Relay,
    decrypt: Relay,
    client: UdpSocket,
    /// Destination of the encrypting relay.
    wire: UdpSocket,
    /// Source of packets to the decrypting relay.
    onward: UdpSocket,
    far: UdpSocket,
}

impl Tunnel {
    fn new(engine: &[&str]) -> Self {
        let (far, wire) = (socket(), socket());
        let of = |mode, to: &UdpSocket| {
            Relay::to_socket(to, &[&["--mode", mode][..], &GCM, engine].concat())
        };
        let (decrypt, encrypt) = (of("decrypt", &far), of("encrypt", &wire));
        Self { encrypt, decrypt, client: socket(), wire, onward: socket(), far }
    }

    /// Returns the encrypted packet of a payload, and its source address.
    fn seal(&self, payload: &[u8]) -> (Vec<u8>, SocketAddr) {
        self.client.send_to(payload, &self.encrypt.listen).unwrap();
        receive(&self.wire)
    }

    fn send(&self, sealed: &[u8]) {
        self.onward.send_to(sealed, &self.decrypt.listen).unwrap();
    }

    /// Sends a genuine packet and requires it to arrive next, so no packet before it was delivered.
    fn assert_next_is_genuine(&self, n: u8) -> SocketAddr {
        let payload = payload(n, 333);
        self.send(&self.seal(&payload).0);
        let (received, from) = receive(&self.far);
        assert_eq!(received, payload);
        from
    }
}

const ENGINES: [&[&str]; 4] =
    [&[], &["--busy-poll"], &["--engine", "batch"], &["--engine", "batch", "--merge"]];

#[test]
fn gcm_tunnel_carries_both_ways_and_refuses_replays() {
    let _machine = beside_others();
    for engine in ENGINES {
        let tunnel = Tunnel::new(engine);
        let (mut there, mut back) = (Vec::new(), Vec::new());
        let mut near = None;
        for (n, len) in [0, 1, 11, 12, 13, 64, 1_400, 60_000].into_iter().enumerate() {
            let original = payload(n as u8, len);
            let (sealed, encrypt_out) = tunnel.seal(&original);
            let clear = CLEAR.min(len);
            assert_eq!((sealed.len(), &sealed[..clear]), (len + TRAILER, &original[..clear]));
            assert!(
                len <= 64 || sealed[clear..len] != original[clear..],
                "the payload is encrypted"
            );
            tunnel.send(&sealed);
            let (received, decrypt_out) = receive(&tunnel.far);
            assert!(received == original, "{engine:?} {len}");
            tunnel.far.send_to(&received, decrypt_out).unwrap();
            let (answer, _) = receive(&tunnel.onward);
            assert_ne!(
                answer[len..len + 8],
                sealed[len..len + 8],
                "each direction has its own salt"
            );
            tunnel.wire.send_to(&answer, encrypt_out).unwrap();
            assert!(receive(&tunnel.client).0 == original, "{engine:?} {len}");
            there.push(sealed);
            back.push(answer);
            near = Some(encrypt_out);
        }
        let (near, other_port) = (near.unwrap(), socket());
        for sealed in &there {
            tunnel.send(sealed);
            other_port.send_to(sealed, &tunnel.decrypt.listen).unwrap();
            // Reflected to its source.
            tunnel.wire.send_to(sealed, near).unwrap();
        }
        for answer in &back {
            tunnel.wire.send_to(answer, near).unwrap();
        }
        let decrypt_out = tunnel.assert_next_is_genuine(99);
        tunnel.far.send_to(b"the next answer", decrypt_out).unwrap();
        let (answer, _) = receive(&tunnel.onward);
        tunnel.wire.send_to(&answer, near).unwrap();
        assert_eq!(receive(&tunnel.client).0, b"the next answer", "no replay before it");
        let (encrypt, decrypt) = (tunnel.encrypt.end(), tunnel.decrypt.end());
        let counts = |of| ["replayed", "unauthentic", "flows", "short"].map(|name| value(of, name));
        assert_eq!(counts(&decrypt), [16, 0, 1, 0], "{engine:?} {decrypt}");
        assert_eq!(counts(&encrypt), [8, 8, 1, 0], "{engine:?} {encrypt}");
        assert_eq!(value(&decrypt, "relayed_forward"), 9);
        assert_eq!((value(&encrypt, "nonce_bytes"), value(&encrypt, "tag_bytes")), (12, 16));
        assert_eq!(encrypt["parameters"]["cipher"], "aes-128-gcm");
        let warnings = decrypt["trust"]["warnings"].to_string();
        assert!(warnings.contains("16 packets were dropped: accepted before"), "{warnings}");
    }
}

#[test]
fn gcm_relay_delivers_no_packet_with_a_flipped_bit() {
    let _machine = beside_others();
    for engine in ENGINES {
        let tunnel = Tunnel::new(engine);
        let mut flips = 0;
        for len in [5, CLEAR, 100] {
            let original = payload(7, len);
            let (sealed, _) = tunnel.seal(&original);
            // The parts of a packet: clear bytes, encrypted bytes, salt, counter, tag.
            let ends = [CLEAR.min(len), len, len + 8, len + 12, len + 28];
            let mut start = 0;
            for end in ends {
                // Bits of the first and the last byte. Of the counter, only a bit that increases
                // it: a lower number may have been accepted before.
                let bits = [8 * start, 8 * start + 7, 8 * (end.max(1) - 1), 8 * end.max(1) - 1];
                let bits = if end == len + 12 { &bits[..1] } else { &bits[..] };
                for bit in bits.iter().filter(|_| end > start) {
                    let mut flipped = sealed.clone();
                    flipped[bit / 8] ^= 1 << (bit % 8);
                    tunnel.send(&flipped);
                    flips += 1;
                }
                start = end;
            }
            // Not encrypted, and truncated.
            tunnel.send(&original);
            tunnel.send(&sealed[..sealed.len() - 1]);
            tunnel.send(&sealed);
            assert_eq!(
                receive(&tunnel.far).0,
                original,
                "{engine:?}: only the genuine packet, once"
            );
        }
        tunnel.assert_next_is_genuine(1);
        let (_encrypt, decrypt) = (tunnel.encrypt.end(), tunnel.decrypt.end());
        let refused = ["unauthentic", "unsealed"].map(|name| value(&decrypt, name));
        // Unencrypted packets are too short for a trailer, except the one of 100 bytes.
        assert_eq!(refused.iter().sum::<u64>(), flips + 6, "{engine:?} {decrypt}");
        assert_eq!(refused[1], 2, "{engine:?} {decrypt}");
        assert_eq!(value(&decrypt, "relayed_forward"), 4, "{engine:?} {decrypt}");
    }
}

/// Waits until the receive queues of all UDP sockets on a local port are empty.
fn wait_until_read(port: u16) {
    let give_up = Instant::now() + Duration::from_secs(30);
    let local = format!(":{port:04X}");
    let is_waiting = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        fields.get(1).is_some_and(|address| address.ends_with(&local))
            && fields.get(4).is_some_and(|queues| !queues.ends_with(":00000000"))
    };
    while fs::read_to_string("/proc/net/udp").unwrap().lines().any(is_waiting) {
        assert!(Instant::now() < give_up, "the relay reads what arrived");
        thread::yield_now();
    }
}

#[test]
fn forged_packets_open_no_flow_and_evict_none() {
    let _machine = beside_others();
    let far = socket();
    for engine in [&["--flows", "2"][..], &["--flows", "2", "--engine", "batch"]] {
        let decrypt = Relay::to_socket(&far, &[&["--mode", "decrypt"][..], &GCM, engine].concat());
        let encrypt = Relay::to(&decrypt.listen, &[&["--mode", "encrypt"][..], &GCM].concat());
        let client = socket();
        let round = || {
            client.send_to(b"genuine and long enough", &encrypt.listen).unwrap();
            let (received, from) = receive(&far);
            assert_eq!(received, b"genuine and long enough");
            from
        };
        let before = round();
        for n in 0..50 {
            socket().send_to(&[n; 80], &decrypt.listen).unwrap();
        }
        assert_eq!(round(), before, "the client keeps its flow");
        // The client has its own socket, so its packet may overtake the forged ones.
        wait_until_read(decrypt.listen.rsplit_once(':').unwrap().1.parse().unwrap());
        let summary = decrypt.end();
        let counts = ["flows", "flows_evicted", "unauthentic"].map(|name| value(&summary, name));
        assert_eq!(counts, [1, 0, 50], "{summary}");
    }
}

#[test]
fn gcm_packet_older_than_the_window_is_counted_as_too_old() {
    let _machine = beside_others();
    let tunnel = Tunnel::new(&[]);
    let sealed: Vec<_> = (0..=1_024).map(|n| tunnel.seal(&payload(n as u8, 20)).0).collect();
    tunnel.send(&sealed[1_024]);
    receive(&tunnel.far);
    tunnel.send(&sealed[0]);
    tunnel.send(&sealed[1]);
    assert_eq!(receive(&tunnel.far).0, payload(1, 20), "the oldest in the window");
    let (_encrypt, decrypt) = (tunnel.encrypt.end(), tunnel.decrypt.end());
    assert_eq!((value(&decrypt, "too_old"), value(&decrypt, "replayed")), (1, 0));
}

#[test]
fn oversized_gcm_packet_is_counted() {
    let _machine = beside_others();
    let wire = socket();
    let relay = Relay::to_socket(&wire, &[&["--mode", "encrypt"][..], &GCM].concat());
    let client = socket();
    for len in [65_480, 65_500, 65_507, 60_000] {
        client.send_to(&payload(1, len), &relay.listen).unwrap();
    }
    assert_eq!(receive(&wire).0.len(), 60_000 + TRAILER);
    let summary = relay.end();
    assert_eq!((value(&summary, "too_long"), value(&summary, "relayed_forward")), (3, 1));
    let warnings = summary["trust"]["warnings"].to_string();
    assert!(warnings.contains("adds 28 bytes"), "{warnings}");
}

#[test]
fn ctr_warns_outside_a_lab_and_gcm_does_not() {
    let _machine = beside_others();
    for (cipher, warns) in [("aes-128-ctr", true), ("aes-128-gcm", false)] {
        let listen = format!("udp://{HOST}:{}", free_port(HOST));
        let mut command = Command::new(DWELL);
        command.args(["relay", "--mode", "encrypt", "--listen", &listen, "--json"]);
        command
            .args(["--to", &format!("udp://{HOST}:9"), "--cipher", cipher])
            .env("DWELL_KEY", KEY);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = String::new();
        let mut stderr = child.stderr.take().unwrap();
        let mut byte = [0];
        while !said.contains("relaying") && stderr.read(&mut byte).unwrap() == 1 {
            said.push(char::from(byte[0]));
        }
        signal(&child, Signal::Interrupt);
        stderr.read_to_string(&mut said).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?} {said}");
        let found = said.contains("does not authenticate") && said.contains("--cipher aes-128-gcm");
        assert_eq!(found, warns, "{cipher}: {said}");
    }
}

/// Reads a stream to its end; returns the data and whether it was closed regularly.
fn read_all(mut stream: &TcpStream) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => (bytes, true),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
            (bytes, false)
        }
    }
}

fn connected(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream
}

fn accepted(listener: &TcpListener) -> TcpStream {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream
}

fn of_tcp(mode: &str, to: impl std::fmt::Display) -> Relay {
    Relay::of("tcp", to, &[&["--mode", mode][..], &GCM].concat())
}

#[test]
fn gcm_connections_carry_both_ways_and_end_by_halves() {
    let _machine = beside_others();
    let far = TcpListener::bind((HOST, 0)).unwrap();
    let decrypt = of_tcp("decrypt", far.local_addr().unwrap());
    let encrypt = of_tcp("encrypt", &decrypt.listen);
    const LENS: [usize; 6] = [0, 5, CLEAR, CLEAR + 1, 16_384, 2_000_001];
    for (n, len) in LENS.into_iter().enumerate() {
        let sent = payload(n as u8, len);
        let client = connected(&encrypt.listen);
        let sending = {
            let (mut stream, sent) = (client.try_clone().unwrap(), sent.clone());
            std::thread::spawn(move || {
                stream.write_all(&sent).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
            })
        };
        // The echo server replies once the other half is closed.
        let mut echo = accepted(&far);
        let (all, in_order) = read_all(&echo);
        assert!(all == sent && in_order, "{len}");
        let answering = std::thread::spawn(move || echo.write_all(&all).unwrap());
        let (back, in_order) = read_all(&client);
        assert!(back == sent && in_order, "{len}");
        sending.join().unwrap();
        answering.join().unwrap();
    }
    let (encrypt, decrypt) = (encrypt.end(), decrypt.end());
    for summary in [&encrypt, &decrypt] {
        let refused = ["unauthentic", "replayed", "truncated"].map(|name| value(summary, name));
        assert_eq!(refused, [0; 3], "{summary}");
    }
    let total = LENS.iter().sum::<usize>() as u64;
    assert_eq!(value(&encrypt, "payload_bytes_forward"), total);
    let records = value(&decrypt, "relayed_forward");
    assert_eq!(value(&decrypt, "payload_bytes_forward"), total + 18 * records);
}

/// Splits an encrypted stream into salt and records.
fn records(mut bytes: &[u8]) -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut records = Vec::new();
    let salt = bytes.split_off(..8).unwrap();
    while let Some(head) = bytes.first_chunk() {
        let len = usize::from(u16::from_be_bytes(*head));
        records.push(bytes.split_off(..2 + len + 16).unwrap().to_vec());
    }
    (salt.to_vec(), records)
}

#[test]
fn changed_or_replayed_gcm_stream_ends_with_a_reset() {
    let _machine = beside_others();
    let (far, wire) =
        (TcpListener::bind((HOST, 0)).unwrap(), TcpListener::bind((HOST, 0)).unwrap());
    let decrypt = of_tcp("decrypt", far.local_addr().unwrap());
    let encrypt = of_tcp("encrypt", wire.local_addr().unwrap());
    let original = payload(3, 100_000);
    // Every stream has its own salt: the relay encrypts the same bytes again for each attempt.
    let sealed = || {
        let mut client = connected(&encrypt.listen);
        client.write_all(&original).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let (bytes, in_order) = read_all(&accepted(&wire));
        assert!(in_order);
        records(&bytes)
    };
    let deliver = |(salt, records): (Vec<u8>, Vec<Vec<u8>>)| {
        let mut onward = connected(&decrypt.listen);
        let far = accepted(&far);
        // The relay may reset the connection at any moment.
        let _ = onward.write_all(&[salt, records.concat()].concat());
        let _ = onward.shutdown(Shutdown::Write);
        let (received, in_order) = read_all(&far);
        assert!(original.starts_with(&received), "{} bytes", received.len());
        (received.len(), in_order)
    };
    let counts = |summary: &serde_json::Value| {
        ["unauthentic", "replayed", "truncated"].map(|name| value(summary, name))
    };
    let genuine = sealed();
    assert!(genuine.1.len() > 6, "several records");
    assert_eq!(deliver(genuine.clone()), (original.len(), true));
    assert_eq!(deliver(genuine), (0, false), "the same stream again");
    type Change = fn(&mut Vec<Vec<u8>>);
    let changes: [(Change, &str); 7] = [
        (|records| drop(records.pop()), "cut before the end record"),
        (|records| records.truncate(3), "cut after some records"),
        (|records| _ = records[4].pop(), "cut in a record"),
        (|records| records.swap(1, 2), "swapped"),
        (|records| records.insert(2, records[1].clone()), "doubled"),
        (|records| *records[2].last_mut().unwrap() ^= 1, "a flipped bit"),
        (|records| records[0][4] ^= 0x80, "a flipped clear bit"),
    ];
    for (change, what) in changes {
        let (salt, mut records) = sealed();
        change(&mut records);
        let (_, in_order) = deliver((salt, records));
        assert!(!in_order, "{what}: the receiver sees a complete stream");
    }
    let (_encrypt, decrypt) = (encrypt.end(), decrypt.end());
    assert_eq!(counts(&decrypt), [5, 1, 2], "{decrypt}");
    let warnings = decrypt["trust"]["warnings"].to_string();
    for reason in ["not authentic", "accepted before", "cut off before the end"] {
        assert!(warnings.contains(reason), "{warnings}");
    }
}

#[test]
fn two_keys_or_ciphers_refuse_each_others_packets() {
    let _machine = beside_others();
    let tunnel = Tunnel::new(&[]);
    let other_key = {
        let listen = format!("{HOST}:{}", free_port(HOST));
        let mut command = Command::new(DWELL);
        command.args(["relay", "--listen", &format!("udp://{listen}"), "--json"]);
        command.args(["--to", &format!("udp://{}", tunnel.wire.local_addr().unwrap())]);
        command.args(["--mode", "encrypt"]).args(GCM).env("DWELL_KEY", KEY.replace("00", "ff"));
        Relay { server: Server::ready(command, "relaying", 1), listen }
    };
    let ctr = Relay::to_socket(&tunnel.wire, &["--mode", "encrypt"]);
    for relay in [&other_key, &ctr] {
        tunnel.client.send_to(&payload(1, 200), &relay.listen).unwrap();
        tunnel.send(&receive(&tunnel.wire).0);
    }
    tunnel.assert_next_is_genuine(2);
    assert_eq!(value(&tunnel.decrypt.end(), "unauthentic"), 2);
}
