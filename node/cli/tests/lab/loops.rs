//! Reflection loops, and floods from spoofed sources. A raw socket sends the packets with which a
//! reflector or echo server "asks" another one.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::fixture::{DWELL, Running, TestLab, as_root, has, kill, said, skip, until};

const PYTHON: &str = "/usr/bin/python3";

/// Sends its arguments, "address source-port port payload(hex)", as UDP datagrams. The source port
/// may be in use.
const INJECT: &str = "
import socket, struct, sys
for line in sys.argv[1:]:
    host, source, port, payload = line.split()
    payload = bytes.fromhex(payload)
    v6 = ':' in host
    s = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_RAW, 17)
    if v6:
        s.setsockopt(41, 7, 6)  # IPV6_CHECKSUM: the kernel fills in the checksum at byte 6
    s.sendto(struct.pack('!HHHH', int(source), int(port), 8 + len(payload), 0) + payload, (host, 0))
";

/// Echoes datagrams with the TTL of its socket.
const ECHO: &str = "
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], int(sys.argv[2])))
while True:
    message, peer = s.recvfrom(65535)
    s.sendto(message, peer)
";

/// Sends 9,000 packets/s from random addresses and ports of 198.19.0.0/24, without UDP checksums.
const FLOOD: &str = "
import random, socket, struct, sys, time
random.seed(7)
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
target, port, seconds = socket.inet_aton(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
payload = bytes(44)
start, sent = time.monotonic(), 0
while (now := time.monotonic() - start) < seconds:
    while sent < now * 9000:
        source = bytes([198, 19, 0, random.randrange(3, 255)])
        header = struct.pack('!BBHHHBBH', 0x45, 0, 28 + len(payload), 0, 0, 64, 17, 0) + source + target
        udp = struct.pack('!HHHH', random.randrange(1024, 65536), port, 8 + len(payload), 0)
        s.sendto(header + udp + payload, (sys.argv[1], 0))
        sent += 1
    time.sleep(0.002)
print(sent)
";

/// A program in a node, killed when its test ends.
struct Program(Child);

impl Program {
    fn start(lab: &TestLab, node: &str, command: &[&str]) -> Self {
        let arguments = [&["lab", "exec", "--lab", &lab.name, node, "--"], command].concat();
        let mut program = Command::new(DWELL);
        program.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        Self(program.spawn().unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        kill(&mut self.0);
    }
}

fn can_run() -> bool {
    let may = as_root();
    if may && !Path::new(PYTHON).exists() {
        skip("needs python3");
        return false;
    }
    may
}

/// Starts `dwell reflect` with all UDP protocols on consecutive ports.
fn reflector(lab: &TestLab, node: &str, first_port: u16, more: &[&str]) -> Running {
    let schemes = ["udp", "stamp", "roundtrip", "text+udp"];
    let ports = (first_port..).zip(schemes);
    let urls: Vec<String> = ports
        .flat_map(|(port, scheme)| {
            ["0.0.0.0", "[::]"].map(|any| format!("{scheme}://{any}:{port}"))
        })
        .collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    Running::start(lab, node, "text+udp://[::]", &[&["reflect", "--json"], more, &urls].concat())
}

/// One payload per kind of request.
fn payloads() -> Vec<String> {
    let text = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let message = |word: &[u8]| text(&[&[7; 20], word].concat());
    vec![
        text(&[0xa5; 100]),
        text(&[0; 44]),
        text(&[0; 14]),
        text(&[0xff; 38]),
        text(&[0xff; 1_400]),
        message(b"REQ\0"),
        message(b"ACK\0"),
        text(b"request"),
        text(b"acknowledge"),
    ]
}

fn inject(lab: &TestLab, node: &str, lines: &[String]) {
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let output = lab.exec(node, &[&[PYTHON, "-c", INJECT], &lines[..]].concat());
    assert!(output.status.success(), "{}", said(&output));
}

/// Number of datagrams that a node has received, in both families.
fn datagrams(lab: &TestLab, node: &str) -> u64 {
    let output = lab.exec(node, &["cat", "/proc/net/snmp", "/proc/net/snmp6"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let v4 = text.lines().filter(|line| line.starts_with("Udp:")).nth(1);
    let v4 = v4.and_then(|line| line.split_whitespace().nth(1));
    let v6 = text.lines().find(|line| line.starts_with("Udp6InDatagrams"));
    let v6 = v6.and_then(|line| line.split_whitespace().nth(1));
    [v4, v6].iter().flatten().map(|count| count.parse::<u64>().unwrap()).sum()
}

/// Waits until a node receives no more datagrams; false if it still does after 10 s.
fn falls_silent(lab: &TestLab, node: &str) -> bool {
    let since = Instant::now();
    let mut before = datagrams(lab, node);
    while since.elapsed() < Duration::from_secs(10) {
        thread::sleep(Duration::from_millis(200));
        let now = datagrams(lab, node);
        if now == before {
            return true;
        }
        before = now;
    }
    false
}

fn value(result: &Value, name: &str) -> u64 {
    result["values"][name].as_u64().unwrap_or_else(|| panic!("{name}: {result}"))
}

#[test]
fn packet_between_any_two_reflectors_ends_within_64() {
    if !can_run() {
        return;
    }
    let lab = TestLab::up("pairs", &["line:2"]);
    for more in [&[][..], &["--allow-any-port", "--stateless"]] {
        let near = reflector(&lab, "n1", 7_001, more);
        let far = reflector(&lab, "n2", 8_001, more);
        let mut lines = Vec::new();
        for to in ["198.19.0.1", "fd64:7765:6c6c:ffff::1"] {
            for (source, port) in (8_001..8_005).flat_map(|s| (7_001..7_005).map(move |p| (s, p))) {
                lines.extend(payloads().iter().map(|load| format!("{to} {source} {port} {load}")));
            }
        }
        inject(&lab, "n2", &lines);
        let ends = falls_silent(&lab, "n1");
        let results = [near.end(), far.end()];
        let replies: u64 = results.iter().map(|result| value(result, "replies")).sum();
        let packets = lines.len() as u64;
        assert!(
            ends && replies <= 64 * packets,
            "{packets} packets, {replies} replies: {results:?}"
        );
        assert!(replies > packets, "requests are answered: {results:?}");
    }
}

#[test]
fn echo_server_with_fresh_ttl_is_silenced_and_others_not() {
    if !can_run() || !has("socat") {
        return;
    }
    const ECHO_PORT: &str = "9001";
    const SOCAT_PORT: &str = "9002";
    let lab = TestLab::up("echoes", &["line:2"]);
    let listen = format!("UDP4-LISTEN:{SOCAT_PORT},bind=198.19.0.2,fork");
    let _python = Program::start(&lab, "n2", &[PYTHON, "-c", ECHO, "198.19.0.2", ECHO_PORT]);
    let _socat = Program::start(&lab, "n2", &["socat", "-T", "60", &listen, "PIPE"]);
    until("both echo servers listen", || {
        let sockets = lab.exec("n2", &["cat", "/proc/net/udp"]);
        let sockets = String::from_utf8_lossy(&sockets.stdout).into_owned();
        [":2329 ", ":232A "].iter().all(|port| sockets.contains(port))
    });
    for echo in [ECHO_PORT, SOCAT_PORT] {
        let near = reflector(&lab, "n1", 7_001, &[]);
        // The reflector "asks" the echo server.
        let asks = |port: u16| {
            let payloads = payloads();
            payloads.into_iter().map(move |load| format!("198.19.0.2 {port} {echo} {load}"))
        };
        let lines: Vec<String> = (7_001..7_005).flat_map(asks).collect();
        inject(&lab, "n1", &lines);
        let ends = falls_silent(&lab, "n1");
        // Another source is still answered.
        let ping = ["ping", "udp://198.19.0.1:7001", "-c", "50", "-i", "2ms", "-W", "5s", "--json"];
        let output = lab.exec("n2", &[&[DWELL], &ping[..]].concat());
        let result = near.end();
        assert!(ends, "{echo}: {result}");
        let ping: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(ping["packets"]["received"], 50, "{echo}: {ping}");
        assert!(value(&result, "silenced") > 0, "{echo}: {result}");
        // socat loses packets that arrive while it forks, possibly the STAMP replies.
        let is_lossless = echo == ECHO_PORT;
        assert!(!is_lossless || value(&result, "looping") > 0, "STAMP replies: {result}");
    }
}

#[test]
fn probers_lose_nothing_to_spoofed_sources() {
    if !can_run() {
        return;
    }
    const LIMIT: &str = "1pps";
    let lab = TestLab::up("spoofed", &["line:2"]);
    // Replies to spoofed sources are routed like others and end in n1.
    for (node, route) in [
        ("n2", "ip route add 198.19.0.0/24 via 198.18.0.1"),
        ("n1", "ip route add blackhole 198.19.0.0/24"),
    ] {
        let output = lab.exec(node, &["sh", "-c", route]);
        assert!(output.status.success(), "{route}: {}", said(&output));
    }
    // Real-time, so that other programs do not fill its socket buffer.
    let reflect = ["reflect", "stamp://198.19.0.2:7001", "--limit", LIMIT, "--json"];
    let reflect = [&reflect[..], &["--scheduling", "fifo"]].concat();
    let far = Running::start(&lab, "n2", "listening on", &reflect);
    let ping = |count: &str| {
        let ping = ["ping", "stamp://198.19.0.2:7001", "-c", count, "-i", "1.1s", "-W", "2s"];
        let output = lab.exec("n1", &[&[DWELL], &ping[..], &["--warm-up", "0", "--json"]].concat());
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let (early, late, sent) = thread::scope(|scope| {
        let early = scope.spawn(|| ping("9"));
        until("the first probe", || datagrams(&lab, "n2") > 0);
        let flood =
            scope.spawn(|| lab.exec("n1", &[PYTHON, "-c", FLOOD, "198.19.0.2", "7001", "10"]));
        // More sources than the table holds.
        until("the flood", || datagrams(&lab, "n2") > 10_000);
        let late = scope.spawn(|| ping("6"));
        let sent = String::from_utf8(flood.join().unwrap().stdout).unwrap();
        (early.join().unwrap(), late.join().unwrap(), sent)
    });
    let result = far.end();
    assert!(value(&result, "limited") > 1_000, "{result}, sent {sent}");
    assert_eq!(early["packets"]["received"], 9, "{early} {result}, sent {sent}");
    // The first packet of a new source in a flooded prefix may be refused.
    let received = late["packets"]["received"].as_u64().unwrap();
    assert!((5..=6).contains(&received), "{late} {result}, sent {sent}");
}
