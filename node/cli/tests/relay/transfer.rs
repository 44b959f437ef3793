//! A whole transfer of the real iperf through a tunnel of two relays, byte by byte.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::fixture::{HOST, PATIENCE, Relay, alone, value};
use crate::support::free_port;

const IPERF: &str = "/usr/bin/iperf";

/// Bytes that the relays leave readable: iperf's own first ones.
const CLEAR: usize = 12;

/// iperf ends again after a quarter of a second without an answer; after so long without a packet, it is over.
const QUIET: Duration = Duration::from_millis(500);

/// How much longer a packet is on the wire between the relays.
const NONCE: usize = 12;

/// Notes every message of one client that it passes on, there and back.
struct Tap {
    address: SocketAddr,
    /// How many it has passed on, there and back.
    passed: Arc<[AtomicUsize; 2]>,
    ended: Arc<AtomicBool>,
    passing: JoinHandle<[Vec<Vec<u8>>; 2]>,
}

impl Tap {
    fn before(to: &str) -> Self {
        let (near, far) =
            (UdpSocket::bind((HOST, 0)).unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        far.connect(to).unwrap();
        near.set_nonblocking(true).unwrap();
        far.set_nonblocking(true).unwrap();
        let (address, ended) = (near.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let passed = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let (stop, count) = (Arc::clone(&ended), Arc::clone(&passed));
        let passing = std::thread::spawn(move || pass(&near, &far, &count, &stop));
        Self { address, passed, ended, passing }
    }

    fn passed(&self) -> [usize; 2] {
        [0, 1].map(|way| self.passed[way].load(Ordering::Acquire))
    }

    fn end(self) -> [Vec<Vec<u8>>; 2] {
        self.ended.store(true, Ordering::Relaxed);
        self.passing.join().unwrap()
    }
}

fn pass(
    near: &UdpSocket,
    far: &UdpSocket,
    passed: &[AtomicUsize; 2],
    stop: &AtomicBool,
) -> [Vec<Vec<u8>>; 2] {
    let (mut there, mut back) = (Vec::new(), Vec::new());
    let (mut client, mut buffer) = (None, [0; 4_096]);
    while !stop.load(Ordering::Relaxed) {
        let mut was_idle = true;
        if let Ok((len, from)) = near.recv_from(&mut buffer) {
            client = Some(from);
            far.send(&buffer[..len]).unwrap();
            there.push(buffer[..len].to_vec());
            passed[0].fetch_add(1, Ordering::Release);
            was_idle = false;
        }
        if let (Ok(len), Some(client)) = (far.recv(&mut buffer), client) {
            near.send_to(&buffer[..len], client).unwrap();
            back.push(buffer[..len].to_vec());
            passed[1].fetch_add(1, Ordering::Release);
            was_idle = false;
        }
        if was_idle {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    [there, back]
}

#[test]
fn what_iperf_sends_into_the_tunnel_comes_out_byte_by_byte_and_so_does_its_report() {
    let _machine = alone();
    const TEST: &str =
        "what_iperf_sends_into_the_tunnel_comes_out_byte_by_byte_and_so_does_its_report";
    if !Path::new(IPERF).exists() {
        println!("SKIP {TEST}: iperf is not installed (make setup)");
        return;
    }
    // iperf 2.1.8 loses its head when asked at another address of loopback than the first.
    let port = free_port("127.0.0.1").to_string();
    let mut iperf = Command::new(IPERF);
    iperf.args(["-s", "-u", "-B", "127.0.0.1", "-p", &port]);
    let mut iperf = iperf.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let out = Tap::before(&format!("127.0.0.1:{port}"));
    let decrypt = Relay::to(out.address, &["--mode", "decrypt"]);
    let wire = Tap::before(&decrypt.listen);
    let encrypt = Relay::to(wire.address, &["--mode", "encrypt"]);
    let into = Tap::before(&encrypt.listen);
    let port = into.address.port().to_string();
    // So slow that no buffer is full before a second is over, however busy the machine.
    let transfer = ["-c", HOST, "-u", "-p", &port, "-l", "400", "-b", "480k", "-t", "4"];
    let output = Command::new(IPERF).args(transfer).output().unwrap();
    // Who hears no report soon, ends again and again, and is answered each time: the last of it may still
    // be on its way.
    let start = Instant::now();
    let passed = || [&into, &wire, &out].map(Tap::passed);
    let (mut seen, mut since) = (passed(), Instant::now());
    let all_came = |[into, wire, out]: [[usize; 2]; 3]| into == wire && wire == out && out[1] > 0;
    while !(all_came(seen) && since.elapsed() > QUIET) && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
        let now = passed();
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
    }
    iperf.kill().unwrap();
    iperf.wait().unwrap();
    let (encrypt, decrypt) = (encrypt.end(), decrypt.end());
    let [sent, answered] = into.end();
    let [enciphered, enciphered_answers] = wire.end();
    let [came, answers] = out.end();
    assert!(sent.len() > 500, "{output:?}");
    assert!(!answers.is_empty(), "the server reported: {output:?}");
    // Not by assert_eq, which would print it all.
    assert!(came == sent, "{} of {} messages came", came.len(), sent.len());
    assert!(answered == answers, "{} of {} answers came", answered.len(), answers.len());
    let clear = [sent, answers].concat();
    for (on_wire, clear) in [enciphered, enciphered_answers].concat().iter().zip(&clear) {
        assert_eq!(on_wire.len(), clear.len() + NONCE);
        assert_eq!(on_wire[..CLEAR], clear[..CLEAR]);
        assert!(on_wire[CLEAR + NONCE..] != clear[CLEAR..], "it is enciphered");
    }
    // The server's own count. Like "[  1] 0.0-1.0 sec  979 KBytes  8.0 Mbits/sec  0.003 ms 0/1003
    // (0%)"; iperf leaves loss and jitter out when it got no report back.
    let text = String::from_utf8_lossy(&output.stdout);
    let report = text.lines().rev().find(|line| line.contains(" ms ") && line.contains('%'));
    let report = report.unwrap_or_else(|| panic!("no report of the server came back: {output:?}"));
    let counts = report.split(" ms ").last().unwrap().trim().split('(').next().unwrap();
    let (lost, packets) = counts.trim().split_once('/').unwrap();
    assert_eq!(lost, "0", "{report}");
    let relayed = value(&encrypt, "relayed_forward");
    assert!(relayed >= packets.parse().unwrap(), "{report}");
    assert_eq!((relayed, value(&decrypt, "relayed_forward")), (came.len() as u64, relayed));
    assert_eq!(value(&decrypt, "unsealed"), 0);
}
