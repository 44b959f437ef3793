//! `dwell reflect` from outside: what it does with streams, limits and marks.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

mod support;
use support::{Server, dwell, json, said};

fn address(url: &str) -> SocketAddr {
    url.split_once("://").unwrap().1.parse().unwrap()
}

#[test]
fn a_connection_beyond_the_limit_is_slowed_and_loses_nothing() {
    const REQUESTS: u32 = 60;
    let (_server, urls) = Server::reflect(&["text+tcp"], "127.0.0.1", &["--limit", "100pps"]);
    let mut stream = TcpStream::connect(address(&urls[0])).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let start = Instant::now();
    stream.write_all(&b"request".repeat(REQUESTS as usize)).unwrap();
    let mut replies = vec![0; REQUESTS as usize * b"acknowledge".len()];
    stream.read_exact(&mut replies).unwrap();
    assert!(replies.chunks(11).all(|reply| reply == b"acknowledge"));
    // A tenth of a second's worth may come at once, and one more is answered before it is judged.
    let at_least = Duration::from_millis(10) * (REQUESTS - 10 - 1);
    assert!(start.elapsed() >= at_least, "{:?}", start.elapsed());
}

#[test]
fn a_stream_that_stalls_gives_every_message_back_and_none_to_another_probe() {
    const LARGE: &str = "60000";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    let echo = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = vec![0; 60_000];
        // Two megabytes flow; then nothing is read until more was sent than the socket buffers of
        // both sides hold.
        let mut echoed = 0;
        while let Ok(len @ 1..) = stream.read(&mut buffer) {
            if stream.write_all(&buffer[..len]).is_err() {
                break;
            }
            let before = echoed;
            echoed += len;
            if before < 2_000_000 && echoed >= 2_000_000 {
                thread::sleep(Duration::from_millis(1_500));
            }
        }
    });
    let output = dwell(&[
        "ping",
        &url,
        "-s",
        LARGE,
        "-c",
        "2000",
        "-i",
        "1ms",
        "-W",
        "200ms",
        "--warm-up",
        "0",
        "--json",
    ]);
    echo.join().unwrap();
    let result = json(&output);
    let packets = |name: &str| result["packets"][name].as_u64().unwrap();
    assert_eq!(packets("sent") + packets("send_failed"), 2000, "{}", said(&output));
    assert!(packets("send_failed") > 0, "the stall filled the buffers: {}", result["packets"]);
    assert_eq!(packets("received") + packets("late"), packets("sent"), "{}", result["packets"]);
    assert_eq!((packets("duplicate"), packets("reordered")), (0, 0));
    assert!(packets("late") > 0, "what was under way when it stalled came after its time-out");
}

#[test]
fn a_reply_is_marked_as_the_sender_asked_and_says_how_the_request_was_marked() {
    const TEST: &str = "a_reply_is_marked_as_the_sender_asked_and_says_how_the_request_was_marked";
    let python = "/usr/bin/python3";
    if !Path::new(python).exists() {
        println!("SKIP {TEST}: python3 is not installed (make setup)");
        return;
    }
    // RFC 8972 section 4.4: type 4, length 4; DSCP1 is asked for, DSCP2 is what arrived.
    let script = "import socket, sys
family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET
level, tos, receive = (41, 67, 66) if family == socket.AF_INET6 else (0, 1, 13)
s = socket.socket(family, socket.SOCK_DGRAM)
s.settimeout(5)
s.setsockopt(level, receive, 1)
s.setsockopt(level, tos, 46 << 2)
probe = bytes(44) + bytes([0x80, 4, 0, 4, 10 << 2, 0, 0, 0])
s.sendto(probe, (sys.argv[1], int(sys.argv[2])))
reply, beside, _, _ = s.recvmsg(200, 200)
mark = [data[0] >> 2 for (l, kind, data) in beside if (l, kind) in ((0, 1), (41, 67))]
bits = int.from_bytes(reply[48:50], 'big')
print(len(reply), mark, reply[44] & 0xe0, bits >> 10, bits >> 4 & 0x3f)";
    for host in ["127.0.0.1", "[::1]"] {
        let (_server, urls) = Server::reflect(&["stamp"], host, &[]);
        let to = address(&urls[0]);
        let output = Command::new(python)
            .args(["-c", script, &to.ip().to_string(), &to.port().to_string()])
            .output()
            .unwrap();
        let found = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        assert_eq!(found, "52 [10] 0 10 46", "{host} {}", said(&output));
    }
}
