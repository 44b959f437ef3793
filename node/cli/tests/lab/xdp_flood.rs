//! The reflector in the driver under floods: good probes and other traffic lose nothing.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use dwell_engine::protocol::Scheme;
use dwell_io::batch::{Batch, Parcel};
use dwell_io::datagram::DatagramSocket;
use dwell_io::netns;
use dwell_io::port::SocketOptions;
use dwell_wire::icmp::checksum;

use crate::fixture::{DWELL, TestLab, WAIT_TIMEOUT, as_root, has, said, skip, until};
use crate::xdp_frames::Packet;
use crate::xdp_reflector::{HOSTS, PYTHON, ethernet_address, hex, link, ping, reflect};

/// Number of probes of a flood that are sent together.
const FLOOD_BATCH: usize = 64;

/// Sets a flag when it is dropped, also by a panic, so that no thread waits for ever.
struct Finish<'a>(&'a AtomicBool);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A flood of round-trip messages from node n1.
#[derive(Default)]
struct Flood {
    sent: AtomicU64,
    answered: AtomicU64,
    /// Asks the flood to end.
    stop: AtomicBool,
    has_ended: AtomicBool,
}

impl Flood {
    fn run(&self, lab: &TestLab) {
        let _ended = Finish(&self.has_ended);
        let connect = || {
            let to = "198.19.0.2:7003".parse().unwrap();
            DatagramSocket::connect(to, &SocketOptions::server())
        };
        let mut socket = netns::within(&lab.netns("n1"), connect).unwrap().unwrap();
        let request = [&[7; 20], &b"REQ\0"[..]].concat();
        let (mut requests, mut replies) = (Batch::new(FLOOD_BATCH, 0), Batch::new(FLOOD_BATCH, 0));
        let parcels = (0..FLOOD_BATCH).map(|n| {
            requests.buffer(n)[..24].copy_from_slice(&request);
            Parcel { n, at: 0..24, to: None }
        });
        let parcels: Vec<_> = parcels.collect();
        while !self.stop.load(Ordering::Relaxed) {
            let mut sent = 0;
            requests.send(&mut socket, &parcels, &mut |_, outcome, _| {
                sent += u64::from(outcome.is_ok());
            });
            self.sent.fetch_add(sent, Ordering::Relaxed);
            while let received @ 1.. = replies.receive(&socket).unwrap() {
                self.answered.fetch_add(received as u64, Ordering::Relaxed);
            }
        }
    }

    /// Runs one part of the other traffic, and checks that the flood lasts longer.
    fn during<T>(&self, part: impl FnOnce() -> T) -> T {
        let sent = || self.sent.load(Ordering::Relaxed);
        let before = sent();
        let result = part();
        let after = sent();
        assert!(after > before, "{after} probes sent");
        until("the flood goes on", || sent() > after);
        result
    }
}

/// Returns each line, as a terminal does.
fn return_lines(listener: &TcpListener) {
    let (mut stream, _) = listener.accept().unwrap();
    for line in BufReader::new(stream.try_clone().unwrap()).lines() {
        stream.write_all(format!("{}\n", line.unwrap()).as_bytes()).unwrap();
    }
}

/// Types lines at a terminal until the flood has ended; returns their number.
fn type_lines(stream: TcpStream, flood: &Flood) -> u64 {
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    let mut replies = BufReader::new(stream.try_clone().unwrap());
    for number in 0.. {
        let is_last = flood.has_ended.load(Ordering::Relaxed);
        let line = format!("line {number}\n");
        (&stream).write_all(line.as_bytes()).unwrap();
        let mut reply = String::new();
        replies.read_line(&mut reply).unwrap();
        assert_eq!(reply, line);
        if is_last {
            return number;
        }
    }
    unreachable!("a flood ends")
}

/// Sends `bytes` from n1 to `listener` over TCP, and returns the bytes that arrived.
fn transfer(lab: &TestLab, listener: &TcpListener, bytes: &[u8]) -> Vec<u8> {
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
            let mut arrived = Vec::new();
            stream.read_to_end(&mut arrived).unwrap();
            arrived
        });
        let to = listener.local_addr().unwrap();
        let mut stream =
            netns::within(&lab.netns("n1"), || TcpStream::connect(to)).unwrap().unwrap();
        stream.set_write_timeout(Some(WAIT_TIMEOUT)).unwrap();
        stream.write_all(bytes).unwrap();
        drop(stream);
        receiver.join().unwrap()
    })
}

#[test]
fn tcp_and_kernel_ping_survive_a_million_probes() {
    const PROBES: u64 = 1_000_000;
    if !as_root() || !has("ping") {
        return;
    }
    let lab = TestLab::up("xdp-flood", &["line:2"]);
    let server = reflect(&lab, &["--engine", "xdp"]);
    let [terminal, sink] = [22, 2_222].map(|port| {
        netns::within(&lab.netns("n2"), || TcpListener::bind(("198.19.0.2", port)))
            .unwrap()
            .unwrap()
    });
    let to = terminal.local_addr().unwrap();
    let keyboard = netns::within(&lab.netns("n1"), || TcpStream::connect(to)).unwrap().unwrap();
    let bytes: Vec<u8> = (0..5_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let flood = Flood::default();
    let mut rounds = 0;
    thread::scope(|scope| {
        let _stop = Finish(&flood.stop);
        scope.spawn(|| return_lines(&terminal));
        let typist = scope.spawn(|| type_lines(keyboard, &flood));
        scope.spawn(|| flood.run(&lab));
        let since = Instant::now();
        while rounds == 0 || flood.answered.load(Ordering::Relaxed) < PROBES {
            let answered = flood.answered.load(Ordering::Relaxed);
            assert!(since.elapsed() < 2 * WAIT_TIMEOUT, "{answered} probes answered");
            let arrived = flood.during(|| transfer(&lab, &sink, &bytes));
            assert!(arrived == bytes, "{} bytes arrived", arrived.len());
            for host in ["198.19.0.2", "fd64:7765:6c6c:ffff::2"] {
                let arguments = ["ping", "-q", "-c", "20", "-i", "0.01", "-W", "5", host];
                let output = flood.during(|| lab.exec("n1", &arguments));
                let text = String::from_utf8_lossy(&output.stdout);
                assert!(text.contains("20 received"), "{text} {}", said(&output));
            }
            rounds += 1;
        }
        flood.stop.store(true, Ordering::Relaxed);
        let lines = typist.join().unwrap();
        assert!(lines >= 100, "{lines} lines typed during the flood");
    });
    let values = server.end()["values"].clone();
    assert!(values["driver_roundtrip_replies"].as_u64().unwrap() >= PROBES, "{values}");
    assert_eq!(values["driver_icmp_replies"], 40 * rounds, "{values}");
    assert_eq!(values["to_socket"], 0, "{values}");
}

/// Checks that probes of every protocol are answered, over IPv4 in even rounds.
fn assert_good_probes_answered(lab: &TestLab, round: usize) {
    for (scheme, port) in [("roundtrip", 7_003), ("stamp", 7_001), ("udp", 7_002)] {
        let url = format!("{scheme}://{}:{port}", HOSTS[round % 2]);
        let result = ping(lab, &url, &["-c", "100", "--warm-up", "0"]);
        assert_eq!(result["packets"]["received"], 100, "{url} {result}");
    }
}

#[test]
fn malformed_flood_costs_no_good_probe() {
    const MALFORMED: u32 = 300_000;
    if !as_root() {
        return;
    }
    let lab = TestLab::up("xdp-malformed", &["line:2"]);
    let server = reflect(&lab, &["--engine", "xdp"]);
    let is_flooded = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let [roundtrip, stamp] = [7_003, 7_001].map(|port| {
                let socket = lab.socket("n1", "0.0.0.0:0");
                socket.connect(("198.19.0.2", port)).unwrap();
                socket
            });
            for _ in 0..MALFORMED / 2 {
                roundtrip.send(b"not 24 bytes").unwrap();
                stamp.send(b"not 14 bytes").unwrap();
            }
            is_flooded.store(true, Ordering::Relaxed);
        });
        let mut rounds = 0;
        while !is_flooded.load(Ordering::Relaxed) {
            assert_good_probes_answered(&lab, rounds);
            rounds += 1;
        }
        assert!(rounds > 0, "probes beside the flood");
    });
    let values = server.end()["values"].clone();
    assert_eq!(values["driver_roundtrip_malformed"], MALFORMED / 2, "{values}");
    assert_eq!(values["driver_stamp_malformed"], MALFORMED / 2, "{values}");
    assert_eq!(values["malformed"], MALFORMED, "{values}");
}

/// Sends the same frames repeatedly, at least a number of times and until its input ends, and prints
/// how often. Arguments: interface, number, frames.
const SEND_FRAMES: &str = "
import select, socket, sys
name, least = sys.argv[1], int(sys.argv[2])
frames = [bytes.fromhex(text) for text in sys.argv[3:]]
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind((name, 0))
print('sending', flush=True)
sent = 0
while sent < least or not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(100):
        for frame in frames:
            s.send(frame)
    sent += 100
print(sent)
";

/// Frames with wrong checksums, and fragments of a datagram that is never complete: the number of
/// UDP frames with a wrong checksum, of such ICMP frames and of first fragments, and the frames.
fn bad_frames(mac_to: [u8; 6], mac_from: [u8; 6]) -> (u64, u64, u64, Vec<Vec<u8>>) {
    let packet = |scheme, is_ipv6: bool, payload: Vec<u8>| {
        let mut packet = Packet::new(scheme, is_ipv6, payload);
        let host = |node: u8| match is_ipv6 {
            false => format!("198.19.0.{node}"),
            true => format!("fd64:7765:6c6c:ffff::{node}"),
        };
        packet.from.set_ip(host(1).parse().unwrap());
        packet.to.set_ip(host(2).parse().unwrap());
        packet.to.set_port(if scheme == Scheme::Icmp { 0 } else { 7_002 });
        packet
    };
    let echo = |is_ipv6| packet(Scheme::Udp, is_ipv6, vec![9; 32]);
    let icmp = |is_ipv6, kind| packet(Scheme::Icmp, is_ipv6, vec![kind, 0, 0, 0, 1, 2, 3, 4, 5, 6]);
    let changed = |packet: Packet, change: &dyn Fn(&mut [u8])| {
        let mut frame = packet.frame(mac_to, mac_from);
        change(&mut frame);
        frame
    };
    let last = |frame: &mut [u8]| *frame.last_mut().unwrap() ^= 1;
    let fragment = |field: [u8; 2]| {
        changed(echo(false), &|frame| {
            frame[20..22].copy_from_slice(&field);
            frame[24..26].fill(0);
            let sum = checksum(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        })
    };
    let frames = vec![
        changed(echo(false), &last),
        changed(echo(true), &last),
        changed(echo(false), &|frame| frame[24] ^= 1),
        changed(icmp(false, 8), &last),
        changed(icmp(true, 128), &last),
        fragment([0x20, 0]),
        // 80 bytes after the start, and the first fragment has 40.
        fragment([0, 10]),
    ];
    (3, 2, 1, frames)
}

#[test]
fn flood_of_bad_sums_and_fragments_costs_no_good_probe() {
    const MIN_REPEATS: u64 = 40_000;
    if !as_root() {
        return;
    }
    if !Path::new(PYTHON).exists() {
        skip("python3 is not installed (make setup)");
        return;
    }
    let lab = TestLab::up("xdp-bad-sums", &["line:2"]);
    let server = reflect(&lab, &["--engine", "xdp"]);
    let (near, _) = link(&lab, "n1");
    let [near_mac, far_mac] = ["n1", "n2"].map(|node| ethernet_address(&lab, node));
    let (bad_udp, bad_icmp, first_fragments, frames) = bad_frames(far_mac, near_mac);
    let mut child = Command::new(DWELL)
        .args(["lab", "exec", "--lab", &lab.name, "n1", "--", PYTHON, "-c", SEND_FRAMES, &near])
        .arg(MIN_REPEATS.to_string())
        .args(frames.iter().map(|frame| hex(frame)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "sending");
    for round in 0..4 {
        assert_good_probes_answered(&lab, round);
        assert!(child.try_wait().unwrap().is_none(), "the flood goes on");
    }
    drop(child.stdin.take());
    let sent: u64 = lines.next().unwrap().unwrap().parse().unwrap();
    assert!(child.wait().unwrap().success());
    let values = server.end()["values"].clone();
    assert_eq!(values["driver_udp_bad_checksum"], bad_udp * sent, "{values}");
    assert_eq!(values["driver_icmp_bad_checksum"], bad_icmp * sent, "{values}");
    assert_eq!(values["driver_udp_to_socket"], first_fragments * sent, "{values}");
    assert_eq!((&values["malformed"], &values["looping"]), (&0.into(), &0.into()), "{values}");
}
