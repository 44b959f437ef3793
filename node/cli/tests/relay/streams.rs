//! TCP connections through relays.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use dwell_io::process::Signal;

use crate::fixture::{HOST, Relay, TEST_TIMEOUT, beside_others, value};
use crate::support::signal;

/// Reads a stream to its end.
fn read_all(mut stream: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}

/// A connection to a relay.
fn connected(relay: &Relay) -> TcpStream {
    let stream = TcpStream::connect(&relay.listen).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream
}

/// Returns pseudo-random data of a seed.
fn stream_of(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed | 1;
    let next = move || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

#[test]
fn tunnelled_connections_carry_both_directions() {
    let _machine = beside_others();
    let far = TcpListener::bind((HOST, 0)).unwrap();
    let decrypt = Relay::of("tcp", far.local_addr().unwrap(), &["--mode", "decrypt"]);
    let encrypt = Relay::of("tcp", &decrypt.listen, &["--mode", "encrypt"]);
    const CONNECTIONS: u64 = 6;
    let echo = std::thread::spawn(move || {
        for _ in 0..CONNECTIONS {
            let (mut stream, _) = far.accept().unwrap();
            std::thread::spawn(move || {
                // Read all data until the other half is closed; a reply is still possible.
                let all = read_all(&stream);
                stream.write_all(&all).unwrap();
            });
        }
    });
    let clients: Vec<_> = (0..CONNECTIONS)
        .map(|n| {
            let listen = encrypt.listen.clone();
            std::thread::spawn(move || {
                let mut stream = TcpStream::connect(listen).unwrap();
                stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
                let sent = stream_of(n, [0, 5, 12, 13, 1_000_000, 3_000_001][n as usize]);
                stream.write_all(&sent).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
                assert!(read_all(stream) == sent, "connection {n}, {} bytes", sent.len());
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    echo.join().unwrap();
    let (encrypt, decrypt) = (encrypt.end(), decrypt.end());
    let bytes = 5 + 12 + 13 + 1_000_000 + 3_000_001;
    assert_eq!(value(&encrypt, "flows"), CONNECTIONS);
    assert_eq!(value(&encrypt, "payload_bytes_forward"), bytes);
    // Three connections carry more than the 12 clear bytes and therefore a counter block.
    assert_eq!(value(&decrypt, "payload_bytes_forward"), bytes + 3 * 16);
    assert_eq!(value(&encrypt, "nonce_bytes"), 16);
    assert!(encrypt["metrics"]["processing_ns"]["count"].as_u64().unwrap() > 100);
}

#[test]
fn relay_interoperates_with_socat() {
    const TEST: &str = "relay_interoperates_with_socat";
    let _machine = beside_others();
    if !Path::new("/usr/bin/socat").exists() {
        println!("SKIP {TEST}: socat is not installed (make setup)");
        return;
    }
    let far = TcpListener::bind((HOST, 0)).unwrap();
    let relay = Relay::of("tcp", far.local_addr().unwrap(), &[]);
    let mut socat = Command::new("/usr/bin/socat");
    let mut socat = socat
        .args(["-t", "10", "STDIO", &format!("TCP:{}", relay.listen)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (there, back) = (stream_of(5, 5_000_000), stream_of(7, 5_000_000));
    let sending = {
        let (mut input, there) = (socat.stdin.take().unwrap(), there.clone());
        std::thread::spawn(move || input.write_all(&there).unwrap())
    };
    let (mut stream, _) = far.accept().unwrap();
    let answering = {
        let (mut stream, back) = (stream.try_clone().unwrap(), back.clone());
        std::thread::spawn(move || {
            stream.write_all(&back).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        })
    };
    let receiving = {
        let output = socat.stdout.take().unwrap();
        std::thread::spawn(move || read_all(output))
    };
    let mut received = vec![0; there.len()];
    stream.read_exact(&mut received).unwrap();
    assert!(received == there);
    sending.join().unwrap();
    answering.join().unwrap();
    assert!(receiving.join().unwrap() == back);
    socat.kill().unwrap();
    socat.wait().unwrap();
    assert_eq!(value(&relay.end(), "payload_bytes_backward"), 5_000_000);
}

#[test]
fn refused_far_end_closes_connection_with_reason() {
    let _machine = beside_others();
    let far = TcpListener::bind("127.0.0.4:0").unwrap();
    let relay = Relay::of("tcp", far.local_addr().unwrap(), &[]);
    drop(far);
    let mut stream = connected(&relay);
    assert!(matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_)));
    let summary = relay.end();
    assert_eq!((value(&summary, "flows_not_opened"), value(&summary, "flows_refused")), (1, 1));
    let warnings = summary["trust"]["warnings"].to_string();
    assert!(warnings.contains("Connection refused"), "{warnings}");
    assert!(!warnings.contains("memory"), "no resource was short: {warnings}");
}

#[test]
fn connection_over_limit_is_closed_with_reason() {
    let _machine = beside_others();
    let far = TcpListener::bind((HOST, 0)).unwrap();
    let relay = Relay::of("tcp", far.local_addr().unwrap(), &["--flows", "1"]);
    let mut first = connected(&relay);
    first.write_all(b"served").unwrap();
    let (mut there, _) = far.accept().unwrap();
    there.read_exact(&mut [0; 6]).unwrap();
    let mut second = connected(&relay);
    assert!(matches!(second.read(&mut [0; 1]), Ok(0) | Err(_)));
    first.write_all(b"still").unwrap();
    there.read_exact(&mut [0; 5]).unwrap();
    let summary = relay.end();
    assert_eq!((value(&summary, "flows_not_opened"), value(&summary, "flows_no_seat")), (1, 1));
    let warnings = summary["trust"]["warnings"].to_string();
    assert!(warnings.contains("all 1 connections were in use"), "{warnings}");
    assert!(!warnings.contains("memory"), "no resource was short: {warnings}");
}

#[test]
fn only_idle_connection_is_closed() {
    let _machine = beside_others();
    let far = TcpListener::bind((HOST, 0)).unwrap();
    let relay = Relay::of("tcp", far.local_addr().unwrap(), &["--idle", "1500ms"]);
    let mut silent = connected(&relay);
    silent.write_all(b"once").unwrap();
    let (mut silent_there, _) = far.accept().unwrap();
    silent_there.read_exact(&mut [0; 4]).unwrap();
    let mut lively = connected(&relay);
    let (mut lively_there, _) = far.accept().unwrap();
    silent.set_nonblocking(true).unwrap();
    let start = Instant::now();
    loop {
        lively.write_all(b"x").unwrap();
        lively_there.read_exact(&mut [0; 1]).unwrap();
        match silent.read(&mut [0; 1]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            closed => break assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}"),
        }
        assert!(start.elapsed() < TEST_TIMEOUT, "the silent connection is closed");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(
        start.elapsed() > Duration::from_millis(1_000),
        "it is not closed before the idle time"
    );
    assert!(matches!(silent_there.read(&mut [0; 1]), Ok(0) | Err(_)), "both ends are closed");
    let summary = relay.end();
    assert_eq!((value(&summary, "flows"), value(&summary, "flows_expired")), (2, 1), "{summary}");
    assert_eq!(summary["parameters"]["idle_ns"], 1_500_000_000);
}

#[test]
fn busy_relay_stops_on_signal() {
    let _machine = beside_others();
    let far = TcpListener::bind((HOST, 0)).unwrap();
    let mut relay = Relay::of("tcp", far.local_addr().unwrap(), &[]);
    let mut stream = connected(&relay);
    let (echo, _) = far.accept().unwrap();
    let echoing = std::thread::spawn(move || std::io::copy(&mut &echo, &mut &echo));
    // Data keeps flowing, faster than any time-out, until the relay has ended.
    let (moves, moving) = std::sync::mpsc::channel();
    let talking = std::thread::spawn(move || {
        let mut back = [0; 2_000];
        while stream.write_all(&[7; 2_000]).and_then(|()| stream.read_exact(&mut back)).is_ok() {
            let _ = moves.send(());
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    (0..10).for_each(|_| moving.recv_timeout(TEST_TIMEOUT).unwrap());
    signal(&relay.server.child, Signal::Interrupt);
    let start = Instant::now();
    while relay.server.child.try_wait().unwrap().is_none() {
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "the relay stops although data keeps coming"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    talking.join().unwrap();
    let _ = echoing.join().unwrap();
    let summary = read_all(relay.server.child.stdout.take().unwrap());
    let summary = serde_json::from_slice(&summary).unwrap();
    assert!(value(&summary, "relayed_backward") >= 10, "{summary}");
    assert_eq!(value(&summary, "send_failed"), 0, "received data is still sent: {summary}");
}
