//! The reflector in the driver under floods: good probes and other traffic lose nothing.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use dwell_io::netns;

use crate::fixture::{TestLab, WAIT_TIMEOUT, as_root, has, said, until};
use crate::xdp_reflector::{HOSTS, ping, reflect};

#[test]
fn tcp_and_kernel_ping_survive_a_flood_of_probes() {
    const PROBES: u32 = 300_000;
    const BYTES: usize = 20_000_000;
    if !as_root() || !has("ping") {
        return;
    }
    let lab = TestLab::up("xdp-flood", &["line:2"]);
    let server = reflect(&lab, &["--engine", "xdp"]);
    let listener =
        netns::within(&lab.netns("n2"), || TcpListener::bind("198.19.0.2:2222")).unwrap().unwrap();
    let flooded = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let socket = lab.socket("n1", "0.0.0.0:0");
            socket.connect("198.19.0.2:7002").unwrap();
            socket.set_nonblocking(true).unwrap();
            let mut buffer = [0; 64];
            for number in 0..PROBES {
                let _ = socket.send(&number.to_be_bytes());
                let _ = socket.recv(&mut buffer);
            }
            flooded.store(true, Ordering::Relaxed);
        });
        let receiver = scope.spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut sum = 0;
            let mut buffer = vec![0; 65_536];
            while let Ok(len @ 1..) = stream.read(&mut buffer) {
                sum += len;
            }
            sum
        });
        let connect = || TcpStream::connect("198.19.0.2:2222");
        let mut stream = netns::within(&lab.netns("n1"), connect).unwrap().unwrap();
        stream.set_write_timeout(Some(WAIT_TIMEOUT)).unwrap();
        stream.write_all(&vec![7; BYTES]).unwrap();
        drop(stream);
        assert_eq!(receiver.join().unwrap(), BYTES);
        for host in ["198.19.0.2", "fd64:7765:6c6c:ffff::2"] {
            let arguments = ["ping", "-q", "-c", "20", "-i", "0.01", "-W", "5", host];
            let output = lab.exec("n1", &arguments);
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains("20 received"), "{text} {}", said(&output));
        }
        until("the flood ends", || flooded.load(Ordering::Relaxed));
    });
    let summary = server.end();
    assert_eq!(summary["values"]["driver_udp_replies"], PROBES, "{summary}");
    assert_eq!(summary["values"]["driver_icmp_replies"], 40, "{summary}");
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
            for (scheme, port) in [("roundtrip", 7_003), ("stamp", 7_001), ("udp", 7_002)] {
                let url = format!("{scheme}://{}:{port}", HOSTS[rounds % 2]);
                let result = ping(&lab, &url, &["-c", "100", "--warm-up", "0"]);
                assert_eq!(result["packets"]["received"], 100, "{url} {result}");
            }
            rounds += 1;
        }
        assert!(rounds > 0, "probes beside the flood");
    });
    let values = server.end()["values"].clone();
    assert_eq!(values["driver_roundtrip_malformed"], MALFORMED / 2, "{values}");
    assert_eq!(values["driver_stamp_malformed"], MALFORMED / 2, "{values}");
    assert_eq!(values["malformed"], MALFORMED, "{values}");
}
