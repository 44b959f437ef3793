//! TCP connections through relays.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::fixture::{HOST, PATIENCE, Relay, beside_others, value};

/// Reads a stream to its end.
fn read_all(mut stream: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}

/// A stream that no other looks like.
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
fn connections_through_two_relays_carry_both_ways_what_was_sent_and_end_by_halves() {
    let _machine = beside_others();
    let far = TcpListener::bind((HOST, 0)).unwrap();
    let decrypt = Relay::of("tcp", far.local_addr().unwrap(), &["--mode", "decrypt"]);
    let encrypt = Relay::of("tcp", &decrypt.listen, &["--mode", "encrypt"]);
    const CONNECTIONS: u64 = 6;
    let echo = std::thread::spawn(move || {
        for _ in 0..CONNECTIONS {
            let (mut stream, _) = far.accept().unwrap();
            std::thread::spawn(move || {
                // All that came, once the other half has ended: it can still be answered.
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
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
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
    // Three connections had more than the 12 clear bytes, and so a counter block.
    assert_eq!(value(&decrypt, "payload_bytes_forward"), bytes + 3 * 16);
    assert_eq!(value(&encrypt, "nonce_bytes"), 16);
    assert!(encrypt["metrics"]["processing_ns"]["count"].as_u64().unwrap() > 100);
}

#[test]
fn socat_and_the_relay_pass_each_others_streams_on() {
    const TEST: &str = "socat_and_the_relay_pass_each_others_streams_on";
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
    let mut came = vec![0; there.len()];
    stream.read_exact(&mut came).unwrap();
    assert!(came == there);
    sending.join().unwrap();
    answering.join().unwrap();
    assert!(receiving.join().unwrap() == back);
    socat.kill().unwrap();
    socat.wait().unwrap();
    assert_eq!(value(&relay.end(), "payload_bytes_backward"), 5_000_000);
}

#[test]
fn a_connection_to_a_far_end_that_is_not_there_is_ended_and_counted() {
    let _machine = beside_others();
    let far = TcpListener::bind("127.0.0.4:0").unwrap();
    let relay = Relay::of("tcp", far.local_addr().unwrap(), &[]);
    drop(far);
    let mut stream = TcpStream::connect(&relay.listen).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_)));
    assert_eq!(value(&relay.end(), "flows_not_opened"), 1);
}
