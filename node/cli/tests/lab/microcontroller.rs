//! A Cortex-M3 in QEMU as a node of a lab: exchanges of every protocol, its clock, malformed packets,
//! and what is missing. Needs the firmware (`make firmware`), qemu-system-arm and root.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use dwell_io::netns;
use serde_json::Value;

use crate::fixture::{DWELL, TestLab, WAIT_TIMEOUT, as_root, has, said, skip};

/// The device's address, and its hardware address behind the namespace of its node.
const DEVICE: &str = "198.19.0.2";
const HARDWARE: &str = "02:64:77:fe:00:02";

/// Port of round-trip and of request/acknowledge.
const PORT: u16 = 7_100;

/// A lab of a host and a device; removed with its test.
struct DeviceLab {
    lab: TestLab,
}

impl DeviceLab {
    /// Creates the lab, or prints why it is impossible here.
    fn up(test: &str) -> Option<Self> {
        if !as_root() || !has("qemu-system-arm") {
            return None;
        }
        let lab = TestLab::reserve(test);
        let output = up(&lab, "", &[]);
        if output.status.code() == Some(4) && said(&output).contains("make firmware") {
            skip("needs the firmware: make firmware");
            return None;
        }
        assert!(output.status.success(), "{output:?}");
        Some(Self { lab })
    }

    /// Runs `dwell ping` in the host; returns the summary.
    fn ping(&self, url: &str, options: &[&str]) -> Value {
        let command = [&[DWELL, "ping", url, "--json"], options].concat();
        let output = self.lab.exec("host", &command);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// What the device printed.
    fn console(&self) -> String {
        fs::read_to_string(self.lab.directory().join("device-1.serial")).unwrap()
    }

    fn assert_not_restarted(&self) {
        let console = self.console();
        assert_eq!(console.matches("ready at").count(), 1, "{console}");
        assert!(!console.contains("restart"), "{console}");
    }

    fn udp(&self, port: u16) -> UdpSocket {
        let socket = self.lab.socket("host", "0.0.0.0:0");
        socket.connect((DEVICE, port)).unwrap();
        socket
    }

    fn tcp(&self) -> TcpStream {
        let connect = || TcpStream::connect((DEVICE, PORT));
        let stream = netns::within(&self.lab.netns("host"), connect).unwrap().unwrap();
        stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        stream
    }
}

/// Runs `lab up` with a host and a device, with these more lines about the device.
fn up(lab: &TestLab, device: &str, environment: &[(&str, &str)]) -> std::process::Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lab.toml");
    let text = format!(
        "version = 1\nnodes = [\"host\", \"mcu\"]\nlinks = [{{ a = \"host\", b = \"mcu\" }}]\n\
         [device.mcu]\nkind = \"cortex-m3\"\n{device}"
    );
    fs::write(&file, text).unwrap();
    Command::new(DWELL)
        .args(["lab", "up", "--name", &lab.name])
        .arg(&file)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn count(summary: &Value, name: &str) -> u64 {
    summary["packets"][name].as_u64().unwrap()
}

#[test]
fn device_answers_every_exchange_without_loss() {
    let Some(mcu) = DeviceLab::up("mcu-exchange") else { return };
    // A stalled emulator must not look like a loss.
    let options = ["-c", "1000", "-i", "0", "-W", "10"];
    for scheme in ["text+udp", "text+tcp", "roundtrip"] {
        let how: &[&str] = if scheme == "roundtrip" { &["--closed-loop"] } else { &[] };
        let url = format!("{scheme}://mcu:{PORT}");
        let summary = mcu.ping(&url, &[&options[..], how].concat());
        let counts =
            ["sent", "received", "lost", "late", "duplicate"].map(|it| count(&summary, it));
        assert_eq!(counts, [1_000, 1_000, 0, 0, 0], "{url}");
    }
    mcu.assert_not_restarted();
    assert!(mcu.lab.down().status.success());
    mcu.lab.assert_nothing_is_left();
}

#[test]
fn clock_of_the_device_gives_one_way_delays() {
    let Some(mcu) = DeviceLab::up("mcu-clock") else { return };
    // Longer than two wraps of SysTick, which take 671 ms. STAMP's clock counts from 2036, the next era of
    // NTP; times in requests count from 1970.
    check_clock(&mcu, "stamp://mcu", &[], 0.0..20.0);
    for scheme in ["text+udp", "text+tcp"] {
        check_clock(&mcu, &format!("{scheme}://mcu:{PORT}"), &["-s", "41"], -70.0..-50.0);
    }
}

/// Checks the clock and the one-way delays; the clock of the device is this many years ahead.
fn check_clock(mcu: &DeviceLab, url: &str, options: &[&str], ahead: std::ops::Range<f64>) {
    let summary = mcu.ping(url, &[&["-c", "200", "-i", "0.01", "-W", "10"], options].concat());
    assert_eq!((count(&summary, "received"), count(&summary, "lost")), (200, 0), "{url}");
    let figure = |metric: &str, of: &str| summary["metrics"][metric][of].as_i64().unwrap();
    let value = |name: &str| summary["values"][name].as_f64().unwrap_or_else(|| panic!("{name}"));
    let error = value("one_way_forward_error_ns");
    assert_eq!(error, value("clock_far_error_ns"));
    assert!(error < figure("rtt_ns", "max") as f64, "{error}");
    for metric in ["one_way_forward_ns", "one_way_backward_ns"] {
        assert_eq!(figure(metric, "count"), 200, "{metric} of {url}");
        assert!(figure(metric, "min") as f64 >= -error, "{metric} of {url}");
    }
    let both = figure("one_way_forward_ns", "min") + figure("one_way_backward_ns", "min");
    assert!(both <= figure("rtt_ns", "min"), "{both}");
    assert!(figure("residence_ns", "min") > 0);
    let years = value("clock_far_offset_ns") / 1e9 / 86_400.0 / 365.25;
    assert!(ahead.contains(&years), "{years} years");
    let (rate, rate_error) = (value("clock_far_rate_ppm"), value("clock_far_rate_error_ppm"));
    // Both clocks are that of this machine.
    assert!(rate.abs() <= rate_error + 100.0, "{rate} +- {rate_error} ppm");
    let warnings = summary["trust"]["warnings"].to_string();
    assert!(warnings.contains("bounded-clocks"), "{warnings}");
}

#[test]
fn times_of_requests_are_those_of_the_device() {
    let Some(mcu) = DeviceLab::up("mcu-times") else { return };
    let request = b"request 0000000000000000 0000000000000000";
    let times = |reply: &[u8]| {
        let text = std::str::from_utf8(reply).unwrap().to_owned();
        let mut words = text.split(' ');
        assert_eq!(words.next(), Some("acknowledge"), "{text}");
        [(); 2].map(|()| u64::from_str_radix(words.next().unwrap(), 16).unwrap())
    };
    let mut before = 0;
    let (udp, mut tcp) = (mcu.udp(PORT), mcu.tcp());
    for _ in 0..100 {
        let mut reply = [0; 64];
        udp.send(request).unwrap();
        let len = udp.recv(&mut reply).unwrap();
        let [received, sent] = times(&reply[..len]);
        assert!(before < received && received < sent, "{before} {received} {sent}");
        let mut reply = [0; 45];
        // A request in two segments.
        tcp.write_all(&request[..20]).unwrap();
        tcp.write_all(&request[20..]).unwrap();
        tcp.read_exact(&mut reply).unwrap();
        let [received, after] = times(&reply);
        assert!(sent < received && received < after, "{sent} {received} {after}");
        before = after;
    }
}

#[test]
fn pipelined_requests_are_all_answered() {
    let Some(mcu) = DeviceLab::up("mcu-pipeline") else { return };
    const REQUESTS: usize = 2_000;
    let stream = mcu.tcp();
    let mut sender = stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || sender.write_all(&b"request\n".repeat(REQUESTS)));
    let mut replies = vec![0; REQUESTS * "acknowledge".len()];
    (&stream).read_exact(&mut replies).unwrap();
    sending.join().unwrap().unwrap();
    assert_eq!(replies, b"acknowledge".repeat(REQUESTS));
    // More connections than the device has; the oldest or the new ones end, and later ones work.
    let many: Vec<_> = (0..20)
        .filter_map(|_| {
            let address = format!("{DEVICE}:{PORT}").parse().unwrap();
            let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(2));
            netns::within(&mcu.lab.netns("host"), connect).unwrap().ok()
        })
        .collect();
    assert!(many.len() >= 8, "{} connections", many.len());
    drop((many, stream));
    let summary = mcu.ping(&format!("text+tcp://mcu:{PORT}"), &["-c", "10", "-i", "0", "-W", "10"]);
    assert_eq!(count(&summary, "received"), 10);
    mcu.assert_not_restarted();
}

#[test]
fn malformed_packets_neither_hang_nor_restart_the_device() {
    let Some(mcu) = DeviceLab::up("mcu-malformed") else { return };
    if !has("python3") {
        return;
    }
    let script =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../firmware/tests/malformed_frames.py");
    let script = script.to_str().unwrap();
    let source = "198.18.0.1";
    let sent = mcu.lab.exec("mcu", &["python3", script, "device-tap", HARDWARE, DEVICE, source]);
    assert!(sent.status.success(), "{sent:?}");
    let frames: u32 = String::from_utf8_lossy(&sent.stdout).trim().parse().unwrap();
    assert!(frames > 3_000, "{frames}");
    for url in [
        "stamp://mcu".to_owned(),
        format!("text+tcp://mcu:{PORT}"),
        format!("roundtrip://mcu:{PORT}"),
    ] {
        let summary = mcu.ping(&url, &["-c", "50", "-i", "0.005", "-W", "10"]);
        assert_eq!(count(&summary, "received"), 50, "{url} after {frames} frames");
    }
    mcu.assert_not_restarted();
}

#[test]
fn malformed_requests_get_no_reply() {
    let Some(mcu) = DeviceLab::up("mcu-refusals") else { return };
    let stamp = |change: fn(&mut Vec<u8>)| {
        let mut packet = vec![0; 44];
        packet[12..14].copy_from_slice(&[0x80, 1]);
        change(&mut packet);
        packet
    };
    let refused = [
        (862, stamp(|it| it.truncate(43))),
        // A reply: sender's error estimate and TTL, T3 after T2.
        (862, stamp(|it| (it[36], it[40]) = (0x80, 64))),
        (PORT, b"requests".to_vec()),
        (PORT, b"request 0000000000000000 000000000000000g".to_vec()),
        (PORT, [&[0; 20][..], b"ACK\0"].concat()),
        (PORT, [&[0; 20][..], b"REQ\0\0"].concat()),
    ];
    for (port, request) in refused {
        let socket = mcu.udp(port);
        socket.send(&request).unwrap();
        // A valid request afterwards gets the first reply.
        let valid = if port == 862 { stamp(|it| it[3] = 9) } else { b"request".to_vec() };
        socket.send(&valid).unwrap();
        let mut reply = [0; 64];
        let len = socket.recv(&mut reply).unwrap();
        match port {
            862 => assert_eq!((len, reply[27]), (44, 9), "{request:?}"),
            _ => assert_eq!(&reply[..len], b"acknowledge", "{request:?}"),
        }
    }
}

#[test]
fn missing_image_or_emulator_is_explained() {
    if !as_root() || !has("qemu-system-arm") {
        return;
    }
    let lab = TestLab::reserve("mcu-missing");
    let output = up(&lab, "image = \"none.elf\"\n", &[]);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(said(&output).contains("make firmware"), "{}", said(&output));
    let output = up(&lab, "", &[("PATH", "/nonexistent")]);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(said(&output).contains("apt-get install qemu-system-arm"), "{}", said(&output));
    lab.assert_nothing_is_left();
}

#[test]
fn image_that_does_not_start_is_refused() {
    if !as_root() || !has("qemu-system-arm") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("empty.elf");
    fs::write(&image, b"not a program").unwrap();
    let lab = TestLab::reserve("mcu-broken");
    let output = up(&lab, &format!("image = \"{}\"\n", image.display()), &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said(&output).contains("cortex-m3 of mcu"), "{}", said(&output));
    lab.assert_nothing_is_left();
}

#[test]
fn lab_whose_device_ended_is_broken() {
    let Some(mcu) = DeviceLab::up("mcu-ended") else { return };
    assert_eq!(mcu.lab.describe()["state"], "up");
    let emulator: Vec<String> = mcu.lab.processes();
    let pid = emulator.iter().find(|line| line.contains("-M lm3s6965evb")).expect("QEMU");
    let pid = pid.split(' ').next().unwrap();
    assert!(Command::new("kill").args(["-KILL", pid]).status().unwrap().success());
    crate::fixture::until("the lab is broken", || mcu.lab.describe()["state"] == "broken");
}
