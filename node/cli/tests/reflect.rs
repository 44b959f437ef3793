//! Runs `dwell reflect` as a program: streams, limits, replays, drop counters and marks.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dwell_io::port::{Port, SocketOptions, Wait};
use dwell_io::process::Signal;
use dwell_io::tcp::TcpPort;
use dwell_units::Nanos;
use dwell_wire::hmac::Key;
use dwell_wire::stamp::{self, Mode, Reply, Request};

mod support;
use support::{DWELL, Server, dwell, free_port, json, said, signal};

/// An address without outgoing connections, so that none takes a port found free.
const HOST: &str = "127.0.0.2";

fn address(url: &str) -> SocketAddr {
    url.split_once("://").unwrap().1.parse().unwrap()
}

#[test]
fn connection_above_the_limit_is_slowed_without_loss() {
    const REQUESTS: u32 = 60;
    let (_server, urls) = Server::reflect(&["text+tcp"], "127.0.0.1", &["--limit", "100pps"]);
    let mut stream = TcpStream::connect(address(&urls[0])).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let start = Instant::now();
    stream.write_all(&b"request".repeat(REQUESTS as usize)).unwrap();
    let mut replies = vec![0; REQUESTS as usize * b"acknowledge".len()];
    stream.read_exact(&mut replies).unwrap();
    assert!(replies.chunks(11).all(|reply| reply == b"acknowledge"));
    // A burst of 0.1 s is allowed, and one more reply precedes the limit.
    let at_least = Duration::from_millis(10) * (REQUESTS - 10 - 1);
    assert!(start.elapsed() >= at_least, "{:?}", start.elapsed());
}

#[test]
fn stalled_stream_returns_every_message_to_its_probe() {
    const LARGE: &str = "60000";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    let echo = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = vec![0; 60_000];
        // After 2 MB, nothing is read until more was sent than the socket buffers of both sides
        // hold.
        let mut echoed = 0;
        while let Ok(len @ 1..) = stream.read(&mut buffer) {
            if stream.write_all(&buffer[..len]).is_err() {
                break;
            }
            let before = echoed;
            echoed += len;
            if before < 2_000_000 && echoed >= 2_000_000 {
                thread::sleep(Duration::from_millis(3_000));
            }
        }
    });
    let probes = ["-s", LARGE, "-c", "2000", "-i", "2ms", "-W", "1500ms", "--warm-up", "0"];
    let output = dwell(&[&["ping", &url, "--json"], &probes[..]].concat());
    echo.join().unwrap();
    let result = json(&output);
    let packets = |name: &str| result["packets"][name].as_u64().unwrap();
    assert_eq!(packets("sent") + packets("send_failed"), 2000, "{}", said(&output));
    assert!(packets("send_failed") > 0, "the stall filled the buffers: {}", result["packets"]);
    assert_eq!(packets("received") + packets("late"), packets("sent"), "{}", result["packets"]);
    assert_eq!((packets("duplicate"), packets("reordered")), (0, 0));
    assert!(packets("late") > 0, "replies in flight at the stall are late");
    // Sending does not wait for the peer: the worst departure depends on this machine, not on the
    // stall of 3 s.
    let worst = result["metrics"]["schedule_error_ns"]["max"].as_i64().unwrap();
    assert!(worst < 2_000_000_000, "{worst} ns late");
}

#[test]
fn interrupt_ends_a_ping_whose_peer_never_reads() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    let mut command = Command::new(DWELL);
    command.args(["ping", &url, "-s", "60000", "-i", "1ms", "-W", "20s", "--warm-up", "0"]);
    let mut ping = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let (_silent, _) = listener.accept().unwrap();
    let mut said = BufReader::new(ping.stderr.take().unwrap()).lines();
    let full = said.find(|line| line.as_ref().unwrap().contains("buffer is full"));
    assert!(full.is_some(), "the peer's buffers are full");
    let start = Instant::now();
    signal(&ping, Signal::Interrupt);
    assert_eq!(ping.wait().unwrap().code(), Some(130));
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

/// An authenticated request with a timestamp of `millis` ms after a fixed time.
fn signed(key: &Key, seq: u32, ssid: u16, millis: u32) -> Vec<u8> {
    let mut packet = vec![0; Mode::Authenticated.base()];
    // NTP format: seconds, and the fraction in units of 2^-32 s.
    let timestamp = (3_900_000_000 << 32) + (u64::from(millis) << 32) / 1_000;
    Request { seq, timestamp, error: 0x8001, ssid }.emit(&mut packet, Mode::Authenticated);
    stamp::sign(key, &mut packet);
    packet
}

#[test]
fn replayed_stamp_requests_are_refused_from_any_port() {
    const CAPTURED: u32 = 1_000;
    let directory = tempfile::tempdir().unwrap();
    let key_file = directory.path().join("key");
    fs::write(&key_file, "30313233343536373839616263646566").unwrap();
    fs::set_permissions(&key_file, fs::Permissions::from_mode(0o600)).unwrap();
    let key = Key::new(b"0123456789abcdef");
    let key_file = key_file.to_str().unwrap();
    let how = ["--key-file", key_file, "--replay-window", "64", "--json"];
    let (server, urls) = Server::reflect(&["stamp"], HOST, &how);
    let socket = || {
        let socket = UdpSocket::bind((HOST, 0)).unwrap();
        socket.connect(address(&urls[0])).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket
    };
    let (sender, other_port, other_session) = (socket(), socket(), socket());
    let answered = |socket: &UdpSocket, packet: &[u8]| {
        let mut reply = [0; 200];
        socket.send(packet).unwrap();
        let len = socket.recv(&mut reply).unwrap();
        assert!(stamp::verify(&key, &reply[..len]));
        Reply::parse(&reply[..len], Mode::Authenticated).unwrap().sender_seq
    };
    let captured: Vec<_> = (0..CAPTURED).map(|seq| signed(&key, seq, 7, seq)).collect();
    // Reordered: each block of 50 arrives backwards.
    for block in captured.chunks(50) {
        for (n, packet) in block.iter().enumerate().rev() {
            assert_eq!(answered(&sender, packet) as usize % 50, n);
        }
    }
    let mut others = 0..;
    for socket in [&sender, &other_port] {
        // In small groups, so that no receive buffer overflows.
        for replays in captured.chunks(100) {
            replays.iter().for_each(|packet| assert_eq!(socket.send(packet).unwrap(), 112));
            // Another session is answered next, so no replay was.
            let seq = others.next().unwrap();
            assert_eq!(answered(&other_session, &signed(&key, seq, 8, seq)), seq);
        }
        socket.set_nonblocking(true).unwrap();
        assert!(socket.recv(&mut [0; 200]).is_err(), "a replay was answered");
        socket.set_nonblocking(false).unwrap();
    }
    // The sender continues, also after a restart with the same SSID.
    assert_eq!(answered(&sender, &signed(&key, CAPTURED, 7, CAPTURED)), CAPTURED);
    assert_eq!(answered(&sender, &signed(&key, 0, 7, CAPTURED + 1)), 0);
    let values = json(&server.stop())["values"].clone();
    assert_eq!(values["replayed"], 2 * CAPTURED, "{values}");
    assert_eq!(values["replies"], CAPTURED + 20 + 2, "{values}");
    assert_eq!(values["unauthentic"], 0, "{values}");
}

#[test]
fn replay_window_without_a_key_or_out_of_range_is_refused() {
    let url = format!("stamp://{HOST}:{}", free_port(HOST));
    let refused = |window: &str, key: Option<&str>, says: &str| {
        let mut command = Command::new(DWELL);
        command.args(["reflect", &url, "--replay-window", window]).env_remove("DWELL_KEY");
        let output = command.envs(key.map(|key| ("DWELL_KEY", key))).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(says), "{}", said(&output));
    };
    refused("64", None, "--replay-window needs a key");
    refused("0", Some("30313233343536373839616263646566"), "1 to 4096");
    refused("4097", Some("30313233343536373839616263646566"), "1 to 4096");
}

/// Stops the reflector; returns one of its counters.
fn counted(server: Server, name: &str) -> u64 {
    json(&server.stop())["values"][name].as_u64().unwrap()
}

#[test]
fn late_reading_peer_gets_all_replies() {
    for how in [&["--json", "--busy-poll"][..], &["--json"]] {
        let (server, urls) = Server::reflect(&["tcp"], HOST, how);
        let mut stream = TcpStream::connect(address(&urls[0])).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        // Written without reading, for more than a second, until no buffer has room.
        let asking = {
            let mut stream = stream.try_clone().unwrap();
            stream.set_write_timeout(Some(Duration::from_millis(1_500))).unwrap();
            thread::spawn(move || {
                let piece: Vec<u8> = (0..=250).cycle().take(251 * 100).collect();
                let mut written = 0;
                loop {
                    match stream.write(&piece[written % 251..]) {
                        Ok(len) => written += len,
                        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                        Err(error) => panic!("{how:?}: {error} after {written} bytes"),
                    }
                }
                written
            })
        };
        let written = asking.join().unwrap();
        let mut reply = vec![0; written];
        stream.read_exact(&mut reply).unwrap();
        let in_order = reply.iter().enumerate().all(|(n, byte)| usize::from(*byte) == n % 251);
        assert!(in_order, "{how:?}: every byte came back in its place");
        drop(stream);
        assert_eq!(counted(server, "send_failed"), 0, "{how:?}");
    }
}

#[test]
fn connection_that_ends_with_unread_replies_is_counted() {
    let (server, urls) = Server::reflect(&["tcp"], HOST, &["--json"]);
    let mut stream = TcpStream::connect(address(&urls[0])).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    while stream.write(&[1; 60_000]).is_ok() {}
    drop(stream);
    thread::sleep(Duration::from_millis(500));
    assert_eq!(counted(server, "send_failed"), 1);
}

#[test]
fn failed_accept_is_counted_and_the_reflector_continues() {
    for how in ["", "--busy-poll"] {
        let url = format!("tcp://{HOST}:{}", free_port(HOST));
        let mut command = Command::new("sh");
        let script = format!("ulimit -n 16 && exec {DWELL} reflect {url} --json {how}");
        command.args(["-c", &script]);
        let server = Server::ready(command, "listening on", 1);
        // More than the free descriptors; the kernel accepts them all, the program cannot.
        let crowd: Vec<_> = (0..30).map(|_| TcpStream::connect(address(&url)).unwrap()).collect();
        thread::sleep(Duration::from_millis(500));
        drop(crowd);
        let output = dwell(&["ping", &url, "-c", "5", "-i", "0.01", "-W", "3", "--json"]);
        assert_eq!(json(&output)["packets"]["received"], 5, "{how} {}", said(&output));
        assert!(counted(server, "not_accepted") > 0, "{how}");
    }
}

#[test]
fn excess_connection_replaces_only_an_idle_one() {
    let (server, urls) = Server::reflect(&["tcp"], HOST, &["--json", "--busy-poll"]);
    let to = address(&urls[0]);
    let connect = || {
        let stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream
    };
    let asks = |mut stream: &TcpStream| stream.write_all(b"ping").is_ok();
    let is_answered = |mut stream: &TcpStream| stream.read_exact(&mut [0; 4]).is_ok();
    let is_served = |stream: &TcpStream| asks(stream) && is_answered(stream);
    let crowd: Vec<_> = (0..256).map(|_| connect()).collect();
    // All at once: none is idle for a second before the last one is served.
    assert!(crowd.iter().all(asks) && crowd.iter().all(is_answered));
    assert!(!is_served(&connect()), "all slots are taken by active connections");
    thread::sleep(Duration::from_millis(1_200));
    assert!(is_served(&connect()), "an idle connection is closed for a new one");
    drop(crowd);
    assert_eq!(counted(server, "limited"), 1);
}

#[test]
fn queued_requests_are_answered_in_order_and_counted() {
    // The socket below holds all replies.
    const REQUESTS: u32 = 150;
    for how in [&["--json"][..], &["--json", "--busy-poll"]] {
        for scheme in ["udp", "stamp"] {
            let (server, urls) = Server::reflect(&[scheme], HOST, how);
            let socket = UdpSocket::bind((HOST, 0)).unwrap();
            socket.connect(address(&urls[0])).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            signal(&server.child, Signal::Stop);
            for seq in 0..REQUESTS {
                let mut packet = [0; 44];
                Request { seq, timestamp: 1 << 40, error: 0x8001, ssid: 7 }
                    .emit(&mut packet, Mode::Unauthenticated);
                socket.send(&packet).unwrap();
            }
            signal(&server.child, Signal::Continue);
            let mut last = (0, 0);
            for seq in 0..REQUESTS {
                let mut reply = [0; 100];
                assert_eq!(socket.recv(&mut reply).unwrap(), 44, "{scheme} {how:?} {seq}");
                assert_eq!(reply[..4], seq.to_be_bytes(), "{scheme} {how:?}");
                if scheme == "stamp" {
                    let reply = Reply::parse(&reply[..44], Mode::Unauthenticated).unwrap();
                    assert_eq!(reply.sender_seq, seq);
                    assert!(reply.t2 < reply.t3, "{seq}: {reply:?}");
                    assert!(last.0 <= reply.t2 && last.1 <= reply.t3, "{seq}: {reply:?}");
                    last = (reply.t2, reply.t3);
                }
            }
            let summary = json(&server.stop());
            let value = |name: &str| summary["values"][name].as_u64().unwrap();
            let counted = (value("requests"), value("replies"), value("socket_drops"));
            assert_eq!(counted, (REQUESTS.into(), REQUESTS.into(), 0), "{scheme} {how:?}");
        }
    }
}

/// Connects from the given source address.
fn connect_from(source: &str, to: SocketAddr) -> TcpPort {
    let options =
        SocketOptions { source: Some(source.parse().unwrap()), ..SocketOptions::default() };
    TcpPort::connect(to, Nanos::from_secs(5), &options).unwrap()
}

/// Whether a reply comes back.
fn is_answered(port: &mut TcpPort, message: &[u8]) -> bool {
    let until = Instant::now() + Duration::from_secs(5);
    if port.send(message).is_err() {
        return false;
    }
    loop {
        match port.receive(&mut [0; 64], Wait::AtMost(Nanos::from_millis(100))) {
            Ok(Some(_)) => return true,
            Ok(None) if Instant::now() < until => {}
            _ => return false,
        }
    }
}

#[test]
fn tcp_newcomer_is_served_beside_an_active_crowd() {
    let is_served = |port: &mut TcpPort| is_answered(port, b"x");
    for how in [&["--json"][..], &["--json", "--busy-poll"]] {
        let (server, urls) = Server::reflect(&["tcp"], HOST, how);
        let to = address(&urls[0]);
        let mut crowd: Vec<_> = (0..256).map(|_| connect_from("127.0.0.5", to)).collect();
        assert!(crowd.iter_mut().all(is_served), "{how:?}: the crowd takes all slots");
        let stop = Arc::new(AtomicBool::new(false));
        let active = thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                while !stop.load(Ordering::Relaxed) {
                    let sent = crowd.iter_mut().filter_map(|port| port.send(b"x").ok()).count();
                    assert!(sent >= 250, "{how:?}: one newcomer costs one slot");
                    thread::sleep(Duration::from_millis(300));
                }
            }
        });
        let mut good = connect_from("127.0.0.6", to);
        assert!(is_served(&mut good), "{how:?}: another address is served");
        assert!(!is_served(&mut connect_from("127.0.0.5", to)), "{how:?}: the crowd is not");
        assert!(is_served(&mut good), "{how:?}: it keeps its slot");
        stop.store(true, Ordering::Relaxed);
        active.join().unwrap();
        assert_eq!(counted(server, "limited"), 1, "{how:?}");
    }
}

#[test]
fn tcp_connection_costs_the_reflector_at_most_4_kib() {
    const EACH: u64 = 4;
    let more = ["--json", "--limit", "100kpps"];
    let (server, urls) = Server::reflect(&["tcp", "text+tcp"], HOST, &more);
    let resident = || {
        let path = format!("/proc/{}/status", server.child.id());
        let status = fs::read_to_string(path).unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    // Their ports stay in TIME_WAIT for a minute, at an address that no other test listens on.
    let serve = |url: &str| {
        let mut port = connect_from("127.0.0.7", address(url));
        assert!(is_answered(&mut port, b"request"));
        port
    };
    for url in &urls {
        drop(serve(url));
        let first = resident();
        let open: Vec<_> = (0..256).map(|_| serve(url)).collect();
        let crowded = resident().saturating_sub(first);
        assert!(crowded < 256 * EACH, "{url}: {crowded} KiB for 256 connections");
        drop(open);
        (0..3_000).for_each(|_| drop(serve(url)));
        let left = resident().saturating_sub(first);
        assert!(left < 256 * EACH, "{url}: {left} KiB after 3,000 connections");
    }
}

/// The kernel's drop counter of the UDP socket on this IPv4 address (proc(5), /proc/net/udp).
fn socket_drops(of: SocketAddr) -> u64 {
    let SocketAddr::V4(of) = of else { panic!("IPv4 only") };
    let name = format!("{:08X}:{:04X}", of.ip().to_bits().swap_bytes(), of.port());
    let table = fs::read_to_string("/proc/net/udp").unwrap();
    let line = table.lines().find(|line| line.split_whitespace().nth(1) == Some(&name)).unwrap();
    line.split_whitespace().last().unwrap().parse().unwrap()
}

#[test]
fn drops_of_a_full_reflector_socket_are_reported_by_both() {
    let (server, urls) = Server::reflect(&["stamp"], HOST, &["--json"]);
    let to = address(&urls[0]);
    let mut command = Command::new(DWELL);
    command.args(["ping", &urls[0], "-i", "10ms", "-W", "300ms", "-v", "--json"]);
    let mut ping = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(ping.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(said.any(|line| line.contains(" time=")), "the reflector answers");
    signal(&server.child, Signal::Stop);
    let flooder = UdpSocket::bind("127.0.0.1:0").unwrap();
    let give_up = Instant::now() + Duration::from_secs(30);
    while socket_drops(to) < 1_000 {
        assert!(Instant::now() < give_up, "the socket's buffer is full");
        (0..1_000).for_each(|_| drop(flooder.send_to(&[1], to)));
    }
    assert!(said.any(|line| line.contains("no reply in time")), "probes are dropped");
    signal(&server.child, Signal::Continue);
    let replies = said.by_ref().filter(|line| line.contains(" time=")).take(5);
    assert_eq!(replies.count(), 5, "the reflector answers again");
    signal(&ping, Signal::Interrupt);
    said.for_each(drop);
    let result = json(&ping.wait_with_output().unwrap());
    let drops = socket_drops(to);
    assert!(result["packets"]["lost"].as_u64() > Some(0), "{}", result["packets"]);
    assert_eq!(result["values"]["far_socket_drops"], drops);
    let warnings = result["trust"]["warnings"].as_array().unwrap();
    let text = format!("{drops} packets of all senders were dropped by the reflector's socket");
    let warned =
        warnings.iter().any(|warning| warning["text"].as_str().unwrap().starts_with(&text));
    assert!(warned, "{warnings:?}");
    assert_eq!(counted(server, "socket_drops"), drops);
}

#[test]
fn socket_drops_are_null_where_unknown() {
    let (server, urls) = Server::reflect(&["stamp", "udp", "tcp"], HOST, &[]);
    let far = |url: &str, more: &[&str]| {
        let output = dwell(&[&["ping", url, "-c", "3", "-i", "10ms", "--json"], more].concat());
        json(&output)["values"]["far_socket_drops"].clone()
    };
    assert_eq!(far(&urls[0], &[]), 0);
    assert!(far(&urls[0], &["-s", "64"]).is_null(), "no room for the TLV");
    assert!(far(&urls[1], &[]).is_null(), "plain echo has no TLVs");
    let table = String::from_utf8(server.stop().stdout).unwrap();
    let last = |line: &str| line.split_whitespace().last().unwrap().to_owned();
    let column: Vec<_> = table.lines().map(last).collect();
    assert_eq!(column, ["socket_drops", "0", "0", "-"]);
}

#[test]
fn broadcast_request_is_refused_before_the_rate_limit() {
    const LIMIT: &str = "1pps";
    let port = free_port("0.0.0.0");
    let mut command = Command::new(DWELL);
    let url = format!("stamp://0.0.0.0:{port}");
    command.args(["reflect", &url, "--limit", LIMIT, "--allow-any-port", "--json"]);
    let server = Server::ready(command, "listening on", 1);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_broadcast(true).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let request = [&[0; 14][..], &[1, 2], &[0; 28]].concat();
    for _ in 0..3 {
        socket.send_to(&request, ("127.255.255.255", port)).unwrap();
    }
    socket.send_to(&request, ("127.0.0.1", port)).unwrap();
    // Replies are in order: the first reply is to the last request, number 0 of its session.
    let mut reply = [0xff; 100];
    let (len, _) = socket.recv_from(&mut reply).unwrap();
    assert_eq!((len, &reply[..4]), (44, &[0, 0, 0, 0][..]));
    let values = json(&server.stop())["values"].clone();
    let count = |name: &str| values[name].as_u64().unwrap();
    assert_eq!((count("looping"), count("limited"), count("send_failed")), (3, 0, 0), "{values}");
}

#[test]
fn broadcast_listen_address_is_refused() {
    let targets =
        ["udp://127.255.255.255:7100", "stamp://224.0.0.1:7100", "tcp://127.255.255.255:7100"];
    for url in targets {
        let output = dwell(&["reflect", url]);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{url} {}", said(&output));
        assert!(said(&output).contains("broadcast or multicast"), "{url} {}", said(&output));
    }
}

#[test]
fn reply_has_requested_dscp_and_reports_received_dscp() {
    const TEST: &str = "reply_has_requested_dscp_and_reports_received_dscp";
    let python = "/usr/bin/python3";
    if !Path::new(python).exists() {
        println!("SKIP {TEST}: python3 is not installed (make setup)");
        return;
    }
    // RFC 8972 section 4.4: type 4, length 4; DSCP1 is requested, DSCP2 is what arrived.
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

#[test]
fn reflect_survives_a_closed_stderr() {
    let port = free_port(HOST);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let url = format!("udp://{HOST}:{port}");
    let child = Command::new(DWELL)
        .args(["reflect", &url])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(writer)
        .spawn()
        .unwrap();
    let server = Server { child };
    let ping = ["ping", "-c", "1", "--warm-up", "0", "-q", &url];
    let give_up = Instant::now() + Duration::from_secs(10);
    while !dwell(&ping).status.success() {
        assert!(Instant::now() < give_up, "the reflector answers");
    }
    let output = server.stop();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn default_limit_is_printed_at_start() {
    for (address, limit) in
        [("127.0.0.1", "off"), ("0.0.0.0", "100kpps for local sources, 10kpps for others")]
    {
        let url = format!("udp://{address}:{}", free_port(HOST));
        let mut child = Command::new(DWELL)
            .args(["reflect", &url])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let _server = Server { child };
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        assert!(line.contains(&format!("{url} (limit {limit})")), "{line}");
    }
}

#[test]
fn request_for_times_of_a_device_is_acknowledged() {
    let (_server, urls) = Server::reflect(&["text+udp", "text+tcp"], "127.0.0.1", &[]);
    for url in urls {
        let output = dwell(&["ping", &url, "-s", "41", "-c", "3", "-i", "0", "--json"]);
        let summary = json(&output);
        assert_eq!(summary["packets"]["received"], 3, "{url}: {summary}");
        assert!(summary["values"].get("clock_far_offset_ns").is_none(), "{summary}");
    }
}
