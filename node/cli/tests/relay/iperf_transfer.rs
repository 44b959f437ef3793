//! A transfer of the original iperf through a tunnel of two relays, compared byte by byte.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::fixture::{HOST, Relay, TEST_TIMEOUT, alone, value};
use crate::support::free_port;

const IPERF: &str = "/usr/bin/iperf";

/// Bytes that the relays leave unencrypted: the start of the iperf header.
const CLEAR: usize = 12;

/// Idle time after which the transfer is over: iperf repeats its FIN after a quarter of a second
/// without a report.
const IDLE_TIME: Duration = Duration::from_millis(500);

/// Bytes that encryption adds to a packet.
const NONCE: usize = 12;

/// Forwards the messages of one client in both directions and records them.
struct Tap {
    address: SocketAddr,
    /// Messages forwarded, in each direction.
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
        [0, 1].map(|direction| self.passed[direction].load(Ordering::Acquire))
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
    let (mut forward, mut backward) = (Vec::new(), Vec::new());
    let (mut client, mut buffer) = (None, [0; 4_096]);
    while !stop.load(Ordering::Relaxed) {
        let mut was_idle = true;
        if let Ok((len, from)) = near.recv_from(&mut buffer) {
            client = Some(from);
            far.send(&buffer[..len]).unwrap();
            forward.push(buffer[..len].to_vec());
            passed[0].fetch_add(1, Ordering::Release);
            was_idle = false;
        }
        if let (Ok(len), Some(client)) = (far.recv(&mut buffer), client) {
            near.send_to(&buffer[..len], client).unwrap();
            backward.push(buffer[..len].to_vec());
            passed[1].fetch_add(1, Ordering::Release);
            was_idle = false;
        }
        if was_idle {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    [forward, backward]
}

#[test]
fn iperf_transfer_survives_tunnel_unchanged() {
    let _machine = alone();
    const TEST: &str = "iperf_transfer_survives_tunnel_unchanged";
    if !Path::new(IPERF).exists() {
        println!("SKIP {TEST}: iperf is not installed (make setup)");
        return;
    }
    // iperf 2.1.8 fails if addressed at any loopback address but the first.
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
    // Slow enough that no buffer fills up within a second, even on a busy machine.
    let transfer = ["-c", HOST, "-u", "-p", &port, "-l", "400", "-b", "480k", "-t", "4"];
    let output = Command::new(IPERF).args(transfer).output().unwrap();
    // A client without a report repeats its FIN, and each is answered: the last reports may still
    // be on their way.
    let start = Instant::now();
    let passed = || [&into, &wire, &out].map(Tap::passed);
    let (mut seen, mut since) = (passed(), Instant::now());
    let all_arrived =
        |[into, wire, out]: [[usize; 2]; 3]| into == wire && wire == out && out[1] > 0;
    while !(all_arrived(seen) && since.elapsed() > IDLE_TIME) && start.elapsed() < TEST_TIMEOUT {
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
    let [arrived, answers] = out.end();
    assert!(sent.len() > 500, "{output:?}");
    assert!(!answers.is_empty(), "the server reported: {output:?}");
    // assert_eq would print all data.
    assert!(arrived == sent, "{} of {} messages arrived", arrived.len(), sent.len());
    assert!(answered == answers, "{} of {} replies arrived", answered.len(), answers.len());
    let clear = [sent, answers].concat();
    for (on_wire, clear) in [enciphered, enciphered_answers].concat().iter().zip(&clear) {
        assert_eq!(on_wire.len(), clear.len() + NONCE);
        assert_eq!(on_wire[..CLEAR], clear[..CLEAR]);
        assert!(on_wire[CLEAR + NONCE..] != clear[CLEAR..], "the payload is encrypted");
    }
    // Compare with the server's count, like "[  1] 0.0-1.0 sec  979 KBytes  8.0 Mbits/sec  0.003 ms
    // 0/1003 (0%)"; iperf omits loss and jitter if it received no report.
    let text = String::from_utf8_lossy(&output.stdout);
    let report = text.lines().rev().find(|line| line.contains(" ms ") && line.contains('%'));
    let report = report.unwrap_or_else(|| panic!("no server report arrived: {output:?}"));
    let counts = report.split(" ms ").last().unwrap().trim().split('(').next().unwrap();
    let (lost, packets) = counts.trim().split_once('/').unwrap();
    assert_eq!(lost, "0", "{report}");
    let relayed = value(&encrypt, "relayed_forward");
    assert!(relayed >= packets.parse().unwrap(), "{report}");
    assert_eq!((relayed, value(&decrypt, "relayed_forward")), (arrived.len() as u64, relayed));
    assert_eq!(value(&decrypt, "unsealed"), 0);
}
